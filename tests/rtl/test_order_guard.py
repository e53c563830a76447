"""Order guard against its cycle-exact model."""

import random
from collections import Counter, deque

import pytest

from t3sim.rtl.address_map import channel_of
from t3sim.rtl.channel.order_guard import OrderGuard
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.testbenches.reference.order_guard import OrderGuardModel, bucket_of
from tests.support.stream_bench import once, simulation
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = [
    ChannelGeometry(),
    ChannelGeometry(guard_buckets=1),
    ChannelGeometry(guard_buckets=2, channels=1, interleave_bytes=64),
    ChannelGeometry(guard_buckets=256, queue_entries=127, channels=16, interleave_bytes=1024),
    ChannelGeometry(guard_buckets=64, queue_entries=4, channels=64, interleave_bytes=64),
]


@pytest.mark.parametrize("channel", on_one(GEOMETRIES), ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_writes_and_retirements_match_the_model(channel, seed):
    """Writes whenever there is room, queues from 4 entries up; a word that is being written reads as noise."""
    rng = random.Random(seed)
    geometry = Geometry(channel=channel)
    dut = once(OrderGuard, geometry)
    simulated = simulation(dut)
    lines = [rng.getrandbits(geometry.tracker.address_bits) for _ in range(40)]
    answers = Counter()

    async def run(ctx):
        for _ in range(2):
            await sweep(ctx)
            await traffic(ctx)
            ctx.set(simulated.reset, 1)  # in flight: whatever is outstanding is forgotten
            ctx.set(dut.retired, 0)
            ctx.set(dut.write, 0)
            await ctx.tick()
            ctx.set(simulated.reset, 0)

    async def sweep(ctx):
        for _ in range(channel.guard_buckets):
            assert not ctx.get(dut.ready)
            ctx.set(dut.following, bucket_of(lines[0], geometry))
            ctx.set(dut.moves, 1)
            await ctx.tick()
        assert ctx.get(dut.ready)

    async def traffic(ctx):
        model, in_flight, roomy = OrderGuardModel(geometry), deque(), True
        query = lines[0]
        for cycle in range(1200):
            if cycle % 100 == 0:
                write_rate, retire_rate = rng.random(), rng.random()
            address, following, moves = rng.choice(lines), rng.choice(lines), rng.random() < 0.8
            write = rng.random() < write_rate and roomy
            retired = None
            if in_flight and rng.random() < retire_rate:
                in_flight.rotate(rng.randrange(len(in_flight)))  # a DRAM scheduler reorders
                retired = in_flight.popleft()
            ctx.set(dut.query, bucket_of(query, geometry))
            ctx.set(dut.following, bucket_of(following, geometry))
            ctx.set(dut.moves, moves)
            ctx.set(dut.write, write)
            ctx.set(dut.write_address, address)
            ctx.set(dut.retired, retired is not None)
            ctx.set(dut.retired_bucket, rng.randrange(channel.guard_buckets) if retired is None else retired)
            assert ctx.get(dut.write_bucket) == bucket_of(address, geometry)
            blocked = model.blocked(query, address if write else None)
            assert ctx.get(dut.blocked) == blocked, f"cycle {cycle}"
            answers[blocked] += 1
            roomy = bool(ctx.get(dut.room))
            assert roomy == model.room(address if write else None), f"cycle {cycle}"
            answers["no room"] += not roomy
            model.tick(address if write else None, retired)
            if write:
                in_flight.append(bucket_of(address, geometry))
            if moves:
                query = following
            await ctx.tick()

    simulated.add_testbench(run)
    simulated.run()
    assert min(answers[False], answers[True]) > 10
    assert answers["no room"] or channel.queue_entries > 4


@pytest.mark.parametrize("write, retired, free_after", [(3, 4, 5), (3, 10, 11)])
@pytest.mark.parametrize("query, hit", [(0x1000_0040, True), (0x1000_00C3, True), (0x1000_2040, False)],
                         ids=["the line", "the same block", "the next one of the channel"])
def test_blocks_from_the_write_to_the_cycle_after_the_retirement(write, retired, free_after, query, hit):
    """One write, one retirement: a read is free in the next cycle."""
    geometry = Geometry()
    dut = once(OrderGuard, geometry)
    simulated = simulation(dut)
    line = 0x1000_0040

    async def run(ctx):
        await ctx.tick().until(dut.ready)
        ctx.set(dut.query, bucket_of(query, geometry))
        for cycle in range(15):
            ctx.set(dut.write, cycle == write)
            ctx.set(dut.write_address, line)
            ctx.set(dut.retired, cycle == retired)
            ctx.set(dut.retired_bucket, bucket_of(line, geometry))
            if cycle:
                assert ctx.get(dut.blocked) == (hit and write <= cycle < free_after), f"cycle {cycle}"
            await ctx.tick()

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize("entries", [4, 64, 127])
def test_a_full_queue_and_as_many_writes_again_block(entries):
    """Attack: a count at its end. All to one line, queues of 4 to 127: blocked until the last retirement."""
    geometry = Geometry(channel=ChannelGeometry(queue_entries=entries))
    dut = once(OrderGuard, geometry)
    simulated = simulation(dut)

    async def run(ctx):
        await ctx.tick().until(dut.ready)
        ctx.set(dut.query, bucket_of(0, geometry))
        ctx.set(dut.retired_bucket, bucket_of(0, geometry))
        for name in ("write", "retired"):
            ctx.set(getattr(dut, name), 1)
            for _ in range(2 * entries):
                assert ctx.get(dut.blocked) and ctx.get(dut.room)
                await ctx.tick()
            ctx.set(getattr(dut, name), 0)
            for _ in range(3):
                assert ctx.get(dut.blocked) == (name == "write")
                await ctx.tick()

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize("channel", GEOMETRIES, ids=str)
def test_lines_of_one_channel_spread_over_all_buckets(channel):
    """The lines of one channel use every bucket."""
    geometry = Geometry(channel=channel)
    counts = Counter(bucket_of(line * 64, geometry)
                     for line in range(channel.channels * channel.guard_buckets * 64)
                     if channel_of(line * 64, geometry) == 0)
    assert len(counts) == channel.guard_buckets
    assert max(counts.values()) == min(counts.values())
