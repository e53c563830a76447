"""Memory channel against its scoreboard, with a DRAM that reorders and retires late."""

import random
from collections import Counter

import pytest

from t3sim.rtl.arbiter import OVERTAKEN_AT, POLICIES, THRESHOLD_NONE
from t3sim.rtl.channel.memory_channel import MemoryChannel
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.testbenches.reference.memory_channel import MemoryChannelError, MemoryChannelModel, is_tracked
from t3sim.testbenches.reference.order_guard import bucket_of
from tests.support.stream_bench import as_dict, once, simulation

pytestmark = pytest.mark.builds_rtl

READ, STORE, UPDATE = range(3)
LOCAL, REMOTE, DMA = range(3)
MCA, RING_AWARE = (list(POLICIES).index(name) for name in ("mca", "ring_aware"))


def request(address=0, *, op=STORE, region=0, wg=0, wf=0, source=LOCAL, size=64):
    return {"address": address, "bytes": size, "op": op, "source": source, "region": region, "wf": wf, "wg": wg}


class Bench:
    """One cycle at a time: offers, takes, keeps the DRAM queue, and feeds the scoreboard."""

    def __init__(self, ctx, dut, reset, geometry):
        self.ctx, self.dut, self.reset, self.geometry = ctx, dut, reset, geometry
        self.cycle = 0
        self.order = []  # (cycle, stream) of the commands shown
        self.configure(policy=0, threshold=THRESHOLD_NONE, starvation_limit=0, drain=0, ring_late=0)
        self._start()

    def _start(self):
        self.model = MemoryChannelModel(self.geometry)
        self.offers = {"compute": [], "inbound": [], "dma": []}
        self.holding = dict.fromkeys(self.offers)  # offered and not yet accepted: must stay
        self.queue = []  # commands in the DRAM queue
        self.pending = []  # tracked writes that left the queue and are not retired yet: buckets
        self._command = self._update = None
        self._forgot = False
        self._swept = self.cycle + self.geometry.channel.guard_buckets

    def configure(self, **values):
        for name, value in values.items():
            self.ctx.set(getattr(self.dut, name), value)

    async def step(self, offer=None, dram_ready=True, updates_ready=True, leave=None, retire=None, occupancy=None,
                   forget=False):
        """offer: streams that may start an offer. leave: command that leaves the queue. retire: bucket."""
        ctx, dut = self.ctx, self.dut
        for stream, items in self.offers.items():
            port = getattr(dut, stream)
            if self.holding[stream] is None and items and (offer is None or stream in offer):
                self.holding[stream] = items.pop(0)
                ctx.set(port.payload, self.holding[stream])
            ctx.set(port.valid, self.holding[stream] is not None)
        dram_ready = dram_ready and len(self.queue) < self.geometry.channel.queue_entries
        ctx.set(dut.dram.ready, dram_ready)
        ctx.set(dut.updates.ready, updates_ready)
        ctx.set(dut.occupancy, len(self.queue) if occupancy is None else occupancy)
        ctx.set(dut.retirement, {"valid": retire is not None, "bucket": retire or 0})
        ctx.set(dut.forget, forget)

        accepted = {stream: item for stream, item in self.holding.items()
                    if item is not None and ctx.get(getattr(dut, stream).ready)}
        command = as_dict(ctx.get(dut.dram.payload)) if ctx.get(dut.dram.valid) else None
        update = as_dict(ctx.get(dut.updates.payload)) if ctx.get(dut.updates.valid) else None
        assert self._command in (None, command), "dram changed before it was taken"
        assert self._update in (None, update), "updates changed before it was taken"
        shown = command if self._command is None else None
        read = self._check_what_is_inside(command, shown)
        stalled = ctx.get(dut.guard_stall)
        stream = self.model.cycle(accepted, shown, update if updates_ready else None, retire, forget)
        assert stalled == (read is not None and self.cycle >= self._swept and self.model.guard.blocked(read))
        if stream is not None:
            self.order.append((self.cycle, stream))

        for name in accepted:
            self.holding[name] = None
        if leave is not None:
            self.queue.remove(leave)
            if is_tracked(leave["request"]):
                self.pending.append(leave["bucket"])
        if retire is not None:
            self.pending.remove(retire)
        if command is not None and dram_ready:
            self.queue.append(command)
            command = None
        self._command = command
        self._update = None if updates_ready or forget else update
        self._forgot = forget
        await ctx.tick()
        self.cycle += 1
        return stream

    def _check_what_is_inside(self, command, shown):
        """`busy` and `holds` say it to the cycle; return the address of the next DMA read, if there is one."""
        queued = {stream: list(items) for stream, items in self.model.queued.items()}
        reports = bool(self.model.accesses)
        if shown is not None:
            read = shown["request"]["op"] == READ
            queued[("dma" if read else "inbound") if shown["communication"] else "compute"].pop(0)
            reports |= is_tracked(shown["request"]) and not self._forgot
        tracked = any(is_tracked(item) for items in queued.values() for item in items)
        watched = command is not None and (is_tracked(command["request"]) or (
            command["request"]["op"] == READ and command["request"]["source"] == DMA))
        assert self.ctx.get(self.dut.holds) == (tracked or watched or reports or bool(queued["dma"]))
        assert self.ctx.get(self.dut.busy) == (any(queued.values()) or command is not None or reports
                                               or self.cycle < self._swept)
        return queued["dma"][0]["address"] if queued["dma"] else None

    async def pulse_reset(self):
        """Resets device and DRAM together; what was in flight is gone."""
        self.ctx.set(self.reset, 1)
        for stream in self.offers:
            self.ctx.set(getattr(self.dut, stream).valid, 0)
        self.ctx.set(self.dut.retirement, {"valid": 0, "bucket": 0})
        await self.ctx.tick()
        self.ctx.set(self.reset, 0)
        self._start()

    async def sweep(self):
        for _ in range(self.geometry.channel.guard_buckets):
            assert self.ctx.get(self.dut.busy)
            await self.step()
        assert not self.ctx.get(self.dut.busy)


