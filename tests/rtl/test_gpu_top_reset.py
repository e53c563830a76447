"""Soft reset and restart of the wired GPU: they end, forget what they must, and take no old head."""

import random
from collections import Counter, deque

import pytest

from t3sim.cosim.driver.driver import Destination
from t3sim.rtl.address_map import channel_of
from t3sim.rtl.registers import KERNEL_INSIDE, NO_THRESHOLD
from t3sim.testbenches.reference.dispatch_window import Request
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
    Gpu,
    came_out,
    complete,
    lines,
    mappings,
    play_a_tile,
    programmed,
    random_traffic,
)

pytestmark = pytest.mark.builds_rtl

# Soft reset


def forced(gpu: Gpu, go_on=lambda gpu: None) -> Gpu:
    """A soft reset with a limit of 4,096 cycles, which must end with its error and not before."""
    gpu.program(gpu.driver.clear_error() + gpu.driver.soft_reset(2000, limit_cycles=4096))
    for _ in range(4):
        go_on(gpu)
        gpu.run(800)
        assert "resetting" in gpu.status()
    gpu.program(gpu.driver.clear_error())
    gpu.run(1200)
    assert "reset_done" in gpu.status() and gpu.error()["code"] == "reset_forced"
    gpu.program(gpu.driver.clear_error() + gpu.driver.clear_counters())
    gpu.returning = None
    gpu.restart()
    return gpu.run(2 * GEOMETRY.tracker.window_slots)


def test_a_soft_reset_ends_though_data_never_come():
    """Lost read data: the reset is forced at its limit with an error, and the next kernel is as new."""
    gpu = programmed()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    assert "reads_outstanding" in gpu.status()
    play_a_tile(forced(gpu))


def test_a_soft_reset_ends_though_a_peer_sends_what_it_may_not():
    """A peer goes on sending unlawful packets: the reset is forced at its limit, the next kernel is as new."""
    def unlawful(gpu: Gpu) -> None:
        gpu.access("inbound", BASE, 64, source=DMA, region=9)
    play_a_tile(forced(programmed(), unlawful))


def test_data_that_nobody_asked_for_are_an_error_and_hold_up_no_reset():
    """One line on every lane: no packet, an idle STATUS, and the next kernel is as new."""
    gpu = programmed()
    stray = {"address": BASE, "bytes": 64, "op": READ, "source": DMA, "region": DMA_REGION, "wf": 0, "wg": 0}
    for lane in range(LANES):
        gpu.waiting[f"outbound[{lane}]"].append(stray)
    gpu.run(50)
    assert gpu.error()["code"] == "data_unexpected" and not gpu.busy() and not gpu.packets
    gpu.program(gpu.driver.clear_error())
    gpu.soft_reset()
    gpu.program(gpu.driver.clear_counters())
    gpu.restart()
    play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))


def test_a_soft_reset_that_is_forced_still_counts_what_the_link_has_not_taken():
    """Data that wait in the lanes leave later without an error, and are not taken for the next kernel's."""
    gpu = programmed()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    gpu.blocked = {"packets"}
    data = [{name: read[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg")}
            for read in gpu.dram if read["op"] == READ]
    for lane in range(LANES):
        gpu.waiting[f"outbound[{lane}]"] += data[2 * lane:2 * lane + 2]
    gpu.run(50)
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=1024))
    gpu.run(1200)
    assert gpu.error()["code"] == "reset_forced" and {"reads_outstanding", "egress_busy"} <= gpu.status()
    gpu.program(gpu.driver.clear_error())
    gpu.blocked = set()
    gpu.run(50)
    assert gpu.busy() == {"reset_done"} and gpu.error() is None and len(gpu.packets) == 2 * LANES
    gpu.waiting["outbound[0]"].append(data[-1])  # comes after all
    gpu.run(50)
    assert gpu.error()["code"] == "data_unexpected" and len(gpu.packets) == 2 * LANES
    gpu.program(gpu.driver.clear_error() + gpu.driver.clear_counters())
    gpu.restart()
    play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))


def test_a_soft_reset_without_a_limit_waits():
    """It waits until a second soft reset gives a limit, and ends then with `reset_forced`."""
    gpu = programmed()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=None))
    gpu.run(6000)
    assert "resetting" in gpu.status() and gpu.error() is None
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=1024)[:1])  # one that is over already
    assert gpu.run(5).error()["code"] == "reset_forced"


# Restart


@pytest.mark.parametrize("before, number, refused", [
    (5, 5, True), (5, 4, True), (5, 0, True), (5, 6, False), (5, 132, False), (5, 133, True), (255, 1, False),
    (255, 127, False), (255, 128, True), (1, 255, True)])
