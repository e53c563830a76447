"""The sums of a switch's port: none is lost, made up, or kept when it is whole."""

from dataclasses import replace
from types import ModuleType

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.channel.nmc_alu import AluOp, NmcAlu, operands, result
from t3sim.rtl.geometry import Geometry, SwitchGeometry, TrackerGeometry
from t3sim.rtl.registers import EPOCH_BITS
from t3sim.rtl.streams.counting import ones
from t3sim.rtl.streams.moving_together import moving_together
from t3sim.rtl.switch.packets import Why
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.formal.streams import CLAIM, hold

COUNT = "no more parts of a sum leave than have arrived, and all have left when the table is empty"
DATA = "when the table is empty, the packets of a sum add up to its parts"
WHOLE = "a whole sum has one part of each source; an evicted or expired one has some parts, not all"
REFUSES = "exactly parts that no GPU sends, and second parts of a source, which are reported as such, are refused"
PENDING = "a source is pending from when a part is taken until it has left"
GOES = "a whole sum leaves within 8 cycles in which the output is ready"
#: Two of everything; addresses of 32 bits.
TINY = Geometry(TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=1, wf_bits=1, address_bits=32),
                switch=SwitchGeometry(ports=2, packet_bytes=4, merge_sets=2, merge_ways=2, part_bits=2))
#: for the broken designs: a single sum
LEAST = replace(TINY, switch=replace(TINY.switch, merge_sets=1, merge_ways=1))
REASON = "2 sources, sets and ways and 4 bytes of data; the default has 8, 128, 5 and 64"


class XorAlu(wiring.Component):
    """Exclusive or in the place of an addition, in the ALU's time: each part shows in the result, bit by bit."""

    LATENCY = NmcAlu.LATENCY

    def __init__(self, column_bytes: int) -> None:
        super().__init__({"operands": In(stream.Signature(operands(column_bytes))),
                          "result": Out(stream.Signature(result(column_bytes)))})
        self.columns = [Signal(8 * column_bytes, name=f"column_{stage}") for stage in range(self.LATENCY)]

    def elaborate(self, platform) -> Module:
        m = Module()
        move, self.holds = moving_together(m, self.operands, self.result, self.LATENCY)
        given = self.operands.payload
        store = Value.cast(given.op) == AluOp.STORE.value
        with m.If(move):
            m.d.sync += [after.eq(before) for before, after in zip(
                [given.new ^ Mux(store, 0, given.old), *self.columns], self.columns)]
        m.d.comb += self.result.payload.column.eq(self.columns[-1])
        return m


def build(package: ModuleType, geometry: Geometry) -> wiring.Component:
    table = package.switch.merge_table.MergeTable(geometry)
    table.alu = XorAlu
    return table


