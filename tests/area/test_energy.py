"""`t3 area --energy`: counts and prices by hand, and netlists beside the RTL."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from t3sim.area.energy import report
from t3sim.area.energy.circuit import lower
from t3sim.area.energy.measured import LayerEnergy, ModuleEnergy, measure_energy
from t3sim.area.energy.price import (
    CLASSES,
    CLOCK,
    FLIP_FLOPS,
    GATES,
    LEAKAGE,
    LEAKAGE_GROWTH,
    MEMORIES,
    NOTHING,
    PORTS,
    SHRINK_ERROR,
    TREE_PER_FLIP_FLOP,
    WIRES_OVER_PINS,
    Range,
    glitches,
    net_energies,
    price,
    shrink,
)
from t3sim.area.energy.recorded import BATCH, ModuleReplay, module_ports, port_groups
from t3sim.area.energy.replay import RecordedPorts, fresh_state
from t3sim.area.liberty import load_library_text
from t3sim.area.libraries import find_library
from t3sim.area.measure import map_block
from t3sim.area.node import ASAP7
from t3sim.area.sram import Sram
from t3sim.area.synthesis import Netlist
from t3sim.base.errors import BadInput, Failure
from t3sim.cosim.designs import block_design
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.simulator import Simulator

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

ROOT = Path(__file__).resolve().parents[2]
RESULTS, MACHINES = ROOT / "docs" / "results", ROOT / "tests" / "data" / "machines"


def _timing(source: str, kind: str = "") -> str:
    tables = "".join(f'{name} (one) {{ values ("1"); }} ' for name in (
        "cell_rise", "cell_fall", "rise_transition", "fall_transition"))
    return f'timing () {{ related_pin : "{source}"; {kind} {tables} }}'


def _power(rise: float, fall: float, source: str = "") -> str:
    related = f'related_pin : "{source}";' if source else ""
    return (f'internal_power () {{ {related} rise_power (one_energy) {{ values ("{rise}"); }} '
            f'fall_power (one_energy) {{ values ("{fall}"); }} }}')


def _input(name: str, pf: float, more: str = "") -> str:
    return f"pin ({name}) {{ direction : input; capacitance : {pf}; {more} }}"


LIBRARY = load_library_text(f"""library (by_hand) {{
  nom_voltage : 2; capacitive_load_unit (1, pf);
  lu_table_template (one) {{ variable_1 : total_output_net_capacitance; variable_2 : input_net_transition;
    index_1 ("0"); index_2 ("0"); }}
  power_lut_template (one_energy) {{ variable_1 : total_output_net_capacitance; variable_2 : input_transition_time;
    index_1 ("0"); index_2 ("0"); }}
  cell (INV) {{ area : 2; cell_leakage_power : 1; {_input("A", 0.01)}
    pin (Y) {{ direction : output; function : "(!A)"; {_timing("A")} {_power(0.04, 0.06, "A")} }} }}
  cell (NAND2) {{ area : 4; cell_leakage_power : 2; {_input("A", 0.01)} {_input("B", 0.02)}
    pin (Y) {{ direction : output; function : "(!(A B))"; {_timing("A")} {_timing("B")}
      {_power(0.1, 0.3, "A")} {_power(0.2, 0.2, "B")} }} }}
  cell (DFF) {{ area : 16; cell_leakage_power : 3; ff (IQ, IQN) {{ next_state : "D"; clocked_on : "CLK"; }}
    {_input("CLK", 0.04, _power(0.2, 0.4))} {_input("D", 0.03, _power(0.1, 0.1))}
    pin (Q) {{ direction : output; function : "IQ"; {_timing("CLK", "timing_type : rising_edge;")}
      {_power(0.5, 0.7, "CLK")} }} }}
}}""", "by hand")
HALF_SQUARE, SQUARE = 2.0, 4.0
WIRE = 1 + WIRES_OVER_PINS.typical


def netlist(ports: dict[str, tuple[str, list[int]]], cells: dict[str, tuple[str, dict]]) -> Netlist:
    return Netlist("by_hand", {
        "ports": {name: {"direction": direction, "bits": bits} for name, (direction, bits) in ports.items()},
        "netnames": {}, "cells": {name: {"type": kind, "connections": {
            pin: bits if isinstance(bits, list) else [bits] for pin, bits in pins.items()}}
            for name, (kind, pins) in cells.items()}}, LIBRARY)


TWO_GATES = netlist({"a": ("input", [2]), "b": ("input", [3]), "y": ("output", [5])}, {
    "nand": ("NAND2", {"A": 2, "B": 3, "Y": 4}), "inverter": ("INV", {"A": 4, "Y": 5})})
FLIP_FLOP = netlist({"clk": ("input", [2]), "d": ("input", [3]), "enable": ("input", [4]), "q": ("output", [5])}, {
    "gate": ("clock_gate", {"clock": 2, "enable": 4, "gated": 6}), "register": ("DFF", {"CLK": 6, "D": 3, "Q": 5})})


def replayed(circuit: Netlist, rows: list[int], instances: int = 1, sampled: int = 0) -> ModuleReplay:
    """Replay rows of all ports but the clock, the first port's bits the lowest; the first row is not counted."""
    lowered = lower(circuit)
    bits = [(port["direction"], lowered.net(bit)) for name, port in circuit.module["ports"].items() if name != "clk"
            for bit in port["bits"]]
    drives, shows = (np.full(64, -1, np.int64) for _ in range(2))
    for place, (direction, net) in enumerate(bits):
        (drives if direction == "input" else shows)[place] = net
    ports = RecordedPorts(np.zeros(instances, np.int64), 1, drives, shows, np.flatnonzero(shows >= 0))
    replay = ModuleReplay("by_hand", tuple(f"instance_{i}" for i in range(instances)), lowered, ports,
                     fresh_state(lowered, ports))
    replay.take(np.array(rows[:1], np.int64)[:, None], 0)
    replay.clear()
    replay.take(np.array(rows[1:], np.int64)[:, None], 1, sampled)
    return replay


