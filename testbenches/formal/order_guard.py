"""The order guard: a read never passes a tracked write to its line."""

from amaranth.hdl import Mux, Signal

from t3sim.rtl.channel.order_guard import bucket_of
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

BLOCKED = "a read of a line with an outstanding write is blocked"
FREE = "a read of a bucket without outstanding writes is not blocked"
ROOM = "there is room for a write if and only if the counters can distinguish one more"


def order(spec: Spec, geometry: Geometry) -> None:
    """Follow the writes to one arbitrary bucket that are granted and not retired, and a read of any line.

    Assumed, as the block's text says: a retirement is of a write that is outstanding; no write or retirement while
    the counters are being cleared; a write is granted when there is room.
    """
    m, guard = spec.m, spec.design
    line = spec.any_constant(geometry.tracker.address_bits)
    bucket = Signal.like(guard.write_bucket)
    outstanding = Signal(geometry.channel.occupancy_bits + 2)
    others = Signal.like(outstanding)  # of all other buckets
    writes, retires, roomy = Signal(), Signal(), Signal()
    m.d.comb += [
        bucket.eq(bucket_of(line, geometry)),
        writes.eq(guard.write & (bucket_of(guard.write_address, geometry) == bucket)),
        retires.eq(guard.retired & (guard.retired_bucket == bucket)),
    ]
    m.d.sync += [
        outstanding.eq(outstanding + writes - retires),
        others.eq(others + (guard.write & ~writes) - (guard.retired & ~retires)),
        roomy.eq(guard.room),
    ]
    spec.assume(implies(~guard.ready, ~guard.write & ~guard.retired))
    spec.assume(implies(guard.retired, Mux(retires, outstanding, others) != 0))
    most = 2**(geometry.channel.occupancy_bits + 1) - 1
    spec.assume(implies(guard.write, roomy))
    spec.assume(guard.retired_bucket < geometry.channel.guard_buckets)

    query = Signal.like(guard.query)
    with m.If(guard.moves):
        m.d.sync += query.eq(guard.following)
    spec.connect(guard.query, query)
    reads = guard.query == bucket
    spec.claim(BLOCKED, implies(guard.ready & reads & ((outstanding != 0) | writes), guard.blocked))
    spec.claim(FREE, implies(guard.ready & reads & (outstanding == 0) & ~writes, ~guard.blocked))
    spec.claim("the bucket that comes back is the line's", implies(
        guard.write & (guard.write_address == line), guard.write_bucket == bucket))

    granted, retired = counted(spec, guard, bucket)
    spec.invariant(spec.inside("outstanding") == outstanding + others)
    spec.invariant(implies(roomy, outstanding + others < most))
    spec.invariant(implies(guard.ready, (granted - retired)[:len(granted)] == outstanding))
    spec.invariant(implies(~guard.ready, outstanding == 0))


def room(spec: Spec, geometry: Geometry) -> None:
    """Count all writes that are granted and not retired. Assumed: as in `order`."""
    m, guard = spec.m, spec.design
    outstanding, roomy = Signal(geometry.channel.occupancy_bits + 2), Signal()
    m.d.sync += [outstanding.eq(outstanding + guard.write - guard.retired), roomy.eq(guard.room)]
    spec.assume(implies(guard.retired, outstanding != 0))
    spec.assume(implies(guard.write, roomy))
    most = 2**(geometry.channel.occupancy_bits + 1) - 1
    spec.claim(ROOM, guard.room == (outstanding + guard.write < most))
    spec.invariant(spec.inside("outstanding") == outstanding)
    spec.invariant(implies(roomy, outstanding < most))


def counted(spec: Spec, guard, bucket) -> tuple[Signal, Signal]:
    """Return the writes of a bucket that a guard counted as granted, and as retired; say where the counts are."""
    sweep = spec.inside("sweep", guard)
    spec.invariant(sweep <= guard._granted.counts.depth)
    counts = []
    for part in (guard._granted, guard._retired):
        row, count = spec.peek(part.counts, bucket), Signal.like(part.count)
        mine = spec.inside("counting", part) & (spec.inside("bucket", part) == bucket)
        spec.m.d.comb += count.eq(row + mine)
        spec.invariant(implies(mine, guard.ready & (spec.inside("before", part) == row)))
        spec.invariant(implies(~guard.ready & (bucket < sweep), row == 0))
        spec.invariant(implies((bucket < sweep) & (guard.query == bucket), part.count == row))
        counts.append(count)
    return counts[0], counts[1]


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "channel/order_guard.py", old, new)

    return [Property("order", "order_guard", "a read never passes a tracked write to its line", order, (
        broken("a write counts from the next cycle on", BLOCKED,
               " | (self.write & (self.write_bucket == self.query)))", ")"),
        broken("the bucket of the write is not folded", "the bucket that comes back is the line's",
               "self.write_bucket.eq(bucket_of(self.write_address, self._geometry))",
               "self.write_bucket.eq(self.write_address[6:])"),
        broken("counters are not cleared after a reset", FREE, "write.en.eq(counting | self.clear)",
               "write.en.eq(counting)"),
        broken("a write that is being counted does not count", BLOCKED,
               "            | self._granted.last | ", "            | "),
        broken("an event is not counted on top of the one just before it", BLOCKED,
               "Mux(counted_meets, written_count, counted.data)", "counted.data"),
        broken("what is asked about is what the memory gives for a counter that is being written", BLOCKED,
               "Mux(asked_meets, written_count, asked.data)", "asked.data"),
        broken("the last retirement does not count", FREE, "Mux(self._retired.last, ~one_more, granted != retired)",
               "(granted != retired)"),
        broken("the other bucket is looked up", BLOCKED, "asked.addr.eq(Mux(self.moves, self.following, self.query))",
               "asked.addr.eq(self.query)"),
        broken("what is asked about is not read again after it was written", BLOCKED,
               "asked.en.eq(self.moves | asked_meets)", "asked.en.eq(self.moves)"),
        broken("a counter is read a cycle after its event", BLOCKED, "counted.en.eq(self.happens)",
               "counted.en.eq(counting)"),
    ), quick=True, searches=(Search("small"), Search("default", 70, skip=63))),
        Property("room", "order_guard", ROOM, room, (
            broken("the write of this cycle is not in the count", ROOM, "(outstanding[0] | self.write)",
                   "outstanding[0]"),
            broken("retirements make no room", ROOM, "outstanding + self.write - self.retired",
                   "outstanding + self.write"),
        ), quick=True, geometry="least", searches=(Search("least", 24),),
            reason="no search is long enough to fill a longer count")]
