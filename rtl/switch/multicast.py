"""Copies a packet to its destination ports."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.switch.packets import bound_packet, switch_packet


class Multicast(wiring.Component):
    """Copies a packet to the ports of its mask, once each, as soon as each port takes it.

    1. No port waits for another. The next packet follows when all ports have the one before.
    2. A packet with an empty mask is dropped and reported.
    3. `packets.ready` depends on `copies[*].ready` and on the packet's mask.

    Members
    -------
    packets : In(stream(bound_packet))
        Once offered a packet must stay.
    nowhere : Out(1)
        Pulse: the packet taken in this cycle had an empty mask.
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
        have = Signal(len(self.copies))  # ports that already have the packet
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
