"""Sums that are the same whoever comes first, and sums that are not: data mode, the same numbers, other GPUs late."""

import io

import numpy as np
import pytest
from rich.console import Console

from t3sim import run_scenario
from t3sim.collectives import direct
from t3sim.collectives.schedule import FIXED_TERMS, Limits, most_terms
from t3sim.machine.topologies import fully_connected
from t3sim.runs.data_mode import data_run, run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.failure import SimulationError
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.sums import Sums
from t3sim.study.report import print_run
from t3sim.study.scenario.scenario import Scenario
from t3sim.testbenches.soak import machine
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

DEVICES = 4
LATE = [(0, 0, 0, 0), (0, 9000, 0, 3000), (6000, 0, 12000, 0)]
DIRECT = dict(limits=Limits.EXACT, collective=direct.reduce_scatter, topology=fully_connected)


def run(options: dict, start_cycles: tuple[int, ...] = (), sums: Sums = Sums(), dtype: str = "fp16"):
    workload, described = gemm_workload("256x192x40", DEVICES, dtype), machine("peers_small")
    options = dict(options, seed=5, start_cycles=start_cycles)
    return run_data_mode(Plan(sums.seen_from_memory(described, workload), sums.of(workload), **options), Policy("mca"))


def reduced(options: dict, start_cycles: tuple[int, ...], sums: Sums = Sums(), dtype: str = "fp16") -> np.ndarray:
    return run(options, start_cycles, sums, dtype).reduced


@pytest.mark.parametrize("staged", [False, True])
def test_a_ring_s_sums_do_not_depend_on_who_is_late(staged):
    """Two terms per sum: equal bits with other GPUs late and other jitter."""
    first, *others = (reduced(dict(stage_first_chunk=staged, link_jitter_cycles=jitter), late)
                      for late, jitter in zip(LATE, (0, 50, 200)))
    assert all((first == other).all() for other in others)


def test_a_direct_exchange_s_last_bits_depend_on_who_is_late():
    """More than two terms per sum: same numbers, other last bits."""
    first, second = (reduced(DIRECT, late) for late in LATE[:2])
    assert 0 < (first != second).sum() < first.size


def of(operator: str, algorithm: str, topology: str) -> dict:
    found = fused_with(operator, topology, algorithm)
    return dict(limits=Limits.EXACT, collective=found.program, topology=found.links)


ANY_ORDER = [("gemm-rs", "direct", "full"), ("gemm-rs", "hierarchical", "torus:2x2"),
             ("gemm-rs", "hierarchical", "nodes:2x2"), ("gemm-rs", "in-switch", "switch"),
             ("gemm-ar", "direct", "full"), ("gemm-ar", "in-switch", "switch"), ("gemm-ar", "ring", "ring")]


@pytest.mark.parametrize(("operator", "algorithm", "topology"), ANY_ORDER)
def test_a_fixed_point_s_sums_do_not_depend_on_who_is_late(operator, algorithm, topology):
    """Links jitter, besides, so that parts come in another order from line to line."""
    options = of(operator, algorithm, topology)
    first, *others = (reduced(dict(options, link_jitter_cycles=jitter), late, Sums("fixed"), "bf16")
                      for late, jitter in zip(LATE, (0, 50, 200)))
    assert all((first == other).all() for other in others) and len(np.unique(first)) > 1000


@pytest.mark.parametrize("sums", [Sums("fp32"), Sums("fp32", "fp32")], ids=lambda sums: sums.name)
@pytest.mark.parametrize(("operator", "algorithm", "topology"), ANY_ORDER[2:])
def test_wider_sums_go_with_every_exchange(operator, algorithm, topology, sums):
    """Every bit of every GPU is numpy's; fp32 sums are nearer to float64 than those of bf16."""
    options = of(operator, algorithm, topology)
    plain, wide = (run(options, LATE[1], one, "bf16").error for one in (Sums(), sums))
    assert wide < 0.9 * plain < 0.004


@pytest.mark.parametrize("options", [dict(), DIRECT], ids=["ring", "direct"])
def test_wider_sums_are_nearer_to_float64(options):
    """Every bit is compared besides. A product is not rounded where memory and links have fp32."""
    plain, array, wire, fixed = (run(options, (), sums, "bf16").error for sums in (
        Sums(), Sums("fp32"), Sums("fp32", "fp32"), Sums("fixed")))
    assert wire < 0.8 * array < 0.8 * plain < 0.004 and fixed == pytest.approx(array, rel=1e-3)


def test_a_run_with_numbers_says_how_far_its_sums_are_from_float64():
    """As `t3 run --values` and `run_scenario` have it, by the technique with Track & Trigger alone."""
    asked = {"layer": {"gemm": "256x192x40", "devices": DEVICES, "dtype": "bf16", "values": True},
             "machine": machine("ring_small"), "techniques": ("sequential", "t3"), "seed": 5}
    _, result = results = [run_scenario(Scenario.model_validate(asked | {"exchange": exchange}))
                           for exchange in ({}, {"accumulate": "fp32"})]
    plain, wide = (one.numbers for one in results)
    assert plain.technique == wide.technique == "t3" and plain.compared == wide.compared == DEVICES * 256 * 192
    assert 0.001 < wide.error < 0.9 * plain.error < 0.004
    shown = io.StringIO()
    print_run(result, Console(file=shown, width=120))
    words = " ".join(shown.getvalue().split())
    assert "t3 on 4 GPUs with numbers: 196,608 elements equal numpy's bit for bit" in words
    assert f"; the sums differ from float64 by {wide.error:.3%}" in words
    assert result.to_json()["numbers"] == {"technique": "t3", "compared": 196_608, "error": wide.error}


def test_a_sum_that_leaves_unrounded_is_noticed():
    """The run fails."""
    described, workload, sums = machine("ring_small"), gemm_workload("256x192x40", 2, "bf16"), Sums("fp32")
    run, ledger = data_run(Plan(sums.seen_from_memory(described, workload), sums.of(workload), seed=5,
                                stage_first_chunk=True), Policy("mca"))
    ledger.data = ledger.data._replace(
        draining_control=np.full_like(ledger.data.draining_control, -1))
    try:
        with pytest.raises(SimulationError, match="numpy's reduction in the schedule's order gives"):
            run.run()
    finally:
        run.close()


@pytest.mark.parametrize(("algorithm", "topology", "ranks", "terms"), [
    ("ring", "ring", 8, 2), ("both-rings", "ring", 5, 2), ("direct", "full", 8, 8), ("direct", "switch", 2, 2),
    ("hierarchical", "torus:2x4", 8, 3), ("hierarchical", "nodes:2x4", 8, 5), ("in-switch", "switch", 8, 7),
    ("in-switch", "switch", 3, 2),
])
@pytest.mark.parametrize("operator", ["gemm-rs", "gemm-ar"])
def test_terms_of_the_largest_sum(operator, algorithm, topology, ranks, terms):
    assert most_terms(fused_with(operator, topology, algorithm).program(ranks)) == terms


def test_what_only_moves_is_no_sum():
    assert most_terms(fused_with("gemm-a2a", "full", "direct").program(4)) < FIXED_TERMS


@pytest.mark.parametrize(("algorithm", "topology", "terms"), [("ring", "ring", 6), ("direct", "full", 12)])
def test_parts_of_k_are_terms(algorithm, topology, terms):
    """Three parts: a ring's second GPU adds its own to those that the first one stores there."""
    assert most_terms(fused_with("gemm-rs", topology, algorithm).program(4), parts=3) == terms
