"""Flips bits in the memories of a Tracker bank, through the ports that it has for that (`t3sim.cosim.flippable`)."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from t3sim.rtl.check_bits import check_bits
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.bench import Bench
from t3sim.testbenches.monitors import PulseMonitor


def protected(geometry: Geometry) -> bool:
    return geometry.tracker.protection != "none"


def corrects(geometry: Geometry) -> bool:
    return geometry.tracker.protection == "secded"


class Place(NamedTuple):
    """The place of a word."""

    in_entry: int  #: 0: in a tag
    way: int
    row: int


class Flips:
    """An agent that flips bits: in every cycle `choose` may name a word and a mask, unless its way is written."""

    def __init__(self, bench: Bench, choose: Callable[[], tuple[Place, int] | None] = lambda: None) -> None:
        g, t = bench.geometry, bench.geometry.tracker
        self._bench, self.choose = bench, choose
        data_bits = 1 + t.tag_bits, t.address_bits + t.count_bits + g.dma.region_bits
        self._word_bits = [bits + check_bits(t.protection, bits) for bits in data_bits]
        self.places = [Place(*place) for place in product(range(2), range(t.ways), range(t.sets_per_bank))]
        self.flipped: set[Place] = set()  #: since the reset
        bench.add(self)

    def mask(self, place: Place, count: int) -> int:
        """Draw this many random bits of the word."""
        return sum(1 << bit for bit in self._bench.rng.sample(range(self._word_bits[place.in_entry]), count))

    async def flip(self, place: Place, mask: int) -> None:
        self.choose = lambda: (place, mask)
        await self._bench.cycle()
        self.choose = lambda: None

    def drive(self) -> None:
        chosen = self.choose()
        place, mask = chosen or (Place(0, 0, 0), 0)
        if chosen:
            self.flipped.add(place)
        for name, value in (("mask", mask), ("in_entry", place.in_entry), ("way", place.way), ("row", place.row)):
            self._bench.set(f"flip_{name}", value)

    def sample(self) -> None:
        pass

    def reset(self) -> None:
        self.flipped.clear()


class Faults:
    """Report of the bank on flipped bits; it must be where some have flipped."""

    def __init__(self, bench: Bench, flips: Flips) -> None:
        self._bench, self._flips = bench, flips
        self.told: list[dict] = []
        PulseMonitor(bench, "fault", self._check)

    def _check(self, fault: dict) -> None:
        place = Place(fault["in_entry"], fault["way"], fault["set"] // self._bench.geometry.tracker.banks)
        assert place in self._flips.flipped, f"nothing has flipped there: {fault}"
        self._bench.reach(f"{'an entry' if place.in_entry else 'a tag'} is "
                          f"{'lost' if fault['uncorrectable'] else 'corrected'}")
        self.told.append(fault)


class Met(NamedTuple):
    """State of a row that an update meets."""

    way: int | None  #: of its tile's entry, or of the one that it opens; None if no way is free
    opened: bool
    lost: bool  #: the entry cannot be corrected: nothing is written
    faults: list[dict]


class HurtRow:
    """Content of a bank's row while bits of its words have flipped.

    The bank is idle before each update, so that every write has reached its memory.
    """

    def __init__(self, ways: int, corrected: int) -> None:
        self._corrected = corrected  #: flips of a word
        self.tiles: list[object | None] = [None] * ways
        self.flips: dict[tuple[int, int], int] = {}  #: by (in_entry, way)
        self.recent: int | None = None  #: the way of the bank's last write, which is at hand without its memory

    def meet(self, tile: object) -> Met:
        hurt = [way for in_entry, way in self.flips if not in_entry and way != self.recent]
        lost = [way for way in hurt if self.flips[0, way] > self._corrected]
        faults = [{"uncorrectable": int(bool(lost)), "in_entry": 0, "way": min(lost or hurt)}] if hurt else []
        found = [way for way, other in enumerate(self.tiles) if other == tile and way not in lost]
        if not found:
            free = [way for way, other in enumerate(self.tiles) if other is None and way not in lost]
            return Met(min(free, default=None), True, False, faults)
        way, = found
        flips = 0 if way == self.recent else self.flips.get((1, way), 0)
        if flips:
            faults.append({"uncorrectable": int(flips > self._corrected), "in_entry": 1, "way": way})
        return Met(way, False, flips > self._corrected, faults)

    def write(self, way: int, tile: object | None) -> None:
        """Note that both words of the way are as new."""
        self.tiles[way] = tile
        self.recent = way
        for in_entry in range(2):
            self.flips.pop((in_entry, way), None)
