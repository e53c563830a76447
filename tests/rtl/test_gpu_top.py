"""The wired GPU, compiled: what a driver sees through the bus, and a tile's life from its dispatch to its last packet.

Whole kernels run on it in tests/runs/test_fused.py.
"""

import itertools
import random
from collections import Counter, deque
from dataclasses import replace

import pytest

from t3sim.cosim.gpu import compiled_gpu, gpu_library
from t3sim.driver.apb import ApbMaster, BusError
from t3sim.driver.driver import Destination, Driver
from t3sim.machine import load_machine
from t3sim.reference.command_queue import ADD, COPY, LINE_BYTES, POLL, SIGNAL, TIMESTAMP, Command
from t3sim.reference.dispatch_window import Request
from t3sim.rtl.address_map import channel_of
from t3sim.rtl.layouts import Op, Source
from t3sim.rtl.registers import NO_THRESHOLD, WAITS, WATCHDOG_PERIOD
from tests.support.variants import small_machine

_SMALL = small_machine(load_machine()).geometry()
#: Three or more of everything, and two blocks that check arrivals: what reaches only the first is seen.
GEOMETRY = replace(_SMALL, channel=replace(_SMALL.channel, channels=8), tracker=replace(_SMALL.tracker, banks=4),
                   dma=replace(_SMALL.dma, egress_lanes=3, peers=3, outstanding_lines=640, queue_commands=4,
                               ready_groups=8, block_shapes=3, buffers=1, routes=5, copies=3))
CHANNELS, LANES = GEOMETRY.channel.channels, GEOMETRY.dma.egress_lanes
INTERLEAVE = GEOMETRY.channel.interleave_bytes
READ, STORE, UPDATE = Op.READ.value, Op.STORE.value, Op.UPDATE.value
LOCAL, REMOTE, DMA = Source.LOCAL.value, Source.REMOTE.value, Source.DMA.value

EVENT_REGION, DMA_REGION, REMOTE_REGION = 1, 2, 3
BASE, LIMIT = 0x12_3456_0040, 0x12_3457_0040
ROW, COLUMNS, PITCH = 160, 4, 512  #: of a wavefront tile, in bytes; 3 lines per column, the last one short
OFFSET, WG_OFFSET, PEER, THERE = -0x2_0000, 9, 5, 7


class Gpu:
    """The top with a memory that takes what comes and retires writes in order, `memory_cycles` after they came.

    Inputs wait in queues; outputs are kept in lists. `idle` is the probability that a handshake is held back.
    """

    geometry = GEOMETRY

    def __init__(self, seed: int = 1, idle: float = 0.0, memory_cycles: int = 30) -> None:
        self.backend = compiled_gpu(gpu_library(self.geometry))
        self.ports = self.backend.ports
        self._put: dict[str, int] = {}
        self.random, self.idle, self.memory_cycles = random.Random(seed), idle, memory_cycles
        self.cycle = 0
        self.returning: deque | None = None  #: (cycle, line) of DMA's reads, if their data are to come back
        #: Outputs that nobody takes; "retirement": writes are not performed; "start": there is no room for a workgroup.
        self.blocked: set[str] = set()
        self.channels, self.lanes = self.geometry.channel.channels, self.geometry.dma.egress_lanes
        streams = [f"{side}[{c}]" for side in ("compute", "inbound") for c in range(self.channels)]
        outbound = [f"outbound[{lane}]" for lane in range(self.lanes)]
        self.waiting = {name: deque() for name in (*streams, *outbound, "dispatch")}
        self.offered = set()
        self.inside = 0  #: requests in the dispatch window's queue
        self.kernel = 0  #: number of the one that the last restart began
        self.dram, self.packets, self.events, self.heads = [], [], [], []
        self.in_memory = [deque() for _ in range(self.channels)]
        self.bus, self.driver = ApbMaster(self.backend), Driver(self.geometry)
        self.backend.step(4 * self.geometry.tracker.window_slots)

    def get(self, name: str) -> int:
        port = self.ports.port(name)
        if port.words == 1:
            return int(self.backend.outputs[port.offset]) & ((1 << port.width) - 1)
        words = self.backend.outputs[port.offset:port.offset + port.words]
        return sum(int(word) << 64 * i for i, word in enumerate(words)) & ((1 << port.width) - 1)

    def put(self, name: str, value: int) -> None:
        if self._put.get(name) == value:
            return
        self._put[name] = value
        port = self.ports.port(name)
        for i in range(port.words):
            self.backend.inputs[port.offset + i] = value >> 64 * i & (1 << 64) - 1

    def fields(self, name: str) -> dict[str, int]:
        value = self.get(name)
        return {leaf: value >> bits.lsb & (1 << bits.width) - 1 for leaf, bits in self.ports.port(name).fields.items()
                if leaf != "request"}

    def put_fields(self, name: str, values: dict[str, int]) -> None:
        fields = self.ports.port(name).fields
        assert fields.keys() == values.keys()
        self.put(name, sum((value & (1 << fields[leaf].width) - 1) << fields[leaf].lsb
                           for leaf, value in values.items()))

    def program(self, writes) -> None:
        """Register writes, between cycles; everything else stands still meanwhile."""
        self._quiet()
        for offset, value in writes:
            self.bus.write(offset, value)

    def read(self, name: str) -> int:
        self._quiet()
        return self.bus.read(self.driver.registers[name].offset)

    def status(self) -> set[str]:
        word = self.read("STATUS")
        return {name for name, value in self.driver.decode("STATUS", word).items() if value}

    def busy(self) -> set[str]:
        return self.status() - {"drain", "monitor_done", "error", "error_overflow"}

    def error(self) -> dict | None:
        self._quiet()
        return self.driver.first_error(self.bus.read)

    def counters(self) -> dict[str, int]:
        names = [register.name for register in self.driver.registers.fixed if register.name.startswith("COUNT_")]
        return {name.removeprefix("COUNT_").lower(): self.read(name) for name in names}

    def _quiet(self) -> None:
        for name in self.waiting:
            self.put(f"{name}.valid", 0)
        for name in self._outputs():
            self.put(f"{name}.ready", 0)
        for c in range(self.channels):
            self.put(f"retirement[{c}]", 0)
        self.put("start", 0)
        self.offered.clear()

    def _outputs(self) -> list[str]:
        return [*(f"dram[{c}]" for c in range(self.channels)), *(f"packets[{i}]" for i in range(self.lanes)), "events",
                "heads"]

    def run(self, cycles: int = 400) -> "Gpu":
        for _ in range(cycles):
            self._step()
        return self

    def _step(self) -> None:
        while self.returning and self.returning[0][0] <= self.cycle:
            self.waiting[f"outbound[{self.random.randrange(self.lanes)}]"].append(self.returning.popleft()[1])
        start = "start" not in self.blocked and self.random.random() >= self.idle
        self.put("start", start)
        self.inside -= start and self.get("grant") & 1
        for name, queue in self.waiting.items():
            offer = bool(queue) and (name in self.offered or self.random.random() >= self.idle)
            self.put(f"{name}.valid", offer)
            if offer:
                self.offered.add(name)
                self.put_fields(f"{name}.payload", queue[0])
                if self.get(f"{name}.ready"):
                    queue.popleft()
                    self.offered.discard(name)
                    self.inside += name == "dispatch"
        for name in self._outputs():
            ready = name.partition("[")[0] not in self.blocked and self.random.random() >= self.idle
            self.put(f"{name}.ready", ready)
            if ready and self.get(f"{name}.valid"):
                self._take(name, self.fields(f"{name}.payload"))
        for c, queue in enumerate(self.in_memory):
            due = bool(queue) and queue[0][0] <= self.cycle and "retirement" not in self.blocked
            self.put(f"retirement[{c}]", 1 | queue.popleft()[1] << 1 if due else 0)
        self.backend.step()
        self.cycle += 1

    def _take(self, name: str, item: dict[str, int]) -> None:
        if name in ("events", "heads"):
            getattr(self, name).append(item)
        elif name.startswith("packets"):
            self.packets.append(item | {"lane": int(name[8:-1]), "cycle": self.cycle})
        else:
            c = int(name[5:-1])
            request = {leaf.removeprefix("request."): value for leaf, value in item.items()}
            assert channel_of(request["address"], self.geometry) == c
            self.dram.append(request | {"cycle": self.cycle})
            if self.returning is not None and (request["op"], request["source"]) == (READ, DMA):
                request.pop("bucket")
                line = {name: value for name, value in request.items() if name != "communication"}
                self.returning.append((self.cycle + self.memory_cycles, line))
            elif request["op"] != READ and request["region"]:
                self.in_memory[c].append((self.cycle + self.memory_cycles, request["bucket"]))

    def soft_reset(self, quiet_cycles: int = 16) -> None:
        """Until it is done, with everything around going on."""
        self.program(self.driver.soft_reset(quiet_cycles))
        for _ in range(40):
            self.run(100)
            status = self.status()
            assert {"resetting", "reset_done"} & status
            if "reset_done" in status:
                assert "resetting" not in status
                return
        raise AssertionError(f"never done: {status}")

    def write_meanwhile(self, name: str, value: int) -> int:
        """Write a register while everything goes on; returns the cycle in which the bus shows that it has happened."""
        transfer = {"paddr": self.driver.registers[name].offset, "psel": 1, "pwrite": 1, "pwdata": value}
        for port, word in transfer.items():
            self.put(f"apb.{port}", word)
        self.run(1)
        self.put("apb.penable", 1)
        while not self.get("apb.pready"):
            self.run(1)
        done = self.cycle
        self.run(1)
        for port in ("psel", "penable"):
            self.put(f"apb.{port}", 0)
        return done

    def access(self, side: str, address: int, byte_count: int, **ids) -> None:
        item = {"address": address, "bytes": byte_count, "op": UPDATE, "source": LOCAL, "region": 0, "wf": 0, "wg": 0}
        self.waiting[f"{side}[{channel_of(address, self.geometry)}]"].append(item | ids)

    def hear(self, head: int, epoch: int | None = None, source: int = 0, sender: int | None = None) -> None:
        """A peer's head arrives, of this kernel unless said otherwise, while everything else stands still."""
        self._quiet()
        self.put_fields("heads_in.payload", {
            "head": head, "epoch": (self.kernel - 1) % 255 + 1 if epoch is None else epoch, "source": source,
            "device": 0, "sender": source if sender is None else sender})
        self.put("heads_in.valid", 1)
        self.backend.step()
        self.put("heads_in.valid", 0)
        self.cycle += 1

    def dispatch(self, wg: int, tiles: int, there: int | None = None) -> None:
        """Ask for a workgroup; `there`: an id that it touches at the peer."""
        request = Request(wg, tiles) if there is None else Request(wg, tiles, there, reaches=1)
        self.waiting["dispatch"].append(request._asdict())

    @property
    def held(self) -> int:
        """Workgroups that have not started."""
        return len(self.waiting["dispatch"]) + self.inside

    def restart(self, kernel: int | None = None) -> None:
        """A new kernel, the next one. What waits in the window's queue is forgotten."""
        self.kernel = self.kernel + 1 if kernel is None else kernel
        self.program(self.driver.restart(self.kernel))
        self.inside = 0