def test_a_restart_whose_number_does_not_follow_is_refused(before, number, refused):
    """Not 0, not the current one, not a past one: otherwise peers that have not restarted would count as restarted."""
    gpu = programmed()
    for kernel in sorted({100, 200, before}) if before > 128 else [before] * (before != 1):
        gpu.restart(kernel)
        gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert gpu.error() is None
    gpu.dispatch(0, tiles=0)
    gpu.run(20)
    assert gpu.get("head") == 1
    gpu.program([gpu.driver._write("EPOCH", epoch=number), gpu.driver._write("CONTROL", restart=1)])
    assert gpu.get("head") == refused
    assert (gpu.error() and gpu.error()["code"]) == ("restart_refused" if refused else None)


def refused_restart(gpu: Gpu) -> None:
    """Of the same kernel's number, or when none may come."""
    gpu.program([gpu.driver._write("CONTROL", restart=1)])
    assert gpu.error()["code"] == "restart_refused"
    gpu.program(gpu.driver.clear_error())


def test_a_restart_that_is_refused_leaves_what_the_monitor_measured():
    """Its threshold stays chosen."""
    gpu = measured()
    refused_restart(gpu)
    assert "monitor_done" in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == 3


def test_a_restart_that_is_refused_leaves_the_groups_that_are_ready():
    """Groups that were ready are still ready."""
    gpu = programmed()
    gpu.program(gpu.driver.ready_table(1))
    gpu.restart()
    play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))
    refused_restart(gpu)
    gpu.put_fields("asks.payload", {"group": 0, "tiles": 1})
    gpu.put("asks.valid", 1)
    assert any(gpu.run(1).get("asks.ready") for _ in range(6))


def test_a_restart_beside_a_soft_reset_is_refused():
    """Both in one write; a peer hears of the soft reset only."""
    gpu = programmed()
    gpu.program(gpu.driver.heads(9, sends_to=(), receives_from=(4,)))
    gpu.run(50)
    gpu.heads.clear()
    gpu.program([gpu.driver._write("EPOCH", epoch=gpu.kernel + 1),
                 gpu.driver._write("CONTROL", soft_reset=1, restart=1)])
    assert gpu.error()["code"] == "restart_refused" and "resetting" in gpu.status()
    gpu.run(50)
    assert [head["epoch"] for head in gpu.heads] == [0]


def test_a_peer_that_was_never_heard_has_not_restarted():
    """A workgroup that reaches the peer waits until its first head arrives."""
    gpu = programmed()
    gpu.dispatch(0, tiles=1, there=1)
    gpu.run(100)
    assert gpu.held == 1 and gpu.status() >= {"dispatch_blocked"}
    gpu.hear(0)
    gpu.run(20)
    assert not gpu.held
    gpu = Gpu()  # in no kernel, as the peer
    gpu.program(mappings(gpu.driver))
    gpu.dispatch(0, tiles=1, there=1)
    gpu.run(100)
    assert gpu.held == 1


def test_a_restart_that_comes_too_early_begins_nothing():
    """No peer hears of the new kernel, so none sends data that would be lost; the soft reset goes on."""
    gpu = programmed()
    gpu.program(gpu.driver.heads(9, sends_to=(1,), receives_from=(4,)))
    gpu.run(50)
    gpu.heads.clear()
    gpu.program(gpu.driver.soft_reset(3000))
    gpu.run(50)
    gpu.program(gpu.driver.restart(2))
    gpu.run(100)
    assert gpu.error()["code"] == "restart_refused" and "resetting" in gpu.status()
    gpu.run(4000)
    assert "reset_done" in gpu.status() and [(one["head"], one["epoch"]) for one in gpu.heads] == [(0, 0)]
    gpu.program(gpu.driver.clear_error() + gpu.driver.restart(2))
    gpu.run(100)
    assert gpu.error() is None and "reset_done" not in gpu.status() and gpu.heads[1:][0]["epoch"] == 2


def test_a_restart_with_a_tile_in_the_tracker_is_refused():
    """Error `restart_refused`; STATUS still shows the occupied Tracker."""
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION, wf=7)
    gpu.run(100)
    gpu.restart()
    assert gpu.error()["code"] == "restart_refused" and gpu.busy() == {"tracker_occupied", "window_open"}


def a_store_behind_another_kernels(gpu: Gpu) -> None:
    """DRAM takes nothing: the tracked one is the last in its channel."""
    gpu.blocked = {"dram"}
    for region in (0, 0, EVENT_REGION):
        gpu.access("compute", BASE, 64, op=STORE, region=region)


def an_arrival_behind_another(gpu: Gpu) -> None:
    gpu.program(gpu.driver.plain_arrivals([0]))
    gpu.blocked = {"dram"}
    for region in (0, 0, EVENT_REGION):
        gpu.access("inbound", BASE, 64, op=STORE, source=REMOTE, region=region)


def complete_tiles_whose_events_nobody_takes(gpu: Gpu) -> None:
    """They fill the event queue, then the queue of merged triggers: the Tracker is empty (p03)."""
    gpu.blocked = {"events"}
    complete(gpu, 4, EVENT_REGION)


def one_event_that_nobody_takes(gpu: Gpu) -> None:
    gpu.blocked = {"events"}
    complete(gpu, 1, EVENT_REGION)


