"""TrackerBank against its model: random tiles on few sets, errors, a full set, resets in flight, flipped bits.

The bits flip in protected memories.
"""

from t3sim.rtl.registers import ERRORS
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.flips import Faults, Flips, HurtRow, Place, corrects, protected
from t3sim.testbenches.monitors import CycleMonitor, PulseMonitor, StreamMonitor
from t3sim.testbenches.pauses import never
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.tracker import LOCAL, TrackerModel, Trigger
from t3sim.testbenches.scoreboard import MismatchError, Scoreboard, words


class Tracker:
    """The bank with its drivers, its model, and what is expected of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.geometry = bench, bench.geometry.tracker
        largest = (1 << self.geometry.count_bits) - 1
        # One of kind 1 is not tracked, 2 has no threshold, 3 the largest; from 4 on short tiles, of the last two alike.
        short = [min(largest, bench.rng.randrange(40 * tiles, 40 * tiles + 40))
                 for tiles in range(1, bench.geometry.dma.regions - 4)]
        self.thresholds = [None, None, 0, largest, *short, short[-1]]
        self._near = bench.rng.getrandbits(self.geometry.address_bits)
        others = range(1, len(self.thresholds))
        self.regions = [0, *bench.rng.sample(others, len(others))]  #: of each kind
        table, families = [None] * len(self.thresholds), [0] * len(self.thresholds)
        names = bench.rng.sample(range(bench.geometry.dma.regions), len(self.thresholds))
        for region, threshold in zip(self.regions, self.thresholds):
            table[region] = threshold
            families[region] = names[self.thresholds.index(threshold)]  # those with one threshold are of one family
            bench.set(f"families[{region}]", families[region])
            unused = bench.rng.randrange(largest)
            bench.set(f"thresholds[{region}]", unused if threshold is None else threshold)
            bench.set(f"tracked[{region}]", threshold is not None if region else bench.rng.getrandbits(1))
        self.model = TrackerModel(self.geometry, table, families)
        self.triggers, self.errors = Scoreboard("triggers"), Scoreboard("errors")
        self.updates = StreamDriver(bench, "updates", on_accept=self.accepted)
        self.output = StreamMonitor(bench, "triggers", self.fired)
        PulseMonitor(bench, "error", self.told)
        self.full = 0  # updates refused because their set is
        CycleMonitor(bench, self.looked)

    def looked(self) -> None:
        self.full += self.bench.get("refused_full")

    def fired(self, trigger: dict) -> None:
        self.triggers.check(trigger)

    def told(self, error: dict) -> None:
        self.errors.check(error)

    def accepted(self, item: dict) -> None:
        outcome = self.model.apply(Update(**item))
        self.bench.reach(outcome.error or "no error")
        self.bench.reach("full set", self.model.occupied >= self.geometry.ways)
        if outcome.trigger:
            self.triggers.expect(outcome.trigger)
        if outcome.error:
            self.expect_error(outcome.error, item)

    def expect_error(self, name: str, item: dict) -> None:
        details = {name: item[name] for name in ("address", "region", "wf", "wg")}
        self.errors.expect({"code": ERRORS[name.lower()], "details": details})

    def update(self, wg: int, wf: int, kind: int, amount: int) -> dict:
        """Make an update of the kind's region, or another one with its threshold; many addresses differ in few bits."""
        rng, bits = self.bench.rng, self.geometry.address_bits
        region = rng.choice([region for region, threshold in zip(self.regions, self.thresholds)
                             if threshold and threshold == self.thresholds[kind]] or [self.regions[kind]])
        address = rng.getrandbits(bits) if rng.random() < 0.5 else self._near ^ 1 << rng.randrange(bits)
        return {"address": address, "amount": amount, "source": rng.randrange(3), "region": region, "wf": wf, "wg": wg}

    def traffic(self, count: int) -> list[dict]:
        """Draw updates that never find a full set; most tiles end at their threshold, some beyond it."""
        t, rng = self.geometry, self.bench.rng
        most = (1 << self.bench.geometry.channel.amount_bits) - 1
        bank = rng.randrange(t.banks)
        near = range(min(3, t.sets_per_bank - 1))
        rows = {bank + t.banks * n: {} for n in (*near, t.sets_per_bank - 1)}
        kinds = range(3, len(self.thresholds))  # one that takes many updates is rare, or it would hold a row's only way
        weights = [min(1, 2 * most / self.thresholds[kind]) for kind in kinds]
        items: list[dict] = []
        while len(items) < count:
            row, tiles = rng.choice(list(rows.items()))
            wf, wg = rng.randrange(1 << t.wf_bits), row + t.sets * rng.randrange(1 << (t.wg_bits - t.set_bits))
            if len(tiles) == t.ways or (tiles and rng.random() < 0.6):
                (wg, wf), (kind, left) = rng.choice(list(tiles.items()))
            elif (wg, wf) in tiles:
                continue
            else:
                kind, = rng.choices(kinds, weights)
                left = self.thresholds[kind]
            if not tiles and rng.random() < 0.3:  # complete, wrong, too large, in any order: none needs a way
                for _ in range(4):
                    kind = rng.choice((1, 4, 5))
                    items.append(self.update(wg, wf, kind, (self.thresholds[kind] or 1) + (rng.random() < 0.2)))
                continue
            fate = rng.random()
            if fate < 0.05:
                items.append(self.update(wg, wf, rng.randrange(3), 1))
                continue
            if fate < 0.1 and (wg, wf) in tiles:  # of another kind of tile
                own = self.thresholds[tiles[wg, wf][0]]
                other = rng.choice([kind for kind in kinds if self.thresholds[kind] != own])
                items.append(self.update(wg, wf, other, rng.choice((1, self.thresholds[other] & most, most))))
                continue
            excess = rng.randrange(1, 3) if fate < 0.15 else 0
            amount = min(most, left + excess if fate < 0.5 else rng.randint(1, left))
            tiles[wg, wf] = kind, left - amount
            items.append(self.update(wg, wf, kind, amount))
            if left > amount:
                continue
            del tiles[wg, wf]
            if rng.random() < 0.3:  # at once the next one of that name
                tiles[wg, wf] = kind, self.thresholds[kind] - 1
                items.append(self.update(wg, wf, kind, 1))
        return items


