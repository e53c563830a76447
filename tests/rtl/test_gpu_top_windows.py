"""Dispatch windows, arbitration and inputs of the wired GPU: what may start, and what goes first."""


import pytest

from t3sim.cosim.driver.driver import Destination
from t3sim.rtl.address_map import channel_of
from t3sim.testbenches.reference.dispatch_window import Request
from tests.support.gpu import (
    BASE,
    CHANNELS,
    COLUMNS,
    DMA,
    DMA_REGION,
    EVENT_REGION,
    GEOMETRY,
    LIMIT,
    LOCAL,
    PEER,
    PITCH,
    READ,
    REMOTE,
    ROW,
    STORE,
    THERE,
    Gpu,
    in_channel,
    lines,
    outline,
    play_a_tile,
    programmed,
)

pytestmark = pytest.mark.builds_rtl

# Windows and arbitration


def test_the_window_holds_the_dispatcher_back():
    """A tile stays open: exactly as many workgroups start as the window has places."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=3))
    for wg in range(5):
        gpu.dispatch(wg, tiles=1)
    gpu.run(50)
    assert gpu.held == 2 and "dispatch_blocked" in gpu.status()
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=EVENT_REGION, wg=0)
    gpu.run(100)
    assert gpu.get("head") == 1 and gpu.held == 1


def test_the_neighbours_window_counts():
    """Exactly as many workgroups start as fit into the window at the neighbour's head."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=8, slack=5))
    gpu.hear(0)
    for wg in range(8):
        gpu.dispatch(wg, tiles=1, there=wg + 5)
    gpu.run(50)
    assert gpu.held == 5
    gpu.hear(2)
    gpu.run(50)
    assert gpu.held == 3


def test_the_head_is_told_to_those_that_send_to_this_gpu():
    """With the kernel's number, and to no other GPU; a new listener hears it at once."""
    gpu = programmed()
    gpu.program(gpu.driver.window(2, workgroups=3) + gpu.driver.heads(5, sends_to=(), receives_from=(2, 7)))
    gpu.restart(kernel=3)
    gpu.blocked.add("heads")
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert "heads_busy" in gpu.busy()
    gpu.blocked.clear()
    gpu.run(20)
    assert "heads_busy" not in gpu.busy()
    head = {"head": 0, "epoch": 3, "source": 5}
    assert {one["device"]: one for one in gpu.heads} == {device: head | {"device": device} for device in (2, 7)}
    gpu.heads.clear()
    gpu.dispatch(0, tiles=1)
    gpu.run(50)
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=EVENT_REGION, wg=0)
    gpu.run(100)
    head["head"] = gpu.get("head")
    told = sorted(gpu.heads, key=lambda one: one["device"])
    assert told == [head | {"device": 2}, head | {"device": 7}] and head["head"] == 1
    gpu.program(gpu.driver.heads(5, sends_to=(), receives_from=(2, 6)))
    gpu.run(20)
    assert gpu.heads[2:] == [head | {"head": 0, "epoch": 0, "device": 6}, head | {"device": 6}]
    gpu.program(gpu.driver.heads(5, sends_to=(), receives_from=()))
    gpu.restart(kernel=4)
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert len(gpu.heads) == 4


def test_a_head_of_nobody_that_is_sent_to_changes_nothing():
    """A head from a GPU that is not among the peers is dropped."""
    gpu = programmed()
    gpu.program(gpu.driver.heads(5, sends_to=range(1, 1 + GEOMETRY.dma.peers), receives_from=()))
    gpu.hear(40, source=0)
    gpu.hear(41, source=1 + GEOMETRY.dma.peers)
    assert {gpu.get(f"peer_heads[{peer}]") for peer in range(GEOMETRY.dma.peers)} == {0}
    for peer in range(GEOMETRY.dma.peers):
        gpu.hear(10 + peer, source=1 + peer)
    assert [gpu.get(f"peer_heads[{peer}]") for peer in range(GEOMETRY.dma.peers)] == [
        10 + peer for peer in range(GEOMETRY.dma.peers)]


@pytest.mark.parametrize("peer", range(GEOMETRY.dma.peers))
def test_a_peer_that_becomes_another_gpu_opens_no_window_with_the_old_head(peer):
    """PEER is written between kernels: a workgroup waits until the new GPU is heard in this kernel."""
    gpu = programmed()
    peers = [1, 2, 3]
    gpu.program(gpu.driver.window(2, workgroups=4) + gpu.driver.heads(9, sends_to=peers, receives_from=()))
    for device in peers:
        gpu.hear(40, source=device)
    peers[peer] = 4
    gpu.program(gpu.driver.heads(9, sends_to=peers, receives_from=()))
    gpu.run(3)
    gpu.waiting["dispatch"].append(Request(0, 1, there=5, peer=peer, reaches=1)._asdict())
    gpu.run(50)
    assert gpu.held == 1 and [gpu.get(f"peer_heads[{other}]") for other in range(3)] == [
        0 if other == peer else 40 for other in range(3)]
    gpu.hear(50, source=peer + 1)
    gpu.hear(1, source=4)
    gpu.run(50)
    assert gpu.held == 1 and gpu.error() is None
    gpu.hear(2, source=4)
    gpu.run(50)
    assert not gpu.held and gpu.error() is None


