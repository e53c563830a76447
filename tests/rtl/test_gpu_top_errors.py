"""Errors of the wired GPU: each with its details, all counted, and nothing unlawful written or sent."""

from collections import Counter

import pytest

from t3sim.cosim.driver.driver import Destination
from t3sim.rtl.address_map import channel_of
from t3sim.rtl.registers import WATCHDOG_PERIOD
from tests.support.gpu import (
    BASE,
    CHANNELS,
    COLUMNS,
    DMA,
    DMA_REGION,
    EVENT_REGION,
    GEOMETRY,
    INTERLEAVE,
    LANES,
    LIMIT,
    LOCAL,
    PEER,
    PITCH,
    READ,
    REMOTE,
    REMOTE_REGION,
    ROW,
    STORE,
    THERE,
    UPDATE,
    in_channel,
    lines,
    mappings,
    outline,
    play_a_tile,
    programmed,
)

pytestmark = pytest.mark.builds_rtl


def test_the_first_error_stays():
    """A second error changes neither code nor details until the first is cleared."""
    gpu = programmed()
    gpu.access("compute", BASE, 64, region=9, wf=3, wg=77)
    gpu.run(60)
    expected = {"code": "region_unconfigured", "wg": 77, "wf": 3, "region": 9, "address": BASE}
    assert gpu.error() == expected and "error" in gpu.status() and gpu.get("irq")
    gpu.access("inbound", BASE, 64, region=9, wf=4, wg=78)  # another, later
    gpu.run(60)
    assert gpu.error() == expected
    gpu.program(gpu.driver.clear_error())
    assert gpu.error() is None and "error" not in gpu.status() and not gpu.get("irq")


