"""cocotb runs: results are required, and the benchmark holds three simulators to one trace."""

import re
import shutil

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.base.errors import Failure
from t3sim.cosim import engine_speed
from t3sim.cosim.cocotb_run import (
    CocotbFailure,
    build_simulation,
    replay_cocotb,
    run_cocotb,
    without_initial_values,
)
from t3sim.cosim.designs import readable_verilog
from t3sim.cosim.verilog import generate_verilog
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.stimulus import random_stimulus
from t3sim.rtlsim.toolchain import ToolchainError

pytestmark = pytest.mark.builds_rtl

BENCH = """
import cocotb, os
from cocotb.triggers import Timer
@cocotb.test()
async def passes(dut):
    dut.a.value = 5
    await Timer(1, "ns")
@cocotb.test()
async def fails(dut):
    assert int(dut.a.value) == 6
@cocotb.test()
async def dies(dut):
    os._exit(0)
@cocotb.test()
async def hangs(dut):
    while True:
        pass
"""


class Sum(wiring.Component):
    """Adds up its input; 80 bits, so that ports of one and of two words occur."""

    def __init__(self, step: int = 0) -> None:
        self._step = step
        super().__init__({"a": In(7), "wide": In(80), "total": Out(80), "same_cycle": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.total.eq(self.total + self.a + (self.wide >> 3) + self._step)
        m.d.comb += self.same_cycle.eq(self.a[0] ^ self.total[79])
        return m


@pytest.fixture(scope="module")
def design():
    return generate_verilog(Sum(), "sum")


@pytest.fixture(scope="module")
def simulation(design):
    return build_simulation(*design)


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "bench_of_a_test.py").write_text(BENCH)
    monkeypatch.syspath_prepend(tmp_path)
    return "bench_of_a_test"


def test_a_passing_run(simulation, module, tmp_path):
    assert run_cocotb(simulation, module, tmp_path, testcase="passes") == 1
    assert run_cocotb(simulation, module, tmp_path, seed=77, testcase="passes") == 1
    assert "Seeding Python random module with 77" in (tmp_path / "cocotb.log").read_text()


@pytest.mark.parametrize(("testcase", "message"), [
    ("fails", "1 of 1 tests of sum failed: fails; see"),
    ("dies", "no results|ended early"),
    ("hangs", "no results|ended early"),
    ("no_such_test", "no results|No test of|ended early"),
])
def test_a_failing_run(simulation, module, tmp_path, testcase, message):
    with pytest.raises(CocotbFailure, match=message):
        run_cocotb(simulation, module, tmp_path, testcase=testcase, timeout_s=5)


@pytest.mark.slow  # Verilator's own code once more, with waves
def test_waves(design, module, tmp_path):
    run_cocotb(build_simulation(*design, waves=True), module, tmp_path, testcase="passes")
    assert "same_cycle" in (tmp_path / "dump.vcd").read_text()


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_replay(design, simulator, seed):
    if simulator == "icarus" and not shutil.which("iverilog"):
        with pytest.raises(ToolchainError, match="apt install iverilog"):
            build_simulation(*design, simulator=simulator)
        return
    _, ports = design
    stimulus = random_stimulus(ports, 100, seed, reset_probability=0.05)
    stimulus[0, 3] = 1  # with four states nothing is known before
    outputs, seconds = replay_cocotb(build_simulation(*design, simulator=simulator), ports, stimulus)
    total = 0
    for row, output in zip(stimulus, outputs):
        a, wide, reset = int(row[0]), int(row[1]) | int(row[2]) << 64, int(row[3])
        total = 0 if reset else (total + a + (wide >> 3)) % (1 << 80)
        assert (int(output[0]) | int(output[1]) << 64, int(output[2])) == (total, (a ^ total >> 79) & 1)
    assert seconds > 0


class Forgetful(wiring.Component):
    """Counts; a count that is not reset is unknown for good."""

    def __init__(self, reset: bool) -> None:
        self._reset = reset
        super().__init__({"total": Out(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(8, reset_less=not self._reset)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.total.eq(count)
        return m


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("reset", [True, False])
def test_what_reset_leaves_unknown_fails_in_four_states(reset):
    """A register without a reset makes its testbench fail in Icarus."""
    text, ports = generate_verilog(Forgetful(reset), "forgetful")
    stimulus = np.ones((10, ports.input_words), np.uint64)
    simulation = build_simulation(text, ports, "icarus")
    if reset:
        assert [int(output[0]) for output in replay_cocotb(simulation, ports, stimulus)[0]] == [0] * 10
    else:
        with pytest.raises(CocotbFailure):
            replay_cocotb(simulation, ports, stimulus)


def test_no_initial_value_is_left():
    """Of registers and of memories; what Yosys needs to begin at time 0 stays."""
    text, _ = readable_verilog("tracker", Geometry())
    bare = without_initial_values(text)
    assert not re.findall(r"^  reg .*=", bare, re.MULTILINE)
    assert {*re.findall(r"initial.*", bare)} == {"initial at_time_0 <= 1'b1;"} < {*re.findall(r"initial.*", text)}


def test_a_constant_of_one_process_is_known_at_once():
    """No input of it ever changes, so no event would make it run."""
    text = "  always @*\n    waits[19:17] = 3'h0;\n  always @*\n    waits[16] = busy;\n"
    assert without_initial_values(text) == "  initial waits[19:17] = 3'h0;\n  always @*\n    waits[16] = busy;\n"


def test_unknown_simulator(design):
    with pytest.raises(ValueError, match="verilator, icarus"):
        build_simulation(*design, simulator="modelsim")


@pytest.mark.slow
def test_benchmark(design, seed, monkeypatch):
    monkeypatch.setattr(engine_speed, "_BARE_SECONDS", 0.1)
    monkeypatch.setattr(engine_speed, "_AMARANTH_SECONDS", 0.1)
    stimulus = random_stimulus(design[1], 1000, seed)
    speeds = engine_speed.benchmark(Sum, "sum", stimulus)
    assert set(speeds) == {"bare", "full", "cocotb", "amaranth"}
    assert speeds["bare"] > 10 * speeds["cocotb"] and speeds["bare"] > 10 * speeds["amaranth"] > 0


@pytest.mark.slow
def test_benchmark_refuses_different_outputs(design):
    steps = iter([0, 0, 1])  # the third component is the one that Amaranth simulates
    with pytest.raises(Failure, match="amaranth and the compiled RTL differ from cycle 0 on"):
        engine_speed.benchmark(lambda: Sum(next(steps)), "sum", np.zeros((50, design[1].input_words), np.uint64))
