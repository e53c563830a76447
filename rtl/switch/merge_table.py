"""Adds the parts of sums that GPUs send to one of them."""

from functools import reduce
from operator import or_

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..channel.nmc_alu import AluDtype, AluOp, NmcAlu
from ..geometry import Geometry, bits_for
from ..layouts import Op
from ..registers import EPOCH_BITS, SWITCH_TIMEOUT_BITS
from ..streams.rotating_grant import rotating_grant
from ..streams.two_entry_queue import TwoEntryQueue
from .packets import Why, is_over, merge_event, merged_packet, part_about, sum_about, switch_packet


class MergeTable(wiring.Component):
    """The sums of one port of a switch, begun but not whole, in sets of `merge_ways` each.

    A part is an UPDATE. Those of one kernel, of the same bytes and the same element type are added in the order in
    which they are taken, by the near-memory ALU; one that is the last leaves as the sum, with the parts that are in it
    and what the last of them says for the receiver's Tracker. CAIS (HPCA 2026) has such a table at each port.

    A sum has one part of each source. A second one is refused, and so is what is not one GPU's part of bytes in one
    line: it is taken, and goes nowhere.

    Nothing waits for a part that does not come. When a part finds its set full of other sums, the one whose last part
    is the longest ago leaves as it is; when no part of a sum has come for `timeout` x `merge_sets` cycles, and at the
    latest after little more than twice as long, it leaves, too. Either goes on to its GPU, whose memory adds; `parts`
    says how many of the sum it has, so that nothing is lost or counted twice. That is no error: what comes later of a
    sum that has made room never becomes whole, and a GPU may be late. A sum of a kernel that is over leaves when its
    set is looked at, and all of them do soon after a flush.

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
        Parts of a sum, 1 at least. It does not change while a sum is in here.
    timeout : In(SWITCH_TIMEOUT_BITS)
        Cycles from the end of one set's look for sums that wait to the next set's; 0 counts as 1.
    oldest : In(EPOCH_BITS)
        The first kernel that is not over, as in `packets.is_over`.
    flush : In(1)
        Pulse: look at every set at once for sums of kernels that are over.
    sums : Out(stream(merged_packet))
        In the order in which the parts were taken.
    happened : Out(merge_event)
    pending : Out(ports)
        Levels, registers: some part that was taken of this source has not left.
    holds : Out(range(merge_sets * merge_ways + 1))
        Sums that are kept.
    busy : Out(1)
        Clearing or flushing, or a part or a sum is in here.
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
            "timeout": In(SWITCH_TIMEOUT_BITS),
            "oldest": In(EPOCH_BITS),
            "flush": In(1),
            "sums": Out(stream.Signature(merged_packet(geometry))),
            "happened": Out(merge_event(geometry)),
            "pending": Out(switch.ports),
            "holds": Out(range(switch.merge_sets * switch.merge_ways + 1)),
            "busy": Out(1),
        })
        self._tag = data.StructLayout({
            "line": line_bits - switch.merge_set_bits, "offset": switch.packet_shift,
            "bytes": geometry.channel.byte_count_bits, "epoch": EPOCH_BITS, "dtype": AluDtype})
        #: of a sum; the entries of a row are in the order of their last parts, the latest first, those that are not
        #: valid last
        self._entry = data.StructLayout({"valid": 1, "waited": 1, "parts": switch.part_bits, "sources": switch.ports,
                                         "tag": self._tag, "place": bits_for(switch.merge_ways)})
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
        elapsed = Signal(SWITCH_TIMEOUT_BITS)  # since the last look
        flushes = Signal(range(switch.merge_sets + 1))  # sets that a flush has not looked at
        due = Signal()
        again = Signal()
        m.d.sync += elapsed.eq(Mux(due | clearing, 1, elapsed + 1))

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
            "parts": switch.part_bits, "sources": switch.ports, "about": sum_about(g)})
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
                                 *(part[name].eq(port.payload[name]) for name, _ in part_about(g))]

        # The row, and what becomes of the part.
        tag = Signal(self._tag)
        found = row_read.data
        hits = Signal(ways)
        known = Signal()  # the part's sum has begun
        leaving = Signal(ways)  # entries that have waited, or whose kernel is over
        at = Signal(ways)  # one-hot: the entry that it is about
        entry = Signal(self._entry)
        unlike = Signal()  # the part is none that a GPU sends
        repeats = Signal()
        total = Signal(switch.part_bits)
        last = Signal()
        alone = Signal()
        refuses = Signal()
        evicts = Signal()
        expires = Signal()
        merges = Signal()
        valid = Cat(one.valid for one in found)
        own = part.request
        offset = own.address[:switch.packet_shift]

        def oldest_of(entries):
            return entries & ~Cat(entries[number + 1:].any() for number in range(ways))

        m.d.comb += [
            tag.line.eq(own.address[switch.packet_shift + set_bits:]),
            tag.offset.eq(offset),
            tag.bytes.eq(own.bytes),
            tag.epoch.eq(part.epoch),
            tag.dtype.eq(part.dtype),
            hits.eq(Cat(one.valid & (one.tag.as_value() == tag.as_value()) for one in found)),
            leaving.eq(Cat(one.valid & ((one.waited & (flushes == 0)) | is_over(one.tag.epoch, self.oldest))
                           for one in found)),
            known.eq(hits.any()),
            at.eq(Mux(~looks_for_part, oldest_of(leaving), Mux(known, hits, 1 << ways - 1))),
            unlike.eq((part.parts != 1) | (own.bytes == 0) | (offset + own.bytes > switch.packet_bytes)),
            repeats.eq(Cat(hit & (one.sources & asked).any() for hit, one in zip(hits, found)).any()),
            refuses.eq(looks & looks_for_part & (unlike | repeats)),
            alone.eq(last & ~known),
            evicts.eq(looks & looks_for_part & ~unlike & ~alone & ~known & valid[-1]),
            expires.eq(looks & ~looks_for_part & leaving.any()),
            merges.eq(looks & looks_for_part & ~refuses & ~evicts),
        ]
        for number, one in enumerate(found):
            with m.If(at[number]):
                m.d.comb += entry.eq(one)
        # The total with each entry, and of the part alone, are compared while the entry is found.
        totals = [*((one.parts + 1)[:switch.part_bits] for one in found), C(1, switch.part_bits)]
        which = Cat(hits, ~known)

        def chosen_of(values):
            return reduce(or_, (Mux(here, value, 0) for here, value in zip(which, values)))

        m.d.comb += [total.eq(chosen_of(totals)), last.eq(chosen_of([one == self.whole for one in totals]))]
        kept = Signal(self._entry)
        goes = Signal()  # the entry leaves its row
        m.d.comb += [
            goes.eq(evicts | expires | (merges & last)),
            kept.valid.eq(1), kept.parts.eq(total), kept.tag.eq(tag), kept.place.eq(entry.place),
            kept.sources.eq(asked | Mux(known, entry.sources, 0)),
            word_read.en.eq(move & looks),
            word_read.addr.eq(Cat(looks_set, entry.place)),
        ]
        # Entries up to the one in question move back by one for it to come first; if it leaves, those after it forward.
        from_it, up_to_it = at | ~(at - 1), at | (at - 1)
        next_row = Signal(self.rows.shape)
        for number, one in enumerate(found):
            new = next_row[number]
            with m.If(~looks_for_part & ~expires):
                m.d.comb += [new.eq(one), new.waited.eq(one.waited | (flushes == 0))]
            with m.Elif(looks_for_part & (alone | refuses)):
                m.d.comb += new.eq(one)
            with m.Elif(goes):
                if number == ways - 1:
                    m.d.comb += new.place.eq(entry.place)
                else:
                    m.d.comb += new.eq(Mux(from_it[number], found[number + 1], one))
            with m.Else():
                m.d.comb += new.eq(Mux(up_to_it[number], found[number - 1] if number else kept, one))

        for number, port in enumerate(self.parts):
            m.d.comb += port.ready.eq(move & (merges | refuses) & asked[number])
            with m.If(move & asked[number]):
                m.d.sync += owed[number].eq(evicts)
        with m.If(move):
            m.d.sync += [
                reads.eq(merges | evicts | expires),
                read.set.eq(looks_set),
                read.place.eq(entry.place),
                read.leaves.eq(goes),
                read.why.eq(Mux(evicts, Why.EVICTED, Mux(expires, Why.EXPIRED, Why.WHOLE))),
                read.tag.eq(Mux(merges, tag, entry.tag)),
                read.parts.eq(Mux(merges, total, entry.parts)),
                read.sources.eq(Mux(merges, kept.sources, entry.sources)),
                adds.eq(merges & known),
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
            self.happened.completes.eq(move & merges & last),
            self.happened.refuses.eq(move & refuses),
            self.happened.repeats.eq(move & refuses & repeats),
            self.happened.evicts.eq(move & evicts),
            self.happened.expires.eq(move & expires),
            self.happened.source.eq(source),
            self.happened.address.eq(Mux(merges | refuses, own.address,
                                         Cat(entry.tag.offset, looks_set, entry.tag.line))),
        ]
        with m.If(clearing):
            m.d.sync += [clearing.eq(~last_set), sweep.eq(Mux(last_set, 0, sweep + 1))]
        with m.Elif(due):
            with m.If(move & looks & ~looks_for_part & ~again):
                m.d.sync += [due.eq(0), sweep.eq(Mux(last_set, 0, sweep + 1)), flushes.eq(flushes - (flushes != 0))]
        with m.Elif((elapsed >= self.timeout) | (flushes != 0)):
            m.d.sync += due.eq(1)
        with m.If(self.flush):
            m.d.sync += flushes.eq(switch.merge_sets)

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
            queue.input.payload.sources.eq(done.sources),
            packet.request.address.eq(Cat(done.tag.offset, done.set, done.tag.line)),
            packet.request.bytes.eq(done.tag.bytes),
            packet.request.op.eq(Op.UPDATE),
            *(packet.request[name].eq(done.about[name]) for name, _ in sum_about(g)),
            packet.epoch.eq(done.tag.epoch),
            packet.dtype.eq(done.tag.dtype),
            packet.parts.eq(done.parts),
            *([packet.request.more.eq(done.parts - 1)] if g.channel.more_bits else []),
            packet.column.eq(result.payload.column),
        ]
        # What is in here of each source: sums that are kept, or on their way through the adder and the queue.
        most = switch.merge_sets * ways + alu.LATENCY + 3
        insides = [Signal(range(most + 1), name=f"inside_{number}") for number in range(switch.ports)]
        for number, inside in enumerate(insides):
            comes = move & merges & asked[number]
            goes_out = self.sums.valid & self.sums.ready & self.sums.payload.sources[number]
            m.d.sync += inside.eq(inside + comes - goes_out)
            m.d.comb += self.pending[number].eq(inside != 0)
        ends = Signal()
        m.d.comb += ends.eq(move & (evicts | expires | (merges & last & ~alone)))
        m.d.sync += self.holds.eq(Mux(self.happened.begins, self.holds + 1, Mux(ends, self.holds - 1, self.holds)))
        m.d.comb += self.busy.eq(clearing | (flushes != 0) | (looks & looks_for_part) | reads | added.any()
                                 | queue.output.valid | (self.holds != 0))
        return m
