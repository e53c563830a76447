"""The dramsim3 scheduler gives DRAMsim3's results: every command of the micro cases, every count of the workloads."""

import pytest

from t3sim.base.errors import BadInput
from t3sim.gpu.hbm.address import line_of
from t3sim.machine import load_machine
from t3sim.testbenches.hbm_replay import recorded
from t3sim.testbenches.hbm_replay.configurations import RECORDED, configured
from t3sim.testbenches.hbm_replay.replay import replay, replay_trace
from t3sim.testbenches.hbm_replay.trace import Trace
from t3sim.testbenches.hbm_replay.validation import (
    GROUPS,
    LOAD,
    SCHEDULING,
    TIMING,
    MicroRow,
    Outcome,
    ValidationRow,
    recorded_memory,
    validate,
    validate_micro,
    verdicts,
)

pytestmark = pytest.mark.builds_loops

REFERENCE = load_machine("hbm2-reference").dram
FIELDS = ("cycles", "activates", "precharges", "refreshes", "reads", "writes")

#: The recorded run was cut short: 20 writes are missing (testbenches/hbm_replay/recorded).
CUT_SHORT = {"conflict_wr"}


def test_micro_cases():
    """The command cycles of both simulators, wherever they agree; DRAMsim3's everywhere."""
    rows = validate_micro(REFERENCE)
    assert len(rows) == len(recorded.micro_cases()) == 55
    assert [row.case for row in rows if not row.equal] == []
    agreed = [row for row in rows if row.agreed]
    assert len(agreed) == 25
    assert [row.case for row in agreed if not row.fr_fcfs_equal] == []


@pytest.mark.parametrize("case", recorded.micro_cases(), ids=lambda c: f"{c['name']}-{c['config']}")
def test_micro_acceptance_and_data(case):
    theirs, dram = case["DRAMsim3"], configured(REFERENCE, case["config"])
    trace = Trace.of([line_of(dram, *place) for _, *place, _ in case["requests"]],
                     [r[0] == "W" for r in case["requests"]], [r[5] for r in case["requests"]])
    result = replay_trace(trace, dram)
    assert result.accepted.tolist() == theirs["accept"]
    assert [None if cycle < 0 else cycle for cycle in result.done.tolist()] == theirs["data_return"]


@pytest.mark.parametrize("case", recorded.results(), ids=lambda c: f"{c['workload']}-{c['config']}")
def test_workload(case):
    ours = replay(recorded.trace(case["workload"], case["config"]), REFERENCE, case["config"])
    expected = case["DRAMsim3"]
    if case["workload"] in CUT_SHORT:
        assert ours.writes == ours.requests
        assert abs(ours.refreshes - expected["refreshes"]) <= 1
        assert ours.cycles == pytest.approx(expected["cycles"], rel=2e-3)
        assert ours.activates == pytest.approx(expected["activates"], rel=2e-3)
        return
    assert {name: getattr(ours, name) for name in FIELDS} == {name: expected[name] for name in FIELDS}
    if expected["read_latency_cycles"] is not None:
        assert ours.mean_read_latency_cycles == pytest.approx(expected["read_latency_cycles"], abs=6e-4)


HBM3 = load_machine("hbm3-reference").dram


def test_micro_cases_of_hbm3():
    rows = validate_micro(HBM3)
    assert len(rows) == 108 and [row.case for row in rows if not row.equal] == []


@pytest.mark.parametrize("case", recorded.results("hbm3"), ids=lambda c: f"{c['workload']}-{c['config']}")
def test_workload_of_hbm3(case):
    """Of the traces that were held out, too: every count is DRAMsim3's."""
    ours, expected = replay(recorded.trace(case["workload"], case["config"]), HBM3, case["config"]), case["DRAMsim3"]
    assert {name: getattr(ours, name) for name in FIELDS} == {name: expected[name] for name in FIELDS}
    if expected["read_latency_cycles"] is not None:
        assert ours.mean_read_latency_cycles == pytest.approx(expected["read_latency_cycles"], abs=6e-4)


def test_fr_fcfs_and_ramulator_on_hbm3():
    """Where timing or pace decides and both close all banks for a refresh."""
    rows = [row for row in validate(HBM3, ["base", "bgil"]) if row.ramulator2 and row.group != SCHEDULING]
    assert len(rows) == 24
    assert max(abs(row.fr_fcfs.difference(row.ramulator2["FRFCFS-q32"])) for row in rows) < 0.025


