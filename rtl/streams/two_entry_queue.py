"""A stream register that cuts every combinational path."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class TwoEntryQueue(wiring.Component):
    """Two-entry stream queue: full rate, and both `input.ready` and `output.valid` come from registers.

    Members
    -------
    following : Out(shape)
        Only with `look_ahead`: `output.payload` of the next cycle, if valid then. Known late.
    """

    def __init__(self, shape, *, look_ahead: bool = False):
        super().__init__({
            "input": In(stream.Signature(shape)),
            "output": Out(stream.Signature(shape)),
            **({"following": Out(shape)} if look_ahead else {}),
        })
        self._shape, self._look_ahead = shape, look_ahead

    def elaborate(self, platform):
        m = Module()
        front = Signal(self._shape, reset_less=True)
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
        if self._look_ahead:
            m.d.comb += Value.cast(self.following).eq(
                Mux(front_valid & ~self.output.ready, front, Mux(back_valid, back, self.input.payload)))
        return m
