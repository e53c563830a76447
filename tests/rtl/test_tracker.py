"""TrackerBank against its model: random tiles, hot sets, small geometries, errors, full sets, resets."""

import itertools
import random

import pytest

from t3sim.rtl.check_bits import PROTECTIONS
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.layouts import ErrorCode
from t3sim.rtl.track.tracker import TrackerBank
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.memory_codec import MemoryCodecModel
from t3sim.testbenches.reference.tracker import TrackerModel
from tests.support.stream_bench import StreamBench, as_dict, once, send
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

GEOMETRIES = {
    "paper": Geometry(),
    "one_way": Geometry(tracker=TrackerGeometry(sets=16, ways=1, banks=2)),
    "one_set_per_bank": Geometry(tracker=TrackerGeometry(sets=8, ways=4, banks=8, wf_bits=2)),
    "one_set": Geometry(tracker=TrackerGeometry(sets=1, ways=3, banks=1, wg_bits=4, wf_bits=1)),
    "odd_ways": Geometry(tracker=TrackerGeometry(sets=32, ways=5, banks=4, address_bits=32)),
    "narrow_count": Geometry(tracker=TrackerGeometry(sets=4, ways=2, banks=1, count_bits=8),
                             dma=DmaGeometry(regions=2)),
    "wide_amount": Geometry(tracker=TrackerGeometry(sets=4, ways=8, banks=2, count_bits=32),
                            channel=ChannelGeometry(interleave_bytes=4096)),
    "secded": Geometry(tracker=TrackerGeometry(sets=16, ways=3, banks=4, protection="secded")),
    "parity": Geometry(tracker=TrackerGeometry(sets=1, ways=3, banks=1, wg_bits=4, wf_bits=2, protection="parity")),
}