def complete_tiles_that_wait_for_engines(gpu: Gpu) -> None:
    """As many as engines hold and more; their data find no way out (p04)."""
    gpu.blocked = {"packets"}
    gpu.returning = deque()
    for wg in range(8):
        gpu.dispatch(wg, tiles=8)
        for wf in range(8):
            for address, size in 2 * list(lines(BASE + wf * COLUMNS * PITCH)):
                gpu.access("compute", address, size, region=DMA_REGION, wf=wf, wg=wg)


def reads_whose_data_do_not_come(gpu: Gpu) -> None:
    complete(gpu, 1, DMA_REGION)


def a_store_that_the_link_does_not_take(gpu: Gpu) -> None:
    gpu.blocked = {"packets"}
    gpu.waiting["outbound[1]"].append({"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL,
                                       "region": REMOTE_REGION, "wf": 0, "wg": 0})


#: What of a kernel can be inside without a tile that is partly updated, and what STATUS says of it.
LEFT_INSIDE = {
    a_store_behind_another_kernels: {"channels_hold"}, an_arrival_behind_another: {"channels_hold"},
    complete_tiles_whose_events_nobody_takes: {"events_busy", "merge_busy"},
    one_event_that_nobody_takes: {"events_busy"},
    complete_tiles_that_wait_for_engines: {"reads_outstanding", "egress_busy"},
    reads_whose_data_do_not_come: {"reads_outstanding"}, a_store_that_the_link_does_not_take: {"egress_busy"},
}


@pytest.mark.parametrize("left", LEFT_INSIDE, ids=lambda left: left.__name__)
def test_a_restart_with_anything_of_the_kernel_inside_is_refused(left):
    """Attack: reset in the middle. Each place that can hold something; once it is empty the restart is accepted."""
    gpu = programmed()
    left(gpu)
    gpu.run(4000 if left is complete_tiles_that_wait_for_engines else 500)
    inside = gpu.busy() & set(KERNEL_INSIDE)
    assert inside >= LEFT_INSIDE[left] and "tracker_occupied" not in inside
    kernel = gpu.read("EPOCH")
    gpu.restart()
    assert gpu.error()["code"] == "restart_refused" and inside == gpu.busy() & set(KERNEL_INSIDE)
    gpu.kernel = kernel
    gpu.program(gpu.driver.clear_error())
    gpu.blocked, gpu.returning = set(), deque()
    if left in (reads_whose_data_do_not_come, a_store_behind_another_kernels, an_arrival_behind_another):
        gpu.soft_reset() if left is not reads_whose_data_do_not_come else gpu.waiting["outbound[0]"].extend(
            {name: read[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg")}
            for read in gpu.dram if read["op"] == READ)
    gpu.run(6000 if left is complete_tiles_that_wait_for_engines else 400)
    assert not gpu.busy() & set(KERNEL_INSIDE)
    gpu.program(gpu.driver.clear_counters())
    gpu.restart()
    gpu.returning = None
    play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))


def test_a_restart_in_any_cycle_of_a_tiles_way_is_refused():
    """Attack: two things in one cycle. From the last byte's arrival to the event, and to the last packet."""
    for region, came in ((EVENT_REGION, "events"), (DMA_REGION, "packets")):
        for cycles in range(0, 60, 3):
            gpu = programmed(memory_cycles=3)
            gpu.returning = deque()
            one = {"base": BASE, "limit": LIMIT, "updates_per_element": 1}
            gpu.program([*gpu.driver.unmap(DMA_REGION),
                         *gpu.driver.event_map(EVENT_REGION, tile_bytes=1, arrivals=[], **one),
                         *gpu.driver.dma_map(DMA_REGION, to=[Destination(PEER, THERE)], row_bytes=1, columns=1,
                                             pitch_bytes=64, **one)])
            gpu.dispatch(0, tiles=1)
            gpu.run(20)
            gpu.access("compute", BASE, 1, region=region)
            gpu.run(1)
            for _ in range(cycles):
                gpu.run(1)
            before = len(getattr(gpu, came))
            gpu.restart()
            error = gpu.error()
            assert (error and error["code"]) == (None if before else "restart_refused"), (came, cycles)
        assert before, "it takes longer"


def test_a_restart_with_a_trigger_in_the_tracker_is_refused():
    """Events are blocked: the entry is free, but its trigger still waits."""
    gpu = programmed()
    gpu.blocked = {"events"}
    complete(gpu, 6, EVENT_REGION)
    gpu.run(300)
    assert "tracker_busy" in gpu.status() and "tracker_occupied" not in gpu.status()
    gpu.restart()
    assert gpu.error()["code"] == "restart_refused"


# Heads


@pytest.mark.parametrize("lie", [
    {"head": (1 << 17) - 1}, {"head": (1 << 16) + 1}, {"head": 3}, {"head": 60, "sender": 2},
    {"head": 60, "epoch": 255}, {"head": 60, "epoch": 0}], ids=str)
