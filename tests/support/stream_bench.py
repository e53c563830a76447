"""Small helpers for stream testbenches in the Amaranth simulator.

    bench = StreamBench(dut, seed=1)
    bench.source(dut.accesses, items, idle=0.3)              # items: dicts of the payload's fields
    updates = bench.sink(dut.updates, idle=0.3)              # list of dicts, fills while running
    bench.run(until=lambda: len(updates) == expected, cycles=5000)

Sources and sinks pause at random with probability `idle` per cycle. Every sink also checks that `valid`
and `payload` hold until `ready`. Own processes (`bench.process`) can use `send` and, to reset the device in
flight, `await bench.pulse_reset(ctx)`.
"""

import random

from amaranth.hdl import ResetInserter, Signal
from amaranth.lib import data, enum
from amaranth.sim import Simulator

from t3sim.testbenches.formal.macros import AsMacros


def as_dict(payload) -> dict:
    """A sampled struct as plain integers (nested structs as dicts)."""
    if isinstance(payload, data.Const):
        return {name: as_dict(payload[name]) for name, _ in payload.shape()}
    if isinstance(payload, enum.Enum):
        return payload.value
    return payload


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
    """Collects testbenches for one device and runs them against a cycle limit.

    What a memory gives for a row that is being written is noise.
    """

    def __init__(self, dut, seed: int):
        self.random = random.Random(seed)
        self.cycle = 0
        self.reset = Signal()
        self._simulator = Simulator(ResetInserter(self.reset)(AsMacros(dut)))
        self._simulator.add_clock(1e-9)
        self._pending = 0

    def process(self, function, *, background=True) -> None:
        """Adds `async def function(ctx)`; the run ends only after every foreground one returned."""
        if background:
            self._simulator.add_testbench(function, background=True)
            return
        self._pending += 1

        async def counted(ctx):
            await function(ctx)
            self._pending -= 1

        self._simulator.add_testbench(counted, background=True)

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

        self._simulator.add_testbench(watch)
        self._simulator.run()
