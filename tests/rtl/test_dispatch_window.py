"""DispatchWindow against its model: what goes and when, how head advances, peers, restarts, errors."""

import random
from collections import deque

import pytest

from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import ErrorCode
from t3sim.rtl.window.dispatch_window import DispatchWindow
from t3sim.testbenches.dispatcher import QUEUE, lawful_order
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.dispatch_window import DispatchWindowModel, Request
from tests.support.stream_bench import StreamBench, as_dict, once, send
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "paper": TrackerGeometry(),
    "one_set": TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=8),
    "few_ways": TrackerGeometry(sets=4, ways=3, banks=2, wg_bits=10),
    "more_ways_than_tiles": TrackerGeometry(sets=4, ways=12, banks=1, wf_bits=2, wg_bits=10),
    "slots_are_all_ids": TrackerGeometry(sets=4, ways=16, banks=1, wf_bits=1, wg_bits=5),
}


class Window:
    """A window, its model fed from what is seen at the ports, and the errors of both.

    `rooms`: probability that there is room for a workgroup.
    """

    def __init__(self, name, seed, window, peers=1, rooms=1.0):
        geometry = Geometry(tracker=GEOMETRIES[name], dma=DmaGeometry(peers=peers))
        self.tracker, self.rooms = geometry.tracker, rooms
        self.dut = once(DispatchWindow, geometry)
        self.model = DispatchWindowModel(geometry.tracker, window, [0] * peers, [0] * peers)
        self.bench = StreamBench(self.dut, seed)
        self.errors, self.expected_errors, self.started, self.queue = [], [], [], deque()
        self.bench.process(self._watch)
        self.admitted = self.bench.sink(self.dut.admissions, idle=0.4,
                                        on_transfer=lambda item: self.model.admitted(Update(**item)))

    def _note(self, code, wg):
        if code:
            self.expected_errors.append((code, wg))

    def _go(self, request):
        assert self.queue.popleft() == request
        self._note(self.model.goes(request), request.id)

    async def _watch(self, ctx):
        dut, model, rng = self.dut, self.model, random.Random(self.bench.random.random())
        ctx.set(dut.window, model.window)
        head = None
        while True:
            model.peer_heads = [ctx.get(port) for port in dut.peer_heads]
            model.peer_epochs = [ctx.get(port) for port in dut.peer_epochs]
            start = rng.random() < self.rooms
            ctx.set(dut.start, start)
            blocked = ctx.get(dut.blocked)
            _, _, valid, ready, item, grant, completion, foreign, head, error, restart, reset = await ctx.tick().sample(
                dut.dispatch.valid, dut.dispatch.ready, dut.dispatch.payload, dut.grant, dut.completion, dut.foreign,
                dut.head, dut.error, dut.restart, self.bench.reset)
            assert head <= model.head
            if error.valid:
                self.errors.append((ErrorCode(error.code).name, error.details.wg))
            if restart or reset:
                model.restart()
                self.queue.clear()
                self.started.clear()
                continue
            first = self.queue[0] if self.queue else None
            if grant.valid:
                assert first and first.starts and model.may_go(first) and grant.id == first.id and not blocked
                if start:
                    self._go(first)
                    self.started.append(first.id)
            elif first and not blocked:  # goes by itself
                assert not first.starts
                self._go(first)
            if valid and ready:
                self.queue.append(Request(**as_dict(item)))
            assert len(self.queue) <= QUEUE
            if completion.valid:
                if completion.wg in model.left:
                    assert foreign == model.foreign(completion.wg, completion.wf)
                self._note(model.completed(completion.wg, completion.wf), completion.wg)

    async def complete(self, ctx, wg, wf=0):
        ctx.set(self.dut.upcoming, wg)
        await ctx.tick()
        ctx.set(self.dut.completion, {"valid": 1, "wg": wg, "wf": wf})
        await ctx.tick()
        ctx.set(self.dut.completion, {"valid": 0, "wg": wg})

    def add_completer(self, rng, idle):
        """Completes tiles of open ids in random order."""

        async def run(ctx):
            upcoming = None
            while True:
                wg, left = upcoming, dict(self.model.left)
                if wg in left:
                    left[wg] -= 1
                ctx.set(self.dut.completion, {"valid": wg in left, "wg": wg or 0})
                able = [other for other, tiles in left.items() if tiles]
                # The oldest often, or head would hardly move.
                upcoming = (min(able) if rng.random() < 0.5 else rng.choice(able)) if (
                    able and rng.random() >= idle) else None
                ctx.set(self.dut.upcoming, upcoming or 0)
                await ctx.tick()

        self.bench.process(run)

    def settled(self):
        return self.model.idle and not self.queue


