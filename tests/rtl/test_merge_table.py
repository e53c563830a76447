"""Sums of a switch's port against the reference: random parts, full sets, sums that wait, and what leaves alone."""

import random
from collections import Counter

import pytest
from amaranth.hdl import Mux

from t3sim.rtl.geometry import Geometry, GeometryError, SwitchGeometry
from t3sim.rtl.switch.merge_table import MergeTable
from t3sim.testbenches.reference.merge_table import EVICTED, EXPIRED, WHOLE, MergeTableModel
from t3sim.testbenches.reference.nmc_alu import AluDtype, AluOp, Operands, combine
from tests.support.stream_bench import StreamBench, as_dict, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "small": Geometry(switch=SwitchGeometry(ports=3, packet_bytes=8, merge_sets=4, merge_ways=2, part_bits=3)),
    "one entry": Geometry(switch=SwitchGeometry(ports=2, packet_bytes=4, merge_sets=1, merge_ways=1, part_bits=2)),
    "one set": Geometry(switch=SwitchGeometry(ports=2, packet_bytes=4, merge_sets=1, merge_ways=5, part_bits=4)),
    "direct-mapped": Geometry(switch=SwitchGeometry(ports=5, packet_bytes=16, merge_sets=16, merge_ways=1)),
}
KINDS = ("begins", "joins", "completes", "refuses", "evicts", "expires")
NEVER = 0xFFFF  #: cycles of a timeout that no test reaches


class Bench(StreamBench):
    """A table whose every event is taken by the model in the cycle in which it happens."""

    def __init__(self, geometry, seed, whole, timeout=NEVER, idle=0.0):
        self.geometry, self.dut, self.whole = geometry, once(MergeTable, geometry), whole
        super().__init__(self.dut, seed)
        self.forget()
        self.cycle_now = 0
        self.taken: list[int] = []  # cycles in which a part was

        async def watch(ctx):
            ctx.set(self.dut.whole, whole)
            ctx.set(self.dut.timeout, timeout)
            ports = self.dut.parts
            inside = [0] * len(ports)  # parts of each source that were taken and have not left
            signals = [signal for port in ports for signal in (port.valid, port.ready, port.payload)]
            left = Mux(self.dut.sums.valid & self.dut.sums.ready, self.dut.sums.payload.sources, 0)
            while True:
                _, _, reset, event, holds, pending, busy, out, *told = await ctx.tick().sample(
                    self.reset, self.dut.happened, self.dut.holds, self.dut.pending, self.dut.busy, left, *signals)
                if reset:
                    inside = [0] * len(ports)
                    continue
                assert pending == sum(bool(count) << source for source, count in enumerate(inside))
                assert busy or not pending
                offers = [(ready, as_dict(payload), source) for source, (valid, ready, payload) in
                          enumerate(zip(told[::3], told[1::3], told[2::3])) if valid]
                taken = [(part, source) for ready, part, source in offers if ready]
                self.step(as_dict(event), holds, [part for _, part, _ in offers], taken)
                for source in range(len(ports)):
                    inside[source] += any(source == other for _, other in taken) and not event.refuses
                    inside[source] -= out >> source & 1

        self.process(watch)
        self.sums = self.sink(self.dut.sums, idle=idle, on_transfer=self.check)

    def forget(self):
        self.model, self.expected, self.events, self.checked = MergeTableModel(self.geometry, self.whole), [], [], 0

    def step(self, event, holds, offered, parts):
        assert holds == self.model.held
        address = event.pop("address")
        kinds = [name for name in KINDS if event[name]]
        assert not event["repeats"] or event["refuses"]
        assert len(kinds) <= 1 and len(parts) == bool(set(kinds) & set(KINDS[:4])), (kinds, parts)
        self.cycle_now += 1
        if not kinds:
            return
        self.events.append((self.cycle_now, kinds[0], address))
        shift = self.geometry.switch.packet_shift
        if parts:
            self.taken.append(self.cycle_now)
            (part, source), = parts
            unlike = self.model.is_unlike(part)
            kind, leaves = self.model.take(part, source)
            assert kind == kinds[0] and address == part["request"]["address"] and event["source"] == source
            assert event["repeats"] == (kind == "refuses" and not unlike) or unlike
            if leaves:
                self.expected.append(leaves)
        else:
            full = [part for part in offered if self.model.needs_room(part)
                    and self.model.row_of(self.model.key_of(part).line) is self.model.row_of(address >> shift)]
            leaves = self.model.expire(address >> shift) if kinds == ["expires"] else self.model.evict(full[0])
            assert leaves["packet"]["request"]["address"] == address
            self.expected.append(leaves)

    def check(self, item):
        assert item == self.expected[self.checked]
        self.checked += 1


