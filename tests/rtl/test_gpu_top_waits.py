"""Waits of the wired GPU: the busy bits of STATUS, and the watchdog that names what a hang waits for."""

import random
from collections import Counter, deque

import pytest

from t3sim.cosim.driver.driver import Destination
from t3sim.rtl.address_map import channel_of
from t3sim.rtl.registers import KERNEL_INSIDE, WAITS, WATCHDOG_PERIOD
from tests.support.gpu import (
    BASE,
    CHANNELS,
    COLUMNS,
    DMA,
    DMA_REGION,
    EVENT_REGION,
    GEOMETRY,
    LANES,
    LIMIT,
    LOCAL,
    PEER,
    PITCH,
    QUEUE_HANGS,
    READ,
    REMOTE_REGION,
    ROW,
    THERE,
    UPDATE,
    Gpu,
    came_out,
    complete,
    in_channel,
    lines,
    programmed,
    random_traffic,
    waits_in_the_end,
)

pytestmark = pytest.mark.builds_rtl

# What STATUS says


#: A tile that lacks bytes waits outside, as data do that DMA has asked for.
WAITING = set(KERNEL_INSIDE) - {"tracker_occupied", "reads_outstanding"}


@pytest.mark.slow
def test_idle_means_that_nothing_more_comes_out(seed):
    """Random traffic stopped at any moment, any outputs blocked: if STATUS is idle, nothing leaves after unblocking."""
    rng, said = random.Random(seed), Counter()
    for trial in range(150):
        gpu = programmed(seed=rng.random(), idle=rng.choice((0, 0.3)), memory_cycles=rng.choice((0, 30)))
        outputs = ["dram", "packets", "events", "retirement"]
        gpu.blocked = set(rng.sample(outputs, rng.randrange(3)))
        random_traffic(gpu)
        gpu.run(rng.randrange(rng.choice((60, 600))))
        for queue in gpu.waiting.values():
            queue.clear()
        if rng.random() < 0.5:  # what is not blocked goes on
            gpu.run(rng.randrange(600))
        waiting, before = WAITING & gpu.status(), came_out(gpu)
        said[frozenset(waiting)] += 1
        gpu.blocked, gpu.idle = set(), 0
        gpu.run(600)
        assert waiting or came_out(gpu) == before, f"trial {trial}: idle, and then {before} became {came_out(gpu)}"
        assert not WAITING & gpu.status(), f"trial {trial}"
    assert said[frozenset()] and said.total() > 2 * said[frozenset()], said
    assert set().union(*said) == WAITING, said