def test_errors_of_one_cycle_are_all_counted():
    """Attack: two things in one cycle. All lanes report at once, and COUNT_ERRORS has them all."""
    gpu = programmed()
    for lane in range(LANES):
        gpu.waiting[f"outbound[{lane}]"].append(
            {"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL, "region": 9, "wf": 1, "wg": lane})
    gpu.run(20)
    assert gpu.counters()["errors"] == LANES and gpu.error()["wg"] == 0 and "error_overflow" in gpu.status()


UNLAWFUL = {
    "outside of what is open": {"address": BASE - 64}, "behind it": {"address": LIMIT - 63 + 64},
    "into the next line": {"address": BASE + 32}, "into the next channel": {"address": BASE + INTERLEAVE - 96},
    "region 0": {"region": 0}, "a region that peers do not write": {"region": DMA_REGION},
    "a region that is not mapped": {"region": 9}, "a region that is not tracked": {"region": 10},
    "no bytes": {"bytes": 0}, "127 bytes": {"bytes": 127},
    "a read": {"op": READ}, "in this GPU's name": {"source": LOCAL}, "a workgroup outside the window": {"wg": 1 << 15},
}


@pytest.mark.parametrize("what", UNLAWFUL)
def test_an_arrival_that_is_not_lawful_is_neither_written_nor_counted(what):
    """One packet for each reason among lawful ones: the error has its details, the others arrive."""
    gpu = programmed()
    gpu.program([gpu.driver._entry_write("region", 10, "REGION_ACTIONS", send_stores=1, arrivals=1)])
    lawful = {"address": BASE, "bytes": 64, "op": UPDATE, "source": DMA, "region": EVENT_REGION, "wf": 5, "wg": 3}
    for number, packet in enumerate((lawful, lawful | UNLAWFUL[what], lawful)):
        gpu.waiting[f"inbound[{channel_of(packet['address'], GEOMETRY)}]"].append(packet)
        gpu.run(60)
        assert len(gpu.dram) == (1, 1, 2)[number] and gpu.counters()["arrivals_refused"] == (0, 1, 1)[number]
    packet = lawful | UNLAWFUL[what]
    assert gpu.error() == {name: packet[name] for name in ("address", "region", "wf", "wg")} | {
        "code": "arrival_refused"}
    assert gpu.counters()["errors"] == 1 and gpu.counters()["updates"] == 2
    assert gpu.busy() == {"tracker_occupied"}


def test_refused_arrivals_of_all_channels_are_counted():
    """Ten per channel: none reaches DRAM or the Tracker, and the counter has all of them."""
    gpu = programmed()
    for number in range(10 * CHANNELS):
        gpu.access("inbound", BASE + number * GEOMETRY.channel.interleave_bytes, 64, source=REMOTE, region=2)
    gpu.run(200)
    assert not gpu.dram and not any(gpu.waiting.values())
    assert gpu.counters()["arrivals_refused"] == 10 * CHANNELS and "error_overflow" in gpu.status()


def test_what_is_refused_shows_in_the_next_cycle_by_channel(seed):
    """Checked in every cycle with all channels busy, because models discard a request by it."""
    gpu = programmed(seed=seed, idle=0.3)
    rng, told = gpu.random, 0

    def firsts() -> list[dict | None]:
        return [next(iter(gpu.waiting[f"inbound[{c}]"]), None) for c in range(CHANNELS)]
    for _ in range(40 * CHANNELS):
        address = BASE + rng.randrange((LIMIT - BASE) // 64) * 64
        gpu.access("inbound", address, 64, source=REMOTE, region=rng.choice((EVENT_REGION, 0, 9)), wg=rng.randrange(8))
    for _ in range(400):
        before = firsts()
        gpu.run(1)
        refused = [c for c, (first, next_one) in enumerate(zip(before, firsts()))
                   if first is not next_one and first["region"] != EVENT_REGION]
        assert gpu.get("refused") == sum(1 << c for c in refused)
        told += len(refused)
    assert told == gpu.counters()["arrivals_refused"] > 10 * CHANNELS and not any(gpu.waiting.values())


def test_arrivals_of_every_channel_are_checked():
    """Each reason in each of 8 channels, after the first workgroups have finished: error, DRAM, counter."""
    gpu = programmed()
    for wg in range(2):
        play_a_tile(gpu, wg)
    written, refused = len(gpu.dram), 0
    for c in range(CHANNELS):
        lawful = {"address": BASE + c * INTERLEAVE, "bytes": 64, "op": UPDATE, "source": DMA, "region": EVENT_REGION,
                  "wf": 5, "wg": 3}
        for wrong in ({"address": BASE - (c + 1) * INTERLEAVE}, {"address": LIMIT + c * INTERLEAVE}, {"region": 9},
                      {"region": DMA_REGION}, {"wg": 1}, {"wg": 2 + gpu.driver.largest_window(8)}, {"wg": 1 << 15}):
            packet = lawful | wrong
            gpu.waiting[f"inbound[{channel_of(packet['address'], GEOMETRY)}]"].append(packet)
            refused += 1
            gpu.run(30)
            assert gpu.error() == {name: packet[name] for name in ("address", "region", "wf", "wg")} | {
                "code": "arrival_refused"}
            gpu.program(gpu.driver.clear_error())
        gpu.waiting[f"inbound[{channel_of(lawful['address'], GEOMETRY)}]"].append(lawful)
        gpu.run(30)
    assert len(gpu.dram) == written + CHANNELS and gpu.counters()["arrivals_refused"] == refused
    assert gpu.error() is None


@pytest.mark.parametrize("op", [STORE, UPDATE])
@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_store_of_this_gpu_that_is_not_of_one_line_is_refused(channel, op):
    """Attack: corner widths. 0 to 127 bytes across line and block ends, in every channel; compute never waits."""
    gpu, line = programmed(), in_channel(channel) // 64 * 64
    refused, written = [], []
    for offset, size in [(0, 0), (63, 0), (0, 65), (0, 127), (63, 2), (32, 33), (1, 64), (63, 1), (0, 64), (32, 32)]:
        lawful = 0 < size <= 64 - offset
        (written if lawful else refused).append((line + offset, size))
        gpu.access("compute", line + offset, size, op=op, region=EVENT_REGION, wf=3, wg=2)
        gpu.run(20)
        assert gpu.error() == (None if lawful else {
            "code": "store_refused", "wg": 2, "wf": 3, "region": EVENT_REGION, "address": line + offset})
        gpu.program(gpu.driver.clear_error())
    gpu.run(60)
    assert [(write["address"], write["bytes"]) for write in gpu.dram] == written and not any(gpu.waiting.values())
    assert gpu.counters()["errors"] == len(refused)
    assert gpu.counters()["updates"] + gpu.counters()["coalesced"] == len(written)
    for ordinary in ({"region": 0, "op": op}, {"region": EVENT_REGION, "op": READ}):  # no tile counts them
        gpu.access("compute", line + 32, 64, **ordinary)
    gpu.run(20)
    assert len(gpu.dram) == len(written) + 2 and gpu.error() is None


def test_stores_that_are_refused_in_one_cycle_are_told_by_the_lowest_channel():
    """Attack: two things in one cycle. One report for four channels."""
    gpu = programmed()
    for channel in range(CHANNELS):
        gpu.access("compute", in_channel(channel), 65, region=EVENT_REGION, wg=channel)
    gpu.run(20)
    assert gpu.error()["wg"] == 0 and "error_overflow" in gpu.status() and not gpu.dram
    assert gpu.counters()["errors"] == CHANNELS // 4


def test_no_read_overtakes_a_store_into_the_next_block():
    """Attack: corner widths. The store across a block's end is refused, so its tile is not sent incomplete."""
    gpu = programmed()
    gpu.blocked = {"retirement"}
    gpu.program(gpu.driver.dma_map(6, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64, columns=1,
                                   pitch_bytes=64, updates_per_element=1))
    gpu.dispatch(0, tiles=2)
    gpu.access("compute", BASE // INTERLEAVE * INTERLEAVE + INTERLEAVE - 32, 64, region=6, wf=0)
    gpu.run(200)
    assert gpu.error()["code"] == "store_refused" and not gpu.dram


def test_eight_bytes_of_a_peer_stop_nothing():
    """A peer's stray bytes are refused. Partial tiles that fill a set cost the next tile an error; others go on."""
    gpu = programmed()
    t = GEOMETRY.tracker
    for number in range(1, t.ways + 1):  # foreign workgroups never reach the Tracker
        gpu.access("inbound", BASE, 1, source=DMA, region=EVENT_REGION, wg=t.sets * number)
    gpu.run(100)
    assert gpu.counters()["arrivals_refused"] == t.ways and not gpu.busy()
    for number in range(1, t.ways + 1):  # from here they do
        gpu.access("compute", BASE, 1, region=EVENT_REGION, wg=t.sets * number)
    gpu.run(100)
    gpu.program(gpu.driver.clear_error())
    gpu.access("compute", BASE, 64, region=EVENT_REGION)
    gpu.access("compute", BASE, 64, region=EVENT_REGION, wg=1)
    gpu.run(100)
    assert gpu.error() == {"code": "tracker_full", "wg": 0, "wf": 0, "region": EVENT_REGION, "address": BASE}
    assert gpu.counters()["set_full"] == 1 and gpu.busy() == {"tracker_occupied"} and not any(gpu.waiting.values())
    assert gpu.counters()["updates"] == t.ways + 2


def test_full_sets_of_several_banks_are_all_counted():
    """Each bank refuses an update of every channel, several banks in one cycle."""
    gpu, t = programmed(), GEOMETRY.tracker
    for bank in range(t.banks):
        for number in range(1, t.ways + 1):
            gpu.access("compute", BASE, 1, region=EVENT_REGION, wg=bank + t.sets * number)
    gpu.run(300)
    for c in range(CHANNELS):
        for turn in range(t.banks):
            gpu.access("compute", BASE + c * INTERLEAVE, 64, region=EVENT_REGION, wg=(c + turn) % t.banks)
    gpu.run(200)
    assert gpu.counters()["set_full"] == t.banks * CHANNELS


@pytest.mark.parametrize("wg", range(GEOMETRY.tracker.banks))
def test_an_arrival_under_another_tiles_region_does_not_make_a_tile_fire(wg):
    """A region with a quarter of the threshold, also open to arrivals; tried in each bank."""
    gpu, other = programmed(), 5
    gpu.program(gpu.driver.event_map(other, base=BASE, limit=LIMIT, tile_bytes=ROW * COLUMNS // 2,
                                     updates_per_element=1, arrivals=[0]))
    for before in range(wg):
        gpu.dispatch(before, tiles=0)
    gpu.dispatch(wg, tiles=1)
    for address, size in list(lines())[:4]:
        gpu.access("compute", address, size, region=DMA_REGION, wg=wg)
    gpu.run(100)
    for _ in range(4):
        gpu.access("inbound", BASE + 4096, 64, source=DMA, region=other, wg=wg)
        gpu.run(60)
        assert gpu.error() == {"code": "region_mismatch", "wg": wg, "wf": 0, "region": other, "address": BASE + 4096}
    assert gpu.counters()["errors"] == 4 and gpu.counters()["triggers"] == 0
    for address, size in list(lines())[4:]:
        gpu.access("compute", address, size, region=DMA_REGION, wg=wg)
    for address, size in lines():
        gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wg=wg)
    gpu.run(300)
    assert outline([command for command in gpu.dram if command["op"] == READ], "address", "bytes") == Counter(lines())
    assert gpu.get("head") == wg + 1


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_wavefront_that_no_workgroup_has_leaves_nothing(tiles, missing):
    """Attack: a lying peer. All bytes of such a tile, or all but a line: nothing stays in Tracker or memory.

    A complete tile would leave the Tracker again; one that lacks a line would stay.
    """
    gpu = programmed()
    gpu.program(gpu.driver.window(tiles))
    gpu.dispatch(0, tiles=tiles)
    gpu.run(60)
    for wf in range(tiles, 8):
        for address, size in (2 * list(lines()))[missing:]:
            gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wf=wf)
    gpu.run(600)
    assert (gpu.error()["code"], gpu.error()["wg"], gpu.error()["wf"]) == ("arrival_refused", 0, tiles)
    assert not gpu.dram and not gpu.events and gpu.get("head") == 0 and gpu.busy() == {"window_open"}
    gpu.program(gpu.driver.clear_error())
    for wf in range(tiles):
        for address, size in 2 * list(lines()):
            gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wf=wf)
    gpu.run(900)
    assert [event["wf"] for event in gpu.events] == list(range(tiles)) and gpu.get("head") == 1
    assert not gpu.busy() and gpu.error() is None
    gpu.restart()
    assert gpu.error() is None, "something of the kernel is inside"


@pytest.mark.parametrize("side, source", [("compute", LOCAL), ("inbound", DMA)])
def test_bytes_of_a_tile_that_its_workgroup_does_not_have_stay_until_it_is_whole_or_reset(side, source):
    """STATUS and watchdog show them, and no restart is accepted."""
    gpu = programmed()
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    tile = 2 * list(lines())

    def send(some, **ids):
        for address, size in some:
            gpu.access(side, address, size, source=source, region=EVENT_REGION, **ids)
        gpu.run(300)
    gpu.dispatch(0, tiles=1)
    gpu.dispatch(1, tiles=1)
    gpu.run(60)
    for wg in range(2):
        send(tile[1:], wf=7, wg=wg)
    send(tile, wf=0, wg=0)
    assert gpu.get("head") == 1 and [event["wf"] for event in gpu.events] == [0]
    send(tile[:1], wf=7, wg=1)
    assert gpu.error() == {"code": "completion_unexpected", "wg": 1, "wf": 7, "region": EVENT_REGION, "address": BASE}
    gpu.program(gpu.driver.clear_error())
    send(tile, wf=0, wg=1)
    assert gpu.get("head") == 2 and len(gpu.events) == 2 and gpu.busy() == {"tracker_occupied"}
    gpu.run(4 * WATCHDOG_PERIOD)
    assert gpu.error()["code"] == "watchdog" and gpu.driver.waiting(gpu.bus.read) == ["tiles"]
    gpu.program(gpu.driver.clear_error() + gpu.driver.restart(2))
    assert gpu.error()["code"] == "restart_refused"
    gpu.program(gpu.driver.clear_error())
    gpu.soft_reset()
    assert gpu.busy() == {"reset_done"}
    gpu.restart(1)
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    play_a_tile(gpu)


def test_a_tile_that_its_workgroup_does_not_have_does_not_finish_it():
    """A workgroup at the edge has fewer tiles; completing another wavefront does not count as one of them."""
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    gpu.run(60)
    for wf, head in ((7, 0), (0, 1)):
        for address, size in 2 * list(lines()):
            gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wf=wf)
        gpu.run(300)
        assert gpu.get("head") == head
    assert gpu.error()["code"] == "completion_unexpected" and gpu.error()["wf"] == 7