def lines(first: int = BASE):
    """(address, bytes) of a wavefront tile's lines in the order of a DMA engine."""
    for column in range(COLUMNS):
        start = first + column * PITCH
        address, end = start, start + ROW
        while address < end:
            size = min(64 - address % 64, end - address)
            yield address, size
            address += size


def mappings(driver: Driver) -> list:
    update, store = ({"base": BASE, "limit": LIMIT, "to": [Destination(PEER, THERE, operation, OFFSET, WG_OFFSET)]}
                     for operation in ("update", "store"))
    return [
        *driver.open_memory(0, base=BASE, limit=LIMIT),
        *driver.event_map(EVENT_REGION, base=BASE, limit=LIMIT, tile_bytes=ROW * COLUMNS, updates_per_element=2,
                          arrivals=[0]),
        *driver.dma_map(DMA_REGION, **update, row_bytes=ROW, columns=COLUMNS, pitch_bytes=PITCH, updates_per_element=2,
                        arrival_region=EVENT_REGION),
        *driver.remote_map(REMOTE_REGION, **store),
        *driver.policy("round_robin"), *window_of_8(driver),
    ]


def window_of_8(driver: Driver) -> list:
    """Eight tiles in a workgroup; where commands are fewer than these, without the driver's promise of progress."""
    dma = driver.geometry.dma
    return driver.window(8) if dma.ready_commands // dma.peers >= 8 else [driver._write("WINDOW", window=1, tiles=8)]


def programmed(**options) -> Gpu:
    gpu = Gpu(**options)
    gpu.program(mappings(gpu.driver) + gpu.driver.clear_counters())
    gpu.restart()
    return gpu.run(2 * GEOMETRY.tracker.window_slots)


def outline(items, *names) -> Counter:
    return Counter(tuple(item[name] for name in names) for item in items)


# The bus


def test_identity_and_geometry():
    gpu = Gpu()
    gpu.driver.check_identity(gpu.bus.read)
    assert gpu.read("ID").to_bytes(4, "big") == b"T3TT"
    assert gpu.error() is None and set(gpu.counters().values()) == {0}
    assert gpu.status() == {"drain"}


def test_registers_read_back(rng):
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
    gpu = Gpu()
    with pytest.raises(BusError, match=f"register {offset:#05x}: .* refused"):
        gpu.bus.write(offset, 1) if write else gpu.bus.read(offset)
    gpu.driver.check_identity(gpu.bus.read)


# A tile's life


