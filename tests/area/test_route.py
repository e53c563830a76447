"""`t3 area --route`: what is read, added up and refused by hand-written files; a real layout where the tools are."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from t3sim.area import node
from t3sim.area.liberty import load_library
from t3sim.area.measure import map_block
from t3sim.area.route import clock_tree, flow, parasitics, tools
from t3sim.area.route.design import Design, Pin, make_design
from t3sim.area.route.lef import load_lef, parse_lef
from t3sim.area.route.rows import Floorplan, Placed
from t3sim.area.synthesis import Netlist
from t3sim.area.timing import Wires, analyse, analyse_routed
from t3sim.base.errors import BadInput, Failure
from t3sim.cli import main
from t3sim.rtl.geometry import Geometry

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
CELLS = Path(__file__).with_name("cells.lib")

#: Written by hand for these tests: an inverter, two layers, one via.
LEF = """
LAYER metal1
  TYPE ROUTING ; DIRECTION HORIZONTAL ;
END metal1
LAYER metal1
  TYPE ROUTING ;
  DIRECTION HORIZONTAL ;
  PITCH 1 ;
  WIDTH 0.5 ;
  RESISTANCE RPERSQ 0.1 ;
  CAPACITANCE CPERSQDIST 2e-5 ;
  EDGECAPACITANCE 5e-5 ;
END metal1
LAYER metal2
  TYPE ROUTING ;
  DIRECTION VERTICAL ;
  PITCH 0.8 ;
  WIDTH 0.4 ;
  RESISTANCE RPERSQ 0.2 ;
  CAPACITANCE CPERSQDIST 1e-5 ;
  EDGECAPACITANCE 3e-5 ;
END metal2
VIA M2_M1 DEFAULT
  LAYER metal1 ;
    RECT -0.2 -0.2 0.2 0.2 ;
  LAYER via ;
    RECT -0.1 -0.1 0.1 0.1 ;
  LAYER metal2 ;
    RECT -0.2 -0.2 0.2 0.2 ;
END M2_M1
SITE core
  SIZE 0.8 BY 10 ;
END core
MACRO INV
  SIZE 1.6 BY 10 ;
  PIN A
    DIRECTION INPUT ;
    PORT
      LAYER metal1 ;
        RECT 0.2 4.0 0.6 5.0 ;
    END
  END A
  PIN Y
    DIRECTION OUTPUT ;
    PORT
      LAYER metal1 ;
        RECT 1.0 1.0 1.4 9.0 ;
    END
  END Y
  PIN vdd
    DIRECTION INOUT ;
    USE POWER ;
    PORT
      LAYER metal1 ;
        RECT 0 9.7 1.6 10.3 ;
    END
  END vdd
END INV
""".replace("LAYER metal1\n  TYPE ROUTING ; DIRECTION HORIZONTAL ;\nEND metal1\n", "")

#: One inverter drives two others: 10 µm of metal2 from a via at its output, then 20 µm of metal1 on which one input
#: hangs half way, and the other at the end, by its flipped row.
DEF = """DESIGN chain ;
NETS 1 ;
- n1
  ( one Y ) ( two A ) ( three A )
+ ROUTED metal1 ( 120 500 ) M2_M1
  NEW metal2 ( 120 500 ) ( * 1500 ) M2_M1
  NEW metal1 ( 120 1500 ) ( 2120 * ) ;
