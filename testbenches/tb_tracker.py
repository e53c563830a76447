"""TrackerBank against its model: random tiles on few sets, errors, a full set, resets in flight."""

from rtl.registers import ERRORS
from sim_models.reference.coalescer import Update
from sim_models.reference.tracker import TrackerModel

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import CycleMonitor, PulseMonitor, StreamMonitor
from .pauses import never
from .scoreboard import Scoreboard


class Tracker:
    """The bank with its drivers, its model, and what is expected of it."""

    def __init__(self, bench: Bench) -> None:
        self.blocked = 0  # updates that found their set full
        self.bench, self.geometry = bench, bench.geometry.tracker
        largest = (1 << self.geometry.count_bits) - 1
        # One of kind 1 is not tracked, 2 has no threshold, 3 the largest; from 4 on short tiles.
        short = (min(largest, bench.rng.randrange(40 * tiles, 40 * tiles + 40))
                 for tiles in range(1, bench.geometry.dma.regions - 3))
        self.thresholds = [None, None, 0, largest, *short]
        others = range(1, len(self.thresholds))
        self.regions = [0, *bench.rng.sample(others, len(others))]  #: of each kind
        table = [None] * len(self.thresholds)
        for region, threshold in zip(self.regions, self.thresholds):
            table[region] = threshold
            unused = bench.rng.randrange(largest)
            bench.set(f"thresholds[{region}]", unused if threshold is None else threshold)
            bench.set(f"tracked[{region}]", threshold is not None if region else bench.rng.getrandbits(1))
        self.model = TrackerModel(self.geometry, table)
        self.triggers, self.errors = Scoreboard("triggers"), Scoreboard("errors")
        self.updates = StreamDriver(bench, "updates", on_accept=self.accepted)
        self.output = StreamMonitor(bench, "triggers", self.triggers.check)
        PulseMonitor(bench, "error", self.errors.check)

    def accepted(self, item: dict) -> None:
        outcome = self.model.apply(Update(**item))
        self.blocked += outcome.blocked
        self.bench.reach(outcome.error or "no error")
        self.bench.reach("full set", self.model.occupied >= self.geometry.ways)
        if outcome.trigger:
            self.triggers.expect(outcome.trigger)
        if outcome.error:
            details = {name: item[name] for name in ("address", "region", "wf", "wg")}
            self.errors.expect({"code": ERRORS[outcome.error.lower()], "details": details})

    def update(self, wg: int, wf: int, kind: int, amount: int) -> dict:
        return {"address": self.bench.rng.getrandbits(self.geometry.address_bits), "amount": amount,
                "source": self.bench.rng.randrange(3), "region": self.regions[kind], "wf": wf, "wg": wg}

    def traffic(self, count: int) -> list[dict]:
        """Updates that never find a full set; most tiles end at their threshold, some beyond it."""
        t, rng = self.geometry, self.bench.rng
        most = (1 << self.bench.geometry.channel.amount_bits) - 1
        bank = rng.randrange(t.banks)
        rows = {bank + t.banks * n: {} for n in range(min(3, t.sets_per_bank))}
        items: list[dict] = []
        while len(items) < count:
            row, tiles = rng.choice(list(rows.items()))
            wf, wg = rng.randrange(1 << t.wf_bits), row + t.sets * rng.randrange(1 << (t.wg_bits - t.set_bits))
            if len(tiles) == t.ways or (tiles and rng.random() < 0.6):
                (wg, wf), (kind, left) = rng.choice(list(tiles.items()))
            elif (wg, wf) in tiles:
                continue
            else:
                kind = rng.randrange(3, len(self.thresholds))
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
            excess = rng.randrange(1, 3) if fate < 0.15 else 0
            amount = min(most, left + excess if fate < 0.5 else rng.randint(1, left))
            tiles[wg, wf] = kind, left - amount
            if left <= amount:
                del tiles[wg, wf]
            items.append(self.update(wg, wf, kind, amount))
        return items


@rounds(12, cover=("REGION_UNCONFIGURED", "THRESHOLD_EXCEEDED", "full set"))
async def random_updates(bench: Bench) -> None:
    tracker = Tracker(bench)
    tracker.updates.send_all(tracker.traffic(300))
    if await bench.run(lambda: tracker.updates.idle and tracker.triggers.empty, 10_000):
        tracker.triggers.check_empty()
        tracker.errors.check_empty()
        assert tracker.triggers.matched > 20 and tracker.errors.matched > 5
        assert not tracker.blocked
        assert bench.get("occupied") == tracker.model.occupied and not bench.get("busy")


@rounds(1)
async def back_to_back_updates_of_one_entry(bench: Bench) -> None:
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
async def an_update_without_a_free_way_waits(bench: Bench) -> None:
    tracker = Tracker(bench)
    t = tracker.geometry
    tracker.updates.send_all(tracker.update(t.sets * n, 0, 3, 1) for n in range(t.ways))
    tracker.updates.send(tracker.update(t.sets * t.ways, 1, 4, tracker.thresholds[4]))  # complete: needs no way
    tracker.updates.send(tracker.update(t.sets * t.ways, 1, 4, tracker.thresholds[4] + 1))  # nor does an error
    tracker.updates.send(tracker.update(t.sets * (t.ways + 1), 1, 3, 1))
    if not await bench.run(lambda: tracker.blocked and tracker.triggers.empty, 2_000):
        return
    for _ in range(100):
        assert bench.get("stalled_full") and bench.get("busy")
        assert bench.get("updates.ready") == (t.protection != "none"), "room for one more behind it"
        assert bench.get("occupied") == t.ways
        await bench.cycle()
    assert tracker.triggers.matched == 1
