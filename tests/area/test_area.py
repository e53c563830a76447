"""`t3 area`: the library, the netlist, the longest path, against what can be computed by hand."""

import errno
import gzip
import math
import os
import re
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from t3sim.area import history, libraries
from t3sim.area import measure as measured
from t3sim.area.embedded import CLOCK_TO_OUTPUT_TAU, GATES, TAU_NS, UNIT_PF, embedded_library
from t3sim.area.fpga import count, place_and_route
from t3sim.area.functions import truth_table
from t3sim.area.liberty import load_library, load_library_text, parse
from t3sim.area.libraries import find_library
from t3sim.area.measure import TOP, measure
from t3sim.area.memories import MemoryUse
from t3sim.area.node import ASAP7
from t3sim.area.report import _cell, markdown, storage
from t3sim.area.sweep import plot, sweep
from t3sim.area.synthesis import EFFORTS, Netlist, instances, modules, synthesise, with_children
from t3sim.area.timing import MEMORY_GATE_DELAYS_PER_DOUBLING, Timing
from t3sim.base import yowasp
from t3sim.base.errors import BadInput
from t3sim.cli import main
from t3sim.cosim import yosys
from t3sim.cosim.designs import block_names, readable_verilog
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.geometries import GEOMETRIES
from tests.support.damage import replaced

pytestmark = pytest.mark.builds_rtl

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "results"
CELLS = Path(__file__).with_name("cells.lib")
LEAST = GEOMETRIES["least"]


@pytest.fixture(scope="module")
def library():
    return load_library(CELLS)


def verilog(body: str, ports: str = "input clk, input a, input b, output y") -> str:
    return f"module top({ports});\n{body}\nendmodule\n"


# The library


def test_cells_and_tables(library):
    assert (library.nand2.name, library.inverter.name, library.flip_flop.name) == ("NAND2", "INV", "DFF")
    assert library.flip_flop.setup_ns == 0.5
    arc = library.inverter.arcs["Y"][0]
    assert arc.rise.at(0.5, 0.3) == pytest.approx(1.5) and arc.rise.at(2, 0) == pytest.approx(3)
    # Four inputs of 0.01 pF: rise 1.04, fall 1.14.
    assert library.gate_delay[0] == pytest.approx(1.09)


@pytest.mark.parametrize(("function", "truth"), [
    ("(!(A B))", (1, 1, 1, 0)), ("!(A&B)", (1, 1, 1, 0)), ("(!A) | (!B)", (1, 1, 1, 0)), ("!A+!B", (1, 1, 1, 0)),
    ("A^B", (0, 1, 1, 0)), ("A * !B", (0, 1, 0, 0)), ("B", (0, 0, 1, 1)), ("(A B)'", (1, 1, 1, 0)),
    ("A' + B'", (1, 1, 1, 0)), ("!A'", (0, 1, 0, 1)), ("!A !B", (1, 0, 0, 0)), ("A (B)", (0, 0, 0, 1)),
    ("A ^ B B", (0, 0, 1, 0)), ("A | B ^ A B", (0, 1, 1, 1)), ("1", (1, 1, 1, 1)), ("0 + A", (0, 1, 0, 1)),
])
def test_functions_however_written(function, truth):
    assert truth_table(function, ("A", "B")) == tuple(map(bool, truth))


def test_functions_of_another_kind():
    for function in ("IQ", "__import__('os')", "", "A B)", "(A", "A |", "& A", "A @ B", "A.real", "!" * 5000 + "A",
                     "(" * 2000 + "A" + ")" * 2000, "A" * 5000, "'A", "A!", "9 ** 9"):
        assert truth_table(function, ("A", "B")) is None, function
    assert truth_table("A", tuple(f"A{i}" for i in range(64))) is None


@pytest.mark.parametrize("text", ["", "cell (A) { }", "library (x) { cell (A) {", "library (x) { ; ) }", "library",
                                  "library () {}", pytest.param("library (x) {" * 5000, id="nested")])
def test_no_library(text, tmp_path):
    (tmp_path / "x.lib").write_text(text)
    with pytest.raises(BadInput, match="not a Liberty file"):
        load_library(tmp_path / "x.lib")


def in_units(text: str, time: str, per_ns: float, load: str, per_pf: float) -> str:
    """The embedded library's text in other units."""
    table = ""

    def scaled(match: re.Match[str]) -> str:
        nonlocal table
        if match[1]:
            table = match[1]
            return match[0]
        by = per_pf if match[2] == "capacitance :" or (table, match[2]) == ("delay", "index_1") else per_ns
        return match[2] + re.sub(r"\d+(?:\.\d+)?(?:e-?\d+)?", lambda one: f"{by * float(one[0]):.9g}", match[3])

    text = text.replace('time_unit : "1ns"', f'time_unit : "{time}"').replace("(1, pf)", f"({load})")
    return re.sub(r"\((delay|constraint)\)|(index_1|index_2|values|capacitance :)( \([^)]*\)| [^;]*)", scaled, text)


@pytest.fixture(scope="module")
def plain():
    return embedded_library()


