"""Hands a packet to each of the ports that it is for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.switch.packets import bound_packet, switch_packet


class Multicast(wiring.Component):
    """Copies a packet to the ports of its mask, each once, each as soon as it takes it.

    No port waits for another; the next packet comes when all have the one before. A packet for no port is taken, and
    reported. `packets.ready` depends on `copies[*].ready` and on the packet's mask.

    Members
    -------
    packets : In(stream(bound_packet))
        Once offered a packet must stay.
    copies : Out(stream(switch_packet)).array(ports)
    nowhere : Out(1)
        Pulse: the packet taken in this cycle was for no port.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__({
            "packets": In(stream.Signature(bound_packet(geometry))),
            "copies": Out(stream.Signature(switch_packet(geometry))).array(geometry.switch.ports),
            "nowhere": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        incoming = self.packets.payload
        have = Signal(len(self.copies))  # ports that have the packet already
        taken = Signal(len(self.copies))
        left = Signal(len(self.copies))
        m.d.comb += [
            left.eq(incoming.to & ~have),
            self.packets.ready.eq((left & ~taken) == 0),
            self.nowhere.eq(self.packets.valid & (incoming.to == 0)),
        ]
        for number, copy in enumerate(self.copies):
            m.d.comb += [
                copy.valid.eq(self.packets.valid & left[number]),
                copy.payload.eq(incoming.packet),
                taken[number].eq(copy.ready),
            ]
        with m.If(self.packets.valid):
            m.d.sync += have.eq(Mux(self.packets.ready, 0, have | (left & taken)))
        return m
