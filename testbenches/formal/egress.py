"""An egress lane translates every line that fits its region, and reports every other."""

from dataclasses import replace

from amaranth.hdl import Array, Cat, Mux, Signal, Value

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Source, descriptor, packet

from ..geometries import GEOMETRIES
from .broken import Broken
from .property import Property, Search
from .spec import Spec, implies, is_value

#: With a command queue, without which no region names another.
_QUEUED = replace(GEOMETRIES["least"], dma=replace(GEOMETRIES["least"].dma, queue_commands=4))

PLACES = 4  #: lines that can be inside

TRANSLATED = "a line that fits becomes one packet, in order, in its destination's terms"
REPORTED = "a line that does not fit is reported once, in order, with its details, and becomes no packet"
EMPTY = "no line is inside when the lane is idle"
ROW = "data of a DMA read become a packet for their region and for each that follows, of larger numbers, in this order"
COUNTED = "what a line becomes is counted: one, and one more for each time that it is repeated"


class _Due:
    """Lines inside that are due at one output; one arbitrary of them is followed, `ahead` leave before it."""

    def __init__(self, spec: Spec, enters, leaves, line) -> None:
        m = spec.m
        self.count, self.ahead = Signal(range(PLACES + 2)), Signal(range(PLACES + 2))
        self.followed, self.line = Signal(), Signal(line.shape())
        m.d.sync += self.count.eq(self.count + enters - leaves)
        with m.If(leaves & self.followed):
            m.d.sync += [self.followed.eq(self.ahead != 0), self.ahead.eq(self.ahead - 1)]
        with m.If(enters & ~self.followed & spec.any_sequence(1)):
            m.d.sync += [self.followed.eq(1), self.ahead.eq(self.count - leaves), self.line.eq(line)]
        self.first = self.followed & (self.ahead == 0)

    def is_in(self, spec: Spec, places: list[tuple]) -> None:
        """Say where what is due is, the oldest first: (present, whether it holds what the followed line makes)."""
        spec.invariant(self.count == sum(present for present, _ in places))
        spec.invariant(implies(self.followed, self.ahead < self.count))
        passed = 0
        for present, right in places:
            spec.invariant(implies(self.followed & present & (self.ahead == passed), right))
            passed = passed + present


def lines(spec: Spec, geometry: Geometry) -> None:
    """Follow one arbitrary line through the lane.

    Assumed: the region table does not change while the lane works, and no soft reset makes it forget lines.
    """
    m, lane = spec.m, spec.design
    spec.assume(~lane.forget)
    for entry in lane.descriptors:
        spec.hold(entry)

    def fits(line):
        found = Signal()
        with m.Switch(line.region):
            for number, entry in enumerate(lane.descriptors):
                with m.Case(number):
                    m.d.comb += found.eq(
                        (is_value(line.source, Source.LOCAL) & entry.send_stores)
                        | (is_value(line.source, Source.DMA) & entry.send_dma))
        return found

    def becomes(line):
        """Return the packet of a line."""
        sent, rule = Signal(packet(geometry)), Signal(descriptor(geometry))
        with m.Switch(line.region):
            for number, entry in enumerate(lane.descriptors):
                with m.Case(number):
                    m.d.comb += rule.eq(entry)
        m.d.comb += [
            sent.address.eq(line.address + rule.address_offset), sent.wg.eq(line.wg + rule.wg_offset),
            sent.source.eq(Mux(is_value(line.source, Source.LOCAL), Source.REMOTE, Source.DMA)), sent.op.eq(rule.op),
            sent.region.eq(rule.destination_region), sent.device.eq(rule.device),
            sent.bytes.eq(line.bytes), sent.wf.eq(line.wf),
        ]
        return sent, rule

    line = lane.line.payload
    accepted, leaves, enters_fitting = Signal(), Signal(), Signal()
    m.d.comb += [accepted.eq(lane.line.valid & lane.line.ready), leaves.eq(lane.packet.valid & lane.packet.ready),
                 enters_fitting.eq(fits(line))]
    packets = _Due(spec, accepted & enters_fitting, leaves, line)
    reports = _Due(spec, accepted & ~enters_fitting, lane.error.valid, line)
    expected, rule = becomes(packets.line)
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
    waiting = [(spec.inside(f"{place}_valid", queue), spec.inside(place, queue)) for place in ("front", "back")]
    valid, held, route = spec.inside("valid"), spec.inside("line"), spec.inside("route")
    spec.invariant(implies(waiting[1][0], waiting[0][0]))
    spec.invariant(implies(valid, spec.inside("fits") == fits(held)))
    spec.invariant(implies(valid, ~spec.inside("forgotten")))
    output = spec.inside("output")
    inside = [(valid, held), *waiting]
    routed = Cat(Value.cast(route[name]) == Value.cast(rule[name]) for name, _ in route.shape()).all()
    packets.is_in(spec, [(spec.inside("output_valid"), Value.cast(output) == Value.cast(expected)), *(
        (present & fits(content), (Value.cast(content) == Value.cast(packets.line)) & (routed | (content is not held)))
        for present, content in inside)])
    reports.is_in(spec, [(present & ~fits(content), Value.cast(content) == Value.cast(reports.line))
                         for present, content in inside])