def energy(replay: ModuleReplay, cycles: int) -> dict:
    return price(replay.lowered, replay.state, len(replay.instances), cycles, ASAP7, 1.0)


def and_rows(*inputs: int) -> list[int]:
    return [a_b | (a_b == 3) << 2 for a_b in inputs]


def test_two_gates_by_hand():
    # a changes once, b three times, and both gates three times.
    energies = energy(replayed(TWO_GATES, and_rows(0, 1, 3, 1, 3)), 4)
    per_change = HALF_SQUARE * 0.01 * WIRE + 0.2 + 0.05  # NAND's own, its wire, the inverter's own; y drives nothing
    small = shrink(LIBRARY, ASAP7)
    assert small == pytest.approx((0.04374 / 4) ** 0.5 * (0.7 / 2) ** 2)
    assert energies[GATES].typical == pytest.approx(3 * per_change * small)
    assert energies[PORTS].typical == pytest.approx((1 * 0.01 + 3 * 0.02) * HALF_SQUARE * WIRE * small)
    assert energies[PORTS].low == pytest.approx(energies[PORTS].typical * 1.13 / WIRE * SHRINK_ERROR.low)
    assert energies[PORTS].high == pytest.approx(energies[PORTS].typical * 1.40 / WIRE * SHRINK_ERROR.high)
    assert energies[LEAKAGE].typical == pytest.approx(3 * 4 * 1e-6 * LEAKAGE_GROWTH.typical)  # 3 nW for 4 ns
    assert energies[CLOCK] == energies[MEMORIES] == energies[FLIP_FLOPS] == NOTHING


