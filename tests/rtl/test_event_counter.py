"""Event counter against a number."""

import gc
import random

import pytest

from t3sim.rtl.control.event_counter import EventCounter
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl


def simulate(testbench, **sizes):
    """Runs `testbench(step, reset)`; `step` is one cycle and returns the total; `reset(level)`."""
    dut = once(EventCounter, **sizes)
    simulated = simulation(dut)

    async def run(ctx):
        async def step(amount, clear=0):
            ctx.set(dut.amount, amount)
            ctx.set(dut.clear, clear)
            total = ctx.get(dut.total)
            await ctx.tick()
            return total

        await testbench(step, lambda level: ctx.set(simulated.reset, level))

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize("clears", [0, 0.003, 0.3])
def test_every_event_is_counted_once_through_every_carry(clears):
    """Halves of 3 bits, random amounts, clearings and resets."""
    rng, most = random.Random(clears), []

    async def testbench(step, reset):
        total = coming = 0
        for _ in range(4000):
            amount, clear = rng.choice((0, 1, 2, 3, 3)), rng.random() < clears
            assert await step(amount, clear) == total
            total = 0 if clear else (total + coming) % 64
            coming = amount
            most.append(total)
            if rng.random() < 0.002:
                reset(1)
                await step(amount)
                reset(0)
                total = coming = 0

    simulate(testbench, half_bits=3, amount_bits=2)
    assert max(most) > 7  # a carry into the upper half


def test_a_carry_of_the_sizes_of_the_top():
    """Halves of the top's size, 255 events per cycle, past the first carry."""
    async def testbench(step, reset):
        for cycle in range(600):
            assert await step(255) == max(0, cycle - 1) * 255

    simulate(testbench)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_an_amount_that_could_carry_twice_in_a_row_is_refused():
    """It raises a ValueError."""
    with pytest.raises(ValueError, match="amount_bits is 4; it must be less than half_bits \\(4\\)"):
        EventCounter(half_bits=4, amount_bits=4)
    gc.collect()  # the half-made block warns here, where the filter is, rather than later
