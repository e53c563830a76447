"""Ring collectives as kernels: bytes by the closed form, time by the link or by the compute units."""

from typing import NamedTuple

import numpy as np
import pytest

from t3sim.analytic.rings import ring_time_ns
from t3sim.gpu.engine.end import DONE, RUNNING
from t3sim.gpu.engine.loop import Lockstep
from t3sim.machine import Machine, load_machine
from t3sim.runs import isolated_collectives as collectives
from t3sim.runs.phases import PURPOSES
from t3sim.runs.program_kernels import KINDS, LevelPlan, Places, ring_plan, ring_program
from tests.support.variants import Watches, variant

pytestmark = pytest.mark.builds_loops

PREFIX = {"reduce-scatter": "rs", "reduce-scatter-nmc": "rs", "all-gather": "ag"}
ARRAY = 16 << 20  #: long steps, so that the memory's latency is below a percent


def kinds():
    return pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine()


def run(machine: Machine, size_bytes: int, devices: int, kind: str, **options):
    """(state, cycles) at the end of a collective."""
    sim = collectives.collective_sim(machine, size_bytes, devices, kind, **options)
    return sim, to_the_end(sim)


def to_the_end(sim) -> int:
    """The cycles that it takes."""
    going = Lockstep(sim)
    assert going.advance(10_000_000) == DONE
    return going.now


def traffic(sim, device: int = 0) -> dict[str, int]:
    return {name: int(total) for name, total in zip(PURPOSES, sim.mem.total_bytes[device]) if total}


def chunks(kind: str, n: int) -> tuple[int, int]:
    """Chunks read and written: one copy is read first, then two per step and in the last pass (T3 paper, figure 10)."""
    return (2 * n - 1, n) if kind == "reduce-scatter" else (n - 1, n - 1)


def local_rate(machine: Machine) -> float:
    """Bytes of result per ns that one compute unit can reduce, from an idle memory: places over a workgroup's time.

    Its own instructions, its loads of two copies leave through the port, memory answers, its stores leave and are
    acknowledged.
    """
    kernel, dram = machine.collective, machine.dram
    port = kernel.workgroup_bytes / machine.gpu.cu_bytes_per_ns
    memory = machine.llc.hit_latency_ns + machine.llc.fill_latency_ns + dram.trcdrd_cycles + dram.cl_cycles
    return kernel.workgroups_per_cu * kernel.workgroup_bytes / (
        kernel.workgroup_overhead_ns + 3 * port + memory + machine.llc.hit_latency_ns)