def simulate(testbench, geometry=None):
    geometry = geometry or Geometry()
    dut = once(MemoryChannel, geometry)
    simulated = simulation(dut)

    async def run(ctx):
        await testbench(Bench(ctx, dut, simulated.reset, geometry))

    simulated.add_testbench(run)
    simulated.run()


def traffic(rng, stream, count, first):
    """Few lines from an address on, so that DMA reads meet writes; runs of the same tile, so that accesses merge."""
    lines, items, tracker = [first + line * 0x40 for line in range(24)], [], Geometry().tracker
    ids = {name: [first := rng.getrandbits(bits), first ^ 1 << bits - 1, rng.getrandbits(bits)] for name, bits in (
        ("wg", tracker.wg_bits), ("wf", tracker.wf_bits), ("region", Geometry().dma.region_bits))}
    ids["region"].append(0)
    while len(items) < count:
        tile = {name: rng.choice(some) for name, some in ids.items()}
        for _ in range(rng.choice((1, 1, 2, 6))):
            op = READ if stream == "dma" else rng.choice((STORE, UPDATE))
            source = {"compute": LOCAL, "inbound": rng.choice((REMOTE, DMA)), "dma": DMA}[stream]
            if stream == "compute" and rng.random() < 0.3:
                op = READ
            items.append(request(rng.choice(lines), op=op, source=source, size=rng.choice((4, 32, 64)), **tile))
    return items[:count]


