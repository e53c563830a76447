"""Faults around the hardware in a ring of real numbers.

What is lost or doubled is reported, with device, workgroup and wavefront; what is only late changes the time, never a
bit.
"""

import random
import re

import numpy as np
import pytest

from t3sim.collectives.schedule import Action
from t3sim.cosim.component import build_component
from t3sim.gpu.engine.end import RUNNING
from t3sim.gpu.fabric.memory import OTHER
from t3sim.rtl.check_bits import check_bits
from t3sim.runs.data_mode import DataLedger, data_run
from t3sim.runs.failure import SimulationError
from t3sim.runs.fused import FusedRun
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import machine
from t3sim.workload.workloads import gemm_workload
from tests.support.flippable import FlippableTop

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

DEVICES = 3
SENDER, RECEIVER = 1, 0


@pytest.fixture
def run():
    made, _ = data_run(Plan(machine("ring_tiny"), gemm_workload("40x70x32", DEVICES), seed=5), Policy("mca"))
    yield made
    made.close()


def fault_free_cycles() -> int:
    made, _ = data_run(Plan(machine("ring_tiny"), gemm_workload("40x70x32", DEVICES), seed=5), Policy("mca"))
    made.run()
    made.close()
    return made.now


def until(run: FusedRun, condition) -> None:
    """Go on cycle by cycle: the fault meets what has just come."""
    while not condition():
        run.advance(1)
        assert run.now < 100_000, "there was nothing to disturb"


def flying(run: FusedRun) -> int:
    return int(run.sim.network.flight.count[SENDER])


def told(run: FusedRun) -> str:
    with pytest.raises(SimulationError) as error:
        run.run()
    return str(error.value)


def tile(message: str, device: int) -> tuple[int, int]:
    """The workgroup and wavefront that the message says device `device` misses first."""
    found = re.search(rf"GPU {device}: [^;]*\(missing workgroup (\d+) wavefront (\d+)", message)
    assert found, message
    return int(found[1]), int(found[2])


def incomplete(run: FusedRun, device: int) -> set[tuple[int, int]]:
    """Final tiles of a device that memory says are not complete."""
    ledger = next(observer for observer in run.observers if isinstance(observer, DataLedger))
    shape = ledger.products.memory.shape
    wrong = (ledger.data.memory.reshape(shape) != ledger.products.memory)[device]
    rows, tiling = run.schedule.rows(device), run.tiling
    found = set()
    for row in np.flatnonzero(rows.actions & Action.EVENT):
        tile = rows.tile[row]
        m0, n0 = tiling.first_row[tile], tiling.first_column[tile]
        for wf in range(tiling.wf_tiles[tile]):
            first = n0 + wf * tiling.wf_columns
            if wrong[first:first + tiling.wf_columns, m0:m0 + tiling.tile_m].any():
                found.add((int(rows.id[row]), wf))
    return found


@pytest.mark.parametrize("after", [0, 400])
def test_a_dropped_packet_is_missed(run, after):
    """The run ends with `nothing moved`, the tiles that lack bytes, and the link that lost a packet."""
    until(run, lambda: run.now >= after and flying(run))
    flight = run.sim.network.flight
    flight.head[SENDER] += 1
    message = told(run)
    assert message.startswith("nothing moved") and f"and 1 lost on it to GPU {RECEIVER}" in message
    assert message.count("lost on it") == 1
    named = [d for d in range(DEVICES) if f"GPU {d}:" in message and incomplete(run, d)]
    assert named
    for device in named:
        assert tile(message, device) in incomplete(run, device)


def test_a_duplicated_packet_is_told(run):
    """The link's balance at the end reports one packet more than was sent."""
    until(run, lambda: flying(run))
    flight = run.sim.network.flight
    size = flight.lo.shape[1]
    last = (flight.tail[SENDER] - 1) & (size - 1)
    for column in (flight.lo, flight.hi, flight.tag, flight.time):
        column[SENDER, (last + 1) & (size - 1)] = column[SENDER, last]
    flight.tail[SENDER] += 1
    assert f"and 1 more than were sent on it to GPU {RECEIVER}" in told(run)


def test_an_update_that_counts_twice_is_told(run):
    """It makes its tile fire too early; the update that should have completed it is left over."""
    inbound = run.sim.mem.inbound
    until(run, lambda: inbound.count[RECEIVER])
    size, head, count = inbound.lo.shape[1], inbound.head[RECEIVER], inbound.count[RECEIVER]
    for column in (inbound.lo, inbound.hi, inbound.tag):
        column[RECEIVER, (head + count) & (size - 1)] = column[RECEIVER, (head + count - 1) & (size - 1)]
    inbound.count[RECEIVER] += 1
    assert told(run) == f"GPU {RECEIVER}: not idle at the end: at least one tile is partly updated"


