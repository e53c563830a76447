"""The wired GPU, compiled: what a driver sees through the bus, and a tile's life from its dispatch to its last packet.

Whole kernels run on it in tests/runs/test_fused.py; test_gpu_top_*.py beside this file ask about a part of it each.
"""

from collections import Counter
from dataclasses import replace

import pytest

from t3sim.cosim.driver.apb import ApbMaster, BusError
from t3sim.cosim.driver.driver import Destination, Driver, MemorySum
from t3sim.cosim.gpu import amaranth_gpu
from t3sim.rtl.formats import NUMBERS
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.reference.dispatch_window import Request
from tests.support.gpu import (
    BASE,
    COLUMNS,
    DMA,
    DMA_REGION,
    EVENT_REGION,
    GEOMETRY,
    LANES,
    LIMIT,
    LOCAL,
    OFFSET,
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
    complete_both_ways,
    lines,
    mappings,
    outline,
    play_a_tile,
    programmed,
)

pytestmark = pytest.mark.builds_rtl

# The bus


def test_identity_and_geometry():
    """The registers hold the values that the driver expects."""
    gpu = Gpu()
    gpu.driver.check_identity(gpu.bus.read)
    assert gpu.read("ID").to_bytes(4, "big") == b"T3TT"
    assert gpu.error() is None and set(gpu.counters().values()) == {0}
    assert gpu.status() == {"drain"}


def test_registers_read_back(rng):
    """Every writable register, in random order, through the bus of the top."""
    gpu = Gpu()
    registers = [(offset, register) for offset, register, region in gpu.driver.registers.all_registers()
                 if register.access == "rw"]
    written = {}
    for offset, register in rng.sample(registers, len(registers)):
        value = rng.getrandbits(32) & sum(field.encode(field.mask) for field in register.fields)
        written[offset] = value
        gpu.bus.write(offset, value)
    for offset, register in registers:
        assert gpu.bus.read(offset) == written[offset], register.name


@pytest.mark.parametrize("operation, op", [("store", STORE), ("update", UPDATE)])
def test_a_packet_leaves_with_the_operation_of_its_route_and_no_other(operation, op):
    """Store and update, on every lane, whatever operation the line names."""
    gpu = programmed()
    gpu.program(gpu.driver.remote_map(REMOTE_REGION, base=BASE, limit=LIMIT,
                                      to=[Destination(PEER, THERE, operation)]))
    for lane in range(LANES):
        for line in (READ, STORE, UPDATE):
            gpu.waiting[f"outbound[{lane}]"].append({"address": BASE, "bytes": 64, "op": line, "source": LOCAL,
                                                     "region": REMOTE_REGION, "wf": 1, "wg": 2})
    gpu.run(20)
    assert [packet["op"] for packet in gpu.packets] == [op] * 3 * LANES and gpu.error() is None


@pytest.mark.parametrize("offset, write", [(0x00C, True), (0x0F8, False), (0x3FC, True), (0x40C, True),
                                           (0x818, False), (0x1050, True)])
def test_refused_transfers(offset, write):
    """Unknown, unaligned and read-only accesses get an error from the bus of the top."""
    gpu = Gpu()
    with pytest.raises(BusError, match=f"register {offset:#05x}: .* refused"):
        gpu.bus.write(offset, 1) if write else gpu.bus.read(offset)
    gpu.driver.check_identity(gpu.bus.read)