class Bank:
    """A bank with its model, the updates offered so far and everything that came out."""

    def __init__(self, geometry, seed, bank=0):
        self.geometry, self.bank = geometry, bank
        self.dut = once(TrackerBank, geometry)
        self.bench = StreamBench(self.dut, seed)
        regions = geometry.dma.regions
        limit = (1 << geometry.tracker.count_bits) - 1
        self.thresholds = [None if region in (0, 5) else min(limit, 40 * region) for region in range(regions)]
        if regions > 6:
            self.thresholds[6] = 0
            most = (1 << geometry.channel.amount_bits) - 1
            self.thresholds[7] = min(limit, 30 * most)  # some dozen updates, up to the counter's upper bits
        self.families = [region // 2 for region in range(regions)]  # 2 and 3 are of one family
        self.model = TrackerModel(geometry.tracker, self.thresholds, self.families)
        self.errors = []
        self.faults = []
        self.bench.process(self._watch)
        if geometry.tracker.protection != "none":
            self.bench.process(self._watch_faults)

    async def _watch(self, ctx):
        for region, threshold in enumerate(self.thresholds):
            ctx.set(self.dut.tracked[region], threshold is not None)
            ctx.set(self.dut.thresholds[region], threshold or 0)
            ctx.set(self.dut.families[region], self.families[region])
        while True:
            _, _, error = await ctx.tick().sample(self.dut.error)
            if error.valid:
                self.errors.append(as_dict(error))

    async def _watch_faults(self, ctx):
        while True:
            _, _, fault = await ctx.tick().sample(self.dut.fault)
            if fault.valid:
                self.faults.append(as_dict(fault))

    def words(self):
        """Every word of the protected memories with its codec: (memory name, way, row, word, codec)."""
        for name, layout in (("tags", self.dut._tag_layout), ("entries", self.dut._entry_layout)):
            codec = MemoryCodecModel(self.geometry.tracker.protection, layout.size)
            for way, memory in enumerate(getattr(self.dut, name)):
                for row in range(self.geometry.tracker.sets_per_bank):
                    yield name, way, row, memory.data[row], codec

    def update(self, rng, wg, wf, region, amount) -> Update:
        return Update(rng.getrandbits(self.geometry.tracker.address_bits), amount, rng.randrange(3), region, wf, wg)

    def traffic(self, rng, count, exact=True):
        """Updates that never find a full set; `exact`: tiles mostly end at their threshold."""
        tracker = self.geometry.tracker
        most = (1 << self.geometry.channel.amount_bits) - 1
        good = [region for region, threshold in enumerate(self.thresholds) if threshold]
        near = range(min(3, tracker.sets_per_bank - 1))
        rows = [self.bank + tracker.banks * n for n in (*near, tracker.sets_per_bank - 1)]
        open_tiles = {row: {} for row in rows}
        while count:
            row = rng.choice(rows)
            tiles = open_tiles[row]
            wf = rng.randrange(1 << tracker.wf_bits)
            wg = row + tracker.sets * rng.randrange(1 << (tracker.wg_bits - tracker.set_bits))
            if len(tiles) == tracker.ways or (tiles and rng.random() < 0.6):
                (wg, wf), (region, left) = rng.choice(list(tiles.items()))
            elif (wg, wf) in tiles:
                continue
            else:
                region = rng.choice(good)
                left = self.thresholds[region]
            fate = rng.random()
            if fate < 0.05:
                yield self.update(rng, wg, wf, rng.choice((0, 5, 6)) if self.geometry.dma.regions > 6 else 0, 1)
                count -= 1
                continue
            if left > most:
                amount = rng.randint(most - 40, most)
            elif not exact and fate < 0.15:
                amount = min(most, left + rng.randrange(1, 3))
            else:
                amount = rng.randint(1, left) if fate < 0.7 else left
            tiles[wg, wf] = region, left - amount
            if left <= amount:
                del tiles[wg, wf]
            yield self.update(rng, wg, wf, region, amount)
            count -= 1

    def expect(self, updates):
        """The model's triggers and errors, as dicts."""
        triggers, errors = [], []
        for update in updates:
            outcome = self.model.apply(update)
            if outcome.trigger:
                triggers.append(outcome.trigger._asdict())
            if outcome.error:
                details = {name: getattr(update, name) for name in ("address", "region", "wf", "wg")}
                errors.append({"valid": 1, "code": ErrorCode[outcome.error].value, "details": details})
        return triggers, errors


@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.4, 0.2), (0.0, 0.8)])
@pytest.mark.parametrize("name", on_one(GEOMETRIES, "odd_ways", "secded"))
def test_random_updates(name, idle_in, idle_out):
    """1 way, 1 set, odd ways, narrow counters, the paper's 256 x 8: one trigger at the threshold, lowest address."""
    bank = Bank(GEOMETRIES[name], seed=GEOMETRIES[name].tracker.sets + int(10 * idle_out),
                bank=GEOMETRIES[name].tracker.banks - 1)
    updates = list(bank.traffic(bank.bench.random, 400, exact=False))
    bank.bench.source(bank.dut.updates, [update._asdict() for update in updates], idle_in)
    taken = bank.bench.sink(bank.dut.triggers, idle_out)
    triggers, errors = bank.expect(updates)
    assert len(triggers) > 20 and len(errors) > 5
    bank.bench.run(until=lambda: len(taken) >= len(triggers), cycles=8000, settle=8)
    assert taken == triggers
    assert bank.errors == errors


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_back_to_back_updates_of_one_entry_take_one_cycle_each(protection):
    """With and without protection, while no word has a flip."""
    bank = Bank(Geometry(TrackerGeometry(protection=protection)), seed=1)
    rng = random.Random(1)
    updates = [bank.update(rng, wg=0, wf=3, region=10, amount=4) for _ in range(100)] * 2
    bank.bench.source(bank.dut.updates, [update._asdict() for update in updates])
    taken = bank.bench.sink(bank.dut.triggers)
    triggers, _ = bank.expect(updates)
    assert len(triggers) == 2
    sweep = bank.geometry.tracker.sets_per_bank
    bank.bench.run(until=lambda: len(taken) == 2, cycles=sweep + 200 + 7)
    assert taken == triggers and not bank.errors


def test_occupied_counts_valid_entries():
    """Tiles open and complete, and `occupied` equals the model's count."""
    bank = Bank(GEOMETRIES["odd_ways"], seed=2)
    updates = list(bank.traffic(bank.bench.random, 300))
    bank.bench.sink(bank.dut.triggers)

    async def drive(ctx):
        rng = random.Random(2)
        for update in updates:
            await send(ctx, bank.dut.updates, [update._asdict()], rng)
            await ctx.tick().repeat(3)
            bank.model.apply(update)
            assert ctx.get(bank.dut.occupied) == bank.model.occupied

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=3000)