def test_a_head_that_the_peer_cannot_have_opens_no_window(lie):
    """Past the last id, backwards, of another sender, or of kernel 0 or 255: refused with its details."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=4) + gpu.driver.heads(9, sends_to=(1, 2), receives_from=()))
    gpu.hear(5, source=1)
    gpu.dispatch(0, tiles=1, there=20)
    gpu.hear(**{"source": 1} | lie)
    gpu.run(50)
    assert gpu.held == 1 and gpu.get("peer_heads[0]") == 5
    error = gpu.error()
    assert (error["code"], error["wg"], error["address"]) == ("head_refused", 1, lie["head"])
    gpu.hear(17, source=1)
    gpu.run(50)
    assert not gpu.held


def listened(gpu: Gpu, kernel: int) -> None:
    """A kernel with a head above 0, of which GPU 4 was told; then the link takes no heads."""
    gpu.program(gpu.driver.window(2, workgroups=3) + gpu.driver.heads(9, sends_to=(), receives_from=(4,)))
    gpu.restart(kernel)
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    gpu.dispatch(0, tiles=0)
    gpu.run(40)
    assert gpu.heads[-1] == {"head": 1, "epoch": kernel, "source": 9, "device": 4}
    gpu.blocked.add("heads")


@pytest.mark.parametrize("number", [1, 4, 5, 6, 140])
@pytest.mark.parametrize("limit", [None, 1024])
def test_a_peer_hears_of_a_soft_reset_before_the_next_kernel(number, limit):
    """Attack: reset of one side. The link takes no heads for 3,000 cycles; the next kernel may have any number."""
    gpu = programmed()
    listened(gpu, 5)
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=limit))
    gpu.run(3000)
    if limit is None:
        assert "resetting" in gpu.status() and "heads_busy" in gpu.status()
        gpu.blocked = set()
        gpu.run(200)
    else:
        assert gpu.error()["code"] == "reset_forced"
        gpu.program(gpu.driver.clear_error())
    assert "reset_done" in gpu.status()
    gpu.restart(number)
    gpu.run(200)
    gpu.blocked = set()
    gpu.run(100)
    assert gpu.error() is None
    assert [(head["head"], head["epoch"]) for head in gpu.heads if head["device"] == 4][-3:] == [
        (1, 5), (0, 0), (0, number)]


@pytest.mark.parametrize("quiet", [16, 500])
def test_a_soft_reset_ends_after_peers_have_heard_of_it(quiet):
    """The link takes its head after 700 cycles, and QUIET cycles more pass before `reset_done`."""
    gpu = programmed()
    listened(gpu, 5)
    gpu.program(gpu.driver.soft_reset(quiet))
    gpu.run(700)
    gpu.blocked = set()
    gpu.run(10)
    assert gpu.heads[-1]["epoch"] == 0
    gpu.run(quiet - 12)
    assert "resetting" in gpu.status()
    gpu.run(300)
    assert "reset_done" in gpu.status()


def test_a_workgroup_before_the_first_kernel_tells_no_head():
    """The window moves on, but a peer would refuse a head above 0 of no kernel."""
    gpu = Gpu()
    gpu.program(mappings(gpu.driver) + gpu.driver.heads(9, sends_to=(), receives_from=(4,)))
    gpu.dispatch(0, tiles=0)
    gpu.run(60)
    assert gpu.get("head") == 1
    gpu.restart(1)
    gpu.run(60)
    assert {(head["head"], head["epoch"]) for head in gpu.heads} == {(0, 0), (0, 1)} and gpu.error() is None


def test_a_restart_right_after_peers_were_written_is_accepted():
    """As a driver does it after a soft reset; both GPUs that are told hear of the kernel."""
    gpu = programmed()
    gpu.soft_reset()
    gpu.blocked.add("heads")
    gpu.program(gpu.driver.heads(9, sends_to=(), receives_from=(4, 5)))
    gpu.restart(1)
    assert gpu.error() is None
    gpu.blocked = set()
    gpu.run(40)
    assert {head["device"]: head["epoch"] for head in gpu.heads} == {4: 1, 5: 1}


# What a soft reset forgets


def test_a_soft_reset_forgets_a_tile_that_is_partly_updated():
    """A third of a tile is left by an aborted kernel; without the reset the next kernel's tile would trigger early."""
    gpu = programmed()
    gpu.dispatch(0, tiles=2)
    for address, size in list(lines())[:8]:
        gpu.access("compute", address, size, region=EVENT_REGION)
    gpu.run(100)
    assert gpu.busy() == {"tracker_occupied", "window_open"}
    gpu.soft_reset()
    window = gpu.driver.decode("WINDOW", gpu.read("WINDOW"))
    assert not gpu.busy() - {"reset_done"} and window == {"window": gpu.driver.largest_window(8), "tiles": 8}
    gpu.restart()
    play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))


