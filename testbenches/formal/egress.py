"""An egress lane translates every line that fits its region, for each route, and reports every other."""

from dataclasses import replace

from amaranth.hdl import Cat, Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Op, Source, packet
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, entry_of, implies, is_value
from t3sim.testbenches.geometries import GEOMETRIES

#: With several routes of a region, in a table that is no power of two.
_COPIES = replace(GEOMETRIES["least"], dma=replace(GEOMETRIES["least"].dma, regions=2, routes=3, copies=3))

#: And with a command queue, whose data are counted apart.
_QUEUED = replace(_COPIES, dma=replace(_COPIES.dma, queue_commands=2))

PLACES = 4  #: lines that can be inside

TRANSLATED = "a line that fits its region becomes a packet on each of its routes, in order and translated"
REPORTED = "a line that does not fit is reported once, in order, with its details, and becomes no packet"
EMPTY = "no line is inside when the lane is idle"
COUNTED = "packets of a DMA read's data are counted: one, and one more for each repetition"


class _Due:
    """Line that is due at one output: `number` for a line that enters.

    One arbitrary line is followed. `ahead` leave before the rest of what is due for it, of which `gone` have left.
    """

    def __init__(self, spec: Spec, number, leaves, line, most: int) -> None:
        m = spec.m
        self.count, self.ahead = Signal(range(PLACES * most + 2)), Signal(range(PLACES * most + 2))
        self.rest, self.gone = Signal(range(most + 1)), Signal(range(most + 1))
        self.line = Signal(line.shape())
        self.followed = self.rest != 0
        m.d.sync += self.count.eq(self.count + number - leaves)
        with m.If(leaves & self.followed):
            with m.If(self.ahead == 0):
                m.d.sync += [self.rest.eq(self.rest - 1), self.gone.eq(self.gone + 1)]
            with m.Else():
                m.d.sync += self.ahead.eq(self.ahead - 1)
        with m.If((number != 0) & ~self.followed & spec.any_sequence(1)):
            m.d.sync += [self.rest.eq(number), self.gone.eq(0), self.ahead.eq(self.count - leaves), self.line.eq(line)]
        self.first = self.followed & (self.ahead == 0)

    def is_in(self, spec: Spec, places: list[tuple]) -> None:
        """Say where what is due is, the oldest first: (how many, what holds if those are the followed line's).

        The latter is a function of how many of the line's have left before.
        """
        spec.invariant(self.count == sum(number for number, _ in places))
        spec.invariant(implies(self.followed, self.ahead + self.rest <= self.count))
        passed = 0
        for number, right in places:
            after, end = passed + number, self.ahead + self.rest
            own = self.followed & (number != 0) & (self.ahead <= passed) & (passed < end)
            spec.invariant(implies(own, (after <= end) & right((self.gone + passed - self.ahead)[:len(self.gone)])))
            spec.invariant(implies(self.followed & (number != 0), (self.ahead <= passed) | (self.ahead >= after)))
            passed = after