def play_a_tile(gpu: Gpu, wg: int = 0) -> None:
    """Workgroup `wg` with two tiles: wavefront 0 is sent on by DMA, wavefront 1 stays and raises an event."""
    stays = BASE + COLUMNS * PITCH
    dram, packets, events = len(gpu.dram), len(gpu.packets), len(gpu.events)
    before = gpu.counters()
    gpu.dispatch(wg, tiles=2)
    gpu.run(50)
    assert not gpu.held and gpu.get("head") == wg

    arriving = [(wf, address, size) for wf, first in enumerate((BASE, stays)) for address, size in lines(first)]
    gpu.random.shuffle(arriving)
    for wf, address, size in arriving:  # from the ring, all under the event region, before the local ones
        gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wf=wf, wg=wg)
    for wf, region, first in ((0, DMA_REGION, BASE), (1, EVENT_REGION, stays)):
        for address, size in list(lines(first))[:-1]:
            gpu.access("compute", address, size, region=region, wf=wf, wg=wg)
    gpu.run(400)
    assert len(gpu.dram) - dram == 46 and not any(gpu.waiting.values())
    assert len(gpu.events) == events and gpu.get("head") == wg, "a line of each tile is missing"
    assert all(command["op"] == UPDATE for command in gpu.dram[dram:])
    assert gpu.busy() == {"tracker_occupied", "window_open"}

    address, size = list(lines(BASE))[-1]
    gpu.access("compute", address, size, region=DMA_REGION, wf=0, wg=wg)
    gpu.run(400)
    commands = gpu.dram[dram:]
    reads = [command for command in commands if command["op"] == READ]
    assert outline(reads, "address", "bytes") == Counter(lines(BASE))
    assert {(c["source"], c["wf"], c["wg"], c["region"], c["communication"]) for c in reads} == {
        (DMA, 0, wg, DMA_REGION, 1)}
    assert gpu.get("head") == wg, "the other tile is open"
    last_write = {c["address"]: c["cycle"] for c in commands if c["op"] != READ}
    for read in reads:  # the order guard
        assert read["cycle"] >= last_write[read["address"]] + gpu.memory_cycles

    assert len(gpu.packets) == packets
    for number, read in enumerate(reads):  # their data leave
        item = {name: read[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg")}
        gpu.waiting[f"outbound[{number % LANES}]"].append(item)
    address, size = list(lines(stays))[-1]
    gpu.access("compute", address, size, region=EVENT_REGION, wf=1, wg=wg)
    gpu.run(400)
    sent = gpu.packets[packets:]
    assert outline(sent, "address", "bytes", "lane") == Counter(
        (read["address"] + OFFSET, read["bytes"], number % LANES) for number, read in enumerate(reads))
    assert outline(sent, "op", "source", "region", "wf", "wg", "device") == {
        (UPDATE, DMA, THERE, 0, wg + WG_OFFSET, PEER): len(sent)}
    assert gpu.events[events:] == [{"address": stays, "region": EVENT_REGION, "wf": 1, "wg": wg}]
    assert gpu.get("head") == wg + 1
    assert len(gpu.dram) - dram == 48 + 12, "nothing else reached memory"

    counted = {name: count - before[name] for name, count in gpu.counters().items() if name != "ready_high_water"}
    assert counted["updates"] + counted["coalesced"] == 48
    assert counted["triggers"] == 2 and counted["commands"] == 1
    assert counted["lines"] == counted["packets"] == 12
    assert counted["set_full"] == 0
    assert not gpu.busy() and gpu.error() is None


@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_a_tiles_life(idle, seed):
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
    """Its narrower last wavefront tile stays, the others are sent on: not before the peer has room.

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
    """All tiles of two workgroups complete at about the same time; each block is read once."""
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
    gpu = programmed(seed=seed)
    for _ in range(2):
        play_a_tile(gpu)
        gpu.restart()
        gpu.run(2 * GEOMETRY.tracker.window_slots)
        assert gpu.get("head") == 0


def test_a_compute_units_store_leaves_for_the_peer():
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


def complete_both_ways(gpu: Gpu, workgroups: int, tiles: int) -> Counter:
    """Complete tiles of a region that is sent on and raises events; returns how often each should come."""
    gpu.program(gpu.driver.unmap(DMA_REGION) + gpu.driver.dma_map(
        DMA_REGION, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)], row_bytes=64, columns=1,
        pitch_bytes=PITCH, updates_per_element=1, event=True) + gpu.driver.clear_counters()
        + [(gpu.driver.registers["WINDOW"].offset, workgroups)])
    for wg in range(workgroups):
        gpu.dispatch(wg, tiles=tiles)
    gpu.run(50)
    every = list(itertools.product(range(workgroups), range(tiles)))
    for wg, wf in every:
        gpu.access("compute", BASE + wf * PITCH, 64, region=DMA_REGION, wf=wf, wg=wg)
    gpu.run(300)
    return Counter(every)


def test_a_tile_that_goes_both_ways_is_sent_once_however_long_its_event_waits():
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
    """A packet in the cycle in which the write ends counts, one of the cycle before does not."""
    gpu = programmed()
    line = {"address": BASE, "bytes": 64, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION, "wf": 1, "wg": 2}
    gpu.waiting["outbound[0]"].append(line)
    gpu.run(moment)
    cleared = gpu.write_meanwhile("CONTROL", sum(value for _, value in gpu.driver.clear_counters()))
    gpu.run(20)
    (packet,) = gpu.packets
    assert gpu.counters()["packets"] == (packet["cycle"] >= cleared)


def test_ordinary_traffic_passes_unseen(rng):
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


# Errors


def test_the_first_error_stays():
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
    "a region that is not mapped": {"region": 9}, "no bytes": {"bytes": 0}, "127 bytes": {"bytes": 127},
    "a read": {"op": READ}, "in this GPU's name": {"source": LOCAL}, "a workgroup outside the window": {"wg": 1 << 15},
}


@pytest.mark.parametrize("what", UNLAWFUL)
def test_an_arrival_that_is_not_lawful_is_neither_written_nor_counted(what):
    """A peer's packet goes nowhere, and the error says which; what is lawful arrives as ever."""
    gpu = programmed()
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
    gpu = programmed()
    for number in range(10 * CHANNELS):
        gpu.access("inbound", BASE + number * GEOMETRY.channel.interleave_bytes, 64, source=REMOTE, region=2)
    gpu.run(200)
    assert not gpu.dram and not any(gpu.waiting.values())
    assert gpu.counters()["arrivals_refused"] == 10 * CHANNELS and "error_overflow" in gpu.status()


def test_what_is_refused_shows_in_the_next_cycle_by_channel(seed):
    """In every cycle, with all channels at work: models drop what they know of a request by it."""
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
    """By the same ranges, regions and window, whose first workgroups have finished."""
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


def test_eight_bytes_of_a_peer_stop_nothing():
    """A way for each, for one of which nobody will ever send the rest: the window's tiles go on, or are told."""
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
    """A region with a quarter of the threshold, as open to arrivals as the tile's own; in each bank."""
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


@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_wavefront_that_no_workgroup_has_leaves_nothing(tiles):
    """Not in the Tracker, not in memory: of what a peer sends for it nothing completes, here or in the next kernel."""
    gpu = programmed()
    gpu.program(gpu.driver.window(tiles))
    gpu.dispatch(0, tiles=tiles)
    gpu.run(60)
    for wf in range(tiles, 8):
        for address, size in 2 * list(lines()):
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


def test_a_tile_that_its_workgroup_does_not_have_does_not_finish_it():
    """A workgroup at the edge has fewer than others: what fills another of its wavefronts is not one of its tiles."""
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    gpu.run(60)
    for wf, head in ((7, 0), (0, 1)):
        for address, size in 2 * list(lines()):
            gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wf=wf)
        gpu.run(300)
        assert gpu.get("head") == head
    assert gpu.error()["code"] == "completion_unexpected" and gpu.error()["wf"] == 7


def test_a_workgroup_that_is_finished_takes_no_more_arrivals():
    gpu = programmed()
    play_a_tile(gpu, 0)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION, wg=0)
    gpu.run(60)
    assert gpu.error()["code"] == "arrival_refused" and not gpu.busy()


def test_ids_are_opened_out_of_order_but_once():
    gpu = programmed()
    for wg in (2, 0, 1):
        gpu.dispatch(wg, tiles=1)
    gpu.run(20)
    assert not gpu.held and gpu.error() is None
    gpu.dispatch(2, tiles=1)
    gpu.run(20)
    assert gpu.error()["code"] == "id_reused" and gpu.error()["wg"] == 2