END NETS
"""


@pytest.fixture
def technology():
    return parse_lef(LEF)


@pytest.fixture
def chain():
    """The design of that DEF, and its places."""
    library = load_library(CELLS)
    netlist = Netlist("chain", {"ports": {}, "netnames": {}, "cells": {}}, library)
    design = Design("chain", netlist, {}, (), {1: "n1"})
    design.add("one", "INV", {"A": 2, "Y": 1})
    design.add("two", "INV", {"A": 1, "Y": 3})
    design.add("three", "INV", {"A": 1, "Y": 4})
    cells = (Placed("one", "INV", 0, 0, False), Placed("two", "INV", 1080, 1050, False),
             Placed("three", "INV", 2080, 950, True))
    return design, Floorplan(4000, 3000, (0, 0), 4000, 3000, cells, {}, 0)


def test_lef(technology):
    one, two = technology.layers["metal1"], technology.layers["metal2"]
    assert (one.horizontal, two.horizontal, one.pitch, two.pitch, technology.site) == (True, False, 100, 80, (80, 1000))
    assert one.ohm_per_um == pytest.approx(0.2) and one.pf_per_um == pytest.approx(1.1e-4)
    assert technology.vias == {"M2_M1": ("metal1", "metal2")}
    assert technology.macros["INV"].pins == {"A": (("metal1", 20, 400, 60, 500),),
                                             "Y": (("metal1", 100, 100, 140, 900),)}


@pytest.mark.parametrize(("old", "new", "words"), [
    ("END INV", "", "MACRO INV has no END"), ("  EDGECAPACITANCE 5e-5 ;\n", "", "metal1 has no EDGECAPACITANCE"),
    ("RECT 0.2 4.0", "RECT x 4.0", "could not convert"), ("SITE core", "THING core", "a site and cells are needed")])
def test_damaged_lef(old, new, words, tmp_path):
    (tmp_path / "x.lef").write_text(LEF.replace(old, new))
    with pytest.raises(BadInput, match=words):
        load_lef(tmp_path / "x.lef")


def test_elmore_by_hand(technology, chain):
    design, plan = chain
    found = parasitics.extract(design, technology, plan, parasitics.read_wires(DEF, technology))[1]
    assert (found.length_um, found.vias) == (pytest.approx(30), 2)
    metal2_pf, metal1_pf = 10 * 6.4e-5, 10 * 1.1e-4  # of 10 um each
    assert found.total_pf == pytest.approx(metal2_pf + 2 * metal1_pf)
    load = design.netlist.library.inverter.loads["A"]
    to_bend = 5 * (metal2_pf + 2 * metal1_pf + 2 * load) + 10 * 0.5 * (metal2_pf / 2 + 2 * metal1_pf + 2 * load)
    to_bend += 5 * (2 * metal1_pf + 2 * load)
    to_two = to_bend + 10 * 0.2 * (1.5 * metal1_pf + 2 * load)
    to_three = to_two + 10 * 0.2 * (0.5 * metal1_pf + load)
    assert found.delays_ns == {("two", "A"): pytest.approx(1e-3 * to_two),
                               ("three", "A"): pytest.approx(1e-3 * to_three)}


@pytest.mark.parametrize(("old", "new", "words"), [
    ("( 2120 * )", "( 1200 * )", "no wire of net n1 reaches three A"),
    ("  NEW metal1 ( 120 1500 ) ( 2120 * )", "  NEW metal1 ( 220 1500 ) ( 2120 * )", "two pieces, two A in the second"),
    ("( * 1500 )", "( * up )", "net n1 of the DEF cannot be read"),
    ("M2_M1", "M9_M8", "net n1 of the DEF cannot be read"),
    ("( 120 500 ) M2_M1", "( 20 500 )", "no wire of net n1 reaches one Y")])
def test_open_wires_are_found(old, new, words, technology, chain):
    assert old in DEF
    with pytest.raises(Failure, match=words):
        parasitics.extract(*chain[:1], technology, chain[1], parasitics.read_wires(DEF.replace(old, new), technology))


def test_wires_that_meet_are_found(technology, chain):
    design, plan = chain
    design.pins = (Pin("n3", 3, True),)
    design.net_names[3] = "n3"
    plan = replace(plan, pins={"n3": ("metal1", 1200, 1600)})
    wires = parasitics.read_wires(DEF, technology)
    wires["n3"] = ((("metal1", 1200, 1500), ("metal1", 1200, 1600)),)
    with pytest.raises(Failure, match="nets n1 and n3 meet on metal1 at 1200, 1500"):
        parasitics.extract(design, technology, plan, wires)


def flip_flops(clock: dict[str, int]) -> Netlist:
    """Two flip-flops, an inverter between them; the second's clock as given."""
    cells = {
        "first": {"type": "DFF", "connections": {"CLK": [1], "D": [2], "Q": [3]}},
        "between": {"type": "INV", "connections": {"A": [3], "Y": [4]}},
        "second": {"type": "DFF", "connections": {"CLK": [clock["second"]], "D": [4], "Q": [5]}},
        "late": {"type": "INV", "connections": {"A": [1], "Y": [6]}},
        "later": {"type": "INV", "connections": {"A": [6], "Y": [7]}},
    }
    return Netlist("top", {"ports": {"clk": {"direction": "input", "bits": [1]}}, "netnames": {}, "cells": cells},
                   load_library(CELLS))


def test_wires_and_the_clocks_way_count():
    """Each pF takes a ns here, an inverter one more; a clock that reaches the second flip-flop late gives it time."""
    plain = flip_flops({"second": 1})
    none = analyse_routed(plain, Wires({}, {}))
    assert none.skew_ns == 0 and none.period_ns == pytest.approx(analyse(plain).period_ns)
    loaded = analyse_routed(plain, Wires({4: 0.25}, {("second", "D"): 0.125}))
    assert loaded.period_ns == pytest.approx(none.period_ns + 0.25 + 0.125)
    late = analyse_routed(plain, Wires({}, {("second", "CLK"): 0.5}))
    assert late.latencies_ns == (0, 0.5) and late.period_ns == pytest.approx(none.period_ns - 0.5)
    tree = analyse_routed(flip_flops({"second": 7}), Wires({}, {}))
    assert tree.latencies_ns[0] == 0 and 2 < tree.skew_ns == tree.latencies_ns[1] < 3