def test_a_soft_reset_forgets_an_incomplete_block():
    """Half of a block's tiles before the reset and the other half after it give no command."""
    gpu = programmed()
    block = dict(base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64, columns=4,
                 pitch_bytes=PITCH, updates_per_element=1, tiles_per_block=4)
    for kernel, tiles, commands in ((0, (0, 2), 0), (1, (1, 3), 0), (1, (0, 2), 1)):
        if tiles[0] != 0 or kernel == 0:
            gpu.soft_reset()
            gpu.program(gpu.driver.dma_map(DMA_REGION, **block) + gpu.driver.clear_counters())
            gpu.restart()
            gpu.run(2 * GEOMETRY.tracker.window_slots)
            gpu.dispatch(0, tiles=4)
        for wf in tiles:
            gpu.access("compute", BASE + wf * PITCH, 64, region=DMA_REGION, wf=wf)
        gpu.run(200)
        assert gpu.counters()["commands"] == commands


def test_a_soft_reset_forgets_what_waits_for_the_events_to_be_taken():
    """Events are blocked until queue, merge and banks are full and updates wait before them. All are gone."""
    gpu = programmed()
    gpu.blocked = {"events"}
    banks = GEOMETRY.tracker.banks
    for wf in range(8):
        for number in range(2 * ROW * COLUMNS // 64):  # complete, all at about the same time
            for wg in range(banks):
                gpu.access("compute", BASE + number * INTERLEAVE, 64, region=EVENT_REGION, wf=wf, wg=wg)
    gpu.run(2000)
    assert {"tracker_busy", "tracker_occupied", "merge_busy", "events_busy"} <= gpu.status()
    gpu.soft_reset()
    assert gpu.busy() == {"reset_done"} and not gpu.get("events.valid") and not any(gpu.waiting.values())
    updates = gpu.counters()["updates"]
    gpu.run(300)
    assert gpu.counters()["updates"] == updates, "an update was kept"
    gpu.blocked = set()
    gpu.program(gpu.driver.clear_error() + gpu.driver.clear_counters())
    gpu.restart()
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert not gpu.events and not gpu.busy()
    for wg in range(banks + 1):
        play_a_tile(gpu, wg)


def test_a_soft_reset_forgets_what_waits_for_an_engine():
    """Packets are blocked until all reads are outstanding and every engine is full; waiting commands are gone."""
    gpu, tiles = programmed(memory_cycles=3), GEOMETRY.dma.outstanding_lines // 12 + 5 * GEOMETRY.dma.engines
    gpu.returning = deque()
    gpu.blocked = {"packets"}
    for wg in range(tiles):
        gpu.dispatch(wg, tiles=1)
        for _ in range(2 * ROW * COLUMNS // 64):
            gpu.access("compute", BASE + wg * INTERLEAVE, 64, region=DMA_REGION, wg=wg)
    gpu.run(8000)
    assert gpu.get("head") == tiles and {"dma_table_busy", "engines_busy"} <= gpu.status()
    gpu.blocked = set()
    gpu.soft_reset()
    assert gpu.busy() == {"reset_done"}
    before, gpu.returning = came_out(gpu), None
    gpu.program(gpu.driver.clear_counters())
    gpu.restart()
    gpu.run(1000)
    assert came_out(gpu)[:3] == before[:3] and not gpu.busy()
    play_a_tile(gpu)


def test_a_soft_reset_lets_an_engine_ask_for_no_more_lines():
    """A tile has 896 lines, of which 640 may be outstanding; no further line is read though data return."""
    gpu = programmed(memory_cycles=300)
    gpu.returning = deque()
    gpu.program(gpu.driver.dma_map(DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)],
                                   row_bytes=4096, columns=14, pitch_bytes=4096, updates_per_element=1))
    gpu.dispatch(0, tiles=1)
    for line in range(896):
        gpu.access("compute", BASE // 64 * 64 + 64 * line, 64, region=DMA_REGION)
    while not any(command["op"] == READ for command in gpu.dram):
        gpu.run(1)
    gpu.program(gpu.driver.soft_reset(16))
    asked = gpu.run(5).read("COUNT_LINES")
    gpu.run(3000)
    assert gpu.busy() == {"reset_done"} and gpu.read("COUNT_LINES") == asked < 640 and not gpu.packets


@pytest.mark.parametrize("side", ["compute", "inbound"])
@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_soft_reset_waits_for_tracked_writes(side, channel):
    """In each channel: a write that DRAM does not take keeps STATUS `resetting`."""
    gpu = programmed()
    gpu.blocked = {"dram"}
    address = next(at for at in range(BASE, LIMIT, INTERLEAVE) if channel_of(at, GEOMETRY) == channel)
    for _ in range(2):
        gpu.access(side, address, 64, region=EVENT_REGION, source=DMA if side == "inbound" else LOCAL)
    gpu.program(gpu.driver.soft_reset(16))
    gpu.run(1000)
    assert "resetting" in gpu.status()
    gpu.blocked = set()
    gpu.run(1000)
    assert gpu.busy() == {"reset_done"} and len(gpu.dram) == 2


@pytest.mark.parametrize("lane", range(LANES))
def test_a_soft_reset_waits_for_packets_and_makes_no_more(lane):
    """In each lane: a blocked packet keeps STATUS `resetting`; a later line makes no packet and no error."""
    gpu = programmed()
    store = {"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION, "wf": 1, "wg": 2}
    gpu.blocked = {"packets"}
    gpu.waiting[f"outbound[{lane}]"].append(store)
    gpu.run(20)
    gpu.program(gpu.driver.soft_reset(16))
    gpu.run(1000)
    assert {"resetting", "egress_busy"} <= gpu.status()
    gpu.blocked = set()
    gpu.run(1000)
    assert gpu.busy() == {"reset_done"} and len(gpu.packets) == 1
    gpu.waiting[f"outbound[{lane}]"].append(store)
    gpu.run(50)
    assert len(gpu.packets) == 1 and not any(gpu.waiting.values()) and gpu.error() is None


def test_a_stopped_gpu_writes_what_arrives_and_tracks_none_of_it():
    """In every channel, for any workgroup."""
    gpu = programmed()
    gpu.soft_reset()
    for c in range(CHANNELS):
        for side, source in (("compute", LOCAL), ("inbound", DMA)):
            gpu.access(side, BASE + c * INTERLEAVE, 64, region=EVENT_REGION, source=source, wg=1 << 15)
    gpu.run(100)
    assert len(gpu.dram) == 2 * CHANNELS and gpu.counters()["updates"] == 0
    assert gpu.error() is None and gpu.busy() == {"reset_done"}


def measured() -> Gpu:
    """With a monitor that has chosen a threshold of 3."""
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", "auto") + gpu.driver.monitor(8, 25, 40))
    gpu.restart()
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 60)
    gpu.run(5000)
    gpu.access("inbound", BASE, 64, op=STORE, source=REMOTE, region=EVENT_REGION)
    gpu.run(50)
    assert "monitor_done" in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == 3
    return gpu


def test_a_soft_reset_forgets_what_the_monitor_measured():
    """The chosen threshold is none again."""
    gpu = measured()
    gpu.soft_reset()
    assert "monitor_done" not in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == NO_THRESHOLD


@pytest.mark.parametrize("bit", range(4, 16))
def test_a_soft_reset_takes_as_long_as_it_is_told(bit):
    """Attack: corner widths. Each bit of RESET_QUIET from 2**4 to 2**15 cycles."""
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(1 << bit))
    gpu.backend.step((1 << bit) - 12)
    assert "resetting" in gpu.status()
    gpu.backend.step(600)
    assert gpu.status() == {"reset_done", "drain"}