@pytest.mark.parametrize("seed, channel, policy", [
    (1, ChannelGeometry(), "round_robin"),
    (2, ChannelGeometry(), "mca"),
    (3, ChannelGeometry(guard_buckets=1, dma_fifo=1, queue_entries=4), "compute_first"),
    (4, ChannelGeometry(guard_buckets=256, dma_fifo=5, channels=1, queue_entries=127), "mca"),
    (6, ChannelGeometry(), "ring_aware"),
    (5, ChannelGeometry(guard_buckets=4, dma_fifo=64, coalescer_timeout_cycles=1), "round_robin"),
])
def test_random_traffic(seed, channel, policy):
    """Every policy, few lines, changes of configuration and `forget`: nothing lost, reads after tracked writes."""
    rng = random.Random(seed)
    count = 150
    seen = Counter()

    async def testbench(bench):
        for round_ in range(3):
            if round_:
                await bench.pulse_reset()
            first = rng.getrandbits(Geometry().tracker.address_bits - 12) << 12
            for stream, items in bench.offers.items():
                items += traffic(rng, stream, count, first)
            limit = bench.cycle + 12_000
            while bench.offers["compute"] or bench.model.queued["compute"] or bench.ctx.get(bench.dut.busy) \
                    or any(bench.offers.values()) or any(bench.holding.values()):
                assert bench.cycle < limit, "nothing more happens"
                if bench.cycle % 64 == 0:
                    rates = {name: rng.choice((0.05, 0.5, 1.0)) for name in (*bench.offers, "dram", "updates", "leave",
                                                                             "retire")}
                    bench.configure(policy=list(POLICIES).index(policy), drain=int(rng.random() < 0.1),
                                    ring_late=rng.randrange(2),
                                    threshold=rng.choice((0, 3, 10, THRESHOLD_NONE)), starvation_limit=40)
                if round_ == 1 and bench.model.shown > count:
                    break  # reset in flight
                chance = {name: rng.random() < rate for name, rate in rates.items()}
                leave = rng.choice(bench.queue) if bench.queue and chance["leave"] else None
                retire = rng.choice(bench.pending) if bench.pending and chance["retire"] else None
                seen["guard_stall"] += bench.ctx.get(bench.dut.guard_stall)
                seen["merged"] += bench.ctx.get(bench.dut.merged)
                await bench.step({name for name in bench.offers if chance[name]}, chance["dram"], chance["updates"],
                                 leave, retire, forget=round_ == 2 and rng.random() < 0.02)
            else:
                bench.model.check_empty()
                assert bench.model.shown == 3 * count

    simulate(testbench, Geometry(channel=channel))
    assert seen["guard_stall"] and seen["merged"]


@pytest.mark.parametrize("streams", [["compute"], ["inbound"], ["compute", "inbound"], ["dma"],
                                     ["compute", "inbound", "dma"]], ids="+".join)
def test_one_request_per_cycle(streams):
    """From each stream and from all; tracked accesses that never join are the hardest case."""
    async def testbench(bench):
        await bench.sweep()
        for stream in streams:
            for wg in range(200):
                item = request(wg * 64, op=READ if stream == "dma" else UPDATE, region=1, wg=wg)
                bench.offers[stream].append({**item, "address": item["address"] | 1 << 30} if stream == "dma" else item)
        start = bench.cycle
        for _ in range(100):
            await bench.step(leave=bench.queue[0] if bench.queue else None,
                             retire=bench.pending[0] if bench.pending else None)
        cycles = [cycle - start for cycle, _ in bench.order]
        assert cycles == list(range(2, 100)), "two cycles to the DRAM queue, then one per cycle"
        assert {stream for _, stream in bench.order} == set(streams)

    # More buckets than lines: reads and writes must not meet here.
    simulate(testbench, Geometry(channel=ChannelGeometry(channels=1, guard_buckets=256)))


def test_read_waits_for_the_retirement_and_inbound_passes_it():
    """A DMA read stays blocked until the write's retirement while 20 arrivals pass."""
    async def testbench(bench):
        await bench.sweep()
        bench.configure(drain=1, policy=MCA)
        line = 0x4000
        bench.offers["compute"] = [request(line, op=UPDATE, region=1)]
        while not bench.pending:
            await bench.step(leave=bench.queue[0] if bench.queue else None)
        bench.offers["dma"] = [request(line, op=READ, region=1, source=DMA), request(0x8000, op=READ, source=DMA)]
        bench.offers["inbound"] = [request(0x100 * i, region=2, wg=i, source=REMOTE) for i in range(20)]
        for _ in range(30):
            await bench.step()
        assert [stream for _, stream in bench.order] == ["compute"] + ["inbound"] * 20
        assert bench.ctx.get(bench.dut.guard_stall)
        retired = bench.cycle
        await bench.step(retire=bucket_of(line, bench.geometry))
        assert not bench.ctx.get(bench.dut.guard_stall)
        for _ in range(5):
            await bench.step()
        assert bench.order[21:] == [(retired + 2, "dma"), (retired + 3, "dma")]

    simulate(testbench, Geometry(channel=ChannelGeometry(channels=1, guard_buckets=256)))