def sums(spec: Spec, geometry: Geometry) -> None:
    """Follow all parts of one arbitrary sum, and all of one arbitrary source.

    Assumed: what is offered stays; a sum's parts do not change, and it has some.
    """
    m, table, switch = spec.m, spec.design, geometry.switch
    ways, set_bits = switch.merge_ways, switch.merge_set_bits
    spec.hold(table.whole)
    spec.assume(table.whole != 0)
    address = spec.any_constant(geometry.tracker.address_bits)
    size = spec.any_constant(geometry.channel.byte_count_bits)
    epoch = spec.any_constant(EPOCH_BITS)
    dtype = spec.any_constant(2)
    source = spec.any_constant(range(switch.ports))
    offset, line = address[:switch.packet_shift], address[switch.packet_shift:]
    own_set, own_tag = line[:set_bits], Cat(line[set_bits:], offset, size, epoch, dtype)

    def is_own(packet):
        return ((packet.request.address == address) & (packet.request.bytes == size) & (packet.epoch == epoch)
                & (Value.cast(packet.dtype) == dtype))

    for port in table.parts:
        stays = spec.past(port.valid & ~port.ready)
        spec.assume(implies(stays, port.valid & (Value.cast(port.payload) == Value.cast(spec.past(port.payload)))))

    # What has come and not left.
    left = Signal(switch.part_bits + 5)
    column = Signal(8 * switch.packet_bytes)
    event = table.happened
    taken = [port.valid & port.ready & ~event.refuses for port in table.parts]
    come = [(takes & is_own(port.payload), port.payload) for takes, port in zip(taken, table.parts)]
    leaving = table.sums.payload
    leaves = table.sums.valid & table.sums.ready
    goes = leaves & is_own(leaving.packet)
    moved = [*come, (goes, leaving.packet)]
    m.d.sync += [
        left.eq(left + sum(now for now, _ in come) - Mux(goes, leaving.packet.parts, 0)),
        column.eq(column ^ Mux(moved[0][0], moved[0][1].column, 0) ^ Mux(moved[1][0], moved[1][1].column, 0)
                  ^ Mux(goes, leaving.packet.column, 0)),
    ]
    spec.claim(COUNT, implies(goes, leaving.packet.parts <= left) & implies(~table.busy, left == 0))
    spec.claim(DATA, implies(~table.busy, column == 0))
    why, parts = Value.cast(leaving.why), leaving.packet.parts
    spec.claim(WHOLE, implies(table.sums.valid & (why == Why.WHOLE.value), parts == table.whole))
    spec.claim(WHOLE, implies(table.sums.valid & ((why == Why.EVICTED.value) | (why == Why.EXPIRED.value)),
                              (parts != 0) & (parts < table.whole)))
    spec.claim(WHOLE, implies(table.sums.valid, (ones(leaving.sources) == parts) & (leaving.sources != 0)))

    # Of the source: parts that were taken and have not left, all of them and those of this sum.
    inside, mine = Signal(8), Signal(8)
    theirs = leaving.sources.bit_select(source, 1)
    takes, takes_mine = Signal(), Signal()
    for number, port in enumerate(table.parts):
        with m.If(source == number):
            m.d.comb += [takes.eq(taken[number]), takes_mine.eq(come[number][0])]
            of_source = port.valid & port.ready
            unlike = (port.payload.parts != 1) | (port.payload.request.bytes == 0) | (
                port.payload.request.address[:switch.packet_shift] + port.payload.request.bytes > switch.packet_bytes)
            spec.claim(REFUSES, implies((source == number) & of_source, event.refuses == (unlike | event.repeats)))
            spec.claim(REFUSES, implies((source == number) & of_source & event.repeats & is_own(port.payload),
                                        mine != 0))
    m.d.sync += [inside.eq(inside + takes - (leaves & theirs)), mine.eq(mine + takes_mine - (goes & theirs))]
    spec.claim(REFUSES, implies(event.refuses, Cat(port.valid & port.ready for port in table.parts).any())
               & implies(event.repeats, event.refuses))
    spec.claim(PENDING, table.pending.bit_select(source, 1) == (inside != 0))
    spec.claim(PENDING, implies(~table.busy, inside == 0))
    still = Signal(range(9))
    quiet = table.sums.ready & ~Cat(event.begins, event.joins, event.completes, event.refuses, event.evicts,
                                    event.expires).any()
    m.d.sync += still.eq(Mux(quiet, Mux(still == 8, 8, still + 1), 0))
    spec.claim(GOES, implies(quiet & (still == 8), implies(left != 0, left < table.whole)))

    # Where they are: rows, stages, queue.
    clearing, sweep, lookup, lookup_set, asking = map(spec.inside, (
        "clearing", "sweep", "lookup", "lookup_set", "part_source"))
    sum_valid, row_changes, new_row, read_sum, alu_valid, alu_sums = map(spec.inside, (
        "sum_valid", "row_changes", "new_row", "read_sum", "alu_valid", "alu_sums"))
    alu, queue = spec.inside("alu"), spec.inside("queue")
    front, back, front_valid, back_valid = (spec.inside(name, queue) for name in (
        "front", "back", "front_valid", "back_valid"))
    spec.invariant(implies(clearing, ~(lookup | sum_valid | row_changes | alu_valid.any() | front_valid | back_valid)
                           & (table.holds == 0) & (left == 0) & (column == 0) & (inside == 0) & (mine == 0)))
    spec.invariant(sweep < switch.merge_sets)
    spec.invariant(implies(sum_valid, row_changes) & (alu_valid == alu.holds) & implies(back_valid, front_valid))
    for_part = lookup & spec.inside("for_part")
    looked = Array(port.payload.request.address[switch.packet_shift:switch.packet_shift + set_bits]
                   for port in table.parts)[asking]
    spec.invariant(implies(for_part, Array(port.valid for port in table.parts)[asking] & (looked == lookup_set)))
    asked, part = spec.inside("part_port"), spec.inside("part")
    spec.invariant(asked == Mux(for_part, 1 << asking, 0))
    for number, port in enumerate(table.parts):
        spec.invariant(implies(asked[number], Cat(Value.cast(part[name]) == Value.cast(port.payload[name])
                                                  for name in ("request", "epoch", "dtype", "parts")).all()))

    stages = [(sum_valid, read_sum), *((alu_valid[number], alu_sums[number]) for number in range(alu.LATENCY))]
    word_read = spec.inside("word_read").data
    read_column = Mux(spec.inside("sum_stays"), word_read.column, Mux(
        spec.inside("part_adds"), word_read.column ^ spec.inside("column"), spec.inside("column")))
    columns = [read_column, *alu.columns]
    held, kept_of_source = 0, 0
    for number in range(switch.merge_sets):
        here = clearing & (sweep <= number)
        there = [lookup & (lookup_set == number), row_changes & (read_sum.set == number),
                 *(valid & (one.set == number) for valid, one in stages[1:])]
        spec.invariant(implies(sum(there) > 1, 0))
        content = spec.peek(table.rows, number)
        now = Signal(table.rows.shape, name=f"row_{number}")
        m.d.comb += Value.cast(now).eq(Mux(there[1], Value.cast(new_row), Value.cast(content)))
        spec.invariant(implies(there[0], Value.cast(spec.inside("row_read").data) == Value.cast(content)))
        for place, entry in enumerate(now):
            held += entry.valid & ~here
            kept_of_source += entry.valid & ~here & entry.sources.bit_select(source, 1)
            spec.invariant(implies(~here, (entry.place < ways)
                                   & implies(entry.valid, (entry.parts != 0) & (entry.parts < table.whole)
                                             & (entry.parts == ones(entry.sources)))))
            for other in [now[after] for after in range(place + 1, ways)]:
                spec.invariant(implies(~here, (entry.place != other.place) & implies(other.valid, entry.valid & (
                    entry.tag.as_value() != other.tag.as_value()))))
        for stage, (valid, one) in enumerate(stages):
            flies = valid & (one.set == number) & ~one.leaves
            spec.invariant(implies(flies, Cat(
                entry.valid & (entry.place == one.place) & (entry.tag.as_value() == one.tag.as_value())
                & (entry.parts == one.parts) & (entry.sources == one.sources) for entry in now).any()))
            if not stage:
                uses = sum_valid & (read_sum.set == number) & (spec.inside("sum_stays") | spec.inside("part_adds"))
                spec.invariant(implies(uses, Value.cast(word_read) == Value.cast(
                    spec.peek(table.words, Cat(read_sum.set, read_sum.place)))))
    spec.invariant(table.holds == held)
    queued = [(front_valid, front), (back_valid, back)]
    spec.invariant(inside == kept_of_source + sum(
        valid & one.leaves & one.sources.bit_select(source, 1) for valid, one in stages) + sum(
        valid & one.sources.bit_select(source, 1) for valid, one in queued))
    for number in range(switch.ports):
        counted = spec.inside("inside_counts")[number]
        spec.invariant(implies(source == number, counted == inside))
    for valid, one in queued:
        spec.invariant(implies(valid, (one.packet.parts == ones(one.sources)) & (one.sources != 0)))
    for valid, one in stages:
        spec.invariant(implies(valid & one.leaves, (one.parts == ones(one.sources)) & (one.sources != 0)))
        kind = Value.cast(one.why)
        spec.invariant(implies(valid & one.leaves & (kind == Why.WHOLE.value), one.parts == table.whole))
        spec.invariant(implies(valid & one.leaves & ((kind == Why.EVICTED.value) | (kind == Why.EXPIRED.value)),
                               (one.parts != 0) & (one.parts < table.whole)))
    for valid, one in ((front_valid, front), (back_valid, back)):
        kind = Value.cast(one.why)
        spec.invariant(implies(valid & (kind == Why.WHOLE.value), one.packet.parts == table.whole))
        spec.invariant(implies(valid & ((kind == Why.EVICTED.value) | (kind == Why.EXPIRED.value)),
                               (one.packet.parts != 0) & (one.packet.parts < table.whole)))
    spec.invariant(implies(sum_valid & spec.inside("sum_stays"), read_sum.leaves))
    spec.invariant(~(spec.inside("sum_stays") & spec.inside("part_adds")))

    own_row = Signal(table.rows.shape, name="own_row")
    pending = row_changes & (read_sum.set == own_set)
    m.d.comb += Value.cast(own_row).eq(Mux(pending, Value.cast(new_row), Value.cast(spec.peek(table.rows, own_set))))
    cleared = ~clearing | (sweep > own_set)
    own = [entry.valid & (entry.tag.as_value() == own_tag) & cleared for entry in own_row]
    in_row = sum(Mux(found, entry.parts, 0) for found, entry in zip(own, own_row))
    spec.invariant(mine == sum(found & entry.sources.bit_select(source, 1) for found, entry in zip(own, own_row)) + sum(
        valid & one.leaves & (one.set == own_set) & (one.tag.as_value() == own_tag) & one.sources.bit_select(source, 1)
        for valid, one in stages) + sum(
        valid & is_own(one.packet) & one.sources.bit_select(source, 1) for valid, one in queued))
    kept, flies = 0, 0
    for found, entry in zip(own, own_row):
        kept = kept | Mux(found, spec.peek(table.words, Cat(own_set, entry.place)).column, 0)
    value, in_stages, in_flight = 0, 0, 0
    for (valid, one), content in zip(stages, columns):
        mine = valid & (one.set == own_set) & (one.tag.as_value() == own_tag)
        in_stages = in_stages + Mux(mine & one.leaves, one.parts, 0)
        value = value ^ Mux(mine & one.leaves, content, 0)
        flies = flies | (mine & ~one.leaves)
        in_flight = in_flight | Mux(mine & ~one.leaves, content, 0)
    for valid, one in ((front_valid, front), (back_valid, back)):
        mine = valid & is_own(one.packet)
        in_stages = in_stages + Mux(mine, one.packet.parts, 0)
        value = value ^ Mux(mine, one.packet.column, 0)
    spec.invariant(left == in_row + in_stages)
    spec.invariant(column == value ^ Mux(flies, in_flight, kept))
    for stage in range(alu.LATENCY):
        spec.invariant(implies(still >= 3 + stage, ~alu_valid[stage]))
    spec.invariant(implies(still >= 1, ~back_valid) & implies(still >= 2, ~sum_valid)
                   & implies(still >= 8, ~front_valid))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "switch/merge_table.py", old, new)

    def in_row(what, claim, old, new):
        return Broken(what, claim, "switch/merge_row.py", old, new)

    own = {"geometry": TINY, "reason": REASON, "build": build}
    return [
        Property("sums", "merge_table", f"{COUNT}; {DATA}; {WHOLE}; {REFUSES}; {PENDING}; {GOES}", sums, (
            broken("a part does not wait for the sum that it is added to", DATA, "range(alu.LATENCY - 1))]",
                   "range(0))]"),
            broken("a sum that makes room is added to what needs it", DATA, "Mux(sum_stays, 0, column)", "column"),
            broken("a sum is not read", DATA, "part_adds.eq(row.merges & row.known)", "part_adds.eq(0)"),
            in_row("a sum that makes room has the parts of what needs it", COUNT,
                   "self.sum.eq(Mux(self.merges, with_part, entry)),",
                   "self.sum.eq(Mux(self.merges, with_part, entry)), self.sum.parts.eq(part.parts),"),
            broken("a sum that has waited is forgotten", COUNT, "sum_valid.eq(row.merges | row.evicts | row.expires)",
                   "sum_valid.eq(row.merges | row.evicts)"),
            in_row("a sum leaves one part early", WHOLE, "total == self.whole", "total == self.whole - 1"),
            broken("a whole sum stays", GOES, "read_sum.leaves.eq(row.leaves)",
                   "read_sum.leaves.eq(row.evicts | row.expires)"),
            in_row("a part is added to a sum of another kernel", COUNT, "tag.epoch.eq(part.epoch)", "tag.epoch.eq(0)"),
            in_row("a part is added to a sum of other bytes", COUNT, "tag.offset.eq(offset)", "tag.offset.eq(0)"),
            in_row("a second part of a source is added", WHOLE, "self.for_part & (unlike | self.repeats)",
                   "self.for_part & unlike"),
            in_row("a part may leave its line", REFUSES, "(offset + request.bytes > switch.packet_bytes)", "0"),
            broken("nobody waits for a part that was added to another", PENDING,
                   "enters = move & row.merges & part_port[number]",
                   "enters = move & row.merges & ~row.known & part_port[number]"),
            broken("a sum that has left is still waited for", PENDING, "self.sums.payload.sources[number]", "0"),
        ), timeout_s=1800, searches=(Search(LEAST, 22, skip=8),),
            unsearched="a run of two sums takes the solver minutes; with a single one it takes seconds", **own),
        Property("streams hold", "merge_table", f"every output stream: {CLAIM}", hold("merge_table"), (
            Broken("output moves on while it is refused", CLAIM, "streams/two_entry_queue.py",
                   "with m.If(~front_valid | self.output.ready):", "with m.If(1):"),
        ), quick=True, searches=(Search(TINY, 25),), **own),
    ]
