"""A stream register that cuts every combinational path."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class TwoEntryQueue(wiring.Component):
    """Two-entry stream queue: full rate, and both `input.ready` and `output.valid` come from registers.

    Members
    -------
    input : In(stream(shape))
    output : Out(stream(shape))
    """

    def __init__(self, shape):
        super().__init__({
            "input": In(stream.Signature(shape)),
            "output": Out(stream.Signature(shape)),
        })
        self._shape = shape

    def elaborate(self, platform):
        m = Module()
        front = Signal(self._shape, reset_less=True)  # count only when valid
        back = Signal(self._shape, reset_less=True)
        front_valid = Signal()
        back_valid = Signal()
        m.d.comb += [
            self.input.ready.eq(~back_valid),
            self.output.valid.eq(front_valid),
            self.output.payload.eq(front),
        ]
        with m.If(~front_valid | self.output.ready):
            m.d.sync += [front_valid.eq(back_valid | self.input.valid), back_valid.eq(0)]
            with m.If(back_valid):
                m.d.sync += front.eq(back)
            with m.Elif(self.input.valid):
                m.d.sync += front.eq(self.input.payload)
        with m.Elif(self.input.valid & ~back_valid):
            m.d.sync += [back.eq(self.input.payload), back_valid.eq(1)]
        return m
