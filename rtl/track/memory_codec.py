"""Check bits of a memory word: added when it is written, checked when it is read."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.check_bits import check_bits, columns
from t3sim.rtl.geometry import GeometryError


class MemoryCodec(wiring.Component):
    """Encoder and decoder of one word, combinational; the code is `t3sim.rtl.check_bits.columns`.

    1. "secded" corrects one flipped bit, check bits included, and detects two. Three or more may look like one.
    2. "parity" detects any odd number of flipped bits and corrects none.

    The decoder compares the syndrome (recomputed against stored check bits) with each bit's column.

    Members
    -------
    data : In(data_bits)
        Data to write.
    word : Out(data_bits + check bits)
        Word to write: the data, and above them the check bits.
    stored : In(data_bits + check bits)
        Word that was read.
    found : Out(data_bits)
        Its data, corrected if possible.
    wrong : Out(1)
        It is no code word. Known before `corrected` and `uncorrectable`.
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
