"""Experts' outputs with real numbers: whatever the routing and the timing, each token's sum is numpy's, bit for bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t3sim.collectives.schedule.placement import NOWHERE
from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.runs.data_mode import data_run, run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.failure import SimulationError
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.skew import Skew
from t3sim.runs.sums import Sums
from t3sim.workload.workloads import ExpertsWorkload, experts_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

MACHINE = load_machine(str(Path(__file__).parents[1] / "data" / "machines" / "trace_small.toml"))


def setting(workload: ExpertsWorkload, topology: str = "switch", sums: Sums = Sums(), skew: str = "", **chaos):
    exchange = fused_with("moe-combine", topology, sums=sums)
    kernel = FusedGemm("mca", exchange=exchange, skew=Skew.of(skew, workload.tp))
    plan = replace(kernel.prepare(Plan(exchange.hardware(MACHINE, workload), workload, seed=1)), hold_back=0.1,
                   link_jitter_cycles=200, **chaos)
    return plan, Policy.of("mca", plan.machine)


@pytest.mark.parametrize("shape, experts, zipf, topology, dtype, skew", [
    ("256x256x64", "8x2", 0.6, "switch", "bf16", ""),  # a slice
    ("512x256x64", "16x4", 1.2, "full", "fp16", ""),  # of four terms, in the order in which they come; sliced
    ("64x128x64", "64x1", 4.0, "switch", "bf16", ""),  # a GPU without tokens; nothing is added
    ("96x256x40", "4x3", 0.0, "switch", "fp32", ""),
    ("512x256x64", "16x4", 1.2, "torus:2x2", "fp16", ""),  # some parts pass through another GPU
    ("256x256x64", "8x2", 0.6, "nodes:2x2", "bf16", ""),  # and through a GPU and its network card
    ("256x256x64", "8x2", 0.6, "full", "bf16", "late:3:2000,clock:1:0.5,dead:2:4,link:0-1:2"),
])
def test_every_bit_is_numpys(shape, experts, zipf, topology, dtype, skew):
    workload = replace(experts_workload(shape, 4, experts, zipf, 3), dtype=dtype)
    result = run_data_mode(*setting(workload, topology, skew=skew))
    assert result.elements == workload.m * workload.n
    assert result.triggers == workload.m * workload.n // (MACHINE.gpu.tile_m * 8) * (
        8 // (make_columns(workload) // MACHINE.gpu.wavefronts_per_workgroup))
    per_column = 32 // workload.format.bytes
    assert result.columns_added == (result.elements * workload.per_token // per_column if workload.per_token > 1 else 0)
    assert result.error < {"bf16": 0.01, "fp16": 0.002, "fp32": 1e-6}[dtype]


def make_columns(workload: ExpertsWorkload) -> int:
    from t3sim.runs.operators import make_tiling
    return make_tiling(MACHINE, workload).tile_n


@pytest.mark.slow
def test_sums_may_be_wider_than_what_links_carry():
    workload = replace(experts_workload("256x256x64", 4, "8x4", 0.6, 3), dtype="bf16")
    narrow, wide = (run_data_mode(*setting(workload, sums=sums)) for sums in (Sums(), Sums("fp32")))
    assert wide.error < narrow.error


def test_a_column_at_the_wrong_token_is_seen(monkeypatch):
    workload = experts_workload("64x128x64", 4, "8x2", 0.0, 3)
    from t3sim.runs import address_space, build

    def swapped(work, space):
        table = address_space.scattered_work(work, space)
        if space.device == 1:
            one, other = np.flatnonzero(table.stores["wavefront"] == table.stores["wavefront"][0])[:2]
            table.stores["base"][[one, other]] = table.stores["base"][[other, one]]
        return table
    monkeypatch.setattr(build, "scattered_work", swapped)
    with pytest.raises(SimulationError, match="row|column"):
        run_data_mode(*setting(workload))


def test_products_are_of_the_tokens_that_a_gpu_has():
    workload = experts_workload("64x128x64", 4, "8x2", 1.0, 3)
    run, ledger = data_run(*setting(workload))
    try:
        product = ledger.products.product.reshape(4, 2, workload.m, -1)
        for device, (columns, parts) in enumerate(zip(run.schedule.placement.columns, run.schedule.placement.parts)):
            there = columns != NOWHERE
            made = (product[device] != workload.format.negative_zero).any(axis=2)
            wanted = np.zeros_like(made)
            wanted[parts[there], columns[there]] = True
            np.testing.assert_array_equal(made, wanted)
    finally:
        run.close()