@pytest.mark.parametrize(("time", "per_ns", "load", "per_pf"), [
    ("1ps", 1e3, "1, ff", 1e3), ("10ps", 1e2, "1, pf", 1), ("100 ps", 10, "10, ff", 1e2), ("1ns", 1, "1, fF", 1e3),
    ("1ps", 1e3, "0.1000, pF", 10), ("1PS", 1e3, '"1", "ff"', 1e3)])
def test_figures_are_the_same_in_any_unit(plain, time, per_ns, load, per_pf):
    scaled_library = load_library_text(in_units(plain.text, time, per_ns, load, per_pf), "x.lib")
    assert scaled_library.gate_delay == pytest.approx(plain.gate_delay, rel=1e-6)
    assert scaled_library.flip_flop.setup_ns == pytest.approx(plain.flip_flop.setup_ns, rel=1e-6)
    assert scaled_library.nand2.loads == pytest.approx(plain.nand2.loads, rel=1e-6)
    for name, cell in plain.cells.items():
        (arcs,), (ours,) = cell.arcs.values(), scaled_library.cells[name].arcs.values()
        assert [arc.rise.at(0.03, 0.4) for arc in ours] == pytest.approx([arc.rise.at(0.03, 0.4) for arc in arcs], 1e-6)
    again = load_library_text(scaled_library.text, "y.lib")  # what is mapped to is in ns and pF
    assert again.text == scaled_library.text and again.gate_delay == pytest.approx(plain.gate_delay, rel=1e-6)


def test_energies_leakage_and_voltage_are_scaled():
    text = ('library (x) { time_unit : "1ps"; capacitive_load_unit (1, ff); voltage_unit : "1mV"; nom_voltage : 900; '
            'leakage_power_unit : "1pW"; cell (A) { area : 1; cell_leakage_power : 2000; pin (Y) { direction : output; '
            'max_capacitance : 5; internal_power () { rise_power (scalar) { values ("3e6"); } '
            'fall_power (scalar) { values ("1e6"); } } } } }')
    found = load_library_text(text, "x.lib")
    cell = found.cells["A"]
    assert found.volts == pytest.approx(0.9) and cell.leakage_nw == pytest.approx(2)
    assert cell.energies["Y"][0].mean_pj(0, 0) == pytest.approx(2e6 * 1e-3 * 1e-6)


@pytest.mark.parametrize(("key", "value"), [
    ("time_unit", '"1xs"'), ("time_unit", '"fast"'), ("time_unit", '"0ns"'), ("time_unit", '"1pf"'),
    ("leakage_power_unit", '"1"')])
def test_a_unit_that_there_is_not_is_refused(key, value):
    with pytest.raises(BadInput, match=f"not a Liberty file: {key} = .* is no unit: such as 1"):
        load_library_text(f"library (x) {{ {key} : {value}; }}", "x.lib")
    with pytest.raises(BadInput, match="capacitive_load_unit = '1mm' is no unit: such as 1pF"):
        load_library_text("library (x) { capacitive_load_unit (1, mm); }", "x.lib")


def test_cells_that_are_not_to_be_used_are_not(plain):
    for value in ("true", '"true"', "TRUE"):
        text = plain.text.replace("cell (NAND2X1) {", f"cell (NAND2X0) {{ dont_use : {value}; area : 0.5; }}\n"
                                  f"cell (NAND2X9) {{ dont_use : false; area : 0.5; }} cell (NAND2X1) {{")
        found = load_library_text(text, "x.lib")
        assert found.nand2.name == "NAND2X1" and "NAND2X9" in found.cells
        assert "NAND2X0" not in found.cells and "NAND2X0" not in found.text


@pytest.mark.parametrize("edge", ["CLK'", "(CLK')", "(CLK)'", "!CLK", "(!CLK)", "!(CLK)", " ! CLK ", "(CLK * EN)",
                                  "CLK EN"])
def test_a_flip_flop_of_another_edge_is_not_the_d_flip_flop(plain, edge):
    cells = plain.text.rstrip().removesuffix("}")
    other = cells[cells.index("cell (DFFX1)"):].replace("DFFX1", "DFFN").replace('on : "CLK"', f'on : "{edge}"')
    other, count = re.subn("area : [^;]*", "area : 1", other)
    assert count
    found = load_library_text(f"{cells}{other}}}", "x.lib")
    assert found.flip_flop.name == "DFFX1" and found.cells["DFFN"].clock is None


@pytest.mark.parametrize("written", ["CLK", "(CLK)", " CLK ", "((CLK))", "!CLK'"])
def test_a_rising_edge_however_written(plain, written):
    found = load_library_text(replaced(plain.text, 'clocked_on : "CLK"', f'clocked_on : "{written}"'), "x.lib")
    assert found.flip_flop.clock == "CLK" and found.flip_flop.data == "D"


def test_a_flip_flop_that_toggles_is_not_the_d_flip_flop(plain):
    text = plain.text.replace('next_state : "D"', 'next_state : "D ^ IQ"')
    with pytest.raises(BadInput, match="no D flip-flop"):
        assert load_library_text(text, "x.lib").flip_flop