def test_heads_outlive_a_soft_reset():
    """Because a peer does not send the same head again."""
    gpu = programmed()
    gpu.hear(17)
    gpu.soft_reset()
    assert gpu.get("peer_heads[0]") == 17


def test_the_arbiters_threshold_and_the_drain():
    """MCA lets communication in only below the threshold, until the producer has ended (T3 paper, section 4.5)."""
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", 5, starvation_limit=None))
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 20)
    gpu.put("producer_active", 1)
    gpu.run(10)
    for address, size in lines():
        gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION)
        gpu.access("compute", address + (1 << 20), size, op=READ)
    gpu.run(100)
    assert len(gpu.dram) == 12 and {command["communication"] for command in gpu.dram} == {0}
    assert "drain" not in gpu.status()
    gpu.put("producer_active", 0)
    gpu.run(100)
    assert outline(gpu.dram, "communication") == {(0,): 12, (1,): 12} and "drain" in gpu.status()


def test_the_starvation_limit_holds_in_every_channel():
    """Above the threshold each channel grants once the limit of 60 cycles has passed, and not before."""
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", 5, starvation_limit=60))
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 20)
    gpu.run(60)

    def ask() -> None:
        for c in range(CHANNELS):
            gpu.access("inbound", in_channel(c), 64, source=DMA, region=EVENT_REGION)
    ask()
    gpu.run(20)  # communication has not gone since the reset, so the first of it goes at once
    assert [channel_of(command["address"], GEOMETRY) for command in gpu.dram] == list(range(CHANNELS))
    gpu.dram.clear()
    ask()
    gpu.run(30)
    assert not gpu.dram
    gpu.run(50)
    assert [channel_of(command["address"], GEOMETRY) for command in gpu.dram] == list(range(CHANNELS))


def test_an_empty_dram_queue_lets_communication_in_whatever_the_threshold():
    """Threshold 0, occupancies 1 and 0: the driver never writes 0, but it must not block a ring."""
    gpu = programmed()
    gpu.program([*gpu.driver.policy("mca", 5, starvation_limit=None), (gpu.driver.registers["THRESHOLD"].offset, 0)])
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 1)
    for address, size in lines():
        gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION)
    gpu.run(100)
    assert not gpu.dram
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 0)
    gpu.run(100)
    assert len(gpu.dram) == 12


def test_ring_aware_arbitration_lets_a_late_ring_go():
    """Compute has every grant until more than a stage of workgroups has started; a refused restart changes nothing."""
    gpu, workgroups, stage = programmed(), 6, 7
    tiles = 8 * workgroups  # more than channels and engines hold

    def others() -> list[dict]:
        return [command for command in gpu.dram if (command["op"], command["source"]) != (READ, LOCAL)]

    gpu.program([
        *gpu.driver.policy("ring_aware", 1), *gpu.driver.stage(stage),
        *gpu.driver.window(8),
        *gpu.driver.dma_map(DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=ROW,
                            columns=COLUMNS, pitch_bytes=PITCH, updates_per_element=1)])
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 1)
    for wg in range(workgroups):
        gpu.dispatch(wg, tiles=8)
    gpu.run(100)  # before any command waits
    for tile in range(tiles):
        for address, size in lines(BASE + COLUMNS * PITCH * (tile % 24)):
            gpu.access("compute", address, size, region=DMA_REGION, wf=tile % 8, wg=tile // 8)
            for _ in range(7):
                gpu.access("compute", address, 64, op=READ)
    for c in range(CHANNELS):
        for _ in range(3200):
            gpu.access("compute", in_channel(c), 64, op=READ)
    gpu.run(1000)
    for wg in range(workgroups, workgroups + stage):
        gpu.dispatch(wg, tiles=1)
    gpu.run(200)
    assert not gpu.held and len(others()) == 12 * tiles, "compute holds the DMA reads back"
    gpu.dispatch(workgroups + stage, tiles=1)
    gpu.run(20)
    gpu.program([gpu.driver._write("CONTROL", restart=1)])  # is refused, and changes nothing
    before = len(others())
    gpu.run(180)
    late = others()[12 * tiles:]
    assert len(others()) > before + 12, "more workgroups than a stage have started meanwhile: the ring is late"
    assert {channel_of(command["address"], GEOMETRY) for command in late} == set(range(CHANNELS))
    gpu.run(2000)
    assert 12 * tiles + len(late) <= len(others()) < 24 * tiles, "in time again, as soon as no command waits"
    gpu.put("producer_active", 0)
    gpu.run(500)
    assert len(others()) == 24 * tiles


@pytest.mark.parametrize("policy", ["round_robin", "mca", "ring_aware"])
def test_a_peers_write_goes_beside_a_kernel_that_reads_without_end(policy):
    """No workgroup starts and no command waits, so only the channel's own count can let the write go."""
    gpu = programmed()
    gpu.put("producer_active", 1)
    gpu.program(gpu.driver.policy(policy))
    gpu.dispatch(0, tiles=1)
    for _ in range(9000):
        gpu.access("compute", BASE, 64, op=READ)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION)
    gpu.run(4000)
    assert [command["source"] for command in gpu.dram if command["op"] != READ] == [DMA]


