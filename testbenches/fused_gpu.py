"""GpuTop in the middle of a fused kernel: programmed through APB by the driver, dispatched, updated, drained.

Around it are a DRAM per channel, an upstream neighbour that updates workgroups inside the window, a downstream one that
takes packets, and compute units. Checked: each tile triggers exactly once; DMA reads are exactly the tile's lines, each
once and after the line's last update; every line leaves as the right packet; counters agree; no error.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from t3sim.cosim.driver.driver import Destination, Driver
from t3sim.rtl import arbiter
from t3sim.rtl.registers import COUNTERS, KERNEL_INSIDE, OPERATIONS, register_map
from t3sim.testbenches.bare_gpu import DMA, LOCAL, READ, REMOTE, STORE, UPDATE
from t3sim.testbenches.bench import Bench
from t3sim.testbenches.dispatcher import Dispatcher, lawful_order
from t3sim.testbenches.dram import Dram
from t3sim.testbenches.drivers import ApbDriver, StreamDriver
from t3sim.testbenches.mappings import Tables
from t3sim.testbenches.monitors import StreamMonitor
from t3sim.testbenches.pauses import never
from t3sim.testbenches.reference.dispatch_window import Request
from t3sim.testbenches.reference.egress import Packet, packets_of
from t3sim.testbenches.reference.line_router import channel_of_line
from t3sim.testbenches.reference.memory_channel import is_tracked
from t3sim.testbenches.scoreboard import Scoreboard, of_one_part, words

NO_REGION = 0
REQUEST = ("address", "bytes", "op", "source", "region", "wf", "wg")  #: as in `t3sim.rtl.layouts.request`
UPDATES = 2  # per element: the local one and one from upstream


class Piece(NamedTuple):
    """Part of a tile within one line."""

    address: int
    bytes: int


class Kernel:
    """The shapes of one random kernel: which region each workgroup is in, and where its tiles are."""

    def __init__(self, bench: Bench) -> None:
        rng, t = bench.rng, bench.geometry.tracker
        self.tiles = 1 << min(t.wf_bits, t.ways.bit_length() - 1)
        self.per_block = 1 << rng.randint(0, self.tiles.bit_length() - 1)
        self.workgroups = min(24, 1 << t.wg_bits)
        self.dma, self.event, self.remote = rng.sample(range(1, bench.geometry.dma.regions), 3)  #: regions
        self.regions = [rng.choice((self.dma, self.dma, self.event, self.remote)) for _ in range(self.workgroups)]
        self._first = rng.sample(range(1 << t.address_bits - 21), 8)
        self.row_bytes, self.columns = rng.choice((64, 96, 128)), rng.choice((1, 2))  # of one tile
        self.pitch = 8 * self.row_bytes + 64 * rng.randrange(3)

    def base(self, region: int) -> int:
        return self._first[region % 8] << 20

    def pieces(self, wg: int, wf: int) -> Iterator[Piece]:
        """Cut the output into pieces: tiles of a workgroup lie side by side, eight workgroups share columns."""
        first = ((wg // 8) * self.tiles + wf) * self.columns
        for column in range(first, first + self.columns):
            start = self.base(self.regions[wg]) + column * self.pitch + wg % 8 * self.row_bytes
            end = start + self.row_bytes
            while start < end:
                behind = min(end, (start // 64 + 1) * 64)
                yield Piece(start, behind - start)
                start = behind

    def tracked(self) -> list[tuple[int, int]]:
        return [(wg, wf) for wg, region in enumerate(self.regions) if region != self.remote
                for wf in range(self.tiles)]


class FusedGpu:
    """The top with its surroundings, running one kernel."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.geometry, self.bus = bench, bench.geometry, ApbDriver(bench, "apb.")
        self.driver, self.registers = Driver(bench.geometry), register_map(bench.geometry)
        channels = range(bench.geometry.channel.channels)
        self.compute = [StreamDriver(bench, f"compute[{c}]", on_accept=self._sent) for c in channels]
        self.inbound = [StreamDriver(bench, f"inbound[{c}]", on_accept=self._sent) for c in channels]
        self.drams = [Dram(bench, f"[{c}]", lambda command, c=c: self._command(c, command), self._performed)
                      for c in channels]
        self.packets = [Scoreboard(name) for name in bench.elements("packets")]
        self.outbound = [StreamDriver(bench, name, on_accept=lambda line, lane=lane: self._outbound(lane, line))
                         for lane, name in enumerate(bench.elements("outbound"))]
        for scoreboard, name in zip(self.packets, bench.elements("packets")):
            StreamMonitor(bench, name, lambda packet, check=scoreboard.check: check(of_one_part(packet)))
        self.dispatch = Dispatcher(bench, self._started)
        self._events = StreamMonitor(bench, "events", self._event)
        StreamMonitor(bench, "heads", self._told)
        self._heard = StreamDriver(bench, "heads_in")
        self._kernels, self._aborted = 0, False
        self._epoch = 0  #: the kernel's number
        self._mapped: list[int] = []  # regions
        self._tables: Tables = {}  # as far as packets go by them
        self.kernel: Kernel | None = None
        self.window = self.upstream = self._head = self.peers_end = 0
        peers, devices = bench.geometry.dma.peers, 1 << bench.geometry.dma.device_bits
        self.number, *self.sends_to = bench.rng.sample(range(devices), 1 + peers)
        self.receives_from = bench.rng.sample(range(devices), bench.rng.randint(1, peers))
        self.peer_heads = [0] * peers
        self.told = dict.fromkeys(self.receives_from, 0)  #: heads that have left, by device
        bench.add(self)

    async def program(self, kernel: Kernel) -> None:
        """Program what a driver does before a kernel: regions, arbitration, window, restart."""
        rng, driver, t = self.bench.rng, self.driver, self.geometry.tracker
        self.kernel = None
        there = {"device": rng.getrandbits(self.geometry.dma.device_bits),
                 "address_offset": rng.choice((0, 64 * rng.randrange(1 << t.address_bits - 6), -64)),
                 "wg_offset": rng.choice((rng.randrange(-3, 4), rng.randrange(1 << t.wg_bits)))}

        def limits(region: int) -> dict[str, int]:
            return {"base": kernel.base(region), "limit": kernel.base(region) + (1 << 20)}

        dma = self.geometry.dma
        targets = [rng.randrange(1, dma.regions) for _ in range(2)]
        updated, stored = (Destination(**there, destination_region=target, operation=operation) for target, operation
                           in zip(targets, ("update", rng.choice(list(OPERATIONS)))))
        if dma.routes == 1:  # both have the same
            stored = updated
        if min(dma.block_shapes, dma.buffers, dma.routes // 2) < self._kernels + 1 or rng.random() < 0.5:
            for region in self._mapped:  # otherwise the kernel before has left its mappings
                await self.bus.write_all(driver.unmap(region))
        self._mapped = [kernel.dma, kernel.event, kernel.remote]
        self.window = rng.randint(1, driver.largest_window(kernel.tiles))
        ahead = rng.randint(1, 127) if self._epoch else rng.randint(1, 255)  # of 1 to 255, then 1 again
        self._epoch = (self._epoch + ahead - 1) % 255 + 1
        policy = rng.choice(list(arbiter.POLICIES))
        has_limit = arbiter.POLICIES[policy].ends_starvation
        await self.bus.write_all([
            *driver.open_memory(0, **limits(kernel.dma)), *driver.open_memory(1, **limits(kernel.event)),
            *driver.dma_map(kernel.dma, **limits(kernel.dma), to=[updated], row_bytes=kernel.row_bytes,
                            columns=kernel.columns * kernel.per_block,
                            pitch_bytes=kernel.pitch, updates_per_element=UPDATES, tiles_per_block=kernel.per_block,
                            arrivals=[0]),
            *driver.event_map(kernel.event, **limits(kernel.event),
                              tile_bytes=kernel.row_bytes * kernel.columns, updates_per_element=UPDATES,
                              arrivals=[1]),
            *driver.remote_map(kernel.remote, **limits(kernel.remote), to=[stored]),
            *driver.policy(policy, rng.choice(("auto", None, 1, 3)), rng.choice((None, 1, 50)) if has_limit else None),
            *driver.heads(self.number, sends_to=self.sends_to, receives_from=self.receives_from),
            *driver.clear_counters(), *driver.clear_error(),
            *driver.window(kernel.tiles, workgroups=self.window)])
        inside = sum(1 << self.registers["STATUS"].field(name).lsb for name in KERNEL_INSIDE)
        while await self.bus.read(self.registers["STATUS"].offset) & inside:  # memories are cleared after a reset
            await self.bench.cycle(20)
        await self.bus.write_all(driver.restart(self._epoch))
        self.dispatch.reset()
        for source in self.sends_to:
            self._heard.send({"head": 0, "epoch": self._epoch, "source": source, "sender": source})
        self.told, self._aborted = dict.fromkeys(self.receives_from, 0), False
        self._kernels += 1
        routes = [to._asdict() | {"operation": OPERATIONS[to.operation]} for to in (updated, stored)]
        nothing = {"send_stores": 0, "send_dma": 0}
        self._tables = {"region": [nothing] * dma.regions, "route": (routes * dma.routes)[:dma.routes]}
        for number, (region, action) in enumerate(((kernel.dma, "send_dma"), (kernel.remote, "send_stores"))):
            self._tables["region"][region] = nothing | {action: 1, "route": number % dma.routes, "more_routes": 0}
        self.peer_heads, self.peers_end = [0] * len(self.peer_heads), kernel.workgroups
        self.kernel, self.upstream, self._head = kernel, 0, 0
        self.expected: Counter[tuple] = Counter()  # requests on their way to the DRAM
        self.updated: Counter[int] = Counter()  # address -> updates performed
        self.reads = {(piece, wg, wf): 0 for wg, wf in kernel.tracked() if kernel.regions[wg] == kernel.dma
                      for piece in kernel.pieces(wg, wf)}
        self.events = {(wg, wf): 0 for wg, wf in kernel.tracked() if kernel.regions[wg] == kernel.event}
        self.dispatch.send_all(self._requests())

    def _requests(self) -> Iterator[Request]:
        """Give the requests in a lawful order. What a workgroup touches at peers is said ahead of it, too."""
        rng, kernel = self.bench.rng, self.kernel

        def reach(wg: int) -> dict[str, int]:
            return {"there": max(0, wg + rng.randrange(-3, self.window)), "peer": rng.randrange(len(self.peer_heads)),
                    "reaches": rng.randrange(2)}
        for wg in lawful_order(rng, kernel.workgroups, self.window):
            if rng.random() < 0.2:
                yield Request(wg, **reach(wg), opens=0, starts=0)
            yield Request(wg, 0 if kernel.regions[wg] == kernel.remote else kernel.tiles, **reach(wg))

    def abort(self) -> None:
        """Start nothing more, here or upstream; what was stored or sent is still to come."""
        self.dispatch.stop()
        self._aborted = True  # a soft reset takes the head back
        self.upstream = self.kernel.workgroups
        self._events.pause = never()  # what is offered when the hardware is cleared is withdrawn

    @property
    def quiet(self) -> bool:
        """Wait until what was stored, sent or read is in memory or has come back."""
        return (all(driver.idle for driver in (*self.compute, *self.inbound, *self.outbound))
                and all(dram.idle for dram in self.drams) and not any(self.expected.values()))

    def _request(self, piece: Piece, wg: int, wf: int, op: int, source: int) -> dict:
        return {"address": piece.address, "bytes": piece.bytes, "op": op, "source": source,
                "region": self.kernel.regions[wg], "wf": wf, "wg": wg}

    def to(self, drivers: list[StreamDriver], request: dict) -> None:
        drivers[channel_of_line(request["address"], self.geometry)].send(request)

    def _started(self, request: Request) -> None:
        """Send a workgroup's stores, if the request starts one, and some ordinary traffic, in random order."""
        if not request.starts:
            return
        rng, wg = self.bench.rng, request.id
        stores = [self._request(piece, wg, wf, UPDATE, LOCAL) for wf in range(self.kernel.tiles)
                  for piece in self.kernel.pieces(wg, wf)]
        rng.shuffle(stores)
        for store in stores:
            if store["region"] == self.kernel.remote:
                rng.choice(self.outbound).send(store)
                continue
            self.to(self.compute, store)
            if rng.random() < 0.3:
                self.to(self.compute, {"address": rng.getrandbits(16), "bytes": 64, "op": rng.choice((READ, STORE)),
                                        "source": LOCAL, "region": NO_REGION, "wf": 0, "wg": 0})

    def drive(self) -> None:
        """Move the neighbours; the producer ends when its stores have been taken."""
        bench, rng = self.bench, self.bench.rng
        if self.kernel is None:
            return
        kernel = self.kernel
        open_end = min(kernel.workgroups, self._head + self.window)
        if self.upstream < open_end and rng.random() < 0.2:
            wg, self.upstream = self.upstream, self.upstream + 1
            updates = [self._request(piece, wg, wf, UPDATE, rng.choice((REMOTE, DMA)))
                       for wf in range(kernel.tiles) for piece in kernel.pieces(wg, wf)]
            for update in rng.sample(updates, len(updates)) if kernel.regions[wg] != self.kernel.remote else ():
                self.to(self.inbound, update)
        for peer, head in enumerate(self.peer_heads):
            if rng.random() < 0.2 and head < self.peers_end:
                self.peer_heads[peer] += 1
                source = self.sends_to[peer]
                self._heard.send({"head": head + 1, "epoch": self._epoch, "source": source, "sender": source})
        bench.set("producer_active", int(not self.dispatch.idle or not all(driver.idle for driver in self.compute)))

    def sample(self) -> None:
        pass

    def reset(self) -> None:
        pass

    def _sent(self, request: dict) -> None:
        self.expected[*request.values()] += 1

    def _command(self, channel: int, command: dict) -> None:
        request = command["request"]
        assert channel_of_line(request["address"], self.geometry) == channel
        key = tuple(request[name] for name in REQUEST)
        if request["op"] == READ and request["source"] == DMA:
            piece = Piece(request["address"], request["bytes"])
            read = piece, request["wg"], request["wf"]
            assert read in self.reads, f"{words(request)} is no line of a tile"
            assert self.updated[piece.address] == UPDATES, f"{words(request)} was read before its last update"
            self.reads[read] += 1
        else:
            assert self.expected[key] > 0, f"{words(request)} was never sent"
            self.expected[key] -= 1

    def _performed(self, command: dict) -> None:
        request = command["request"]
        if is_tracked(request):
            self.updated[request["address"]] += 1
        elif request["source"] == DMA:
            self.bench.rng.choice(self.outbound).send(request)

    def _outbound(self, lane: int, line: dict) -> None:
        (packet,) = packets_of(line, self._tables, self.geometry)
        assert isinstance(packet, Packet)
        self.packets[lane].expect(packet)

    def _event(self, event: dict) -> None:
        tile = event["wg"], event["wf"]
        assert event["address"] == min(self.kernel.pieces(*tile)).address and event["region"] == self.kernel.event
        self.events[tile] += 1

    def _told(self, packet: dict) -> None:
        """Note a head that leaves for a GPU that sends to this one; the first of them is upstream."""
        device, head = packet["device"], packet["head"]
        if packet["epoch"] != self._epoch or self.kernel is None or self._aborted:
            return  # of another kernel, or while this one is being programmed
        assert packet["source"] == self.number and self.told[device] <= head <= self.bench.get("head")
        self.told[device] = head
        if device == self.receives_from[0]:
            self._head = head

    def finished(self) -> bool:
        """Say whether everything that must happen once has happened, and all is quiet."""
        return (all(driver.idle for driver in (*self.compute, *self.inbound, *self.outbound, self.dispatch))
                and all(self.reads.values()) and all(self.events.values()) and all(dram.idle for dram in self.drams)
                and all(lane.empty for lane in self.packets) and not any(self.expected.values())
                and self.bench.get("head") == self.kernel.workgroups
                and set(self.told.values()) == {self.kernel.workgroups})

    async def check(self) -> None:
        assert set(self.reads.values()) <= {1}, "a line was read twice"
        assert set(self.events.values()) <= {1}, "a tile raised two events"
        assert await self.first_error() is None
        status = self.driver.decode("STATUS", await self.bus.read(self.registers["STATUS"].offset))
        assert not [name for name, value in status.items() if value != (name in ("drain", "monitor_done"))], status
        counts = {name: await self.bus.read(self.registers[f"COUNT_{name.upper()}"].offset) for name, _ in COUNTERS}
        dma_tiles = sum(self.kernel.regions[wg] == self.kernel.dma for wg, _ in self.kernel.tracked())
        assert counts["triggers"] == len(self.kernel.tracked())
        assert counts["commands"] == dma_tiles // self.kernel.per_block
        assert counts["lines"] == len(self.reads)
        accesses = sum(len(list(self.kernel.pieces(*tile))) for tile in self.kernel.tracked()) * UPDATES
        assert counts["updates"] == accesses - counts["coalesced"], counts
        assert counts["set_full"] == 0, "the window keeps every set free"
        assert counts["errors"] == counts["arrivals_refused"] == 0
        for name in ("coalesced", "guard_stall"):
            self.bench.reach(name, bool(counts[name]))

    async def first_error(self) -> dict | None:
        words = {register.offset: await self.bus.read(register.offset) for register in self.registers.fixed
                 if register.name.startswith(("ERROR", "TRACKER_FAULT"))}
        return self.driver.first_error(words.__getitem__)
