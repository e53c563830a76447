"""Keeps what comes over a link until it can go on, and gives the link's other end its credits back."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.streams.pointer_queue import PointerQueue


class CreditedInput(wiring.Component):
    """The receiving end of a link: a place for each credit of the sending one, so that what arrives need not wait.

    Parameters
    ----------
    shape : a layout
        Of a packet.
    places : int
        Credits that the sending end starts with; 2 at least.

    Members
    -------
    arriving : In(valid, payload)
        At most a packet in a cycle, which cannot be held up.
    packets : Out(stream(shape))
        In the order of arrival.
    returned : Out(1)
        Pulse: a credit, in the cycle after a packet has left. A register.
    overrun : Out(1)
        Pulse: a packet comes without a credit while no place is free; it is lost.
    """

    def __init__(self, shape, places: int) -> None:
        super().__init__({
            "arriving": In(data.StructLayout({"valid": 1, "payload": shape})),
            "packets": Out(stream.Signature(shape)),
            "returned": Out(1),
            "overrun": Out(1),
        })
        self._shape, self._places = shape, places

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = PointerQueue(self._shape, self._places)
        wiring.connect(m, wiring.flipped(self.packets), queue.output)
        m.d.comb += [
            queue.input.valid.eq(self.arriving.valid),
            queue.input.payload.eq(self.arriving.payload),
            self.overrun.eq(self.arriving.valid & ~queue.input.ready),
        ]
        m.d.sync += self.returned.eq(self.packets.valid & self.packets.ready)
        return m
