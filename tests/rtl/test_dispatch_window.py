"""DispatchWindow against its model: what starts, how head advances, restarts, errors."""

import random

import pytest
from stream_bench import StreamBench, send

from rtl.dispatch_window import DispatchWindow
from rtl.geometry import Geometry, TrackerGeometry
from rtl.layouts import ErrorCode
from sim_models.reference.dispatch_window import DispatchWindowModel

GEOMETRIES = {
    "paper": TrackerGeometry(),
    "one_set": TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=8),
    "few_ways": TrackerGeometry(sets=4, ways=3, banks=2, wg_bits=10),
    "more_ways_than_tiles": TrackerGeometry(sets=4, ways=12, banks=1, wf_bits=2, wg_bits=10),
    "slots_are_all_ids": TrackerGeometry(sets=4, ways=16, banks=1, wf_bits=1, wg_bits=5),
}


class Window:
    """A window, its model fed from what is seen at the ports, and the errors of both."""

    def __init__(self, name, seed, **programmed):
        geometry = Geometry(tracker=GEOMETRIES[name])
        self.tracker = geometry.tracker
        self.dut = DispatchWindow(geometry)
        self.model = DispatchWindowModel(geometry.tracker, **programmed)
        self.bench = StreamBench(self.dut, seed)
        self.errors, self.expected_errors, self.started = [], [], []
        self.bench.process(self._watch)

    def _note(self, code, wg):
        if code:
            self.expected_errors.append((code, wg))

    async def _watch(self, ctx):
        dut, model = self.dut, self.model
        ctx.set(dut.window, model.window)
        ctx.set(dut.shift, model.shift)
        ctx.set(dut.enable_downstream, model.enable_downstream)
        while True:
            model.downstream_head = ctx.get(dut.downstream_head)
            _, _, valid, ready, item, completion, head, error, restart, reset = await ctx.tick().sample(
                dut.dispatch.valid, dut.dispatch.ready, dut.dispatch.payload, dut.completion, dut.head, dut.error,
                dut.restart, self.bench.reset)
            assert head <= model.head
            if error.valid:
                self.errors.append((ErrorCode(error.code).name, error.details.wg))
            if restart or reset:
                model.restart()
                self.started.clear()
                continue
            if ready:
                assert model.following < model.limit
            if valid and ready:
                code = model.dispatched(item.wg, item.tiles)
                self._note(code, item.wg)
                if not code:
                    self.started.append(item.wg)
            if completion.valid:
                self._note(model.completed(completion.wg), completion.wg)

    async def complete(self, ctx, wg):
        ctx.set(self.dut.completion, {"valid": 1, "wg": wg})
        await ctx.tick()
        ctx.set(self.dut.completion, {"valid": 0, "wg": wg})

    def add_completer(self, rng, idle):
        """Completes tiles of started workgroups in random order."""

        async def run(ctx):
            while True:
                left = [wg for wg, tiles in self.model.left.items() if tiles]
                if left and rng.random() >= idle:
                    # The oldest often, or head would hardly move.
                    await self.complete(ctx, min(left) if rng.random() < 0.5 else rng.choice(left))
                else:
                    await ctx.tick()

        self.bench.process(run)

    def settled(self):
        return not self.model.left


def tiles_of(rng, tracker, count):
    return [{"wg": wg, "tiles": rng.choice((0, 1, 1 << tracker.wf_bits, (2 << tracker.wf_bits) - 1))}
            for wg in range(count)]


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("window, idle_in, idle_out", [(1, 0.1, 0.1), (3, 0.0, 0.0), (10**6, 0.2, 0.1)])
def test_random_workgroups(name, window, idle_in, idle_out):
    tracker = GEOMETRIES[name]
    test = Window(name, seed=window % 97, window=min(window, (2 << tracker.wg_bits) - 1))
    count = min(150, 1 << tracker.wg_bits)
    test.bench.source(test.dut.dispatch, tiles_of(test.bench.random, tracker, count), idle_in)
    test.add_completer(test.bench.random, idle_out)
    test.bench.run(until=test.settled, cycles=9000, settle=count + 4)
    assert test.started == list(range(count)) and test.model.head == count
    assert not test.errors and not test.expected_errors


