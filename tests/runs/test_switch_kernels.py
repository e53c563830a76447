"""A switch that adds and copies at the real machine's sizes: closed forms, and techniques with it."""

import pytest

from t3sim.base.console import output_console
from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.runs.exchange import fused_with
from t3sim.runs.isolated_collectives import run_collective
from t3sim.runs.plan import Plan
from t3sim.runs.program_kernels import ALL_GATHER_BY_SWITCH, ALL_REDUCE_IN_SWITCH
from t3sim.study.report import print_run
from t3sim.study.techniques import run_sublayer
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

N = 4
MACHINE = load_machine()


@pytest.mark.parametrize("size_bytes", [2_000_000, 16_000_001])
@pytest.mark.parametrize(("kind", "share"), [(ALL_REDUCE_IN_SWITCH, 1), (ALL_GATHER_BY_SWITCH, (N - 1) / N)])
def test_kernels_take_the_closed_form(kind, share, size_bytes):
    """A line's time on the fuller of a GPU's two links, its latency, an addition, and the launch; within 3 %."""
    found = run_collective(MACHINE, size_bytes, N, kind)
    addition_ns = MACHINE.switch.hardware().latency_cycles / MACHINE.memory_clock_ghz * (kind == ALL_REDUCE_IN_SWITCH)
    closed_ns = (size_bytes * share / MACHINE.link.bandwidth_gb_per_s + MACHINE.link.latency_ns
                 + addition_ns + MACHINE.collective.kernel_launch_ns)
    assert found.ns == pytest.approx(closed_ns, rel=0.03) and found.ns > closed_ns
    read, written = found.dram["rs" if kind == ALL_REDUCE_IN_SWITCH else "ag"]
    assert read == pytest.approx(size_bytes if kind == ALL_REDUCE_IN_SWITCH else size_bytes / N, abs=64)
    assert written == pytest.approx(size_bytes * share, abs=64 * N)


def test_a_machine_without_such_a_switch_is_named():
    with pytest.raises(BadInput, match=r"machine 't3-table1' has no \[switch\]"):
        run_collective(MACHINE.model_copy(update={"switch": None}),
                       1 << 20, N, ALL_REDUCE_IN_SWITCH)


@pytest.mark.parametrize("operator", ["gemm-rs", "gemm-ar"])
def test_t3_around_a_switch_that_adds(operator, capsys):
    """The owner's memory adds one line instead of N - 1, and a sum is read once and leaves once for all."""
    exchange, workload = fused_with(operator, "switch", "in-switch"), gemm_workload("2048x1024x512", N)
    machine, chunk = exchange.hardware(MACHINE, workload), workload.output_bytes // N
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "in-switch", "t3"))
    sequential, switched, fused = found.techniques.values()
    gathers = operator == "gemm-ar"
    of = "ar" if gathers else "rs"
    assert fused.streams_bytes["gemm_write"] == chunk
    assert fused.streams_bytes[f"{of}_write"] == chunk * (1 + gathers * (N - 1))
    assert fused.streams_bytes[f"{of}_read"] == chunk * gathers
    assert fused.hardware.rtl_counters["packets"] == (chunk * (N - 1) + chunk * gathers) // 64
    assert 0 < fused.hardware.switch_sum_bytes <= machine.switch.hardware().merge_bytes
    assert switched.phases_ns["all-reduce"] < 0.62 * (sequential.rs_ns + sequential.ag_ns)
    assert switched.streams_bytes["ar_read"] == switched.streams_bytes["ar_write"] == workload.output_bytes
    assert fused.total_ns < sequential.total_ns
    for one in (sequential, switched, fused):
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - sequential.gemm_ns, abs=1e-6), one.name
    if not gathers:
        assert fused.ag_ns == pytest.approx((N - 1) * chunk / MACHINE.link.bandwidth_gb_per_s + 4000, rel=0.03)
    print_run(found, output_console())
    assert "bytes of sums at a port of the switch, at most" in capsys.readouterr().out
