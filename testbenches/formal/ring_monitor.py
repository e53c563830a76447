"""The ring monitor tells that the ring is late exactly when more workgroups than a stage have started."""

from amaranth.hdl import Mux, Signal

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property
from t3sim.testbenches.formal.spec import Spec

LATE = "the ring is late if and only if more workgroups than a stage have started since no command waited"


def late(spec: Spec, geometry: Geometry) -> None:
    """Claim when the ring is late; workgroups are counted with a bit more than the block has.

    Assumed: a stage has no more workgroups than there are ids.
    """
    m, monitor = spec.m, spec.design
    ids = 1 << geometry.tracker.wg_bits
    spec.assume(monitor.stage <= ids)
    started = Signal(geometry.tracker.wg_bits + 2)
    forgets = ~monitor.pending | monitor.restart
    m.d.sync += started.eq(Mux(forgets, 0, Mux(started == 2 * ids, started, started + monitor.started)))
    spec.claim(LATE, monitor.late == spec.past(started > monitor.stage))

    counter = spec.inside("since_idle")
    spec.invariant(counter == Mux(started == 2 * ids, 2 * ids - 1, started))


def properties() -> list[Property]:
    def broken(what, old, new):
        return Broken(what, LATE, "arbiter/ring_monitor.py", old, new)

    return [Property("late", "ring_monitor", LATE, late, (
        broken("a stage itself is late", "since_idle > self.stage", "since_idle >= self.stage"),
        broken("a new kernel inherits the count", "~self.pending | self.restart", "~self.pending"),
        broken("an idle ring keeps the count", "~self.pending | self.restart", "self.restart"),
        broken("what did not start counts", "self.started & ~since_idle.all()", "~since_idle.all()"),
    ), depth=1, quick=True)]