def test_traces_are_the_recorded_traces():
    for name in ("rand_rw50", "load_faw25", "gemm_2to1_paced", "dual_2to1_chunk32", "stride_2048"):
        assert recorded.sha256(name) == recorded.hashes()[name]
    assert recorded.sha256("conflict_rd", "ccdl4_bgil") == recorded.hashes()["conflict_rd@ro_ba_co_bg"]
    assert recorded.sha256("pingpong_rd") == recorded.hashes()["pingpong_rd@ro_bg_ba_co"]


def test_covers_every_configuration():
    assert {case["config"] for case in recorded.results()} == set(RECORDED["hbm2"])


def test_validation_of_one_workload_of_each_group():
    told = []
    rows = validate(REFERENCE, ["base"], ["stride_32768", "load_faw75", "pingpong_rd"], told.append)
    assert [row.group for row in rows] == [TIMING, LOAD, SCHEDULING] or {row.group for row in rows} == set(GROUPS)
    assert told[0] == 0 and told[-1] == 1 and told == sorted(told)
    by_name = {row.workload: row for row in rows}
    assert all(row.ours.difference(row.dramsim3) == 0 for row in rows)
    assert not by_name["load_faw75"].saturated and by_name["stride_32768"].saturated
    # Two rows in alternation: an FR-FCFS that serves hits first needs 42 % less time, as Ramulator's does.
    pingpong = by_name["pingpong_rd"]
    assert pingpong.fr_fcfs.difference(pingpong.ramulator2["FRFCFS-q32"]) == pytest.approx(0, abs=0.002)
    assert pingpong.nearest == "R2 FRFCFS-q32" and pingpong.to_json()["fr_fcfs_difference"] < -0.4
    assert all(one.met for one in verdicts(rows, []))


def row(workload: str, kind: str, group: str, ours: Outcome, saturated: bool = False) -> ValidationRow:
    theirs = Outcome(100_000, 100.0, 1000, 25)
    return ValidationRow(workload, "base", False, kind, group, 1000, saturated, ours, ours, theirs,
                         {"FRFCFS-q32": theirs})


@pytest.mark.parametrize(("kind", "ours", "target"), [
    ("stride", Outcome(102_001, 100.0, 1000, 25, 1e8), "finishing time, timing-bound and paced, base"),
    ("load", Outcome(100_000, 110.1, 1000, 25, 1e8), "read latency of unsaturated loads"),
    ("rand", Outcome(100_000, 100.0, 969, 25, 1e8), "activates, random and conflict"),
    ("stride", Outcome(100_000, 100.0, 1000, 27, 1e8), "refreshes, all workloads"),
    ("seq", Outcome(100_000, 100.0, 1000, 25, 6.6e6), "speed, streaming, scheduler dramsim3: 10x DRAMsim3's"),
    ("rand", Outcome(100_000, 100.0, 1000, 25, 1.0e6), "speed, random, scheduler fr_fcfs: 10x DRAMsim3's"),
])
def test_a_missed_target_is_missed(kind, ours, target):
    """Just outside the limit, and only there."""
    one = row("w", kind, LOAD if kind == "load" else TIMING, ours)
    missed = {verdict.target for verdict in verdicts([one]) if not verdict.met}
    assert target in missed
    assert missed <= {target, target.replace("fr_fcfs", "dramsim3"), target.replace("dramsim3", "fr_fcfs")}


def test_limits_hold_where_they_are_asked_for():
    late = Outcome(150_000, 300.0, 2000, 25, 1e8)
    assert all(one.met for one in verdicts([row("w", "gemm", SCHEDULING, late)]))
    saturated = verdicts([row("w", "load", LOAD, Outcome(100_000, 300.0, 1000, 25, 1e8), saturated=True)])
    assert all(one.met for one in saturated)
    assert not verdicts([], [MicroRow("a", "base", 3, False, False, False)])[0].met


def test_another_memory_is_refused():
    with pytest.raises(BadInput, match="rows_per_bank = 16384: the recorded results are for rows_per_bank = 32768"):
        recorded_memory(REFERENCE.model_copy(update={"rows_per_bank": 16384}))
    with pytest.raises(BadInput, match="'seq' is no recorded"):
        validate(REFERENCE, ["base"], ["seq"])