@pytest.mark.parametrize("pins", ["A, B", "A B", '"A, B"', '"A", "B"', " A ,B "])
def test_pins_that_are_described_together(plain, pins):
    one = "pin (A) { direction : input; capacitance : 0.006666667; }"
    text = replaced(plain.text, f"{one}\n    {one.replace('(A)', '(B)')}", one.replace("(A)", f"({pins})"))
    found = load_library_text(text, "x.lib")
    assert found.nand2.name == "NAND2X1" and found.nand2.loads == plain.nand2.loads
    assert load_library_text(found.text, "y.lib").nand2.loads == plain.nand2.loads


def test_a_value_ends_with_its_line(plain):
    text, count = re.subn(r"(area : \d+);", r"\1", plain.text)
    assert count
    library = load_library_text(text, "x.lib")
    assert {name: cell.area for name, cell in library.cells.items()} == {
        name: cell.area for name, cell in plain.cells.items()}
    assert load_library_text(library.text, "y.lib").gate_delay == plain.gate_delay
    assert parse('library (x) { a :\n "b"; c : d \\\n e; }').attributes == {"a": ["b"], "c": ["d e"]}


@pytest.mark.parametrize(("text", "words"), [
    ("library (x) {\n cell (A) {\n  area 2;\n }\n}", "line 3: 'area' is followed by neither : nor \\("),
    ("library (x) {\n cell (A) {\n  area : 2;\n }\n", "line 1: 'library' { has no }"),
    ("library (x) {\n cell (A {\n }\n}", "line 2: 'cell' \\( has no \\)"),
    ("library (x) {\n\n : 3;\n}", "line 3: ':' where a name belongs")])
def test_what_cannot_be_parsed_has_its_line(text, words):
    with pytest.raises(BadInput, match=words):
        load_library_text(text, "x.lib")


def test_a_packed_library_is_read(plain, tmp_path):
    path = tmp_path / "cells.lib.gz"
    path.write_bytes(gzip.compress(plain.text.encode()))
    assert load_library(path).text == plain.text
    path.write_bytes(gzip.compress(plain.text.encode())[:-200])
    with pytest.raises(BadInput, match="not a Liberty file"):
        load_library(path)


def test_comments_strings_and_lists():
    group = parse('library (x) { /* a; b */ unit (1, pf); key : "v w"; t (n) { values ("1, 2", \\\n "3"); } }')
    assert group.attributes == {"unit": ["1", "pf"], "key": ["v w"]}
    assert group.groups[0].numbers("values") == [1, 2, 3]


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.delenv("T3_LIBERTY", raising=False)
    monkeypatch.setattr(libraries, "PLACES", ())


def test_where_the_library_is(nothing_installed, monkeypatch, tmp_path):
    assert find_library().name == "embedded" and find_library(str(CELLS)).name == "by_hand"
    with pytest.raises(BadInput, match="not installed: run `make library`"):
        find_library("osu018")
    monkeypatch.setattr(libraries, "PLACES", (tmp_path / "none.lib", CELLS))
    assert find_library().name == find_library("osu018").name == "by_hand"
    assert find_library("embedded").name == "embedded"
    monkeypatch.setenv("T3_LIBERTY", "embedded")
    assert find_library().name == "embedded"
    with pytest.raises(BadInput, match="not a file: allowed are embedded, osu018 and Liberty files"):
        find_library("no-such-file.lib")


# The embedded library


def tau(cell, pin: str, load: float) -> float:
    """Delay from `pin`, in tau, where the output drives `load` inputs of the smallest inverter."""
    (arcs,) = cell.arcs.values()
    (arc,) = (arc for arc in arcs if arc.source == pin)
    assert arc.rise.at(load * UNIT_PF, 0) == arc.fall.at(load * UNIT_PF, 1)
    return arc.rise.at(load * UNIT_PF, 0.5) / TAU_NS


@pytest.mark.parametrize(("cell", "pin", "parasitic", "effort"), [
    ("INVX1", "A", 1, 1), ("NAND2X1", "B", 2, 4 / 3), ("NAND3X1", "C", 3, 5 / 3), ("NAND4X1", "A", 4, 2),
    ("NOR2X1", "A", 2, 5 / 3), ("NOR3X1", "B", 3, 7 / 3), ("AOI21X1", "A", 7 / 3, 2), ("AOI21X1", "C", 7 / 3, 5 / 3),
    ("AOI22X1", "D", 4, 2),
])
def test_efforts_are_the_book_s(cell, pin, parasitic, effort):
    """A gate that drives h of its own kind takes g h + p (Logical Effort, tables 1.1 and 1.2)."""
    gate = embedded_library().cells[cell]
    assert gate.loads[pin] / UNIT_PF == pytest.approx(effort)
    for h in (1, 4, 10):
        assert tau(gate, pin, h * gate.loads[pin] / UNIT_PF) == pytest.approx(effort * h + parasitic)
    twice = embedded_library().cells[cell.replace("X1", "X2")]
    assert tau(twice, pin, 8) == pytest.approx(tau(gate, pin, 4))
    assert twice.loads[pin] == pytest.approx(2 * gate.loads[pin])


