"""Sums of a switch's port against the reference: random parts, full sets, sums that wait, and what leaves alone."""

import random
from collections import Counter

import pytest

from t3sim.reference.merge_table import ALONE, EVICTED, WHOLE, MergeTableModel
from t3sim.reference.nmc_alu import AluDtype, AluOp, Operands, combine
from t3sim.rtl.geometry import Geometry, GeometryError, SwitchGeometry
from t3sim.rtl.switch.merge_table import MergeTable
from tests.support.stream_bench import StreamBench, as_dict
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "small": Geometry(switch=SwitchGeometry(ports=3, packet_bytes=8, merge_sets=4, merge_ways=2, part_bits=3)),
    "one entry": Geometry(switch=SwitchGeometry(ports=2, packet_bytes=4, merge_sets=1, merge_ways=1, part_bits=2)),
    "one set": Geometry(switch=SwitchGeometry(ports=2, packet_bytes=4, merge_sets=1, merge_ways=5, part_bits=4)),
    "direct-mapped": Geometry(switch=SwitchGeometry(ports=5, packet_bytes=16, merge_sets=16, merge_ways=1)),
}
KINDS = ("begins", "joins", "completes", "refuses", "evicts", "expires")


class Bench(StreamBench):
    """A table whose every event is taken by the model in the cycle in which it happens."""

    def __init__(self, geometry, seed, whole, timeout=0, idle=0.0):
        self.geometry, self.dut, self.whole = geometry, MergeTable(geometry), whole
        super().__init__(self.dut, seed)
        self.forget()
        self.cycle_now = 0
        self.taken: list[int] = []  # cycles in which a part was

        async def watch(ctx):
            ctx.set(self.dut.whole, whole)
            ctx.set(self.dut.timeout, timeout)
            ports = self.dut.parts
            signals = [signal for port in ports for signal in (port.valid, port.ready, port.payload)]
            while True:
                _, _, reset, event, holds, *told = await ctx.tick().sample(
                    self.reset, self.dut.happened, self.dut.holds, *signals)
                if reset:
                    continue
                offers = [(ready, as_dict(payload)) for valid, ready, payload in
                          zip(told[::3], told[1::3], told[2::3]) if valid]
                self.step(as_dict(event), holds, [part for _, part in offers],
                          [part for ready, part in offers if ready])

        self.process(watch)
        self.sums = self.sink(self.dut.sums, idle=idle, on_transfer=self.check)

    def forget(self):
        self.model, self.expected, self.events, self.checked = MergeTableModel(self.geometry, self.whole), [], [], 0

    def step(self, event, holds, offered, parts):
        assert holds == self.model.held
        address = event.pop("address")
        kinds = [name for name in KINDS if event[name]]
        assert len(kinds) <= 1 and len(parts) == bool(set(kinds) & set(KINDS[:4])), (kinds, parts)
        self.cycle_now += 1
        if not kinds:
            return
        self.events.append((self.cycle_now, kinds[0], address))
        shift = self.geometry.switch.packet_shift
        if parts:
            self.taken.append(self.cycle_now)
            kind, leaves = self.model.take(parts[0])
            assert kind == kinds[0] and address == parts[0]["request"]["address"] >> shift << shift
            if leaves:
                self.expected.append(leaves)
        else:
            full = [part for part in offered if self.model.needs_room(part)
                    and self.model.row_of(self.model.line_of(part)) is self.model.row_of(address >> shift)]
            leaves = self.model.expire(address >> shift) if kinds == ["expires"] else self.model.evict(full[0])
            assert leaves["packet"]["request"]["address"] == address
            self.expected.append(leaves)

    def check(self, item):
        assert item == self.expected[self.checked]
        self.checked += 1


