"""Data of DMA reads: no more enter the lanes than were asked for, and none is lost from the count."""

from types import ModuleType

from amaranth.hdl import Mux, Signal

from t3sim.rtl.counting import ones
from t3sim.rtl.geometry import Geometry

from .broken import Broken
from .property import Property, Search
from .spec import Spec, implies

ASKED = "data are unasked for exactly if as many as were asked for have come"
WAITS = "data wait exactly while some that were asked for have not come, or not left"
ROOM = "no more lines are asked for than may be outstanding"


def credit(spec: Spec, geometry: Geometry) -> None:
    """Count what is asked for, comes and leaves.

    Assumed: engines ask when they may; data come two cycles later at the earliest; a lane has four places, and what
    leaves or is repeated is inside; nothing is on its way from an engine when what has not come is forgotten.
    """
    m, dut, dma = spec.m, spec.design, geometry.dma
    lanes = range(dma.egress_lanes)
    width = (dma.outstanding_lines + 8 * dma.engines).bit_length()
    asked, inside = Signal(width), Signal(width)  # those of the cycle before the last; data in the lanes
    recent, entered = spec.past(dut.issued), Signal(len(lanes))
    m.d.comb += entered.eq(dut.came & ~dut.unasked)
    spec.assume(implies(dut.issued != 0, dut.allow & (dut.issued <= dma.engines)))
    spec.assume(dut.gone <= inside)
    spec.assume(inside + ones(entered) + ones(dut.repeated) - dut.gone <= 4 * len(lanes))
    spec.assume(implies(dut.forget, dut.issued + recent == 0))
    m.d.sync += [asked.eq(Mux(dut.forget, 0, asked + recent - ones(entered))),
                 inside.eq(inside + ones(entered) + ones(dut.repeated) - dut.gone)]
    for lane in lanes:
        earlier = ones([*entered[:lane]])
        spec.claim(ASKED, dut.unasked[lane] == (asked <= earlier))
    spec.claim(WAITS, dut.waits == ((asked != 0) | (recent != 0) | (inside != 0)))
    spec.claim(ROOM, asked + recent + inside + dut.issued <= dma.outstanding_lines + 4 * len(lanes))

    spec.invariant(spec.inside("asked") == asked)
    spec.invariant(spec.inside("inside") == inside)
    spec.invariant(spec.inside("just_issued") == recent)
    spec.invariant(asked + recent <= dma.outstanding_lines)
    spec.invariant(implies(dut.allow, asked + recent + dma.engines <= dma.outstanding_lines))


def _build(package: ModuleType, geometry: Geometry):
    return package.read_credits.ReadCredits(geometry)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "read_credits.py", old, new)

    return [Property(
        "reads", "gpu_top", f"{ASKED}; {WAITS}; {ROOM}", credit, (
            broken("two lanes take one line's data", ASKED, "asked <= ones(self.came[:lane])", "asked == 0"),
            broken("the last line's data are refused", ASKED, "asked <= ones(", "asked <= 1 + ones("),
            broken("unasked data count as come", ASKED, "ones(self.came & ~self.unasked)", "ones(self.came)"),
            broken("a repeated line is not waited for", WAITS, "ones(self.repeated)", "0"),
            broken("what is forgotten is waited for", WAITS, "Mux(self.forget, 0, asked + just_issued - taken)",
                   "asked + just_issued - taken"),
            broken("what is in the lanes is forgotten, too", WAITS,
                   "inside.eq(inside +", "inside.eq(Mux(self.forget, 0, inside) +"),
            broken("engines ask for a line each when one may come", ROOM, "2 * self._engines", "0 * self._engines"),
        ), quick=True, build=_build, searches=(Search("small"), Search("several")),
        unsearched="until as many lines are outstanding as may be takes 512 cycles; on `small` they are sixteen")]
