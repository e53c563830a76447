"""GPUs on several threads: the same results, bit for bit, and nobody is left waiting when one raises."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from t3sim.base.at_once import processor_seconds
from t3sim.base.compiled.jit import unlocked
from t3sim.base.compiled.meeting import go_on, last_to_come, on_threads, rounds, wait
from t3sim.gpu.fabric import queues
from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.runs import kernels
from t3sim.runs.exchange import fused_with
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import small_machine, variant

pytestmark = [pytest.mark.builds_loops, pytest.mark.slow]


@pytest.mark.parametrize("topology, algorithm", [("ring", "ring"), ("switch", "direct")])
def test_results_are_those_of_one_thread(seed, topology, algorithm):
    """Lateness and links at random, and latencies, one of them shorter than the cycles between two looks at the end."""
    generator = np.random.default_rng(seed)
    for latency_ns in (20.0, 130.0, 500.0):
        compare(variant(small_machine(load_machine()), link={"latency_ns": latency_ns}), generator, topology, algorithm)


def compare(machine, generator, topology, algorithm):
    gpus = int(generator.integers(2, 6))
    late = ((int(generator.integers(gpus)), float(generator.integers(3000))),)
    slow = ((1, 0, float(generator.integers(8, 60))),) if (gpus, topology) == (2, "ring") else ()
    kernel = FusedGemm("mca", skew=Skew(late, slow), exchange=fused_with("gemm-rs", topology, algorithm))
    workload = gemm_workload(f"{256 * int(generator.integers(1, 3))}x{128 * gpus}x64", gpus)
    machine = kernel.exchange.hardware(machine, workload)

    def result(threads: int):
        plan = kernel.prepare(Plan(machine, workload))
        return replace(kernels.simulate_plan(kernel, plan, threads=threads), host_seconds=0)
    alone = result(1)
    assert len({gpu["last_tile_ns"] for gpu in alone.gpus}) > 1
    for threads in (2, 3, 7):
        assert result(threads) == alone, threads


@unlocked
def count_in_turns(member, counts, turns, fails_at):
    """Each adds the others' counts of the turn before to its own."""
    for turn in range(turns):
        total = counts.sum()
        before = rounds(member)
        if last_to_come(member):
            go_on(member, turn)
        elif wait(member, before) != turn:
            return -1
        if turn == fails_at and member.number == member.threads - 1:
            raise OverflowError("this thread cannot go on")
        counts[member.number] = total + member.number
        before = rounds(member)
        if last_to_come(member):
            go_on(member, turn)
        elif wait(member, before) != turn:
            return -1
    return turns


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_meet(threads):
    turns, counts, expected = 12, np.zeros(threads), np.zeros(threads)
    for _ in range(turns):
        expected = expected.sum() + np.arange(threads)
    assert on_threads(threads, lambda member: count_in_turns(member, counts, turns, -1)) == turns
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_one_raises_ends_all(threads):
    before, counts = threading.active_count(), np.zeros(threads)
    with pytest.raises(OverflowError, match="this thread"):
        on_threads(threads, lambda member: count_in_turns(member, counts, 50, 3))
    assert threading.active_count() == before


def test_time_of_helpers_is_the_callers():
    def busy(member):
        return sum(range(3_000_000))
    busy(None)
    started = processor_seconds()
    busy(None)
    one = processor_seconds() - started
    started = processor_seconds()
    on_threads(4, busy)
    assert 2 * one < processor_seconds() - started < 12 * one


def test_news_of_a_free_place_takes_a_latency():
    """Whenever both meet: what a sender knows depends on when packets were taken only."""
    for every in (1, 3, 10):
        link, latency, sent, taken = queues.make_wires(1, 8), 10, [], []
        for now in range(200):
            if now % every == 0:
                queues.meet(link, 0)
            if queues.has_room(link, 0, now, latency, 2):
                queues.put(link, 0, now + latency, now, 0, 0)
                sent.append(now)
            if now % 7 == 0 and queues.arrives(link, 0, now):
                assert link.lo[0, queues.head_of(link, 0)] == sent[len(taken)]
                taken.append(now)
                queues.take(link, 0, now)
        assert sent[:6] == [*range(6)]
        assert sent[6:] == [time + latency for time in taken][:len(sent) - 6]
        assert link.count.tolist() == [len(sent) - len(taken)]


def test_a_full_link_takes_no_packet():
    link = queues.make_wires(1, 4)
    for number in range(4):
        queues.put(link, 0, number, 0, 0, 0)
    with pytest.raises(OverflowError, match="under way"):
        queues.put(link, 0, 4, 0, 0, 0)