def test_embedded_library_is_whole():
    cells = embedded_library()
    assert (cells.nand2.name, cells.nand2.area, cells.inverter.area, cells.flip_flop.area) == ("NAND2X1", 3, 2, 12)
    assert cells.gate_delay[0] == pytest.approx(5 * TAU_NS) == pytest.approx(0.5 * 0.18)  # FO4
    assert 2 < (cells.flip_flop.setup_ns + CLOCK_TO_OUTPUT_TAU * TAU_NS) / cells.gate_delay[0] < 6
    for gate in GATES:
        library_cell = cells.cells[gate.name]
        table = truth_table(library_cell.functions["Y"], tuple(library_cell.loads))
        assert table is not None and True in table and False in table
        for place, (pin, arc) in enumerate(zip(gate.pins, library_cell.arcs["Y"])):  # the sense is that of the function
            rising = {table[row | 1 << place] - table[row & ~(1 << place)] for row in range(len(table))}
            assert pin.sense == ("non_unate" if {1, -1} <= rising else
                                 "negative_unate" if -1 in rising else "positive_unate")
            assert arc.inverting == {"negative_unate": True, "positive_unate": False}.get(pin.sense)


@pytest.mark.slow
@pytest.mark.skipif(not any(place.is_file() for place in libraries.PLACES), reason="OSU018 is not installed")
@pytest.mark.parametrize("block", ["arbiter", "coalescer", "ring_monitor"])
def test_embedded_library_has_a_real_one_s_areas(block):
    ours, real = (_measured_with(block, name) for name in ("embedded", "osu018"))
    assert ours.gate_equivalents == pytest.approx(real.gate_equivalents, rel=0.15)


@pytest.mark.slow
@pytest.mark.skipif(not any(place.is_file() for place in libraries.PLACES), reason="OSU018 is not installed")
@pytest.mark.parametrize("block", ["arbiter", "ring_monitor", "coalescer"])
def test_embedded_library_has_a_real_one_s_delays(block):
    ours, real = (_measured_with(block, name) for name in ("embedded", "osu018"))
    assert ours.logic_depth == pytest.approx(real.logic_depth, rel=0.3)
    assert ours.period == pytest.approx(real.period, rel=0.3)


@cache
def _measured_with(block: str, library: str):
    return measure(block, Geometry(), find_library(library), fpga=False).silicon


# Netlists


@pytest.mark.slow
def test_counts_by_hand(library):
    """Circuits of a few gates: gates, flip-flops and memories are those counted by hand."""
    netlist = synthesise(verilog("reg q; always @(posedge clk) q <= ~(a & b); assign y = q;"), "top", library)
    assert netlist.cells == {"NAND2": 1, "DFF": 1}
    assert netlist.flip_flops == 1 and netlist.gate_equivalents() == 5 and netlist.gate_equivalents(False) == 1


@pytest.mark.slow
def test_registers_are_the_same_in_every_library(library):
    text, _ = readable_verilog("memory_channel", LEAST)
    one, other = (synthesise(text, "memory_channel", cells) for cells in (library, embedded_library()))
    assert one.flip_flops == other.flip_flops > 100
    assert one.clock_gates == other.clock_gates
    assert _memories(one) == _memories(other)


def _memories(netlist: Netlist) -> list[tuple[int, int, bool]]:
    """Words, width, and whether reads are clocked, of each memory that is no flip-flops."""
    found = [cell["parameters"] for cell in netlist.module["cells"].values() if cell["type"] == "$mem_v2"]
    return sorted((int(one["SIZE"], 2), int(one["WIDTH"], 2), one["RD_CLK_ENABLE"][-1] == "1") for one in found)


@pytest.mark.slow
def test_memories_are_memories_unless_small(library):
    def memory(words: int):
        text = verilog(f"reg [3:0] m [0:{words - 1}]; reg [3:0] q;\n"
                       "always @(posedge clk) begin if (w) m[a] <= d; q <= m[a]; end assign y = q;",
                       "input clk, input w, input [3:0] a, input [3:0] d, output [3:0] y")
        return synthesise(text, "top", library)

    large = memory(16)
    assert _memories(large) == [(16, 4, True)] and large.flip_flops == 0
    small = memory(4)
    assert not _memories(small) and small.flip_flops == 4 * 4 + 4


@pytest.mark.slow
def test_wide_registers_get_a_gated_clock(library):
    text = verilog("reg [15:0] q; always @(posedge clk) if (e) q <= d; assign y = q;",
                   "input clk, input e, input [15:0] d, output [15:0] y")
    netlist = synthesise(text, "top", library)
    assert (netlist.flip_flops, netlist.clock_gates) == (16, 1)
    assert netlist.gate_equivalents() == (16 * 16 + (16 + 4 + 2)) / 4  # no multiplexers


@pytest.mark.slow
def test_a_reset_does_not_cost_the_gated_clock(library):
    text = verilog("reg [15:0] q; always @(posedge clk) begin if (e) q <= d; if (rst) q <= 0; end assign y = q;",
                   "input clk, input rst, input e, input [15:0] d, output [15:0] y")
    netlist = synthesise(text, "top", library)
    assert (netlist.flip_flops, netlist.clock_gates) == (16, 1)
    assert netlist.gate_equivalents(flip_flops=False) < 16 * 2.5 + 10  # an AND for each bit, an OR for the enable
    assert Timing(netlist).path.start != "rst"


