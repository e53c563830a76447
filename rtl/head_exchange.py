"""Sends the head of this GPU's dispatch window to those that send to it, and keeps the heads that come from others."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .geometry import Geometry
from .layouts import head_packet, listener
from .registers import EPOCH_BITS
from .rotating_grant import rotating_grant


class HeadExchange(wiring.Component):
    """The credits of the dispatch windows, as packets of their own on the links.

    A GPU starts what reaches a peer only while that is inside the peer's window, which is known by its head. So each
    GPU tells its head to those that send to it. A head that moved is due to each of them; one packet at a time leaves,
    in turn, with the head of the moment it is made in. A head that moves on meanwhile is due again: at most one packet
    per peer waits, however slow a link is, and the last one that leaves has the last head. Packets of one GPU must not
    overtake each other, and must not wait behind data that wait for memory: those may wait for the head.

    What comes from a GPU replaces what is known of it; from one that nobody here sends to it is dropped. A GPU that is
    newly told gets the head at once. Who is told and heard is programmed on all GPUs before the first of them restarts.

    Members
    -------
    head : In(wg_bits + 1), epoch : In(EPOCH_BITS)
        Of this GPU's dispatch window.
    number : In(device_bits)
        This GPU's.
    told : In(listener).array(peers)
        To whom the head is due.
    heard : In(device_bits).array(peers)
        Whose heads are kept, by the number of the peer.
    leaving : Out(stream(head_packet))
        A register.
    arriving : In(stream(head_packet))
        Always ready.
    peer_heads : Out(wg_bits + 1).array(peers), peer_epochs : Out(EPOCH_BITS).array(peers)
        Registers.
    busy : Out(1)
        A packet waits, or is due.
    """

    def __init__(self, geometry: Geometry) -> None:
        peers, device = geometry.dma.peers, geometry.dma.device_bits
        packet = stream.Signature(head_packet(geometry))
        super().__init__({
            "head": In(geometry.tracker.wg_bits + 1),
            "epoch": In(EPOCH_BITS),
            "number": In(device),
            "told": In(listener(geometry)).array(peers),
            "heard": In(device).array(peers),
            "leaving": Out(packet),
            "arriving": In(packet),
            "peer_heads": Out(geometry.tracker.wg_bits + 1).array(peers),
            "peer_epochs": Out(EPOCH_BITS).array(peers),
            "busy": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        peers = len(self.heard)
        last_head = Signal.like(self.head)
        last_epoch = Signal.like(self.epoch)
        moved = Signal()
        pending = Signal(peers)
        due = Signal(peers)
        chosen = Signal(peers)
        makes = Signal()
        m.d.comb += moved.eq((self.head != last_head) | (self.epoch != last_epoch))
        m.d.sync += [last_head.eq(self.head), last_epoch.eq(self.epoch)]
        before = [Signal.like(told, name=f"told_{peer}") for peer, told in enumerate(self.told)]
        for peer, (told, was) in enumerate(zip(self.told, before)):
            m.d.sync += was.eq(told)
            m.d.comb += due[peer].eq(told.enable & (pending[peer] | moved | (told.as_value() != was.as_value())))
        m.d.comb += [
            makes.eq(due.any() & (~self.leaving.valid | self.leaving.ready)),
            chosen.eq(due & rotating_grant(m, due, makes)),
            self.busy.eq(due.any() | self.leaving.valid),
            self.arriving.ready.eq(1),
        ]
        m.d.sync += pending.eq(due & ~Mux(makes, chosen, 0))
        with m.If(makes):
            m.d.sync += [
                self.leaving.valid.eq(1),
                self.leaving.payload.source.eq(self.number),
                self.leaving.payload.epoch.eq(self.epoch),
                self.leaving.payload.head.eq(self.head),
            ]
        with m.Elif(self.leaving.ready):
            m.d.sync += self.leaving.valid.eq(0)
        for peer, told in enumerate(self.told):
            with m.If(makes & chosen[peer]):
                m.d.sync += self.leaving.payload.device.eq(told.device)

        arrived = self.arriving.payload
        for peer, device in enumerate(self.heard):
            with m.If(self.arriving.valid & (arrived.source == device)):
                m.d.sync += [self.peer_heads[peer].eq(arrived.head), self.peer_epochs[peer].eq(arrived.epoch)]
        return m