def lines(spec: Spec, geometry: Geometry) -> None:
    """Follow one arbitrary line through the lane.

    Assumed: the tables do not change while the lane works, and no soft reset makes it forget lines.
    """
    m, lane = spec.m, spec.design
    spec.assume(~lane.forget)
    for entry in (*lane.region, *lane.route):
        spec.hold(entry)
    several = geometry.dma.copies > 1
    most = 1 << len(lane.region[0].more_routes)

    def fits(line):
        entry = entry_of(m, lane.region, line.region)
        return ((entry.route + entry.more_routes) < len(lane.route)) & (
            (is_value(line.source, Source.LOCAL) & entry.send_stores)
            | (is_value(line.source, Source.DMA) & entry.send_dma))

    def packets_of(line):
        """Return how many packets a line becomes."""
        return Mux(fits(line), entry_of(m, lane.region, line.region).more_routes + 1, 0)

    def way_of(line, number):
        """Return the route that a line takes when `number` of its packets are on their way."""
        first, at = entry_of(m, lane.region, line.region).route, Signal.like(lane.region[0].route)
        m.d.comb += at.eq(first + number)
        return entry_of(m, lane.route, at)

    def becomes(line, number):
        """Return the packet of a line when `number` of its packets have left."""
        sent, way = Signal(packet(geometry)), way_of(line, number)
        m.d.comb += [
            sent.address.eq(line.address + way.address_offset), sent.wg.eq(line.wg + way.wg_offset),
            Value.cast(sent.source).eq(Mux(is_value(line.source, Source.LOCAL), Source.REMOTE.value, Source.DMA.value)),
            Value.cast(sent.op).eq(Mux(way.operation, Op.UPDATE.value, Op.STORE.value)),
            sent.region.eq(way.destination_region), sent.device.eq(way.device),
            sent.bytes.eq(line.bytes), sent.wf.eq(line.wf),
        ]
        return sent

    line = lane.line.payload
    accepted, leaves, fitting = Signal(), Signal(), Signal(range(most + 1))
    m.d.comb += [accepted.eq(lane.line.valid & lane.line.ready), leaves.eq(lane.packet.valid & lane.packet.ready),
                 fitting.eq(packets_of(line))]
    packets = _Due(spec, Mux(accepted, fitting, 0), leaves, line, most)
    reports = _Due(spec, accepted & (fitting == 0), lane.error.valid, line, 1)
    expected = becomes(packets.line, packets.gone)
    spec.claim(TRANSLATED, implies(lane.packet.valid, packets.count != 0))
    spec.claim(TRANSLATED, implies(lane.packet.valid & packets.first,
                                   Value.cast(lane.packet.payload) == Value.cast(expected)))
    told = lane.error.details
    spec.claim(REPORTED, implies(lane.error.valid, (reports.count != 0)
                                 & is_value(lane.error.code, ErrorCode.REGION_UNCONFIGURED)))
    spec.claim(REPORTED, implies(lane.error.valid & reports.first, Cat(
        told[name] == reports.line[name] for name, _ in told.shape()).all()))
    spec.claim(EMPTY, implies(~lane.busy, (packets.count == 0) & (reports.count == 0)))

    queue = spec.inside("lines")
    (front_valid, front), (back_valid, back) = (
        (spec.inside(f"{place}_valid", queue), spec.inside(place, queue)) for place in ("front", "back"))
    valid, held, way = spec.inside("line_valid"), spec.inside("line"), spec.inside("line_route")
    spec.invariant(implies(back_valid, front_valid))
    spec.invariant(implies(valid, spec.inside("line_fits") == fits(held)))
    spec.invariant(implies(valid, ~spec.inside("line_forgotten")))
    waiting = packets_of(front)  # of the line in front, how many are to come
    if several:
        again, left, following = (spec.inside(name) for name in ("head_repeats", "routes_left", "next_route"))
        entry = entry_of(m, lane.region, front.region)
        spec.invariant(implies(again, front_valid & fits(front) & (left < entry.more_routes)))
        spec.invariant(implies(again, following == (entry.route + entry.more_routes - left)[:len(following)]))
        waiting = Mux(again, left + 1, waiting)

    def same(content, of):
        return Value.cast(content) == Value.cast(of.line)

    whole = packets.gone + packets.rest
    spec.invariant(implies(packets.followed, whole == packets_of(packets.line)))
    packets.is_in(spec, [
        (spec.inside("output_valid"), lambda _: Value.cast(spec.inside("output")) == Value.cast(expected)),
        (valid & fits(held), lambda number: same(held, packets) & (
            Value.cast(way) == Value.cast(way_of(packets.line, number)))),
        (Mux(front_valid, waiting, 0), lambda number: same(front, packets) & (number + waiting == whole)),
        (Mux(back_valid, packets_of(back), 0), lambda number: same(back, packets) & (number == 0)),
    ])
    reports.is_in(spec, [(present & ~fits(content), lambda _, content=content: same(content, reports))
                         for present, content in ((valid, held), (front_valid, front), (back_valid, back))])


