"""The compiled top between a plain memory, links and a bus, for tests that play a kernel by hand."""

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

from t3sim.cosim.driver.apb import ApbMaster
from t3sim.cosim.driver.driver import Destination, Driver
from t3sim.cosim.gpu import gpu_design
from t3sim.machine import load_machine
from t3sim.rtl.address_map import channel_of
from t3sim.rtl.layouts import Op, Source
from t3sim.rtl.queue_commands import COPY, POLL, SIGNAL, Command
from t3sim.rtl.registers import WATCHDOG_PERIOD
from t3sim.testbenches.reference.command_queue import LINE_BYTES
from t3sim.testbenches.reference.dispatch_window import Request
from tests.support.variants import small_machine

_SMALL = small_machine(load_machine()).geometry()
#: Three or more of everything, and two blocks that check arrivals: what reaches only the first is seen.
GEOMETRY = replace(_SMALL, channel=replace(_SMALL.channel, channels=8), tracker=replace(_SMALL.tracker, banks=4),
                   dma=replace(_SMALL.dma, egress_lanes=3, peers=3, outstanding_lines=640, queue_commands=4,
                               ready_groups=8, block_shapes=3, buffers=1, routes=5, copies=3))
CHANNELS, LANES = GEOMETRY.channel.channels, GEOMETRY.dma.egress_lanes
INTERLEAVE = GEOMETRY.channel.interleave_bytes
READ, STORE, UPDATE = Op.READ.value, Op.STORE.value, Op.UPDATE.value
LOCAL, REMOTE, DMA, COPIED = (source.value for source in Source)

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
        self.backend = gpu_design(self.geometry).simulator()
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
            if self.returning is not None and request["op"] == READ and request["source"] in (DMA, COPIED):
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

    def write_meanwhile(self, name: str, value: int, beside: Callable[["Gpu"], None] = lambda gpu: None) -> int:
        """Write a register while everything goes on; returns the cycle in which the bus shows that it has happened.

        `beside` is called before this cycle.
        """
        transfer = {"paddr": self.driver.registers[name].offset, "psel": 1, "pwrite": 1, "pwdata": value}
        for port, word in transfer.items():
            self._put.pop(f"apb.{port}", None)  # `bus` has changed it
            self.put(f"apb.{port}", word)
        self.run(1)
        self.put("apb.penable", 1)
        while not self.get("apb.pready"):
            self.run(1)
        beside(self)
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


def complete(gpu: Gpu, tiles: int, region: int) -> None:
    """Workgroup 0 starts, and so many of its tiles get all their bytes from here."""
    gpu.dispatch(0, tiles=8)
    for wf in range(tiles):
        for address, size in 2 * list(lines(BASE + wf * COLUMNS * PITCH)):
            gpu.access("compute", address, size, region=region, wf=wf)


def in_channel(channel: int) -> int:
    return next(at for at in range(BASE, LIMIT, INTERLEAVE) if channel_of(at, GEOMETRY) == channel)


def waits_in_the_end(gpu: Gpu) -> set[str]:
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    while not gpu.get("irq"):
        gpu.run(1)
        assert gpu.cycle < 8000, "nothing is told"
    return set(gpu.driver.waiting(gpu.bus.read))


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
