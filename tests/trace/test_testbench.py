"""A cocotb test that fails leaves a trace, in the events of every other, and names the commands that read it."""

import re
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.cosim.cocotb_run import CocotbFailure
from t3sim.cosim.testbench import Testbench, block_verilog, run_testbench
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.trace.explain_tile import explain_tile
from t3sim.trace.schema import COMPLETE, REFUSED, Kind
from t3sim.trace.store import Trace
from t3sim.trace.testbench import explain_failure
from t3sim.trace.tile import miscounts
from tests.support.damage import replaced
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

SMALL = GEOMETRIES["small"]

#: What is broken in the Verilog of a block: this line's right side gets that in front.
BROKEN = {
    "tracker": (r"assign complete = (.*);", "(hit & current[0]) | (\\1)", "MismatchError: "),
    "arbiter": (r"assign grant_communication = (.*);", "~(starved & compute_valid) & (\\1)",
                "AssertionError: cycle .*: expected .*, got "),
    "gpu_top": (r"assign complete = (.*);", "(occupied != 3) & (\\1)", "nothing has moved"),
}


@pytest.fixture(scope="module", params=on_one(BROKEN, "arbiter"))
def failed(request, tmp_path_factory) -> tuple[str, str, Trace]:
    block = request.param
    what, instead, message = BROKEN[block]
    text, ports = block_verilog(block, SMALL)
    broken, count = re.subn(what, lambda found: found[0].replace(found[1], found.expand(instead)), text)
    assert count
    folder = tmp_path_factory.mktemp(block)
    with pytest.raises(CocotbFailure, match=message) as failure:
        run_testbench(Testbench(block, SMALL, 4), folder, design=(broken, ports), explain=explain_failure)
    return block, str(failure.value), Trace.load(folder / "trace")


def test_the_failure_names_commands_that_work(failed, capsys):
    block, told, trace = failed
    commands = re.findall(r"^  t3 (.*)$", told, re.M)
    assert [line for line in commands if line.startswith("step --cycle")] and f"explain {trace.folder}" in commands
    for line in commands:
        if line.startswith("explain"):
            assert cli.main(line.split()) == 0
    printed = capsys.readouterr().out
    assert f"testbench {block}, " in printed and "failed at cycle" in printed
    expected = {"tracker": r"bank \d counts \d+ bytes", "gpu_top": r"([\d,]+) of \1 bytes since",
                "arbiter": r"(Granted: compute|Nothing was granted)"}
    assert re.search(expected[block], " ".join(printed.split()))


def test_the_trace_shows_the_fault(failed):
    """A broken Tracker, arbiter and top: the failing testbench's trace contains the wrong event."""
    block, _, trace = failed
    e, last = trace.events, trace.window[1] - 1
    updates = e[e["kind"] == Kind.UPDATE]
    if block == "tracker":
        early = updates[(updates["flags"] & COMPLETE != 0) & (updates["a"] < updates["b"])]
        assert len(early) and last - early["cycle"][-1] < 20
        told = explain_tile(trace, int(early["wg"][-1]), int(early["wf"][-1])).steps
        assert any("complete: it fires" in text for _, text in told)
    elif block == "arbiter":
        assert (e["kind"] == Kind.DECIDE).any() and last in e["cycle"]
    else:
        stuck = updates[(updates["flags"] & COMPLETE == 0) & (updates["a"] == updates["b"])]
        assert len(stuck) and {Kind.DISPATCH, Kind.ENTER, Kind.DECIDE, Kind.REPORT, Kind.TRIGGER} <= {
            Kind(kind) for kind in e["kind"]}


def test_a_tracker_that_does_not_fire_is_blamed_and_not_what_was_sent(tmp_path, capsys):
    """Its comparison is off by 64 bytes, so counts go through their thresholds."""
    text, ports = block_verilog("tracker", SMALL)
    broken, count = re.subn(r"(stored\[\d+:\d+\]) == room;", r"(\1 + 10'd64) == room;", text)
    assert count == 1
    with pytest.raises(CocotbFailure):
        run_testbench(Testbench("tracker", SMALL, 3), tmp_path, design=(broken, ports), explain=explain_failure)
    trace = Trace.load(tmp_path / "trace")
    updates = trace.events[trace.events["kind"] == Kind.UPDATE]
    at_threshold = updates[(updates["a"] == updates["b"]) & (updates["flags"] & (COMPLETE | REFUSED) == 0)][0]
    wg, wf, cycle = int(at_threshold["wg"]), int(at_threshold["wf"]), int(at_threshold["cycle"])
    blame = f"at its threshold of {int(at_threshold['b']):,} bytes in cycle {cycle:,}, and the Tracker did not fire"
    for arguments in (["--wg", str(wg), "--wf", str(wf)], []):
        assert cli.main(["explain", *arguments, str(trace.folder)]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert blame in told and "more was sent" not in told
    assert "not what was sent" in explain_tile(trace, wg, wf).verdict[0]


@pytest.mark.parametrize("found, broken, blame", on_one([
    (r"(assign \\\$\d+  =) ~ closes;(?=\n(?:.*\n)*?.*~ closes;)", r"\1 1'h1;", "counts on in way"),
    (r"(= stored\[\d+:\d+\] \+ current\[\d+:\d+\]);", r"\1 + 10'd1;", "makes "),
    (r"assign hit = hit_recent \| .*;", "assign hit = hit_recent;", "begins anew, though the entry in way"),
], (r"(assign \\\$\d+  =) ~ closes;(?=\n(?:.*\n)*?.*~ closes;)", r"\1 1'h1;", "counts on in way")),
    ids=["an entry is not freed", "a byte too many", "only the last entry is found"])
def test_a_count_that_does_not_follow_from_the_one_before_is_named(tmp_path, capsys, found, broken, blame):
    text, ports = block_verilog("tracker", SMALL)
    broken, count = re.subn(found, broken, text)
    assert count == 1
    with pytest.raises(CocotbFailure):
        run_testbench(Testbench("tracker", SMALL, 3), tmp_path, design=(broken, ports), explain=explain_failure)
    trace = Trace.load(tmp_path / "trace")
    step, what = miscounts(trace.events[trace.events["kind"] == Kind.UPDATE])[0]
    assert what.startswith(blame)
    wg, wf = int(step["wg"]), int(step["wf"])
    assert explain_tile(trace, wg, wf).verdict[0].startswith(f"Bank {step['unit']} is at fault, not what was sent: ")
    for arguments in (["--wg", str(wg), "--wf", str(wf)], []):
        assert cli.main(["explain", *arguments, str(trace.folder)]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert f"cycle {int(step['cycle']):,}" in told and what in told


def test_a_design_without_those_signals_has_no_trace(tmp_path):
    """The failure is told all the same."""
    text, ports = block_verilog("arbiter", SMALL)
    broken = replaced(replaced(text, "last_communication", "counted"), "assign starved =", "assign starved = ~")
    with pytest.raises(CocotbFailure, match="AssertionError: cycle [^\\n]*\\n[^T]*No trace: "):
        run_testbench(Testbench("arbiter", SMALL, 3), tmp_path, design=(broken, ports), explain=explain_failure)
    assert not Path(tmp_path / "trace").exists()
