"""Collectives by kernels on several links: closed forms, traffic, and T3 beside a baseline that uses the same links."""

import pytest

from t3sim.analytic.closed_forms import closed_form_ns
from t3sim.analytic.costs import kernel_costs
from t3sim.base.errors import BadInput
from t3sim.collectives.algorithms import algorithms
from t3sim.collectives.schedule import ScheduleError
from t3sim.machine import load_machine
from t3sim.machine.topologies import named_topology
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.runs.exchange import fused_with
from t3sim.runs.isolated_collectives import run_collective, run_program
from t3sim.runs.plan import Plan
from t3sim.runs.program_kernels import LevelPlan, Places
from t3sim.runs.skew import Skew
from t3sim.study.techniques import run_sublayer
from t3sim.workload.operators.copy import Copy
from t3sim.workload.operators.kernel_table import Route
from t3sim.workload.workloads import gemm_workload
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_loops

MACHINE = load_machine()


WAYS = [("both-rings", "ring:4"), ("both-rings", "ring:8"), ("hierarchical", "torus:2x4"),
        ("hierarchical", "nodes:2x2"), ("hierarchical", "nodes:2x4")]


@pytest.mark.parametrize(("kind", "algorithm", "topology"), [
    # Not all-rings: over four links at once memory is the limit (tests/study/test_collective_alone.py).
    *(("reduce-scatter", *way) for way in WAYS), *on_one(("all-gather", *way) for way in WAYS)])
def test_kernels_take_the_closed_form(kind, algorithm, topology):
    """Within 3 % of what links, latencies and the last addition take: both ways around, a torus, cards of nodes."""
    on, size = named_topology(topology), 12_000_000
    collective = "rs" if kind == "reduce-scatter" else "ag"
    found = run_program(MACHINE, size, kind, algorithms(collective, on)[algorithm].program(), on)
    expected = closed_form_ns(collective, on, algorithm, kernel_costs(MACHINE), size)
    assert found.ns == pytest.approx(expected, rel=0.03)


def test_a_ring_by_levels_is_the_ring():
    """The kernel that the baseline has for one ring, but for where its arrays lie: the same bytes, the same time."""
    on = named_topology("ring:4")
    for kind in ("reduce-scatter", "reduce-scatter-nmc", "all-gather"):
        program = algorithms("ag" if kind == "all-gather" else "rs", on)["ring"].program()
        found, known = run_program(MACHINE, 4_000_000, kind, program, on), run_collective(MACHINE, 4_000_000, 4, kind)
        assert found.ns == pytest.approx(known.ns, rel=0.02) and found.dram == known.dram


def test_passes_read_what_came():
    """Around both ways, halves side by side: own and received parts, and a last pass for each half."""
    program = algorithms("rs", named_topology("ring:3"))["both-rings"].program()
    at = Places(6400, 0, 1 << 20)
    found = LevelPlan(program, 1, at, in_memory=False, mirrored=False).passes()
    assert [one.concurrent for one in found] == [False, True] * 3
    assert [len(one.sources) for one in found] == [1, 1, 2, 2, 2, 2] and [one.arrivals for one in found[:4]] == [
        200, 200, 400, 400]
    assert {one.peer for one in found[:2]} == {0, 1} and found[-1].destination == at.chunk(3 + 1)
    assert all(one.destination in one.sources for one in found[-2:])


def test_a_sum_that_is_sent_on_is_added_up_once():
    """By the pass that keeps it; those beside it send what that has loaded, and each chunk is sent from its place."""
    program = algorithms("ar", named_topology("switch:4"))["direct"].program()
    at = Places(6400, 0, 1 << 20)
    found = LevelPlan(program, 1, at, in_memory=False, mirrored=False).passes()
    kept, *sent = found[3:]
    assert [one.reuses_loads for one in found] == [False] * 4 + [True] * 3 and kept.route is Route.MEMORY
    assert kept.destination == at.chunk(1) == kept.sources[0] and len(set(kept.sources)) == 4
    assert {(one.sources, one.destination, one.route) for one in sent} == {(kept.sources, at.chunk(1), Route.PEER)}
    work = Copy([found], 6400, 512, 0.0, 0.0).work(0)
    assert work.steps["loads"][work.groups["phase"] == 1].tolist() == [4] and work.bytes_stored() == 7 * 6400


def test_chunks_for_pairs_lie_side_by_side():
    """A GPU has 2N - 1 of the chunks of an all-to-all, its own and those for it, not all N * N."""
    program = algorithms("a2a", named_topology("switch:4"))["direct"].program()
    assert [len(chunks) for chunks in program.rank_chunks] == [7] * 4
    assert program.rank_chunks[1] == (1, 4, 5, 6, 7, 9, 13)


