"""Faults around the hardware in a ring of real numbers: what is lost or doubled is told, with device, workgroup and
wavefront; what is only late changes the time, never a bit."""

import re

import pytest

from sim_models.data_mode import DataRun
from sim_models.fused import Policy, SimulationError
from sim_models.simulation import Options
from sim_models.workloads import gemm_workload
from testbenches.soak import machine

DEVICES = 3
SENDER, RECEIVER = 1, 0


@pytest.fixture
def run():
    made = DataRun(machine("ring_tiny"), gemm_workload("40x70x32", DEVICES), Policy("mca"), Options(seed=5))
    yield made
    made.close()


def fault_free_cycles() -> int:
    made = DataRun(machine("ring_tiny"), gemm_workload("40x70x32", DEVICES), Policy("mca"), Options(seed=5))
    made.run()
    made.close()
    return made.now


def until(run: DataRun, condition) -> None:
    """Go on cycle by cycle: the fault meets what has just come."""
    while not condition():
        run.advance(1)
        assert run.now < 100_000, "there was nothing to disturb"


def flying(run: DataRun) -> int:
    return int(run.sim.link.flight.count[SENDER])


def told(run: DataRun) -> str:
    with pytest.raises(SimulationError) as error:
        run.run()
    return str(error.value)


def tile(message: str, device: int) -> tuple[int, int]:
    """The workgroup and wavefront that the message says device `device` misses first."""
    found = re.search(rf"device {device}: [^;]*\(missing workgroup (\d+) wavefront (\d+)", message)
    assert found, message
    return int(found[1]), int(found[2])


def incomplete(run: DataRun, device: int) -> set[tuple[int, int]]:
    """Final tiles of a device that memory says are not complete."""
    shape = run.products.memory.shape
    wrong = (run.data.memory.reshape(shape) != run.products.memory)[device]
    tiles, positions, _ = run.tiling.order(device)
    found = set()
    for q, (number, position) in enumerate(zip(tiles, positions)):
        m0 = number % run.tiling.tile_rows * run.tiling.tile_m
        n0 = number // run.tiling.tile_rows * run.tiling.tile_n
        for wf in range(run.tiling.wf_tiles(int(number))):
            first = n0 + wf * run.tiling.wf_columns
            if position == DEVICES - 1 and wrong[first:first + run.tiling.wf_columns, m0:m0 + run.tiling.tile_m].any():
                found.add((q, wf))
    return found


@pytest.mark.parametrize("after", [0, 400])
def test_a_dropped_packet_is_missed(run, after):
    until(run, lambda: run.now >= after and flying(run))
    flight = run.sim.link.flight
    flight.head[SENDER] = (flight.head[SENDER] + 1) & (flight.lo.shape[1] - 1)
    flight.count[SENDER] -= 1
    message = told(run)
    assert message.startswith("nothing moved") and f"and 1 lost on it to device {RECEIVER}" in message
    assert message.count("lost on it") == 1
    named = [d for d in range(DEVICES) if f"device {d}:" in message and incomplete(run, d)]
    assert named
    for device in named:
        assert tile(message, device) in incomplete(run, device)


def test_a_duplicated_packet_is_told(run):
    until(run, lambda: flying(run))
    flight = run.sim.link.flight
    size, head, count = flight.lo.shape[1], flight.head[SENDER], flight.count[SENDER]
    last = (head + count - 1) & (size - 1)
    for column in (flight.lo, flight.hi, flight.time):
        column[SENDER, (last + 1) & (size - 1)] = column[SENDER, last]
    flight.count[SENDER] += 1
    assert f"and 1 more than were sent on it to device {RECEIVER}" in told(run)


def test_an_update_that_counts_twice_is_told(run):
    """It makes its tile fire too early; the update that should have completed it is left over."""
    inbound = run.sim.inbound
    until(run, lambda: inbound.count[RECEIVER])
    size, head, count = inbound.lo.shape[1], inbound.head[RECEIVER], inbound.count[RECEIVER]
    for column in (inbound.lo, inbound.hi):
        column[RECEIVER, (head + count) & (size - 1)] = column[RECEIVER, (head + count - 1) & (size - 1)]
    inbound.count[RECEIVER] += 1
    assert re.match(r"device \d: (the hardware reports .*'wg': \d+, 'wf': \d+|"
                    r"not idle at the end: at least one tile is partly updated$)|"
                    r"nothing moved .*missing workgroup", told(run))


def test_late_packets_only_cost_time(run):
    until(run, lambda: flying(run))
    run.sim.link.flight.time[SENDER] += 5000
    run.sim.link.last_arrival[SENDER] += 5000
    run.run()
    assert run.now > fault_free_cycles()


def test_a_gpu_that_stops_for_a_while_only_costs_time(run):
    """No workgroup starts on it, and nothing leaves it, for 5000 cycles."""
    until(run, lambda: run.sim.gemm.next_wg[SENDER] > 2)
    start, following = run.now, int(run.sim.gemm.next_wg[SENDER])
    run.sim.gemm.next_wg[SENDER] = run.sim.shape.workgroups
    run.sim.link.free_time[SENDER] = start + 5000
    run.advance(5000)
    run.sim.gemm.next_wg[SENDER] = following
    run.run()
    assert run.now > max(start + 5000, fault_free_cycles())


def test_a_read_that_never_returns_is_missed(run):
    """DRAM performs a DMA engine's read, and its data go nowhere."""
    returns = run.sim.mem.dma_returns
    until(run, lambda: returns.count[SENDER])
    returns.head[SENDER] = (returns.head[SENDER] + 1) & (returns.lo.shape[1] - 1)
    returns.count[SENDER] -= 1
    message = told(run)
    assert message.startswith("nothing moved") and "lost on it" not in message
    named = [d for d in range(DEVICES) if incomplete(run, d)]
    assert named
    for device in named:
        assert tile(message, device) in incomplete(run, device)


def test_a_dma_engine_that_never_answers_is_missed(run):
    """None of one GPU's reads returns: what it should have sent on is missing elsewhere."""
    returns, within = run.sim.mem.dma_returns, int(run.sim.hbm.read_data_cycles) - 1
    while run.now < 10_000:
        run.advance(within)
        returns.count[SENDER] = 0
    message = told(run)
    silent = [d for d in range(DEVICES) if incomplete(run, d)]
    assert silent and all(tile(message, d) in incomplete(run, d) for d in silent)
