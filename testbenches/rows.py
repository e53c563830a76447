"""Random rows of a protected Tracker bank, as `t3sim.rtl.track.corrected_row` meets them."""

import random

from t3sim.testbenches.reference.corrected_row import CorrectedRowModel, Row
from t3sim.testbenches.reference.memory_codec import MemoryCodecModel


class Rows:
    """A row's valid tags differ, whatever flips; the way of the last write may hold anything older."""

    def __init__(self, rng: random.Random, model: CorrectedRowModel, corrects: bool) -> None:
        self._rng, self._model = rng, model
        #: Further flips could look like fewer: of parity's codes, two like none.
        self._flips = (1, 2) if corrects else (1,)

    def search(self) -> tuple[Row, int]:
        """Draw a row, and the tag to look for, which is there more often than not."""
        rng, model = self._rng, self._model
        wanted = rng.getrandbits(model.tag_bits)
        tags = self._tags(wanted)
        last = rng.randrange(model.ways) if rng.random() < 0.5 else None
        last_tag = self._tag(wanted if rng.random() < 0.5 else rng.getrandbits(model.tag_bits))
        if last is not None:
            last_tag = tags[last]
            tags[last] = self._tag(rng.choice([wanted, rng.getrandbits(model.tag_bits)]))
        most, entry_bits = rng.choice((0, 0.2, 1)), model.entry_codec.data_bits
        return Row([self._word(model.tag_codec, tag, most) for tag in tags],
                   [self._word(model.entry_codec, rng.getrandbits(entry_bits), max(most, 0.5)) for _ in tags],
                   0 if last is None else 1 << last, last_tag, rng.getrandbits(entry_bits)), wanted

    def _tags(self, wanted: int) -> list[int]:
        """Draw the tags of all ways, with their valid bits. Some are a bit away from the wanted one."""
        rng, model = self._rng, self._model
        others = {rng.getrandbits(model.tag_bits) if rng.random() < 0.5 else wanted ^ 1 << rng.randrange(model.tag_bits)
                  for _ in range(model.ways)} - {wanted}
        found = [self._tag(tag) for tag in others]
        if rng.random() < 0.8:
            found.insert(0, wanted << 1 | 1)
        found = found[:model.ways]
        while len(found) < model.ways:
            found.append(rng.choice([wanted, rng.getrandbits(model.tag_bits)]) << 1)  # not valid
        rng.shuffle(found)
        return found

    def _tag(self, tag: int) -> int:
        return tag << 1 | (self._rng.random() < 0.7)

    def _word(self, codec: MemoryCodecModel, value: int, share: float) -> int:
        """Return a word as it was written or, `share` of them, with flipped bits."""
        word = codec.encode(value)
        if self._rng.random() < share:
            for bit in self._rng.sample(range(codec.word_bits), self._rng.choice(self._flips)):
                word ^= 1 << bit
        return word