def test_a_clock_gate_that_opens_and_one_that_does_not():
    """Bits: d, enable, q."""
    shut = energy(replayed(FLIP_FLOP, [0] * 11), 10)
    assert [shut[kind] for kind in (GATES, PORTS, FLIP_FLOPS)] == [NOTHING] * 3
    assert shut[CLOCK].typical > 0 and shut[LEAKAGE].typical == pytest.approx(
        3 * 10 * 1e-6 * LEAKAGE_GROWTH.typical)
    # The latch of the gate, the NAND beside it, and the inputs of the tree's share, which are not gated.
    gate = (0.04 + 0.01) * SQUARE * WIRE + 2 * 0.3
    tree = TREE_PER_FLIP_FLOP * 2 * 0.01 * SQUARE * WIRE
    small = shrink(LIBRARY, ASAP7)
    assert shut[CLOCK].typical == pytest.approx(10 * (gate + tree) * small)
    open_ = energy(replayed(FLIP_FLOP, [2] * 11), 10)
    leaf = 0.04 * SQUARE * WIRE + 2 * 0.3
    opened = 0.01 * SQUARE * WIRE + 2 * 0.2 + 2 * 0.05  # the inverter's pin, what both take
    assert open_[CLOCK].typical == pytest.approx(
        (10 * (gate + tree + leaf + opened) + 10 * TREE_PER_FLIP_FLOP * 2 * 2 * 0.05) * small)
    assert open_[CLOCK].low < open_[CLOCK].typical < open_[CLOCK].high
    assert open_[FLIP_FLOPS] == NOTHING


def test_twice_the_activity_is_twice_the_energy():
    """Bits: d, enable, q, which is what d was a cycle ago."""
    once, twice = (replayed(FLIP_FLOP, [2, *([3, 6 | 1, 6, 2] * number)]) for number in (10, 20))
    short, long = energy(once, 40), energy(twice, 80)
    for kind in (PORTS, FLIP_FLOPS):
        assert long[kind].typical == pytest.approx(2 * short[kind].typical) and short[kind].typical > 0
    assert once.state.toggles.sum() * 2 == twice.state.toggles.sum() == 80


def test_instances_count_apart_and_together():
    alone, many = (replayed(TWO_GATES, and_rows(0, 3, 1, 2), number) for number in (1, 64))
    assert (many.state.toggles == 64 * alone.state.toggles).all()


def test_another_output_is_refused_with_its_place():
    rows = and_rows(0, 3, 0)
    rows[1] ^= 4
    with pytest.raises(Failure, match=r"of instance_0 \(by_hand\) shows another y\[0\] than the RTL in cycle 1"):
        replayed(TWO_GATES, rows)


def test_a_glitch_is_counted_beside():
    """A gate of a signal and its inverse: a pulse that the settled values do not show."""
    hazard = netlist({"a": ("input", [2]), "y": ("output", [4])}, {
        "inverter": ("INV", {"A": 2, "Y": 3}), "nand": ("NAND2", {"A": 2, "B": 3, "Y": 4})})
    replay = replayed(hazard, [2, 3, 2, 3], sampled=3)
    y = replay.lowered.nets[4]
    # The pulse comes whenever a rises.
    assert replay.state.toggles[y] == replay.state.sampled_toggles[y] == 0 and replay.state.glitch_toggles[y] == 2 * 2
    factor = glitches(net_energies(replay.lowered), replay.state)
    assert factor.low == 1 and factor.typical == pytest.approx((1 + factor.high) / 2) and factor.high > 1


def memory(enable: list, clocked: str = "1") -> Netlist:
    """Four words of two bits; ports: read address, read enable, write address, data, write enable; read data."""
    parameters = {"SIZE": "100", "WIDTH": "10", "ABITS": "10", "RD_PORTS": "1", "WR_PORTS": "1",
                  "RD_CLK_ENABLE": clocked, "RD_TRANSPARENCY_MASK": "0", "INIT": "11" + "0" * 6}
    of = netlist({"clk": ("input", [2]), "read": ("input", [3, 4]), "asks": ("input", [5]),
                  "write": ("input", [6, 7]), "data": ("input", [8, 9]), "writes": ("input", [10]),
                  "gives": ("output", [11, 12])}, {"words": ("$mem_v2", {
                      "RD_ADDR": [3, 4], "RD_EN": enable, "RD_DATA": [11, 12], "RD_CLK": [2], "RD_SRST": ["0"],
                      "RD_ARST": ["0"], "WR_ADDR": [6, 7], "WR_DATA": [8, 9], "WR_EN": [10, 10], "WR_CLK": [2]})})
    of.module["cells"]["words"]["parameters"] = parameters
    return of