def test_a_tile_with_too_many_bytes():
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    for size in (*[64] * (2 * ROW * COLUMNS // 64 - 1), 32, 64):
        gpu.access("compute", BASE + 64, size, region=EVENT_REGION, wf=2)
    gpu.run(200)
    assert not gpu.events and gpu.busy() == {"window_open"}
    error = gpu.error()
    assert (error["code"], error["wg"], error["wf"], error["region"]) == ("threshold_exceeded", 0, 2, EVENT_REGION)


def test_accesses_that_join_are_counted_in_every_channel():
    gpu = programmed()
    for c in range(CHANNELS):
        for _ in range(3):
            gpu.access("compute", BASE + c * INTERLEAVE, 16, region=EVENT_REGION, wg=c)
    gpu.run(100)
    assert gpu.counters()["coalesced"] == 2 * CHANNELS and gpu.counters()["updates"] == CHANNELS


def test_a_tile_for_a_workgroup_that_never_started():
    gpu = programmed()
    for _ in range(2 * ROW * COLUMNS // 64):
        gpu.access("compute", BASE, 64, region=EVENT_REGION, wg=4)
    gpu.run(200)
    assert gpu.events == [{"address": BASE, "region": EVENT_REGION, "wf": 0, "wg": 4}]
    assert gpu.error() == {"code": "completion_unexpected"} | gpu.events[0]


def test_a_block_that_leaves_its_region():
    """Only lines inside are read."""
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


@pytest.mark.parametrize("source, region", [(LOCAL, DMA_REGION), (DMA, REMOTE_REGION), (LOCAL, EVENT_REGION), (DMA, 0)])
@pytest.mark.parametrize("lane", range(LANES))
def test_a_line_that_must_not_leave(source, region, lane):
    gpu = programmed()
    gpu.waiting[f"outbound[{lane}]"].append(
        {"address": BASE, "bytes": 64, "op": UPDATE, "source": source, "region": region, "wf": 1, "wg": 2})
    gpu.run(20)
    assert not gpu.packets
    assert gpu.error() == {"code": "region_unconfigured", "wg": 2, "wf": 1, "region": region, "address": BASE}


def test_refused_lines_of_dma_do_not_hold_the_next_ones_up():
    """A region is unmapped while its data are on the way, again and again: the engines go on asking for lines."""
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
    gpu = programmed()
    for wg in range(3):
        assert ("error_overflow" in gpu.status()) == (wg > 1)
        gpu.access("compute", BASE, 64, region=9, wg=wg)
        gpu.run(60)
    assert gpu.error()["wg"] == 0 and gpu.counters()["errors"] == 3
    gpu.program(gpu.driver.clear_error())
    assert "error_overflow" not in gpu.status()


# What STATUS says

WAITING = {"tracker_busy", "merge_busy", "events_busy", "dma_table_busy", "engines_busy", "egress_busy",
           "channels_busy"}


def random_traffic(gpu: Gpu) -> None:
    """Stores and arrivals of one to eight tiles of two workgroups, most of them complete, and remote stores."""
    rng = gpu.random
    for wg in range(2):
        gpu.dispatch(wg, tiles=8)
        for wf in range(rng.randint(1, 8)):
            region = rng.choice((DMA_REGION, EVENT_REGION))
            for address, size in list(lines(BASE + (wg * 8 + wf) * COLUMNS * PITCH))[rng.random() < 0.2:]:
                gpu.access("compute", address, size, region=region, wf=wf, wg=wg)
                gpu.access("inbound", address, size, source=DMA, region=EVENT_REGION, wf=wf, wg=wg)
    for address, size in lines():
        store = {"address": address, "bytes": size, "op": UPDATE, "source": LOCAL, "region": REMOTE_REGION}
        gpu.waiting[f"outbound[{rng.randrange(LANES)}]"].append(store | {"wf": 0, "wg": 0})


def came_out(gpu: Gpu) -> tuple[int, ...]:
    return len(gpu.dram), len(gpu.packets), len(gpu.events), gpu.get("head"), gpu.get("irq")


def test_idle_means_that_nothing_more_comes_out(seed):
    """Random traffic is stopped at any moment, and with any outputs blocked before."""
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
    """One more after the other: they fill the event queue, then the merge queue, then their bank."""
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


def test_every_bank_shows_that_a_trigger_waits_in_it():
    """Nobody takes events: with the same number of tiles complete, a bank is busy, whichever it is."""
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


# Watchdog


def complete(gpu: Gpu, tiles: int, region: int) -> None:
    """Workgroup 0 starts, and so many of its tiles get all their bytes from here."""
    gpu.dispatch(0, tiles=8)
    for wf in range(tiles):
        for address, size in 2 * list(lines(BASE + wf * COLUMNS * PITCH)):
            gpu.access("compute", address, size, region=region, wf=wf)


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
    for wg in range(6):
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
    """Engines take turns: tiles that are soon read, then one of 896 lines, which is more than may be outstanding."""
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


def in_channel(channel: int) -> int:
    return next(at for at in range(BASE, LIMIT, INTERLEAVE) if channel_of(at, GEOMETRY) == channel)


def waits_in_the_end(gpu: Gpu) -> set[str]:
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    while not gpu.get("irq"):
        gpu.run(1)
        assert gpu.cycle < 8000, "nothing is told"
    return set(gpu.driver.waiting(gpu.bus.read))


@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_channel_that_waits_alone_for_dram_is_told(channel):
    gpu = programmed()
    gpu.blocked = {"dram"}
    gpu.access("compute", in_channel(channel), 64, region=EVENT_REGION)
    assert waits_in_the_end(gpu) == {"dram", "channels", "tiles"}
    assert gpu.busy() == {"channels_busy", "tracker_occupied"}


@pytest.mark.parametrize("lane", range(LANES))
def test_a_lane_that_waits_alone_for_the_link_is_told(lane):
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
    assert waits_in_the_end(held_by_the_guard([channel])) == {"guard", "channels", "data"}


def test_every_channels_guard_counts_its_stalls():
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
    assert set().union(*HANGS.values(), *QUEUE_HANGS.values()) == {name for name, _ in WAITS}


def test_slow_work_and_no_work_are_no_hang(seed):
    """A line every few hundred cycles, and then nothing to do; the watchdog of a GPU that is not watched is silent."""
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
    """Nothing else does, while a tile waits for bytes that come late."""
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


def test_other_kernels_are_no_hang_however_they_wait():
    """Their reads fill a channel for long; nothing of Track & Trigger's waits."""
    gpu = programmed()
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    for _ in range(20):
        for _ in range(300):
            gpu.access("compute", BASE, 64, op=READ)
        gpu.run(200)
    assert gpu.waiting[f"compute[{channel_of(BASE, GEOMETRY)}]"] and gpu.error() is None


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
    gpu = programmed()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    assert "reads_outstanding" in gpu.status()
    play_a_tile(forced(gpu))


def test_a_soft_reset_ends_though_a_peer_sends_what_it_may_not():
    def unlawful(gpu: Gpu) -> None:
        gpu.access("inbound", BASE, 64, source=DMA, region=9)
    play_a_tile(forced(programmed(), unlawful))


def test_data_that_nobody_asked_for_are_an_error_and_hold_up_no_reset():
    gpu = programmed()
    stray = {"address": BASE, "bytes": 64, "op": READ, "source": DMA, "region": DMA_REGION, "wf": 0, "wg": 0}
    for lane in range(LANES):
        gpu.waiting[f"outbound[{lane}]"].append(stray)
    gpu.run(50)
    assert gpu.error()["code"] == "data_unexpected" and not gpu.busy()
    gpu.program(gpu.driver.clear_error())
    gpu.soft_reset()
    gpu.program(gpu.driver.clear_counters())
    gpu.restart()
    play_a_tile(gpu.run(2 * GEOMETRY.tracker.window_slots))


def test_a_soft_reset_without_a_limit_waits():
    gpu = programmed()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=None))
    gpu.run(6000)
    assert "resetting" in gpu.status() and gpu.error() is None


# Restart


@pytest.mark.parametrize("before, number, refused", [
    (5, 5, True), (5, 4, True), (5, 0, True), (5, 6, False), (5, 132, False), (5, 133, True), (255, 1, False),
    (255, 127, False), (255, 128, True), (1, 255, True)])
def test_a_restart_whose_number_does_not_follow_is_refused(before, number, refused):
    """Not 0, not the same again, not one of the past: peers would count as restarted that are not."""
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


def test_a_peer_that_was_never_heard_has_not_restarted():
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
    """No peer is told, so that none sends what would be lost; the soft reset goes on."""
    gpu = programmed()
    gpu.program(gpu.driver.heads(9, sends_to=(1,), receives_from=(4,)))
    gpu.run(50)
    gpu.heads.clear()
    gpu.program(gpu.driver.soft_reset(3000))
    gpu.run(50)
    gpu.program(gpu.driver.restart(2))
    gpu.run(100)
    assert gpu.error()["code"] == "restart_refused" and "resetting" in gpu.status() and not gpu.heads
    gpu.run(4000)
    assert "reset_done" in gpu.status() and [(one["head"], one["epoch"]) for one in gpu.heads] == [(0, 0)]
    gpu.program(gpu.driver.clear_error() + gpu.driver.restart(2))
    gpu.run(100)
    assert gpu.error() is None and "reset_done" not in gpu.status() and gpu.heads[1:][0]["epoch"] == 2


def test_a_restart_with_a_tile_in_the_tracker_is_refused():
    gpu = programmed()
    gpu.dispatch(0, tiles=1)
    gpu.access("inbound", BASE, 64, source=DMA, region=EVENT_REGION, wf=7)
    gpu.run(100)
    gpu.restart()
    assert gpu.error()["code"] == "restart_refused" and gpu.busy() == {"tracker_occupied", "window_open"}


# Heads


@pytest.mark.parametrize("lie", [
    {"head": (1 << 17) - 1}, {"head": (1 << 16) + 1}, {"head": 3}, {"head": 60, "sender": 2},
    {"head": 60, "epoch": 255}, {"head": 60, "epoch": 0}], ids=str)
def test_a_head_that_the_peer_cannot_have_opens_no_window(lie):
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


# What a soft reset forgets


def test_a_soft_reset_forgets_a_tile_that_is_partly_updated():
    """A third of a tile is left of a kernel that was aborted; a restart alone would let the next one's fire early."""
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
    """Nobody takes any: triggers fill their queue, merge and banks, and updates wait before those. All are gone."""
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
    """No packet leaves: as many lines are read as may be, every engine has commands, and the others wait."""
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


@pytest.mark.parametrize("side", ["compute", "inbound"])
@pytest.mark.parametrize("channel", range(CHANNELS))
def test_a_soft_reset_waits_for_tracked_writes(side, channel):
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
    """In every channel, of any workgroup."""
    gpu = programmed()
    gpu.soft_reset()
    for c in range(CHANNELS):
        for side, source in (("compute", LOCAL), ("inbound", DMA)):
            gpu.access(side, BASE + c * INTERLEAVE, 64, region=EVENT_REGION, source=source, wg=1 << 15)
    gpu.run(100)
    assert len(gpu.dram) == 2 * CHANNELS and gpu.counters()["updates"] == 0
    assert gpu.error() is None and gpu.busy() == {"reset_done"}


def test_a_soft_reset_forgets_what_the_monitor_measured():
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", "auto") + gpu.driver.monitor(8, 25, 40))
    gpu.restart()
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 60)
    gpu.run(5000)
    gpu.access("inbound", BASE, 64, op=STORE, source=REMOTE, region=EVENT_REGION)
    gpu.run(50)
    assert "monitor_done" in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == 5
    gpu.soft_reset()
    assert "monitor_done" not in gpu.status() and gpu.read("CHOSEN_THRESHOLD") == NO_THRESHOLD


