"""Every block's cocotb testbench, on small geometries; a broken design fails it; a failure says how to repeat it.

More seeds, geometries and simulators: `make cocotb`.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth import Module
from amaranth.lib import wiring

from t3sim.cosim.cocotb_run import CocotbFailure
from t3sim.cosim.testbench import Testbench, run_testbench
from t3sim.cosim.verilog import generate_verilog
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.layouts import ErrorCode, Op, Source
from t3sim.testbenches import run_blocks
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.scoreboard import MismatchError, Scoreboard
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

SMALL = GEOMETRIES["small"]


@pytest.mark.parametrize("block", on_one(BLOCKS, "arbiter", "tracker"))
def test_small(block, seed, tmp_path):
    assert run_testbench(Testbench(block, SMALL, seed), tmp_path) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("block", ["tracker", "memory_channel", "dispatch_window", "update_network", "gpu_top"])
def test_one_of_everything(block, seed, tmp_path):
    """One set of one way, one bank, one channel, one engine."""
    run_testbench(Testbench(block, GEOMETRIES["least"], seed), tmp_path)


@pytest.mark.slow
def test_several_of_everything(seed, tmp_path):
    """The wired top with four channels, banks and engines and three lanes: each is meant, not only the first."""
    run_testbench(Testbench("gpu_top", GEOMETRIES["several"], seed), tmp_path)


@pytest.mark.slow
def test_the_default_top(seed, tmp_path):
    """The top at its real size: 32 channels, 8 banks of 32 sets of 8 ways, 4 engines; two kernels."""
    run_testbench(Testbench("gpu_top", GEOMETRIES["default"], seed, timeout_s=1800, rounds=1), tmp_path,
                  testcase="fused_kernels")


@pytest.mark.slow
@pytest.mark.parametrize("protection", ["secded", "parity"])
@pytest.mark.parametrize("block", ["tracker", "corrected_row", "config_bus"])
def test_protected(block, protection, seed, tmp_path):
    """A Tracker with check bits; its testbench flips bits of the memories."""
    geometry = GEOMETRIES["protected"]
    geometry = replace(geometry, tracker=replace(geometry.tracker, protection=protection))
    run_testbench(Testbench(block, geometry, seed), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", sorted(BLOCKS))
def test_icarus(block, seed, tmp_path):
    """Four states: registers and memories are unknown until reset or a write, and every testbench passes."""
    if not shutil.which("iverilog"):
        pytest.skip("Icarus Verilog is not installed")
    run_testbench(Testbench(block, SMALL, seed, "icarus"), tmp_path)


@pytest.mark.parametrize("simulator, waves", on_one(
    [(simulator, waves) for simulator in ("verilator", "icarus") for waves in ("vcd", "fst", "1")]))
def test_waves_by_make(simulator, waves):
    """As the Makefile says it: make exports what it is told, and cocotb would take it for its own."""
    if simulator == "icarus" and not shutil.which("iverilog"):
        pytest.skip("Icarus Verilog is not installed")
    result = subprocess.run(
        ["make", "-o", "setup", f"VENV={sys.prefix}", "cocotb", "BLOCK=coalescer", "SEED=1", "ROUNDS=1",
         f"TEST={run_blocks.tests_of('coalescer')[0]}", f"WAVES={waves}", f"SIM={simulator}"],
        cwd=run_blocks.ROOT, text=True, capture_output=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    dump = Path(re.search(r"^coalescer: waveforms in (.*)$", result.stdout, re.M)[1])
    assert dump.suffix == (".fst" if waves == "fst" else ".vcd")
    assert [path.name for path in dump.parent.glob("dump*")] == [dump.name]
    if waves != "fst":
        names = re.findall(r"\$var \w+ \d+ \S+ (\S+)", dump.read_text())
        assert {"clk", "accesses__payload.address", "held.wg"} <= {*names}
        assert not [name for name in names if "$" in name]
    else:
        assert dump.stat().st_size > 500


def test_unknown_waves_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        run_blocks.main(["coalescer", "--waves", "ghw"])
    assert re.search("invalid choice: 'ghw' .*vcd.*fst", capsys.readouterr().err)


def test_every_block_has_a_testbench():
    files = {path.stem.removeprefix("tb_") for path in (run_blocks.ROOT / "testbenches").glob("tb_*.py")}
    assert files == BLOCKS.keys() | {"replay"}


class Broken(wiring.Component):
    """A block in which `wrong(m, inner, outer)` overrules connections, named by the port's path."""

    def __init__(self, block: str, wrong) -> None:
        self._inner, self._wrong = BLOCKS[block](SMALL), wrong
        super().__init__(self._inner.signature)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = inner = self._inner
        wiring.connect(m, wiring.flipped(self), inner)
        self._wrong(m, inner, self)
        return m


