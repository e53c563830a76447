"""Watchdog against its model, and when exactly it tells."""

import random

import pytest

from t3sim.rtl.control.watchdog import WatchDog
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode
from t3sim.rtl.registers import WAITS, WATCHDOG_LIMIT_BITS, WATCHDOG_PERIOD
from t3sim.testbenches.reference.watchdog import WatchDogModel
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl

EVERY = (1 << len(WAITS)) - 1


def simulate(testbench, **options):
    """Run `testbench(step, reset, counts)`.

    `step` is one cycle and returns (told, waited); `reset(level)`; `counts(limit)`: whether `moves` and `waits` count
    in the coming cycle.
    """
    dut = once(WatchDog, Geometry(), **options)
    simulated = simulation(dut)

    async def run(ctx):
        async def step(limit=2, moves=0, waits=1, clear=0):
            for name, value in (("limit", limit), ("moves", moves), ("clear", clear)):
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.waits.as_value(), waits)
            told, waited = bool(ctx.get(dut.error.valid)), ctx.get(dut.waited.as_value())
            assert ctx.get(dut.error.code) == ErrorCode.WATCHDOG and not ctx.get(dut.error.details.as_value())
            await ctx.tick()
            return told, waited

        def counts(limit):
            ctx.set(dut.limit, limit)
            return bool(ctx.get(dut.listens)), bool(ctx.get(dut.looks))

        await testbench(step, lambda level: ctx.set(simulated.reset, level), counts)

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize("seed", range(3))
def test_random_stillness_matches_the_model(seed):
    """Movement, waiting, limits, clearings and resets at random: report and reasons, cycle by cycle."""
    rng, seen = random.Random(seed), set()

    async def testbench(step, reset, counts):
        model = WatchDogModel()
        for cycle in range(40 * WATCHDOG_PERIOD):
            if cycle % 700 == 0:
                limit = rng.choice((0, 1, 1, 2, 3))
                moving, waiting = rng.choice((0, 0, 0.002, 0.3)), rng.choice((0, 0.5, 1))
                clears = rng.choice((0, 0.002))
            waits = rng.getrandbits(len(WAITS)) or 1 if rng.random() < waiting else 0
            inputs = {"limit": limit, "moves": int(rng.random() < moving), "waits": waits,
                      "clear": int(rng.random() < clears)}
            restart = rng.random() < 0.0005
            reset(restart)
            moves, looks = counts(limit)  # anything may be there otherwise
            assert (moves, looks) == model.counts(limit)
            shown = await step(**inputs | ({} if moves else {"moves": rng.getrandbits(1)})
                               | ({} if looks else {"waits": rng.getrandbits(len(WAITS))}))
            told = model.step(**inputs | {"moves": inputs["moves"] & moves, "waits": inputs["waits"] * looks})
            assert shown == told, f"cycle {cycle}"
            seen.add((shown[0], bool(shown[1])))
            if restart:
                model = WatchDogModel()

    simulate(testbench)
    assert seen == {(False, False), (True, True), (False, True)}


async def cycles_until_told(step, most, **inputs):
    for cycle in range(most):
        told, waited = await step(**inputs)
        if told:
            return cycle, waited
        assert not waited
    return None


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("after", [0, 1, 100, WATCHDOG_PERIOD - 1])
def test_it_tells_when_the_periods_are_over_and_once(limit, after):
    """The last movement is in any cycle of a period; a second report needs a clearing."""
    async def testbench(step, reset, counts):
        await step(limit=0)
        for cycle in range(after + 1):
            await step(limit=limit, moves=cycle == after)
        told = await cycles_until_told(step, (limit + 1) * WATCHDOG_PERIOD + 1, limit=limit, waits=5)
        assert told == ((limit + 1) * WATCHDOG_PERIOD - after - 1, 5)
        for _ in range(3 * WATCHDOG_PERIOD):  # it says no more, whatever waits now
            assert await step(limit=limit, waits=2) == (False, 5)
        await step(limit=limit, clear=1)
        assert await cycles_until_told(step, 5 * WATCHDOG_PERIOD, limit=limit, waits=EVERY) == (
            limit * WATCHDOG_PERIOD, EVERY)

    simulate(testbench)


@pytest.mark.parametrize("quiet", [{"limit": 0}, {"waits": 0}, {"limit": 2, "moves": 1}])
def test_it_does_not_tell_while_it_is_off_or_nothing_waits_or_something_moves(quiet):
    """Six periods of each: no report."""
    async def testbench(step, reset, counts):
        assert await cycles_until_told(step, 6 * WATCHDOG_PERIOD, **quiet) is None

    simulate(testbench)


def test_one_movement_in_every_limit_of_periods_is_enough():
    """A limit of 2 periods and a movement in every second one: no report."""
    async def testbench(step, reset, counts):
        await step(limit=0)
        for cycle in range(12 * WATCHDOG_PERIOD):
            assert await step(limit=2, moves=cycle % (2 * WATCHDOG_PERIOD) == 0) == (False, 0)

    simulate(testbench)


def test_a_limit_that_is_lowered_under_the_count_tells_at_the_end_of_the_period():
    """Attack: corner widths. Not one wrap later."""
    async def testbench(step, reset, counts):
        await step(limit=0)
        for _ in range(4 * WATCHDOG_PERIOD + 9):
            assert await step(limit=(1 << WATCHDOG_LIMIT_BITS) - 1) == (False, 0)
        assert await cycles_until_told(step, 2 * WATCHDOG_PERIOD, limit=1) == (WATCHDOG_PERIOD - 9, 1)

    simulate(testbench)


@pytest.mark.parametrize("bit", range(1, 13))
def test_every_bit_of_the_limit_counts(bit):
    """Attack: corner widths. Also of the counted periods, as far as a simulation can reach."""
    async def testbench(step, reset, counts):
        limit, period = (1 << bit) + 1, 2
        await step(limit=0)
        told = await cycles_until_told(step, (limit + 1) * period + 1, limit=limit)
        assert told == (limit * period, 1)

    simulate(testbench, period=2)