@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_a_tiles_life(idle, seed):
    """All lines but the last: nothing leaves. Then the last: one trigger, the reads, packets and the event."""
    gpu = programmed(seed=seed, idle=idle)
    for wg in range(3):
        play_a_tile(gpu, wg)
    assert gpu.read("COUNT_READY_HIGH_WATER") == 1
    gpu.program(gpu.driver.clear_counters())
    assert set(gpu.counters().values()) == {0}


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("idle", [0.0, 0.4])
@pytest.mark.parametrize("wg", range(3))
def test_a_tile_that_only_arrives_waits_for_its_request(wg, idle, early, seed):
    """It is not sent on before the peer has room; its narrower last wavefront tile stays here.

    However early they are complete; and before they are complete, not even then.
    """
    gpu, event, dma = programmed(seed=seed, idle=idle), 5, 6
    shape = {"updates_per_element": 1, "admitted": True}
    gpu.program([
        *gpu.driver.event_map(event, base=BASE, limit=LIMIT, tile_bytes=ROW * COLUMNS, arrivals=[0], **shape),
        *gpu.driver.dma_map(dma, base=BASE, limit=LIMIT, to=[Destination(PEER, event)], row_bytes=ROW,
                            columns=COLUMNS, pitch_bytes=PITCH, arrival_region=event, **shape),
        *gpu.driver.window(3, workgroups=4)])
    for before in range(wg):
        gpu.dispatch(before, tiles=0)
    tiles = [BASE + wf * COLUMNS * PITCH for wf in range(3)]
    arriving = [(address, size, wf) for wf, first in enumerate(tiles) for address, size in lines(first)]
    gpu.random.shuffle(arriving)

    def arrive(some):
        for address, size, wf in some:
            gpu.access("inbound", address, size, op=STORE, source=DMA, region=event, wf=wf, wg=wg)
        gpu.run(400)

    def admit():
        gpu.hear(1)
        gpu.run(200)
    request = Request(wg, 3, there=4, reaches=1, starts=0, region=dma, last_region=event)
    gpu.waiting["dispatch"].append(request._asdict())
    gpu.run(50)
    (arrive(arriving) if early else admit())
    assert gpu.get("head") == wg and gpu.counters()["triggers"] == 0
    assert gpu.busy() == ({"tracker_occupied", "window_open", "dispatch_blocked"} if early
                          else {"tracker_occupied", "window_open"})
    (admit() if early else arrive(arriving))
    reads = [command for command in gpu.dram if command["op"] == READ]
    assert outline(reads, "address", "bytes", "wf", "wg") == Counter(
        (address, size, wf, wg) for wf in range(2) for address, size in lines(tiles[wf]))
    assert gpu.events == [{"address": tiles[2], "region": event, "wf": 2, "wg": wg}]
    assert gpu.get("head") == wg + 1 and gpu.busy() == {"reads_outstanding"} and gpu.error() is None
    counted = gpu.counters()
    assert counted["triggers"] == 3 and counted["commands"] == 2
    assert counted["updates"] + counted["coalesced"] == len(arriving) + 3, "an admission of each tile"


def test_blocks_that_wait_for_an_engine(seed):
    """The tiles of two workgroups complete at about the same time; each block is read once."""
    gpu = programmed(seed=seed, memory_cycles=3)
    tiles = {(wg, wf): BASE + (wg * 8 + wf) * COLUMNS * PITCH for wg in range(2) for wf in range(8)}
    for wg in range(2):
        gpu.dispatch(wg, tiles=8)
    for (wg, wf), first in tiles.items():
        for address, size in lines(first):
            gpu.access("inbound", address, size, source=REMOTE, region=EVENT_REGION, wf=wf, wg=wg)
        for address, size in list(lines(first))[1:]:
            gpu.access("compute", address, size, source=LOCAL, region=DMA_REGION, wf=wf, wg=wg)
    gpu.run(500)
    for (wg, wf), first in tiles.items():  # what was missing, of all of them
        gpu.access("compute", *next(lines(first)), source=LOCAL, region=DMA_REGION, wf=wf, wg=wg)
    gpu.run(500)
    reads = [command for command in gpu.dram if command["op"] == READ]
    assert outline(reads, "address", "bytes", "wf", "wg") == Counter(
        (address, size, wf, wg) for (wg, wf), first in tiles.items() for address, size in lines(first))
    counted = gpu.counters()
    assert counted["triggers"] == counted["commands"] == 16 and counted["lines"] == 16 * 12
    assert 1 < counted["ready_high_water"] <= 16
    assert gpu.get("head") == 2 and gpu.busy() == {"reads_outstanding"} and gpu.error() is None


def test_reset_in_flight(seed):
    """Pulse the reset pin under traffic: registers, counters and head are reset, and the next tile runs as new."""
    gpu = programmed(seed=seed)
    gpu.dispatch(0, tiles=2)
    for address, size in lines():
        gpu.access("compute", address, size, region=DMA_REGION)
        gpu.access("inbound", address, size, source=DMA, region=9, wf=1)  # an error, too
        for distant in range(1, 9):
            gpu.access("compute", address + (distant << 20), size, op=READ)
    gpu.run(12)
    assert gpu.dram and any(gpu.waiting.values())
    gpu._quiet()
    gpu.put("rst", 1)
    gpu.backend.step(2)
    gpu.put("rst", 0)
    gpu.backend.step(4 * GEOMETRY.tracker.window_slots)
    assert gpu.error() is None and gpu.get("head") == 0 and set(gpu.counters().values()) == {0}
    assert gpu.read("WINDOW") == gpu.driver.registers["WINDOW"].reset
    for queue in (*gpu.waiting.values(), *gpu.in_memory):
        queue.clear()
    gpu.program(mappings(gpu.driver))
    gpu.restart()
    play_a_tile(gpu.run(100))


def test_a_new_kernel_counts_from_zero(seed):
    """After a restart the head is 0 and a second kernel runs like the first."""
    gpu = programmed(seed=seed)
    for _ in range(2):
        play_a_tile(gpu)
        gpu.restart()
        gpu.run(2 * GEOMETRY.tracker.window_slots)
        assert gpu.get("head") == 0


