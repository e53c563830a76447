"""Lines reach the right channel, in order, in turn and without loss."""

import random

import pytest

from t3sim.rtl.dma.line_router import LineRouter
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import Op, Source
from t3sim.testbenches.reference.line_router import LineRouterModel, channel_of_line
from tests.support.stream_bench import StreamBench, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


class Bench(StreamBench):
    def __init__(self, geometry, seed):
        self.dut = once(LineRouter, geometry)
        super().__init__(self.dut, seed)


def geometry_of(engines, channels, **tracker):
    return Geometry(tracker=TrackerGeometry(**tracker), channel=ChannelGeometry(channels=channels),
                    dma=DmaGeometry(engines=engines))


def make_lines(rng, geometry, engine, count, spread):
    bits = geometry.tracker.address_bits
    return [dict(address=rng.getrandbits(bits) if spread else rng.getrandbits(8), bytes=rng.randint(1, 64),
                 op=Op.READ.value, source=Source.DMA.value, region=rng.randrange(geometry.dma.regions), wf=engine % 2,
                 wg=index) for index in range(count)]


def as_payload(line):
    return line | {"op": Op(line["op"]), "source": Source(line["source"])}


@pytest.mark.parametrize("engines,channels", on_one([(1, 1), (1, 4), (2, 1), (2, 8), (4, 2), (8, 4)], (4, 2)))
@pytest.mark.parametrize("seed,idle,pause,spread", [(1, 0, 0, 1), (2, 0.3, 0.5, 1), (3, 0, 0.8, 0)])
def test_random_lines(engines, channels, seed, idle, pause, spread):
    """1 to 8 engines: every line reaches its channel, in order per engine and channel."""
    geometry, rng = geometry_of(engines, channels), random.Random(seed)
    bench = Bench(geometry, seed)
    model, left = LineRouterModel(geometry), []
    for engine, port in enumerate(bench.dut.lines):
        lines = make_lines(rng, geometry, engine, 40, spread)
        for line in lines:
            model.accept(engine, line)
        bench.source(port, map(as_payload, lines), idle=idle)
    for channel, port in enumerate(bench.dut.channels):
        bench.sink(port, idle=pause, on_transfer=lambda line, c=channel: left.append(model.leave(c, line)))
    bench.run(until=lambda: len(left) >= 40 * engines, cycles=5000, settle=5)
    assert model.inside() == 0


@pytest.mark.parametrize("engines", [1, 2, 4, 8])
def test_full_rate_without_conflicts(engines):
    """Engines on different channels each send one line per cycle."""
    geometry = geometry_of(engines, 8)
    bench, times = Bench(geometry, 1), []
    for engine, port in enumerate(bench.dut.lines):
        # Engine e at step i: block e + i, so that no two meet.
        lines = [dict(address=256 * ((engine + i) % 8), bytes=64, op=Op.READ, source=Source.DMA, region=1, wf=0, wg=i)
                 for i in range(50)]
        bench.source(port, lines)
    for port in bench.dut.channels:
        bench.sink(port, on_transfer=lambda _: times.append(bench.cycle))
    bench.run(until=lambda: len(times) >= 50 * engines)
    assert times[-1] - times[0] == 49


@pytest.mark.parametrize("engines", [2, 4, 8])
def test_engines_take_turns_at_one_channel(engines):
    """All engines send to one channel and get equal shares."""
    geometry = geometry_of(engines, 2)
    bench, order = Bench(geometry, 1), []
    for engine, port in enumerate(bench.dut.lines):
        bench.source(port, [dict(address=0, bytes=64, op=Op.READ, source=Source.DMA, region=1, wf=0, wg=engine)] * 30)
    bench.sink(bench.dut.channels[0], idle=0.2, on_transfer=lambda line: order.append(line["wg"]))
    bench.run(until=lambda: len(order) >= 30 * engines)
    for start in range(0, 25 * engines, engines):
        assert sorted(order[start:start + engines]) == list(range(engines)), start


def test_a_blocked_channel_blocks_no_other_engine():
    """One channel is never ready; only the engine that waits for it stops."""
    geometry = geometry_of(2, 2)
    bench = Bench(geometry, 1)
    line = dict(bytes=64, op=Op.READ, source=Source.DMA, region=1, wf=0)

    async def stuck(ctx):
        ctx.set(bench.dut.lines[0].valid, 1)
        ctx.set(bench.dut.lines[0].payload, line | {"address": 0, "wg": 0})

    bench.process(stuck)
    bench.source(bench.dut.lines[1], [line | {"address": 256, "wg": i} for i in range(20)])
    passed = bench.sink(bench.dut.channels[1])
    bench.run(until=lambda: len(passed) == 20, cycles=60)


@pytest.mark.parametrize("moment", [1, 2, 3, 6])
def test_reset_in_flight(moment):
    """A reset under traffic: empty, then as new."""
    geometry, rng = geometry_of(2, 4), random.Random(moment)
    bench = Bench(geometry, moment)
    dut, model, left, after = bench.dut, LineRouterModel(geometry), [], []
    lines = make_lines(rng, geometry, 0, 20, True)

    def leaves(channel, line):
        if after:
            left.append(model.leave(channel, line))

    for channel, port in enumerate(dut.channels):
        bench.sink(port, idle=0.7, on_transfer=lambda line, c=channel: leaves(c, line))

    async def drive(ctx):
        for index in range(moment):
            for port in dut.lines:
                ctx.set(port.valid, 1)
                ctx.set(port.payload, as_payload(lines[-1 - index]))
            await ctx.tick()
        for port in dut.lines:
            ctx.set(port.valid, 0)
        await bench.pulse_reset(ctx)
        assert not ctx.get(dut.busy)
        after.append(True)
        for line in lines:
            model.accept(1, line)
            ctx.set(dut.lines[1].valid, 1)
            ctx.set(dut.lines[1].payload, as_payload(line))
            await ctx.tick().until(dut.lines[1].ready)
        ctx.set(dut.lines[1].valid, 0)
        while ctx.get(dut.busy):
            await ctx.tick()

    bench.process(drive, background=False)
    bench.run(settle=5)
    assert left == [1] * 20 and model.inside() == 0


def test_reference_knows_the_wrong_channel_and_the_wrong_order():
    """The model raises an error for each."""
    geometry = geometry_of(1, 32)
    model = LineRouterModel(geometry)
    first, second = make_lines(random.Random(1), geometry, 0, 2, False)
    model.accept(0, first)
    model.accept(0, second)
    channel = channel_of_line(first["address"], geometry)
    with pytest.raises(ValueError, match="is not the next line"):
        model.leave(channel, second)
    with pytest.raises(ValueError, match="is not the next line"):
        model.leave(channel ^ 1, first)
    assert model.leave(channel, first) == 0
