"""What tells GPUs that few bytes have come: floors and knees of each way, and what a trigger adds."""

import pytest

from t3sim.analytic.libraries.collectives import library_collective, triggered_ns
from t3sim.analytic.libraries.contention import collective_job
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.machine.load import machines_of
from t3sim.papers.today.signals import CARRIED, Trigger, knee_bytes, signal_ns

H100, KB = load_machine("h100-sxm", COMMERCIAL), 1 << 10
MACHINES = [load_machine(name, COMMERCIAL) for name in machines_of(COMMERCIAL)]
NONE, SOME = Trigger(0.0, 0.0), Trigger(10.0, 50.0)


def ns(name: str, size: float, trigger: Trigger = NONE, gpus: int = 8) -> float:
    return signal_ns(H100, gpus, size, trigger)[name]


def test_flags_beside_words_are_the_first_and_counters_of_chunks_the_last_to_be_slower():
    """By their definition: half of the wires for the lowest floor, all of them for the highest."""
    floors = [ns(name, KB) for name in ("LL", "LL128", "Simple")]
    assert floors == sorted(floors)
    large = [ns(name, 256 << 20) for name in ("LL", "LL128", "Simple")]
    assert large == sorted(large, reverse=True)
    assert ns("two-shot, packets", KB) < ns("two-shot", KB) and ns("two-shot, packets", 16 << 20) > ns(
        "two-shot", 16 << 20)
    chosen = library_collective(H100, "all_reduce", 8, 64 << 20, algorithm="ring")
    assert chosen.algorithm == "ring, Simple" and ns("Simple", 64 << 20) == pytest.approx(min(
        chosen.ns, library_collective(H100, "all_reduce", 8, 64 << 20, algorithm="tree").ns))


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_trigger_costs_once_a_step_and_the_last_count_once(gpus):
    assert ns("tracker, ring", KB, SOME, gpus) - ns("tracker, ring", KB, NONE, gpus) == pytest.approx(
        2 * (gpus - 1) * 50 + 10)
    assert ns("tracker, direct", KB, SOME, gpus) - ns("tracker, direct", KB, NONE, gpus) == pytest.approx(2 * 50 + 10)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
def test_tracked_collectives_wait_for_the_wires_and_pass_no_more_than_they_carry(machine):
    gpus = min(8, machine.gpus)
    for kind, passes in (("all_reduce", 2), ("all_gather", 1), ("all_to_all", 1)):
        assert triggered_ns(machine, kind, gpus, 0.0, "direct") == passes * machine.wires.latency_ns
        assert triggered_ns(machine, kind, gpus, 0.0) == passes * (gpus - 1) * machine.wires.latency_ns
        assert triggered_ns(machine, kind, gpus, 1 << 30) == collective_job(machine, kind, gpus, 1 << 30,
                                                                            "near-memory").ns
    if machine.wires.kind != "graph":
        least = 2 * (gpus - 1) / gpus * (1 << 30) / (
            machine.wires.gb_per_s * (gpus - 1 if machine.wires.kind == "full" else 1))
        assert all(triggered_ns(machine, "all_reduce", gpus, 1 << 30, way) > least for way in ("ring", "direct"))


def test_a_knee_takes_twice_the_floor():
    assert knee_bytes(lambda size: 100 + size / 8, 100.0) == pytest.approx(800, abs=1)
    for name, floor in signal_ns(H100, 8, KB, NONE).items():
        knee = knee_bytes(lambda size, name=name: ns(name, size), floor)
        assert ns(name, knee) == pytest.approx(2 * floor, rel=1e-3), name


def test_ways_are_those_that_a_machine_has():
    h100, mi300x = (set(signal_ns(one, 8, KB, NONE)) for one in (H100, load_machine("mi300x", COMMERCIAL)))
    assert h100 - mi300x == {"in-switch", "in-switch, flags", "two-shot, packets"}
    assert h100 == set(CARRIED)
