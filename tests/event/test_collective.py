"""Collectives on the event level: closed forms where nothing contends, the cycle level where it is quick."""

from dataclasses import replace

import pytest

from t3sim.analytic.costs import kernel_costs
from t3sim.collectives import all_to_all, direct, ring
from t3sim.event.flow.collective import run_program
from t3sim.machine import load_machine
from t3sim.machine.topologies import ring as ring_of
from t3sim.machine.topologies import switch
from t3sim.machine.topologies.shapes import fully_connected
from t3sim.runs.isolated_collectives import run_collective
from t3sim.runs.program_kernels import EXCHANGE

pytestmark = pytest.mark.builds_loops

MACHINE = load_machine()
COSTS = kernel_costs(MACHINE)
FREE = replace(COSTS, launch_ns=0.0, step_ns=0.0, last_writes_ns=0.0, link_ns=0.0, memory_bytes_per_ns=1e9)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_ring_all_gather_takes_its_closed_form(ranks):
    run = run_program(ring.all_gather(ranks), ring_of(ranks), lambda chunk: 750.0, replace(FREE, link_ns=100.0))
    assert run.ns == pytest.approx((ranks - 1) * (10 + 100))
    assert run.link_bytes == pytest.approx(750 * ranks * (ranks - 1))


def test_a_direct_all_gather_sends_everything_at_once():
    run = run_program(direct.all_gather(8), fully_connected(8), lambda chunk: 750.0, FREE)
    assert run.ns == pytest.approx(10)


def test_links_of_a_divided_mesh_have_a_share_of_a_links_bandwidth():
    run = run_program(direct.all_gather(8), fully_connected(8, divided=True), lambda chunk: 750.0, FREE)
    assert run.ns == pytest.approx(70) and run.busiest_link == pytest.approx(1)


def test_an_all_to_all_over_a_ring_shares_its_links():
    """Of a ring of four with links both ways a message for the opposite GPU goes one way and takes two links."""
    run = run_program(all_to_all.all_to_all(4), ring_of(4), lambda chunk: 75.0, FREE)
    # The way of hops -1, -1 to the opposite: each link in that direction carries one near and two far messages.
    assert run.ns == pytest.approx(3, rel=1e-6)


def test_memory_holds_a_reduce_scatter_back():
    slow = replace(FREE, memory_bytes_per_ns=75.0)
    plain = run_program(ring.reduce_scatter(4), ring_of(4), lambda chunk: 750.0, slow).ns
    near = run_program(ring.reduce_scatter(4), ring_of(4), lambda chunk: 750.0, slow, near_memory=True).ns
    # First step: a read here and a write of the neighbour's; then two reads; at the end two reads and a write.
    assert plain == pytest.approx(20 + 30 + 30 + 30)
    assert near == pytest.approx(20 + 20 + 20)


@pytest.mark.parametrize("kind, devices, megabytes", [
    ("reduce-scatter", 4, 1), ("reduce-scatter-nmc", 8, 1), ("all-gather", 4, 6), ("all-gather", 16, 1)])
def test_it_takes_what_the_cycle_level_takes(kind, devices, megabytes):
    size = megabytes * 10**6
    program = ring.all_gather(devices) if kind == "all-gather" else ring.reduce_scatter(devices)
    event = run_program(program, ring_of(devices), lambda chunk: size / devices, COSTS, kind == "reduce-scatter-nmc")
    assert event.ns == pytest.approx(run_collective(MACHINE, size, devices, kind).ns, rel=0.03)


@pytest.mark.parametrize("devices, megabytes", [(4, 1), (16, 1), (8, 6)])
def test_a_direct_all_to_all_takes_what_the_cycle_level_takes(devices, megabytes):
    size = megabytes * 10**6
    event = run_program(all_to_all.all_to_all(devices), switch(devices), lambda chunk: size / devices, COSTS)
    assert event.ns == pytest.approx(run_collective(MACHINE, size, devices, EXCHANGE).ns, rel=0.01)


def test_transfers_are_recorded_in_order():
    program = ring.reduce_scatter(4)
    run = run_program(program, ring_of(4), lambda chunk: 1e6, COSTS)
    assert len(run.steps) == len(program.transfers)
    assert all(start < end <= run.ns for *_, start, end in run.steps)
