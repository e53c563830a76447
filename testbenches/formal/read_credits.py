"""Data of DMA reads: no more enter the lanes than were asked for, and none is lost from the count."""

from dataclasses import replace
from types import ModuleType

from amaranth.hdl import Cat, Mux, Signal

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.streams.counting import ones
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, at_most_one, implies
from t3sim.testbenches.geometries import GEOMETRIES

ASKED = "data are `unasked` if and only if as many as were requested have arrived"
WAITS = "`waits` is 1 while requested data have not arrived, or not left"
#: With a command queue, whose lines are counted apart.
_QUEUED = replace(GEOMETRIES["small"], dma=replace(GEOMETRIES["small"].dma, queue_commands=4))

ROOM = "no more lines are requested than may be outstanding"


def credit(spec: Spec, geometry: Geometry) -> None:
    """Count what is asked for, comes and leaves.

    Assumed: engines ask when they may; data come two cycles later at the earliest; a lane has four places, and what
    leaves or is repeated is inside; nothing is on its way from an engine when what has not come is forgotten.
    """
    m, dut, dma = spec.m, spec.design, geometry.dma
    lanes = range(dma.egress_lanes)
    width = (dma.outstanding_lines + 8 * dma.engines).bit_length()
    every = {"asked": [], "recent": [], "inside": [], "comes": [], "repeated": [], "gone": []}
    unasked = []
    for origin, issued in enumerate(dut.issued):
        asked, inside = Signal(width), Signal(width)  # those of the cycle before the last; data in the lanes
        recent, entered, came = spec.past(issued), Signal(len(lanes)), dut.came[origin]
        repeated, gone = ones(dut.repeated[origin]), dut.gone[origin]
        m.d.comb += entered.eq(came & ~dut.unasked)
        spec.assume(gone <= inside)
        m.d.sync += [asked.eq(Mux(dut.forget, 0, asked + recent - ones(entered))),
                     inside.eq(inside + ones(entered) + repeated - gone)]
        unasked.append([came[lane] & (asked <= ones([*entered[:lane]])) for lane in lanes])
        spec.claim(WAITS, dut.waits[origin] == ((asked != 0) | (recent != 0) | (inside != 0)))
        for name, value in zip(every, (asked, recent, inside, ones(entered), repeated, gone)):
            every[name].append(value)
        spec.invariant(spec.inside("asked")[origin] == asked)
        spec.invariant(spec.inside("inside")[origin] == inside)
        spec.invariant(spec.inside("just_issued")[origin] == recent)
    asked, recent, inside, comes, repeated, gone = (sum(values) for values in every.values())
    issued = sum(dut.issued)
    for lane in lanes:
        whose = [came[lane] for came in dut.came]
        spec.assume(at_most_one(Cat(whose)))
        spec.claim(ASKED, dut.unasked[lane] == Cat(of[lane] for of in unasked).any())
    spec.assume(implies(issued != 0, dut.allow & (issued <= dma.engines)))
    spec.assume(inside + comes + repeated - gone <= 4 * len(lanes))
    spec.assume(implies(dut.forget, issued + recent == 0))
    spec.claim(ROOM, asked + recent + inside + issued <= dma.outstanding_lines + 4 * len(lanes))
    spec.invariant(asked + recent <= dma.outstanding_lines)
    spec.invariant(implies(dut.allow, asked + recent + dma.engines <= dma.outstanding_lines))


def _build(package: ModuleType, geometry: Geometry):
    return package.dma.read_credits.ReadCredits(geometry)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "dma/read_credits.py", old, new)

    return [Property(
        "reads", "gpu_top", f"{ASKED}; {WAITS}; {ROOM}", credit, (
            broken("two lanes take one line's data", ASKED, "due <= ones(came[:lane])", "due == 0"),
            broken("the last line's data are refused", ASKED, "due <= ones(", "due <= 1 + ones("),
            broken("unasked data count as come", ASKED, "ones(came & ~strays)", "ones(came)"),
            broken("a repeated line is not waited for", WAITS, "ones(self.repeated[origin])", "0"),
            broken("what is forgotten is waited for", WAITS, "Mux(self.forget, 0, due + recent - taken)",
                   "due + recent - taken"),
            broken("what is in the lanes is forgotten, too", WAITS,
                   "held.eq(held +", "held.eq(Mux(self.forget, 0, held) +"),
            broken("engines ask for a line each when one may come", ROOM, "2 * self._engines", "0 * self._engines"),
        ), quick=True, build=_build, searches=(Search("small"), Search("several")),
        unsearched="512 cycles until all lines are outstanding; 16 on `small`",
    ), Property(
        "queued", "gpu_top", f"{ASKED}; {WAITS}; separately for triggers and the command queue", credit, (
            broken("a copy's lines are a trigger's", WAITS, "recent.eq(self.issued[origin])",
                   "recent.eq(self.issued[0])"),
            broken("data of a copy are taken for a trigger's", ASKED, "self.came[origin]", "self.came[0]"),
            broken("a signal waits for triggers", WAITS, "self.waits[origin].eq((due",
                   "self.waits[self._origins - 1 - origin].eq((due"),
            broken("copies need no room", ROOM, "sum(just_issued + asked + inside)",
                   "sum(just_issued[:1] + asked[:1] + inside[:1])"),
        ), geometry=_QUEUED, quick=True, build=_build, searches=(Search(_QUEUED),),
        reason="16 lines and 2 lanes, as in `small`, and a command queue")]
