"""Ready table against its model, its latency, and what a restart and a reset leave."""

import random
from dataclasses import replace

import pytest

from t3sim.rtl.geometry import DmaGeometry, Geometry, GeometryError, TrackerGeometry
from t3sim.rtl.window.ready_table import ReadyTable
from t3sim.testbenches.reference.ready_table import Ask, ReadyTableModel
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl

WG_BITS = 7


def simulate(testbench, groups=8, count_bits=4, wg_bits=WG_BITS):
    """Runs `testbench(step, reset)`; `step` is one cycle and returns `asks.ready`; `reset(level)`."""
    geometry = Geometry(tracker=TrackerGeometry(sets=8, banks=1, wg_bits=wg_bits),
                        dma=DmaGeometry(ready_groups=groups))
    dut = once(ReadyTable, geometry, count_bits=count_bits)
    simulated = simulation(dut)

    async def run(ctx):
        async def step(completed=None, ask=None, shift=2, restart=0):
            ctx.set(dut.shift, shift)
            ctx.set(dut.restart, restart)
            ctx.set(dut.completion, {"valid": int(completed is not None), "wg": completed or 0})
            ctx.set(dut.asks.valid, ask is not None)
            if ask is not None:
                ctx.set(dut.asks.payload, ask._asdict())
            ready = ctx.get(dut.asks.ready)
            await ctx.tick()
            return ready

        await testbench(step, lambda level: ctx.set(simulated.reset, level))

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize(("groups", "shift"), [(2, 0), (8, 2), (8, 4), (64, 1), (64, 0)])
def test_random_kernels_match_the_model(groups, shift):
    """2 to 64 groups of 1 to 16 ids, some ids past the last group, back to back, cycle by cycle."""
    rng, seen = random.Random(groups + shift), set()

    async def testbench(step, reset):
        model, ask = ReadyTableModel(groups, 4), None
        for cycle in range(4000):
            few = rng.random() < 0.8
            completed = rng.randrange(min(1 << WG_BITS, 3 << shift) if few else 1 << WG_BITS) \
                if rng.random() < 0.6 else None
            if ask is None and rng.random() < 0.5:
                ask = Ask(rng.randrange(min(groups, 3)), rng.choice((0, 1, 2, 5, 15)))
            restart, clear = int(rng.random() < 0.01), rng.random() < 0.003
            reset(clear)
            ready = await step(completed, ask, shift, restart)
            assert ready == model.step(shift=shift, completed=completed, ask=ask, restart=restart), f"cycle {cycle}"
            seen.add((ready, ask is not None and ask.tiles))
            if ready or clear:
                ask = None
            if clear:
                model = ReadyTableModel(groups, 4)

    simulate(testbench, groups)
    assert {tiles for ready, tiles in seen if ready} >= {0, 1, 2, 5, 15}


@pytest.mark.parametrize("group", [0, 5, 7])
def test_an_ask_is_taken_two_cycles_behind_the_tile_that_it_lacked_is_counted(group):
    """Not earlier, and not later."""
    async def testbench(step, reset):
        ask = Ask(group, 3)
        for tile in range(3):
            assert [await step(ask=ask) for _ in range(6)] == [0] * 6
            assert not await step(completed=4 * group + tile, ask=ask)
        assert [await step(ask=ask) for _ in range(4)] == [0, 0, 0, 1]
        assert [await step(ask=ask) for _ in range(6)] == [0, 0, 1, 0, 0, 1]

    simulate(testbench)


def test_tiles_of_other_groups_and_behind_the_last_do_not_count():
    """Ids that differ in one bit beyond the last group leave a request unanswered."""
    async def testbench(step, reset):
        for completed in (*range(4), *range(8, 1 << WG_BITS)):  # all but those of group 1
            await step(completed=completed)
        assert not any([await step(ask=Ask(1, 1)) for _ in range(8)])

    simulate(testbench)


def test_a_completion_in_every_cycle_counts():
    """All of one group, back to back."""
    async def testbench(step, reset):
        for completed in (0, 1, 2, 3, 0, 4, 1, 5, 2):
            await step(completed=completed)
        taken = []
        await step()
        for ask in (Ask(0, 7), Ask(1, 2)):
            taken += [await step(ask=ask) for _ in range(3)]
        assert taken[2] and taken[5]
        assert not any([await step(ask=Ask(0, 8)) for _ in range(8)])

    simulate(testbench)


@pytest.mark.parametrize("shift", range(16))
def test_every_shift_of_ids_of_16_bits(shift):
    """A group's last id counts for it and the next id for the next group; past the last group for none."""
    async def testbench(step, reset):
        for completed in ((1 << shift) - 1, 1 << shift, min(8 << shift, (1 << 16) - 1)):
            await step(completed=completed, shift=shift)
        for ask, taken in ((Ask(0, 2), False), (Ask(0, 1), True), (Ask(1, 2), shift == 15), (Ask(1, 1), shift < 16)):
            assert any([await step(ask=ask, shift=shift) for _ in range(5)]) == taken
            await step(shift=shift)

    simulate(testbench, wg_bits=16)


def test_a_counter_stays_at_its_largest_value():
    """After more tiles than it can count, a request for the most is still answered."""
    async def testbench(step, reset):
        for _ in range(40):
            await step(completed=0)
        assert any([await step(ask=Ask(0, 15)) for _ in range(3)])

    simulate(testbench)


@pytest.mark.parametrize("end", ["restart", "reset"])
@pytest.mark.parametrize("late", range(4))
def test_a_new_kernel_starts_with_nothing_complete(end, late):
    """Restart or reset while requests wait and completions arrive, also those just before it."""
    async def testbench(step, reset):
        for kernel in range(3):
            for tile in range(4):
                await step(completed=tile)
            for _ in range(late):
                await step(ask=Ask(0, 5))
            reset(end == "reset")
            await step(completed=0, ask=Ask(0, 5), restart=int(end == "restart"))
            reset(0)
            assert not any([await step(ask=Ask(0, 1)) for _ in range(8)]), kernel
            await step(completed=3, ask=Ask(0, 1))
            assert [await step(ask=Ask(0, 1)) for _ in range(4)] == [0, 0, 0, 1]

    simulate(testbench)


@pytest.mark.parametrize("groups", [1, 3, 8192, -4])
def test_impossible_tables(groups):
    """Sizes that are no power of two, and more groups than ids, raise an error."""
    with pytest.raises(GeometryError, match=f"ready_groups={groups} is impossible: 0, or a power of two from 2"):
        DmaGeometry(ready_groups=groups)
    with pytest.raises(GeometryError, match="ready_groups=256 is impossible: less than the 256 ids of wg_bits=8"):
        Geometry(replace(TrackerGeometry(), sets=8, wg_bits=8), dma=DmaGeometry(ready_groups=256))
