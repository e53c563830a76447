"""Energy as tables for people, and as the page `docs/results/energy.md`."""

from collections.abc import Sequence

from rich.console import Console

from t3sim.area.energy.measured import TECHNIQUE, LayerEnergy, ModuleEnergy
from t3sim.area.energy.price import NOTHING, SHRINK_ERROR, TREE_PER_FLIP_FLOP, WIRES_OVER_PINS, Range, shrink
from t3sim.area.energy.recorded import BATCH, SAMPLED
from t3sim.area.liberty import Library
from t3sim.area.measure import TOP
from t3sim.area.node import ProcessNode
from t3sim.area.report import Section, page
from t3sim.base.console import print_table
from t3sim.rtl.geometry import Geometry

_MOST_ROWS = 12
_RANGE = ("low", "typical", "high")


def _figures(value: Range, scale: float = 1.0) -> tuple[str, ...]:
    return tuple(_number(one * scale) for one in vars(value).values())


def _number(value: float) -> str:
    """Write three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value else "0"


def sections(found: LayerEnergy) -> list[Section]:
    """Return (title, columns, rows), for a terminal as for Markdown."""
    shares = found.shares
    whole = sum((pj.typical for name, pj in shares.items()), 0.0)
    return [
        ("The layer on a GPU", ("where", *(f"{name}\nmJ" for name in _RANGE), "share of\ntypical"), [
            (name, *_figures(pj, 1e-9), f"{pj.typical / whole:.2%}") for name, pj in shares.items()]),
        ("What an action takes", ("action", "number", *(f"{name}\npJ" for name in _RANGE)), [
            (name, f"{count:,}", *_figures(pj)) for name, (count, pj) in found.actions.items()]),
        _power(found),
        _classes(found),
    ]


def _ordered(found: LayerEnergy) -> list[tuple[str, ModuleEnergy]]:
    return sorted(found.modules.items(), key=lambda item: -item[1].pj.typical)


def _power(found: LayerEnergy) -> Section:
    rows = []
    for name, one in _ordered(found)[:_MOST_ROWS]:
        title = "wiring, counters" if name == TOP else name
        rows.append((title, str(one.instances), f"{100 * one.changes:.3g}", f"{one.clocked:.1%}",
                     *_figures(found.milliwatts(one.pj))))
    others = [one for _, one in _ordered(found)[_MOST_ROWS:]]
    if others:
        rows.append((f"{len(others)} others", str(sum(one.instances for one in others)), "", "",
                     *_figures(found.milliwatts(sum((one.pj for one in others), NOTHING)))))
    rows.append(("the top", "1", "", "", *_figures(found.milliwatts(found.top_pj))))
    return ("Power of the top", ("module", "instances", "changes of a net\nin 100 cycles", "flip-flops\nclocked",
                                 *(f"{name}\nmW" for name in _RANGE)), rows)


def _classes(found: LayerEnergy) -> Section:
    whole = found.top_pj.typical
    return ("Of what the top's power is made", ("of", *(f"{name}\nmW" for name in _RANGE), "share of\ntypical"), [
        (kind, *_figures(found.milliwatts(pj)), f"{pj.typical / whole:.1%}") for kind, pj in found.by_class.items()])


def remarks(found: LayerEnergy, library: Library, node: ProcessNode) -> list[str]:
    """Say what the figures are."""
    wires = " to ".join(f"{one:g}" for one in (WIRES_OVER_PINS.low, WIRES_OVER_PINS.high))
    end = "the whole fused kernel" if found.whole else "the first part of the fused kernel"
    cells = f"{SHRINK_ERROR.low:.2f} to {SHRINK_ERROR.high:.2f}"
    return list(map(" ".join, (
        (f"Run: {found.layer}, machine {found.machine}, {TECHNIQUE}; {end}, {found.cycles:,} cycles at",
         f"{found.clock_ghz:g} GHz, one GPU. The all-gather that follows is not in it."),
        ("Activity: every instance's recorded ports go through its mapped netlist, which must show what the RTL",
         "showed in every cycle. Every change of a net, edge of a gated clock and access of a memory counts."),
        (f"Energy: pins, internal energy and leakage of {library.name}, at {library.volts:g} V, times",
         f"1/{1 / shrink(library, node):.0f} for {node.name} at {node.volts:g} V: the side of a NAND2 and the square",
         f"of the voltage. Range: {cells} of that, by cells of both libraries."),
        (f"Wires: {WIRES_OVER_PINS.typical:g} of the pins' capacitance, {wires} in the range",
         f"(docs/results/area-routed.md). Clock tree: {TREE_PER_FLIP_FLOP:g} buffers a flip-flop; gated like it, but",
         "for their inputs, or not at all."),
        (f"Glitches are not in the count. In {SAMPLED} of {BATCH:,} cycles they are counted with one time for every",
         "operation: the high figure has all of these, the typical one half."),
        ("Memories: the model of macros of `t3 area`, all accesses; the low figure leaves out reads of a word that was",
         "read just before, and is shrunk to what a read of ASAP7's macro takes. Leakage: at 25 °C, of cells."),
        ("What an action takes is what its modules took in the whole run, over its number: clocks and reads that went",
         "on meanwhile are in it."),
        ("Matrix units: cards at their limit and peak, DRAM included: an A100, a V100, a V100 for as long as this",
         "took. DRAM: HBM and HBM2. Link: NVLink-C2C, a serial link, one across a board. Sources:",
         "`sim_models/area/energy/measured.py`."),
        (f"The near-memory ALUs lie in the memory and add {found.reduced_bytes / 1e6:,.0f} MB of fp16 sums; the cycles",
         "in which they wait are theirs. What DRAM takes for it is DRAM's."),
    )))


def headline(found: LayerEnergy) -> str:
    top = found.milliwatts(found.top_pj)
    shares = found.shares
    whole = sum(pj.typical for pj in shares.values())
    share = (shares["Track & Trigger"].typical + shares["near-memory ALUs"].typical) / whole
    return (f"Track & Trigger takes {_number(top.typical)} mW ({_number(top.low)} to {_number(top.high)}) a GPU, and "
            f"with its near-memory ALUs {share:.2%} of the layer's energy.")


def print_energy(found: LayerEnergy, library: Library, node: ProcessNode, console: Console) -> None:
    for title, columns, rows in sections(found):
        print_table(title, columns, rows, console)
    for remark in remarks(found, library, node):
        console.print(remark, style="dim", highlight=False)
    console.print(headline(found), highlight=False)


def markdown(found: LayerEnergy, geometry: Geometry, library: Library, node: ProcessNode,
             command: Sequence[str]) -> str:
    """Write the page."""
    return page("Energy", " ".join(command), geometry, [headline(found), *remarks(found, library, node)],
                sections(found))
