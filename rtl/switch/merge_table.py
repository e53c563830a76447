"""Adds the parts of sums that GPUs send to one of them."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..channel.nmc_alu import AluDtype, AluOp, NmcAlu
from ..geometry import Geometry, bits_for
from ..layouts import Op
from ..streams.rotating_grant import rotating_grant
from ..streams.two_entry_queue import TwoEntryQueue
from .packets import Why, merge_event, merged_packet, part_about, sum_about, switch_packet

TIMEOUT_BITS = 16


class MergeTable(wiring.Component):
    """The sums of one port of a switch, begun but not whole, in sets of `merge_ways` lines each.

    A part is an UPDATE of a line. Parts of one line and one element type are added in the order in which they are
    taken, by the near-memory ALU; one that is the last leaves as the sum, with the parts that are in it and what the
    last of them says for the receiver's Tracker. CAIS (HPCA 2026) has such a table at each port.

    Nothing waits for a part that does not come. When a part finds its set full of other sums, the one whose last part
    is the longest ago leaves as it is; when no part of a sum has come for `timeout` x `merge_sets` cycles, and at the
    latest after twice as long, it leaves, too. Either goes on to its GPU, whose memory adds; `parts` says how many of
    the sum it has, so that nothing is lost or counted twice. A part that would make a sum have more than `whole` parts
    leaves alone.

    A sum is read, added to and written back in seven cycles, in which its set takes no other part; those of other
    sources that are for other sets pass. So one part per cycle is added if two sources or more offer some of different
    sets, and one every second cycle of a single source. Each source's own stay in order. `sums` is a function
    of registers; `parts[*].ready` and `happened` are of registers, `whole` and the part that is looked up.

    For `merge_sets` cycles after reset nothing is taken.

    Members
    -------
    parts : In(stream(switch_packet)).array(ports)
        UPDATEs only, of each source. Once offered a part must stay.
    whole : In(part_bits)
        Parts of a sum. It does not change while a sum is in here.
    timeout : In(TIMEOUT_BITS)
        Cycles from one set's look for sums that wait to the next set's, which take two at least; 0: never.
    sums : Out(stream(merged_packet))
        In the order in which the parts were taken. The lowest bits of an address, within the line, are 0.
    happened : Out(merge_event)
    holds : Out(range(merge_sets * merge_ways + 1))
        Sums that are kept.
    busy : Out(1)
        Clearing, or a part or a sum is in here.
    """

    #: what adds; a proof puts another one here
    alu = NmcAlu

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        switch = geometry.switch
        line_bits = geometry.tracker.address_bits - switch.packet_shift
        super().__init__({
            "parts": In(stream.Signature(switch_packet(geometry))).array(switch.ports),
            "whole": In(switch.part_bits),
            "timeout": In(TIMEOUT_BITS),
            "sums": Out(stream.Signature(merged_packet(geometry))),
            "happened": Out(merge_event(geometry)),
            "holds": Out(range(switch.merge_sets * switch.merge_ways + 1)),
            "busy": Out(1),
        })
        self._tag = data.StructLayout({"line": line_bits - switch.merge_set_bits, "dtype": AluDtype})
        #: of a sum; the entries of a row are in the order of their last parts, the latest first, those that are not
        #: valid last
        self._entry = data.StructLayout({"valid": 1, "waited": 1, "parts": switch.part_bits, "tag": self._tag,
                                         "place": bits_for(switch.merge_ways)})
        self.rows = Memory(shape=data.ArrayLayout(self._entry, switch.merge_ways), depth=switch.merge_sets, init=[])
        self._word = data.StructLayout({"about": sum_about(geometry), "column": 8 * switch.packet_bytes})
        self.words = Memory(shape=self._word, depth=switch.merge_sets * switch.merge_ways, init=[])

    def elaborate(self, platform) -> Module:
        m = Module()
        g, switch = self._geometry, self._geometry.switch
        ways, set_bits = switch.merge_ways, switch.merge_set_bits
        m.submodules.rows, m.submodules.words = self.rows, self.words
        m.submodules.alu = alu = self.alu(switch.packet_bytes)
        m.submodules.queue = queue = TwoEntryQueue(merged_packet(g))
        wiring.connect(m, wiring.flipped(self.sums), queue.output)
        row_read, row_write = self.rows.read_port(), self.rows.write_port()
        word_read, word_write = self.words.read_port(), self.words.write_port()
        move = Signal()
        m.d.comb += move.eq(alu.operands.ready)

        clearing = Signal(init=1)
        sweep = Signal(range(max(2, switch.merge_sets)))
        last_set = sweep == switch.merge_sets - 1

        # Look for sums that wait: of one set at a time, which is looked at again while one leaves.
        elapsed = Signal(TIMEOUT_BITS)
        due = Signal()
        again = Signal()
        m.d.sync += elapsed.eq(Mux((elapsed >= self.timeout) | clearing, 1, elapsed + 1))

        # First stage: a row is looked up for a part of `source`, or to look for sums that wait.
        looks = Signal()
        looks_for_part = Signal()
        looks_set = Signal(set_bits)
        source = Signal(range(switch.ports))
        asked = Signal(switch.ports)  # one-hot: the source whose part is looked up
        part = Signal(part_about(g), reset_less=True)
        # Second: the sum is read. What leaves, and which entry.
        held = data.StructLayout({
            "set": set_bits, "place": self._entry["place"].shape, "leaves": 1, "why": Why, "tag": self._tag,
            "parts": switch.part_bits, "about": sum_about(g)})
        reads = Signal()
        writes_row = Signal()
        read = Signal(held, reset_less=True)
        column = Signal(8 * switch.packet_bytes, reset_less=True)
        adds = Signal()  # the part to the sum
        keeps = Signal()  # the sum as it is
        row = Signal(self.rows.shape, reset_less=True)  # to be written
        # Then those of the adder.
        added = Signal(alu.LATENCY)
        beside = [Signal(held, name=f"beside_{stage}", reset_less=True) for stage in range(alu.LATENCY)]

        def set_of(packet):
            return packet.request.address[switch.packet_shift:switch.packet_shift + set_bits]

        flying = [(looks, looks_set), (writes_row, read.set),
                  *((added[stage], beside[stage].set) for stage in range(alu.LATENCY - 1))]
        owed = Signal(switch.ports)  # a sum has made room for it
        wants = Signal(switch.ports)
        for number, port in enumerate(self.parts):
            own = set_of(port.payload)
            free = Signal(name=f"free_{number}")
            m.d.comb += [
                free.eq(~Cat(*(there & (flying_set == own) for there, flying_set in flying),
                             *(owed[other] & (set_of(self.parts[other].payload) == own)
                               for other in range(switch.ports) if other != number)).any()),
                wants[number].eq(port.valid & free & ~asked[number]),
            ]
        sweeps = Signal()
        takes = Signal()
        has_swept = Signal()  # since a part was taken: parts that wait go first
        m.d.comb += sweeps.eq(due & ~Cat(there & (flying_set == sweep[:set_bits]) for there, flying_set in flying).any()
                              & ~(looks & ~looks_for_part)
                              & ~(has_swept & Cat(port.valid for port in self.parts).any()))
        with m.If(move & (sweeps | takes)):
            m.d.sync += has_swept.eq(sweeps)
        chosen = Signal(switch.ports)
        m.d.comb += [
            takes.eq(move & ~clearing & ~sweeps & wants.any()),
            chosen.eq(rotating_grant(m, wants, takes) & wants),
            row_read.en.eq(move),
            row_read.addr.eq(sweep[:set_bits]),
        ]
        with m.If(~sweeps):
            for number, port in enumerate(self.parts):
                with m.If(chosen[number]):
                    m.d.comb += row_read.addr.eq(set_of(port.payload))
        with m.If(move):
            m.d.sync += [looks.eq(~clearing & (sweeps | wants.any())), looks_for_part.eq(~sweeps),
                         looks_set.eq(row_read.addr), asked.eq(Mux(takes, chosen, 0))]
            for number, port in enumerate(self.parts):
                with m.If(chosen[number]):
                    m.d.sync += [source.eq(number),
                                 *(part[name].eq(port.payload[name]) for name in ("request", "dtype", "parts"))]

        # The row, and what becomes of the part.
        tag = Signal(self._tag)
        found = row_read.data
        hits = Signal(ways)
        known = Signal()  # the part's sum has begun
        valid = Cat(entry.valid for entry in found)
        at = Signal(ways)  # one-hot: the entry that it is about
        entry = Signal(self._entry)
        total = Signal(switch.part_bits + 1)
        over = Signal()
        last = Signal()
        alone = Signal()
        evicts = Signal()
        expires = Signal()
        merges = Signal()
        oldest = Signal(ways)  # one-hot: the last that is valid
        m.d.comb += [
            tag.line.eq(part.request.address[switch.packet_shift + set_bits:]),
            tag.dtype.eq(part.dtype),
            hits.eq(Cat(one.valid & (one.tag.as_value() == tag.as_value()) for one in found)),
            oldest.eq(valid & ~(valid >> 1)),
            known.eq(hits.any()),
            at.eq(Mux(~looks_for_part, oldest, Mux(known, hits, 1 << ways - 1))),
            alone.eq(over | (last & ~known)),
            evicts.eq(looks & looks_for_part & ~alone & ~known & valid[-1]),
            expires.eq(looks & ~looks_for_part & (oldest & Cat(one.waited for one in found)).any()),
            merges.eq(looks & looks_for_part & ~evicts),
        ]
        for number, one in enumerate(found):
            with m.If(at[number]):
                m.d.comb += entry.eq(one)
        # The total with each entry, and the part's own, are compared while the entry is found.
        totals = [*(one.parts + part.parts for one in found), part.parts]
        which = Cat(hits, ~known)

        def chosen_of(values):
            return reduce(or_, (Mux(here, value, 0) for here, value in zip(which, values)))

        m.d.comb += [
            total.eq(chosen_of(totals)),
            over.eq((part.parts == 0) | chosen_of([one > self.whole for one in totals])),
            last.eq(chosen_of([one == self.whole for one in totals])),
        ]
        kept = Signal(self._entry)
        goes = Signal()  # the entry leaves its row
        m.d.comb += [
            goes.eq(evicts | expires | (merges & last)),
            kept.valid.eq(1), kept.parts.eq(total), kept.tag.eq(tag), kept.place.eq(entry.place),
            word_read.en.eq(move & looks),
            word_read.addr.eq(Cat(looks_set, entry.place)),
        ]
        # Entries up to the one in question move back by one for it to come first; if it leaves, those after it forward.
        from_it, up_to_it = at | ~(at - 1), at | (at - 1)
        next_row = Signal(self.rows.shape)
        for number, one in enumerate(found):
            new = next_row[number]
            with m.If(~looks_for_part & ~expires):
                m.d.comb += [new.eq(one), new.waited.eq(1)]
            with m.Elif((looks_for_part & alone) | ~at.any()):
                m.d.comb += new.eq(one)
            with m.Elif(goes):
                if number == ways - 1:
                    m.d.comb += new.place.eq(entry.place)
                else:
                    m.d.comb += new.eq(Mux(from_it[number], found[number + 1], one))
            with m.Else():
                m.d.comb += new.eq(Mux(up_to_it[number], found[number - 1] if number else kept, one))

        leaves = Signal()
        m.d.comb += leaves.eq(goes | (merges & alone))
        for number, port in enumerate(self.parts):
            m.d.comb += port.ready.eq(move & merges & asked[number])
            with m.If(move & asked[number]):
                m.d.sync += owed[number].eq(evicts)
        with m.If(move):
            m.d.sync += [
                reads.eq(merges | evicts | expires),
                read.set.eq(looks_set),
                read.place.eq(entry.place),
                read.leaves.eq(leaves),
                read.why.eq(Mux(evicts, Why.EVICTED, Mux(expires, Why.EXPIRED, Mux(over, Why.ALONE, Why.WHOLE)))),
                read.tag.eq(Mux(merges, tag, entry.tag)),
                read.parts.eq(Mux(merges, Mux(over, part.parts, total[:-1]), entry.parts)),
                adds.eq(merges & ~alone & known),
                keeps.eq(~merges),
                row.eq(next_row),
                *(read.about[name].eq(part.request[name]) for name, _ in sum_about(g)),
            ]
            for number, port in enumerate(self.parts):
                with m.If(asked[number]):
                    m.d.sync += column.eq(port.payload.column)
            m.d.sync += writes_row.eq(looks)
        m.d.comb += [
            row_write.en.eq(clearing | (writes_row & move)),
            row_write.addr.eq(read.set),
            row_write.data.eq(row),
        ]
        with m.If(clearing):
            m.d.comb += [row_write.addr.eq(sweep), row_write.data.eq(0)]
            m.d.comb += [row_write.data[number].place.eq(number) for number in range(ways)]

        m.d.comb += [
            again.eq(expires),
            self.happened.begins.eq(move & merges & ~alone & ~known),
            self.happened.joins.eq(move & merges & ~alone & known & ~last),
            self.happened.completes.eq(move & merges & ~over & last),
            self.happened.refuses.eq(move & merges & over),
            self.happened.evicts.eq(move & evicts),
            self.happened.expires.eq(move & expires),
            self.happened.source.eq(source),
            self.happened.address.eq(Cat(Const(0, switch.packet_shift), looks_set,
                                         Mux(merges, tag.line, entry.tag.line))),
        ]
        with m.If(clearing):
            m.d.sync += [clearing.eq(~last_set), sweep.eq(Mux(last_set, 0, sweep + 1))]
        with m.Elif(move & looks & ~looks_for_part):
            with m.If(~again):
                m.d.sync += [due.eq(0), sweep.eq(Mux(last_set, 0, sweep + 1))]
        with m.If((elapsed >= self.timeout) & (self.timeout != 0) & ~clearing):
            m.d.sync += due.eq(1)

        # The sum, or the part alone; a sum that leaves as it is, is combined with nothing.
        word = word_read.data
        operands, result = alu.operands, alu.result
        m.d.comb += [
            operands.valid.eq(reads),
            operands.payload.old.eq(word.column),
            operands.payload.new.eq(Mux(keeps, 0, column)),
            operands.payload.op.eq(Mux(keeps, AluOp.XOR, Mux(adds, AluOp.ADD, AluOp.STORE))),
            operands.payload.dtype.eq(read.tag.dtype),
        ]
        with m.If(move):
            m.d.sync += [added.eq(Cat(reads, added)), *(after.eq(before) for before, after in zip(beside, beside[1:])),
                         beside[0].eq(read)]
            with m.If(keeps):
                m.d.sync += beside[0].about.eq(word.about)
        done = beside[-1]
        packet = queue.input.payload.packet
        m.d.comb += [
            result.ready.eq(~done.leaves | queue.input.ready),
            word_write.en.eq(result.valid & ~done.leaves),
            word_write.addr.eq(Cat(done.set, done.place)),
            word_write.data.about.eq(done.about),
            word_write.data.column.eq(result.payload.column),
            queue.input.valid.eq(result.valid & done.leaves),
            queue.input.payload.why.eq(done.why),
            packet.request.address.eq(Cat(Const(0, switch.packet_shift), done.set, done.tag.line)),
            packet.request.op.eq(Op.UPDATE),
            *(packet.request[name].eq(done.about[name]) for name, _ in sum_about(g)),
            packet.dtype.eq(done.tag.dtype),
            packet.parts.eq(done.parts),
            *([packet.request.more.eq(done.parts - 1)] if g.channel.more_bits else []),
            packet.column.eq(result.payload.column),
        ]
        ends = Signal()
        m.d.comb += ends.eq(move & (evicts | expires | (merges & last & ~alone)))
        m.d.sync += self.holds.eq(Mux(self.happened.begins, self.holds + 1, Mux(ends, self.holds - 1, self.holds)))
        m.d.comb += self.busy.eq(clearing | (looks & looks_for_part) | reads | added.any() | queue.output.valid
                                 | (self.holds != 0))
        return m