def packet(rng, geometry, line, parts=1, dtype=AluDtype.FP16, column=None, epoch=1, offset=0, size=None):
    switch = geometry.switch
    bits = 8 * switch.packet_bytes
    near_one = sum((0x3800 | rng.getrandbits(10)) << 16 * lane for lane in range(bits // 16))
    column = column if column is not None else near_one if rng.random() < 0.5 else rng.getrandbits(bits)
    size = switch.packet_bytes - offset if size is None else size
    return {"request": {"address": (line << switch.packet_shift) + offset, "bytes": size, "op": 2,
                        "source": rng.randrange(3), "region": rng.randrange(16), "wf": rng.randrange(8),
                        "wg": rng.getrandbits(16)},
            "epoch": epoch, "dtype": int(dtype), "parts": parts, "column": column}


def random_parts(rng, geometry, whole, lines, count):
    """Streams of each source: mostly one part of each of few lines; some of other types, counts and far addresses.

    Some of other kernels, some of bytes within a line or beyond it.
    """
    streams = []
    for _ in range(geometry.switch.ports):
        order = [rng.randrange(lines) for _ in range(count)]
        far = rng.randrange(48 - geometry.switch.packet_shift)
        streams.append([packet(
            rng, geometry, line ^ (1 << far if rng.random() < 0.1 else 0),
            parts=rng.randint(0, (1 << geometry.switch.part_bits) - 1) if rng.random() < 0.1 else 1,
            epoch=rng.choice((1, 2)) if rng.random() < 0.1 else 1,
            offset=rng.randrange(geometry.switch.packet_bytes) if rng.random() < 0.1 else 0,
            size=rng.randrange(geometry.switch.packet_bytes + 2) if rng.random() < 0.1 else None,
            dtype=rng.choice(list(AluDtype)) if rng.random() < 0.2 else AluDtype.FP16) for line in order])
    return streams


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
@pytest.mark.parametrize("seed,idle,pause,timeout", on_one(
    [(1, 0, 0, NEVER), (2, 0.5, 0.5, 3), (3, 0, 0.9, 20), (4, 0.9, 0, 0)], (2, 0.5, 0.5, 3)))
def test_random_parts(name, seed, idle, pause, timeout):
    """More lines than fit, all types and counts, two kernels, bytes within and past a line: as in the model."""
    geometry, rng = GEOMETRIES[name], random.Random(seed)
    whole = rng.randint(2, geometry.most_parts)
    bench = Bench(geometry, seed, whole, timeout, pause)
    streams = random_parts(rng, geometry, whole, 3 * geometry.switch.merge_sets * geometry.switch.merge_ways, 60)
    for port, items in zip(bench.dut.parts, streams):
        bench.source(port, items, idle=idle)
    bench.run(until=lambda: len(bench.taken) == 60 * len(streams) and bench.checked == len(bench.expected)
              and (timeout == NEVER or not bench.model.held), cycles=60_000, settle=20)
    kinds = Counter(kind for _, kind, _ in bench.events)
    assert len(bench.sums) + bench.model.held == kinds["begins"] + (
        kinds["completes"] if whole == 1 else 0) and kinds["refuses"]
    kept = sum(one.sources.bit_count() for row in bench.model._rows for one in row.values())
    assert sum(item["packet"]["parts"] for item in bench.sums) + kept == len(bench.taken) - kinds["refuses"]
    assert kinds["completes"] and kinds["evicts" if timeout == NEVER else "expires"]


def run_parts(geometry, streams, whole, timeout=NEVER, settle=40):
    bench = Bench(geometry, 1, whole, timeout)
    for port, items in zip(bench.dut.parts, streams):
        bench.source(port, items)
    bench.run(until=lambda: len(bench.taken) == sum(map(len, streams)) and bench.checked == len(bench.expected),
              settle=settle)
    return bench


@pytest.mark.parametrize("sources,parts_in_two_cycles", [(1, 1), (2, 2), (3, 2)])
def test_rate(sources, parts_in_two_cycles):
    """One part per cycle of two sources on different sets; every second cycle of a single source."""
    rng = random.Random(1)
    geometry = Geometry(switch=SwitchGeometry(ports=3, packet_bytes=8, merge_sets=32, merge_ways=4))
    streams = [[packet(rng, geometry, line + 10 * number) for line in range(64)] for number in range(sources)]
    bench = run_parts(geometry, streams, whole=100)
    first, last = bench.taken[0], bench.taken[-1]
    assert (last - first) * parts_in_two_cycles == 2 * (64 * sources - 1)


def test_parts_of_one_line_from_all_sources_spread_out():
    """Seven sources send the same lines in the same order, drift apart by a few lines, then add at full rate."""
    rng = random.Random(1)
    geometry = Geometry(switch=SwitchGeometry(ports=8, packet_bytes=4, merge_sets=128, merge_ways=5))
    streams = [[packet(rng, geometry, line) for line in range(200)] for _ in range(7)]
    bench = run_parts(geometry, streams, whole=7)
    assert len(bench.sums) == 200 and all(item["why"] == WHOLE for item in bench.sums)
    assert bench.taken[-1] - bench.taken[0] < 1.1 * 1400


def test_order_of_addition_is_that_of_arrival():
    """2048 + 1 + 1 in fp16 depends on the order."""
    geometry = GEOMETRIES["small"]
    big, one = 0x6800, 0x3C00
    for columns in ((big, one, one), (one, one, big)):
        rng = random.Random(1)
        bench = Bench(geometry, 1, 3)

        async def one_after_another(ctx, bench=bench, columns=columns, rng=rng):
            for port, column in zip(bench.dut.parts, columns):
                await offer(ctx, port, packet(rng, geometry, 5, column=column))

        bench.process(one_after_another, background=False)
        bench.run(until=lambda bench=bench: bench.checked == 1, cycles=100)
        first = combine(Operands(columns[0], columns[1], AluOp.ADD, AluDtype.FP16), 8)
        total = combine(Operands(first, columns[2], AluOp.ADD, AluDtype.FP16), 8)
        assert [item["packet"]["column"] for item in bench.sums] == [total]
    assert total != 0x6800


async def offer(ctx, port, item):
    """Offer a part until it is taken."""
    ctx.set(port.payload, item)
    ctx.set(port.valid, 1)
    ready = False
    while not ready:
        _, _, ready = await ctx.tick().sample(port.ready)
    ctx.set(port.valid, 0)


def test_a_full_set_lets_the_sum_go_whose_last_part_is_longest_ago():
    """More lines of one set than ways: checks which sum leaves, and with which parts."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    bench = Bench(geometry, 1, 3)

    async def drive(ctx):  # all of set 0, which has two ways
        for source, line in ((0, 0), (0, 4), (1, 0), (0, 8), (1, 4), (2, 0), (1, 8)):
            await offer(ctx, bench.dut.parts[source], packet(rng, geometry, line))

    bench.process(drive, background=False)
    bench.run(until=lambda: bench.checked == len(bench.expected), settle=20, cycles=400)
    left = [(item["packet"]["request"]["address"] >> 3, item["packet"]["parts"], item["why"]) for item in bench.sums]
    assert left == [(4, 1, EVICTED), (0, 2, EVICTED), (8, 1, EVICTED), (4, 1, EVICTED)]
    assert bench.model.held == 2


@pytest.mark.parametrize("name,timeout", on_one([(name, timeout) for name in ("small", "one set")
                                                 for timeout in (0, 1, 11, 40)], ("small", 11), ("one set", 40)))
def test_a_sum_that_waits_leaves_within_two_rounds_and_not_before_one(name, timeout):
    """At any start within a round, while other sums leave, which takes longer than a short timeout."""
    geometry, rng = GEOMETRIES[name], random.Random(1)
    sets = geometry.switch.merge_sets
    for start in range(1, 3 * sets * max(1, timeout), 1 + sets * timeout // 15):
        bench = Bench(geometry, 1, 2, timeout)

        async def late(ctx, bench=bench, start=start):
            for line in (0, sets, 2 * sets):
                await offer(ctx, bench.dut.parts[0], packet(rng, geometry, line))
            await ctx.tick().repeat(start)
            await offer(ctx, bench.dut.parts[1], packet(rng, geometry, 7 * sets))

        bench.process(late, background=False)
        bench.run(until=lambda bench=bench: bench.checked == 4, settle=10, cycles=100 + 10 * sets * (timeout + 30))
        begun = next(cycle for cycle, kind, address in bench.events if kind == "begins"
                     and address == 7 * sets << geometry.switch.packet_shift)
        gone = next(cycle for cycle, kind, address in bench.events if kind == "expires"
                    and address == 7 * sets << geometry.switch.packet_shift)
        looks = 8 * geometry.switch.merge_ways + 2  # of a set whose sums all leave
        assert timeout * sets <= gone - begun <= 2 * sets * (timeout + 2) + 4 * looks, (start, begun, gone)


def test_a_timeout_that_is_lowered_counts_at_once():
    """Attack: corner widths. A sum older than the new timeout leaves at the next look."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    bench = Bench(geometry, 1, 2)

    async def lower(ctx):
        await offer(ctx, bench.dut.parts[0], packet(rng, geometry, 5))
        await ctx.tick().repeat(200)
        assert bench.model.held == 1
        ctx.set(bench.dut.timeout, 3)

    bench.process(lower, background=False)
    bench.run(until=lambda: bench.checked == 1, cycles=300)


def test_what_is_no_part_of_a_gpu_goes_nowhere():
    """Attack: a lying peer. No part or several, no bytes, or bytes past the line; the sum is unchanged."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    begins = packet(rng, geometry, 1)
    unlike = [packet(rng, geometry, 1, parts=parts) for parts in (0, 2, 3, 7)]
    unlike += [packet(rng, geometry, 1, offset=offset, size=size) for offset, size in ((0, 0), (0, 9), (1, 8), (7, 2))]
    last = packet(rng, geometry, 1)
    bench = run_parts(geometry, [[begins, *unlike, packet(rng, geometry, 2)], [*unlike, packet(rng, geometry, 2)],
                                 [last]], whole=2)
    assert sum(kind == "refuses" for _, kind, _ in bench.events) == 2 * len(unlike)
    assert {(item["packet"]["request"]["address"] >> 3, item["packet"]["parts"], item["sources"])
            for item in bench.sums} == {(1, 2, 0b101), (2, 2, 0b011)}
    assert not bench.model.held


@pytest.mark.parametrize("source", on_one([0, 1, 2]))
def test_a_second_part_of_a_source_goes_nowhere(source):
    """Attack: a peer that repeats, at once or later, whichever source it is; the sum is unchanged."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    mine = [packet(rng, geometry, 5) for _ in range(4)]
    streams = [[], [], []]
    streams[source] = mine
    bench = Bench(geometry, 1, 3)
    others = [number for number in range(3) if number != source]

    async def drive(ctx):
        await offer(ctx, bench.dut.parts[source], mine[0])
        await offer(ctx, bench.dut.parts[source], mine[1])
        await ctx.tick().repeat(20)
        await offer(ctx, bench.dut.parts[others[0]], packet(rng, geometry, 5))
        await offer(ctx, bench.dut.parts[source], mine[2])
        await offer(ctx, bench.dut.parts[others[1]], packet(rng, geometry, 5))

    bench.process(drive, background=False)
    bench.run(until=lambda: bench.checked == 1, settle=20, cycles=300)
    assert [kind for _, kind, _ in bench.events] == ["begins", "refuses", "joins", "refuses", "completes"]
    (one,) = bench.sums
    assert one["packet"]["parts"] == 3 and one["sources"] == 0b111


def test_parts_of_other_kernels_or_of_other_bytes_never_meet():
    """Kernel number, offset, length and type, each pair of them; equal parts do add."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    kinds = [{}, {"epoch": 2}, {"epoch": 255}, {"offset": 2}, {"offset": 2, "size": 4}, {"size": 4},
             {"dtype": AluDtype.BF16}]
    for number, one in enumerate(kinds):
        for other in kinds[number + 1:]:
            bench = run_parts(geometry, [[packet(rng, geometry, 5, **one)], [packet(rng, geometry, 5, **other)], []],
                              whole=2)
            assert not bench.sums and bench.model.held == 2, (one, other)
        bench = run_parts(geometry, [[packet(rng, geometry, 5, **one)], [packet(rng, geometry, 5, **one)], []], whole=2)
        (left,) = bench.sums
        wanted = packet(rng, geometry, 5, **one)
        assert left["packet"]["parts"] == 2 and left["packet"]["epoch"] == wanted["epoch"]
        for name in ("address", "bytes"):
            assert left["packet"]["request"][name] == wanted["request"][name]


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
def test_a_flush_lets_sums_of_kernels_that_are_over_leave_and_no_others(name):
    """Kernel 255 is over and 1, which follows, is not; its sums wait for their own timeout."""
    geometry, rng = GEOMETRIES[name], random.Random(1)
    sets, ways = geometry.switch.merge_sets, geometry.switch.merge_ways
    bench = Bench(geometry, 1, 2)
    lines = range(0, sets * ways)  # as many as there is room for
    epochs = {line: rng.choice((255, 1)) for line in lines}

    async def drive(ctx):
        for line in lines:
            await offer(ctx, bench.dut.parts[0], packet(rng, geometry, line, epoch=epochs[line]))
        for _ in range(2):
            await ctx.tick().repeat(20)
            assert bench.model.held == len(lines) and ctx.get(bench.dut.busy)
        ctx.set(bench.dut.oldest, 1)
        ctx.set(bench.dut.flush, 1)
        await ctx.tick()
        ctx.set(bench.dut.flush, 0)
        await ctx.tick().repeat(20 * sets * ways + 40)

    bench.model.expire = lambda line: expired(line)

    def expired(line):
        row = bench.model.row_of(line)
        key = next(key for key in row if key.line == line)
        return bench.model._packet(key, row.pop(key), EXPIRED)

    bench.process(drive, background=False)
    bench.run(until=lambda: bench.checked == len(bench.expected), settle=20, cycles=100_000)
    assert sorted(item["packet"]["request"]["address"] >> geometry.switch.packet_shift for item in bench.sums) == [
        line for line in lines if epochs[line] == 255]
    assert bench.model.held == sum(epoch == 1 for epoch in epochs.values())


def test_all_parts_of_an_evicted_sum_leave_whatever_the_timeout():
    """Three lines of a set of two ways, two sources in opposite orders: nothing stays for ever."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    for timeout in (0, 1, 50):
        streams = [[packet(rng, geometry, line) for line in order] for order in ((0, 4, 8), (8, 4, 0))]
        bench = Bench(geometry, 1, 2, timeout)
        for port, items in zip(bench.dut.parts, streams):
            bench.source(port, items)
        bench.run(until=lambda bench=bench: sum(item["packet"]["parts"] for item in bench.sums) == 6, cycles=2_000)


@pytest.mark.parametrize("moment", on_one([1, 2, 4, 7, 12, 20], 4, 12))
def test_reset_forgets_every_sum(moment):
    """Attack: reset in the middle, at any moment of a sum."""
    geometry, rng = GEOMETRIES["small"], random.Random(moment)
    bench = Bench(geometry, moment, 3, idle=0.3)
    dut = bench.dut
    streams = random_parts(rng, geometry, 3, 12, 30)

    async def drive(ctx):
        assert ctx.get(dut.busy)
        for number, port in enumerate(dut.parts):
            ctx.set(port.payload, packet(rng, geometry, 3 + number))
            ctx.set(port.valid, 1)
            assert not ctx.get(port.ready), "clearing"
        await ctx.tick().repeat(moment + 4)
        for port in dut.parts:
            ctx.set(port.valid, 0)
        await bench.pulse_reset(ctx)
        bench.forget()
        bench.taken.clear()
        bench.sums.clear()
        assert ctx.get(dut.holds) == 0 and not ctx.get(dut.sums.valid)
        assert ctx.get(dut.pending) == 0
        for items in zip(*streams):
            for port, item in zip(dut.parts, items):
                await offer(ctx, port, item)

    bench.process(drive, background=False)
    bench.run(until=lambda: bench.checked == len(bench.expected), settle=20, cycles=20_000)
    assert bench.sums == bench.expected and len(bench.taken) == 90


@pytest.mark.parametrize("field,value", [("ports", 1), ("packet_bytes", 24), ("merge_sets", 3), ("merge_ways", 0),
                                         ("part_bits", 9), ("buffer_packets", 1)])
def test_impossible_sizes(field, value):
    """Each raises a GeometryError that names field and value."""
    with pytest.raises(GeometryError, match=f"{field}={value} is impossible: "):
        SwitchGeometry(**{field: value})


def test_model_refuses_what_cannot_be():
    """A part without a place, and an eviction without need, raise a ValueError."""
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    model = MergeTableModel(geometry, 3)
    for line in (0, 4):
        model.take(packet(rng, geometry, line), 0)
    with pytest.raises(ValueError, match="finds its set full"):
        model.take(packet(rng, geometry, 8), 0)
    with pytest.raises(ValueError, match="no sum need leave"):
        model.evict(packet(rng, geometry, 4))
    assert model.evict(packet(rng, geometry, 8))["packet"]["parts"] == 1
