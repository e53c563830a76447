"""A kernel begins only outside a soft reset, and each soft reset clears once, when nothing moves."""

from amaranth.hdl import Mux, Signal

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.head_exchange import is_later
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

BEGINS = "a restart begins a kernel if no soft reset is in progress, nothing is inside and its number follows"
DONE = "a soft reset is done only after its own clearing, and with all memories swept"
CLEARS = "a soft reset clears once, after the quiet time without movement unless it is forced"


def sequence(spec: Spec, geometry: Geometry) -> None:
    """Keep an account of the last soft reset. Nothing is assumed."""
    m, dut = spec.m, spec.design
    stopped, cleared = Signal(), Signal()
    still = Signal(len(dut.quiet_cycles) + 1)  # cycles in which nothing moved in the cycle before
    moved, quiet_for = spec.past(dut.moves), spec.past(still)
    with m.If(dut.soft_reset):
        m.d.sync += [stopped.eq(1), cleared.eq(0), still.eq(0)]
    with m.Else():
        m.d.sync += still.eq(Mux(moved, 0, Mux(still.all(), still, still + 1)))
        with m.If(dut.clear):
            m.d.sync += cleared.eq(1)
        with m.If(dut.begins):
            m.d.sync += stopped.eq(0)
    number_follows = (dut.new_epoch != 0) & is_later(dut.new_epoch, dut.old_epoch)
    spec.claim(BEGINS, dut.stopped == stopped)
    spec.claim(BEGINS, implies(dut.begins, dut.restart & ~dut.soft_reset & ~dut.kernel_inside & number_follows
                               & (~stopped | cleared)))
    spec.claim(BEGINS, implies(dut.restart & ~dut.soft_reset & ~dut.kernel_inside & number_follows
                               & (~stopped | dut.done), dut.begins))
    spec.claim(DONE, implies(dut.done, cleared & spec.past(stopped & ~dut.sweeps)))
    spec.claim(CLEARS, implies(dut.clear, stopped & ~cleared))
    spec.claim(CLEARS, implies(dut.clear & ~spec.past(dut.forced), quiet_for >= (spec.past(dut.quiet_cycles) | 15)))
    spec.invariant(spec.inside("was_cleared") == (cleared | dut.clear))
    spec.invariant(implies(stopped & ~cleared & ~dut.clear, spec.inside("quiet") <= still))
    spec.invariant(spec.inside("moved") == moved)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "control/reset_sequence.py", old, new)

    return [Property("reset sequence", "gpu_top", f"{BEGINS}; {DONE}; {CLEARS}", sequence, (
        broken("a second soft reset leaves the first one done", DONE, " & ~self.sweeps & ~self.soft_reset",
               " & ~self.sweeps"),
        broken("a restart beside a soft reset", BEGINS, "self.restart & ~self.soft_reset", "self.restart"),
        broken("a restart while memories are swept", DONE, " & ~self.sweeps & ~self.soft_reset", " & ~self.soft_reset"),
        broken("a restart of any kernel", BEGINS, "& follows(self.new_epoch, self.old_epoch)", ""),
        broken("a second soft reset counts as cleared", DONE, "was_cleared.eq(0), quiet.eq(0)", "quiet.eq(0)"),
        broken("movement does not end the quiet time", CLEARS, "Mux(moved, 0, quiet + 1)", "quiet + 1"),
        broken("a second soft reset keeps the quiet time", CLEARS, "quiet.eq(0), lasted.eq(0)", "lasted.eq(0)"),
    ), quick=True, searches=(Search("default", 30),),
        build=lambda package, geometry: package.control.reset_sequence.ResetSequence(geometry))]