@pytest.mark.parametrize("shift", [0, 2, 7])
def test_downstream_holds_back(shift):
    test = Window("few_ways", seed=shift, window=4, shift=shift, enable_downstream=True)
    rng = test.bench.random
    test.bench.source(test.dut.dispatch, tiles_of(rng, test.tracker, 60))
    test.add_completer(rng, 0.2)

    async def downstream(ctx):
        assert ctx.get(test.dut.downstream_head) == 0
        await ctx.tick().repeat(60)
        assert len(test.started) == max(0, 4 - shift)
        for head in range(1, 60 + shift):
            ctx.set(test.dut.downstream_head, head)
            await ctx.tick().repeat(rng.randrange(1, 8))

    test.bench.process(downstream)
    test.bench.run(until=test.settled, cycles=3000, settle=70)
    assert len(test.started) == 60 and not test.errors


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_head_of_the_kernel_before_lets_nothing_start(name):
    """The neighbour restarts later, and its head is late on the link: the sweep has long ended."""
    test = Window(name, seed=1, window=2, enable_downstream=True)
    dut = test.dut

    async def drive(ctx):
        ctx.set(dut.downstream_head, 32)  # of the kernel before
        ctx.set(dut.next_epoch, 1)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert ctx.get(dut.epoch) == 1 and ctx.get(dut.head) == 0
        ctx.set(dut.dispatch.valid, 1)
        for _ in range(2 * test.tracker.window_slots + 20):
            await ctx.tick()
            assert not ctx.get(dut.dispatch.ready)
        ctx.set(dut.dispatch.valid, 0)
        ctx.set(dut.downstream_epoch, 1)
        ctx.set(dut.downstream_head, 0)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.dispatch.ready)

    test.bench.process(drive, background=False)
    test.bench.run(cycles=2000)


def test_full_rate():
    test = Window("paper", seed=1, window=256)
    test.bench.source(test.dut.dispatch, [{"wg": wg, "tiles": 0} for wg in range(600)])
    test.bench.run(cycles=256 + 600 + 8, settle=4)
    assert test.model.head == 600


@pytest.mark.parametrize("cut", ["restart", "reset"])
def test_a_new_kernel_starts_clean(cut):
    test = Window("few_ways", seed=2, window=4)
    rng, dut = random.Random(2), test.dut

    async def drive(ctx):
        for _ in range(4):
            # Slots are left with completed tiles of the same workgroups: they must not count in the next kernel.
            await send(ctx, dut.dispatch, [{"wg": wg, "tiles": 2} for wg in range(4)], rng)
            for wg in range(1, 4):
                await test.complete(ctx, wg)
            await test.complete(ctx, 0)
            ctx.set(dut.completion, {"valid": 1, "wg": 0})  # beside the cut: belongs to the old kernel
            if cut == "reset":
                await test.bench.pulse_reset(ctx)
            else:
                ctx.set(dut.restart, 1)
                await ctx.tick()
                ctx.set(dut.restart, 0)
            ctx.set(dut.completion, {"valid": 0, "wg": 0})
            assert ctx.get(dut.head) == 0 and not ctx.get(dut.dispatch.ready)
        await send(ctx, dut.dispatch, [{"wg": wg, "tiles": 2} for wg in range(4)], rng)
        for wg in (3, 2, 1, 0, 3, 2, 1):
            await test.complete(ctx, wg)
        await ctx.tick().repeat(8)
        assert ctx.get(dut.head) == 0 and ctx.get(dut.busy)
        await test.complete(ctx, 0)
        await ctx.tick().repeat(8)
        assert ctx.get(dut.head) == 4 and not ctx.get(dut.busy)

    test.bench.process(drive, background=False)
    test.bench.run(cycles=400)
    assert not test.errors


def test_errors_are_reported_and_ignored():
    test = Window("few_ways", seed=3, window=4)
    rng, dut = random.Random(3), test.dut

    async def drive(ctx):
        await send(ctx, dut.dispatch, [{"wg": 1, "tiles": 1}, {"wg": 0, "tiles": 1}, {"wg": 0, "tiles": 1},
                                       {"wg": 1, "tiles": 2}, {"wg": 2, "tiles": 0}], rng)
        for wg in (2, 3, 0, 0, 0, 1, 1, 1, 1, 1023):
            await test.complete(ctx, wg)
        await ctx.tick().repeat(6)
        assert ctx.get(dut.head) == 3
        # Workgroups that share a slot with an open one: 1 is finished, 9 has not started.
        await send(ctx, dut.dispatch, [{"wg": wg, "tiles": 3} for wg in range(3, 6)], rng)
        for wg in (1, 9, 5, 4, 4, 4, 3, 3, 3, 5, 5):
            await test.complete(ctx, wg)
        await ctx.tick().repeat(6)
        assert ctx.get(dut.head) == 6

    test.bench.process(drive, background=False)
    test.bench.run(cycles=200, settle=4)
    assert test.errors == test.expected_errors
    assert [code for code, _ in test.errors] == ["DISPATCH_ORDER"] * 2 + ["COMPLETION_UNEXPECTED"] * 9


def test_no_more_workgroups_than_ids():
    test = Window("slots_are_all_ids", seed=4, window=100)
    test.bench.source(test.dut.dispatch, [{"wg": wg % 32, "tiles": 0} for wg in range(33)])
    test.bench.run(cycles=200, settle=40)
    assert test.model.head == 32 and test.errors == [("DISPATCH_ORDER", 0)]
