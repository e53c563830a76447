"""The row of a protected Tracker bank against its cycle-exact model, and what each flip costs."""

import random
from collections import Counter

import pytest

from t3sim.rtl.geometry import Geometry, TrackerGeometry
from t3sim.rtl.layouts import tracker_entry, tracker_tag
from t3sim.rtl.track.corrected_row import CorrectedRow
from t3sim.testbenches.reference.corrected_row import CorrectedRowModel, Fault, Row, Shown
from t3sim.testbenches.rows import Rows
from tests.support.stream_bench import once, simulation
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

TRACKERS = {
    "paper": TrackerGeometry(),
    "one_way": TrackerGeometry(sets=4, ways=1, banks=1),
    "odd_ways": TrackerGeometry(sets=4, ways=5, banks=1, wg_bits=4, wf_bits=1, address_bits=32, count_bits=8),
}


class Bench:
    """`cycle` in Amaranth's simulator, each compared with the model."""

    def __init__(self, protection, tracker):
        geometry = Geometry(tracker)
        tag, entry = tracker_tag(geometry), tracker_entry(geometry)
        self.dut = once(CorrectedRow, protection, tracker.ways, tag, entry)
        self._sizes = protection, tracker.ways, tag["tag"].width, entry.size
        self._simulation = simulation(self.dut)
        self.new_model()
        self.told = Counter()

    def new_model(self):
        self.model = CorrectedRowModel(*self._sizes)

    async def cycle(self, row, tag, take, needed) -> Shown:
        ctx, dut = self._ctx, self.dut
        for way in range(self.model.ways):
            ctx.set(dut.tags[way], row.tags[way])
            ctx.set(dut.entries[way], row.entries[way])
        for port, value in ((dut.tag, tag), (dut.last_way, row.last_way), (dut.last_tag.as_value(), row.last_tag),
                            (dut.last_entry.as_value(), row.last_entry), (dut.take, take), (dut.needed, needed)):
            ctx.set(port, value)
        fault = ctx.get(dut.fault)
        told = Fault(fault.uncorrectable, fault.in_entry, fault.way) if fault.valid else None
        shown = Shown(ctx.get(dut.used), ctx.get(dut.match), ctx.get(dut.entry.as_value()), ctx.get(dut.flawed),
                      ctx.get(dut.lost), told)
        assert shown == self.model.show(needed)
        self.told[told and told[:2]] += 1
        await ctx.tick()
        self.model.tick(needed, row if take else None, tag)
        return shown

    async def reset(self):
        self._ctx.set(self._simulation.reset, 1)
        await self._ctx.tick()
        self._ctx.set(self._simulation.reset, 0)
        self.new_model()

    def run(self, test):
        async def bench(ctx):
            self._ctx = ctx
            await test()
        self._simulation.add_testbench(bench)
        self._simulation.run()


@pytest.mark.parametrize("protection", ["parity", "secded"])
@pytest.mark.parametrize("name", on_one(TRACKERS, "odd_ways"))
def test_random_rows_match_the_model(name, protection, seed):
    """Up to two flips in any way, tags one bit from the wanted one, and writes that override the word just read."""
    bench, rng = Bench(protection, TRACKERS[name]), random.Random(seed)
    rows = Rows(rng, bench.model, protection == "secded")

    async def test():
        for _ in range(3):
            needed = False
            for _ in range(300):
                row, tag = rows.search()
                flawed = bench.model.show(needed).flawed
                take = not flawed and rng.random() < 0.6
                await bench.cycle(row, tag, take, needed)
                if take:
                    needed = bool(bench.model.show(False).match) and rng.random() < 0.8
                elif not flawed:
                    needed = needed and rng.random() < 0.5
            await bench.reset()

    bench.run(test)
    lost = {(1, 0), (1, 1)}
    assert bench.told.keys() - {None} == (lost if protection == "parity" else lost | {(0, 0), (0, 1)})


@pytest.mark.parametrize("flips, lost", [((), 0), ((7,), 0), ((7, 11), 1)])
def test_an_entry_with_flipped_bits_stands_there_two_cycles_later(flips, lost, seed):
    """With 0, 1 and 2 flips; the fault is reported once."""
    bench, rng = Bench("secded", TRACKERS["odd_ways"]), random.Random(seed)
    model = bench.model
    entry = rng.getrandbits(model.entry_codec.data_bits)
    read = model.entry_codec.encode(entry) ^ sum(1 << bit for bit in flips)
    row = Row([model.tag_codec.encode(way << 1 | 1) for way in range(5)], [0, 0, 0, read, 0], 0, 0, 0)

    async def test():
        await bench.cycle(row, tag=3, take=True, needed=False)
        shown = [await bench.cycle(row, tag=0, take=False, needed=True) for _ in range(4)]
        assert [one.flawed for one in shown] == ([1, 1, 0, 0] if flips else [0] * 4)
        assert [one.fault for one in shown] == [None, Fault(lost, 1, 3) if flips else None, None, None]
        assert [one.lost for one in shown] == [0, 0, lost, lost]
        assert (shown[-1].entry == entry) == (not lost)

    bench.run(test)


def test_a_tag_that_is_lost_is_used_and_matches_nothing():
    """Its way counts as used, and it is reported before a corrected tag of the same row."""
    bench = Bench("secded", TRACKERS["odd_ways"])
    right = [bench.model.tag_codec.encode(way << 1 | 1) for way in range(5)]
    row = Row([right[0], right[1] ^ 0b11, right[2] ^ 0b10, right[3], bench.model.tag_codec.encode(0)], [0] * 5, 0, 0, 0)

    async def test():
        for tag, match in ((1, 0), (2, 0b100), (3, 0b1000)):
            await bench.cycle(row, tag, take=True, needed=False)
            shown = await bench.cycle(row, tag, take=False, needed=False)
            assert (shown.used, shown.match) == (0b1111, match)
            assert shown.fault == Fault(1, 0, 1), "the one that is lost is told first"

    bench.run(test)
