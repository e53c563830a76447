"""Cycle-exact model of `t3sim.rtl.track.corrected_row`: a row of words with check bits, searched for a tile."""

from typing import NamedTuple

from t3sim.testbenches.reference.memory_codec import MemoryCodecModel


class Row(NamedTuple):
    """Input of a search. Tags are (tag << 1 | valid), and in `tags` have check bits above them."""

    tags: list[int]
    entries: list[int]
    last_way: int  #: one-hot; 0 if the last write was to another row
    last_tag: int
    last_entry: int


class Fault(NamedTuple):
    """Flipped bits, with the fields of `t3sim.rtl.layouts.fault_report` but the set."""

    uncorrectable: int
    in_entry: int
    way: int


class Shown(NamedTuple):
    """The outputs of one cycle."""

    used: int
    match: int
    entry: int
    flawed: int
    lost: int
    fault: Fault | None


class CorrectedRowModel:
    """A model to be asked once per cycle: `show` gives the outputs, `tick` takes the search that ends in it."""

    def __init__(self, protection: str, ways: int, tag_bits: int, entry_bits: int) -> None:
        self.ways, self.tag_bits = ways, tag_bits
        self.tag_codec = MemoryCodecModel(protection, 1 + tag_bits)
        self.entry_codec = MemoryCodecModel(protection, entry_bits)
        self._used: list[int] = []  #: ways
        self._match: int | None = None
        self._word = 0  #: of the entry, as it was read
        self._entry = 0  #: as it is shown
        self._settled = True  #: nothing is left to be corrected in it
        self._lost = False
        self._in_tags: Fault | None = None  #: told in the first cycle of the result
        self._first = False

    def show(self, needed: bool) -> Shown:
        flawed = needed and not self._settled
        fault = self._in_tags if self._first else None
        if flawed and not self._first:
            fault = Fault(int(self.entry_codec.decode(self._word).uncorrectable), 1, self._match)
        return Shown(sum(1 << way for way in self._used), 0 if self._match is None else 1 << self._match, self._entry,
                     int(flawed), int(self._lost), fault)

    def tick(self, needed: bool, row: Row | None = None, tag: int = 0) -> None:
        if needed and not self._settled and not self._first:
            judged = self.entry_codec.decode(self._word)
            self._entry, self._lost, self._settled = judged.found, judged.uncorrectable, True
        self._first = row is not None
        if row is not None:
            self._search(row, tag << 1 | 1)

    def _search(self, row: Row, wanted: int) -> None:
        """Search a row and leave the result. `wanted`: the tag with its valid bit."""
        judged = {way: self.tag_codec.decode(word) for way, word in enumerate(row.tags)
                  if not row.last_way >> way & 1}
        lost = [way for way, found in judged.items() if found.uncorrectable]
        tags = {way: found.found for way, found in judged.items() if way not in lost}
        last, = [way for way in range(self.ways) if way not in judged] or [None]
        if last is not None:
            tags[last] = row.last_tag
        self._used = lost + [way for way, tag in tags.items() if tag & 1]
        self._match, = [way for way, tag in tags.items() if tag == wanted] or [None]
        self._word, self._settled = 0, True
        if self._match is not None and self._match == last:
            self._word = row.last_entry
        elif self._match is not None:
            self._word = row.entries[self._match]
            found = self.entry_codec.decode(self._word)
            self._settled = not (found.corrected or found.uncorrectable)
        self._entry = self._word & ((1 << self.entry_codec.data_bits) - 1)
        self._lost = False
        corrected = [way for way, found in judged.items() if found.corrected]
        hurt = lost or corrected
        self._in_tags = Fault(int(bool(lost)), 0, min(hurt)) if hurt else None