def test_complete_tiles_that_nobody_takes_are_not_idle():
    """Tile after tile fills the event queue, the merge queue and the bank."""
    gpu = programmed()
    gpu.blocked = {"events"}
    seen = []
    for number in range(4):
        for _ in range(2 * ROW * COLUMNS // 64):
            gpu.access("compute", BASE, 64, region=EVENT_REGION, wf=number)
        gpu.run(200)
        seen.append(WAITING & gpu.status())
    assert seen == [{"events_busy"}] * 2 + [{"events_busy", "merge_busy"}] * 2
    gpu.blocked = set()
    gpu.run(50)
    assert len(gpu.events) == 4 and not WAITING & gpu.status()


@pytest.mark.parametrize("region", [EVENT_REGION, DMA_REGION])
def test_a_tile_shows_from_its_only_byte_to_what_comes_of_it(region):
    """One-byte tiles, with STATUS read one cycle later each time."""
    gpu = programmed(memory_cycles=3)
    one = {"base": BASE, "limit": LIMIT, "updates_per_element": 1}
    gpu.program([
        *gpu.driver.unmap(DMA_REGION), *gpu.driver.window(8),
        *gpu.driver.event_map(EVENT_REGION, tile_bytes=1, arrivals=[], **one),
        *gpu.driver.dma_map(DMA_REGION, to=[Destination(PEER, THERE)], row_bytes=1, columns=1, pitch_bytes=64, **one)])

    def came() -> int:
        return len(gpu.events) + sum(command["op"] == READ for command in gpu.dram)
    for cycles in range(40):
        wg, wf = divmod(cycles, 8)
        if wf == 0:
            gpu.dispatch(wg, tiles=8)
            gpu.run(20)
        gpu.access("compute", BASE, 1, region=region, wf=wf, wg=wg)
        gpu.run(1)
        before = came()
        gpu.run(cycles)
        shows, waits = WAITING & gpu.status(), came() == before
        assert shows or not waits, cycles
        gpu.run(60)
        assert came() == before + 1 and not WAITING & gpu.status()
    assert not waits, "it takes longer"


def test_every_bank_shows_that_a_trigger_waits_in_it():
    """Events are blocked; after the same number of complete tiles STATUS shows any bank as busy."""
    def tiles_until_busy(bank: int) -> int:
        gpu = programmed()
        gpu.blocked = {"events"}
        gpu.program(gpu.driver.window(8))
        gpu.dispatch(bank, tiles=8)
        for wf in range(8):
            for address, size in 2 * list(lines()):
                gpu.access("compute", address, size, region=EVENT_REGION, wf=wf, wg=bank)
            gpu.run(150)
            if "tracker_busy" in gpu.status():
                return wf
        raise AssertionError("never")
    assert len({tiles_until_busy(bank) for bank in range(GEOMETRY.tracker.banks)}) == 1


def test_data_that_were_asked_for_and_have_not_left_show():
    """STATUS has `reads_outstanding` until all 12 lines have left as packets."""
    gpu = programmed()
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=DMA_REGION)
    gpu.run(300)
    reads = [command for command in gpu.dram if command["op"] == READ]
    assert len(reads) == 12 and "reads_outstanding" in gpu.status() and not WAITING & gpu.status()
    for number, read in enumerate(reads):
        gpu.waiting[f"outbound[{number % LANES}]"].append(
            {name: read[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg")})
    gpu.run(100)
    assert len(gpu.packets) == 12 and "reads_outstanding" not in gpu.status()


def no_data_come_back(gpu: Gpu) -> None:
    complete(gpu, 1, DMA_REGION)


def no_more_lines_may_be_outstanding(gpu: Gpu) -> None:
    """Five tiles of 896 lines."""
    gpu.program(gpu.driver.dma_map(DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)],
                                   row_bytes=4096, columns=14, pitch_bytes=4096, updates_per_element=1))
    gpu.dispatch(0, tiles=8)
    for wf in range(5):
        for line in range(896):
            gpu.access("compute", BASE // 64 * 64 + 64 * line, 64, region=DMA_REGION, wf=wf)


def nobody_takes_events(gpu: Gpu) -> None:
    gpu.blocked = {"events"}
    complete(gpu, 6, EVENT_REGION)


def dram_takes_nothing(gpu: Gpu) -> None:
    gpu.blocked = {"dram"}
    for address, size in lines():
        gpu.access("compute", address, size, region=EVENT_REGION)


def dram_performs_no_write(gpu: Gpu) -> None:
    """The engines fill the channels' queues of DMA reads, then wait with what is left."""
    gpu.blocked = {"retirement"}
    for wg in range(5):  # of more the guards would hold writes back: they count no further
        gpu.dispatch(wg, tiles=8)
        for wf in range(8):
            for address, size in 2 * list(lines(BASE + (8 * wg + wf) % 32 * COLUMNS * PITCH)):
                gpu.access("compute", address, size, region=DMA_REGION, wf=wf, wg=wg)


def the_link_takes_nothing(gpu: Gpu) -> None:
    gpu.blocked = {"packets"}
    store = {"bytes": 64, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION, "wf": 0, "wg": 0}
    for lane in range(LANES):
        gpu.waiting[f"outbound[{lane}]"] += [store | {"address": BASE + 64 * line} for line in range(8)]


def a_peer_sends_nothing(gpu: Gpu) -> None:
    gpu.dispatch(0, tiles=1)
    for address, size in lines():
        gpu.access("compute", address, size, region=EVENT_REGION)


def the_oldest_workgroup_stores_nothing(gpu: Gpu) -> None:
    gpu.program(gpu.driver.window(2, workgroups=3))
    for wg in range(4):
        gpu.dispatch(wg, tiles=1)


def a_peers_head_stands_still(gpu: Gpu) -> None:
    gpu.program(gpu.driver.window(2, workgroups=4, slack=1))
    gpu.dispatch(0, tiles=1, there=4)


def no_unit_has_room(gpu: Gpu) -> None:
    gpu.blocked = {"start"}
    gpu.dispatch(0, tiles=1)


HANGS = {
    no_data_come_back: {"data", "workgroups"},
    no_more_lines_may_be_outstanding: {"data", "room", "engines", "workgroups"},
    nobody_takes_events: {"events", "triggers", "updates", "workgroups"},
    dram_takes_nothing: {"dram", "channels", "tiles"},
    dram_performs_no_write: {"guard", "channels", "lines", "engines", "commands", "data"},
    the_link_takes_nothing: {"link"},
    a_peer_sends_nothing: {"tiles", "workgroups"},
    the_oldest_workgroup_stores_nothing: {"window", "workgroups"},
    a_peers_head_stands_still: {"peer", "workgroups"},
    no_unit_has_room: {"start", "workgroups"},
}


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.__name__)
def test_a_hang_is_told_with_what_waits(hang):
    """Each hang gives exactly its words of WAITING, one error and interrupt after the limit, and none again."""
    gpu = programmed(memory_cycles=3)
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    hang(gpu)
    while not gpu.get("irq"):
        gpu.run(1)
        assert gpu.cycle < 8000, "nothing is told"
    last = max([0, *(command["cycle"] for command in gpu.dram)])  # what DRAM took moved, if nothing else
    assert gpu.cycle - last > 2 * WATCHDOG_PERIOD
    assert set(gpu.driver.waiting(gpu.bus.read)) == HANGS[hang]
    assert gpu.error() == {"code": "watchdog", "wg": 0, "wf": 0, "region": 0, "address": 0}
    gpu.run(4 * WATCHDOG_PERIOD)
    assert gpu.counters()["errors"] == 1, "told again"
    gpu.program(gpu.driver.clear_error())
    assert not gpu.get("irq") and not gpu.driver.waiting(gpu.bus.read)
    gpu.run(4 * WATCHDOG_PERIOD)
    assert set(gpu.driver.waiting(gpu.bus.read)) == HANGS[hang]


@pytest.mark.parametrize("engine", range(GEOMETRY.dma.engines))
def test_an_engine_that_waits_alone_is_told(engine):
    """Engines take turns: short tiles, then one of 896 lines, more than may be outstanding."""
    gpu = programmed(memory_cycles=3)
    complete(gpu, engine, DMA_REGION)
    gpu.run(300)
    gpu.program(gpu.driver.dma_map(DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)],
                                   row_bytes=4096, columns=14, pitch_bytes=4096, updates_per_element=1)
                + gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    for line in range(896):
        gpu.access("compute", BASE // 64 * 64 + 64 * line, 64, region=DMA_REGION, wf=engine)
    while not gpu.get("irq"):
        gpu.run(1)
        assert gpu.cycle < 8000, "nothing is told"
    assert set(gpu.driver.waiting(gpu.bus.read)) == {"data", "room", "engines", "workgroups"}
    assert "engines_busy" in gpu.status()


@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_channel_that_waits_alone_for_dram_is_told(channel):
    """In each channel, DRAM takes nothing and all other channels are idle."""
    gpu = programmed()
    gpu.blocked = {"dram"}
    gpu.access("compute", in_channel(channel), 64, region=EVENT_REGION)
    assert waits_in_the_end(gpu) == {"dram", "channels", "tiles"}
    assert gpu.busy() == {"channels_busy", "channels_hold", "tracker_occupied"}


@pytest.mark.parametrize("lane", range(LANES))
def test_a_lane_that_waits_alone_for_the_link_is_told(lane):
    """In each lane, the link takes nothing and all other lanes are idle."""
    gpu = programmed()
    gpu.blocked = {"packets"}
    gpu.waiting[f"outbound[{lane}]"].append(
        {"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION, "wf": 0, "wg": 0})
    assert waits_in_the_end(gpu) == {"link"} and gpu.busy() == {"egress_busy"}


def held_by_the_guard(channels) -> Gpu:
    """A tile of one line in each of these channels, whose write is never performed."""
    gpu = programmed()
    gpu.program(gpu.driver.dma_map(DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)],
                                   row_bytes=64, columns=1, pitch_bytes=64, updates_per_element=1))
    gpu.blocked = {"retirement"}
    gpu.dispatch(0, tiles=len(channels))
    for wf, channel in enumerate(channels):
        gpu.access("compute", in_channel(channel), 64, region=DMA_REGION, wf=wf)
    return gpu.run(100)


@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_read_that_its_channels_guard_holds_alone_is_told(channel):
    """In each channel, a read waits for a write that DRAM does not perform."""
    assert waits_in_the_end(held_by_the_guard([channel])) == {"guard", "channels", "data"}


def test_every_channels_guard_counts_its_stalls():
    """Reads held in each channel, and in all at once: COUNT_GUARD_STALL grows by their number per cycle."""
    def stalls(channels) -> int:
        """In a hundred cycles and those that the bus takes."""
        gpu = held_by_the_guard(channels)
        before = gpu.read("COUNT_GUARD_STALL")
        gpu.run(100)
        return gpu.read("COUNT_GUARD_STALL") - before
    one = stalls([0])
    assert one >= 100 and [stalls([channel]) for channel in range(1, CHANNELS)] == (CHANNELS - 1) * [one]
    assert stalls(range(CHANNELS)) == CHANNELS * one


def test_every_reason_to_wait_has_its_hang():
    """Every word that WAITING can show is shown by at least one of the hangs tested here."""
    assert set().union(*HANGS.values(), *QUEUE_HANGS.values()) == {name for name, _ in WAITS}


def test_slow_work_and_no_work_are_no_hang(seed):
    """A line every few hundred cycles, then no work; with the watchdog off nothing is reported."""
    gpu = programmed(seed=seed, memory_cycles=200)
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    gpu.returning = deque()
    gpu.dispatch(0, tiles=1)
    for address, size in 2 * list(lines()):
        gpu.access("compute", address, size, region=DMA_REGION)
        gpu.run(gpu.random.randrange(2 * WATCHDOG_PERIOD - 20))
    gpu.run(600)
    assert len(gpu.packets) == 12 and not gpu.busy() and gpu.error() is None
    gpu.run(6 * WATCHDOG_PERIOD)
    assert gpu.error() is None
    gpu.program(gpu.driver.watchdog(None))
    gpu.dispatch(1, tiles=1)
    gpu.run(6 * WATCHDOG_PERIOD)
    assert gpu.error() is None and gpu.busy() == {"window_open"}


def another_kernel_reads(gpu: Gpu) -> None:
    gpu.access("compute", BASE, 64, op=READ)


def a_head_says_nothing_new(gpu: Gpu) -> None:
    gpu.hear(5)


def unlawful_packets_come(gpu: Gpu) -> None:
    gpu.access("inbound", BASE, 64, source=DMA, region=9)


@pytest.mark.parametrize("noise", [another_kernel_reads, a_head_says_nothing_new, unlawful_packets_come])
def test_what_goes_on_beside_a_hang_does_not_hide_it(noise):
    """Another kernel's reads, a repeated head or unlawful packets do not reset the watchdog."""
    gpu = programmed(memory_cycles=3)
    gpu.hear(5)
    gpu.program(gpu.driver.watchdog(4 * WATCHDOG_PERIOD))
    a_peer_sends_nothing(gpu)
    for _ in range(12 * WATCHDOG_PERIOD // 200):
        noise(gpu)
        gpu.run(200)
    assert set(gpu.driver.waiting(gpu.bus.read)) == HANGS[a_peer_sends_nothing]


def this_gpus_head_leaves(gpu: Gpu, turn: int) -> None:
    gpu.program([gpu.driver._write("PEER0", peer0_told=turn % 2, peer0_telling=1)])


def a_peers_head_moves(gpu: Gpu, turn: int) -> None:
    gpu.hear(turn + 1)


@pytest.mark.parametrize("moves", [this_gpus_head_leaves, a_peers_head_moves])
def test_a_head_that_moves_is_movement(moves):
    """Nothing else moves while a tile waits for late bytes, and no hang is reported."""
    gpu = programmed(memory_cycles=3)
    a_peer_sends_nothing(gpu)
    gpu.run(100)
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    for turn in range(8):
        moves(gpu, turn)
        gpu.run(WATCHDOG_PERIOD - 40)
    assert gpu.error() is None
    gpu.run(4 * WATCHDOG_PERIOD)
    assert gpu.error()["code"] == "watchdog"


@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_write_that_dram_performs_is_movement(channel):
    """In each channel a read waits for eight writes of its line, performed slowly: no hang."""
    gpu = programmed(memory_cycles=1 << 40)
    gpu.program(gpu.driver.dma_map(DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64,
                                   columns=1, pitch_bytes=64, updates_per_element=8))
    gpu.dispatch(0, tiles=1)
    for _ in range(8):
        gpu.access("compute", in_channel(channel), 64, region=DMA_REGION)
    gpu.run(100)
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    writes = gpu.in_memory[channel]
    for number, (_, bucket) in enumerate([*writes]):
        writes[number] = gpu.cycle + (2 * WATCHDOG_PERIOD - 40) * (number + 1), bucket
    while writes:
        gpu.run(1)
        assert not gpu.get("irq")
    gpu.run(10)
    assert len(gpu.dram) == 9 and gpu.dram[8]["op"] == READ


def test_other_kernels_are_no_hang_however_they_wait():
    """Their reads fill a channel for long while Track & Trigger waits for nothing."""
    gpu = programmed()
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    for _ in range(20):
        for _ in range(300):
            gpu.access("compute", BASE, 64, op=READ)
        gpu.run(200)
    assert gpu.waiting[f"compute[{channel_of(BASE, GEOMETRY)}]"] and gpu.error() is None


@pytest.mark.parametrize("more", [0, 1])
def test_no_read_passes_more_writes_than_the_guard_can_count(more):
    """Attack: a count at its end. A tile's writes of one line are accepted, and DRAM performs none of them."""
    gpu = programmed()
    gpu.blocked = {"retirement"}
    writes = (2 << GEOMETRY.channel.occupancy_bits) - 1 + more
    gpu.program(gpu.driver.dma_map(6, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64, columns=1,
                                   pitch_bytes=64, updates_per_element=writes))
    gpu.dispatch(0, tiles=1)
    gpu.run(30)
    for _ in range(writes):
        gpu.access("compute", BASE + 64, 64, region=6)
    gpu.run(writes + 400)
    assert len(gpu.dram) == writes - more and all(command["op"] != READ for command in gpu.dram)
    gpu.blocked = set()
    gpu.run(writes + 400)
    assert [command["op"] for command in gpu.dram[writes:]] == [READ] and gpu.error() is None