@pytest.mark.parametrize("name", ["one_way", "one_set", "parity", "secded"])
def test_an_update_without_a_free_way_is_refused_and_told(name):
    """The updates behind it count, and a freed way takes the next tile."""
    bank = Bank(GEOMETRIES[name], seed=3)
    rng = random.Random(3)
    dut, tracker = bank.dut, bank.geometry.tracker
    fill = [bank.update(rng, wg=tracker.sets * n, wf=0, region=1, amount=1) for n in range(tracker.ways)]
    whole = bank.update(rng, wg=tracker.sets * tracker.ways, wf=1, region=1, amount=40)
    unknown = bank.update(rng, wg=tracker.sets * tracker.ways, wf=1, region=5, amount=40)
    late = bank.update(rng, wg=tracker.sets * (tracker.ways + 1), wf=1, region=2, amount=7)
    first = [whole, unknown, late, late]  # what is complete in one update needs no way, nor what is not tracked
    second = [fill[0]._replace(amount=39), late, late._replace(amount=73)]
    taken = bank.bench.sink(dut.triggers)
    triggers, errors = bank.expect([*fill, *first, *second])
    assert [error["code"] for error in errors] == [
        ErrorCode.REGION_UNCONFIGURED.value, ErrorCode.TRACKER_FULL.value, ErrorCode.TRACKER_FULL.value]
    assert len(triggers) == 3

    async def drive(ctx):
        await send(ctx, dut.updates, [update._asdict() for update in (*fill, *first)], rng)
        await ctx.tick().repeat(10)
        assert ctx.get(dut.updates.ready) and not ctx.get(dut.busy) and ctx.get(dut.occupied) == tracker.ways
        await send(ctx, dut.updates, [update._asdict() for update in second], rng)
        await ctx.tick().repeat(10)
        assert taken == triggers and bank.errors == errors
        assert ctx.get(dut.occupied) == tracker.ways - 1

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=300)


@pytest.mark.parametrize("name", ["one_way", "one_set", "parity", "secded"])
def test_an_update_of_another_kind_of_tile_is_refused_and_told(name):
    """A foreign region with any threshold, address and source; the tile itself goes on."""
    bank = Bank(GEOMETRIES[name], seed=3)
    rng, dut = random.Random(3), bank.dut
    first = bank.update(rng, wg=0, wf=0, region=2, amount=30)
    wrong = [first._replace(region=region, amount=amount, source=source, address=0)
             for region, amount in ((1, 9), (1, 10), (1, 40), (4, 5)) for source in range(3)]
    kin = first._replace(region=3, amount=50, source=0)
    updates = [first, *wrong, kin, *wrong[:2], kin._replace(amount=40)]
    taken = bank.bench.sink(dut.triggers)
    triggers, errors = bank.expect(updates)
    assert triggers == [{"address": first.address, "region": 3, "wf": 0, "wg": 0}]
    assert [error["code"] for error in errors] == [ErrorCode.REGION_MISMATCH.value] * 14

    async def drive(ctx):
        await send(ctx, dut.updates, [update._asdict() for update in updates], rng)
        await ctx.tick().repeat(10)
        assert taken == triggers and bank.errors == errors and not ctx.get(dut.occupied)

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=300)


@pytest.mark.parametrize("name", ["one_way", "secded"])
@pytest.mark.parametrize("sources", list(itertools.product(range(3), repeat=3)), ids=str)
def test_a_trigger_names_the_region_of_the_local_update(sources, name):
    """Attack: a peer that lies about the region. Of several local updates the last one counts, else the first."""
    bank = Bank(GEOMETRIES[name], seed=4)
    rng, dut = random.Random(4), bank.dut
    regions, amounts = (2, 3, 2), (30, 30, bank.thresholds[2] - 60)
    updates = [bank.update(rng, wg=0, wf=1, region=region, amount=amount)._replace(source=source)
               for region, amount, source in zip(regions, amounts, sources)]
    taken = bank.bench.sink(dut.triggers)
    local = [update.region for update in updates if not update.source]

    async def drive(ctx):
        await send(ctx, dut.updates, [update._asdict() for update in updates], rng)
        await ctx.tick().repeat(10)
        assert [trigger["region"] for trigger in taken] == [local[-1] if local else updates[0].region]

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=300)


