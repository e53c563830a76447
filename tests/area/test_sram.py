"""The models of SRAM macros and of process nodes, against published figures and by hand."""

import json
from pathlib import Path

import pytest

from t3sim.area import node
from t3sim.area.memories import MemoryUse
from t3sim.area.node import ASAP7, NODES
from t3sim.area.sram import PUBLISHED, READ_CELL, Sram, macro_um2

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.mark.parametrize(("rows", "um"), [(64, 9.612), (256, 30.348)])
@pytest.mark.parametrize(("bits", "wide_um"), [(16, 25.92), (32, 43.2), (64, 77.76), (80, 95.04)])
def test_the_edges_are_those_of_asap7(rows, um, bits, wide_um):
    """By the outlines that its LEF files have, four words a row."""
    assert macro_um2(rows, bits, 1, ASAP7.bit_cell_um2) == pytest.approx(um * wide_um)


def test_an_area_by_hand():
    sram = Sram(32, 68)  # 8 rows of 272 columns, a decoder for the read and one for the write
    assert sram.um2(ASAP7) == pytest.approx((8 + 25) * (272 + 2 * 32) * 1.3 * 0.108 * 0.27)
    assert sram.efficiency(ASAP7) == pytest.approx(8 * 272 / (33 * 336))
    assert Sram(32, 68, 3).um2(ASAP7) == pytest.approx(3 * sram.um2(ASAP7))


def test_what_is_large_is_several_arrays():
    large = Sram(2047, 300)
    assert (large.arrays, large.rows, large.slices, large.bits) == (2, 256, 3, 100)
    assert large.um2(ASAP7) == pytest.approx(6 * Sram(1024, 100).um2(ASAP7))
    assert large.read_pj(ASAP7) == pytest.approx(3 * Sram(1024, 100).read_pj(ASAP7))  # one array of the two


def test_energy_is_ihps_at_its_node_and_less_at_smaller_ones():
    from dataclasses import replace

    from t3sim.area.sram import IHP_CELL_UM2
    ihp = replace(ASAP7, bit_cell_um2=IHP_CELL_UM2, volts=1.2)
    for words, width, read, write in ((64, 64, 39.0507, 50.4983), (256, 48, 37.8200, 48.4430),
                                      (512, 64, 68.8967, 80.0160), (1024, 64, 91.8272, 110.9189)):
        sram = Sram(words, width)
        assert (sram.read_pj(ihp), sram.write_pj(ihp)) == pytest.approx((read, write), rel=2e-3)
    assert Sram(384, 16).read_pj(ihp) == pytest.approx((14.1920 + 19.5664) / 2, rel=2e-3)
    shrink = (0.02916 / 3.1858) ** 0.5 * (0.7 / 1.2) ** 2
    assert Sram(512, 64).read_pj(ASAP7) == pytest.approx(68.8967 * shrink, rel=2e-3)
    assert Sram(256, 12, 2).write_pj(ASAP7) == pytest.approx(2 * Sram(256, 12).write_pj(ASAP7))


def test_how_far_the_model_is_off():
    """What docs/area.md says of it."""
    areas = [one.error for one in PUBLISHED if one.quantity == "µm²"]
    assert len(areas) == 10 and -0.26 < min(areas) and max(areas) < 0.29 and abs(sum(areas) / 10) < 0.05
    assert all(0.6 < one.error < 0.75 for one in PUBLISHED if one.quantity == "pJ a read")
    assert all(one.error > 0 for one in PUBLISHED if one.quantity == "ps" and "ASAP7" in one.subject)


@pytest.mark.parametrize("ports", [(1, 2), (1, 0), (0, 1)])
def test_other_ports_are_refused(ports):
    with pytest.raises(ValueError, match="allowed are one write port"):
        Sram(32, 8, *ports)


def test_copies_and_flip_flops():
    copies = MemoryUse("counts", 4, 64, 7, 2, 0, 1, 0)
    assert copies.macro_um2(ASAP7) == pytest.approx(8 * (16 + 25) * (28 + 64) * READ_CELL * ASAP7.bit_cell_um2)
    small = MemoryUse("queue", 4, 2, 82, 0, 1, 1, 0)
    assert small.sram is None and small.macro_um2(ASAP7) == 0


def test_nodes_shrink_in_every_quantity():
    assert NODES["7"] is ASAP7 and list(NODES) == ["180", "12", "7", "5"]
    for larger, smaller in zip(list(NODES.values()), list(NODES.values())[1:]):
        for quantity in ("gate_um2", "bit_cell_um2", "gate_delay_ps"):
            assert getattr(larger, quantity) > getattr(smaller, quantity), (larger.name, quantity)
        assert Sram(256, 32).read_pj(larger) > Sram(256, 32).read_pj(smaller)


def test_how_far_pitches_are_off():
    """What docs/area.md says of them."""
    bits = [one.error for one in node.PUBLISHED if "bit" in one.quantity]
    logic = [one.error for one in node.PUBLISHED if "transistors" in one.quantity]
    assert len(bits) == 5 and max(map(abs, bits)) < 0.07 and len(logic) == 3 and max(map(abs, logic)) < 0.28
    assert node.PUBLISHED[0].model == pytest.approx(2 * 0.070 * 10 * 0.042)


def test_a_node_that_there_is_not(error_of):
    assert "--node 6: allowed are 180, 12, 7, 5" in error_of("area", "arbiter", "--node", "6")


def test_the_estimates_factors_are_those_of_the_layouts():
    recorded = json.loads((RESULTS / "area-routed.json").read_text(encoding="utf-8"))
    assert (node.CYCLE_OVER_GATES, node.AREA_OVER_GATES) == (round(recorded["factors"]["delay"], 2),
                                                             round(recorded["factors"]["area"], 2))
    page = (RESULTS / "area-routed.md").read_text(encoding="utf-8")
    for name, layout in recorded["blocks"].items():
        assert f"| {name} | {layout['gate_equivalents']:,.0f} | {layout['cells']:,} |" in page
    assert f"the cycle {recorded['factors']['delay']:.2f} times what the gates need" in page