async def _random_updates(bench: Bench, tracker: Tracker) -> None:
    tracker.updates.send_all(tracker.traffic(300))
    if await bench.run(lambda: tracker.updates.idle and tracker.triggers.empty, 10_000):
        tracker.triggers.check_empty()
        tracker.errors.check_empty()
        assert tracker.triggers.matched > 20 and tracker.errors.matched > 5
        assert bench.get("occupied") == tracker.model.occupied and not bench.get("busy")


@rounds(12, cover=("REGION_UNCONFIGURED", "THRESHOLD_EXCEEDED", "REGION_MISMATCH", "full set"))
async def random_updates(bench: Bench) -> None:
    """Send random updates to few sets; compare triggers, errors, faults and occupied ways with the model."""
    await _random_updates(bench, Tracker(bench))


@rounds(1)
async def back_to_back_updates_of_one_entry(bench: Bench) -> None:
    """Update one entry in consecutive cycles: each update takes one cycle."""
    cycles: list[int] = []
    tracker = Tracker(bench)
    tracker.updates.pause = tracker.output.pause = never()
    CycleMonitor(bench, lambda: cycles.append(tracker.updates.accepted))
    kind, wg = len(tracker.thresholds) - 1, bench.rng.getrandbits(tracker.geometry.wg_bits)
    items = [tracker.update(wg, 1, kind, 1) for _ in range(3 * tracker.thresholds[kind])]
    tracker.updates.send_all(items)
    if not await bench.run(lambda: tracker.updates.idle and tracker.triggers.empty, 5_000):
        return
    assert tracker.triggers.matched == 3
    assert sum(0 < accepted < len(items) for accepted in cycles) == len(items) - 1, "not one per cycle"