def rows(spec: Spec, geometry: Geometry) -> None:
    """Assumed: the region table does not change, no soft reset, and a line comes when the one before has left."""
    m, lane = spec.m, spec.design
    spec.assume(~lane.forget)
    spec.assume(implies(lane.line.valid, ~lane.busy))
    for entry in lane.descriptors:
        spec.hold(entry)
    line, region = Signal(lane.line.payload.shape()), Signal(geometry.dma.region_bits)
    due, owed = Signal(), Signal(range(geometry.dma.regions + 2))  # due: `region`'s turn; owed: packets and errors
    entry = Array(lane.descriptors)[region]
    dma, more = is_value(line.source, Source.DMA), Signal()
    accepted, leaves = lane.line.valid & lane.line.ready, lane.packet.valid & lane.packet.ready
    m.d.comb += more.eq(dma & entry.send_dma & (entry.also > region))
    with m.If(accepted):
        m.d.sync += [line.eq(lane.line.payload), region.eq(lane.line.payload.region), due.eq(1)]
    with m.Elif(leaves | lane.error.valid):
        m.d.sync += [due.eq(more), region.eq(entry.also)]
    m.d.sync += owed.eq(owed + accepted + lane.repeated - leaves - lane.error.valid)
    sent = lane.packet.payload
    # A report is not held up by the packets before it, so that only without it is it known whose turn it is.
    fit = Cat(each.send_dma & each.send_stores for each in lane.descriptors).all()
    spec.claim(ROW, implies(lane.packet.valid & fit, due & (sent.device == entry.device)
                            & (sent.region == entry.destination_region) & (sent.wf == line.wf)
                            & (sent.address == (line.address + entry.address_offset)[:len(sent.address)])))
    spec.claim(ROW, implies(~lane.busy & fit, ~due))
    spec.claim(COUNTED, lane.busy == (owed != 0))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "egress.py", old, new)

    return [Property("lines", "egress", f"{TRANSLATED}; {REPORTED}", lines, (
        broken("a packet keeps its workgroup", TRANSLATED, "line.wg + route.wg_offset", "line.wg"),
        broken("a packet leaves twice", TRANSLATED, "output_valid.eq(valid & fits)",
               "output_valid.eq((valid & fits) | output_valid)"),
        broken("a line that does not fit is silent", EMPTY, "self.error.valid.eq(valid & ~fits & ~forgotten)",
               "self.error.valid.eq(0)"),
        broken("data of a DMA read leave from a remote-mapped region", REPORTED,
               "(head.source == Source.DMA) & entry.send_dma", "(head.source == Source.DMA)"),
        broken("the report names the next line", REPORTED, "self.error.details[name].eq(line[name])",
               "self.error.details[name].eq(head[name])"),
    ), depth=1), Property("rows", "egress", f"{ROW}; {COUNTED}", rows, (
        broken("a region of a smaller number follows", ROW, "entry.also > region", "entry.also < region"),
        broken("a row does not go on", ROW, "again.eq(more)", "again.eq(0)"),
        broken("stores are repeated", ROW, " & (head.source == Source.DMA)),",
               "),"),
        broken("a repeated line is not counted", COUNTED, "self.repeated.eq(leaves & lines.output.valid & more)",
               "self.repeated.eq(0)"),
    ), geometry=_QUEUED, bounded=True, depth=11, searches=(Search(_QUEUED),),
        reason="a row of the three regions of larger numbers takes six cycles; two lines fit")]