@kinds()
@pytest.mark.parametrize("devices", [2, 3, 8])
def test_bytes_and_time(machine, kind, devices):
    sim, now = run(machine, ARRAY, devices, kind)
    chunk = -(-ARRAY // devices)
    reads, writes = chunks(kind, devices)
    assert traffic(sim) == {f"{PREFIX[kind]}_read": reads * chunk, f"{PREFIX[kind]}_write": writes * chunk}
    assert sim.network.sent_bytes[0] == (devices - 1) * chunk

    step_end = sim.kernel.state.phase_over
    exchanged, closed = int(step_end[0, devices - 2]), ring_time_ns(machine, ARRAY, devices)
    assert closed <= exchanged <= 1.015 * closed
    if kind == "reduce-scatter":
        last = int(step_end[0, devices - 1]) - exchanged
        least = 3 * chunk / (machine.dram.channels * machine.dram.column_bytes)
        assert least <= last <= 1.5 * least + 1000
        assert exchanged + last <= now <= exchanged + last + 500
    else:
        assert exchanged <= now <= exchanged + 500


@kinds()
@pytest.mark.parametrize("devices", [3, 5])
@pytest.mark.parametrize("mirrored", [True, False])
def test_ragged_chunks(machine, kind, devices, mirrored):
    """A chunk that ends within a line and within a workgroup."""
    size = 666_667
    sim, _ = run(machine, size, devices, kind, mirrored=mirrored)
    chunk = -(-size // devices)
    assert chunk % 64
    reads, writes = chunks(kind, devices)
    for device in range(1 if mirrored else devices):
        assert list(traffic(sim, device).values()) == [reads * chunk, writes * chunk]


@kinds()
def test_the_link_never_exceeds_its_bandwidth(machine, kind):
    window = 256
    sim = collectives.collective_sim(machine, 2 << 20, 4, kind)
    going, arrived = Lockstep(sim), [0]
    while going.advance(window) == RUNNING:
        arrived.append(int(sim.network.arrived[0]) * 64)
    bandwidth = machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz
    most = max(np.diff(arrived))
    assert 0.95 * bandwidth * window < most <= bandwidth * window + 64
    assert sim.network.sent_bytes[0] <= bandwidth * going.now
    assert sim.network.busy_cycles[0] == pytest.approx(sim.network.sent_bytes[0] / bandwidth)


@kinds()
@pytest.mark.parametrize("mirrored", [True, False])
def test_what_arrives_in_a_step_is_read_in_the_next(machine, kind, mirrored):
    """Device d first reads its chunk d, then what its neighbour d - 1 sent: chunk d - 1."""
    devices, size = 4, 1 << 20
    sim = collectives.collective_sim(machine, size, devices, kind, mirrored=mirrored)
    Lockstep(sim).advance(2000)
    flight = sim.network.flight
    copies = (1 + devices) << 20  # after the array, its copies
    base = copies if kind == "reduce-scatter" else 0
    for sender in range(len(sim.kernel.state.phase)):
        receiver = 0 if mirrored else (sender + 1) % devices
        port = sim.network.next_port[sender, receiver]
        waiting = flight.head[port] + np.arange(flight.count[port])
        addresses = flight.lo[port, waiting % flight.lo.shape[1]] & ((1 << sim.b.address_bits) - 1)
        assert len(addresses) > 100
        assert set((addresses - base) // (size // devices)) == {(receiver - 1) % devices}


@kinds()
def test_a_step_waits_for_the_one_before(machine, kind):
    size = 1 << 20
    sim, _ = run(machine, size, 4, kind)
    ends = sim.kernel.state.phase_over[0, :3].astype(float)
    least = size / 4 / (machine.link.bandwidth_gb_per_s / machine.memory_clock_ghz) + machine.link.latency_ns
    assert (np.diff(ends, prepend=0) >= least).all()


class CountsLoads(NamedTuple):
    """A watcher that keeps the most loads that the one GPU has in flight."""

    most: np.ndarray

    def before_edge(self, sim, kernel, hardware, gpu, now):
        pass

    def after_edge(self, sim, kernel, hardware, gpu, now):
        loads = 0
        for place in range(kernel.state.outstanding.shape[1]):
            loads += kernel.state.outstanding[gpu, place]
        self.most[0] = max(self.most[0], loads)


def test_no_more_loads_in_flight_than_resident_workgroups_hold(machine):
    places, lines, units = 3, 4, 5
    kernel = {"workgroups_per_cu": places, "workgroup_bytes": lines * 64}
    sim = collectives.collective_sim(variant(machine, gpu={"compute_units": units}, collective=kernel), 1 << 20, 3,
                                     "reduce-scatter-nmc")
    going, most = Lockstep(sim), np.zeros(1, np.int64)
    going.observers.append(Watches(CountsLoads(most)))
    assert len(sim.kernel.state.outstanding) == 1
    assert going.advance(10_000_000) == DONE
    assert most[0] == places * lines * units


@pytest.mark.parametrize("compute_units", [2, 4])
@pytest.mark.parametrize("places", [1, 2])
def test_few_workgroups_are_bound_by_latency(machine, compute_units, places):
    """Then the last pass goes at the rate of places over a workgroup's time, whatever DRAM could do."""
    few = variant(machine, gpu={"compute_units": compute_units}, collective={"workgroups_per_cu": places})
    size = 1 << 19
    sim, _ = run(few, size, 2, "reduce-scatter")
    last = int(sim.kernel.state.phase_over[0, 1] - sim.kernel.state.phase_over[0, 0])
    assert size / 2 / last == pytest.approx(compute_units * local_rate(few), rel=0.12)


def test_loads_and_stores_share_the_port(machine):
    narrow = variant(machine, gpu={"compute_units": 4, "cu_bytes_per_ns": 4.0})
    size = 1 << 20
    sim, _ = run(narrow, size, 2, "reduce-scatter")
    first, both = sim.kernel.state.phase_over[0, :2]
    last = both - first
    per_unit = size / 2 / 4
    assert 2 * per_unit / 4.0 <= first <= 1.1 * 2 * per_unit / 4.0 + 1500  # a load and a store per line
    assert 3 * per_unit / 4.0 <= last <= 1.1 * 3 * per_unit / 4.0 + 1500


def test_a_kernel_starts_when_it_is_launched(machine):
    ends = []
    for start in (0, 5000):
        sim = collectives.collective_sim(machine, 1 << 19, 2, "all-gather")
        sim.control.start[:] = start
        to_the_end(sim)
        ends.append(int(sim.kernel.state.phase_over[0, 0]))
    assert 4900 < ends[1] - ends[0] < 5100


def test_a_device_that_starts_late_holds_the_ring(machine):
    """All GPUs: the neighbours wait for its chunks, one step after the other."""
    late = 20_000
    for kind in KINDS:
        together, _ = run(machine, 1 << 20, 4, kind, mirrored=False)
        sim = collectives.collective_sim(machine, 1 << 20, 4, kind, mirrored=False)
        sim.control.start[2] = late
        to_the_end(sim)
        delay = sim.kernel.state.phase_over[:, :3] - together.kernel.state.phase_over[:, :3]
        for device in range(4):
            for step in range(3):
                # Device 2 is late, and whoever has been reached by its lateness: one neighbour further every step.
                behind = (device - 2) % 4 <= step + 1
                assert (delay[device, step] > 0.8 * late) == behind, (kind, device, step, delay)


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_steps_are_those_of_the_papers_figures(devices):
    """Device d sends chunk d, then d-1 and so on to device d+1; mirrored, that lands as what device d-1 sends."""
    at = Places(64, 0, 1 << 20)
    for kind in KINDS:
        program, first = ring_program(kind, devices)
        lands = at.received if kind == "reduce-scatter" else at.chunk
        for d in range(devices):
            plan = LevelPlan(program, (first + d) % devices, at, KINDS[kind], mirrored=False)
            wanted = [(d - step) % devices for step in range(devices - 1)]
            assert plan.order[:devices - 1] == wanted and plan.peers == [(first + d + 1) % devices]
            sends = plan.passes()[:devices - 1]
            assert [one.sources[0] for one in sends] == [*map(at.chunk, wanted)]
            assert [one.destination for one in sends] == [*map(lands, wanted)]
        mirrored = ring_plan(kind, devices, 64 * devices, at.data, at.copies)
        assert mirrored.order[:devices - 1] == [-step % devices for step in range(devices - 1)]
        assert [one.destination for one in mirrored.passes()[:devices - 1]] == [
            lands((-1 - step) % devices) for step in range(devices - 1)]