def row(read: int = 0, asks: int = 0, write: int = 0, data: int = 0, writes: int = 0, gives: int = 0) -> int:
    return read | asks << 2 | write << 3 | data << 5 | writes << 7 | gives << 8


def test_a_memory_gives_what_was_written_and_its_accesses_are_priced():
    rows = [row(), row(read=3, asks=1), row(write=2, data=1, writes=1, gives=3),  # word 3 holds 3 at first
            row(read=2, asks=1, write=2, data=2, writes=1, gives=3),  # the word that is being written: as it was
            row(read=2, asks=1, gives=1), row(read=2, asks=1, gives=2), row(gives=2)]
    replay = replayed(memory([5]), rows)
    assert replay.state.accesses.tolist() == [4, 2] and replay.state.fresh.tolist() == [3, 0]
    macro = Sram(4, 2)
    assert energy(replay, 6)[MEMORIES].typical == pytest.approx(
        4 * macro.read_pj(ASAP7) + 2 * macro.write_pj(ASAP7))
    always = replayed(memory(["1"]), [row(read=0)] + [row(read=3)] + [row(read=3, gives=3)] * 9)
    assert always.state.accesses.tolist() == [10, 0] and always.state.fresh.tolist() == [1, 0]


def test_what_has_no_model_is_refused():
    with pytest.raises(Failure, match="memory words is read without a clock"):
        lower(memory([5], clocked="0"))
    loop = netlist({"y": ("output", [2])}, {"one": ("INV", {"A": 2, "Y": 3}), "two": ("INV", {"A": 3, "Y": 2})})
    with pytest.raises(Failure, match="its gates form a loop"):
        lower(loop)
    with pytest.raises(Failure, match="the function of cell MUX is unknown"):
        lower(netlist({"y": ("output", [2])}, {"one": ("MUX", {"A": 2})}))


@pytest.mark.parametrize(("arguments", "line"), [
    (["--library", "embedded"], "has no voltage or no internal_power, by which energy is known: osu018"),
    (["tracker"], "a block does not go with --energy"), (["-g", "ways=4"], "--geometry does not go with --energy"),
    (["--sweep", "ways=4,8"], "--sweep does not go with --energy"),
])
def test_bad_input_is_one_line(arguments, line, error_of):
    assert line in error_of("area", *arguments, "--energy")