@rounds(3)
async def an_update_without_a_free_way_is_refused(bench: Bench) -> None:
    """Open one tile more than ways: it is refused, open tiles complete, and then there is room."""
    tracker = Tracker(bench)
    t = tracker.geometry
    tracker.updates.send_all(tracker.update(t.sets * n, 0, 3 if n else 4, 1) for n in range(t.ways))
    tracker.updates.send(tracker.update(t.sets * t.ways, 1, 4, tracker.thresholds[4]))  # complete: needs no way
    tracker.updates.send(tracker.update(t.sets * t.ways, 1, 4, tracker.thresholds[4] + 1))  # nor does an error
    for kind in range(3):  # nor what is refused
        tracker.updates.send(tracker.update(t.sets * t.ways, 1, kind, 1))
    tracker.updates.send_all(tracker.update(t.sets * (t.ways + 1), 1, 4, 1) for _ in range(3))
    if not await bench.run(lambda: tracker.updates.idle and not bench.get("busy"), 2_000):
        return
    assert bench.get("occupied") == t.ways == tracker.model.occupied
    assert (tracker.triggers.matched, tracker.errors.matched, tracker.full) == (1, 7, 3)
    tracker.updates.send(tracker.update(0, 0, 4, tracker.thresholds[4]))  # too much: its way is free again
    tracker.updates.send(tracker.update(t.sets * (t.ways + 1), 1, 4, 1))
    tracker.updates.send(tracker.update(t.sets * (t.ways + 1), 1, 4, tracker.thresholds[4] - 1))
    await bench.until(lambda: tracker.updates.idle and not bench.get("busy"), 2_000)
    await bench.cycle(4)
    tracker.triggers.check_empty()
    assert (tracker.triggers.matched, tracker.errors.matched, tracker.full) == (2, 8, 3)


# Protected memories


@rounds(12, cover=("a tag is corrected", "an entry is corrected"), given=corrects)
async def a_flip_of_any_word_changes_nothing(bench: Bench) -> None:
    """Flip the same bit of any word again and again, at any time; all triggers stay right (SECDED)."""
    tracker, flips, pause = Tracker(bench), Flips(bench), bench.pause()
    bits = {place: flips.mask(place, 1) for place in flips.places}
    faults = Faults(bench, flips)
    flips.choose = lambda: None if next(pause) else bench.rng.choice(list(bits.items()))
    await _random_updates(bench, tracker)
    assert not any(fault["uncorrectable"] for fault in faults.told)


