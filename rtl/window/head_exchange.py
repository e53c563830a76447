"""Sends the head of this GPU's dispatch window to those that send to it, and keeps the heads that come from others."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, error_report, head_arrival, head_packet, listener
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS
from t3sim.rtl.streams.rotating_grant import rotating_grant


class HeadExchange(wiring.Component):
    """The credits of the dispatch windows, as packets of their own on the links.

    A GPU starts what reaches a peer only while that is inside the peer's window, which is known by its head. So each
    GPU tells its head to those that send to it. A head that moved is due to each of them; one packet at a time leaves,
    in turn, with the head of the moment it is made in. A head that moves on meanwhile is due again: at most one packet
    per peer waits, however slow a link is, and the last one that leaves has the last head. Packets of one GPU must not
    overtake each other, and must not wait for data that wait for memory: those may wait for the head.

    What comes from a GPU replaces what is known of it; from one that nobody here sends to it is dropped. It is refused,
    and changes nothing, if it came from elsewhere, is beyond the last id, or takes back what is known: a smaller head
    of the same kernel, or a kernel that does not follow (`order.follows`). Kernel 0 is none, and has head 0: so a peer
    tells that it was reset, after which any kernel may follow. A GPU that is
    newly a listener gets the head at once. Listeners and peers are programmed on all GPUs before the first restarts.

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
    arriving : In(stream(head_arrival))
        Always ready.
    peer_heads : Out(wg_bits + 1).array(peers), peer_epochs : Out(EPOCH_BITS).array(peers)
        Registers.
    news : Out(1)
        In this cycle an arriving head is kept that was not known.
    busy : Out(1)
        A packet waits, or is due.
    error : Out(error_report)
        HEAD_REFUSED, in the next cycle.
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
            "arriving": In(stream.Signature(head_arrival(geometry))),
            "peer_heads": Out(geometry.tracker.wg_bits + 1).array(peers),
            "peer_epochs": Out(EPOCH_BITS).array(peers),
            "news": Out(1),
            "busy": Out(1),
            "error": Out(error_report(geometry)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        peers = len(self.heard)
        last_head = Signal.like(self.head)
        last_epoch = Signal.like(self.epoch)
        head_moved = Signal()
        peers_waiting = Signal(peers)
        peers_due = Signal(peers)
        chosen_peer = Signal(peers)
        packet_starts = Signal()
        m.d.comb += head_moved.eq((self.head != last_head) | (self.epoch != last_epoch))
        m.d.sync += [last_head.eq(self.head), last_epoch.eq(self.epoch)]
        last_told = [Signal.like(told, name=f"told_{peer}") for peer, told in enumerate(self.told)]
        for peer, (told, last) in enumerate(zip(self.told, last_told)):
            m.d.sync += last.eq(told)
            m.d.comb += peers_due[peer].eq(told.enable & (peers_waiting[peer] | head_moved
                                                          | (told.as_value() != last.as_value())))
        m.d.comb += [
            packet_starts.eq(peers_due.any() & (~self.leaving.valid | self.leaving.ready)),
            chosen_peer.eq(peers_due & rotating_grant(m, peers_due, packet_starts)),
            self.busy.eq(peers_due.any() | self.leaving.valid),
            self.arriving.ready.eq(1),
        ]
        m.d.sync += peers_waiting.eq(peers_due & ~Mux(packet_starts, chosen_peer, 0))
        with m.If(packet_starts):
            m.d.sync += [
                self.leaving.valid.eq(1),
                self.leaving.payload.source.eq(self.number),
                self.leaving.payload.epoch.eq(self.epoch),
                self.leaving.payload.head.eq(self.head),
            ]
        with m.Elif(self.leaving.ready):
            m.d.sync += self.leaving.valid.eq(0)
        for peer, told in enumerate(self.told):
            with m.If(packet_starts & chosen_peer[peer]):
                m.d.sync += self.leaving.payload.device.eq(told.device)

        arrival = self.arriving.payload
        head_possible = ((arrival.sender == arrival.source) & (~arrival.head[-1] | ~arrival.head[:-1].any())
                         & ((arrival.epoch != 0) | (arrival.head == 0)))
        from_peer = Signal(peers)
        head_kept = Signal(peers)
        head_new = Signal(peers)
        for peer, device in enumerate(self.heard):
            head, epoch = self.peer_heads[peer], self.peer_epochs[peer]
            same_kernel = arrival.epoch == epoch
            m.d.comb += [
                from_peer[peer].eq(self.arriving.valid & (arrival.source == device)),
                head_kept[peer].eq(from_peer[peer] & head_possible & Mux(
                    same_kernel, arrival.head >= head, (arrival.epoch == 0) | follows(arrival.epoch, epoch))),
                head_new[peer].eq(head_kept[peer] & (~same_kernel | (arrival.head != head))),
            ]
            with m.If(head_kept[peer]):
                m.d.sync += [head.eq(arrival.head), epoch.eq(arrival.epoch)]
        m.d.comb += [self.news.eq(head_new.any()), self.error.code.eq(ErrorCode.HEAD_REFUSED)]
        m.d.sync += self.error.valid.eq((from_peer & ~head_kept).any())
        with m.If(self.arriving.valid):
            m.d.sync += [self.error.details.wg.eq(arrival.source), self.error.details.address.eq(arrival.head)]
        return m
