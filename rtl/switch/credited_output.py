"""The sending end of a link: sends only what the receiving end has room for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class CreditedOutput(wiring.Component):
    """The sending end of a link: a packet costs a credit, which returns when the packet has left the other end.

    Parameters
    ----------
    shape : a layout
        Of a packet.
    credits : int
        Places at the other end, which must be reset with this one.

    Members
    -------
    packets : In(stream(shape))
        `ready` is a function of registers.
    leaving : Out(valid, payload)
        A register: the packet taken in the cycle before.
    returned : In(1)
        Pulse: a credit returns.
    restore : In(1)
        Pulse: all credits are here, except for packets that leave from the next cycle on. For a receiving end that was
        reset alone and holds no credits.
    excess : Out(1)
        Pulse: a credit returns though none is missing, and is ignored.
    rests : Out(1)
        All credits are here, and nothing leaves.
    """

    def __init__(self, shape, credits: int) -> None:
        super().__init__({
            "packets": In(stream.Signature(shape)),
            "leaving": Out(data.StructLayout({"valid": 1, "payload": shape})),
            "returned": In(1),
            "restore": In(1),
            "excess": Out(1),
            "rests": Out(1),
        })
        self._credits = credits

    def elaborate(self, platform) -> Module:
        m = Module()
        spent = Signal(range(self._credits + 1))
        sends = Signal()
        m.d.comb += [
            self.packets.ready.eq(spent != self._credits),
            sends.eq(self.packets.valid & self.packets.ready),
            self.excess.eq(self.returned & (spent == 0)),
            self.rests.eq((spent == 0) & ~self.leaving.valid),
        ]
        m.d.sync += [
            self.leaving.valid.eq(sends),
            self.leaving.payload.eq(self.packets.payload),
            spent.eq(Mux(self.restore, 0, spent - (self.returned & ~self.excess)) + sends),
        ]
        return m
