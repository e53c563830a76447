"""Layouts as a table, and what they add to synthesis in sentences."""

from collections.abc import Sequence

from rich.console import Console

from t3sim.area.liberty import Library
from t3sim.area.report import Section, page
from t3sim.area.route.flow import BLOCKS, Factors, Routed, factors
from t3sim.area.route.tools import Tools
from t3sim.rtl.geometry import Geometry
from t3sim.study.report import NOTHING, print_table


def section(found: Sequence[Routed]) -> Section:
    return ("Layouts", ("block", "gate\nequivalents", "cells", "die\nµm", "rows\nfull", "wires\nmm", "MHz\nbefore",
                        "MHz\nafter", "cycle\nlonger", "skew\nps", "area\nover gates"), [
        (one.block, f"{one.gate_equivalents:,.0f}", f"{one.cells:,}", f"{one.width_um:.0f} x {one.height_um:.0f}",
         f"{one.utilisation:.0%}", f"{one.wires_um / 1e3:.1f}", f"{1e3 / one.before_ns:.0f}",
         f"{1e3 / one.after_ns:.0f}", f"{one.delay_factor:.2f}",
         f"{1e3 * one.skew_ns:.0f}" if one.clock_levels else NOTHING, f"{one.area_factor:.2f}") for one in found])


def paths(found: Sequence[Routed]) -> Section:
    return ("Longest paths after routing", ("block: from → to", "cycle\nns", "clock's way\nns"), [
        (f"{one.block}: {one.start} → {one.end}", f"{one.after_ns:.2f}",
         f"{one.latency_ns:.2f}" if one.clock_levels else NOTHING) for one in found])


def sentence(made: Factors) -> str:
    """Say the factors in a sentence."""
    return (f"Wires and clock tree make the cycle {made.delay:.2f} times what the gates need ({made.delay_least:.2f} "
            f"to {made.delay_most:.2f}), rows and tree the area {made.area:.2f} times the gates' "
            f"({made.area_least:.2f} to {made.area_most:.2f}): the median of {made.blocks} "
            f"{'blocks' if made.blocks > 1 else 'block'}, and the range.")


def remarks(library: Library, tools: Tools) -> list[str]:
    """Explain what was done, and what was not."""
    return [
        f"Tools: {tools.versions}; cells: {library.name} (180 nm).",
        ("Before: as mapped, without wires, the clock everywhere at once. After: with the wires' capacitance and "
         "Elmore's delay, and each flip-flop's own way from the clock's port. A block's ports are registers of its "
         "neighbours, as far from the clock as the block's own are on average."),
        ("Clock tree: buffers over groups of flip-flops that lie together, all at one depth; a gated register has a "
         "latch and gates in the buffers' place."),
        ("Area over gates: all rows, over as many NAND2 as the mapped netlist is worth. Memories stand outside: their "
         "data and addresses are pins."),
        ("Wires: resistance and capacitance of the LEF file, to ground, 5 Ω a via. Left out: coupling between wires, "
         "power straps, hold times, antenna rules."),
        f"`all` are {', '.join(BLOCKS)}.",
    ]


def print_layouts(found: Sequence[Routed], library: Library, tools: Tools, console: Console) -> None:
    for title, columns, rows in (section(found), paths(found)):
        print_table(title, columns, rows, console)
    for remark in remarks(library, tools):
        console.print(remark, style="dim")
    console.print(sentence(factors(found)))


def markdown(found: Sequence[Routed], geometry: Geometry, library: Library, tools: Tools, command: str) -> str:
    """Write the page."""
    notes = [sentence(factors(found)), *remarks(library, tools)]
    return page("Placed and routed", command, geometry, notes, [section(found), paths(found)])
