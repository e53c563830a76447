"""TriggerMerge: order per bank, nothing lost or doubled, fairness, full rate."""

import random

import pytest

from t3sim.rtl.geometry import Geometry, TrackerGeometry
from t3sim.rtl.track.trigger_merge import TriggerMerge
from t3sim.testbenches.reference.trigger_merge import MergeModel
from tests.support.stream_bench import StreamBench, once, send
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


def item(number, n):
    return {"address": n, "region": 1, "wf": n % 8, "wg": number}


def merge(banks, seed):
    dut = once(TriggerMerge, Geometry(tracker=TrackerGeometry(sets=64, banks=banks)))
    return dut, StreamBench(dut, seed)


@pytest.mark.parametrize("banks", on_one([1, 2, 8, 64], 8))
@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.5, 0.5), (0.9, 0.1)])
def test_every_trigger_once_and_in_order(banks, idle_in, idle_out):
    """1 to 8 banks with random pauses; in order per bank."""
    dut, bench = merge(banks, seed=banks)
    model, each = MergeModel(banks), 256 // banks if banks > 2 else 60
    for number in range(banks):
        # Equal items of different banks would hide a swap: the bank is in `wg`.
        bench.source(dut.triggers[number], [item(number, n) for n in range(each)], idle_in,
                     on_transfer=lambda sent, number=number: model.accepted(number, sent))
    taken = bench.sink(dut.merged, idle_out)
    bench.run(until=lambda: len(taken) == banks * each, cycles=4000, settle=4)
    # A source reports its transfer in the cycle before the item can leave, so replaying in order is exact.
    for trigger in taken:
        assert model.delivered(trigger) == trigger["wg"]
    assert model.waiting == 0


@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.5, 0.5), (0.9, 0.1), (0.1, 0.9)])
def test_the_workgroup_is_known_a_cycle_ahead(idle_in, idle_out):
    """In every cycle with a trigger, with and without pauses on both sides."""
    dut, bench = merge(4, seed=5)
    for number in range(4):
        bench.source(dut.triggers[number], [item(16 * n + number, n) for n in range(50)], idle_in)
    taken, seen = bench.sink(dut.merged, idle_out), []

    async def watch(ctx):
        before = None
        while True:
            _, _, valid, wg, following = await ctx.tick().sample(
                dut.merged.valid, dut.merged.payload.wg, dut.following)
            if valid:
                seen.append(wg == before)
            before = following

    bench.process(watch)
    bench.run(until=lambda: len(taken) == 200, cycles=4000, settle=4)
    assert len(seen) >= 200 and all(seen)


def test_full_rate_and_fair():
    """All banks are full: one trigger per cycle, in equal shares."""
    dut, bench = merge(8, seed=1)
    for number in range(8):
        bench.source(dut.triggers[number], [item(number, n) for n in range(20)])
    taken = bench.sink(dut.merged)
    bench.run(until=lambda: len(taken) == 160, cycles=163)
    for start in range(0, 160, 8):
        assert {trigger["wg"] for trigger in taken[start:start + 8]} == set(range(8))


def test_ready_does_not_depend_on_the_own_valid():
    """Toggling one bank's valid leaves its ready unchanged, so there is no combinational loop."""
    dut, bench = merge(4, seed=2)
    rng = random.Random(2)

    async def probe(ctx):
        for _ in range(300):
            valids = [rng.random() < 0.5 for _ in range(4)]
            ctx.set(dut.merged.ready, rng.random() < 0.6)
            for number in range(4):
                for other in range(4):
                    ctx.set(dut.triggers[other].valid, valids[other] and other != number)
                before = ctx.get(dut.triggers[number].ready)
                ctx.set(dut.triggers[number].valid, 1)
                assert ctx.get(dut.triggers[number].ready) == before
            for other in range(4):
                ctx.set(dut.triggers[other].valid, valids[other])
            going = [other for other in range(4) if valids[other] and ctx.get(dut.triggers[other].ready)]
            assert len(going) <= 1
            await ctx.tick()

    bench.process(probe, background=False)
    bench.run()


def test_reset_in_flight():
    """A reset under traffic: empty, then as new."""
    dut, bench = merge(2, seed=3)
    rng = random.Random(3)
    taken = bench.sink(dut.merged, idle=0.0)

    async def drive(ctx):
        await send(ctx, dut.triggers[0], [item(0, 1), item(0, 2)], rng)
        await bench.pulse_reset(ctx)
        taken.clear()
        await send(ctx, dut.triggers[1], [item(1, 3)], rng)

    bench.process(drive, background=False)
    bench.run(until=lambda: taken, cycles=50, settle=5)
    assert taken == [item(1, 3)]