def packet(rng, geometry, line, parts=1, dtype=AluDtype.FP16, column=None):
    switch = geometry.switch
    bits = 8 * switch.packet_bytes
    near_one = sum((0x3800 | rng.getrandbits(10)) << 16 * lane for lane in range(bits // 16))
    column = column if column is not None else near_one if rng.random() < 0.5 else rng.getrandbits(bits)
    address = line << switch.packet_shift | rng.randrange(switch.packet_bytes)
    return {"request": {"address": address, "bytes": rng.randint(1, 64), "op": 2, "source": rng.randrange(3),
                        "region": rng.randrange(16), "wf": rng.randrange(8), "wg": rng.getrandbits(16)},
            "dtype": int(dtype), "parts": parts, "column": column}


def random_parts(rng, geometry, whole, lines, count):
    """Streams of each source: mostly one part of each of few lines; some of other types, counts and far addresses."""
    streams = []
    for _ in range(geometry.switch.ports):
        order = [rng.randrange(lines) for _ in range(count)]
        far = rng.randrange(48 - geometry.switch.packet_shift)
        streams.append([packet(
            rng, geometry, line ^ (1 << far if rng.random() < 0.1 else 0),
            parts=rng.randint(0, (1 << geometry.switch.part_bits) - 1) if rng.random() < 0.1 else 1,
            dtype=rng.choice(list(AluDtype)) if rng.random() < 0.2 else AluDtype.FP16) for line in order])
    return streams


@pytest.mark.parametrize("name", on_one(GEOMETRIES))
@pytest.mark.parametrize("seed,idle,pause,timeout", on_one(
    [(1, 0, 0, 0), (2, 0.5, 0.5, 3), (3, 0, 0.9, 20), (4, 0.9, 0, 1)], (2, 0.5, 0.5, 3)))
def test_random_parts(name, seed, idle, pause, timeout):
    geometry, rng = GEOMETRIES[name], random.Random(seed)
    whole = rng.randint(2, min(4, (1 << geometry.switch.part_bits) - 1))
    bench = Bench(geometry, seed, whole, timeout, pause)
    streams = random_parts(rng, geometry, whole, 3 * geometry.switch.merge_sets * geometry.switch.merge_ways, 60)
    for port, items in zip(bench.dut.parts, streams):
        bench.source(port, items, idle=idle)
    bench.run(until=lambda: len(bench.taken) == 60 * len(streams) and bench.checked == len(bench.expected)
              and not (timeout and bench.model.held), cycles=60_000, settle=20)
    sent, left = (Counter() for _ in range(2))
    for item in (part for items in streams for part in items):
        sent[item["request"]["address"] >> geometry.switch.packet_shift, item["dtype"]] += item["parts"]
    for item in bench.sums:
        one = item["packet"]
        left[one["request"]["address"] >> geometry.switch.packet_shift, one["dtype"]] += one["parts"]
    for row in bench.model._rows:
        for key, one in row.items():
            left[key] += one.parts
    assert +sent == +left
    kinds = {kind for _, kind, _ in bench.events}
    assert kinds >= {"completes", "refuses", "expires" if timeout else "evicts"}


def run_parts(geometry, streams, whole, timeout=0, settle=40):
    bench = Bench(geometry, 1, whole, timeout)
    for port, items in zip(bench.dut.parts, streams):
        bench.source(port, items)
    bench.run(until=lambda: len(bench.taken) == sum(map(len, streams)) and bench.checked == len(bench.expected),
              settle=settle)
    return bench


@pytest.mark.parametrize("sources,parts_in_two_cycles", [(1, 1), (2, 2), (3, 2)])
def test_rate(sources, parts_in_two_cycles):
    """One part per cycle of two sources on different sets; every second cycle of a single one."""
    rng = random.Random(1)
    geometry = Geometry(switch=SwitchGeometry(ports=3, packet_bytes=8, merge_sets=32, merge_ways=4))
    streams = [[packet(rng, geometry, line + 10 * number) for line in range(64)] for number in range(sources)]
    bench = run_parts(geometry, streams, whole=100)
    first, last = bench.taken[0], bench.taken[-1]
    assert (last - first) * parts_in_two_cycles == 2 * (64 * sources - 1)


def test_parts_of_one_line_from_all_sources_spread_out():
    """Sources that all send the same lines in the same order fall apart by a few lines, and then add at full rate."""
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
        bench = run_parts(geometry, [[packet(rng, geometry, 5, column=column) for column in columns], [], []], whole=3)
        first = combine(Operands(columns[0], columns[1], AluOp.ADD, AluDtype.FP16), 8)
        total = combine(Operands(first, columns[2], AluOp.ADD, AluDtype.FP16), 8)
        assert [item["packet"]["column"] for item in bench.sums] == [total]
    assert total != 0x6800


def test_a_full_set_lets_the_sum_go_whose_last_part_is_longest_ago():
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    lines = (0, 4, 0, 8, 4, 0, 8)  # all of set 0, which has two ways
    bench = run_parts(geometry, [[packet(rng, geometry, line) for line in lines], [], []], whole=3)
    left = [(item["packet"]["request"]["address"] >> 3, item["packet"]["parts"], item["why"]) for item in bench.sums]
    assert left == [(4, 1, EVICTED), (0, 2, EVICTED), (8, 1, EVICTED), (4, 1, EVICTED)]
    assert bench.model.held == 2


def test_a_sum_that_waits_leaves_within_two_rounds():
    geometry, rng, timeout = GEOMETRIES["small"], random.Random(1), 11
    for start in range(0, 44, 7):
        streams = [[packet(rng, geometry, line) for line in (2, 6)], [], []]
        bench = Bench(geometry, 1, 3, timeout)

        async def late(ctx, bench=bench, start=start, streams=streams):
            await ctx.tick().repeat(10 + start)
            for item in streams[0]:
                ctx.set(bench.dut.parts[0].payload, item)
                ctx.set(bench.dut.parts[0].valid, 1)
                await ctx.tick().until(bench.dut.parts[0].ready)
            ctx.set(bench.dut.parts[0].valid, 0)

        bench.process(late, background=False)
        bench.run(until=lambda bench=bench: bench.checked == 2, settle=10, cycles=300)
        (begun, _, _), _, *gone = bench.events
        rounds = [(cycle - begun) / (4 * timeout) for cycle, _, _ in gone]
        assert [kind for _, kind, _ in gone] == ["expires"] * 2
        assert all(0.9 <= length <= 2.3 for length in rounds), rounds


def test_a_part_too_many_goes_alone():
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    parts = [packet(rng, geometry, 1, parts=2), packet(rng, geometry, 1, parts=2), packet(rng, geometry, 1, parts=0),
             packet(rng, geometry, 1, parts=4), packet(rng, geometry, 1, parts=3), packet(rng, geometry, 1, parts=1)]
    bench = run_parts(geometry, [parts, [], []], whole=3)
    assert [(item["packet"]["parts"], item["why"]) for item in bench.sums] == [
        (2, ALONE), (0, ALONE), (4, ALONE), (3, ALONE), (3, WHOLE)]
    assert not bench.model.held


@pytest.mark.parametrize("moment", on_one([1, 2, 4, 7, 12, 20], 4, 12))
def test_reset_forgets_every_sum(moment):
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
        for items in zip(*streams):
            for port, item in zip(dut.parts, items):
                ctx.set(port.payload, item)
                ctx.set(port.valid, 1)
                ready = False
                while not ready:
                    _, _, ready = await ctx.tick().sample(port.ready)
                ctx.set(port.valid, 0)

    bench.process(drive, background=False)
    bench.run(until=lambda: bench.checked == len(bench.expected), settle=20, cycles=20_000)
    assert bench.sums == bench.expected and len(bench.taken) == 90


@pytest.mark.parametrize("field,value", [("ports", 1), ("packet_bytes", 24), ("merge_sets", 3), ("merge_ways", 0),
                                         ("part_bits", 9), ("buffer_packets", 1)])
def test_impossible_sizes(field, value):
    with pytest.raises(GeometryError, match=f"{field}={value} is impossible: "):
        SwitchGeometry(**{field: value})


def test_model_refuses_what_cannot_be():
    geometry, rng = GEOMETRIES["small"], random.Random(1)
    model = MergeTableModel(geometry, 3)
    for line in (0, 4):
        model.take(packet(rng, geometry, line))
    with pytest.raises(ValueError, match="finds its set full"):
        model.take(packet(rng, geometry, 8))
    with pytest.raises(ValueError, match="no sum need leave"):
        model.evict(packet(rng, geometry, 4))
    assert model.evict(packet(rng, geometry, 8))["packet"]["parts"] == 1
