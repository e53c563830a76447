"""GpuTop in the middle of a fused kernel: programmed through APB by the driver, dispatched, updated, drained.

Around it are a DRAM per channel, an upstream neighbour that updates workgroups inside the window, a downstream one that
takes packets, and compute units. Checked: each tile triggers exactly once; DMA reads are exactly the tile's lines, each
once and after the line's last update; every line leaves as the right packet; counters agree; no error.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from rtl.registers import COUNTERS, NO_THRESHOLD, POLICIES, REGION_KINDS, register_map
from sim_models.driver import Driver
from sim_models.reference.address_generator import LineError, expand
from sim_models.reference.egress import Packet, translate
from sim_models.reference.line_router import channel_of_line
from sim_models.reference.memory_channel import is_tracked

from . import pauses
from .bare_gpu import BareGpu
from .bench import Bench, rounds
from .dram import Dram
from .drivers import ApbDriver, StreamDriver
from .monitors import StreamMonitor
from .scoreboard import Scoreboard

READ, STORE, UPDATE = range(3)
LOCAL, REMOTE, DMA = range(3)
NO_REGION = 0
_REQUEST = ("address", "bytes", "op", "source", "region", "wf", "wg")
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
        """Tiles of a workgroup lie side by side, eight workgroups share columns."""
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


class Gpu:
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
            StreamMonitor(bench, name, scoreboard.check)
        self.dispatch = StreamDriver(bench, "dispatch", on_accept=self._dispatched)
        StreamMonitor(bench, "events", self._event)
        self.kernel: Kernel | None = None
        self.window = self.upstream = self.downstream_head = self.downstream_end = 0
        bench.add(self)

    async def program(self, kernel: Kernel) -> None:
        """As before a kernel: regions, arbitration, window, restart."""
        rng, driver, t = self.bench.rng, self.driver, self.geometry.tracker
        self.kernel = None
        there = {"device": rng.getrandbits(self.geometry.dma.device_bits),
                 "address_offset": rng.choice((0, 64 * rng.randrange(1 << t.address_bits - 6), -64)),
                 "wg_offset": rng.choice((rng.randrange(-3, 4), rng.randrange(1 << t.wg_bits)))}

        def limits(region: int) -> dict[str, int]:
            return {"base": kernel.base(region), "limit": kernel.base(region) + (1 << 20)}

        targets = [rng.randrange(1, self.geometry.dma.regions) for _ in range(2)]

        self.window = rng.randint(1, driver.largest_window(kernel.tiles))
        shift = rng.choice((None, rng.randrange(self.window)))
        # Without any limit, communication would wait for a producer that waits for communication.
        threshold = rng.choice(("auto", None, 0, 3))
        await self.bus.write_all([
            *driver.dma_map(kernel.dma, **limits(kernel.dma), **there, destination_region=targets[0],
                            row_bytes=kernel.row_bytes, columns=kernel.columns * kernel.per_block,
                            pitch_bytes=kernel.pitch, updates_per_element=UPDATES, tiles_per_block=kernel.per_block),
            *driver.event_map(kernel.event, **limits(kernel.event),
                              tile_bytes=kernel.row_bytes * kernel.columns, updates_per_element=UPDATES),
            *driver.remote_map(kernel.remote, **limits(kernel.remote), **there, destination_region=targets[1],
                               operation=rng.choice(("store", "update"))),
            *driver.policy(rng.choice(list(POLICIES)), threshold,
                           rng.choice((1, 50) if threshold == 0 else (None, 1, 50))),
            *driver.clear_counters(), *driver.clear_error(),
            *driver.window(kernel.tiles, workgroups=self.window, shift=shift), *driver.restart()])
        self.descriptors = {
            region: there | {"address_offset": there["address_offset"], "kind": kind, "destination_region": target,
                             "op": UPDATE if region == kernel.dma else await self._operation(region)}
            for region, kind, target in ((kernel.dma, 2, targets[0]), (kernel.remote, 1, targets[1]))}
        self.downstream_head, self.downstream_end = 0, kernel.workgroups + (shift or 0)
        self.kernel, self.upstream = kernel, 0
        self.expected: Counter[tuple] = Counter()  # requests on their way to the DRAM
        self.updated: Counter[int] = Counter()  # address -> updates performed
        self.reads = {(piece, wg, wf): 0 for wg, wf in kernel.tracked() if kernel.regions[wg] == kernel.dma
                      for piece in kernel.pieces(wg, wf)}
        self.events = {(wg, wf): 0 for wg, wf in kernel.tracked() if kernel.regions[wg] == kernel.event}
        self.dispatch.send_all({"wg": wg, "tiles": 0 if region == kernel.remote else kernel.tiles}
                               for wg, region in enumerate(kernel.regions))

    async def _operation(self, region: int) -> int:
        word = await self.bus.read(self.registers.region_offset(region) + self.registers["REGION_KIND"].offset)
        return self.driver.decode("REGION_KIND", word)["op"]

    def _request(self, piece: Piece, wg: int, wf: int, op: int, source: int) -> dict:
        return {"address": piece.address, "bytes": piece.bytes, "op": op, "source": source,
                "region": self.kernel.regions[wg], "wf": wf, "wg": wg}

    def _to(self, drivers: list[StreamDriver], request: dict) -> None:
        drivers[channel_of_line(request["address"], self.geometry)].send(request)

    def _dispatched(self, item: dict) -> None:
        """The workgroup starts: its stores, and some ordinary traffic, in random order."""
        rng, wg = self.bench.rng, item["wg"]
        stores = [self._request(piece, wg, wf, UPDATE, LOCAL) for wf in range(self.kernel.tiles)
                  for piece in self.kernel.pieces(wg, wf)]
        rng.shuffle(stores)
        for store in stores:
            if store["region"] == self.kernel.remote:
                rng.choice(self.outbound).send(store)
                continue
            self._to(self.compute, store)
            if rng.random() < 0.3:
                self._to(self.compute, {"address": rng.getrandbits(16), "bytes": 64, "op": rng.choice((READ, STORE)),
                                        "source": LOCAL, "region": NO_REGION, "wf": 0, "wg": 0})

    def drive(self) -> None:
        """The neighbours move; the producer ends when its stores have been taken."""
        bench, rng = self.bench, self.bench.rng
        if self.kernel is None:
            return
        kernel = self.kernel
        open_end = min(kernel.workgroups, bench.get("head") + self.window)
        if self.upstream < open_end and rng.random() < 0.2:
            wg, self.upstream = self.upstream, self.upstream + 1
            updates = [self._request(piece, wg, wf, UPDATE, rng.choice((REMOTE, DMA)))
                       for wf in range(kernel.tiles) for piece in kernel.pieces(wg, wf)]
            for update in rng.sample(updates, len(updates)) if kernel.regions[wg] != self.kernel.remote else ():
                self._to(self.inbound, update)
        if rng.random() < 0.2 and self.downstream_head < self.downstream_end:
            self.downstream_head += 1
        bench.set("downstream_head", self.downstream_head)
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
        key = tuple(request[name] for name in ("address", "bytes", "op", "source", "region", "wf", "wg"))
        if request["op"] == READ and request["source"] == DMA:
            piece = Piece(request["address"], request["bytes"])
            read = piece, request["wg"], request["wf"]
            assert read in self.reads, f"{request} is no line of a tile"
            assert self.updated[piece.address] == UPDATES, f"{request} was read before its last update"
            self.reads[read] += 1
        else:
            assert self.expected[key] > 0, f"{request} was never sent"
            self.expected[key] -= 1

    def _performed(self, command: dict) -> None:
        request = command["request"]
        if is_tracked(request):
            self.updated[request["address"]] += 1
        elif request["source"] == DMA:
            self.bench.rng.choice(self.outbound).send(request)

    def _outbound(self, lane: int, line: dict) -> None:
        packet = translate(line, self.descriptors[line["region"]], self.geometry)
        assert isinstance(packet, Packet)
        self.packets[lane].expect(packet)

    def _event(self, event: dict) -> None:
        tile = event["wg"], event["wf"]
        assert event["address"] == min(self.kernel.pieces(*tile)).address and event["region"] == self.kernel.event
        self.events[tile] += 1

    def finished(self) -> bool:
        """Everything that must happen once has happened, and all is quiet."""
        return (all(driver.idle for driver in (*self.compute, *self.inbound, *self.outbound, self.dispatch))
                and all(self.reads.values()) and all(self.events.values()) and all(dram.idle for dram in self.drams)
                and all(lane.empty for lane in self.packets) and not any(self.expected.values())
                and self.bench.get("head") == self.kernel.workgroups)

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
        assert counts["set_full_stall"] == 0, "the window keeps every set free"
        for name in ("coalesced", "guard_stall"):
            self.bench.reach(name, bool(counts[name]))

    async def first_error(self) -> dict | None:
        words = {register.offset: await self.bus.read(register.offset) for register in self.registers.fixed
                 if register.name.startswith(("ERROR", "TRACKER_FAULT"))}
        return self.driver.first_error(words.__getitem__)


@rounds(6, cover=("coalesced", "guard_stall"))
async def fused_kernels(bench: Bench) -> None:
    gpu = Gpu(bench)
    for _ in range(2):  # configuration and counters of the first must not reach into the second
        await gpu.program(Kernel(bench))
        start = sum(lane.matched for lane in gpu.packets)
        if not await bench.run(gpu.finished, 60_000):
            return
        await gpu.check()
        packets = await gpu.bus.read(gpu.registers["COUNT_PACKETS"].offset)
        assert packets == sum(lane.matched for lane in gpu.packets) - start


@rounds(4, cover=("threshold_exceeded", "region_unconfigured"))
async def a_wrong_update_is_told(bench: Bench) -> None:
    gpu = Gpu(bench)
    await gpu.program(Kernel(bench))
    gpu.dispatch.reset()
    gpu.upstream = gpu.kernel.workgroups  # nobody else sends
    code = ("threshold_exceeded", "region_unconfigured")[bench.number % 2]
    if code == "region_unconfigured":
        await gpu.bus.write_all(gpu.driver.unmap(gpu.kernel.event))
    count = 1 if code == "region_unconfigured" else 2 * gpu.kernel.row_bytes * gpu.kernel.columns // 60 + 1
    request = {"address": 0x40, "bytes": 60, "op": UPDATE, "source": LOCAL, "region": gpu.kernel.event, "wf": 1,
               "wg": 2}
    for _ in range(count):
        gpu._to(gpu.compute, request)
    await bench.until(lambda: all(driver.idle for driver in gpu.compute), 5_000)
    await bench.cycle(200)
    error = await gpu.first_error()
    bench.reach(code)
    assert error == {"code": code, "wg": 2, "wf": 1, "region": gpu.kernel.event, "address": 0x40}
    await gpu.bus.write_all(gpu.driver.clear_error())
    assert await gpu.first_error() is None


async def told_once(gpu: Gpu, **error) -> None:
    """The first error is this one, with zeros where it says nothing; cleared, there is none."""
    await gpu.bench.cycle(40)
    expected = {"code": error.pop("code"), "wg": 0, "wf": 0, "region": 0, "address": 0} | error
    assert await gpu.first_error() == expected
    await gpu.bus.write_all(gpu.driver.clear_error())
    assert await gpu.first_error() is None


@rounds(6)
async def every_reporter_is_heard(bench: Bench) -> None:
    """With addresses and ids of any value."""
    gpu, rng, t = Gpu(bench), bench.rng, bench.geometry.tracker
    await gpu.program(Kernel(bench))
    gpu.dispatch.reset()
    kernel, gpu.kernel = gpu.kernel, None  # nobody else moves

    def tile(region: int) -> dict:
        return {"address": rng.getrandbits(t.address_bits), "region": region, "wf": rng.getrandbits(t.wf_bits),
                "wg": rng.getrandbits(t.wg_bits)}

    for lane in gpu.outbound:
        line, lane.on_accept = tile(kernel.event), None
        lane.send(line | {"bytes": 64, "op": STORE, "source": LOCAL})
        await bench.until(lambda lane=lane: lane.idle, 1_000)
        await told_once(gpu, code="region_unconfigured", **line)
    for _ in range(3):
        update = tile(rng.choice(sorted(set(range(1, bench.geometry.dma.regions)) - {kernel.dma, kernel.event})))
        request = update | {"bytes": 64, "op": UPDATE, "source": REMOTE}
        gpu.expected[tuple(request[name] for name in _REQUEST)] += 1
        gpu._to(gpu.inbound, {name: request[name] for name in _REQUEST})
        await bench.until(lambda: all(driver.idle for driver in gpu.inbound), 1_000)
        await told_once(gpu, code="region_unconfigured", **update)
    # Nothing was dispatched, so 0 must be first.
    wg = rng.randrange(1, 1 << t.wg_bits)
    gpu.dispatch.on_accept = None
    gpu.dispatch.send({"wg": wg, "tiles": 1})
    await bench.until(lambda: gpu.dispatch.idle, 1_000)
    await told_once(gpu, code="dispatch_order", wg=wg)


@rounds(1)
async def the_hardware_says_what_it_is(bench: Bench) -> None:
    gpu = Gpu(bench)
    words = {register.offset: await gpu.bus.read(register.offset) for register in gpu.registers.fixed
             if register.access == "ro"}
    gpu.driver.check_identity(words.__getitem__)
    offsets = {offset for offset, _, _ in gpu.registers.all_registers()}
    for offset in set(range(0, 1 << gpu.registers.address_bits, 256)) - offsets:
        assert await gpu.bus.transfer(offset) == (1, 0), f"register {offset:#05x} does not exist"


def random_descriptor(gpu: BareGpu, kind: str) -> dict:
    """Every field of any value; a block has up to about a hundred lines in its region, and any number outside."""
    rng, t, d = gpu.bench.rng, gpu.geometry.tracker, gpu.geometry.dma
    columns = rng.getrandbits(rng.randint(1, 10)) or 1
    tiles = 1 << rng.randint(0, min(t.wf_bits, columns.bit_length() - 1))
    base = rng.getrandbits(t.address_bits) >> 1
    return gpu.descriptor(
        kind=REGION_KINDS[kind], op=rng.choice((STORE, UPDATE)), device=rng.getrandbits(d.device_bits),
        destination_region=rng.getrandbits(d.region_bits), tiles_per_block=tiles, columns=columns // tiles * tiles,
        threshold=rng.randrange(1, 1 << min(10, t.count_bits)), wg_offset=rng.getrandbits(t.wg_bits),
        address_offset=rng.getrandbits(t.address_bits), base=base, limit=base + rng.randrange(64, 1 << 12),
        row_bytes=min((1 << 13) - 1, rng.randrange(1, 1 << 14) // columns + 1),
        pitch_bytes=rng.getrandbits(rng.randint(1, 32)))


@rounds(8)
async def every_region_goes_its_way(bench: Bench) -> None:
    """A block of each region, all descriptors random. Workgroups are dispatched in every second round only."""
    gpu, rng, t = BareGpu(bench), bench.rng, bench.geometry.tracker
    kinds = rng.choices(("dma", "dma", "event", "remote"), k=bench.geometry.dma.regions)
    regions = {region: random_descriptor(gpu, kind) for region, kind in zip(range(bench.geometry.dma.regions), kinds)}
    for region in rng.sample(list(regions), len(regions)):
        await gpu.map(region, regions[region])
    commands, packets, events, first, blocks = Counter(), Counter(), [], 0, 0
    for region, descriptor in regions.items():
        if not region and descriptor["kind"] != REGION_KINDS["remote"]:
            continue  # nothing of it is tracked
        tiles = descriptor["tiles_per_block"] if descriptor["kind"] == REGION_KINDS["dma"] else 1
        skipped = rng.randrange(min(64, 1 << t.wg_bits) // len(regions))
        wg = first + skipped if bench.number % 2 else rng.getrandbits(t.wg_bits)
        wf = rng.randrange(1 << t.wf_bits) // tiles * tiles
        address = descriptor["base"] + rng.choice((0, rng.randrange(64)))
        expected: list = []
        if descriptor["kind"] == REGION_KINDS["remote"]:
            expected = [gpu.request(rng.getrandbits(t.address_bits), region, rng.getrandbits(t.wg_bits),
                                    rng.getrandbits(t.wf_bits), bytes=rng.randint(1, 64)) for _ in range(8)]
            for line in expected:
                rng.choice(gpu.outbound).send(line)
            if region:
                update = gpu.request(address, region, wg, wf, source=REMOTE)
                commands[*update.values(), 1] += 1
                gpu.send([update])
        else:
            if bench.number % 2:
                gpu.dispatch.send(*({"wg": skip, "tiles": 0} for skip in range(first, wg)), {"wg": wg, "tiles": tiles})
                first = wg + 1
                await gpu.quiet()
            addresses = []
            for tile in rng.sample(range(tiles), tiles):
                left, updates = descriptor["threshold"], []
                while left:
                    updates.append(gpu.request(
                        min((1 << t.address_bits) - 1, address + rng.randrange(1 << rng.randint(1, 12))), region, wg,
                        wf + tile, bytes=rng.randint(1, min(left, 64)), source=rng.choice((LOCAL, REMOTE, DMA))))
                    left -= updates[-1]["bytes"]
                addresses.append(min(update["address"] for update in updates))
                commands.update((*update.values(), int(update["source"] != LOCAL)) for update in updates)
                gpu.send(updates)
                await gpu.quiet()
            trigger = {"address": min(addresses), "region": region, "wf": wf, "wg": wg}
            if descriptor["kind"] == REGION_KINDS["event"]:
                events.append(trigger)
            else:
                blocks += 1
                expected = [line if isinstance(line, LineError) else line._asdict()
                            for line in expand(trigger, descriptor, bench.geometry)]
        await gpu.quiet()
        while "engines_busy" in await gpu.status():  # lines outside the region leave no trace
            await gpu.quiet()
        lines = [line for line in expected if isinstance(line, dict)]
        errors = [item._asdict() | {"code": "address_out_of_range"} for item in expected if isinstance(item, LineError)]
        commands.update((*line.values(), 1) for line in lines if line["op"] == READ)
        packets.update(tuple(translate(line, descriptor, bench.geometry)) for line in lines)
        if region and descriptor["kind"] == REGION_KINDS["remote"]:
            errors = [{"code": "region_unconfigured", "address": address, "region": region, "wf": wf, "wg": wg}]
        elif region and not bench.number % 2:
            errors = [{"code": "completion_unexpected", "wg": wg, "wf": 0, "region": 0, "address": 0}]
        assert await gpu.first_error() == (errors[0] if errors else None)
        assert Counter((*command["request"].values(), command["communication"]) for command in gpu.commands) == commands
        assert Counter(tuple(packet.values()) for packet in gpu.packets) == packets
        assert gpu.events.items == events
    assert await gpu.read("COUNT_COMMANDS") == blocks and await gpu.read("COUNT_LINES") == len(gpu.reads)
    assert await gpu.read("COUNT_PACKETS") == len(gpu.packets) and await gpu.status() == {"drain"}


def repeated_line(gpu: BareGpu) -> dict:
    """A region of tiles of one update of a line each, that DMA reads sixteen times."""
    return gpu.descriptor(kind=REGION_KINDS["dma"], op=UPDATE, tiles_per_block=1, threshold=64, row_bytes=64,
                          columns=16)


@rounds(2)
async def a_gpu_that_stands_still(bench: Bench) -> None:
    """Who waits says so, and cycles of waiting are counted one by one."""
    gpu, geometry = BareGpu(bench), bench.geometry
    await gpu.map(1, repeated_line(gpu))
    channels, engines = geometry.channel.channels, geometry.dma.engines
    for dram in gpu.drams:
        dram.retires = pauses.always()
    taken = 3 * engines  # one is worked on, two wait in the engine
    blocks = taken + geometry.dma.ready_commands
    for wg in range(blocks):  # of one after the other, so that the engines have taken what they can
        gpu.dispatch.send({"wg": wg, "tiles": 1})
        gpu.send([gpu.request(gpu.address_in(wg % channels), 1, wg)])
        await bench.cycle(60)
    assert await gpu.rate("COUNT_GUARD_STALL") == min(channels, engines) and not gpu.reads
    assert await gpu.read("COUNT_READY_HIGH_WATER") == geometry.dma.ready_commands
    assert await gpu.status() == {"dma_table_busy", "engines_busy", "channels_busy", "drain"}
    assert (await gpu.read("COUNT_TRIGGERS"), await gpu.read("COUNT_COMMANDS")) == (blocks, taken)
    for lane in gpu.lanes:
        lane.pause = pauses.always()
    for dram in gpu.drams:
        dram.retires = pauses.never()
    await bench.cycle(300)
    assert await gpu.status() >= {"dma_table_busy", "engines_busy", "egress_busy"} and not gpu.packets
    most = geometry.dma.outstanding_lines
    assert max(1, most - 2 * engines + 1) <= len(gpu.reads) <= most
    for lane in gpu.lanes:
        lane.pause = pauses.never()
    await bench.until(lambda: len(gpu.packets) >= 16 * blocks, 10_000)
    await gpu.quiet()
    assert len(gpu.packets) == await gpu.read("COUNT_LINES") == 16 * blocks and await gpu.status() == {"drain"}
    assert await gpu.rate("COUNT_GUARD_STALL") == 0


@rounds(2)
async def full_sets(bench: Bench) -> None:
    """In each bank one tile more than a set has ways."""
    gpu, t = BareGpu(bench), bench.geometry.tracker
    await gpu.map(2, gpu.descriptor(kind=REGION_KINDS["event"], threshold=128))
    for bank in range(t.banks):
        assert await gpu.rate("COUNT_SET_FULL_STALL") == bank
        gpu.send([gpu.request(64 * number, 2, bank + t.sets * number, wf=0) for number in range(t.ways)])
        await gpu.quiet()
        gpu.send([gpu.request(0, 2, bank + t.sets * t.ways)])
        await gpu.quiet()
    assert await gpu.rate("COUNT_SET_FULL_STALL") == t.banks
    assert {"tracker_busy", "tracker_occupied"} <= await gpu.status()
    assert await gpu.read("COUNT_UPDATES") == t.banks * (t.ways + 1)


@rounds(2)
async def a_region_that_goes_while_its_tiles_wait(bench: Bench) -> None:
    """Nobody takes events: two wait, and the third meets a region that is no longer there."""
    gpu, t = BareGpu(bench), bench.geometry.tracker
    region = bench.rng.randrange(1, bench.geometry.dma.regions)
    await gpu.map(region, gpu.descriptor(kind=REGION_KINDS["event"], threshold=64))
    gpu.events.pause = pauses.always()
    tiles = [gpu.request(bench.rng.getrandbits(t.address_bits), region, wg, bench.rng.getrandbits(t.wf_bits))
             for wg in bench.rng.sample(range(1 << t.wg_bits), 3)]
    for tile in tiles:
        gpu.send([tile])
        await gpu.quiet()
    await gpu.first_error()  # nothing was dispatched
    await gpu.bus.write_all(gpu.driver.unmap(region))
    await bench.cycle(10)
    gone = {name: tiles[2][name] for name in ("address", "region", "wf", "wg")}
    assert await gpu.first_error() == gone | {"code": "region_unconfigured"}
    gpu.events.pause = pauses.never()
    await gpu.quiet()
    assert gpu.events.items == [{name: tile[name] for name in gone} for tile in tiles[:2]]


def set_occupancy(bench: Bench, entries: list[int]) -> None:
    for name, value in zip(bench.elements("occupancy"), entries):
        bench.set(name, value)


@rounds(16)
async def the_monitor_decides_over_communication(bench: Bench) -> None:
    """Its mean is that of all channels, and its threshold, or the register's, holds exactly the arbiters back."""
    rng, channel, gpu = bench.rng, bench.geometry.channel, BareGpu(bench, drams=False)
    entries = [rng.randrange(min(40, channel.queue_entries) + 1) for _ in range(channel.channels)]
    mean = 4 * sum(entries) / channel.channels
    below = bench.number % 4  # breakpoints that are not above the mean
    marks = [max(0, round(mean) + (-1 if index < below else 1) * (1 << rng.randint(1, 6))) for index in range(3)]
    auto = bench.number // 4 % 2
    register = rng.randrange(1, channel.queue_entries + 1)
    await gpu.write("MONITOR", **{f"breakpoint{index}": mark for index, mark in enumerate(marks)})
    await gpu.write("THRESHOLD", threshold=register)
    await gpu.write("POLICY", policy=POLICIES["mca"], auto_threshold=auto)
    bench.set("producer_active", 1)
    set_occupancy(bench, entries)
    await gpu.bus.write_all(gpu.driver.restart())
    await bench.cycle(64 * channel.channels)
    assert await gpu.status() == set() and await gpu.read("CHOSEN_THRESHOLD") == NO_THRESHOLD
    asking = rng.randrange(channel.channels)
    set_occupancy(bench, [channel.queue_entries] * channel.channels)
    gpu.send([gpu.request(gpu.address_in(asking), 0, 0, op=STORE, source=REMOTE)])
    await bench.cycle(100)
    assert "monitor_done" in await gpu.status()
    found, chosen = await gpu.read("MONITOR_MEAN"), await gpu.read("CHOSEN_THRESHOLD")
    assert abs(found - mean) < 2
    assert chosen == (NO_THRESHOLD, 30, 10, 5)[below]
    threshold = chosen if auto else register
    if threshold <= channel.queue_entries:
        set_occupancy(bench, [threshold] * channel.channels)
        await bench.cycle(40)
        gone = len(gpu.commands)
        gpu.send([gpu.request(gpu.address_in(c), 0, 0, op=STORE, source=REMOTE) for c in range(channel.channels)])
        await bench.cycle(40)
        assert len(gpu.commands) == gone, "at the threshold"
        set_occupancy(bench, [threshold - 1] * channel.channels)
    await bench.cycle(60)
    assert gpu.commands and await gpu.status() == {"monitor_done"}


