"""Check bits around a memory: what is written gets them, what is read is judged and corrected by them."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.check_bits import check_bits, columns
from t3sim.rtl.geometry import GeometryError


class MemoryCodec(wiring.Component):
    """Encoder and decoder of one word, combinational; the code is `t3sim.rtl.check_bits.columns`.

    "secded" corrects a flipped bit, also a check bit, and detects two. "parity" detects any odd number and corrects
    nothing. The decoder compares the syndrome (the check bits of what was read, with those read beside it) with each
    bit's column. Three flips or more may look like one.

    Parameters
    ----------
    protection : "parity" or "secded"
    data_bits : int, at least 1

    Members
    -------
    data : In(data_bits)
        What is to be kept.
    word : Out(data_bits + check bits)
        What is to be written: the data, and above them the check bits.
    stored : In(data_bits + check bits)
        What was read.
    found : Out(data_bits)
        Its data, corrected; as they were read if that is impossible.
    wrong : Out(1)
        It is not a word as it was written. Known before the two that follow.
    corrected, uncorrectable : Out(1)
        One of them is 1 when `wrong` is.
    """

    def __init__(self, protection: str, data_bits: int):
        if protection not in ("parity", "secded"):
            raise GeometryError(f"protection={protection!r} is impossible: a memory codec is parity or secded")
        if type(data_bits) is not int or data_bits < 1:
            raise GeometryError(f"data_bits={data_bits!r} is impossible: at least 1 is needed")
        self._protection, self._columns = protection, columns(protection, data_bits)
        word_bits = data_bits + check_bits(protection, data_bits)
        super().__init__({
            "data": In(data_bits),
            "word": Out(word_bits),
            "stored": In(word_bits),
            "found": Out(data_bits),
            "wrong": Out(1),
            "corrected": Out(1),
            "uncorrectable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        width = len(self.data)
        rows = range(len(self.word) - width)
        syndrome = Signal(len(rows))
        flipped = Signal(len(self.word))
        m.d.comb += [
            self.word.eq(Cat(self.data, *(self._parity(self.data, row) for row in rows))),
            syndrome.eq(Cat(self._parity(self.stored[:width], row) ^ self.stored[width + row] for row in rows)),
            self.found.eq(self.stored[:width] ^ flipped[:width]),
            self.wrong.eq(syndrome.any()),
            self.corrected.eq(flipped.any()),
            self.uncorrectable.eq(syndrome.any() & ~flipped.any()),
        ]
        if self._protection == "secded":
            alone = [1 << row for row in rows]
            m.d.comb += flipped.eq(Cat(syndrome == column for column in (*self._columns, *alone)))
        return m

    def _parity(self, data, row):
        return Cat(data[bit] for bit, column in enumerate(self._columns) if column >> row & 1).xor()
