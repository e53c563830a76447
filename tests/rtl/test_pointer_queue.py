"""Pointer queue: order, capacity, rate."""

import pytest
from amaranth.lib import data
from stream_bench import StreamBench

from t3sim.rtl.pointer_queue import PointerQueue


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 64])
@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.1, 0.6), (0.6, 0.1)])
def test_keeps_everything_in_order(depth, idle_in, idle_out):
    dut = PointerQueue(16, depth)
    bench = StreamBench(dut, seed=depth)
    items = [bench.random.getrandbits(16) for _ in range(300)]
    bench.source(dut.input, items, idle_in)
    taken = bench.sink(dut.output, idle_out)
    bench.run(until=lambda: len(taken) == len(items), cycles=5000)
    assert taken == items
    if depth > 1 and idle_in == idle_out == 0:
        assert bench.cycle < 305, "not one item per cycle"


@pytest.mark.parametrize("depth", [1, 2, 3, 64])
def test_holds_exactly_its_depth(depth):
    dut = PointerQueue(16, depth)
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


@pytest.mark.parametrize("depth", [1, 2, 3, 64])
@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.1, 0.6), (0.6, 0.1)])
def test_head_digest_is_that_of_the_head(depth, idle_in, idle_out):
    layout = data.StructLayout({"low": 4, "high": 12})
    dut = PointerQueue(layout, depth, digest=lambda entry: entry.low ^ entry.high[:4])
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
