"""The watchdog reports after its periods of stillness, not earlier and not later, and what waited then."""

from types import ModuleType

from amaranth.hdl import Mux, Signal
from amaranth.lib import wiring

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import WATCHDOG_LIMIT_BITS
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.geometries import GEOMETRIES

EARLY = "it reports only when nothing has moved for the limit's periods, something waits, and there is no report yet"
COMES = "it reports at the latest after one more period in which nothing moved and something waited"
WHAT = "`waited` shows the waiting places of the report until it is cleared"
_SHORT_PERIOD = 8


def stillness(spec: Spec, geometry: Geometry) -> None:
    """Claim when the watchdog reports.

    Cycles since the last movement, and those in which besides something has waited all the time, are counted by the
    specification. They start anew when the watchdog is cleared or off.

    Assumed: nothing, but that the limit stays while it is to come.
    """
    m, dog = spec.m, spec.design
    period_bits = (dog.period - 1).bit_length()
    bits = WATCHDOG_LIMIT_BITS + period_bits + 1
    waits, waited = dog.waits.as_value(), dog.waited.as_value()
    off = dog.clear | (dog.limit == 0)
    calm, stuck = Signal(bits), Signal(bits)  # cycles, saturating
    same = Signal(WATCHDOG_LIMIT_BITS)
    told = Signal()
    m.d.sync += [
        calm.eq(Mux(off | dog.moves, 0, Mux(calm.all(), calm, calm + 1))),
        stuck.eq(Mux(off | dog.moves | ~waits.any() | (dog.limit != same), 0, Mux(stuck.all(), stuck, stuck + 1))),
        same.eq(dog.limit),
        told.eq(~dog.clear & (told | dog.error.valid)),
    ]
    limit_cycles = spec.past(dog.limit) << period_bits
    spec.claim(EARLY, implies(dog.error.valid, (calm >= limit_cycles) & (limit_cycles != 0) & spec.past(waits.any())
                              & ~told))
    has = told | dog.error.valid
    spec.claim(COMES, implies(stuck >= ((same << period_bits) + dog.period), has))
    spec.claim(WHAT, implies(dog.error.valid, waited == spec.past(waits)))
    spec.claim(WHAT, implies(~dog.error.valid, waited == Mux(spec.past(dog.clear), 0, spec.past(waited))))

    cycle, moved, still, inner = (spec.inside(name) for name in ("cycle", "moved", "still", "told"))
    spec.invariant(inner == has)
    spec.invariant(implies(~inner & ~moved, calm >= (still << period_bits) + cycle))
    spec.invariant(implies(~inner & moved, stuck < cycle))
    spec.invariant(implies(~inner & ~moved, stuck <= (still << period_bits) + cycle + dog.period - 1))
    spec.invariant(implies(~inner & (stuck > cycle), still < same))


def _watchdog(package: ModuleType, geometry: Geometry) -> wiring.Component:
    """Make a watchdog with short periods on `small`, for the search of what is broken."""
    short = {"period": _SHORT_PERIOD} if geometry == GEOMETRIES["small"] else {}
    return package.control.watchdog.WatchDog(geometry, **short)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "control/watchdog.py", old, new)

    return [Property("stillness", "watchdog", f"{EARLY}; {COMES}; {WHAT}", stillness, (
        broken("what moved in the middle of a period is forgotten", EARLY, "moved | self.moves | ~", "self.moves | ~"),
        broken("a period too few", EARLY, "following < self.limit", "following + 1 < self.limit"),
        broken("it tells when nothing waits", EARLY, " | ~self.waits.as_value().any()", ""),
        broken("it reports again and again", EARLY, "told.eq(1), ", ""),
        broken("a period too many", COMES, "following < self.limit", "following <= self.limit"),
        broken("what waited is shown when it was cleared", WHAT, "m.d.sync += [told.eq(0), self.waited.eq(0)]",
               "m.d.sync += told.eq(0)"),
    ), depth=1, quick=True, searches=(Search("small", 3 * _SHORT_PERIOD + 2),), build=_watchdog,
        unsearched="two periods are 512 cycles; `small` has periods of 8")]