def test_a_compute_units_store_leaves_for_the_peer():
    """A store to a remote region becomes a packet with the peer's address, id and region."""
    gpu = programmed()
    for number, (address, size) in enumerate(lines()):
        gpu.waiting[f"outbound[{number % LANES}]"].append(
            {"address": address, "bytes": size, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION, "wf": 6,
             "wg": 0xFFFA})
    gpu.run(50)
    assert outline(gpu.packets, "address", "bytes") == Counter((a + OFFSET, size) for a, size in lines())
    assert outline(gpu.packets, "op", "source", "region", "wf", "wg", "device") == {
        (STORE, REMOTE, THERE, 6, 3, PEER): 12}, "workgroups wrap around"
    assert not gpu.dram and gpu.counters()["packets"] == 12 and gpu.error() is None


def test_a_tile_that_goes_both_ways_is_sent_once_however_long_its_event_waits():
    """Six tiles that are sent and announced, with events blocked."""
    gpu = programmed()
    gpu.blocked = {"events"}
    tiles = complete_both_ways(gpu, 1, 6)
    gpu.blocked = set()
    gpu.run(200)
    assert outline(gpu.events, "wg", "wf") == tiles
    assert outline([command for command in gpu.dram if command["op"] == READ], "wg", "wf") == tiles
    assert gpu.counters()["commands"] == 6 and gpu.error() is None


@pytest.mark.parametrize("moment", range(8))
def test_what_happens_when_the_counters_are_cleared_counts_anew(moment):
    """A packet in the cycle in which the write ends counts; one in the cycle before does not."""
    gpu = programmed()
    line = {"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION, "wf": 1, "wg": 2}
    gpu.waiting["outbound[0]"].append(line)
    gpu.run(moment)
    cleared = gpu.write_meanwhile("CONTROL", sum(value for _, value in gpu.driver.clear_counters()))
    gpu.run(20)
    (packet,) = gpu.packets
    assert gpu.counters()["packets"] == (packet["cycle"] >= cleared)


def test_ordinary_traffic_passes_unseen(rng):
    """Accesses of region 0 give no update and no packet."""
    gpu = programmed(seed=rng.random(), idle=0.2)
    gpu.program(gpu.driver.open_memory(1, base=0, limit=1 << 36) + gpu.driver.plain_arrivals([1]))
    wanted = Counter()
    for number in range(300):
        side, op = rng.choice([("compute", READ), ("compute", STORE), ("inbound", STORE)])
        address = rng.randrange(1 << 30) * 64
        gpu.access(side, address, 64, op=op, source=LOCAL if side == "compute" else REMOTE, wf=rng.randrange(8),
                   wg=number)
        wanted[address, op, number, int(side == "inbound")] += 1
    gpu.run(800)
    assert outline(gpu.dram, "address", "op", "wg", "communication") == wanted
    assert gpu.counters()["updates"] == 0 and not gpu.busy() and gpu.error() is None


def test_memory_hears_what_it_adds_of_each_region():
    """Each region's sum, scale and rounding are on the ports; an unknown sum ends in an error."""
    least = GEOMETRIES["least"]
    geometry = replace(least, channel=replace(least.channel, sums="bf16-in-fp32+bf16-in-fixed"))
    with amaranth_gpu(geometry) as backend:
        backend.reset()
        driver, bus = Driver(geometry), ApbMaster(backend)
        driver.check_identity(bus.read)
        driver.memory_sums({2: MemorySum("bf16-in-fixed", 130), 5: MemorySum("bf16-in-fp32", narrow=True)})
        for region in (2, 5, 6):
            for offset, value in driver.event_map(region, base=0, limit=4096, tile_bytes=256, updates_per_element=2):
                bus.write(offset, value)
        found = {}
        for region in range(geometry.dma.regions):
            port = backend.ports.outputs[f"sums[{region}]"]
            word = int(backend.outputs[port.offset])
            found[region] = tuple(word >> port.fields[name].lsb & (1 << port.fields[name].width) - 1
                                  for name in ("sum", "scale", "narrow", "saturate"))
        assert found == dict.fromkeys(range(8), (0, 0, 0, 0)) | {2: (NUMBERS["bf16-in-fixed"], 130, 0, 0),
                                                                 5: (NUMBERS["bf16-in-fp32"], 0, 1, 0)}
        register = driver.registers["REGION_ACTIONS"]
        at = driver.registers.table("region").offset(4) + register.offset
        with pytest.raises(BusError):
            bus.write(at, register.field("sum").encode(NUMBERS["e4m3-in-fp32"]))
        assert driver.first_error(bus.read)["code"] == "sum_unknown"
        assert bus.read(driver.registers["COUNT_ERRORS"].offset) == 1