def test_packets_that_are_refused_do_not_mix_up_whom_the_others_serve(run):
    """Packets to addresses that are not open, among lawful ones: bytes are still counted where they belong."""
    flight, b, mem = run.sim.network.flight, run.sim.b, run.sim.mem
    size, added = flight.lo.shape[1], 0
    while run.advance(1) == RUNNING:
        last = (flight.tail[SENDER] - 1) & (size - 1)
        if run.now % 3 == 0 and flying(run) and added < 200:
            for column in (flight.lo, flight.hi, flight.tag, flight.time):
                column[SENDER, (last + 1) & (size - 1)] = column[SENDER, last]
            flight.lo[SENDER, (last + 1) & (size - 1)] |= (1 << b.address_bits) - (1 << b.address_bits - 1)
            flight.tag[SENDER, (last + 1) & (size - 1)] = OTHER
            flight.tail[SENDER] += 1
            added += 1
        assert run.now < 100_000
    assert run.counters(RECEIVER)["arrivals_refused"] == added == 200
    assert not mem.inbound_tags.count.any() and not mem.compute_tags.count.any()
    assert not mem.total_bytes[:, 2 * OTHER:].any() and not incomplete(run, RECEIVER)
    assert told(run).startswith(f"GPU {RECEIVER}: the hardware reports arrival_refused: workgroup ")


def test_late_packets_only_cost_time(run):
    """Every bit is right."""
    until(run, lambda: flying(run))
    run.sim.network.flight.time[SENDER] += 5000
    run.sim.network.last_arrival[SENDER] += 5000
    run.run()
    assert run.now > fault_free_cycles()


def test_a_gpu_that_stops_for_a_while_only_costs_time(run):
    """No workgroup starts on it, and nothing leaves it, for 5000 cycles."""
    until(run, lambda: run.sim.kernel.state.next_wg[SENDER] > 2)
    start, following = run.now, int(run.sim.kernel.state.next_wg[SENDER])
    run.sim.kernel.state.next_wg[SENDER] = run.sim.kernel.work.workgroups[SENDER]
    run.sim.network.free_time[SENDER] = start + 5000
    run.advance(5000)
    run.sim.kernel.state.next_wg[SENDER] = following
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
    returns, within = run.sim.mem.dma_returns, int(run.sim.mem.hbm.read_data_cycles) - 1
    while run.now < 10_000:
        run.advance(within)
        returns.count[SENDER] = 0
    message = told(run)
    silent = [d for d in range(DEVICES) if incomplete(run, d)]
    assert silent and all(tile(message, d) in incomplete(run, d) for d in silent)


# Bits that flip in the Tracker

PROTECTED = machine("ring_tiny", tracker={"protection": "secded"})
_SIZES = PROTECTED.geometry().tracker
WORD_BITS = [bits + check_bits("secded", bits) for bits in (
    1 + _SIZES.tag_bits, _SIZES.address_bits + _SIZES.count_bits + PROTECTED.geometry().dma.region_bits)]  #: tag, entry


@pytest.fixture(scope="module")
def design():
    return build_component(lambda: FlippableTop(PROTECTED.geometry()), "gpu_top")


@pytest.fixture
def flippable(design):
    made, _ = data_run(Plan(PROTECTED, gemm_workload("40x70x32", DEVICES), seed=5), Policy("mca"), design=design)
    yield made
    made.close()


def flip(run: FusedRun, device: int, way: int, row: int, in_entry: int, bits: list[int]) -> None:
    """In the cycle that comes."""
    backend = run.backends[device]

    def put(mask, row=0, way=0, in_entry=0):
        for name, value in (("flip_mask", mask), ("flip_row", row), ("flip_way", way), ("flip_in_entry", in_entry)):
            port = backend.ports.inputs[name]
            for word in range(port.words):
                backend.inputs[port.offset + word] = value >> 64 * word & (1 << 64) - 1
    put(sum(1 << bit for bit in bits), row, way, in_entry)
    run.advance(1)
    put(0)


def test_a_bit_of_every_word_of_every_tracker_flips_and_no_bit_of_the_result_does(flippable, seed):
    """SECDED: each flip is counted and TRACKER_FAULT has its place."""
    rng, t = random.Random(seed), _SIZES
    words = [(device, way, row, in_entry) for device in range(DEVICES) for way in range(t.ways)
             for row in range(t.sets_per_bank) for in_entry in (0, 1)]
    rng.shuffle(words)
    for word in words:
        flippable.advance(20)
        flip(flippable, *word, [rng.randrange(WORD_BITS[word[3]])])
    flippable.run()
    corrected = [flippable.counters(d)["tracker_corrected"] for d in range(DEVICES)]
    assert sum(corrected) > 10
    found = flippable.drivers[0].tracker_fault(flippable.masters[0].read)
    assert found["kind"] == "corrected" and found["memory"] in ("tag", "entry")


def test_two_bits_of_an_entry_that_flip_are_told_at_once_with_their_place(flippable, seed):
    """By interrupt, with set and way. Every open entry of one GPU is hit, one of which is updated next."""
    rng, t = random.Random(seed), _SIZES
    until(flippable, lambda: flippable.sim.network.arrived[RECEIVER] > 20)
    for way in range(t.ways):
        for row in range(t.sets_per_bank):
            flip(flippable, RECEIVER, way, row, 1, rng.sample(range(WORD_BITS[1]), 2))
    message = told(flippable)
    assert re.match(rf"GPU {RECEIVER}: the hardware reports tracker_memory: workgroup \d+, wavefront \d, "
                    r"region \d+, address 0x[0-9a-f]+; uncorrectable, set \d, way [01], entry$", message), message
    assert flippable.now < 100_000, "it does not wait until nothing moves any more"