def test_a_read_that_the_guard_holds_starves():
    """Once the write has retired, the read goes before compute, which would have priority."""
    async def testbench(bench):
        await bench.sweep()
        bench.configure(policy=MCA, starvation_limit=20)
        line = 0x4000
        bench.offers["compute"] = [request(line, op=UPDATE, region=1)]
        while not bench.pending:
            await bench.step(leave=bench.queue[0] if bench.queue else None)
        bench.offers["dma"] = [request(line, op=READ, region=1, source=DMA)]
        bench.offers["compute"] = [request(0x10_0000 + 0x40 * i) for i in range(60)]
        for _ in range(30):
            await bench.step(leave=bench.queue[0] if bench.queue else None)
        assert bench.ctx.get(bench.dut.guard_stall) and bench.ctx.get(bench.dut.starved)
        assert bench.ctx.get(bench.dut.communication_waiting)
        before = len(bench.order)
        await bench.step(retire=bucket_of(line, bench.geometry), leave=bench.queue[0])
        for _ in range(4):
            await bench.step(leave=bench.queue[0] if bench.queue else None)
        assert "dma" in [stream for _, stream in bench.order[before:before + 4]]

    simulate(testbench, Geometry(channel=ChannelGeometry(channels=1, guard_buckets=256)))


@pytest.mark.parametrize("more", [0, *(1 << bit for bit in range(6, 16))])
def test_an_arrival_that_the_coalescer_holds_starves(more):
    """It goes first once it has waited for the limit; every bit of the limit counts."""
    async def testbench(bench):
        await bench.sweep()
        bench.configure(policy=MCA, starvation_limit=20 + more)
        bench.offers["inbound"] = [request(0x40 * i, op=UPDATE, region=1, wg=i, source=REMOTE) for i in range(20)]
        for _ in range(40):
            await bench.step(updates_ready=False, leave=bench.queue[0] if bench.queue else None)
        assert bench.ctx.get(bench.dut.communication_waiting) and bench.ctx.get(bench.dut.starved) == (not more)

    simulate(testbench)


def test_an_arrival_that_the_coalescer_holds_has_not_caught_up():
    """Compute that overtook before still counts: a late arrival then has every other turn."""
    async def testbench(bench):
        await bench.sweep()
        bench.configure(policy=RING_AWARE)
        bench.offers["compute"] = [request(0x10_0000 + 0x40 * i) for i in range(OVERTAKEN_AT + 200)]
        bench.offers["inbound"] = [request(0x40 * i, op=UPDATE, region=1, wg=i, source=REMOTE) for i in range(40)]

        async def steps(cycles, **inputs):
            before = len(bench.order)
            for _ in range(cycles):
                await bench.step(leave=bench.queue[0] if bench.queue else None, **inputs)
            return [stream for _, stream in bench.order[before:]]

        assert set(await steps(OVERTAKEN_AT)) == {"compute"}
        assert set((await steps(60, updates_ready=False))[-40:]) == {"compute"}, "the coalescer is full"
        assert (await steps(12)).count("inbound") >= 4

    simulate(testbench)


def test_read_waits_behind_a_write_granted_in_the_cycle_before():
    """The guard counts a write in the cycle of its grant."""
    async def testbench(bench):
        await bench.sweep()
        line = 0x4000
        bench.offers["compute"] = [request(line, op=UPDATE, region=1)]
        bench.offers["dma"] = [request(line, op=READ, source=DMA)]
        for _ in range(40):
            await bench.step()
        assert [stream for _, stream in bench.order] == ["compute"], "round-robin would have sent the read next"

    simulate(testbench)


def test_untracked_writes_and_reads_are_not_guarded_or_reported():
    """Accesses of region 0 give no update and block no read."""
    async def testbench(bench):
        await bench.sweep()
        line = 0x4000
        bench.offers["compute"] = [request(line), request(line, op=READ, region=1)]
        bench.offers["dma"] = [request(line, op=READ, source=DMA)] * 2
        for _ in range(40):
            await bench.step()
        assert len(bench.order) == 4
        bench.model.check_empty()

    simulate(testbench)