@pytest.mark.parametrize("done", [0, 1])
def test_a_second_soft_reset_begins_anew(done):
    """In the middle of the first one, or after it."""
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(16 if done else 1000))
    gpu.backend.step(700)
    assert gpu.status() == {"reset_done" if done else "resetting", "drain"}
    gpu.program(gpu.driver.soft_reset(1000))
    gpu.backend.step(700)
    assert gpu.status() == {"resetting", "drain"}
    gpu.backend.step(600)
    assert gpu.status() == {"reset_done", "drain"}


@pytest.mark.parametrize("ended", [False, True])
def test_a_second_soft_reset_waits_for_its_whole_limit(ended):
    """Attack: reset during a reset, or after a forced one. A write in a channel holds it up."""
    gpu = programmed()
    gpu.blocked = {"dram"}
    gpu.access("compute", BASE, 64, region=EVENT_REGION)
    gpu.run(50)
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=1024))
    gpu.run(1400 if ended else 800)
    assert (gpu.error() is not None) == ended and ("resetting" in gpu.status()) == (not ended)
    gpu.program(gpu.driver.clear_error() + gpu.driver.soft_reset(16, limit_cycles=1024))
    gpu.run(1000)
    assert gpu.error() is None and "resetting" in gpu.status()
    gpu.run(50)
    assert gpu.error()["code"] == "reset_forced"


def test_a_quiet_time_that_is_lowered_while_it_runs_counts_at_once():
    """Attack: corner widths. Below the time already passed, the soft reset ends now, not one wrap later."""
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(60_000))
    gpu.run(1000)
    assert "resetting" in gpu.status()
    gpu.program(gpu.driver.soft_reset(100)[:1])
    gpu.run(300)
    assert gpu.status() == {"reset_done", "drain"}


def test_a_restart_during_the_sweep_of_a_soft_reset_does_nothing():
    """It is refused, and the soft reset ends as usual."""
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(16))
    gpu.backend.step(16 + 24)  # of the command table's sweep, the longest, a part
    gpu.program(gpu.driver.restart())
    assert "resetting" in gpu.status()
    gpu.backend.step(GEOMETRY.tracker.window_slots << GEOMETRY.tracker.wf_bits - 1)
    assert gpu.status() == {"reset_done", "drain", "error"} and gpu.error()["code"] == "restart_refused"


def test_a_restart_in_any_cycle_before_the_sweep_has_ended_is_refused():
    """In each of 64 cycles, including the one in which the sweep begins."""
    gpu = programmed()
    gpu.program([gpu.driver._write("EPOCH", epoch=gpu.kernel + 1)])
    for cycles in range(64):
        gpu.program(gpu.driver.soft_reset(16))
        gpu.backend.step(cycles)
        refused_restart(gpu)
        gpu.backend.step(64 + (GEOMETRY.tracker.window_slots << GEOMETRY.tracker.wf_bits - 1))
        assert "reset_done" in gpu.status()