@pytest.mark.parametrize("bit", range(4, 16))
def test_a_soft_reset_takes_as_long_as_it_is_told(bit):
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(1 << bit))
    gpu.backend.step((1 << bit) - 12)
    assert "resetting" in gpu.status()
    gpu.backend.step(600)
    assert gpu.status() == {"reset_done", "drain"}


@pytest.mark.parametrize("done", [0, 1])
def test_a_second_soft_reset_begins_anew(done):
    """One that comes in the middle of another, or after it."""
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(16 if done else 1000))
    gpu.backend.step(700)
    assert gpu.status() == {"reset_done" if done else "resetting", "drain"}
    gpu.program(gpu.driver.soft_reset(1000))
    gpu.backend.step(700)
    assert gpu.status() == {"resetting", "drain"}
    gpu.backend.step(600)
    assert gpu.status() == {"reset_done", "drain"}


def test_a_restart_during_the_sweep_of_a_soft_reset_does_nothing():
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(16))
    gpu.backend.step(16 + 24)  # of the command table's sweep, the longest, a part
    gpu.program(gpu.driver.restart())
    assert "resetting" in gpu.status()
    gpu.backend.step(GEOMETRY.tracker.window_slots << GEOMETRY.tracker.wf_bits - 1)
    assert gpu.status() == {"reset_done", "drain", "error"} and gpu.error()["code"] == "restart_refused"


def test_no_workgroup_starts_while_stopped():
    """One that waits for room when the soft reset comes; a write that waits for DRAM holds the end up."""
    gpu = programmed()
    gpu.blocked = {"start", "dram"}
    gpu.access("compute", BASE, 64, region=EVENT_REGION)
    gpu.dispatch(0, tiles=1)
    gpu.run(30)
    assert gpu.get("grant") & 1
    gpu.program(gpu.driver.soft_reset(16))
    gpu.blocked = {"dram"}
    for _ in range(60):
        assert not gpu.get("grant") & 1
        gpu.run(1)
    assert "resetting" in gpu.status()


def test_a_soft_reset_lets_arrivals_pass_the_producer_that_runs_still():
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


def test_a_soft_reset_in_the_middle_of_anything(seed):
    """Everything around goes on: what was accepted is performed, and nothing leaves after it.

    The next kernel is as new.
    """
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
    gpu = programmed()
    gpu.program(gpu.driver.soft_reset(100))
    for _ in range(8):
        gpu.access("inbound", BASE, 64, source=DMA, region=9)
        gpu.run(80)
        assert "resetting" in gpu.status()
    gpu.run(2000)
    assert gpu.busy() == {"reset_done"} and gpu.counters()["arrivals_refused"] == 8


def test_a_soft_reset_waits_for_the_data_of_reads_and_for_late_arrivals():
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
    """Not for a cycle: head and kernel are of the same moment."""
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
    """Every bit of a kernel's number counts, and of each peer's head."""
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


# Windows and arbitration