def counted(spec: Spec, geometry: Geometry) -> None:
    """Count as the top does, data of triggers and of copies apart.

    Nothing is assumed, not even that the tables stay as they are.
    """
    m, lane = spec.m, spec.design
    queue = spec.inside("lines")
    waiting = [(spec.inside(f"{place}_valid", queue), spec.inside(place, queue)) for place in ("front", "back")]
    places = [*waiting, (spec.inside("line_valid"), spec.inside("line")),
              (spec.inside("output_valid"), spec.inside("output"))]
    spec.invariant(implies(waiting[1][0], waiting[0][0]))
    line, leaves = lane.line.payload, lane.packet.valid & lane.packet.ready
    spec.claim(COUNTED, lane.left.any() == (leaves & is_value(lane.packet.payload.source, Source.DMA)))
    spec.claim(COUNTED, implies(leaves, is_value(lane.packet.payload.source, Source.REMOTE)
                                | is_value(lane.packet.payload.source, Source.DMA)))
    output = spec.inside("output").source
    spec.invariant(implies(spec.inside("output_valid"), ~is_value(output, Source.LOCAL)))
    if not geometry.dma.queue_commands:
        spec.invariant(implies(spec.inside("output_valid"), ~is_value(output, Source.COPY)))
    for origin, source in enumerate((Source.DMA, Source.COPY)[:len(lane.left)]):
        repeated = lane.repeated[origin] if geometry.dma.copies > 1 else 0
        enters = lane.line.valid & lane.line.ready & is_value(line.source, source)
        owed = Signal(range(PLACES + 2))
        m.d.sync += owed.eq(owed + enters + repeated - lane.left[origin] - lane.refused[origin])
        spec.claim(COUNTED, implies(~lane.busy, owed == 0))
        spec.claim(COUNTED, implies(lane.left[origin] | lane.refused[origin], owed != 0))
        spec.invariant(owed == sum(valid & is_value(content.source, source) for valid, content in places))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "link/egress.py", old, new)

    reason = "more are slow to solve: up to 4 routes of a region, in a table of 3"
    return [Property("lines", "egress", f"{TRANSLATED}; {REPORTED}", lines, (
        broken("a packet keeps its workgroup", TRANSLATED, "line.wg + line_route.wg_offset", "line.wg"),
        broken("a packet leaves twice", TRANSLATED, "output_valid.eq(line_valid & line_fits)",
               "output_valid.eq((line_valid & line_fits) | output_valid)"),
        broken("a line that does not fit is silent", EMPTY,
               "self.error.valid.eq(line_valid & ~line_fits & ~line_forgotten)", "self.error.valid.eq(0)"),
        broken("data of a DMA read leave from a remote-mapped region", REPORTED,
               "read_for(head, g).any() & entry.send_dma", "read_for(head, g).any()"),
        broken("the report names the next line", REPORTED, "self.error.details[name].eq(line[name])",
               "self.error.details[name].eq(head[name])"),
    ), depth=1), Property("rows", "egress", f"{TRANSLATED}; {REPORTED}; with several routes of a region", lines, (
        broken("the next route is skipped", TRANSLATED, "next_route.eq(route_number + 1)",
               "next_route.eq(route_number + 2)"),
        broken("routes beyond the table's end", TRANSLATED, "(entry.route + entry.more_routes) < len(self.route)", "1"),
        broken("a row may not reach the table's end", REPORTED,
               "entry.more_routes) < len(self.route)", "entry.more_routes) < len(self.route) - 1"),
        broken("a row does not go on", TRANSLATED, "head_repeats.eq(routes_remain)", "head_repeats.eq(0)"),
        broken("the last route of a row is missing", EMPTY, "entry.more_routes) != 0)", "entry.more_routes) > 1)"),
        broken("stores leave on the first route only", EMPTY, "routes_remain.eq(may_leave & (",
               "routes_remain.eq(may_leave & (head.source == Source.DMA) & ("),
        broken("a line that does not fit is reported for each route", REPORTED, "routes_remain.eq(may_leave & (",
               "routes_remain.eq(("),
    ), geometry=_COPIES, depth=1, searches=(Search(_COPIES),), reason=reason,
        # An own `build` keeps it from mutation, where it would say what "lines" says.
        build=lambda package, geometry: package.link.egress.Egress(geometry),
    ), Property("counted", "egress", COUNTED, counted, (
        broken("a repeated line is not counted", COUNTED,
               "self.repeated.eq(Mux(stage_free & lines.output.valid & routes_remain, read_for(head, g), 0))",
               "self.repeated.eq(0)"),
        broken("a store that is repeated counts, too", COUNTED, "& routes_remain, read_for(head, g), 0)",
               "& routes_remain, 1, 0)"),
        broken("data that are forgotten still count", COUNTED, "self.refused.eq(Mux(line_valid & ~line_fits,",
               "self.refused.eq(Mux(line_valid & ~line_fits & ~line_forgotten,"),
        broken("a copy's packet counts for nobody", COUNTED, "read_for(output, g), 0)", "read_for(output, g)[0], 0)"),
    ), geometry=_QUEUED, depth=1, searches=(Search(_QUEUED, 12),), quick=True, reason=reason)]