@pytest.mark.parametrize("policy", POLICIES)
def test_dma_reads_pass_a_blocked_tracker(policy):
    """Otherwise the Tracker could wait for a DMA read that waits for the Tracker."""
    async def testbench(bench):
        await bench.sweep()
        bench.configure(policy=list(POLICIES).index(policy))
        for wf, (stream, source) in enumerate((("compute", LOCAL), ("inbound", REMOTE))):  # none joins another
            bench.offers[stream] = [request(0x40 * i, op=UPDATE, region=1, wg=i, wf=wf, source=source)
                                    for i in range(20)]
        for _ in range(40):
            await bench.step(updates_ready=False)
        stuck = len(bench.order)
        assert stuck == 4, "one that waits for the coalescer, one that it holds, and two at its output"
        bench.offers["dma"] = [request(1 << 20 | 0x40 * i, op=READ, source=DMA) for i in range(20)]
        for _ in range(60):
            await bench.step(updates_ready=False)
        assert [stream for _, stream in bench.order[stuck:]] == ["dma"] * 20
        for _ in range(150):
            await bench.step()
        bench.model.check_empty()
        assert len(bench.order) == 60

    simulate(testbench, Geometry(channel=ChannelGeometry(channels=1, guard_buckets=256, queue_entries=64)))


def test_a_full_coalescer_leaves_a_place_for_one_access():
    """Even if it is full long before that access arrives."""
    async def testbench(bench):
        await bench.sweep()
        for number, going in enumerate((1, 2, 3, 4, 4)):
            bench.offers["compute"] = [request(0x40 * number, op=UPDATE, region=1, wg=number)]
            for _ in range(10):
                await bench.step(updates_ready=False)
            assert len(bench.order) == going

    simulate(testbench)


@pytest.mark.parametrize("blocked, free", [("compute", "inbound"), ("inbound", "compute")])
def test_untracked_traffic_passes_a_blocked_tracker(blocked, free):
    """The Tracker takes no update; accesses of region 0 still go."""
    async def testbench(bench):
        await bench.sweep()
        bench.offers[blocked] = [request(0x40 * i, op=UPDATE, region=1, wg=i) for i in range(20)]
        for _ in range(40):
            await bench.step(updates_ready=False)
        stuck = len(bench.order)
        bench.offers[free] = [request(0x40 * i) for i in range(10)]
        for _ in range(20):
            await bench.step(updates_ready=False)
        assert [stream for _, stream in bench.order[stuck:]] == [free] * 10

    simulate(testbench)


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("cycles", [1, 9])
def test_a_write_that_is_forgotten_is_not_reported_but_guarded(first, cycles):
    """`forget` for 1 or 9 cycles from each cycle of a write's way; a read of the line still waits."""
    async def testbench(bench):
        await bench.sweep()
        line, reported = 0x4000, False
        bench.offers["compute"] = [request(line, op=UPDATE, region=1)]
        for now in range(16):
            reported |= bool(bench.ctx.get(bench.dut.updates.valid))
            await bench.step(forget=first <= now < first + cycles)
        assert reported != any(first <= now < first + cycles for now in range(1, 7))
        bench.offers["dma"] = [request(line, op=READ, source=DMA)]
        for _ in range(8):
            await bench.step()
        assert [stream for _, stream in bench.order] == ["compute"] and bench.ctx.get(bench.dut.guard_stall)
        await bench.step(leave=bench.queue[0])
        await bench.step(retire=bench.pending[0])
        for _ in range(4):
            await bench.step()
        assert [stream for _, stream in bench.order] == ["compute", "dma"]

    simulate(testbench, Geometry(channel=ChannelGeometry(coalescer_timeout_cycles=4)))