def asks(*requests):
    return [request._asdict() for request in requests]


def drawn(rng, tracker, ids):
    """Requests for these ids, whose workgroups may start or not, and some that open none."""
    for one in ids:
        tiles = rng.choice((0, 1, 1 << tracker.wf_bits, (2 << tracker.wf_bits) - 1))
        yield Request(one, tiles, starts=int(rng.random() < 0.8), region=rng.randrange(16),
                      last_region=rng.randrange(16))
        if rng.random() < 0.2:
            yield Request(rng.getrandbits(tracker.wg_bits), opens=0, starts=rng.randrange(2))


@pytest.mark.parametrize("name", on_one(GEOMETRIES, "few_ways"))
@pytest.mark.parametrize("window, idle_in, idle_out, rooms", [
    (1, 0.1, 0.1, 1.0), (3, 0.0, 0.0, 0.5), (10**6, 0.2, 0.1, 0.9), (4, 0.0, 0.1, 0.2)])
@pytest.mark.parametrize("ordered", [True, False])
def test_random_requests(name, window, idle_in, idle_out, rooms, ordered):
    """Windows of 1 to all slots, up to 3 peers, ids in any order: requests go neither early nor late."""
    tracker = GEOMETRIES[name]
    test = Window(name, seed=window % 97, window=min(window, (2 << tracker.wg_bits) - 1), rooms=rooms)
    rng, count = test.bench.random, min(150, 1 << tracker.wg_bits)
    ids = range(count) if ordered else lawful_order(rng, count, min(window, tracker.window_slots))
    requests = list(drawn(rng, tracker, ids))
    test.bench.source(test.dut.dispatch, asks(*requests), idle_in)
    test.add_completer(rng, idle_out)
    test.bench.run(until=test.settled, cycles=9000, settle=count + 4)
    assert test.started == [request.id for request in requests if request.starts] and test.model.head == count
    assert not test.errors and not test.expected_errors


@pytest.mark.parametrize("there", [0, 2, 7])
def test_a_peer_holds_back(there):
    """The peer's head stays still: exactly as many workgroups start as fit into its window."""
    test = Window("few_ways", seed=there, window=4)
    rng = test.bench.random
    test.bench.source(test.dut.dispatch, asks(*(Request(q, rng.randrange(3), q + there, reaches=1) for q in range(60))))
    test.add_completer(rng, 0.2)

    async def peer(ctx):
        await ctx.tick().repeat(60)
        assert len(test.started) == max(0, 4 - there)
        for head in range(1, 60 + there):
            ctx.set(test.dut.peer_heads[0], head)
            await ctx.tick().repeat(rng.randrange(1, 8))

    test.bench.process(peer)
    test.bench.run(until=test.settled, cycles=3000, settle=70)
    assert len(test.started) == 60 and not test.errors


