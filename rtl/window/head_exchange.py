"""Sends the dispatch window's head to the GPUs that send to this one, and keeps the heads of peers."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, error_report, head_arrival, head_packet, listener
from t3sim.rtl.order import follows
from t3sim.rtl.registers import EPOCH_BITS
from t3sim.rtl.streams.rotating_grant import rotating_grant


class HeadExchange(wiring.Component):
    """Credits of the dispatch windows, as separate packets on the links.

    A GPU starts a workgroup that reaches a peer only inside the peer's window, so each GPU sends its head to those that
    send to it.

    1. A moved head is due to each listener. One packet at a time leaves, in turn, with the head of the cycle in which
       it is made. At most one packet per listener waits, and the last one has the last head.
    2. A new listener gets the head at once.
    3. A packet with head 0 of kernel 0 precedes the head if the listener could refuse it otherwise: a soft reset or two
       restarts took place before the listener was told, or the listener is new in the middle of a kernel.
    4. An arriving head replaces its peer's. Heads of other GPUs are dropped.
    5. A head is refused, and changes nothing, if its sender is not its source, if it is beyond the last id, if it is
       smaller than the known head of the same kernel, or if its kernel does not follow the known one (`order.follows`).
       Kernel 0 with head 0 is accepted: the peer was reset, and any kernel may follow.
    6. A peer that becomes another GPU has head 0 of kernel 0 until its first head arrives.

    Packets of one GPU must not overtake each other, nor wait for data that wait for memory, because those data may wait
    for the head. Listeners and peers must be programmed on all GPUs before the first restarts.

    Members
    -------
    head : In(wg_bits + 1), epoch : In(EPOCH_BITS)
        Of the dispatch window. In kernel 0 the head is 0.
    number : In(device_bits)
        This GPU's.
    told : In(listener).array(peers)
        Listeners: the GPUs that send to this one.
    heard : In(device_bits).array(peers)
        GPU of each peer.
    leaving : Out(stream(head_packet))
        A register.
    arriving : In(stream(head_arrival))
        Always ready.
    peer_heads : Out(wg_bits + 1).array(peers), peer_epochs : Out(EPOCH_BITS).array(peers)
        Registers.
    news : Out(1)
        In this cycle an arriving head replaces a different one.
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
        epoch_moved = Signal()
        peers_waiting = Signal(peers)
        peers_due = Signal(peers)
        resets_waiting = Signal(peers)  # kernel 0 precedes the next packet
        resets_due = Signal(peers)
        chosen_peer = Signal(peers)
        packet_starts = Signal()
        reset_first = Signal()
        m.d.comb += [
            epoch_moved.eq(self.epoch != last_epoch),
            head_moved.eq((self.head != last_head) | epoch_moved),
        ]
        m.d.sync += [last_head.eq(self.head), last_epoch.eq(self.epoch)]
        last_told = [Signal.like(told, name=f"last_told_{peer}") for peer, told in enumerate(self.told)]
        for peer, (told, last) in enumerate(zip(self.told, last_told)):
            told_moved = told.as_value() != last.as_value()
            m.d.sync += last.eq(told)
            m.d.comb += [
                peers_due[peer].eq(told.enable & (peers_waiting[peer] | head_moved | told_moved)),
                resets_due[peer].eq(
                    resets_waiting[peer] | (told_moved & (self.epoch != 0))
                    | (epoch_moved & ((self.epoch == 0) | (peers_waiting[peer] & (last_epoch != 0))))),
            ]
        m.d.comb += [
            packet_starts.eq(peers_due.any() & (~self.leaving.valid | self.leaving.ready)),
            chosen_peer.eq(peers_due & rotating_grant(m, peers_due, packet_starts)),
            reset_first.eq((chosen_peer & resets_due).any() & (self.epoch != 0)),
            self.busy.eq(peers_due.any() | self.leaving.valid),
            self.arriving.ready.eq(1),
        ]
        m.d.sync += [
            peers_waiting.eq(peers_due & ~Mux(packet_starts & ~reset_first, chosen_peer, 0)),
            resets_waiting.eq(resets_due & ~Mux(packet_starts, chosen_peer, 0)),
        ]
        with m.If(packet_starts):
            m.d.sync += [
                self.leaving.valid.eq(1),
                self.leaving.payload.source.eq(self.number),
                self.leaving.payload.epoch.eq(Mux(reset_first, 0, self.epoch)),
                self.leaving.payload.head.eq(Mux(reset_first, 0, self.head)),
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
        last_heard = [Signal.like(device, name=f"last_heard_{peer}") for peer, device in enumerate(self.heard)]
        for peer, (device, last) in enumerate(zip(self.heard, last_heard)):
            m.d.sync += last.eq(device)
            another = device != last
            head, epoch = Mux(another, 0, self.peer_heads[peer]), Mux(another, 0, self.peer_epochs[peer])
            same_kernel = arrival.epoch == epoch
            m.d.comb += [
                from_peer[peer].eq(self.arriving.valid & (arrival.source == device)),
                head_kept[peer].eq(from_peer[peer] & head_possible & Mux(
                    same_kernel, arrival.head >= head, (arrival.epoch == 0) | follows(arrival.epoch, epoch))),
                head_new[peer].eq(head_kept[peer] & (~same_kernel | (arrival.head != head))),
            ]
            with m.If(head_kept[peer]):
                m.d.sync += [self.peer_heads[peer].eq(arrival.head), self.peer_epochs[peer].eq(arrival.epoch)]
            with m.Elif(another):
                m.d.sync += [self.peer_heads[peer].eq(0), self.peer_epochs[peer].eq(0)]
        m.d.comb += [self.news.eq(head_new.any()), self.error.code.eq(ErrorCode.HEAD_REFUSED)]
        m.d.sync += self.error.valid.eq((from_peer & ~head_kept).any())
        with m.If(self.arriving.valid):
            m.d.sync += [self.error.details.wg.eq(arrival.source), self.error.details.address.eq(arrival.head)]
        return m
