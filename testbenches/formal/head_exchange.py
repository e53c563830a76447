"""Senders to a GPU learn its window's head: the last one in the end, each at most once, and none too large."""

from amaranth.hdl import Cat, Mux, Signal

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

LAST = "when nothing is due a listener has had the last head and epoch"
GROWS = "what is sent is no larger than the head and no smaller than what was sent before"
SOON = "when the link takes everything all have it within a cycle for each, and one more"
KEPT = "what is known of a peer is the last that came from it and that it can have; all else from it is reported"


def told(spec: Spec, geometry: Geometry) -> None:
    """State what one arbitrary listener learns, from the start.

    Assumed: no other place names the same device; for `GROWS` the epoch of a moment stays, and its head only grows.
    """
    m, dut, peers = spec.m, spec.design, geometry.dma.peers
    place, device = spec.any_constant(range(peers)), spec.any_constant(geometry.dma.device_bits)
    spec.assume(place < peers)
    for peer, listener in enumerate(dut.told):
        spec.assume(Mux(place == peer, listener.enable & (listener.device == device), listener.device != device))

    leaving = dut.leaving
    mine = leaving.valid & (leaving.payload.device == device)
    known_head, known_epoch = Signal.like(dut.head), Signal.like(dut.epoch)
    anything = Signal()
    with m.If(mine & leaving.ready):
        m.d.sync += [known_head.eq(leaving.payload.head), known_epoch.eq(leaving.payload.epoch), anything.eq(1)]
    spec.claim(LAST, implies(~dut.busy, anything & (known_head == dut.head) & (known_epoch == dut.epoch)))

    grows = Signal(init=1)  # so far, in one epoch
    last_head, last_epoch = spec.inside("last_head"), spec.inside("last_epoch")
    lawful = (dut.epoch == last_epoch) & (dut.head >= last_head)
    m.d.sync += grows.eq(grows & lawful)
    spec.claim(GROWS, implies(grows & lawful & mine, (leaving.payload.head <= dut.head)
                              & implies(anything, leaving.payload.head >= known_head)))

    pending = spec.inside("peers_waiting")
    waits, newly = pending.bit_select(place, 1), Signal()
    for peer, listener in enumerate(dut.told):
        with m.If(place == peer):
            m.d.comb += newly.eq(listener.as_value() != spec.inside("last_told")[peer].as_value())
    newest = Mux(mine, (leaving.payload.head == last_head) & (leaving.payload.epoch == last_epoch),
                 anything & (known_head == last_head) & (known_epoch == last_epoch))
    spec.invariant(waits | newly | newest)
    spec.invariant(implies(grows & mine, (leaving.payload.head <= last_head)
                           & implies(anything, leaving.payload.head >= known_head)))
    spec.invariant(implies(grows & anything, known_head <= last_head))


def soon(spec: Spec, geometry: Geometry) -> None:
    """Count cycles in which nothing moves and the link takes what leaves. Nothing is assumed."""
    m, dut, peers = spec.m, spec.design, geometry.dma.peers
    pending = spec.inside("peers_waiting")
    still = dut.leaving.ready & (dut.head == spec.inside("last_head")) & (dut.epoch == spec.inside("last_epoch"))
    for peer, listener in enumerate(dut.told):
        still &= listener.as_value() == spec.inside("last_told")[peer].as_value()
    quiet = Signal(range(peers + 3))
    m.d.sync += quiet.eq(Mux(still, Mux(quiet == peers + 2, quiet, quiet + 1), 0))
    spec.claim(SOON, implies(still & (quiet >= peers + 1), ~dut.busy))
    spec.invariant(quiet <= peers + 2)
    spec.invariant(sum(pending) + Mux(quiet > peers, peers, quiet) <= peers)
    spec.invariant(implies(quiet >= peers + 1, ~dut.leaving.valid))


def kept(spec: Spec, geometry: Geometry) -> None:
    """State it of every peer. Assumed: whose head is heard for it does not change."""
    m, dut = spec.m, spec.design
    arrived, refusals = dut.arriving.payload, []
    for peer, heard in enumerate(dut.heard):
        device = spec.any_constant(geometry.dma.device_bits)
        head, epoch = (Signal.like(signal, name=f"{signal.name}_{peer}") for signal in (dut.head, dut.epoch))
        arrives = dut.arriving.valid & dut.arriving.ready & (arrived.source == device)
        # Numbers on a circle without 0: the next after 255 is 1.
        ahead = Mux(arrived.epoch > epoch, arrived.epoch - epoch, arrived.epoch + 255 - epoch)
        later = (arrived.epoch == 0) | (epoch == 0) | ((arrived.epoch != epoch) & (ahead >= 1) & (ahead <= 127))
        can_be = (arrived.sender == device) & (arrived.head <= 1 << geometry.tracker.wg_bits) & Mux(
            arrived.epoch == epoch, arrived.head >= head, later) & ((arrived.epoch != 0) | (arrived.head == 0))
        with m.If(arrives & can_be):
            m.d.sync += [head.eq(arrived.head), epoch.eq(arrived.epoch)]
        refusals.append(arrives & ~can_be)
        spec.assume(heard == device)
        spec.claim(KEPT, (dut.peer_heads[peer] == head) & (dut.peer_epochs[peer] == epoch))
    spec.claim(KEPT, dut.error.valid == spec.past(Cat(refusals).any()))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "window/head_exchange.py", old, new)

    both = {"geometry": "several", "reason": "three peers; the default has one", "searches": (Search("several", 12),)}
    return [
        Property("told", "head_exchange", "each listener gets each head or a later one", told, (
            broken("a head that moves while another waits is forgotten", LAST, "peers_waiting[peer] | head_moved",
                   "peers_waiting[peer] | (head_moved & ~self.leaving.valid)"),
            broken("a move of the epoch is none", LAST, "(self.head != last_head) | (self.epoch != last_epoch)",
                   "self.head != last_head"),
            broken("a new listener hears nothing", LAST, "| (told.as_value() != last.as_value())", ""),
            broken("a head is sent before it is reached", GROWS, "self.leaving.payload.head.eq(self.head)",
                   "self.leaving.payload.head.eq(self.head + 1)"),
            broken("the place of another listener is sent", LAST, "payload.device.eq(told.device)",
                   "payload.device.eq(told.device ^ 1)"),
        ), quick=True, **both),
        Property("soon", "head_exchange", "no listener waits for more than all the others", soon, (
            broken("what was sent is still due", SOON, "peers_due & ~Mux(packet_starts, chosen_peer, 0)", "peers_due"),
        ), quick=True, **both),
        Property("kept", "head_exchange", "a peer's head is the last that came from it and that it can have", kept, (
            broken("anybody's head counts", KEPT, "self.arriving.valid & (arrival.source == device)",
                   "self.arriving.valid"),
            broken("the epoch stays", KEPT, ", epoch.eq(arrival.epoch)]", "]"),
            broken("a head in another's name", KEPT, "(arrival.sender == arrival.source) & ", ""),
            broken("a head beyond the last id", KEPT, " & (~arrival.head[-1] | ~arrival.head[:-1].any())", ""),
            broken("a head goes back", KEPT, "arrival.head >= head", "1"),
            broken("a kernel that does not follow", KEPT, "| follows(arrival.epoch, epoch)", "| 1"),
            broken("a head without a kernel", KEPT, "((arrival.epoch != 0) | (arrival.head == 0))", "1"),
            broken("what is refused is silent", KEPT, "self.error.valid.eq((from_peer & ~head_kept).any())",
                   "self.error.valid.eq(0)"),
        ), quick=True, **both),
    ]
