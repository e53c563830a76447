"""Senders to a GPU learn its window's head: the last one in the end, none that they refuse, and none too large."""

from amaranth.hdl import Cat, Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

LAST = "when no head is due, a listener has the last head and epoch"
ACCEPTED = "a listener refuses no packet"
REACHED = "a sent head of the present kernel is at most the present one"
SOON = "if the link is ready, all listeners have it within two cycles for each, and one more"
KEPT = "a peer's known head is the last lawful one from it since it was named; any other from it is reported"


def is_later(epoch: Value, known: Value) -> Value:
    """Return whether a kernel is later than a known one. Numbers are on a circle without 0: the next after 255 is 1."""
    ahead = Mux(epoch > known, epoch - known, epoch + 255 - known)
    return (known == 0) | ((epoch != known) & (ahead >= 1) & (ahead <= 127))


def _accepts(head: Value, epoch: Value, known_head: Value, known_epoch: Value) -> Value:
    """Return whether a GPU that knows one head of a peer takes another."""
    return Mux(epoch == known_epoch, head >= known_head, (epoch == 0) | is_later(epoch, known_epoch))


def told(spec: Spec, geometry: Geometry) -> None:
    """State what one arbitrary listener learns from the time when it is named on; it may know an old head.

    Assumed: it stays where it is named, and knows none if it is named in kernel 0. The head is 0 in kernel 0 and only
    grows in another; a kernel follows the one before or is 0.
    """
    m, dut, peers = spec.m, spec.design, geometry.dma.peers
    place, device = spec.any_constant(range(peers)), spec.any_constant(geometry.dma.device_bits)
    spec.assume(place < peers)
    listens, listened = Signal(), Signal()
    for peer, (listener, last) in enumerate(zip(dut.told, spec.inside("last_told"))):
        spec.assume((place == peer) | (listener.device != device))
        with m.If(place == peer):
            m.d.comb += [listens.eq(listener.enable & (listener.device == device)),
                         listened.eq(last.enable & (last.device == device))]
    spec.assume(listens | ~listened)
    last_head, last_epoch = spec.inside("last_head"), spec.inside("last_epoch")
    spec.assume(_accepts(dut.head, dut.epoch, last_head, last_epoch) & ((dut.epoch != 0) | (dut.head == 0)))

    leaving = dut.leaving
    mine = leaving.valid & (leaving.payload.device == device)
    old_head, old_epoch = spec.any_constant(len(dut.head)), spec.any_constant(len(dut.epoch))
    known_head, known_epoch = Signal.like(dut.head), Signal.like(dut.epoch)
    spec.assume((old_epoch != 0) | (old_head == 0))
    spec.assume(implies(listens & ~listened & (dut.epoch == 0), known_epoch == 0))
    with m.If(~listens):
        m.d.sync += [known_head.eq(old_head), known_epoch.eq(old_epoch)]
    with m.If(mine & leaving.ready):
        m.d.sync += [known_head.eq(leaving.payload.head), known_epoch.eq(leaving.payload.epoch)]
    spec.claim(LAST, implies(listens & ~dut.busy, (known_head == dut.head) & (known_epoch == dut.epoch)))
    spec.claim(ACCEPTED, implies(mine, _accepts(leaving.payload.head, leaving.payload.epoch, known_head, known_epoch)
                                 & ((leaving.payload.epoch != 0) | (leaving.payload.head == 0))))
    present = Signal()  # the packet was made in this kernel
    moves = dut.epoch != last_epoch
    with m.If(~leaving.valid | leaving.ready):
        m.d.sync += present.eq(1)
    with m.Elif(moves):
        m.d.sync += present.eq(0)
    spec.claim(REACHED, implies(mine & present & ~moves & (leaving.payload.epoch != 0),
                                (leaving.payload.epoch == dut.epoch) & (leaving.payload.head <= dut.head)))

    waits, reset_waits = Signal(), Signal()
    m.d.comb += [waits.eq(spec.inside("peers_waiting").bit_select(place, 1)),
                 reset_waits.eq(spec.inside("resets_waiting").bit_select(place, 1))]
    newest_head, newest_epoch = (Mux(mine, leaving.payload[name], known)
                                 for name, known in (("head", known_head), ("epoch", known_epoch)))
    spec.invariant(implies(listened, waits | ((newest_head == last_head) & (newest_epoch == last_epoch))))
    spec.invariant(implies(listened, reset_waits | Mux(last_epoch == 0, newest_epoch == 0, _accepts(
        last_head, last_epoch, newest_head, newest_epoch))))
    spec.invariant(listened | ~mine)
    spec.invariant((last_epoch != 0) | (last_head == 0))
    spec.invariant((newest_epoch != 0) | (newest_head == 0))
    spec.invariant(implies(mine & present & (leaving.payload.epoch != 0),
                           (leaving.payload.epoch == last_epoch) & (leaving.payload.head <= last_head)))