def test_the_window_holds_the_dispatcher_back():
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
    """With the number of its kernel, and to nobody else; whoever is told anew hears at once."""
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
    assert sorted(gpu.heads, key=lambda one: one["device"])[-2:] == [head | {"device": 2}, head | {"device": 7}]
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
    assert gpu.heads[2:] == [head | {"device": 6}]
    gpu.program(gpu.driver.heads(5, sends_to=(), receives_from=()))
    gpu.restart(kernel=4)
    gpu.run(2 * GEOMETRY.tracker.window_slots)
    assert len(gpu.heads) == 3


def test_a_head_of_nobody_that_is_sent_to_changes_nothing():
    gpu = programmed()
    gpu.program(gpu.driver.heads(5, sends_to=range(1, 1 + GEOMETRY.dma.peers), receives_from=()))
    gpu.hear(40, source=0)
    gpu.hear(41, source=1 + GEOMETRY.dma.peers)
    assert {gpu.get(f"peer_heads[{peer}]") for peer in range(GEOMETRY.dma.peers)} == {0}
    for peer in range(GEOMETRY.dma.peers):
        gpu.hear(10 + peer, source=1 + peer)
    assert [gpu.get(f"peer_heads[{peer}]") for peer in range(GEOMETRY.dma.peers)] == [
        10 + peer for peer in range(GEOMETRY.dma.peers)]


def test_heads_outlive_a_soft_reset():
    """What a peer has told once it does not tell again."""
    gpu = programmed()
    gpu.hear(17)
    gpu.soft_reset()
    assert gpu.get("peer_heads[0]") == 17


def test_the_arbiters_threshold_and_the_drain():
    """MCA lets communication in below the threshold only, until the producer has ended (T3 paper, section 4.5)."""
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
    gpu = programmed()
    gpu.program(gpu.driver.policy("mca", 5, starvation_limit=60))
    gpu.put("producer_active", 1)
    for c in range(CHANNELS):
        gpu.put(f"occupancy[{c}]", 20)
    gpu.run(10)
    for c in range(CHANNELS):
        gpu.access("inbound", in_channel(c), 64, source=DMA, region=EVENT_REGION)
    gpu.run(50)
    assert not gpu.dram
    gpu.run(50)
    assert [channel_of(command["address"], GEOMETRY) for command in gpu.dram] == list(range(CHANNELS))