@pytest.mark.parametrize("stream, other", [("compute", "inbound"), ("inbound", "compute")])
def test_no_more_tracked_writes_go_than_the_guard_can_count(stream, other):
    """DRAM retires nothing. More writes would wrap the counters, and a read would pass them all."""
    async def testbench(bench):
        await bench.sweep()
        line, most = 0x4000, 2 * 8 - 1
        bench.offers[stream] = [request(line, op=UPDATE, region=1) for _ in range(most + 5)]

        async def run(cycles, **what):
            for _ in range(cycles):
                await bench.step(leave=bench.queue[0] if bench.queue else None, **what)

        await run(60)
        bench.offers["dma"] = [request(line, op=READ, source=DMA), request(0x8000, op=READ, source=DMA)]
        bench.offers[other] = [request(0x100 * i) for i in range(10)]
        await run(30)
        assert [name for _, name in bench.order] == [stream] * most + [other] * 10
        for gone in range(1, 6):
            await run(1, retire=bucket_of(line, bench.geometry))
            await run(5)
            assert [name for _, name in bench.order[most + 10:]] == [stream] * gone
        for _ in range(most):
            assert [name for _, name in bench.order[most + 15:]] == []
            await run(1, retire=bucket_of(line, bench.geometry))
            await run(5)
        assert [name for _, name in bench.order[most + 15:]] == ["dma"] * 2
        bench.model.check_empty()

    simulate(testbench, Geometry(channel=ChannelGeometry(channels=1, guard_buckets=4, queue_entries=4)))


def test_nothing_is_granted_into_a_full_dram_queue():
    """At the limit of occupancy there is no grant."""
    async def testbench(bench):
        await bench.sweep()
        bench.offers["compute"] = [request(0x40 * i) for i in range(20)]
        for _ in range(50):
            await bench.step(dram_ready=False)
        assert len(bench.order) == 1
        assert len(bench.offers["compute"]) == 20 - 1 - 2 - 1, "one at the output, two queued, one offered"
        for _ in range(25):
            await bench.step()
        bench.model.check_empty()

    simulate(testbench)


def test_occupancy_includes_the_request_at_the_output():
    """Below the threshold by 0, 1 and 2 entries: no grant, one in two cycles, one per cycle."""
    async def testbench(bench):
        await bench.sweep()
        bench.configure(policy=MCA, threshold=5)
        bench.offers["inbound"] = [request(0x40 * i, source=REMOTE) for i in range(20)]
        for occupancy, spacing in ((5, None), (4, 2), (3, 1)):
            del bench.order[:]
            for _ in range(10):
                await bench.step(occupancy=occupancy)
            cycles = [cycle for cycle, _ in bench.order]
            # At 4 the arbiter sees 5 whenever the output holds a request: every other cycle.
            assert {b - a for a, b in zip(cycles, cycles[1:])} == ({spacing} if spacing else set())

    simulate(testbench)


def test_the_scoreboard_can_fail():
    """A read before its write, or after the retirement but too early, raises an error in the model."""
    geometry = Geometry()
    write, read = request(0x40, op=UPDATE, region=1), request(0x40, op=READ, source=DMA)

    def command(item, communication):
        return {"request": item, "communication": communication, "bucket": bucket_of(item["address"], geometry)}

    def granted():
        model = MemoryChannelModel(geometry)
        model.cycle({"compute": write, "dma": read})
        model.cycle(shown=command(write, 0))
        return model

    with pytest.raises(MemoryChannelError, match="passed a tracked write"):
        granted().cycle(shown=command(read, 1))
    model = granted()
    model.cycle(retired=bucket_of(0x40, geometry))
    with pytest.raises(MemoryChannelError, match="passed a tracked write"):
        model.cycle(shown=command(read, 1))  # a cycle too early
    model = granted()
    model.cycle(retired=bucket_of(0x40, geometry))
    model.cycle()
    assert model.cycle(shown=command(read, 1)) == "dma"
    with pytest.raises(MemoryChannelError, match="never reported"):
        model.check_empty()
    with pytest.raises(MemoryChannelError, match="more bytes than were written"):
        model.cycle(update={"address": 0x40, "amount": 65, "source": 0, "region": 1, "wf": 0, "wg": 0})
    with pytest.raises(MemoryChannelError, match="never accepted"):
        model.cycle(shown=command(write, 0))