def test_each_request_waits_for_its_own_peer():
    """One of three peers stands still: requests for it wait, and all requests behind them."""
    test = Window("few_ways", seed=3, window=4, peers=3)
    dut = test.dut

    async def drive(ctx):
        for peer, head in enumerate((40, 2, 40)):
            ctx.set(dut.peer_heads[peer], head)
        far = [Request(q, 0, 30 + q, peer, reaches=1) for q, peer in enumerate((0, 2, 2, 0))]
        near = [Request(4, 0, 5, 1, reaches=1), Request(5, 0, 6, 1, reaches=1), Request(6)]
        await send(ctx, dut.dispatch, asks(*far, *near), random.Random(3))
        await ctx.tick().repeat(20)
        assert test.started == [0, 1, 2, 3, 4] and ctx.get(dut.blocked)
        assert (ctx.get(dut.waits_here), ctx.get(dut.waits_there)) == (0, 1)
        ctx.set(dut.peer_heads[0], 60)
        ctx.set(dut.peer_heads[2], 60)
        await ctx.tick().repeat(20)
        assert test.started == [0, 1, 2, 3, 4]
        ctx.set(dut.peer_heads[1], 3)
        await ctx.tick().repeat(20)
        assert test.started == list(range(7)) and not ctx.get(dut.blocked)

    test.bench.process(drive, background=False)
    test.bench.run(cycles=300)


def test_ids_are_opened_in_any_order_and_the_head_waits_for_the_smallest():
    """Ids 3, 1, 2, 0: checks which start and where the head is."""
    test = Window("few_ways", seed=5, window=4)
    dut = test.dut

    async def drive(ctx):
        await send(ctx, dut.dispatch, asks(Request(3, 0), Request(1, 1), Request(2, 1, starts=0), Request(4, 0),
                                           Request(0, 1)), random.Random(5))
        await ctx.tick().repeat(12)
        assert test.started == [3, 1] and ctx.get(dut.head) == 0 and ctx.get(dut.blocked), "4 is outside the window"
        assert (ctx.get(dut.waits_here), ctx.get(dut.waits_there)) == (1, 0)

    test.bench.process(drive, background=False)
    test.bench.run(cycles=300)

    test = Window("few_ways", seed=5, window=4)
    dut = test.dut

    async def drive_lawfully(ctx):
        await send(ctx, dut.dispatch, asks(Request(3, 0), Request(1, 1), Request(2, 1, starts=0), Request(0, 1),
                                           Request(4, 0)), random.Random(5))
        for wg, head in ((2, 0), (0, 1), (1, 5)):
            await test.complete(ctx, wg)
            await ctx.tick().repeat(10)
            assert ctx.get(dut.head) == head
        assert test.started == [3, 1, 0, 4] and not ctx.get(dut.busy)

    test.bench.process(drive_lawfully, background=False)
    test.bench.run(cycles=300)
    assert not test.errors


@pytest.mark.parametrize("name", on_one(GEOMETRIES, "few_ways"))
def test_a_head_of_the_kernel_before_lets_nothing_start(name):
    """The neighbour restarts late, long after the sweep; no workgroup starts before its new head arrives."""
    test = Window(name, seed=1, window=2, rooms=0.0)
    dut = test.dut

    async def drive(ctx):
        ctx.set(dut.peer_heads[0], 32)  # of the kernel before
        ctx.set(dut.next_epoch, 1)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        test.model.epoch = 1
        assert ctx.get(dut.epoch) == 1 and ctx.get(dut.head) == 0
        await send(ctx, dut.dispatch, asks(Request(0, reaches=1)), random.Random(1))
        for _ in range(2 * test.tracker.window_slots + 20):
            await ctx.tick()
            assert not ctx.get(dut.grant.valid) and ctx.get(dut.blocked)
        assert (ctx.get(dut.waits_here), ctx.get(dut.waits_there)) == (0, 1)
        ctx.set(dut.peer_epochs[0], 1)
        ctx.set(dut.peer_heads[0], 0)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.grant.valid)

    test.bench.process(drive, background=False)
    test.bench.run(cycles=2000)