@pytest.mark.slow
@pytest.mark.parametrize("block", ["order_guard", "coalescer", "dispatch_window"])
def test_a_netlist_does_what_the_rtl_does_and_its_ports_change_as_often(block):
    geometry = Geometry()
    lowered = lower(map_block(block, geometry, find_library("embedded"))[0])
    library = block_design(block, geometry, port_groups({"": lowered.netlist}))
    ports = library.ports
    random = np.random.default_rng(1)
    stimulus = random.integers(0, 1 << 64, (3000, ports.input_words), np.uint64) & random.integers(
        0, 1 << 64, (3000, 1), np.uint64)
    for port in ports.inputs.values():
        if port.width % 64:
            stimulus[:, port.offset + port.words - 1] &= np.uint64((1 << port.width % 64) - 1)
    stimulus[:, ports.inputs["rst"].offset] = 0
    top = module_ports(library, lowered, block)
    with Simulator(library) as simulated:
        rows = simulated.run(stimulus)[:, top.first:].view(np.int64)
    part, = top.parts
    part.power_on(top.reset)
    part.take(rows[:1], 0)
    part.clear()
    values = [np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")[1:].astype(np.int64)]
    for nets in (part.ports.drives, part.ports.shows):  # registers change at the edges after the first and last cycle
        values.append(part.state.nets[nets] & 1)
    part.take(rows[1:], 1)
    for nets, before in zip((part.ports.drives, part.ports.shows), values[1:]):
        real_nets = nets >= 2
        seen = np.vstack([before, values[0], part.state.nets[nets] & 1])
        changes = np.abs(np.diff(seen, axis=0)).sum(axis=0)
        assert (part.state.toggles[nets[real_nets]] == changes[real_nets]).all()
        assert changes[real_nets].sum() > 1000


@pytest.mark.slow
def test_a_run_of_the_whole_top(tmp_path):
    """On the least hardware: its netlists are mapped in a fifth of the time."""
    machine, cells = tmp_path / "machine.toml", find_library("embedded")
    machine.write_text(f'extends = "{MACHINES / "ring_tiny.toml"}"\ngpu = {{ tile_m = 64, tile_n = 32 }}\n')
    inverter = LIBRARY.cells["INV"].energies["Y"]
    cells = replace(cells, volts=2.0, cells={name: replace(cell, energies=dict.fromkeys(cell.arcs, inverter))
                                             for name, cell in cells.cells.items()})
    layer = measure_energy(str(machine), cells, ASAP7, BATCH + 1000, lambda name, share: None)
    assert layer.cycles == BATCH + 1000 and not layer.whole
    assert layer.modules["event_counter"].instances > 5 and len(layer.modules) > 15
    content = layer.to_json()
    assert content["top_mw"]["low"] < content["top_mw"]["typical"] < content["top_mw"]["high"]
    total = sum(one.energies[kind].typical for one in layer.modules.values() for kind in CLASSES)
    assert total * layer.clock_ghz / layer.cycles == pytest.approx(content["top_mw"]["typical"], rel=1e-3)
    assert 0.01 < layer.alu_pj_per_byte.typical < 10
    assert "Track & Trigger takes" in report.headline(layer)


@pytest.fixture
def osu018():
    try:
        return find_library("osu018")
    except BadInput:
        pytest.skip("OSU018 is not installed: make library")


@pytest.mark.slow
def test_the_wires_are_those_of_the_layouts(osu018):
    layouts = json.loads((RESULTS / "area-routed.json").read_text())["blocks"]
    wires, buffers, cells = [], [], {}
    for block, layout in layouts.items():
        mapped, _ = map_block(block, Geometry(), osu018)
        pins = sum(osu018.cells[cell["type"]].loads.get(pin, 0) for cell in mapped.module["cells"].values()
                   if cell["type"] in osu018.cells for pin in cell["connections"])
        wires.append(layout["wires_pf"] / pins)
        cells[layout["cells"]] = wires[-1]
        if mapped.flip_flops:
            buffers.append(layout["clock_buffers"] / mapped.flip_flops)
    assert median(wires) == pytest.approx(WIRES_OVER_PINS.low, abs=5e-3)
    most, = (count for count, share in cells.items() if share == max(wires))
    assert max(wires) == pytest.approx(WIRES_OVER_PINS.typical, abs=5e-3)
    growth = np.polyfit(np.log(list(cells)), np.log(list(cells.values())), 1)[0]
    assert WIRES_OVER_PINS.typical * (20_000 / most) ** growth == pytest.approx(WIRES_OVER_PINS.high, rel=0.05)
    assert median(buffers) == pytest.approx(TREE_PER_FLIP_FLOP, abs=5e-3)


def test_the_tables_show_every_module():
    module = ModuleEnergy(2, 10, 0.25, 0.5, {kind: Range(1.0, 2.0, 3.0) for kind in CLASSES})
    layer = LayerEnergy("layer", "machine", "t3-mca+", "cells", "7 nm", 1000, 1.0, True,
                        {f"module{number}": module for number in range(14)}, Range(1, 2, 3), Range(0, 0, 0),
                        {"updates": 4, "triggers": 2, "commands": 1}, 64, 128, 32, 1000)
    power, = (rows for title, _, rows in report.sections(layer) if title == "Power of the top")
    assert power[0][:4] == ("module0", "2", "25", "50.0%")
    assert power[-2][:2] == ("2 others", "4") and power[-1][0] == "the top"


def test_the_page_is_the_json_s():
    """The figures that pages take from the file are those of the page beside it."""
    content = json.loads((RESULTS / "energy.json").read_text())
    page = (RESULTS / "energy.md").read_text()
    assert content["whole"] and f"{content['cycles']:,} cycles" in page
    assert f"| {content['actions']['tile (the whole top)']['count']:,} |" in page