def test_an_empty_dram_queue_lets_communication_in_whatever_the_threshold():
    """A threshold of 0, which the driver does not write, must not hold up a ring that the producer waits for."""
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
    gpu, workgroups, stage = programmed(), 6, 7
    tiles = 8 * workgroups  # more than channels and engines hold
    gpu.program([
        *gpu.driver.policy("ring_aware", 1, starvation_limit=65535), *gpu.driver.stage(stage),
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
    gpu.run(500)
    for wg in range(workgroups, workgroups + stage):
        gpu.dispatch(wg, tiles=1)
    gpu.run(200)
    assert not gpu.held and len(gpu.dram) == 12 * tiles, "the threshold holds the DMA reads back"
    gpu.dispatch(workgroups + stage, tiles=1)
    gpu.run(200)
    late = len(gpu.dram) - 12 * tiles
    assert late > 12, "more workgroups than a stage have started meanwhile: the ring is late"
    assert {channel_of(command["address"], GEOMETRY) for command in gpu.dram[-late:]} == set(range(CHANNELS))
    gpu.run(2000)
    assert 12 * tiles + late <= len(gpu.dram) < 24 * tiles, "in time again, as soon as no command waits"
    gpu.put("producer_active", 0)
    gpu.run(500)
    assert len(gpu.dram) == 24 * tiles


@pytest.mark.parametrize("occupancy, chosen", [(1, 127), (7, 127), (9, 30), (24, 30), (26, 10), (39, 10), (60, 5)])
def test_the_monitor_chooses_the_threshold(occupancy, chosen):
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


# Commands in memory

RING, FLAG, SIGNALLED, STAMP = 0x40_0000, 0x50_0000, 0x50_0040, 0x50_0080


class QueueGpu(Gpu):
    """With the command queue's memory, which answers after `memory_cycles`."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.words, self.ring, self.written = {FLAG: 0}, {}, 0
        self.answer: tuple[int, dict] | None = None  #: cycle, line
        self.looks, self.writes = [], []  #: cycles of answers to polls; (cycle, address, value, packets that had left)
        self.returning = deque()
        self.program(mappings(self.driver) + self.driver.clear_counters() + self.driver.command_queue(
            RING, (FLAG, FLAG + 0x1000)) + self.driver.restart())
        self.kernel = 1
        self.run(2 * GEOMETRY.tracker.window_slots)

    def commands(self, *commands: Command) -> None:
        """Written behind those that are there, then the doorbell."""
        for command in commands:
            self.ring[RING + self.written % GEOMETRY.dma.queue_commands * LINE_BYTES] = command._asdict()
            self.written += 1
        self.program(self.driver.doorbell(self.written))

    def _quiet(self) -> None:
        super()._quiet()
        for name in ("queue_lines.valid", "queue_reads.ready", "queue_writes.ready"):
            self.put(name, 0)

    def _step(self) -> None:
        due = self.answer is not None and self.answer[0] <= self.cycle
        self.put("queue_lines.valid", due)
        if due:
            self.put_fields("queue_lines.payload", self.answer[1])
        reads, writes = (name not in self.blocked for name in ("queue_reads", "queue_writes"))
        self.put("queue_reads.ready", reads and self.answer is None)
        self.put("queue_writes.ready", writes)
        if reads and self.answer is None and self.get("queue_reads.valid"):
            self.answer = self.cycle + self.memory_cycles, self._line(self.get("queue_reads.payload"))
        elif due and self.get("queue_lines.ready"):
            self.answer = None
        if writes and self.get("queue_writes.valid"):
            write = self.fields("queue_writes.payload")
            self.writes.append((self.cycle, write["address"], write["value"], len(self.packets)))
        super()._step()

    def _line(self, address: int) -> dict[str, int]:
        if address in self.ring:
            return self.ring[address]
        self.looks.append(self.cycle + self.memory_cycles)
        return dict.fromkeys(Command._fields, 0) | {"value": self.words[address]}


def copy_of(wf: int) -> Command:
    return Command(0, COPY, BASE + wf * COLUMNS * PITCH, DMA_REGION, wf, 3)


def test_commands_in_memory_copy_what_their_regions_say(seed):
    """Behind a poll; the signal comes when all packets have left, a timestamp through a place that is used again."""
    gpu = QueueGpu(seed=seed, idle=0.3)
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0), copy_of(1), Command(77, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(300)
    assert gpu.looks and not gpu.dram and not gpu.writes and gpu.read("QUEUE_TAKEN") == 0
    gpu.words[FLAG] = 5
    gpu.run(900)
    sent = [line for wf in range(2) for line in lines(BASE + wf * COLUMNS * PITCH)]
    assert outline(gpu.packets, "address", "bytes", "device", "region", "wg") == Counter(
        (address + OFFSET, size, PEER, THERE, 3 + WG_OFFSET) for address, size in sent)
    assert [write[1:] for write in gpu.writes] == [(SIGNALLED, 77, len(sent))]
    assert gpu.read("QUEUE_TAKEN") == 4 and not gpu.busy() and gpu.error() is None
    gpu.commands(Command(0, TIMESTAMP, STAMP, 0, 0, 0))
    gpu.run(200)
    gpu.commands(Command(0, TIMESTAMP, STAMP, 0, 0, 0))
    gpu.run(200)
    (first, _, before, _), (second, _, after, _) = gpu.writes[1:]
    assert 0 < after - before and gpu.read("QUEUE_TAKEN") == 6
    counted = gpu.counters()
    assert counted["commands"] == 2 and counted["lines"] == len(sent)


class NarrowGpu(QueueGpu):
    """As few lines as possible may be under way: between two of a copy, none is for a cycle."""

    geometry = replace(_SMALL, channel=replace(_SMALL.channel, channels=1), tracker=replace(_SMALL.tracker, banks=1),
                       dma=replace(GEOMETRY.dma, egress_lanes=1, peers=1, outstanding_lines=2 * GEOMETRY.dma.engines,
                                   ready_commands=2))


def test_a_tile_that_goes_both_ways_raises_one_event_however_long_it_waits_to_be_sent():
    """No line that was read comes back: engines and command table are full."""
    gpu = NarrowGpu()
    gpu.blocked = {"packets"}
    tiles = complete_both_ways(gpu, 4, 8)
    assert len(gpu.events) < 32
    gpu.blocked = set()
    gpu.run(1500)
    assert outline(gpu.events, "wg", "wf") == tiles == outline(gpu.packets, "wg", "wf") and gpu.error() is None


@pytest.mark.parametrize("engine", range(GEOMETRY.dma.engines))
def test_a_signal_waits_for_an_engine_that_asks_for_no_line_yet(engine):
    """Engines take turns; before the last copy all others have ended."""
    gpu = NarrowGpu()
    gpu.commands(*(copy_of(wf) for wf in range(engine)))
    gpu.run(2000)
    assert len(gpu.packets) == 12 * engine and not gpu.busy()
    gpu.commands(copy_of(engine), Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(1000)
    assert [write[1:] for write in gpu.writes] == [(SIGNALLED, 1, 12 * (engine + 1))]


def test_a_command_whose_turn_finds_its_engine_busy_goes_to_the_next():
    """One of 896 lines, then short ones: the last one's turn is the engine's that walks the first and holds two."""
    gpu, large = QueueGpu(memory_cycles=3), 6
    gpu.program(gpu.driver.dma_map(large, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)],
                                   row_bytes=4096, columns=14, pitch_bytes=4096, updates_per_element=1))
    short = 3 * GEOMETRY.dma.engines
    commands = [Command(0, COPY, BASE // 64 * 64, large, 0, 3), *(copy_of(number % 8) for number in range(short))]
    for first in range(0, len(commands), 4):
        gpu.commands(*commands[first:first + 4])
        gpu.run(80)
    assert gpu.read("QUEUE_TAKEN") == len(commands) % 8 and "engines_busy" in gpu.status()
    gpu.run(3000)
    assert len(gpu.packets) == 896 + 12 * short and not gpu.busy()


def test_triggers_and_commands_in_memory_share_the_engines(seed):
    gpu = QueueGpu(seed=seed)
    gpu.commands(*(copy_of(wf) for wf in range(4, 7)), Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    complete(gpu, 4, DMA_REGION)
    gpu.run(900)
    reads = [command for command in gpu.dram if command["op"] == READ]
    assert outline(reads, "address", "bytes") == Counter(
        line for wf in range(7) for line in lines(BASE + wf * COLUMNS * PITCH))
    assert len(gpu.packets) == 7 * 12 and gpu.error() is None and gpu.writes[0][3] >= 3 * 12


@pytest.mark.parametrize("gpu", [QueueGpu, NarrowGpu])
def test_a_broadcast_is_read_once_and_a_signal_waits_for_its_last_packet(gpu, seed):
    """Also where the lines on the way are as few as may be: those that leave once more count again."""
    gpu, first, second, third = gpu(seed=seed), 4, 6, 7
    for region, devices in ((first, (1, 2, 3)), (second, (2, 3)), (third, (3,))):  # on the same routes
        gpu.program(gpu.driver.copy_map(region, base=BASE, limit=LIMIT, row_bytes=256, columns=4,
                                        to=[(device, device << 20) for device in devices]))
    source = BASE
    gpu.commands(*(Command(0, COPY, source + 1024 * number, first, 0, 0) for number in range(2)),
                 Command(5, ADD, SIGNALLED, 0, 0, 0))
    gpu.run(2000)
    assert outline(gpu.packets, "address", "bytes", "device") == Counter(
        (source + 64 * line + (device << 20), 64, device) for line in range(32) for device in (1, 2, 3))
    assert [write[1:] for write in gpu.writes] == [(SIGNALLED, 5, 96)] and not gpu.busy() and gpu.error() is None
    assert gpu.counters()["lines"] == 32 and gpu.counters()["commands"] == 2
    gpu.commands(*(Command(0, COPY, source, second, 0, 0) for _ in range(2)))
    gpu.run(1000)
    assert len(gpu.packets) == 96 + 2 * 16 * 2 and not gpu.busy()


def test_a_trigger_is_sooner_than_a_poll():
    """Cycles to the first line read, from the grant of a tile's last write and from the write that a poll waits for."""
    gpu = QueueGpu()
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0))
    gpu.run(100)
    gpu.words[FLAG] = 5
    set_at = gpu.cycle
    gpu.run(300)
    polled = next(command["cycle"] for command in gpu.dram if command["op"] == READ) - set_at
    gpu = QueueGpu()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    reads = [command["cycle"] for command in gpu.dram if command["op"] == READ]
    triggered = reads[0] - max(command["cycle"] for command in gpu.dram if command["op"] != READ)
    assert triggered < 50 < polled < 200, (triggered, polled)


def test_a_soft_reset_empties_the_command_queue():
    gpu = QueueGpu()
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0))
    gpu.run(100)
    gpu.soft_reset()
    gpu.restart()
    gpu.words[FLAG] = 5
    gpu.run(300)
    assert not gpu.packets and not gpu.dram and gpu.read("QUEUE_TAKEN") == 0
    gpu.written = 0
    gpu.commands(copy_of(0))
    gpu.run(300)
    assert len(gpu.packets) == 12