def test_unused_parts_of_a_file_do_not_count():
    text, _ = readable_verilog("memory_channel", LEAST)
    known = modules(text)
    assert {"arbiter", "coalescer"} <= set(instances(known["memory_channel"], known).values())
    below = modules(with_children(known, "coalescer"))
    assert "two_entry_queue" in below and not {"arbiter", "memory_channel"} & below.keys()


# Timing


@pytest.mark.slow
def test_longest_path_by_hand(library):
    """Cells with round delays: the longest path is the one computed by hand."""
    # Yosys may not move the inverter, for its output is a port, too: q -> INV -> NAND2 -> p.
    text = verilog("reg p, q; wire n = ~q; assign port_n = n;\nalways @(posedge clk) begin q <= a; p <= ~(n & b); end "
                   "assign port_p = p;", "input clk, input a, input b, output port_n, output port_p")
    timing = Timing(synthesise(text, "top", library))
    # INV drives the port (4 x 0.01) and the NAND2 (0.01): rise 1.05, fall 1.15; NAND2 drives the flip-flop: 0.31.
    assert timing.path.gates == ("INV", "NAND2")
    assert timing.logic_ns == pytest.approx(1.15 + 0.31)
    assert timing.path.start == "q" and timing.path.end == "port_p"
    # Ports count as registers, whose delay is two gate delays; q's is 0.41.
    assert timing.period_ns == pytest.approx(max(0.41 + 1.15 + 0.31, 2 * 1.09 + 0.31) + 0.5)


@pytest.mark.slow
def test_memory_access_is_part_of_a_cycle(library):
    text = verilog("reg [3:0] m [0:15]; reg [3:0] q;\n"
                   "always @(posedge clk) begin if (w) m[a] <= d; q <= m[a]; end assign y = ~q;",
                   "input clk, input w, input [3:0] a, input [3:0] d, output [3:0] y")
    timing = Timing(synthesise(text, "top", library))
    access = MEMORY_GATE_DELAYS_PER_DOUBLING * math.log2(16) * library.gate_delay[0]
    assert timing.path.gates == ("INV",) and timing.logic_ns == pytest.approx(1.14)
    assert timing.period_ns == pytest.approx(access + 1.14 + 0.5)


@pytest.mark.slow
def test_longer_chains_take_longer(library):
    def depth(bits):
        text = verilog("reg q; always @(posedge clk) q <= ^a; assign y = q;",
                       f"input clk, input [{bits - 1}:0] a, output y")
        return Timing(synthesise(text, "top", library))
    assert depth(4).logic_ns < depth(16).logic_ns < depth(64).logic_ns


@pytest.mark.slow
@pytest.mark.parametrize("inside, outside", [(32, 2), (2, 32)])
def test_where_the_longest_path_is(inside, outside, library):
    """Of a top whose part has a longer or a shorter path than it has beside it, from a register to another one."""
    part = (f"module part(input clk, input [{inside - 1}:0] a, output reg y);\nreg [{inside - 1}:0] q;\n"
            "always @(posedge clk) begin q <= a; y <= ^q; end\nendmodule\n")
    top = verilog(f"reg [{outside - 1}:0] r; reg p; part one(.clk(clk), .a(a), .y(y));\n"
                  "always @(posedge clk) begin r <= b; p <= ^r; end assign z = p;",
                  f"input clk, input [{inside - 1}:0] a, input [{outside - 1}:0] b, output y, output z")
    parts = {"part": synthesise(part, "part", library)}
    path = Timing(synthesise(top + part, "top", library, ("part",)), parts).path
    assert path.in_parts == (inside > outside) and path.levels >= 5
    assert path.start.startswith("one.q") == path.in_parts


@pytest.mark.parametrize("gates, tried", [(200_000, list(EFFORTS)), (200_001, list(EFFORTS)[:-1])])
def test_the_last_effort_is_for_what_is_not_too_large(gates, tried, monkeypatch, library):
    """All miss the target; the one that comes closest is taken."""
    efforts = []

    def mapped(text, top, cells, boxes, effort):
        efforts.append(effort)
        return SimpleNamespace(gate_equivalents=lambda: gates, effort=effort)
    monkeypatch.setattr(measured, "synthesise", mapped)
    monkeypatch.setattr(measured, "Timing", lambda netlist, parts: SimpleNamespace(
        logic_ns=1e3 - len(efforts), path=netlist.effort))
    netlist, timing = measured.map_block("coalescer", LEAST, library)
    assert efforts == tried and netlist.effort == timing.path == tried[-1]


# Blocks


def test_a_part_that_is_not_there_is_refused(library):
    with pytest.raises(BadInput, match=r"block nmc_alu.low9 is unknown: allowed are nmc_alu.high0, .*, nmc_alu.low1$"):
        measured.map_block("nmc_alu.low9", Geometry(), library)


@pytest.mark.slow
def test_tracker_storage_is_what_the_geometry_says(library):
    block = measure("tracker", Geometry(), library, fpga=False)
    tracker = Geometry().tracker
    regions = tracker.sets * tracker.ways * Geometry().dma.region_bits
    assert block.memory_bits * tracker.banks == tracker.storage_bits + regions
    answer = block.to_json(ASAP7)
    assert {"memory_bits", "flip_flops", "gate_equivalents", "logic_depth", "fpga"} <= answer.keys()