def test_groups_of_a_clock_tree_lie_together():
    centres = {f"f{i}": (float(i % 10), float(i // 10)) for i in range(40)}
    made = clock_tree.groups([(name, "CLK") for name in centres], centres, 10)
    assert sorted(name for group in made for name, _ in group) == sorted(centres)
    assert len(made) == 4 and all(len(group) == 10 for group in made)
    for group in made:
        assert sum(max(values) - min(values) for values in zip(*(centres[name] for name, _ in group))) < 6


def test_a_missing_tool_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "PREFIXES", (tmp_path,))
    for name, place in tools._NEEDED.items():
        if name != "qrouter":
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).touch()
    assert main(["area", "arbiter", "--route"]) == 1
    error = capsys.readouterr().err
    assert "place and route needs qrouter: sudo apt install qflow" in error and error.count("\n") == 1


@pytest.mark.parametrize(("script", "words"), [
    ("echo 'ERROR: no room'; echo last; exit 3", "ended with code 3 and without block.pl1: ERROR: no room"),
    ("exit 0", "graywolf ended with code 0 and without block.pl1"),
    (None, "cannot be started")])
def test_a_broken_step_is_one_line(script, words, tmp_path):
    program = tmp_path / "usr" / "bin" / "graywolf"
    program.parent.mkdir(parents=True)
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    with pytest.raises(Failure, match=words) as told:
        tools.Tools(tmp_path).place(tmp_path, "block")
    assert str(told.value).startswith("placement: ") and "\n" not in str(told.value)


@pytest.mark.parametrize(("arguments", "words"), [
    (["arbiter", "--out", "x"], "--out needs --route"),
    (["arbiter", "--route", "--sweep", "count_bits=8"], "--sweep does not go with --route"),
    (["arbiter", "--route", "--fpga"], "--fpga does not go with --route"),
    (["arbiter", "--route", "--json", "x", "--markdown", "x"], "a name of its own")])
def test_bad_options(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["area", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gpu_top", "all"])
def test_what_is_too_large_is_refused(name):
    with pytest.raises(BadInput, match=f"{name} is too large"):
        flow.check_blocks(["arbiter", name])


@pytest.mark.builds_rtl
def test_a_part_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match=r"nmc_alu.low9 is not there: allowed are nmc_alu.high0, .*, nmc_alu.low1$"):
        map_block("nmc_alu.low9", Geometry(), load_library(CELLS))


def test_other_cells_are_refused():
    with pytest.raises(Failure, match="by_hand has no INVX1"):
        make_design(flip_flops({"second": 1}))


def test_the_estimates_factors_are_those_of_the_layouts():
    kept = json.loads((RESULTS / "area-routed.json").read_text(encoding="utf-8"))
    assert set(kept["blocks"]) == set(flow.BLOCKS)
    assert (node.CYCLE_OVER_GATES, node.AREA_OVER_GATES) == (round(kept["factors"]["delay"], 2),
                                                             round(kept["factors"]["area"], 2))
    page = (RESULTS / "area-routed.md").read_text(encoding="utf-8")
    for name, one in kept["blocks"].items():
        assert f"| {name} | {one['gate_equivalents']:,.0f} | {one['cells']:,} |" in page
    assert f"the cycle {kept['factors']['delay']:.2f} times what the gates need" in page


def found() -> tools.Tools | None:
    try:
        return tools.find_tools()
    except Failure:
        return None


@pytest.mark.slow
@pytest.mark.skipif(found() is None, reason="graywolf and qrouter are not installed")
def test_a_real_layout(capsys, tmp_path):
    """The files agree with each other: cells, nets and pins of DEF, Verilog, SPEF and SDF."""
    assert main(["area", "ring_monitor", "--route", "--json", "-", "--out", str(tmp_path)]) == 0
    one = json.loads(capsys.readouterr().out)["blocks"]["ring_monitor"]
    assert 1 < one["delay_factor"] < 1.6 and 1.1 < one["area_factor"] < 2 and 0 < one["skew_ns"] < 0.3
    texts = {path.suffix: path.read_text() for path in (tmp_path / "ring_monitor").iterdir() if path.suffix != ".png"}
    assert {*texts} == {".def", ".lef", ".v", ".spef", ".sdf", ".json"}
    assert (tmp_path / "ring_monitor" / "ring_monitor.png").read_bytes().startswith(b"\x89PNG")
    nets = texts[".def"].split("\nNETS ")[1].split("END NETS")[0].count("+ ROUTED")
    assert texts[".spef"].count("*D_NET ") == nets > 150
    assert texts[".lef"].count("  PIN ") == one["pins"] == texts[".def"].split("\nPINS ")[1].count("+ NET")
    instances = [line for line in texts[".v"].splitlines() if " (." in line and not line.startswith("  LATCH")]
    assert texts[".sdf"].count("(INSTANCE ") == len(instances) == one["cells"] - 1
