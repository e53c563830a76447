"""Tokens that come to their experts, with real numbers: each is where its expert's GEMM reads it, and not read before.

All rows share one geometry of RTL, that of an all-gather before a GEMM.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import Variation, data_run, run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.failure import SimulationError
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.skew import Skew
from t3sim.workload.workloads import ExpertsWorkload, experts_workload
from tests.support.unheld import check_unheld_reads

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

MACHINE = load_machine(str(Path(__file__).parents[1] / "data" / "machines" / "trace_small.toml"))
MACHINE = MACHINE.changed(gpu={"matrix_efficiency_8_bits": 0.8})


def setting(workload: ExpertsWorkload, topology: str = "switch", policy: str = "mca", skew: str = "", **chaos):
    exchange = fused_with("moe-dispatch", topology)
    kernel = FusedGemm(policy, exchange=exchange, skew=Skew.of(skew, workload.tp))
    plan = replace(kernel.prepare(Plan(exchange.hardware(MACHINE, workload), workload, seed=1)), **chaos)
    assert plan.machine.dma.ready_groups == MACHINE.dma.ready_groups, "no RTL of its own"
    return plan, Policy.of(policy, plan.machine)


@pytest.mark.parametrize("shape, gpus, experts, zipf, topology, dtype, policy", [
    ("192x128x128", 4, "8x2", 0.6, "switch", "bf16", "mca"),
    ("128x200x128", 4, "8x1", 1.2, "full", "fp16", "round_robin"),  # rows that are not whole tiles
    ("64x128x128", 4, "64x1", 4.0, "switch", "bf16", "mca"),  # a GPU without tokens
    ("96x128x2100", 2, "4x3", 0.3, "switch", "fp32", "mca"),  # features in four tiles, the last of which is ragged
    ("192x128x200", 4, "8x2", 0.6, "switch", "e4m3", "mca"),  # 200 bytes and two scales
    ("96x128x8000", 2, "4x3", 0.3, "switch", "e4m3", "round_robin"),  # in four tiles, scales in the last one
    ("192x128x128", 4, "8x2", 0.6, "torus:2x2", "bf16", "mca"),  # some tokens pass through another GPU
    ("192x128x200", 4, "8x2", 0.6, "nodes:2x2", "e4m3", "mca"),  # and through a GPU and its network card
])
def test_every_token_is_at_its_expert(shape, gpus, experts, zipf, topology, dtype, policy, seed):
    """Bit for bit, with GPUs that start late, links that are late at random, and handshakes that are held back."""
    workload = replace(experts_workload(shape, gpus, experts, zipf, 3, first=True), dtype=dtype)
    result = run_data_mode(*setting(workload, topology, policy, hold_back=0.1, link_jitter_cycles=200,
                                    start_cycles=late_starts(gpus, 1000, seed)), Variation(overtaking_reads=True))
    across = int(workload.between.sum() - np.trace(workload.between))
    features = {200: 208, 8000: 8252}.get(workload.k, workload.k) if dtype == "e4m3" else workload.k
    assert result.elements == workload.m * workload.per_token * features and not result.columns_added
    lines = -(-features * workload.format.bytes // 64)  # of a token
    assert result.packets == across * lines, "each token crosses once for each of its experts elsewhere"
    assert result.error == 0 < result.triggers <= 2 * result.packets


def test_every_token_is_at_its_expert_if_gpus_are_not_alike():
    workload = experts_workload("192x128x128", 4, "8x2", 0.6, 3, first=True)
    alike, unlike = (run_data_mode(*setting(workload, "full", skew=skew))
                     for skew in ("", "late:3:2000,clock:1:0.5,dead:2:4,link:0-1:2"))
    assert alike.elements == unlike.elements and alike.packets == unlike.packets
    assert unlike.cycles > alike.cycles + 2000 * MACHINE.memory_clock_ghz / 2


def test_what_waits_for_no_tokens_reads_what_has_not_come():
    workload = experts_workload("192x128x128", 4, "8x2", 0.6, 3, first=True)
    run, _ = data_run(*setting(workload))
    check_unheld_reads(run)


def test_a_group_with_fewer_tokens_than_its_gpu_asks_for_is_waited_for():
    """Each group has its own number of tiles; one more than there are never comes."""
    workload = experts_workload("192x128x128", 4, "8x2", 0.6, 3, first=True)
    run, _ = data_run(*setting(workload))
    try:
        tiles = run.backends[0].ports.port("asks.payload").fields["tiles"]
        asked = run.sim.hardware.asks >> tiles.lsb & (1 << tiles.width) - 1
        assert len(np.unique(asked)) > 2, "uneven groups"
        run.sim.hardware.asks[1, -1] += 1 << tiles.lsb
        with pytest.raises(SimulationError, match="nothing moved for .* groups of inputs have come,"):
            run.run()
    finally:
        run.close()