@pytest.mark.parametrize("at", on_one(range(40, 52), 40, 45, 51))
@pytest.mark.parametrize("name", ["odd_ways", "secded"])
def test_reset_in_flight_forgets_everything(name, at):
    """A reset at each stage of the pipeline leaves no entry."""
    bank = Bank(GEOMETRIES[name], seed=at)
    rng = random.Random(at)
    before = list(bank.traffic(rng, 40))
    after = list(bank.traffic(rng, 40))
    taken = bank.bench.sink(bank.dut.triggers, 0.3)
    triggers, errors = bank.expect(after)

    async def drive(ctx):
        for update in before:
            if bank.bench.cycle >= at:
                break
            await send(ctx, bank.dut.updates, [update._asdict()], rng)
        await bank.bench.pulse_reset(ctx)
        taken.clear()
        bank.errors.clear()
        await send(ctx, bank.dut.updates, [update._asdict() for update in after], rng)

    bank.bench.process(drive, background=False)
    bank.bench.run(until=lambda: len(taken) >= len(triggers), cycles=1000, settle=10)
    assert taken == triggers and bank.errors == errors


# Protected memories

SECDED = GEOMETRIES["secded"]


@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.3, 0.5)])
def test_single_flips_anywhere_at_any_time_change_nothing(idle_in, idle_out, seed):
    """SECDED: one flip per word at random times, check bits included; faults are reported, triggers stay."""
    bank = Bank(SECDED, seed)
    updates = list(bank.traffic(bank.bench.random, 400, exact=False))
    bank.bench.source(bank.dut.updates, [update._asdict() for update in updates], idle_in)
    taken = bank.bench.sink(bank.dut.triggers, idle_out)
    triggers, errors = bank.expect(updates)
    rng, words = random.Random(seed), list(bank.words())

    async def flip(ctx):
        while True:
            await ctx.tick()
            *_, word, codec = rng.choice(words)
            value = ctx.get(word)
            if codec.encode(value & ((1 << codec.data_bits) - 1)) == value:
                ctx.set(word, value ^ 1 << rng.randrange(codec.word_bits))

    bank.bench.process(flip)
    bank.bench.run(until=lambda: len(taken) >= len(triggers), cycles=8000, settle=10)
    assert taken == triggers and bank.errors == errors
    assert {fault["in_entry"] for fault in bank.faults} == {0, 1}
    assert not any(fault["uncorrectable"] for fault in bank.faults)


@pytest.mark.parametrize("memory", ["tags", "entries"])
@pytest.mark.parametrize("protection, flips", [("secded", 2), ("parity", 1)])
def test_what_cannot_be_corrected_is_told_and_never_fires(protection, flips, memory, seed):
    """Parity: one flip, SECDED: two, in tag or entry of one of two open tiles. The other tile triggers."""
    rng = random.Random(seed)
    for _ in range(6):
        bank = Bank(Geometry(TrackerGeometry(sets=8, ways=3, banks=2, protection=protection)), rng.random(), bank=1)
        first, second = (bank.update(rng, wg=5, wf=wf, region=1, amount=20) for wf in (2, 6))
        taken = bank.bench.sink(bank.dut.triggers)
        triggers, _ = bank.expect([first, second, second])
        stored = [word for word in bank.words() if word[0] == memory]

        async def drive(ctx, bank=bank, first=first, second=second, stored=stored):
            await send(ctx, bank.dut.updates, [first._asdict(), second._asdict()], rng)
            await ctx.tick().repeat(5)
            # Updates took the ways in order.
            (_, way, row, word, codec), = [one for one in stored if one[1:3] == (0, 5 >> 1)]
            for bit in rng.sample(range(codec.word_bits), flips):
                ctx.set(word, ctx.get(word) ^ 1 << bit)
            await send(ctx, bank.dut.updates, [first._asdict(), second._asdict()], rng)

        bank.bench.process(drive, background=False)
        bank.bench.run(cycles=200, settle=12)
        assert taken == triggers
        assert {"valid": 1, "uncorrectable": 1, "in_entry": int(memory == "entries"), "way": 0, "set": 5} in bank.faults
        details = {name: getattr(first, name) for name in ("address", "region", "wf", "wg")}
        assert bank.errors[0] == {"valid": 1, "code": ErrorCode.TRACKER_MEMORY.value, "details": details}
        assert {error["code"] for error in bank.errors} == {ErrorCode.TRACKER_MEMORY.value}