@pytest.mark.parametrize("side, source", [("compute", LOCAL), ("inbound", DMA)])
@pytest.mark.parametrize("tiles", [1, 2, 4, 7])
def test_a_tile_that_its_workgroup_does_not_have_goes_nowhere(tiles, side, source):
    """Workgroups of 1, 2, 4 and 7 tiles: no event or read for it; the real tiles go on, before and after."""
    gpu = programmed()
    gpu.program(gpu.driver.unmap(DMA_REGION) + gpu.driver.dma_map(
        DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64, columns=1, pitch_bytes=64,
        updates_per_element=1, event=True, arrivals=[0]) + gpu.driver.clear_counters())
    gpu.dispatch(0, tiles=tiles)
    gpu.dispatch(1, tiles=8)
    gpu.run(60)
    for wf in (*range(tiles, 8), *range(tiles), *range(tiles, 8)):
        gpu.access(side, BASE + 64 * wf, 64, source=source, region=DMA_REGION, wf=wf)
        gpu.access(side, BASE + 64 * wf, 64, source=source, region=DMA_REGION, wf=wf, wg=1)
    gpu.run(300)
    its = Counter([*((0, wf) for wf in range(tiles)), *((1, wf) for wf in range(8)),
                   *((1, wf) for wf in range(tiles, 8))])
    assert outline(gpu.events, "wg", "wf") == its
    assert outline([command for command in gpu.dram if command["op"] == READ], "wg", "wf") == its
    assert gpu.error()["code"] == "completion_unexpected" and gpu.error()["wg"] == 0 and gpu.error()["wf"] >= tiles
    assert gpu.get("head") == 2 and gpu.busy() == {"reads_outstanding"}


