"""GpuTop without a kernel: a test sends what goes in, and what comes out is kept."""

from collections.abc import Callable, Iterable

from t3sim.cosim.driver.driver import Driver, Write
from t3sim.rtl.registers import KERNEL_INSIDE, Table, register_map
from t3sim.testbenches import pauses
from t3sim.testbenches.bench import Bench
from t3sim.testbenches.dispatcher import Dispatcher
from t3sim.testbenches.dram import Dram
from t3sim.testbenches.drivers import ApbDriver, StreamDriver
from t3sim.testbenches.mappings import Tables, fields_of
from t3sim.testbenches.monitors import StreamMonitor
from t3sim.testbenches.reference.line_router import channel_of_line
from t3sim.testbenches.scoreboard import of_one_part

READ, STORE, UPDATE = range(3)
LOCAL, REMOTE, DMA, COPIED = range(4)


class BareGpu:
    """One GPU's hardware with a DRAM per channel, and a link that what DMA has read leaves for, on any lane.

    Instead there may be DRAMs that take everything and whose occupancy the test sets.
    """

    def __init__(self, bench: Bench, drams: bool = True) -> None:
        self.bench, self.geometry, self.bus = bench, bench.geometry, ApbDriver(bench, "apb.")
        self.driver, self.registers = Driver(bench.geometry), register_map(bench.geometry)
        channels = range(bench.geometry.channel.channels)
        self.compute = [StreamDriver(bench, f"compute[{c}]") for c in channels]
        self.inbound = [StreamDriver(bench, f"inbound[{c}]") for c in channels]
        self.outbound = [StreamDriver(bench, name) for name in bench.elements("outbound")]
        self.dispatch = Dispatcher(bench, pauses=lambda: pauses.share(bench.rng, 0.2))
        self.commands: list[dict] = []  #: of all DRAMs
        self.drams = [Dram(bench, f"[{c}]", self.commands.append, self._performed) for c in channels if drams]
        self.memory = [StreamMonitor(bench, name, self.commands.append)
                       for name in (() if drams else bench.elements("dram"))]
        self.lanes = [StreamMonitor(bench, name) for name in bench.elements("packets")]
        self.events = StreamMonitor(bench, "events")
        self.heads, self.heard = StreamMonitor(bench, "heads"), StreamDriver(bench, "heads_in")
        for stream in (*self.compute, *self.inbound, *self.outbound, *self.lanes, self.events, self.heads, self.heard):
            stream.pause = pauses.share(bench.rng, 0.2)

    def _performed(self, command: dict) -> None:
        request = command["request"]
        if request["op"] == READ and request["source"] in (DMA, COPIED):
            self.bench.rng.choice(self.outbound).send(request)

    @property
    def packets(self) -> list[dict]:
        return [of_one_part(packet) for lane in self.lanes for packet in lane.items]

    @property
    def reads(self) -> list[dict]:
        """DMA's."""
        requests = [command["request"] for command in self.commands]
        return [request for request in requests if request["op"] == READ and request["source"] in (DMA, COPIED)]

    def mapping(self, **fields: int) -> dict:
        """Make the fields of a region and of its entries in the other tables; those that are not named are 0.

        But nothing is out of range, and peers may write under the region.
        """
        names = (name for table in self.registers.tables for name in fields_of(self.geometry, table.name))
        return dict.fromkeys(names, 0) | {"limit": (1 << self.geometry.tracker.address_bits) - 1,
                                          "arrivals": 1} | fields

    async def map(self, region: int, mapping: dict) -> None:
        """Map a region, with all memory open to peers. Its entries have its own number, modulo the tables' sizes."""
        tables = {table.name: table for table in self.registers.tables}
        entries = {name: region % table.entries for name, table in tables.items()}
        named = {name: entry for name, entry in entries.items() if name != "region"}
        await self._write_entries((tables[name], entry, mapping | named)
                                  for name, entry in sorted(entries.items(), key=lambda item: item[0] == "region"))

    async def map_all(self, tables: Tables) -> None:
        """Write all entries of all tables, in any order, with all memory open to peers."""
        entries = [(table, number, tables[table.name][number]) for table in self.registers.tables
                   for number in range(table.entries)]
        await self._write_entries(self.bench.rng.sample(entries, len(entries)))

    async def _write_entries(self, entries: Iterable[tuple[Table, int, dict]]) -> None:
        await self.bus.write_all(self.driver.open_memory(
            0, base=0, limit=(1 << self.geometry.tracker.address_bits) - 1))
        for table, number, entry in entries:
            values = {half: value >> shift for name, value in entry.items()
                      for half, shift in ((name, 0), (f"{name}_lo", 0), (f"{name}_hi", 32))}
            await self.bus.write_all(
                Write(table.offset(number) + register.offset,
                      sum(field.encode(values[field.name]) for field in register.fields))
                for register in table.registers)

    async def write(self, name: str, **fields: int) -> None:
        register = self.registers[name]
        await self.bus.write_all([Write(register.offset, sum(register.field(field).encode(value)
                                                             for field, value in fields.items()))])

    async def read(self, name: str) -> int:
        return await self.bus.read(self.registers[name].offset)

    async def status(self) -> set[str]:
        """Name the bits that are 1."""
        return {name for name, value in self.driver.decode("STATUS", await self.read("STATUS")).items() if value}

    async def restart(self, kernel: int = 1) -> None:
        """Start a kernel, once Tracker and DMA table have cleared themselves: a restart before that is refused."""
        while await self.status() & set(KERNEL_INSIDE):
            await self.bench.cycle(20)
        await self.bus.write_all(self.driver.restart(kernel))

    async def first_error(self) -> dict | None:
        """Return the fields of `t3sim.rtl.layouts.error` and the code's name; the hardware forgets the error."""
        words = {register.offset: await self.bus.read(register.offset) for register in self.registers.fixed
                 if register.name.startswith(("ERROR", "TRACKER_FAULT"))}
        error = self.driver.first_error(words.__getitem__)
        assert self.bench.get("irq") == (error is not None)
        await self.bus.write_all(self.driver.clear_error())
        return error

    def request(self, address: int, region: int, wg: int, wf: int = 0, **fields: int) -> dict:
        """Make an update of a line, unless the arguments say otherwise."""
        return {"address": address, "bytes": 64, "op": UPDATE, "source": LOCAL, "region": region, "wf": wf,
                "wg": wg} | fields

    def send(self, requests: Iterable[dict]) -> None:
        for request in requests:
            side = self.compute if request["source"] == LOCAL else self.inbound
            side[channel_of_line(request["address"], self.geometry)].send(request)

    def address_in(self, channel: int) -> int:
        """Draw the address of a random line of a channel."""
        while True:
            address = self.bench.rng.getrandbits(self.geometry.tracker.address_bits - 7) * 64
            if channel_of_line(address, self.geometry) == channel:
                return address

    async def quiet(self, limit: int = 20_000, cycles: int = 40) -> None:
        """Wait until nothing more goes in, and for this many cycles nothing came out."""
        drivers = (*self.compute, *self.inbound, *self.outbound, self.dispatch, *self.drams)
        await self.still(cycles, limit, lambda: all(driver.idle for driver in drivers))

    async def drained(self) -> None:
        """Wait until it is `quiet` and nothing but incomplete tiles and blocks is left inside.

        `quiet` alone waits neither for a DRAM that pauses for long nor for the DMA table, which clears its counters
        first.
        """
        await self.quiet()
        for _ in range(100):
            if not any(name.endswith("_busy") for name in await self.status()):
                return
            await self.quiet()
        raise AssertionError(f"never idle: {await self.status()}")

    async def counted(self, counter: str, least: int, limit: int = 20_000) -> None:
        """Wait until a counter has come so far."""
        start = self.bench.now
        while await self.read(counter) < least:
            assert self.bench.now - start < limit, f"{counter} does not reach {least} within {limit} cycles"
            await self.bench.cycle(10)

    async def still(self, cycles: int, limit: int = 20_000, condition: Callable[[], bool] = lambda: True) -> None:
        """Wait until nothing moved through any stream for this many cycles, whoever waits, and the condition holds."""
        start = self.bench.now
        await self.bench.until(lambda: condition() and self.bench.now - max(start, self.bench.moved or 0) > cycles,
                               limit)

    async def rate(self, counter: str) -> float:
        """Measure what a counter counts per cycle while nothing else changes."""
        first, start = await self.read(counter), self.bench.now
        await self.bench.cycle(self.bench.rng.randrange(50, 80))
        last, end = await self.read(counter), self.bench.now
        return (last - first) / (end - start)