@pytest.mark.slow  # hardware of its own
def test_t3_both_ways_around_beside_a_baseline_that_goes_both_ways():
    exchange, workload = fused_with("gemm-rs", "ring", "both-rings"), gemm_workload("2048x2048x512", 4)
    machine, chunk = exchange.hardware(MACHINE, workload), workload.output_bytes // 4
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "t3"))
    sequential, fused = found.techniques.values()
    one_way = run_collective(MACHINE, workload.output_bytes, 4, "reduce-scatter").ns
    assert 0.5 < sequential.rs_ns / one_way < 0.6
    assert fused.dram["rs_read"] == 2 * chunk and fused.dram["rs_write"] == 3 * chunk
    assert fused.total_ns < sequential.total_ns and fused.ag_ns == sequential.ag_ns


@pytest.mark.slow  # hardware of its own
@pytest.mark.parametrize("topology", ["nodes:2x2", "torus:2x2"])
def test_t3_along_levels(topology):
    """Every GPU with its own RTL; each element has as many updates as parts come for it."""
    exchange, workload = fused_with("gemm-rs", topology, "hierarchical"), gemm_workload("2048x1024x512", 4)
    machine, chunk = exchange.hardware(MACHINE, workload), workload.output_bytes // 4
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "t3"))
    sequential, fused = found.techniques.values()
    assert len(fused.gpus) == 4 and fused.dram["rs_read"] == chunk and fused.dram["rs_write"] == 3 * chunk
    assert fused.dram["gemm_write"] == 2 * chunk and fused.total_ns < sequential.total_ns


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["nodes:2x2", "torus:2x2"])
def test_an_all_to_all_passes_through_others(topology):
    """By Track & Trigger and by kernels: each GPU sends three of its four parts, of which none is read."""
    exchange, workload = fused_with("gemm-a2a", topology), gemm_workload("2048x1024x512", 4)
    machine, part = exchange.hardware(MACHINE, workload), workload.output_bytes // 16
    assert exchange.algorithm == "direct"
    found = run_sublayer(Plan(machine, workload, exchange=exchange), ("sequential", "t3"))
    sequential, fused = found.techniques.values()
    alone, with_it = sequential.streams_bytes, fused.streams_bytes
    assert alone["a2a_read"] == alone["a2a_write"] == 3 * part
    assert len(fused.gpus) == 4 and with_it["a2a_write"] == 3 * part and with_it.get("a2a_read", 0) == 0
    assert fused.total_ns < sequential.total_ns
    assert exchange.link_bytes(workload) == 2 * part  # of a pair, and one that passes through


def test_an_all_to_all_on_ways_in_a_circle_is_refused():
    for topology, gpus in (("torus:2x4", 8), ("torus:2x5", 10)):
        exchange, workload = fused_with("gemm-a2a", topology), gemm_workload(f"{64 * gpus}x{64 * gpus}x64", gpus)
        fused, machine = FusedGemm("mca", exchange=exchange, skew=Skew()), exchange.hardware(MACHINE, workload)
        if gpus == 8:
            fused.prepare(Plan(machine, workload))
            continue
        with pytest.raises(ScheduleError, match="could wait for each other in a circle"):
            fused.prepare(Plan(machine, workload))


@pytest.mark.parametrize(("topology", "algorithm", "words"), [
    ("torus:2x4", "ring", "exchange.algorithm = ring does not go with exchange.topology = torus:2x4"),
    ("ring", "hierarchical", "exchange.algorithm = hierarchical does not go with exchange.topology = ring"),
    ("full", "both-rings", "exchange.algorithm = both-rings does not go with exchange.topology = full")])
def test_links_that_an_algorithm_does_not_use_are_refused(topology, algorithm, words):
    with pytest.raises(BadInput, match=words):
        fused_with("gemm-rs", topology, algorithm)


def test_nodes_need_cards_and_as_many_gpus():
    on = named_topology("nodes:2x2")
    with pytest.raises(BadInput, match=r"no \[network\], which links between nodes need"):
        run_program(MACHINE.model_copy(update={"network": None}), 1 << 20, "all-gather",
                    algorithms("ag", on)["hierarchical"].program(), on)
    with pytest.raises(BadInput, match="exchange.topology = nodes:2x4 is of 8 GPUs, and here are 4"):
        fused_with("gemm-rs", "nodes:2x4", "hierarchical").links(4)
