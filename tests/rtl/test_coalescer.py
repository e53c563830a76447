"""Coalescer against its cycle-exact model, and that no byte is lost."""

import random

import pytest

from t3sim.rtl.channel.coalescer import Coalescer
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.testbenches.reference.coalescer import CoalescerModel, Update, totals
from tests.support.stream_bench import StreamBench, as_dict, once, send

pytestmark = pytest.mark.builds_rtl


def accesses(rng, count, geometry, amounts=(1, 32, 64)):
    """Runs of the same key, so that merging, overflow and key changes all happen."""
    items = []
    while len(items) < count:
        key = {"wg": rng.randrange(3), "wf": rng.randrange(2), "region": rng.randrange(1, 3)}
        for _ in range(rng.choice((1, 2, 5, 60))):
            items.append({"address": rng.getrandbits(geometry.tracker.address_bits), "amount": rng.choice(amounts),
                          "source": rng.randrange(3), **key})
    return items[:count]


@pytest.mark.parametrize("seed, timeout, idle_in, idle_out", [
    (1, 16, 0.0, 0.0), (2, 16, 0.2, 0.8), (3, 1, 0.5, 0.5), (4, 3, 0.7, 0.2), (5, 5, 0.8, 0.97),
])
def test_matches_the_model_in_every_cycle(seed, timeout, idle_in, idle_out):
    """Neighbouring accesses of a tile join; no byte is lost, order is kept, no update waits past the timeout."""
    geometry = Geometry(channel=ChannelGeometry(coalescer_timeout_cycles=timeout))
    dut, model = once(Coalescer, geometry), CoalescerModel(geometry)
    bench = StreamBench(dut, seed)
    items = accesses(bench.random, 600, geometry, amounts=(1, 64, 2047) if seed == 2 else (1, 32, 64))
    bench.source(dut.accesses, items, idle_in)
    taken = bench.sink(dut.updates, idle_out)
    left = []

    async def compare(ctx):
        ports = dut.accesses, dut.updates
        while True:
            _, _, access, *seen = await ctx.tick().sample(
                dut.accesses.payload, dut.updates.payload, *(port.valid for port in ports),
                *(port.ready for port in ports), dut.busy, dut.merged)
            payload, access_valid, update_valid, access_ready, update_ready, busy, merged = seen
            accepted = Update(**as_dict(access)) if access_valid and access_ready else None
            assert access_ready == model.ready
            assert update_valid == bool(model.waiting)
            assert busy == (model.held is not None or bool(model.waiting))
            if update_valid:
                assert as_dict(payload) == model.waiting[0]._asdict()
            assert merged == model.joins(accepted)
            left.append(model.cycle(accepted, update_ready))

    bench.process(compare)
    bench.run(until=lambda: model.held is None and not model.waiting, cycles=40_000, settle=3)
    assert [update._asdict() for update in left if update] == taken
    assert totals(Update(**update) for update in taken) == totals(Update(**item) for item in items)
    if timeout > 1:
        assert len(taken) < len(items), "nothing was merged"


def test_full_rate_without_merging():
    """With keys that never merge it takes one access per cycle."""
    geometry = Geometry()
    dut = once(Coalescer, geometry)
    bench = StreamBench(dut, seed=6)
    items = [{"address": 64 * n, "amount": 64, "source": 0, "region": 1, "wf": 0, "wg": n} for n in range(100)]
    bench.source(dut.accesses, items)
    taken = bench.sink(dut.updates)
    bench.run(until=lambda: len(taken) == 100, cycles=100 + 16 + 4)
    assert taken == items


def test_reset_in_flight_drops_everything_held():
    """A reset while an update is held: nothing leaves afterwards."""
    geometry = Geometry()
    dut = once(Coalescer, geometry)
    bench = StreamBench(dut, seed=7)
    rng = random.Random(7)
    before, after = ([{"address": n, "amount": 1, "source": 0, "region": 1, "wf": 0, "wg": wg + n}
                      for n in range(3)] for wg in (10, 20))

    async def drive(ctx):
        await send(ctx, dut.accesses, before, rng)
        assert ctx.get(dut.busy)
        await bench.pulse_reset(ctx)
        assert not ctx.get(dut.busy)
        opened.append(True)
        await send(ctx, dut.accesses, after, rng)

    opened, taken = [], []

    async def take(ctx):
        while True:
            ctx.set(dut.updates.ready, bool(opened))
            _, _, valid, ready, payload = await ctx.tick().sample(
                dut.updates.valid, dut.updates.ready, dut.updates.payload)
            if valid and ready:
                taken.append(as_dict(payload))

    bench.process(drive, background=False)
    bench.process(take)
    bench.run(until=lambda: len(taken) == 3, cycles=200, settle=30)
    assert taken == after