@pytest.mark.parametrize("tiles", [0, 1])
def test_no_workgroup_starts_while_stopped(tiles):
    """A workgroup waits for room when the soft reset starts, and a blocked write delays its end."""
    gpu = programmed()
    gpu.blocked = {"start", "dram"}
    gpu.access("compute", BASE, 64, region=EVENT_REGION)
    gpu.dispatch(0, tiles=tiles)
    gpu.run(30)
    assert gpu.get("grant") & 1
    gpu.program(gpu.driver.soft_reset(16))
    gpu.blocked = {"dram"}
    for _ in range(60):
        assert not gpu.get("grant") & 1 and gpu.get("head") == 0
        gpu.run(1)
    assert "resetting" in gpu.status()


def test_a_soft_reset_lets_arrivals_pass_the_producer_that_runs_still():
    """MCA's threshold held them back while the producer ran; the reset drains them."""
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", 1, starvation_limit=None))
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 20)
    gpu.run(10)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION)
    gpu.run(200)
    assert not gpu.dram
    gpu.soft_reset()
    assert len(gpu.dram) == 1 and "drain" in gpu.status()


@pytest.mark.slow
def test_a_soft_reset_in_the_middle_of_anything(seed):
    """Attack: reset in the middle. Accepted writes reach memory, nothing leaves after it, the next kernel is as new."""
    rng, cut = random.Random(seed), Counter()
    for trial in range(60):
        gpu = programmed(seed=rng.random(), idle=rng.choice((0, 0.3)), memory_cycles=rng.choice((0, 30, 200)))
        gpu.returning = deque()
        gpu.blocked = set(rng.sample(["events", "packets", "retirement"], rng.randrange(2)))
        random_traffic(gpu)
        accesses = sum(len(queue) for name, queue in gpu.waiting.items() if name[:7] in ("compute", "inbound"))
        gpu.run(rng.randrange(700))
        gpu.waiting["dispatch"].clear()
        gpu.offered.discard("dispatch")
        gpu.inside = 0
        waiting = gpu.status()
        cut.update(waiting)
        gpu.blocked = set()
        gpu.soft_reset(rng.choice((16, 300)))
        assert gpu.busy() == {"reset_done"}, f"trial {trial}: cut in {waiting}"
        assert not any(gpu.waiting.values()) and not gpu.returning, f"trial {trial}"
        done = sum(command["op"] != READ for command in gpu.dram)
        assert done == accesses, f"trial {trial}: {done} of {accesses} writes reached memory"
        before = came_out(gpu)
        gpu.run(300)
        assert came_out(gpu) == before, f"trial {trial}"
        gpu.idle, gpu.returning = 0, None
        gpu.program(gpu.driver.clear_error() + gpu.driver.clear_counters())
        gpu.restart()
        play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))
    assert {"tracker_busy", "tracker_occupied", "engines_busy", "reads_outstanding", "channels_busy"} <= set(cut), cut


def test_a_soft_reset_waits_for_arrivals_that_are_refused():
    """Eight refused packets, 80 cycles apart, each begin the quiet time anew and are counted."""
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(100))
    for _ in range(8):
        gpu.access("inbound", BASE, 64, source=DMA, region=9)
        gpu.run(80)
        assert "resetting" in gpu.status()
    gpu.run(2000)
    assert gpu.busy() == {"reset_done"} and gpu.counters()["arrivals_refused"] == 8


