"""Intensity monitor against its model."""

import random

import pytest

from t3sim.rtl.arbiter.intensity_monitor import IntensityMonitor
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.testbenches.reference.intensity_monitor import IntensityMonitorModel
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl


def simulate(channels, queue_entries, testbench, **sizes):
    """Runs `testbench(ctx, dut, step, reset)`; `step` is one cycle of the device and of the model it returns."""
    geometry = Geometry(channel=ChannelGeometry(channels=channels, queue_entries=queue_entries, **sizes))
    dut = once(IntensityMonitor, geometry)
    simulated = simulation(dut)

    async def run(ctx):
        model = IntensityMonitorModel(geometry)

        async def step(occupancy=(), restart=0, producer_active=0, communication_seen=0):
            occupancy = [*occupancy, *[0] * (channels - len(occupancy))]
            for port, value in zip(dut.occupancy, occupancy, strict=True):
                ctx.set(port, value)
            inputs = {"restart": restart, "producer_active": producer_active, "communication_seen": communication_seen}
            for name, value in inputs.items():
                ctx.set(getattr(dut, name), value)
            model.step(occupancy=occupancy, **inputs)
            await ctx.tick()
            return model

        await testbench(ctx, dut, step, simulated.reset)

    simulated.add_testbench(run)
    simulated.run()


async def settle(ctx, dut, step):
    """Lets the division finish; returns the model."""
    for _ in range(len(dut.mean) + 1):
        model = await step()
        if ctx.get(dut.done):
            break
        assert ctx.get(dut.threshold) == 127 and ctx.get(dut.mean) == 0
    assert ctx.get(dut.done)
    return model


@pytest.mark.parametrize("channels, queue_entries, seed", [(1, 4, 1), (4, 64, 2), (32, 127, 3), (64, 64, 4)])
def test_random_phases_match_the_model(channels, queue_entries, seed):
    """The threshold is 3, 5, 15 or none by the producer's mean occupancy, with exact division."""
    rng = random.Random(seed)
    chosen = set()

    async def testbench(ctx, dut, step, reset):
        for phase in range(40):
            marks = sorted(rng.randrange(min(256, 4 * queue_entries + 2)) for _ in range(3))
            for port, mark in zip(dut.breakpoints, marks):
                ctx.set(port, mark)
            low = rng.randrange(queue_entries + 1)
            high = rng.randrange(low, queue_entries + 1)
            await step(restart=1, producer_active=1, occupancy=[queue_entries] * channels)
            active = rng.random()
            for _ in range(rng.choice((0, 1, 2, 5, 100))):
                await step([rng.randint(low, high) for _ in range(channels)],
                           producer_active=int(rng.random() < active))
                assert not ctx.get(dut.done) and ctx.get(dut.threshold) == 127 and ctx.get(dut.mean) == 0
            await step([queue_entries] * channels, producer_active=1, communication_seen=1)
            if phase % 8 == 7:  # a restart in the middle of the division
                continue
            model = await settle(ctx, dut, step)
            for _ in range(3):  # what comes later changes nothing
                assert ctx.get(dut.mean) == model.mean
                assert ctx.get(dut.threshold) == model.threshold(marks)
                await step([queue_entries] * channels, producer_active=1, communication_seen=rng.randrange(2))
            chosen.add(model.threshold(marks))

    simulate(channels, queue_entries, testbench)
    assert chosen == {127, 15, 5, 3}


@pytest.mark.parametrize("below, threshold, above", [(39, 127, 15), (79, 15, 5), (159, 5, 3)])
def test_breakpoints_exactly_at_the_border(below, threshold, above):
    """Means a quarter of an entry apart choose different thresholds."""
    async def testbench(ctx, dut, step, reset):
        for port, mark in zip(dut.breakpoints, (40, 80, 160)):
            ctx.set(port, mark)
        for mean, expected in ((below, threshold), (below + 1, above)):
            await step(restart=1)
            for i in range(4):
                await step([(mean + i) // 4], producer_active=1)
            await step(communication_seen=1)
            await settle(ctx, dut, step)
            assert (ctx.get(dut.mean), ctx.get(dut.threshold)) == (mean, expected)

    simulate(1, 64, testbench)


@pytest.mark.parametrize("least, cycles, producer_ends", [
    (0, 1, False), (1, 64, False), (3, 192, False), (3, 50, True)])
def test_an_early_arrival_ends_the_phase_when_there_are_enough_samples_or_the_producer_ends(
        least, cycles, producer_ends):
    """Communication starts and stops, producers pause and end."""
    async def testbench(ctx, dut, step, reset):
        ctx.set(dut.least, least)
        await step(restart=1)
        await step(communication_seen=1)  # of a neighbour that started earlier than the producer
        for cycle in range(cycles):
            assert not ctx.get(dut.done) or not least
            await step([20], producer_active=1, communication_seen=int(cycle == 3))
        await step(producer_active=int(not producer_ends))
        for _ in range(len(dut.mean) + 1):
            await step(producer_active=1)
        assert ctx.get(dut.done) and ctx.get(dut.mean) == (80 if least else 0)

    simulate(1, 64, testbench)


def test_each_channel_has_its_turn_and_idle_cycles_are_no_samples():
    """With one busy channel the mean is that channel's share."""
    async def testbench(ctx, dut, step, reset):
        for port in dut.breakpoints:
            ctx.set(port, 255)
        await step(restart=1)
        for turn in range(4):
            await step([64] * 4, producer_active=0)
            await step([8 if channel == turn else 0 for channel in range(4)], producer_active=1)
        await step(communication_seen=1)
        await settle(ctx, dut, step)
        assert ctx.get(dut.mean) == 4 * 8

    simulate(4, 64, testbench)


def test_idle_without_a_restart_and_after_a_reset():
    """In both cases the threshold is none and nothing is measured."""
    async def testbench(ctx, dut, step, reset):
        for _ in range(5):
            await step([64], producer_active=1, communication_seen=1)
            assert not ctx.get(dut.done) and ctx.get(dut.threshold) == 127
        for length in (3, 30):  # a reset while watching, and one when done
            await step(restart=1)
            await step([64], producer_active=1)
            for _ in range(length):
                await step([64], communication_seen=int(length == 30))
            assert ctx.get(dut.done) == (length == 30)
            ctx.set(reset, 1)
            await step()
            ctx.set(reset, 0)
            for _ in range(30):
                await step([64], producer_active=1, communication_seen=1)
                assert not ctx.get(dut.done) and ctx.get(dut.threshold) == 127

    simulate(1, 64, testbench)


@pytest.mark.parametrize("sample_bits", (1, 4))
def test_sampling_stops_when_it_is_enough(sample_bits):
    """Other occupancies after 2^sample_bits cycles do not change the mean."""
    async def testbench(ctx, dut, step, reset):
        for port in dut.breakpoints:
            ctx.set(port, 255)
        await step(restart=1)
        for _ in range(1 << sample_bits):
            await step([7], producer_active=1)
        for _ in range(50):
            await step([64], producer_active=1)
        await step(communication_seen=1)
        await settle(ctx, dut, step)
        assert ctx.get(dut.mean) == 4 * 7

    simulate(1, 64, testbench, sample_bits=sample_bits)