def test_full_rate():
    """One empty workgroup starts per cycle."""
    test = Window("paper", seed=1, window=256)
    test.bench.source(test.dut.dispatch, asks(*(Request(wg) for wg in range(600))))
    test.bench.run(cycles=256 + 600 + 8, settle=4)
    assert test.model.head == 600


@pytest.mark.parametrize("cut", ["restart", "reset"])
def test_a_new_kernel_starts_clean(cut):
    """Restart after any number of completions, with requests queued: as new."""
    test = Window("few_ways", seed=2, window=4)
    rng, dut = random.Random(2), test.dut
    four = asks(*(Request(wg, 2) for wg in range(4)))

    async def drive(ctx):
        for _ in range(4):
            # Slots are left with completed tiles of the same ids: they must not count in the next kernel; nor must
            # requests that wait, or one that is taken beside the cut.
            await send(ctx, dut.dispatch, [*four, *asks(Request(4, 1), Request(5, 1))], rng)
            for wg in range(1, 4):
                await test.complete(ctx, wg)
            await test.complete(ctx, 0)
            ctx.set(dut.completion, {"valid": 1, "wg": 0})  # beside the cut: belongs to the old kernel
            ctx.set(dut.dispatch.payload, Request(1, 3)._asdict())
            ctx.set(dut.dispatch.valid, 1)
            if cut == "reset":
                await test.bench.pulse_reset(ctx)
            else:
                ctx.set(dut.restart, 1)
                await ctx.tick()
                ctx.set(dut.restart, 0)
            ctx.set(dut.completion, {"valid": 0, "wg": 0})
            ctx.set(dut.dispatch.valid, 0)
            assert ctx.get(dut.head) == 0 and not ctx.get(dut.grant.valid)
        await send(ctx, dut.dispatch, four, rng)
        await ctx.tick().repeat(test.tracker.window_slots + 8)
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


def test_a_restart_closes_the_window_at_once():
    """An arrival in the next cycle belongs to no id, neither of the old kernel nor of the new one."""
    test = Window("few_ways", seed=2, window=4)
    dut = test.dut

    async def drive(ctx):
        await send(ctx, dut.dispatch, asks(*(Request(wg, 0) for wg in range(3))), random.Random(2))
        await ctx.tick().repeat(8)
        assert (ctx.get(dut.head), ctx.get(dut.limit)) == (3, 7)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert (ctx.get(dut.head), ctx.get(dut.limit)) == (0, 0)
        await ctx.tick()
        assert (ctx.get(dut.head), ctx.get(dut.limit)) == (0, 4)

    test.bench.process(drive, background=False)
    test.bench.run(cycles=100)


@pytest.mark.parametrize("name", ["one_set", "few_ways"])
@pytest.mark.parametrize("wf", [0, 7])
def test_a_completion_just_after_a_restart_is_of_no_open_id(name, wf):
    """Even though its id was open until then and opens again as soon as possible."""
    test = Window(name, seed=2, window=1)
    dut = test.dut

    async def drive(ctx):
        await send(ctx, dut.dispatch, asks(Request(0, 2)), random.Random(2))
        ctx.set(dut.upcoming, 0)
        await ctx.tick().repeat(8)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        ctx.set(dut.completion, {"valid": 1, "wg": 0, "wf": wf})
        assert not ctx.get(dut.foreign)
        await ctx.tick()
        ctx.set(dut.completion, {"valid": 0, "wg": 0})
        await send(ctx, dut.dispatch, asks(Request(0, 2)), random.Random(2))
        await ctx.tick().repeat(test.tracker.window_slots + 8)
        for head in (0, 1):
            await test.complete(ctx, 0)
            await ctx.tick().repeat(4)
            assert ctx.get(dut.head) == head

    test.bench.process(drive, background=False)
    test.bench.run(cycles=400, settle=4)
    assert test.errors == test.expected_errors == [("COMPLETION_UNEXPECTED", 0)]