@pytest.mark.parametrize("protection", ["none", "parity"])
def test_from_its_update_on_a_tile_is_inside_or_occupies(protection):
    """A restart looks in one cycle only, so in no cycle may an open tile be neither."""
    bank = Bank(Geometry(TrackerGeometry(sets=8, ways=2, banks=2, protection=protection)), seed=1)
    rng, seen = random.Random(1), []

    async def drive(ctx):
        await ctx.tick().repeat(12)
        await send(ctx, bank.dut.updates, [bank.update(rng, wg=0, wf=0, region=1, amount=1)._asdict()], rng)
        for _ in range(8):
            seen.append((ctx.get(bank.dut.busy), ctx.get(bank.dut.occupied)))
            await ctx.tick()

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=100)
    assert seen[0] == (1, 0) and seen[-1] == (0, 1) and (0, 0) not in seen


def test_an_update_that_finds_no_way_but_a_lost_one_is_told_as_that():
    """The error is the memory's, not the full set's."""
    bank = Bank(Geometry(TrackerGeometry(sets=8, ways=1, banks=2, protection="parity")), seed=1)
    rng = random.Random(1)
    (_, _, _, word, _), = [one for one in bank.words() if one[0] == "tags" and one[2] == 0]

    async def drive(ctx):
        await ctx.tick().repeat(8)
        ctx.set(word, 1)
        await send(ctx, bank.dut.updates, [bank.update(rng, wg=0, wf=0, region=1, amount=1)._asdict()], rng)
        await ctx.tick().repeat(20)
        assert ctx.get(bank.dut.occupied) == 0 and not ctx.get(bank.dut.busy)

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=100)
    assert [error["code"] for error in bank.errors] == [ErrorCode.TRACKER_MEMORY.value]


def test_a_corrected_word_is_written_back_only_where_an_update_counts():
    """A free way's tag stays flipped, and every update of its set reports it, until a reset.

    An entry stays while its updates are refused.
    """
    bank = Bank(Geometry(TrackerGeometry(sets=8, ways=3, banks=2, protection="secded")), seed=1)
    rng, dut, told = random.Random(1), bank.dut, []
    row = 2 >> 1

    async def step(ctx, *regions):
        """Updates of one tile, with others between them: then the last write is not the tile's own."""
        bank.faults.clear()
        for region in regions:
            tile, other = (bank.update(rng, wg=wg, wf=0, region=of, amount=1) for wg, of in ((2, region), (4, 1)))
            await send(ctx, dut.updates, [tile._asdict(), other._asdict()], rng)
            await ctx.tick().repeat(8)
        told.append([(fault["in_entry"], fault["way"], fault["uncorrectable"]) for fault in bank.faults])

    async def drive(ctx):
        await step(ctx, 1)
        for word in (dut.tags[2].data[row], dut.entries[0].data[row]):
            ctx.set(word, ctx.get(word) ^ 1)
        await step(ctx, 5, 5)  # not tracked: refused
        await step(ctx, 1, 1)  # the first writes the entry back
        await bank.bench.pulse_reset(ctx)
        await step(ctx, 1, 1)

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=400)
    tag, entry = (0, 2, 0), (1, 0, 0)
    assert told == [[], [tag, entry, tag, entry], [tag, entry, tag], []]


@pytest.mark.parametrize("protection, flip, cycles", [
    ("none", False, 2), ("parity", False, 3), ("secded", False, 3), ("secded", True, 5)])
def test_cycles_from_an_update_to_its_trigger(protection, flip, cycles):
    """Protection adds one stage, and a corrected entry two more cycles."""
    bank = Bank(Geometry(TrackerGeometry(sets=8, ways=2, banks=2, protection=protection)), seed=1)
    rng, dut, seen = random.Random(1), bank.dut, []

    async def drive(ctx):
        await send(ctx, dut.updates, [bank.update(rng, wg=0, wf=0, region=1, amount=39)._asdict()], rng)
        # The last write is at hand without its memory, so another one follows.
        await send(ctx, dut.updates, [bank.update(rng, wg=2, wf=0, region=1, amount=1)._asdict()], rng)
        await ctx.tick().repeat(5)
        if flip:
            word = dut.entries[0].data[0]
            ctx.set(word, ctx.get(word) ^ 1)
        await send(ctx, dut.updates, [bank.update(rng, wg=0, wf=0, region=1, amount=1)._asdict()], rng)
        passed = 1
        while not ctx.get(dut.triggers.valid):
            await ctx.tick()
            passed += 1
        seen.append(passed)

    bank.bench.process(drive, background=False)
    bank.bench.run(cycles=100)
    assert seen == [cycles]
    assert [fault["uncorrectable"] for fault in bank.faults] == [0] * flip