@rounds(24, cover=("a tag is lost", "an entry is lost", "no fault"), given=protected)
async def every_flip_is_told_with_its_place(bench: Bench) -> None:
    """Flip one or two bits between updates of one row; compare faults, errors, triggers and ways per update."""
    rng, t, tracker, flips = bench.rng, bench.geometry.tracker, Tracker(bench), Flips(bench)
    tracker.updates.on_accept = None
    most, faults = 2 if t.protection == "secded" else 1, Faults(bench, flips)
    own = rng.randrange(t.sets)
    row, opened_elsewhere = HurtRow(t.ways, most - 1), 0
    names = [(own + t.sets * high, wf) for high in range(1 << (t.wg_bits - t.set_bits)) for wf in range(1 << t.wf_bits)]
    tiles = {tile: rng.randrange(4, len(tracker.thresholds)) for tile in rng.sample(names, t.ways + 2)}
    entries: dict[int, Trigger] = {}  # as they would fire now, by way
    counts: dict[int, int] = {}  # by way

    async def send(item: dict) -> None:
        tracker.updates.send(item)
        await bench.until(lambda: tracker.updates.idle and not bench.get("busy"), 500)
        await bench.cycle(3)

    async def update(tile: tuple[int, int]) -> None:
        met, threshold = row.meet(tile), tracker.thresholds[tiles[tile]]
        if met.way is None:
            return  # it would be refused
        count = 0 if met.opened else counts[met.way]
        amount = threshold - count if count and rng.random() < 0.2 else 1
        item = tracker.update(*tile, tiles[tile], amount)
        fires = Trigger(*(item[name] for name in Trigger._fields))
        if not met.opened:
            before = entries[met.way]
            fires = fires._replace(address=min(before.address, fires.address),
                                   region=fires.region if item["source"] == LOCAL else before.region)
        for fault in met.faults:
            if fault["uncorrectable"]:
                tracker.expect_error("TRACKER_MEMORY", item)
        full = count + amount == threshold
        if full and not met.lost:
            tracker.triggers.expect(fires)
        faults.told.clear()
        await send(item)
        assert faults.told == [fault | {"set": own} for fault in met.faults]
        tracker.errors.check_empty()
        tracker.triggers.check_empty()
        bench.reach("no fault", not met.faults)
        if not met.lost:
            row.write(met.way, None if full else tile)
            entries[met.way], counts[met.way] = fires, count + amount

    await bench.until(lambda: bench.get("updates.ready"), 100)
    for _ in range(40):
        place = Place(rng.randrange(2), rng.randrange(t.ways), own // t.banks)
        chance = rng.random()
        if chance < 0.4 and place[:2] not in row.flips:
            row.flips[place[:2]] = count = rng.randint(1, most)
            await flips.flip(place, flips.mask(place, count))
        elif chance < 0.5 and t.sets_per_bank > 1:
            await send(tracker.update((own + t.banks) % t.sets, 0, 3, 1))
            row.recent, opened_elsewhere = None, 1
        else:
            await update(rng.choice(list(tiles)))
        assert bench.get("occupied") == sum(tile is not None for tile in row.tiles) + opened_elsewhere


class OnceEach(Tracker):
    """Every tile comes once. Of the triggers that are due in their order, some may not come; nothing else may."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.missing: list[dict] = []
        self.lost: list[dict] = []  #: what errors have told
        self._due: list[dict] = []

    def accepted(self, item: dict) -> None:
        outcome = self.model.apply(Update(**item))
        assert outcome.error != "TRACKER_FULL"
        if outcome.trigger:
            self._due.append(outcome.trigger._asdict())

    def fired(self, trigger: dict) -> None:
        if trigger not in self._due:
            raise MismatchError(f"triggers: {words(trigger)} was not expected", trigger)
        at = self._due.index(trigger)
        self.missing += self._due[:at]
        del self._due[:at + 1]

    def told(self, error: dict) -> None:
        if error["code"] != ERRORS["tracker_memory"]:
            raise MismatchError(f"errors: {words(error)} was not expected", error["details"])
        self.lost.append(error["details"])

    def end(self) -> None:
        self.missing += self._due

    def traffic(self, count: int) -> list[dict]:
        """Keep so few tiles open at a time that a row has a way free for one that is lost and one that begins anew."""
        t, rng, items = self.geometry, self.bench.rng, []
        names = [(wg, wf) for wg in range(rng.randrange(t.banks), 1 << t.wg_bits, t.banks)
                 for wf in range(1 << t.wf_bits)]
        rng.shuffle(names)
        rows: dict[int, list[list]] = {wg % t.sets: [] for wg, _ in names}  # tile, kind, bytes that are left
        while len(items) < count or any(rows.values()):
            if names and len(items) < count:
                tile = names.pop()
                if len(rows[tile[0] % t.sets]) < max(1, t.ways - 2):
                    kind = rng.randrange(4, len(self.thresholds))
                    rows[tile[0] % t.sets].append([tile, kind, self.thresholds[kind]])
            if not any(rows.values()):
                continue
            row = rng.choice([row for row in rows.values() if row])
            one = rng.choice(row)
            tile, kind, left = one
            amount = left if rng.random() < 0.2 else rng.randint(1, left)
            one[2] -= amount
            if not one[2]:
                row.remove(one)
            items.append(self.update(*tile, kind, amount))
        return items


@rounds(32, cover=("a tag is lost", "an entry is lost", "a tile never fires"),
        given=lambda geometry: protected(geometry) and geometry.tracker.ways > 2)
async def a_word_that_is_lost_never_fires(bench: Bench) -> None:
    """Flip more bits than can be corrected, in one word per row at most; only those tiles do not trigger."""
    rng, t, tracker, flips = bench.rng, bench.geometry.tracker, OnceEach(bench), Flips(bench)
    faults, rows = Faults(bench, flips), rng.sample(range(t.sets_per_bank), t.sets_per_bank)

    def flip() -> tuple[Place, int] | None:
        if not rows or rng.random() > 0.02:
            return None
        place = Place(rng.randrange(2), rng.randrange(t.ways - 2), rows.pop())  # the ways that are taken first
        return place, flips.mask(place, 2 if t.protection == "secded" else 1)

    flips.choose = flip
    tracker.updates.send_all(tracker.traffic(200))
    if not await bench.run(lambda: tracker.updates.idle and not bench.get("busy"), 10_000):
        return
    tracker.end()
    assert all(fault["uncorrectable"] for fault in faults.told) and len(tracker.lost) == len(faults.told)
    told = {details["wg"] % t.sets for details in tracker.lost}
    assert told == {fault["set"] for fault in faults.told} >= {trigger["wg"] % t.sets for trigger in tracker.missing}
    assert len(tracker.missing) <= len(flips.flipped)
    bench.reach("a tile never fires", bool(tracker.missing))