def test_a_workgroup_that_is_finished_takes_no_more_arrivals():
    """A packet for it is refused with its details and not written."""
    gpu = programmed()
    play_a_tile(gpu, 0)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION, wg=0)
    gpu.run(60)
    assert gpu.error()["code"] == "arrival_refused" and not gpu.busy()


def test_ids_are_opened_out_of_order_but_once():
    """Opening an id a second time is an error with its details; the head waits for the smallest."""
    gpu = programmed()
    for wg in (2, 0, 1):
        gpu.dispatch(wg, tiles=1)
    gpu.run(20)
    assert not gpu.held and gpu.error() is None
    gpu.dispatch(2, tiles=1)
    gpu.run(20)
    assert gpu.error()["code"] == "id_reused" and gpu.error()["wg"] == 2


def test_a_tile_with_too_many_bytes():
    """Bytes past the threshold are an error with workgroup, wavefront, region and address."""
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    for size in (*[64] * (2 * ROW * COLUMNS // 64 - 1), 32, 64):
        gpu.access("compute", BASE + 64, size, region=EVENT_REGION, wf=2)
    gpu.run(200)
    assert not gpu.events and gpu.busy() == {"window_open"}
    error = gpu.error()
    assert (error["code"], error["wg"], error["wf"], error["region"]) == ("threshold_exceeded", 0, 2, EVENT_REGION)


def test_accesses_that_join_are_counted_in_every_channel():
    """COUNT_COALESCED grows by the accesses joined in each channel."""
    gpu = programmed()
    for c in range(CHANNELS):
        for _ in range(3):
            gpu.access("compute", BASE + c * INTERLEAVE, 16, region=EVENT_REGION, wg=c)
    gpu.run(100)
    assert gpu.counters()["coalesced"] == 2 * CHANNELS and gpu.counters()["updates"] == CHANNELS


def test_a_tile_for_a_workgroup_that_never_started():
    """Its completion is an error and moves no head."""
    gpu = programmed()
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=EVENT_REGION, wg=4)
    gpu.run(200)
    assert gpu.events == [{"address": BASE, "region": EVENT_REGION, "wf": 0, "wg": 4}]
    assert gpu.error() == {"code": "completion_unexpected"} | gpu.events[0]


def test_a_block_that_leaves_its_region():
    """The line outside is an error; only lines inside are read."""
    gpu = programmed()
    start = LIMIT - 2 * PITCH - 64
    gpu.dispatch(0, tiles=1)
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", start, 64, region=DMA_REGION)
    gpu.run(300)
    reads = [command for command in gpu.dram if command["op"] == READ]
    inside = Counter((address, size) for address, size in lines(start) if address + size <= LIMIT)
    assert outline(reads, "address", "bytes") == inside and 0 < len(reads) < 12
    assert gpu.error()["code"] == "address_out_of_range" and gpu.error()["region"] == DMA_REGION
    assert gpu.error()["address"] >= LIMIT


@pytest.mark.parametrize("source, region", [(LOCAL, DMA_REGION), (REMOTE, REMOTE_REGION), (LOCAL, EVENT_REGION)])
@pytest.mark.parametrize("lane", range(LANES))
def test_a_line_that_must_not_leave(source, region, lane):
    """A line whose region sends nothing of its source is an error and no packet."""
    gpu = programmed()
    gpu.waiting[f"outbound[{lane}]"].append(
        {"address": BASE, "bytes": 64, "op": UPDATE, "source": source, "region": region, "wf": 1, "wg": 2})
    gpu.run(20)
    assert not gpu.packets
    assert gpu.error() == {"code": "region_unconfigured", "wg": 2, "wf": 1, "region": region, "address": BASE}


@pytest.mark.parametrize("region", [DMA_REGION, REMOTE_REGION, 0])
@pytest.mark.parametrize("lane", range(LANES))
def test_data_that_nobody_asked_for_do_not_leave(region, lane):
    """On one lane and on all at once, for regions that send or not: no packet, one error with details for each."""
    gpu = programmed()
    gpu.waiting[f"outbound[{lane}]"].append(
        {"address": BASE, "bytes": 64, "op": READ, "source": DMA, "region": region, "wf": 1, "wg": 2})
    gpu.run(20)
    assert not gpu.packets and not gpu.busy()
    assert gpu.error() == {"code": "data_unexpected", "wg": 2, "wf": 1, "region": region, "address": BASE}


@pytest.mark.parametrize("asked, sent", [(1, 2), (1, LANES), (2, LANES), (12, 13), (12, 12 + LANES)])
def test_no_more_data_leave_than_were_asked_for(asked, sent):
    """Data arrive on all lanes at once: as many packets as lines requested, and an error for each of the others."""
    gpu = programmed()
    gpu.program(gpu.driver.unmap(DMA_REGION) + gpu.driver.dma_map(
        DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64, columns=asked,
        pitch_bytes=PITCH, updates_per_element=1))
    gpu.dispatch(0, tiles=1)
    for column in range(asked):
        gpu.access("compute", BASE + column * PITCH, 64, region=DMA_REGION)
    gpu.run(200)
    reads = [command for command in gpu.dram if command["op"] == READ]
    assert len(reads) == asked and gpu.busy() == {"reads_outstanding"}
    for number in range(sent):
        gpu.waiting[f"outbound[{number % LANES}]"].append(
            {"address": BASE, "bytes": 64, "op": READ, "source": DMA, "region": DMA_REGION, "wf": 0, "wg": 0})
    gpu.run(50)
    assert len(gpu.packets) == asked and not gpu.busy() and not any(gpu.waiting.values())
    assert gpu.error()["code"] == "data_unexpected" and gpu.counters()["errors"] == sent - asked
    gpu.program(gpu.driver.clear_error() + mappings(gpu.driver) + gpu.driver.clear_counters())
    play_a_tile(gpu, 1)


def test_refused_lines_of_dma_do_not_hold_the_next_ones_up():
    """A region is unmapped while its data are under way, repeatedly; engines still request every later line."""
    gpu = programmed()
    tiles = GEOMETRY.dma.outstanding_lines // 10
    mapping, unmapping = mappings(gpu.driver), gpu.driver.unmap(DMA_REGION)
    for wg in range(tiles):
        gpu.program(mapping)
        gpu.dispatch(wg, tiles=1)
        for side, region, source in (("compute", DMA_REGION, LOCAL), ("inbound", EVENT_REGION, REMOTE)):
            for address, size in lines():
                gpu.access(side, address, size, region=region, source=source, wg=wg)
        gpu.run(200)
        reads = [command for command in gpu.dram if command["op"] == READ]
        assert len(reads) == 12 * (wg + 1), f"workgroup {wg} of {tiles}"
        gpu.program(unmapping)
        for number, read in enumerate(reads[-12:]):
            gpu.waiting[f"outbound[{number % LANES}]"].append(
                {name: read[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg")})
        gpu.run(50)
    assert not gpu.packets and gpu.error()["code"] == "region_unconfigured" and not gpu.busy()


def test_errors_after_the_first_are_counted_and_show():
    """STATUS shows that more followed, and the counter has their number."""
    gpu = programmed()
    for wg in range(3):
        assert ("error_overflow" in gpu.status()) == (wg > 1)
        gpu.access("compute", BASE, 64, region=9, wg=wg)
        gpu.run(60)
    assert gpu.error()["wg"] == 0 and gpu.counters()["errors"] == 3
    gpu.program(gpu.driver.clear_error())
    assert "error_overflow" not in gpu.status()
