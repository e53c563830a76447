"""Pointer queue: order, capacity, rate, and what its memory is asked for."""

import random
from collections import deque

import pytest
from amaranth.hdl import Fragment
from amaranth.lib import data

from t3sim.rtl.streams.pointer_queue import PointerQueue
from tests.support.stream_bench import StreamBench, once, simulation

pytestmark = pytest.mark.builds_rtl


def mixed(entry):
    """The digest of an entry."""
    return entry.low ^ entry.high[:4]


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 8, 64])
@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.1, 0.6), (0.6, 0.1)])
def test_keeps_everything_in_order(depth, idle_in, idle_out):
    """Depths 1 to 64 with random pauses; from depth 2 one entry per cycle."""
    dut = once(PointerQueue, 16, depth)
    bench = StreamBench(dut, seed=depth)
    items = [bench.random.getrandbits(16) for _ in range(300)]
    bench.source(dut.input, items, idle_in)
    taken = bench.sink(dut.output, idle_out)
    bench.run(until=lambda: len(taken) == len(items), cycles=5000)
    assert taken == items
    if depth > 1 and idle_in == idle_out == 0:
        assert bench.cycle < 305, "not one item per cycle"


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 64])
def test_holds_exactly_its_depth(depth):
    """Also after a reset of a full queue."""
    dut = once(PointerQueue, 16, depth)
    bench = StreamBench(dut, seed=1)

    async def fill(ctx):
        ctx.set(dut.input.valid, 1)
        for _ in range(2):
            for _ in range(depth):
                assert ctx.get(dut.input.ready)
                await ctx.tick()
            assert not ctx.get(dut.input.ready)
            await bench.pulse_reset(ctx)

    bench.process(fill, background=False)
    bench.run()


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.1, 0.6), (0.6, 0.1)])
def test_head_digest_is_that_of_the_head(depth, idle_in, idle_out):
    """In every cycle in which the queue is not empty."""
    layout = data.StructLayout({"low": 4, "high": 12})
    dut = once(PointerQueue, layout, depth, digest=mixed)
    bench = StreamBench(dut, seed=depth)
    items = [{"low": bench.random.getrandbits(4), "high": bench.random.getrandbits(12)} for _ in range(300)]
    bench.source(dut.input, items, idle_in)
    taken = bench.sink(dut.output, idle_out)
    seen = []

    async def watch(ctx):
        while True:
            _, _, valid, entry, digest = await ctx.tick().sample(dut.output.valid, dut.output.payload, dut.head_digest)
            if valid:
                seen.append(digest == entry.low ^ entry.high & 15)

    bench.process(watch)
    bench.run(until=lambda: len(taken) == len(items), cycles=5000)
    assert all(seen) and len(seen) >= len(items)


@pytest.mark.parametrize("depth", [1, 2, 4, 5, 6, 8, 9])
@pytest.mark.parametrize("fill", [0.2, 0.5, 0.8])
def test_every_cycle_is_that_of_a_queue(depth, fill):
    """In the cycle after an entry came it is there, its digest too, whichever way the memory is read; resets come.

    What the memory gives for a word that is being written does not matter.
    """
    layout = data.StructLayout({"low": 4, "high": 12})
    dut = once(PointerQueue, layout, depth, digest=mixed)
    simulated, rng = simulation(dut), random.Random(depth)

    async def testbench(ctx):
        queue = deque()
        for cycle in range(2000):
            clear, entry = rng.random() < 0.005, rng.getrandbits(16)
            offered, taking = rng.random() < fill, rng.random() < (0.5 if cycle % 200 < 100 else 1 - fill)
            ctx.set(simulated.reset, clear)
            ctx.set(dut.input.valid, offered)
            ctx.set(dut.input.payload, {"low": entry & 15, "high": entry >> 4})
            ctx.set(dut.output.ready, taking)
            assert (ctx.get(dut.input.ready), ctx.get(dut.output.valid)) == (len(queue) < depth, bool(queue)), cycle
            accepted = offered and len(queue) < depth
            if queue:
                first = queue[0]
                assert ctx.get(dut.output.payload.as_value()) == first, cycle
                assert ctx.get(dut.head_digest) == (first ^ first >> 4) & 15, cycle
                if taking:
                    queue.popleft()
            if accepted:
                queue.append(entry)
            if clear:
                queue.clear()
            await ctx.tick()

    simulated.add_testbench(testbench)
    simulated.run()


@pytest.mark.parametrize("depth", [5, 8, 32])
def test_the_memory_of_a_deep_queue_is_an_sram(depth):
    """One write and one clocked read, of which a word that is being written is not expected."""
    dut = PointerQueue(data.StructLayout({"low": 16}), depth, digest=lambda entry: entry.low[:4])
    for memory, _, _ in Fragment.get(dut, None).subfragments:
        (read,), (_,) = memory._read_ports, memory._write_ports
        assert read._domain == "sync" and not read._transparent_for