def test_a_tiles_reads_go_beside_a_kernel_that_reads_in_every_channel():
    """No command waits for an engine: the engines' reads wait in the channels, and still go."""
    gpu = programmed()
    gpu.put("producer_active", 1)
    gpu.program([*gpu.driver.policy("ring_aware"), *gpu.driver.stage(1)])
    gpu.dispatch(0, tiles=1)
    gpu.run(30)
    for address, size in 2 * list(lines()):
        gpu.access("compute", address, size, region=DMA_REGION, wf=0, wg=0)
    for c in range(CHANNELS):
        for _ in range(4000):
            gpu.access("compute", in_channel(c), 64, op=READ)
    gpu.run(1500)
    assert not any(command["source"] == DMA for command in gpu.dram), "they wait"
    gpu.run(2000)
    assert sum(command["source"] == DMA for command in gpu.dram) == 12


@pytest.mark.parametrize("occupancy, chosen", [(1, 127), (7, 127), (9, 15), (24, 15), (26, 5), (39, 5), (60, 3)])
def test_the_monitor_chooses_the_threshold(occupancy, chosen):
    """Known occupancies give the expected CHOSEN_THRESHOLD, also if communication arrives early."""
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", "auto") + gpu.driver.monitor(8, 25, 40))
    gpu.restart()
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", occupancy)
    for cycles in (0, 1000, 2000):  # a neighbour that started earlier: too few samples for a choice
        gpu.run(cycles)
        assert "monitor_done" not in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == 127
        gpu.access("inbound", BASE, 64, op=STORE, source=REMOTE, region=EVENT_REGION)
        gpu.run(50)
    gpu.run(1500)
    assert "monitor_done" in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == chosen
    assert abs(gpu.read("MONITOR_MEAN") / 4 - occupancy) <= 0.5


# Kernels that wait for their inputs


def answered(gpu: Gpu, group: int, tiles: int) -> bool:
    """Whether an ask of the ready table is taken now."""
    gpu.put_fields("asks.payload", {"group": group, "tiles": tiles})
    gpu.put("asks.valid", 1)
    taken = False
    for _ in range(6):
        gpu.run(1)
        taken |= bool(gpu.get("asks.ready"))
        if taken:
            break
    gpu.put("asks.valid", 0)
    gpu.run(2)
    return taken


def test_a_group_is_ready_when_its_tiles_have_raised_their_events():
    """Two kernels: of two tiles each, one is only sent and does not count; a soft reset clears the count."""
    gpu = programmed()
    gpu.program(gpu.driver.ready_table(2))
    for kernel in range(2):
        gpu.restart()
        gpu.run(2 * GEOMETRY.tracker.window_slots)
        for wg, ready in enumerate((0, 0, 0, 1)):
            assert answered(gpu, 0, 0) and not answered(gpu, 2, 1)
            assert answered(gpu, 1, ready) and not answered(gpu, 1, ready + 1), (kernel, wg)
            play_a_tile(gpu, wg)
        assert [answered(gpu, group, 2) for group in range(8)] == [1, 1, 0, 0, 0, 0, 0, 0]
    gpu.soft_reset()
    gpu.restart()
    gpu.run(100)
    assert not any(answered(gpu, group, 1) for group in range(8)), "a soft reset forgets"


def test_a_group_is_not_ready_by_a_tile_that_no_workgroup_has():
    """The workgroup's only tile is wavefront 0; completing wavefront 5 does not count."""
    gpu = programmed()
    gpu.program(gpu.driver.ready_table(1))
    gpu.restart()
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    gpu.dispatch(0, tiles=1)
    for wf, ready in ((5, 0), (0, 1)):
        for address, size in 2 * list(lines()):
            gpu.access("compute", address, size, region=EVENT_REGION, wf=wf)
        gpu.run(300)
        assert answered(gpu, 0, 1) == ready