@pytest.mark.parametrize("again", [1, 5, 8])
def test_a_restart_during_the_sweep_begins_it_anew(again):
    """1, 5 or 8 cycles after the first restart: no workgroup starts before a whole sweep has passed."""
    test = Window("more_ways_than_tiles", seed=2, window=4)
    dut, slots = test.dut, test.tracker.window_slots

    async def drive(ctx):
        await ctx.tick().repeat(slots + 8)
        for cycle in range(again + 1):
            ctx.set(dut.restart, cycle in (0, again))
            await ctx.tick()
        ctx.set(dut.restart, 0)
        ctx.set(dut.dispatch.payload, Request(0, 1)._asdict())
        ctx.set(dut.dispatch.valid, 1)
        await ctx.tick()
        ctx.set(dut.dispatch.valid, 0)
        for _ in range(slots - 1):
            assert not ctx.get(dut.grant.valid)
            await ctx.tick()
        await ctx.tick().repeat(8)
        assert test.started == [0]

    test.bench.process(drive, background=False)
    test.bench.run(cycles=400)


def test_errors_are_reported_and_ignored():
    """Ids opened twice, and completions of ids that are not open, among correct ones."""
    test = Window("few_ways", seed=3, window=4)
    rng, dut = random.Random(3), test.dut

    async def drive(ctx):
        await send(ctx, dut.dispatch, asks(Request(1, 2), Request(0, 1), Request(0, 3), Request(1, 1),
                                           Request(2, 0)), rng)
        await ctx.tick().repeat(8)
        for wg in (2, 3, 0, 0, 0, 1, 1, 1, 1, 1023):
            await test.complete(ctx, wg)
        await ctx.tick().repeat(6)
        assert ctx.get(dut.head) == 3
        # Ids that share a slot with an open one: 1 is finished, 9 has not been opened. 2 is finished, and opened again.
        await send(ctx, dut.dispatch, asks(*(Request(wg, 3) for wg in (3, 4, 2, 5))), rng)
        await ctx.tick().repeat(4)
        for wg in (1, 9, 2, 5, 4, 4, 4, 3, 3, 3, 5, 5):
            await test.complete(ctx, wg)
        await ctx.tick().repeat(6)
        assert ctx.get(dut.head) == 6

    test.bench.process(drive, background=False)
    test.bench.run(cycles=200, settle=4)
    assert test.errors == test.expected_errors
    assert [code for code, _ in test.errors] == (
        ["ID_REUSED"] * 2 + ["COMPLETION_UNEXPECTED"] * 7 + ["ID_REUSED"] + ["COMPLETION_UNEXPECTED"] * 3)
    assert test.started == [1, 0, 0, 1, 2, 3, 4, 2, 5], "whose id is wrong starts all the same"


@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_wavefront_that_the_workgroup_does_not_have_completes_nothing(tiles):
    """Every wavefront, with workgroups of 1, 2 and 7 tiles; its completion is reported as foreign."""
    test = Window("few_ways", seed=3, window=4)
    dut = test.dut

    async def drive(ctx):
        await send(ctx, dut.dispatch, asks(Request(0, tiles)), random.Random(3))
        await ctx.tick().repeat(8)
        for wf in reversed(range(8)):
            assert ctx.get(dut.head) == 0
            await test.complete(ctx, 0, wf)
            await ctx.tick().repeat(4)
        assert ctx.get(dut.head) == 1

    test.bench.process(drive, background=False)
    test.bench.run(cycles=200, settle=4)
    assert test.errors == test.expected_errors == (8 - tiles) * [("COMPLETION_UNEXPECTED", 0)]


def test_no_more_workgroups_than_ids():
    """After the last id the window stops; ids do not wrap."""
    test = Window("slots_are_all_ids", seed=4, window=100)
    test.bench.source(test.dut.dispatch, asks(*(Request(wg % 32) for wg in range(33))))
    test.bench.run(cycles=200, settle=40)
    assert test.model.head == 32 and test.errors == [("ID_REUSED", 0)]