@rounds(4)
async def a_late_ring_goes_first(bench: Bench) -> None:
    """With threshold 0 ring-aware arbitration holds DMA reads back while commands wait, until more workgroups than a
    stage has have started."""
    gpu, rng, geometry = BareGpu(bench), bench.rng, bench.geometry
    region = rng.randrange(1, geometry.dma.regions)
    tiles = 3 * geometry.dma.engines + 1  # one command more than engines take
    stage = rng.randint(1, min(60, (1 << geometry.tracker.wg_bits) - tiles - 1))
    await gpu.map(region, repeated_line(gpu))
    await gpu.bus.write_all(gpu.driver.policy("ring_aware", 0, starvation_limit=(1 << 16) - 1))
    await gpu.bus.write_all(gpu.driver.stage(stage))
    bench.set("producer_active", 1)
    for wg in range(tiles):
        gpu.dispatch.send({"wg": wg, "tiles": 1})
        gpu.send([gpu.request(gpu.address_in(wg % geometry.channel.channels), region, wg)])
        await bench.cycle(60)
    following = tiles
    for started, late in ((stage, False), (1, True)):
        gpu.dispatch.send(*({"wg": wg, "tiles": 0} for wg in range(following, following + started)))
        following += started
        await bench.until(lambda: gpu.dispatch.idle, 2_000)
        await bench.cycle(40)
        assert bool(gpu.reads) == late
    assert bench.get("head") == following
    bench.set("producer_active", 0)
    await bench.until(lambda: len(gpu.packets) >= 16 * tiles, 10_000)
    await gpu.quiet()
    assert len(gpu.reads) == len(gpu.packets) == 16 * tiles and await gpu.first_error() is None


@rounds(1)
async def the_neighbours_window_counts(bench: Bench) -> None:
    """Every bit of its head is looked at."""
    gpu, t = BareGpu(bench), bench.geometry.tracker
    window = min(t.window_slots, 1 << t.wg_bits)
    shift = bench.rng.randrange(window)
    await gpu.write("WINDOW", window=window)
    await gpu.write("SHIFT", shift=shift)
    await gpu.write("WINDOW_CONTROL", enable_downstream=1)
    last = min(1 << t.wg_bits, 600)
    gpu.dispatch.send(*({"wg": wg, "tiles": 0} for wg in range(last)))
    there = 0
    while not gpu.dispatch.idle:
        bench.set("downstream_head", there)
        await bench.cycle(4 * window + 20)
        assert bench.get("head") == min(last, there + window - shift)
        assert ("dispatch_blocked" in await gpu.status()) != gpu.dispatch.idle
        there += bench.rng.randint(1, 2 * (window - shift))