def threshold_off_by_one(m, inner, outer):
    m.d.comb += inner.thresholds[4].eq(outer.thresholds[4] + 1)


def update_lost_under_back_pressure(m, inner, outer):
    with m.If(outer.triggers.valid & ~outer.triggers.ready):
        m.d.comb += outer.updates.ready.eq(1)


def retired_when_granted(m, inner, outer):
    """The order guard no longer covers the time a write spends in the DRAM queue."""
    command = outer.dram.payload
    m.d.comb += [
        inner.retirement.valid.eq(outer.dram.valid & outer.dram.ready & (command.request.region != 0)
                                  & (command.request.op != Op.READ)),
        inner.retirement.bucket.eq(command.bucket),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("block", "wrong", "message"), [
    ("tracker", threshold_off_by_one, "triggers(, item|:)|errors(, item|:)"),
    ("tracker", update_lost_under_back_pressure, "triggers(, item|:)|errors(, item|:)"),
    ("memory_channel", retired_when_granted, "passed a tracked write"),
], ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_design_is_caught(block, wrong, message, seed, tmp_path):
    """A connection is overruled, and the testbench fails with the expected assertion."""
    design = generate_verilog(Broken(block, wrong), block)
    with pytest.raises(CocotbFailure, match=message):
        run_testbench(Testbench(block, SMALL, seed), tmp_path, design=design)


def test_a_failure_prints_the_command_that_repeats_it(monkeypatch, capsys, tmp_path):
    """A testbench with another geometry than its design."""
    monkeypatch.setattr(run_blocks, "_RUNS", tmp_path)
    real = run_blocks.run_testbench
    design = generate_verilog(BLOCKS["trigger_merge"](SMALL), "trigger_merge")
    monkeypatch.setattr(run_blocks, "run_testbench", lambda *args, **options: real(*args, **options, design=design))
    assert run_blocks.main(["trigger_merge", "--geometry", "one_way", "--seed", "7", "--rounds", "2",
                            "--test", "random_triggers"]) == 1
    told = capsys.readouterr().out
    assert "trigger_merge: FAILED with seed 7" in told
    assert "1 of 1 tests of trigger_merge failed: random_triggers" in told
    assert ("Repeat with: make cocotb BLOCK=trigger_merge SEED=7 GEOMETRY=one_way ROUNDS=2 TEST=random_triggers\n"
            in told)
    assert re.search(r"^\w*Error: ", told, re.MULTILINE)


def test_a_mismatch_is_put_in_names_and_hexadecimal_addresses():
    scoreboard = Scoreboard("errors")
    scoreboard.expect({"code": ErrorCode.TRACKER_FULL.value, "details": {"address": 0x1_2345_0040, "wg": 3}})
    with pytest.raises(MismatchError) as failure:
        scoreboard.check({"code": 31, "details": {"address": 0x40, "wg": 3}})
    assert str(failure.value) == ("errors, item 0: expected {code: tracker_full, details: {address: 0x123450040, "
                                  "wg: 3}}, got {code: 31, details: {address: 0x40, wg: 3}}")
    lines = Scoreboard("lines")
    lines.expect({"address": 64, "op": Op.UPDATE.value, "source": Source.DMA.value})
    with pytest.raises(MismatchError, match="1 never came, first {address: 0x40, op: update, source: dma}"):
        lines.check_empty()


def test_an_unknown_block_is_refused(capsys):
    with pytest.raises(SystemExit):
        run_blocks.main(["trackr"])
    told = capsys.readouterr().err
    assert "there is no block 'trackr'; the blocks are coalescer, " in told
    assert told.count("\n") == 1


def test_an_unknown_test_is_refused_and_the_tests_are_listed(capsys):
    with pytest.raises(SystemExit) as end:
        run_blocks.main(["trigger_merge", "coalescer", "--test", "nonsense"])
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "python -m t3sim.testbenches.run_blocks: there is no test 'nonsense'; the tests are "
        "trigger_merge: random_triggers, one_trigger_per_cycle; coalescer: random_accesses\n")


def test_a_test_is_run_where_it_is(monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(run_blocks, "run_testbench", lambda testbench, *_, **__: ran.append(testbench.block) or 1)
    assert run_blocks.main(["--test", "random_accesses"]) == 0
    assert ran == ["coalescer"]
