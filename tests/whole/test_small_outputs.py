"""Fewer tiles than GPUs, down to one: some chunks are empty, some GPUs make nothing, and all bits are right."""

from dataclasses import replace

import pytest

from t3sim.base.console import output_console
from t3sim.collectives.schedule import Ids, Limits
from t3sim.machine import load_machine
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import Variation, run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.plan import Plan, Policy
from t3sim.study.report import print_run
from t3sim.study.techniques import run_sublayer
from t3sim.testbenches.exchanges import exchanges
from t3sim.testbenches.soak import machine, pools_of
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

BEFORE = fused_with("ag-gemm")


@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize("exchange", exchanges(), ids=str)
def test_every_collective_of_an_output_of_one_tile_or_two(exchange, tiles, seed):
    """With ids of all tiles or of tracked ones, both ragged, and GPUs that start late."""
    described, devices = machine(pools_of(exchange)[0]), exchange.topology().gpus
    gpu = described.gpu
    workload = gemm_workload(f"{gpu.tile_n * tiles - 3}x{gpu.tile_m - 5}x24", devices)
    if exchange.before:
        workload = gemm_workload(f"{tiles}x{gpu.tile_m}x70", devices)
        described = BEFORE.hardware(described, workload)
    for ids in (Ids.TRACKED,) if exchange.before else Ids:
        base = (Plan(described, workload, exchange=BEFORE).fused() if exchange.before else
                Plan(described, workload, ids=ids, limits=Limits.EXACT))
        plan = replace(base, seed=seed, hold_back=0.1, link_jitter_cycles=100, collective=exchange.program,
                       topology=exchange.topology, start_cycles=late_starts(devices, 300, seed))
        schedule = plan.schedule
        made = sum(len(schedule.chunk(0, chunk)) > 0 for chunk in range(schedule.program.chunks))
        assert made <= tiles if exchange.before else made == min(tiles, schedule.program.chunks)
        result = run_data_mode(plan, Policy("mca"), Variation(overtaking_reads=True))
        assert result.elements == workload.m * (workload.k if exchange.before else workload.n)


@pytest.mark.parametrize("operator", ["gemm-rs", "gemm-ar", "gemm-ag", "gemm-a2a", "ag-gemm"])
@pytest.mark.parametrize("shape", ["100x60x256", "2x130x128"])
def test_a_layer_of_a_tile_or_two(operator, shape, capsys):
    """One GPU cannot stand for eight of which some have nothing: every one is simulated, and that is said."""
    exchange = fused_with(operator, *(("switch", "direct") if operator == "gemm-a2a" else ()))
    workload = gemm_workload(shape, 8)
    described = exchange.hardware(load_machine(), workload)
    found = run_sublayer(Plan(described, workload, exchange=exchange), ("sequential", "t3", "t3-mca+"))
    for one in found.techniques.values():
        assert sum(one.loss_ns.values()) == pytest.approx(one.total_ns - found.baseline.gemm_ns, abs=1e-6)
    print_run(found, output_console())
    printed, every = " ".join(capsys.readouterr().out.split()), found.techniques["t3"].gpus
    said = "every GPU, as chunks are empty" in printed
    if operator == "ag-gemm" and shape.startswith("100"):
        assert not said and not every, "tokens for every GPU"
    else:
        assert said and len(every) == 8


def test_what_one_gpu_has_alone_is_gathered_at_a_link_s_speed():
    """Of one tile on eight GPUs each step of the all-gather sends the whole tile, not an eighth of it."""
    workload, described = gemm_workload("256x128x64", 8), load_machine()
    found = run_sublayer(Plan(described, workload), ("sequential", "t3"))
    tile_ns = workload.output_bytes / described.link.bandwidth_gb_per_s
    later = found.techniques["t3"].ag_ns - found.baseline.ag_ns
    assert later == pytest.approx(7 * tile_ns * 7 / 8, rel=0.2)


def test_ids_outside_the_first_window_still_need_causality():
    """A small output without it is let in because no request waits; a larger window than ids is what that needs."""
    described = machine("peers_small")
    exchange = next(one for one in exchanges() if str(one) == "ar both-rings over ring:3")
    schedule = Plan(described, gemm_workload("33x64x24", 3), limits=Limits.EXACT, collective=exchange.program,
                    topology=exchange.topology).schedule
    ids = max(schedule.rows(device).ids for device in range(3))
    assert not schedule.is_causal() and schedule.is_live(ids) and not schedule.is_live(ids - 1)