@pytest.mark.parametrize("done", [*range(2 * GEOMETRY.dma.queue_commands), 9])
def test_a_soft_reset_does_no_command_again(done):
    """Of an idle queue, however far around its ring it is; the queue then counts from 0."""
    gpu = QueueGpu(memory_cycles=3)
    for number in range(done):
        gpu.commands(Command(100 + number, ADD, SIGNALLED, 0, 0, 0))
        gpu.run(40)
    assert len(gpu.writes) == done and not gpu.busy()
    gpu.soft_reset()
    assert gpu.read("DOORBELL") == gpu.read("QUEUE_TAKEN") == 0
    gpu.restart(1)
    gpu.run(300)
    assert len(gpu.writes) == done and gpu.error() is None
    gpu.written = 0
    gpu.commands(Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(100)
    assert [write[2] for write in gpu.writes[done:]] == [1] and gpu.read("QUEUE_TAKEN") == 1


@pytest.mark.parametrize("op", [SIGNAL, ADD])
@pytest.mark.parametrize("reads", [1, 6, 12])
def test_a_soft_reset_in_a_copy_sends_no_signal(op, reads):
    """None of its packets has left; as many lines are read as in the middle of it, or all."""
    gpu = QueueGpu(memory_cycles=200)
    gpu.commands(copy_of(0), Command(1, op, SIGNALLED, 0, 0, 0))
    while sum(command["op"] == READ for command in gpu.dram) < reads:
        gpu.run(1)
    gpu.run(100 if reads == 12 else 0)
    gpu.soft_reset()
    assert not gpu.packets and not gpu.writes and gpu.error() is None
    gpu.restart(1)
    gpu.run(500)
    assert not gpu.packets and not gpu.writes and not gpu.busy()


def test_a_soft_reset_takes_no_offered_signal_back():
    gpu = QueueGpu(memory_cycles=3)
    gpu.blocked = {"queue_writes"}
    gpu.commands(Command(7, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(60)
    gpu.program(gpu.driver.soft_reset(16))
    gpu.run(1000)
    assert gpu.get("queue_writes.valid") and "resetting" in gpu.status()
    gpu.blocked = set()
    gpu.run(200)
    assert [write[2] for write in gpu.writes] == [7] and gpu.busy() == {"reset_done"}


SIGNALS = Command(7, SIGNAL, SIGNALLED, 0, 0, 0)
#: What a command is refused for, and the command; copies are refused by their engine, or in a lane.
BAD_COMMANDS = {
    "command_unknown": SIGNALS._replace(op=5),
    "word_misaligned": SIGNALS._replace(address=SIGNALLED + 2),
    "word_out_of_range": SIGNALS._replace(op=ADD, address=FLAG + 0x1000),
    "address_out_of_range": copy_of(0)._replace(address=LIMIT + 4096),
    "region_unconfigured": copy_of(0)._replace(region=4),
}


@pytest.mark.parametrize("error", BAD_COMMANDS)
def test_a_command_that_fails_halts_the_queue(error):
    """No signal says that it was done; the driver repairs what was refused, and the queue goes on."""
    gpu, bad = QueueGpu(), BAD_COMMANDS[error]
    gpu.commands(bad, SIGNALS)
    gpu.run(1500)
    assert not gpu.writes and not gpu.packets and gpu.busy() == {"queue_busy", "queue_halted"}
    assert gpu.error()["code"] == error and gpu.read("QUEUE_TAKEN") == (bad.op == COPY)
    assert {name: gpu.error()[name] for name in ("region", "wg")} == {"region": bad.region, "wg": bad.wg}
    gpu.program(gpu.driver.clear_error())
    assert not gpu.run(300).writes and gpu.busy() == {"queue_busy", "queue_halted"}
    gpu.ring[RING] = SIGNALS._replace(value=3)._asdict()
    gpu.program(gpu.driver.resume_queue())
    gpu.run(300)
    assert [write[2] for write in gpu.writes] == ([7] if bad.op == COPY else [3, 7])
    assert not gpu.busy() and gpu.error() is None


@pytest.mark.parametrize("lane", range(LANES))
def test_no_signal_follows_data_that_a_lane_refused(lane):
    gpu = QueueGpu(memory_cycles=200)
    gpu.commands(copy_of(0), SIGNALS)
    while len(gpu.returning) < 12:
        gpu.run(1)
    gpu.program(gpu.driver.unmap(DMA_REGION))
    while gpu.returning:  # all by this lane
        gpu.waiting[f"outbound[{lane}]"].append(gpu.returning.popleft()[1])
    gpu.run(1500)
    assert not gpu.writes and not gpu.packets and gpu.busy() == {"queue_busy", "queue_halted"}
    assert gpu.error()["code"] == "region_unconfigured" and gpu.counters()["errors"] == 12
    gpu.soft_reset()
    gpu.restart(1)
    gpu.run(300)
    assert not gpu.writes and not gpu.busy()


@pytest.mark.parametrize(("done", "doorbell"), [(0, 5), (2, 7), (3, 2), (3, 0), (6, 11), (6, 5)])
def test_a_doorbell_beyond_the_ring_or_backwards_is_refused(done, doorbell):
    gpu = QueueGpu(memory_cycles=3)
    for number in range(done):
        gpu.commands(SIGNALS._replace(value=number))
        gpu.run(40)
    gpu.program(gpu.driver.doorbell(doorbell))
    gpu.run(300)
    assert len(gpu.writes) == done and not gpu.busy() and gpu.error()["code"] == "doorbell_refused"
    gpu.program(gpu.driver.clear_error())
    gpu.commands(*(SIGNALS._replace(value=done + more) for more in range(4)))  # a full ring
    gpu.run(300)
    assert [write[2] for write in gpu.writes] == list(range(done + 4)) and gpu.error() is None


def test_a_doorbell_before_the_restart_is_refused():
    gpu = QueueGpu()
    gpu.soft_reset()
    gpu.commands(SIGNALS)
    assert gpu.run(10).error()["code"] == "doorbell_refused"
    gpu.restart(1)
    assert not gpu.run(300).writes and not gpu.busy()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_signal_that_arrives_is_checked(is_open):
    """As everything from a peer: 4 bytes of DMA under region 0."""
    gpu = QueueGpu()
    gpu.program(gpu.driver.open_memory(1, base=FLAG, limit=FLAG + 64)
                + gpu.driver.plain_arrivals([1] if is_open else []))
    for address in (FLAG, FLAG + 64):
        gpu.access("inbound", address, 4, op=STORE, source=DMA)
    gpu.run(100)
    assert [write["address"] for write in gpu.dram] == ([FLAG] if is_open else [])
    assert gpu.error()["code"] == "arrival_refused" and gpu.counters()["arrivals_refused"] == 2 - is_open


def a_poll_does_not_come_true(gpu: QueueGpu) -> None:
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0))


def nobody_takes_the_queues_reads(gpu: QueueGpu) -> None:
    gpu.blocked = {"queue_reads"}
    gpu.commands(copy_of(0))


def a_commands_line_does_not_come(gpu: QueueGpu) -> None:
    gpu.memory_cycles = 1 << 40
    gpu.commands(copy_of(0))


def nobody_takes_the_queues_writes(gpu: QueueGpu) -> None:
    gpu.blocked = {"queue_writes"}
    gpu.commands(Command(7, SIGNAL, SIGNALLED, 0, 0, 0))


QUEUE_HANGS = {
    a_poll_does_not_come_true: {"poll"},
    nobody_takes_the_queues_reads: {"fetch"},
    a_commands_line_does_not_come: {"fetch"},
    nobody_takes_the_queues_writes: {"signal"},
}


@pytest.mark.parametrize("hang", QUEUE_HANGS, ids=lambda hang: hang.__name__)
def test_a_queue_that_hangs_is_told_with_what_waits(hang):
    gpu = QueueGpu(memory_cycles=3)
    hang(gpu)
    busy = {"queue_busy"}
    assert gpu.run(100).busy() == busy and waits_in_the_end(gpu) == QUEUE_HANGS[hang]
    assert gpu.error()["code"] == "watchdog" and gpu.busy() == busy


def test_commands_that_are_done_are_no_hang():
    """Nothing else moves: a poll that comes true in each period, none of whose reads is of anything that is tracked."""
    gpu = QueueGpu(memory_cycles=3)
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    for number in range(12):
        gpu.commands(Command(number, POLL, FLAG, 0, 0, 0))
        gpu.run(WATCHDOG_PERIOD)
        gpu.words[FLAG] = number
        gpu.run(60)
    assert gpu.error() is None and not gpu.busy()


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
    """Of each workgroup's two tiles one is sent on and announced to no one; it is not counted."""
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
