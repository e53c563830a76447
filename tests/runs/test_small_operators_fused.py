"""GEMV with an all-reduce and pooling with an all-to-all on Track & Trigger: every bit, every byte, one GPU for all."""

from dataclasses import replace
from pathlib import Path

import pytest

from t3sim.base.console import output_console
from t3sim.machine import load_machine
from t3sim.mechanisms.flux.storing import Owners
from t3sim.mechanisms.fused_wg.kernels import SENDING_REGISTERS, sending_kernel
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.runs import kernels
from t3sim.runs.data_mode import run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.kernels import part_of
from t3sim.runs.operators import make_operator, make_tiling, resident
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.skew import Skew
from t3sim.study.report import print_run
from t3sim.study.techniques import run_sublayer
from t3sim.workload.workloads import embedding_workload, gemm_workload, gemv_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

N = 4
SMALL = Path(__file__).parents[1] / "data" / "machines" / "peers_small.toml"
WORKLOADS = {"gemv-ar": gemv_workload("4096x1x1024", N), "embedding-a2a": embedding_workload("64x16", N)}


@pytest.mark.parametrize("topology", ["switch", "full"])
@pytest.mark.parametrize("operator, workload", [
    ("gemv-ar", gemv_workload("512x1x64", N)), ("gemv-ar", gemv_workload("395x1x40", N)),
    ("embedding-a2a", embedding_workload("16x6", N))], ids=str)
def test_every_bit_on_every_gpu(operator, workload, topology):
    """Each GPU has its own RTL; sums are added by the near-memory ALU's, in the order in which parts came."""
    exchange = fused_with(operator, topology, "direct")
    machine = exchange.hardware(load_machine(SMALL), workload)
    found = run_data_mode(Plan(machine, workload, seed=3, exchange=exchange).fused(), Policy("mca"))
    assert found.devices == N and found.elements == workload.m * workload.n
    tiles = {"gemv-ar": N * -(-workload.m // 32),  # at its owner, and each sum's copies
             "embedding-a2a": workload.m * (N - 1) // N}[operator]
    assert found.triggers == tiles


@pytest.mark.parametrize("operator", WORKLOADS)
def test_what_is_sent_is_neither_staged_nor_read_again(operator):
    workload, exchange = WORKLOADS[operator], fused_with(operator, "switch", "direct")
    machine = exchange.hardware(load_machine(), workload)
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "t3", "ideal-overlap"))
    sequential, fused, _ = found.techniques.values()
    assert found.exchange.operator == operator and found.to_json()["operator"] == operator
    counters = fused.hardware.rtl_counters
    if operator == "embedding-a2a":
        own = workload.output_bytes // N  # what one GPU makes
        assert fused.streams_bytes["gemm_write"] == own // N
        assert fused.streams_bytes["a2a_write"] == own * (N - 1) // N == sequential.streams_bytes["a2a_write"]
        assert fused.streams_bytes["a2a_read"] == 0 == counters["commands"]
        assert sequential.streams_bytes["a2a_read"] == own * (N - 1) // N
        assert counters["triggers"] == workload.m // N * (N - 1) // N
    else:
        share = workload.output_bytes // N
        assert fused.streams_bytes["gemm_write"] == share
        assert fused.streams_bytes["ar_read"] == share, "each sum once, for all others"
        assert fused.streams_bytes["ar_write"] == 2 * (N - 1) * share
        assert counters["commands"] == workload.m // 32 // N
    assert fused.total_ns < sequential.total_ns
    assert sum(fused.loss_ns.values()) == pytest.approx(fused.total_ns - sequential.gemm_ns, abs=1e-6)


@pytest.mark.parametrize("operator, most", [("gemv-ar", 1.05), ("embedding-a2a", 1.12)])
def test_one_gpu_stands_for_all(operator, most):
    """Where dispatch windows hold workgroups, GPUs wait for each other, and one that waits for itself is faster."""
    workload, exchange = WORKLOADS[operator], fused_with(operator, "switch", "direct")
    machine = exchange.hardware(load_machine(), workload)
    fusion = FusedGemm("mca", exchange=exchange)
    one, every = (kernels.simulate(replace(fusion, skew=skew), machine, workload) for skew in (None, Skew()))
    assert 0.97 * one.cycles < every.cycles < most * one.cycles and len(every.gpus) == N
    of = exchange.collective
    assert every.dram[of] == one.dram[of] and every.dram["gemm"].write == one.dram["gemm"].write


@pytest.mark.parametrize("operator, name", [("gemv-ar", "GEMV"), ("embedding-a2a", "pooling")])
def test_a_report_calls_what_makes_the_output_by_its_name(operator, name, capsys):
    """What is printed and drawn; keys of the JSON are the same for all."""
    workload, exchange = WORKLOADS[operator], fused_with(operator, "switch", "direct")
    found = run_sublayer(Plan(exchange.hardware(load_machine(), workload), workload, exchange=exchange),
                         ("sequential", "t3"))
    print_run(found, output_console())
    text = capsys.readouterr().out
    assert "GEMM" not in text and f"read stall by {name} reads" in text and f"queue of the {name} alone" in text
    assert "GEMM" not in found.to_json()["bounds"]["t3"]["words"]
    assert name in [one.get_text() for one in found.plot().axes[0].get_legend().get_texts()]
    assert found.techniques["t3"].gemm_ns > 0


@pytest.mark.parametrize("operator, workload", [
    ("embedding-a2a", embedding_workload("64x16", N)), ("gemm-a2a", gemm_workload("2048x1024x512", N))])
def test_a_persistent_kernel_that_sends_moves_each_byte_once(operator, workload):
    """What is for others is stored there alone; it hides some of the all-to-all, and all its time has causes."""
    exchange = fused_with(operator, "switch", "direct")
    machine = exchange.hardware(load_machine(), workload)
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "fused-wg", "ideal-overlap"))
    sequential, sent, ideal = found.techniques.values()
    own = workload.output_bytes // N
    assert sent.streams_bytes["gemm_write"] == own // N and sent.streams_bytes["a2a_read"] == 0
    assert sent.streams_bytes["a2a_write"] == own * (N - 1) // N == sequential.streams_bytes["a2a_write"]
    link_ns = own * (N - 1) / N / machine.link.bandwidth_gb_per_s
    assert max(link_ns, sequential.gemm_ns) < sent.total_ns < sequential.total_ns and not sent.rtl_in_loop
    assert sent.total_ns > 0.99 * ideal.total_ns
    assert sum(sent.loss_ns.values()) == pytest.approx(sent.total_ns - sequential.gemm_ns, abs=1e-6)


def test_code_that_sends_takes_registers():
    """Embeddings lose the workgroups that 8 registers more have no room for; GEMMs' tiles say nothing of registers."""
    workload, machine = part_of(WORKLOADS["embedding-a2a"]), load_machine()
    tiling = make_tiling(machine, workload)
    operator = make_operator(machine, workload, tiling, 0)
    owners = Owners(tiling.n, N, tiling.pitch_bytes, 0, 1 << 30)
    table = sending_kernel(operator.work(0), owners, 0, 100.0)
    assert table.registers == operator.registers + SENDING_REGISTERS and table.persistent
    assert resident(machine, table.resources) <= resident(machine, operator.resources)
