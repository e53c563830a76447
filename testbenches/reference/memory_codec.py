"""Reference for `t3sim.rtl.track.memory_codec`: a word is judged by trying every bit, not by its syndrome."""

from typing import NamedTuple

from t3sim.rtl.check_bits import check_bits, columns


class Judged(NamedTuple):
    """Judgement of a word that was read."""

    found: int
    corrected: bool
    uncorrectable: bool


class MemoryCodecModel:
    def __init__(self, protection: str, data_bits: int):
        self.data_bits, self.word_bits = data_bits, data_bits + check_bits(protection, data_bits)
        self._corrects = protection == "secded"
        self._columns = columns(protection, data_bits)

    def encode(self, data: int) -> int:
        check = 0
        for bit, column in enumerate(self._columns):
            if data >> bit & 1:
                check ^= column
        return data | check << self.data_bits

    def _data(self, word: int) -> int:
        return word & ((1 << self.data_bits) - 1)

    def _consistent(self, word: int) -> bool:
        return self.encode(self._data(word)) == word

    def decode(self, word: int) -> Judged:
        """Return the word itself if its check bits are right, the only right one a flip away, or neither."""
        if self._consistent(word):
            return Judged(self._data(word), False, False)
        near = [word ^ 1 << bit for bit in range(self.word_bits) if self._consistent(word ^ 1 << bit)]
        if self._corrects and near:
            nearest, = near
            return Judged(self._data(nearest), True, False)
        return Judged(self._data(word), False, True)
