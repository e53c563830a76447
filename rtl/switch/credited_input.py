"""The receiving end of a link: buffers packets and returns credits."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.streams.pointer_queue import PointerQueue


class CreditedInput(wiring.Component):
    """The receiving end of a link, with a place for each credit of the sending end, so arrivals never wait.

    Parameters
    ----------
    shape : a layout
        Of a packet.
    places : int
        Initial credits of the sending end, at least 2.

    Members
    -------
    arriving : In(valid, payload)
        At most one packet per cycle, without back-pressure.
    packets : Out(stream(shape))
        In the order of arrival.
    returned : Out(1)
        Pulse: a credit, in the cycle after a packet has left. A register.
    overrun : Out(1)
        Pulse: a packet without a credit arrives while no place is free, and is lost.
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
