"""The ready table: an ask is taken when its group has as many complete tiles, not before and not much later."""

from types import ModuleType

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import wiring

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.geometries import GEOMETRIES

EARLY = "an ask is taken only when enough tiles of its group are complete in this kernel"
LATE = "an ask is taken in the fourth cycle at the latest in which they are"


def ready(spec: Spec, geometry: Geometry) -> None:
    """One arbitrary group, whose complete tiles are counted beside the block.

    Assumed: an ask stays as it is until it is taken; the shift stays as it is.
    """
    m, dut = spec.m, spec.design
    spec.hold(dut.shift)
    group = spec.any_constant(len(dut.asks.payload.group))
    payload = Value.cast(dut.asks.payload)
    waits = dut.asks.valid & ~dut.asks.ready
    spec.assume(implies(spec.past(waits), dut.asks.valid & (payload == spec.past(payload))))
    complete = Signal(dut._count_bits)
    counts = dut.completion.valid & ((dut.completion.wg >> dut.shift) == group)
    m.d.sync += complete.eq(Mux(dut.restart, 0, complete + (counts & ~complete.all())))
    asked = dut.asks.valid & (dut.asks.payload.group == group)
    enough = complete >= dut.asks.payload.tiles
    spec.claim(EARLY, implies(asked & dut.asks.ready, enough))
    stands = asked & enough & ~dut.asks.ready & ~dut.restart
    before = spec.past(stands)
    longer = spec.past(before)
    spec.claim(LATE, implies(before & longer & spec.past(longer), dut.asks.ready))

    # The row of the group, and what is on its way to it.
    began, counting, last = (spec.inside(name) for name in ("began", "counting", "group"))
    row = spec.peek(dut.counts, group)
    mine = counting & (last == group)
    held = Signal(dut._count_bits)
    m.d.comb += held.eq(Mux(began.bit_select(group, 1), row, 0))
    spec.invariant(complete == Mux(mine & ~held.all(), held + 1, held))
    spec.invariant(implies(mine & began.bit_select(group, 1), spec.inside("found") == row))
    here = spec.inside("waits") & (dut.asks.payload.group == group)
    spec.invariant(implies(spec.inside("waits"), dut.asks.valid | dut.asks.ready))
    spec.invariant(implies(here & ~spec.inside("meets"), spec.inside("asked").data == row))
    shown = spec.inside("complete")
    spec.invariant(implies(here, shown <= held))
    spec.invariant(implies(here & ~spec.past(dut.restart), shown == spec.past(held)))


def _build(package: ModuleType, geometry: Geometry) -> wiring.Component:
    """On a small geometry with counters of three bits, which are full soon."""
    if geometry != GEOMETRIES["small"]:
        return package.blocks.BLOCKS["ready_table"](geometry)
    return package.window.ready_table.ReadyTable(package.blocks._waited_for(geometry), count_bits=3)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "window/ready_table.py", old, new)

    return [Property("ready", "ready_table", "an ask is taken when its group's tiles are complete", ready, (
        broken("ids after the last group count", EARLY, " & ~index[self._group_bits:].any()", ""),
        broken("the kernel before counts", EARLY, "Mux(began.bit_select(ask.group, 1), asked.data, 0)", "asked.data"),
        broken("a restart keeps what is complete", EARLY, "began.eq(0), ", ""),
        broken("a completion beside a restart counts", EARLY, "counting.eq(0), ", ""),
        broken("an ask is taken a tile early", EARLY, ">= ask.tiles", "+ 1 >= ask.tiles"),
        broken("what is taken is taken again", EARLY, "waits & ~self.asks.ready & (complete", "waits & (complete"),
        broken("of two completions of a group, one after the other, one counts", LATE,
               'done, found = forwarded_read(m, self.counts, write, "found")',
               "done = self.counts.read_port()\n        found = done.data"),
        broken("an ask whose row is being counted takes what the memory gives", EARLY,
               "Mux(meets, old, Mux(began", "Mux(0, old, Mux(began"),
        broken("an ask that waits does not read a row again that was counted", LATE, "(~waits | meets)", "~waits"),
        broken("an ask that waits is not looked at again", LATE, "self.asks.valid & ~self.asks.ready),",
               "self.asks.valid & ~waits),"),
    ), build=_build, depth=4, searches=(Search("small"), Search("default")), quick=True)]