@pytest.mark.slow
def test_top_is_the_sum_of_its_parts(library):
    top = measure(TOP, LEAST, library, fpga=False)
    assert top.parts["memory_channel"].count == LEAST.channel.channels
    assert top.silicon.gate_equivalents == pytest.approx(
        sum(part.count * part.gate_equivalents for part in top.parts.values()))
    alone = measure("memory_channel", LEAST, library, fpga=False)
    assert top.parts["memory_channel"].gate_equivalents == pytest.approx(alone.silicon.gate_equivalents)
    assert top.silicon.logic_depth >= 1


@pytest.mark.slow
def test_fpga_of_a_small_block(library):
    text, _ = readable_verilog("arbiter", LEAST)
    placed, mapped = place_and_route(text, "arbiter"), count(text, "arbiter")
    assert (placed.luts, placed.flip_flops) == (mapped.luts, mapped.flip_flops)
    assert placed.flip_flops >= 17 and 20 < placed.fmax_mhz < 1000 and placed.fits


@pytest.mark.slow
def test_sweep_and_its_plot(library, tmp_path):
    result = sweep(["coalescer"], LEAST, "count_bits", [8, 16], library)
    assert result.to_json(ASAP7)["values"] == [8, 16]
    plot([result], tmp_path / "a.svg")
    plot([result], tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(label in drawn for label in ("area (gate equivalents)", "memory (bits)", "logic depth (gate delays)"))


# The page


def tables(page: str) -> dict[str, list[list[str]]]:
    """Heading: rows of its table, the columns' names first."""
    tables_by_title = {}
    for part in page.split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|") and not line.startswith("|---")]
        tables_by_title[part.splitlines()[0]] = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return tables_by_title


@pytest.mark.slow
def test_the_page_in_docs_is_what_the_command_prints(library):
    """Every table and block; the arbiter's figures are measured anew if the tools are the same."""
    page = (RESULTS / "area.md").read_text(encoding="utf-8")
    osu018 = any(place.is_file() for place in libraries.PLACES)
    arbiter = measure("arbiter", Geometry(), find_library("osu018") if osu018 else library)
    fresh = tables(markdown({"arbiter": arbiter}, Geometry(), library, "t3 area arbiter"))
    page_tables = tables(page) | tables((RESULTS / "fpga.md").read_text(encoding="utf-8"))
    assert fresh.keys() <= page_tables.keys()
    for heading in set(fresh) - {"Targets"}:
        assert page_tables[heading][0] == fresh[heading][0]
        assert {row[0].split(":")[0] for row in page_tables[heading][1:]} == set(block_names())
    assert page_tables["The Tracker's storage, all banks"][1:] == [list(row) for row in storage(Geometry())[2]]
    if yosys.versions() in page:
        assert all(fresh[heading][1] in page_tables[heading] for heading in fresh if heading.startswith("FPGA") or (
            osu018 and heading != "Targets"))


def test_pages_quote_the_same_figures():
    """A sweep at its size's default is the block of the other page; so is the bank that is not protected."""
    silicon = {row[0]: row for row in tables((RESULTS / "area.md").read_text(encoding="utf-8"))["Silicon"][1:]}
    defaults = {name: str(value) for section in asdict(Geometry()).values() for name, value in section.items()}
    compared = 0
    for heading, rows in tables((RESULTS / "area-sweep.md").read_text(encoding="utf-8")).items():
        size = heading.removeprefix("Sweep of ")
        for block, value, gates, bits, depth in rows[1:]:
            if value == defaults[size]:
                found = silicon[block]
                assert (gates, bits, depth) == (found[3], found[1], found[5]), f"{block}, {size} {value}"
                compared += 1
    assert compared == 12
    protection = (DOCS / "why" / "protection.md").read_text(encoding="utf-8")
    assert f"| gate equivalents of a bank | {silicon['tracker'][3]} |" in protection
    assert f"`t3 area ingress`: {silicon['ingress'][3]} for four" in protection


def test_an_index_beside_an_index_is_no_link():
    """`a[3][10]` is a reference to 10 in Markdown, which `make site` does not find."""
    assert _cell("counts[3][10] | one") == "counts[3]\\[10] \\| one"
    assert "][" not in (RESULTS / "area.md").read_text(encoding="utf-8")


def test_a_missed_target_is_marked_and_the_cost_is_said():
    from t3sim.area.node import ASAP7
    from t3sim.area.report import _miss_note, cost
    assert _miss_note(30.1, 30) == " (missed)" and _miss_note(30.0, 30) == ""
    page = (RESULTS / "area.md").read_text(encoding="utf-8")
    row = next(row for row in tables(page)["Silicon"] if row[0] == "gpu_top")
    mm2 = float(row[8].replace(",", "")) / 1e6
    assert f"T3 costs {mm2:.3f} mm², {mm2 / 826:.4%} of a GPU" in page and cost({}, ASAP7) == []


def test_a_target_is_met_or_marked_as_missed():
    """In docs/results/area.md."""
    rows = tables((RESULTS / "area.md").read_text(encoding="utf-8"))["Targets"][1:]
    assert len(rows) == 3
    for what, most, found, _ in rows:
        value, missed = found.removesuffix(" (missed)"), found.endswith(" (missed)")
        assert (float(value.replace(",", "")) > float(most.replace(",", ""))) == missed, what


# The command


@pytest.mark.slow
def test_command(json_of, tmp_path):
    answer = json_of("area", "arbiter", "--library", str(CELLS), "--no-fpga", "--markdown", str(tmp_path / "area.md"))
    assert answer["library"]["nand2"] == "NAND2" and answer["blocks"]["arbiter"]["gate_equivalents"] > 50
    assert "| arbiter |" in (tmp_path / "area.md").read_text()


@pytest.mark.slow
def test_nothing_need_be_installed(nothing_installed, capsys, json_of):
    answer = json_of("area", "arbiter", "--no-fpga")
    arbiter = answer["blocks"]["arbiter"]
    assert answer["library"]["name"] == "embedded"
    assert arbiter["flip_flops"] >= 17 and 100 < arbiter["gate_equivalents"] < 600 and 10 < arbiter["logic_depth"] < 30
    assert arbiter["estimate"]["area_um2"] > 5 and 1 < arbiter["estimate"]["clock_ghz"] < 5
    assert main(["area", "arbiter", "--no-fpga"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(" arbiter "))
    assert len(row.split()) == 10 and "–" not in row


@pytest.mark.slow
def test_two_libraries_side_by_side(nothing_installed, capsys, tmp_path):
    page = tmp_path / "area.md"
    assert main(["area", "arbiter", "--library", str(CELLS), "--beside", "embedded", "--markdown", str(page)]) == 0
    assert "Library embedded beside by_hand" in capsys.readouterr().out
    (name, first, second, ratio, *_), = tables(page.read_text())["Library embedded beside by_hand"][1:]
    assert name == "arbiter" and float(ratio) == pytest.approx(float(second) / float(first), abs=0.01)
    assert "--beside embedded" in page.read_text()


@pytest.mark.parametrize("tool", yosys.TOOLS)
def test_a_missing_tool_is_one_line(tool, capsys, monkeypatch):
    module = yowasp.module(tool)
    found = yosys.importlib.util.find_spec
    monkeypatch.setattr(yosys.importlib.util, "find_spec", lambda name: None if name == module else found(name))
    assert main(["area", "arbiter", "--fpga", "--library", str(CELLS)]) == 1
    error = capsys.readouterr().err
    assert f"{tool} is missing: pip install 't3sim[area]'" in error and error.count("\n") == 1


@pytest.mark.parametrize("option", ["--json", "--markdown", "--plot"])
def test_no_space_left(option, capsys, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    target = tmp_path / "out.svg"
    target.write_text("before")
    monkeypatch.setattr("t3sim.base.output.os.replace", full)
    sweep = ["--sweep", "count_bits=8"] if option == "--plot" else []
    assert main(["area", "coalescer", "--library", str(CELLS), "--no-fpga", *sweep, option, str(target)]) == 1
    error = capsys.readouterr().err.splitlines()
    assert "No space left on device" in error[-1] and target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.svg"]


@pytest.mark.parametrize(("arguments", "words"), [
    (["area", "nope"], "block 'nope' is unknown"),
    (["area", "tracker", "-g", "sets=3"], "sets=3 is impossible"),
    (["area", "tracker", "--sweep", "ways"], "--sweep 'ways'"),
    (["area", "tracker", "--sweep", "ways=0,2"], "ways=0 is impossible"),
    (["area", "tracker", "--plot", "x.svg"], "--plot needs --sweep"),
    (["area", "tracker", "--sweep", "ways=2", "--plot", "x.doc"], "must end in"),
    (["area", "tracker", "--library", "nope.lib"], "library 'nope.lib' is not a file"),
    (["area", "tracker", "--json", "no/such/folder/x.json"], "does not exist"),
    (["area", "tracker", "--markdown", "no/such/folder/x.md"], "--markdown 'no/such/folder/x.md': folder"),
    (["area", "tracker", "--sweep", "ways=2", "--plot", "no/x.svg"], "--plot 'no/x.svg': folder"),
    (["area", "tracker", "--sweep", "ways=2", "--compare"], "--sweep goes with"),
])
def test_bad_input_is_one_line(arguments, words, error_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in error_of(*arguments) and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_history(tmp_path, library):
    file = tmp_path / "history.jsonl"
    block = measure("arbiter", LEAST, library, fpga=False)
    first = history.entry({"arbiter": block}, "by_hand") | history.speed(1000.0)
    history.append({**first, "commit": "a"}, file)
    history.append({**first, "commit": "b", "cycles_per_second": 1100}, file)
    history.append({**first, "commit": "b", "cycles_per_second": 1200}, file)
    old, new = history.read(file)
    assert not history.changes(old, new)
    assert history.speed_change(old, new) == "lockstep: 1,000 -> 1,200 cycles/s (+20.0%)"
    assert "->" not in history.speed_change({**old, "host": "another"}, new)
    file.write_text("{")
    with pytest.raises(BadInput, match="not a history"):
        history.read(file)


def test_history_is_a_table_newest_first(tmp_path):
    """As the benchmark of each commit shows it."""
    file = tmp_path / "history.jsonl"
    script = [sys.executable, str(Path(__file__).resolve().parents[2] / "scripts" / "history.py"), str(file)]
    for commit, gates in (("a", 10), ("b", 2000)):
        history.append({"commit": commit, "library": "x", "blocks": {"arbiter": {"gate_equivalents": gates}},
                        "cycles_per_second": 1000 + gates, "host": "here"}, file)
    history.append({"commit": "c", "library": "x", "blocks": {"arbiter": {"gate_equivalents": 7}}}, file)
    rows = subprocess.run([*script, "--last", "2"], text=True, capture_output=True, check=True).stdout.splitlines()
    assert [row.split(" | ")[:4] for row in rows[2:]] == [["| c", "–", "–", "7"], ["| b", "3,000", "here", "2,000"]]
    told = subprocess.run([*script, "--last", "0"], text=True, capture_output=True, check=False)
    assert told.returncode == 1 and told.stderr == "--last 0: at least 1 is needed\n"


def test_what_is_not_comparable_is_not_compared(library):
    figures = {"flip_flops": 10, "gate_equivalents": 100}
    old = {"commit": "a", "library": "x", "blocks": {"arbiter": figures}}
    new = {"commit": "b", "library": "y", "blocks": {"arbiter": {key: 2 * value for key, value in figures.items()},
                                                     "coalescer": figures}}
    assert history.changes(old, new) == ["arbiter: 10 -> 20 flip-flops (+100.0%)"]
    assert history.changes(old, {**new, "library": "x"})[1] == "arbiter: 100 -> 200 gate equivalents (+100.0%)"


@pytest.mark.slow
def test_record_and_compare(tmp_path, monkeypatch, capsys):
    class Speed:
        cycles_per_second = {"lockstep": 5000.0}

    monkeypatch.setattr(history, "FILE", tmp_path / "history.jsonl")
    monkeypatch.setattr("t3sim.study.engine_speed.run_bench", lambda *arguments: Speed)
    options = ["area", "arbiter", "--library", str(CELLS), "--no-fpga"]
    assert main([*options, "--compare"]) == 0 and capsys.readouterr().out == "no entry recorded yet\n"
    assert main([*options, "--record"]) == 0
    (entry,) = history.read()
    assert entry["library"] == "by_hand" and entry["cycles_per_second"] == 5000
    capsys.readouterr()
    assert main([*options, "--compare"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == ["nothing changed", "lockstep: 5,000 -> 5,000 cycles/s (+0.0%)"]


@pytest.mark.skipif(not any(place.is_file() for place in libraries.PLACES), reason="OSU018 is not installed")
def test_osu018_is_read():
    cells = find_library("osu018")
    assert (cells.nand2.name, cells.nand2.area, cells.flip_flop.name) == ("NAND2X1", 24, "DFFPOSX1")
    assert 0.06 < cells.gate_delay[0] < 0.15  # of 180 nm


# Memories


@pytest.mark.parametrize(("reads", "kind", "macro_bits"), [
    ({"clocked_reads": 1, "unclocked_reads": 0}, "SRAM macro", 640),
    ({"clocked_reads": 3, "unclocked_reads": 0}, "copies of a macro", 1920),
    ({"clocked_reads": 0, "unclocked_reads": 1}, "register file", 0),
    ({"clocked_reads": 1, "unclocked_reads": 1}, "register file", 0),
    ({"clocked_reads": 1, "unclocked_reads": 0, "writes": 2}, "register file", 0),
    ({"clocked_reads": 1, "unclocked_reads": 0, "words": 7}, "flip-flops", 0),
])
def test_a_memory_is_what_its_ports_make_it(reads, kind, macro_bits):
    memory = MemoryUse(**{"name": "m", "count": 2, "words": 32, "width": 10, "writes": 1, "write_through": 0} | reads)
    assert (memory.kind, memory.macro_bits) == (kind, macro_bits)


def test_what_memories_cost_by_hand(library):
    """A flip-flop is four gates here, a multiplexer three."""
    keys = {"name": "m", "count": 1, "words": 32, "width": 10, "writes": 1}
    file = MemoryUse(**keys, clocked_reads=0, unclocked_reads=2, write_through=0)
    assert file.gate_equivalents(library) == 32 * (10 * (4 + 2 * 3) + 4 + 2)
    plain = MemoryUse(**keys, clocked_reads=2, unclocked_reads=0, write_through=0)
    assert plain.gate_equivalents(library) == 0
    through = MemoryUse(**keys, clocked_reads=2, unclocked_reads=0, write_through=1)
    assert through.gate_equivalents(library) == 11 * 4 + 10 * 3 + 5 * 3


@pytest.mark.slow
def test_memories_are_in_the_tables(library):
    block = measure("memory_channel", LEAST, library, fpga=False)
    assert block.memory_gate_equivalents == sum(one.gate_equivalents(library) for one in block.memories)
    text = markdown({"memory_channel": block}, LEAST, library, "t3 area memory_channel")
    assert "## Memories of memory_channel" in text
