"""Small helpers for testbenches in the Amaranth simulator, first of all for streams.

    dut = once(Coalescer, geometry)                          # elaborated once, for all tests that ask for it
    bench = StreamBench(dut, seed=1)
    bench.source(dut.accesses, items, idle=0.3)              # items: dicts of the payload's fields
    updates = bench.sink(dut.updates, idle=0.3)              # list of dicts, fills while running
    bench.run(until=lambda: len(updates) == expected, cycles=5000)

Sources and sinks pause at random with probability `idle` per cycle. Every sink also checks that `valid`
and `payload` hold until `ready`. Own processes (`bench.process`) can use `send` and, to reset the device in
flight, `await bench.pulse_reset(ctx)`.
"""

import random
from functools import cache, lru_cache

from amaranth.hdl import Const, ResetInserter, Shape, ShapeCastable, Signal, ValueCastable
from amaranth.lib import data, enum
from amaranth.sim import Simulator

from t3sim.testbenches.formal.macros import AsMacros


@lru_cache(maxsize=8)
def once(block, *arguments, **options):
    """A block that no test changes or replaces parts of: asked for again it is the same, with its simulator."""
    dut = block(*arguments, **options)
    dut.idle_simulations = []
    return dut


class Context:
    """What a testbench acts through. To set what is set already does nothing: the design has settled."""

    def __init__(self, ctx) -> None:
        self._set, self.get, self.tick, self.critical = ctx.set, ctx.get, ctx.tick, ctx.critical

    def set(self, port, value) -> None:
        if isinstance(port, ValueCastable):
            if isinstance(shape := port.shape(), ShapeCastable):
                value = Const.cast(shape.const(value)).value
            port = port.as_value()
        if not isinstance(value, int) or self.get(port) != value:
            self._set(port, value)


class Simulation:
    """A block with a clock and a reset, at its start; `simulation` gives it.

    What a memory gives for a row that is being written is noise.
    """

    def __init__(self, dut) -> None:
        self._dut, self.reset = dut, Signal()
        self._simulator = Simulator(ResetInserter(self.reset)(AsMacros(dut)))
        self._simulator.add_clock(1e-9)
        self._places, self._testbenches = 0, []

    def restart(self) -> None:
        self._simulator.reset()
        self._testbenches = []

    def add_testbench(self, function, *, background: bool = False) -> None:
        """As a simulator's. A place takes the testbenches of one run after the other."""
        place = len(self._testbenches)
        self._testbenches.append((function, background))
        if place < self._places:
            return
        self._places += 1

        async def testbench(ctx):
            if place < len(self._testbenches):
                function, background = self._testbenches[place]
                ctx = Context(ctx)
                if background:
                    return await function(ctx)
                with ctx.critical():
                    await function(ctx)

        self._simulator.add_testbench(testbench, background=True)

    def run(self) -> None:
        self._simulator.run()
        vars(self._dut).get("idle_simulations", []).append(self)


def simulation(dut) -> Simulation:
    """A simulation of a block: if `once` gave it, one whose run has ended well if there is one, otherwise a new one."""
    if idle := vars(dut).get("idle_simulations"):
        one = idle.pop()
        one.restart()
        return one
    return Simulation(dut)


def as_dict(payload):
    """A sampled struct as plain integers (nested structs as dicts)."""
    if isinstance(payload, data.Const):
        return _plain(payload.shape())(payload.as_bits())
    if isinstance(payload, enum.Enum):
        return payload.value
    return payload


@cache
def _plain(shape):
    """Make what gives bits of this shape as plain integers."""
    if isinstance(shape, enum.EnumType):
        return lambda bits: shape(bits).value
    if not isinstance(shape, ShapeCastable):
        sign = 1 << Shape.cast(shape).width - 1 if Shape.cast(shape).signed else 0
        return lambda bits: (bits ^ sign) - sign
    fields = [(name, field.offset, (1 << field.width) - 1, _plain(field.shape))
              for name, field in data.Layout.cast(shape)]
    return lambda bits: {name: plain(bits >> offset & mask) for name, offset, mask, plain in fields}


async def send(ctx, port, items, rng, idle: float = 0.0, on_transfer=None) -> None:
    """Offers `items` in order; calls `on_transfer(item)` when one is accepted."""
    for item in items:
        while rng.random() < idle:
            await ctx.tick()
        ctx.set(port.payload, item)
        ctx.set(port.valid, 1)
        ready = False
        while not ready:  # `until` would litter a failing test's report when the simulator is torn down
            _, _, ready = await ctx.tick().sample(port.ready)
        ctx.set(port.valid, 0)
        if on_transfer is not None:
            on_transfer(item)


class StreamBench:
    """Collects testbenches for one device and runs them against a cycle limit."""

    def __init__(self, dut, seed: int):
        self.random = random.Random(seed)
        self.cycle = 0
        self._simulation = simulation(dut)
        self.reset = self._simulation.reset
        self._pending = 0

    def process(self, function, *, background=True) -> None:
        """Adds `async def function(ctx)`; the run ends only after every foreground one returned."""
        if background:
            self._simulation.add_testbench(function, background=True)
            return
        self._pending += 1

        async def counted(ctx):
            await function(ctx)
            self._pending -= 1

        self._simulation.add_testbench(counted, background=True)

    async def pulse_reset(self, ctx) -> None:
        """Resets the device for one cycle; sinks ignore what they see in it."""
        ctx.set(self.reset, 1)
        await ctx.tick()
        ctx.set(self.reset, 0)

    def source(self, port, items, idle: float = 0.0, on_transfer=None) -> None:
        """Adds a process that `send`s the items."""
        rng = random.Random(self.random.random())

        async def run_source(ctx):
            await send(ctx, port, items, rng, idle, on_transfer)

        self.process(run_source, background=False)

    def sink(self, port, idle: float = 0.0, on_transfer=None) -> list:
        """Takes everything; returns the list that it fills, and calls `on_transfer(item)` with each."""
        rng = random.Random(self.random.random())
        taken = []

        async def receive(ctx):
            offered = None
            while True:
                ready = rng.random() >= idle
                ctx.set(port.ready, ready)
                _, _, reset, valid, payload = await ctx.tick().sample(self.reset, port.valid, port.payload)
                if reset:
                    offered = None
                    continue
                assert offered is None or (valid and payload == offered), "valid or payload changed before ready"
                offered = payload if valid and not ready else None
                if valid and ready:
                    taken.append(as_dict(payload))
                    if on_transfer is not None:
                        on_transfer(taken[-1])

        self.process(receive)
        return taken

    def run(self, until=lambda: True, cycles: int = 10_000, settle: int = 0) -> None:
        """Runs until the sources are empty and `until()` holds, then `settle` cycles more."""

        async def watch(ctx):
            while self._pending or not until():
                assert self.cycle < cycles, f"nothing more happens after {cycles} cycles"
                await ctx.tick()
                self.cycle += 1
            await ctx.tick().repeat(settle or 1)

        self._simulation.add_testbench(watch)
        self._simulation.run()