def soon(spec: Spec, geometry: Geometry) -> None:
    """Count cycles in which nothing moves and the link takes what leaves. Nothing is assumed."""
    m, dut, peers = spec.m, spec.design, geometry.dma.peers
    still = dut.leaving.ready & (dut.head == spec.inside("last_head")) & (dut.epoch == spec.inside("last_epoch"))
    for peer, listener in enumerate(dut.told):
        still &= listener.as_value() == spec.inside("last_told")[peer].as_value()
    quiet = Signal(range(2 * peers + 3))
    m.d.sync += quiet.eq(Mux(still, Mux(quiet == 2 * peers + 2, quiet, quiet + 1), 0))
    spec.claim(SOON, implies(still & (quiet >= 2 * peers + 1), ~dut.busy))
    spec.invariant(quiet <= 2 * peers + 2)
    packets = sum(spec.inside("peers_waiting")) + sum(spec.inside("peers_waiting") & spec.inside("resets_waiting"))
    spec.invariant(packets + Mux(quiet > 2 * peers, 2 * peers, quiet) <= 2 * peers)
    spec.invariant(implies(quiet >= 2 * peers + 1, ~dut.leaving.valid))


def kept(spec: Spec, geometry: Geometry) -> None:
    """State it of every peer. Nothing is assumed."""
    m, dut = spec.m, spec.design
    arrived, refusals = dut.arriving.payload, []
    for peer, device in enumerate(dut.heard):
        head, epoch = (Signal.like(signal, name=f"{signal.name}_{peer}") for signal in (dut.head, dut.epoch))
        arrives = dut.arriving.valid & dut.arriving.ready & (arrived.source == device)
        another = device != spec.past(device)
        can_be = ((arrived.sender == device) & (arrived.head <= 1 << geometry.tracker.wg_bits)
                  & ((arrived.epoch != 0) | (arrived.head == 0))
                  & _accepts(arrived.head, arrived.epoch, Mux(another, 0, head), Mux(another, 0, epoch)))
        with m.If(arrives & can_be):
            m.d.sync += [head.eq(arrived.head), epoch.eq(arrived.epoch)]
        with m.Elif(another):
            m.d.sync += [head.eq(0), epoch.eq(0)]
        refusals.append(arrives & ~can_be)
        spec.invariant(spec.inside("last_heard")[peer] == spec.past(device))
        spec.claim(KEPT, (dut.peer_heads[peer] == head) & (dut.peer_epochs[peer] == epoch))
    spec.claim(KEPT, dut.error.valid == spec.past(Cat(refusals).any()))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "window/head_exchange.py", old, new)

    both = {"geometry": "several", "reason": "three peers; the default has one", "searches": (Search("several", 12),)}
    return [
        Property("told", "head_exchange", "each listener receives each head or a later one", told, (
            broken("a head that moves while another waits is forgotten", LAST, "peers_waiting[peer] | head_moved",
                   "peers_waiting[peer] | (head_moved & ~self.leaving.valid)"),
            broken("a move of the epoch is none", LAST, "(self.head != last_head) | epoch_moved",
                   "self.head != last_head"),
            broken("a new listener hears nothing", LAST, "| head_moved | told_moved", "| head_moved"),
            broken("a new listener is told no reset", ACCEPTED, "| (told_moved & (self.epoch != 0))", ""),
            broken("a head is sent before it is reached", REACHED, "Mux(reset_first, 0, self.head)",
                   "Mux(reset_first, 0, self.head + 1)"),
            broken("a soft reset is not told", ACCEPTED, "(self.epoch == 0) | (peers_waiting", "(peers_waiting"),
            broken("a kernel of which nobody heard is left out", ACCEPTED,
                   "(self.epoch == 0) | (peers_waiting[peer] & (last_epoch != 0))", "self.epoch == 0"),
            broken("a soft reset is told once for all", ACCEPTED, "resets_due & ~Mux(packet_starts, chosen_peer, 0)",
                   "Mux(packet_starts, 0, resets_due)"),
            broken("after a soft reset is told, nothing is due", LAST, "packet_starts & ~reset_first", "packet_starts"),
            broken("the place of another listener is sent", LAST, "payload.device.eq(told.device)",
                   "payload.device.eq(told.device ^ 1)"),
        ), quick=True, **both),
        Property("soon", "head_exchange", "a listener waits for at most two heads of each other listener", soon, (
            broken("what was sent is still due", SOON,
                   "peers_due & ~Mux(packet_starts & ~reset_first, chosen_peer, 0)", "peers_due"),
        ), quick=True, **both),
        Property("kept", "head_exchange", "a peer's known head is the last lawful one from it", kept, (
            broken("anybody's head counts", KEPT, "self.arriving.valid & (arrival.source == device)",
                   "self.arriving.valid"),
            broken("the epoch stays", KEPT, ", self.peer_epochs[peer].eq(arrival.epoch)]", "]"),
            broken("a new peer has the old one's head", KEPT, "with m.Elif(another):", "with m.Elif(0):"),
            broken("a new peer's head is compared with the old one's", KEPT, "Mux(another, 0, self.peer_heads[peer])",
                   "self.peer_heads[peer]"),
            broken("a new peer's kernel is compared with the old one's", KEPT,
                   "Mux(another, 0, self.peer_epochs[peer])", "self.peer_epochs[peer]"),
            broken("a head in another's name", KEPT, "(arrival.sender == arrival.source) & ", ""),
            broken("a head beyond the last id", KEPT, " & (~arrival.head[-1] | ~arrival.head[:-1].any())", ""),
            broken("a head goes back", KEPT, "arrival.head >= head", "1"),
            broken("a kernel that does not follow", KEPT, "| follows(arrival.epoch, epoch)", "| 1"),
            broken("a head without a kernel", KEPT, "((arrival.epoch != 0) | (arrival.head == 0))", "1"),
            broken("what is refused is silent", KEPT, "self.error.valid.eq((from_peer & ~head_kept).any())",
                   "self.error.valid.eq(0)"),
        ), quick=True, **both),
    ]