def test_a_soft_reset_waits_for_the_data_of_reads_and_for_late_arrivals():
    """Until both have arrived a restart is refused; afterwards there is no packet, event or error."""
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=DMA_REGION)
    gpu.run(300)
    assert "reads_outstanding" in gpu.status()
    gpu.program(gpu.driver.soft_reset(100))
    gpu.run(1000)
    assert {"resetting", "reads_outstanding"} <= gpu.status()
    for number, read in enumerate(command for command in gpu.dram if command["op"] == READ):
        gpu.waiting[f"outbound[{number % LANES}]"].append(
            {name: read[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg")})
    gpu.run(60)
    for _ in range(8):  # as long as a neighbour's packets come
        gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION)
        gpu.run(80)
        assert "resetting" in gpu.status()
        gpu.program(gpu.driver.restart(2))  # too early
        assert gpu.error()["code"] == "restart_refused"
        gpu.program(gpu.driver.clear_error())
    gpu.run(2000)
    assert gpu.busy() == {"reset_done"} and not gpu.packets and not gpu.events
    gpu.dispatch(0, tiles=1)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION)  # still of the old kernel
    gpu.run(100)
    assert gpu.busy() == {"reset_done"} and gpu.held == 1
    assert gpu.error() is None
    gpu.restart()
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert not gpu.held and gpu.busy() == {"window_open"}


def test_a_neighbours_head_of_the_kernel_before_opens_no_window():
    """A head of 40 from the old kernel starts nothing after this GPU's restart; the new kernel's 0 does."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=4, slack=1))
    gpu.hear(40)
    gpu.restart()
    for wg in range(4):
        gpu.dispatch(wg, tiles=1, there=wg + 1)
    gpu.run(1000)  # the sweep is over, the neighbour's restart still on the link
    assert gpu.held == 4
    gpu.hear(0)
    gpu.run(50)
    assert gpu.held == 1


def test_a_head_of_the_kernel_before_opens_no_window_when_the_neighbour_restarts():
    """Not even for one cycle, because head and kernel number arrive together."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=4))
    gpu.hear(40)
    gpu.restart()
    gpu.dispatch(0, tiles=1, there=30)
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    gpu.hear(0)
    gpu.run(50)
    assert gpu.held == 1


def test_a_head_is_told_with_its_own_kernel():
    """Head 1 of the old kernel is sent with its number, then head 0 with the new one's."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=3) + gpu.driver.heads(5, sends_to=(), receives_from=(2,)))
    gpu.dispatch(0, tiles=1)
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=EVENT_REGION)
    gpu.run(200)
    assert gpu.get("head") == 1
    gpu.restart(kernel=7)
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert [(told["head"], told["epoch"]) for told in gpu.heads][-2:] == [(1, 1), (0, 7)]


@pytest.mark.parametrize("peer", range(GEOMETRY.dma.peers))
def test_a_peer_is_waited_for_until_it_is_in_the_same_kernel(peer):
    """Three peers, one in another kernel: each bit of kernel number and head decides what starts."""
    gpu = programmed()
    peers = range(GEOMETRY.dma.peers)
    gpu.program(gpu.driver.window(2, workgroups=4) + gpu.driver.heads(9, sends_to=peers, receives_from=()))
    bits = GEOMETRY.tracker.wg_bits
    gpu.restart(kernel=4)
    gpu.hear(0, source=peer)
    for kernel in (6, 7, 15, 31, 63, 127, 255):  # a bit more each time
        between = [190] if kernel == 255 else []  # 255 does not follow 127
        for number in (*between, kernel):
            gpu.restart(number)
            for other in set(peers) - {peer}:
                gpu.hear(0, source=other)
        gpu.waiting["dispatch"].append(Request(0, 1, there=bits, peer=peer, reaches=1)._asdict())
        gpu.run(2 * GEOMETRY.tracker.window_slots)
        assert gpu.held == 1
        for number in (*between, kernel):
            gpu.hear(0, epoch=number, source=peer)
        gpu.run(20)
        assert gpu.held == 1
        gpu.hear(bits, source=peer)
        gpu.run(20)
        assert not gpu.held
    for bit in range(2, bits + 1):
        gpu.restart()
        gpu.hear(1 << bit, source=peer)
        assert gpu.get(f"peer_heads[{peer}]") == 1 << bit
        for there in ((1 << bit) + 3, (1 << bit) + 4):
            gpu.waiting["dispatch"].append(Request(0, 0, there, peer, opens=0, reaches=1)._asdict())
        gpu.run(2 * GEOMETRY.tracker.window_slots)
        assert gpu.held == 1 and not gpu.waiting["dispatch"]


def an_arrival(gpu: Gpu) -> None:
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION)


def a_store(gpu: Gpu) -> None:
    gpu.access("compute", BASE, 64, region=EVENT_REGION)


def a_remote_store(gpu: Gpu) -> None:
    gpu.waiting["outbound[2]"].append({"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL,
                                       "region": REMOTE_REGION, "wf": 0, "wg": 0})


@pytest.mark.parametrize("offer", [an_arrival, a_store, a_remote_store, None])
@pytest.mark.parametrize("after_reset", [False, True])
def test_a_restart_beside_what_comes_in_is_refused(offer, after_reset):
    """Attack: two things in one cycle. A write, a remote store, or the first admission; then it is taken."""
    gpu = programmed()
    if after_reset and offer:
        gpu.soft_reset()
    gpu.program([gpu.driver._write("EPOCH", epoch=gpu.kernel + 1)])
    if offer is None:  # two cycles before: the request goes in the next one, and its admission leaves in the one after
        gpu.waiting["dispatch"].append(Request(0, 3, starts=0, region=EVENT_REGION,
                                               last_region=EVENT_REGION)._asdict())
    gpu.write_meanwhile("CONTROL", gpu.driver._write("CONTROL", restart=1)[1], beside=offer or (lambda gpu: None))
    gpu.run(200)
    assert gpu.error()["code"] == "restart_refused" and ("reset_done" in gpu.status()) == bool(after_reset and offer)
    gpu.soft_reset()
    packets = len(gpu.packets)
    gpu.program(gpu.driver.clear_error() + gpu.driver.clear_counters())
    gpu.restart()
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert gpu.counters()["updates"] == 0 and len(gpu.packets) == packets
    play_a_tile(gpu)
