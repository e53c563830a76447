"""Adds the parts of sums that GPUs send to one GPU."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from t3sim.rtl.channel.nmc_alu import AluOp, NmcAlu
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import Op
from t3sim.rtl.registers import EPOCH_BITS, SWITCH_TIMEOUT_BITS
from t3sim.rtl.streams.rotating_grant import rotating_grant
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue
from t3sim.rtl.switch.merge_row import MergeRow, merge_row, sum_tag
from t3sim.rtl.switch.packets import Why, merge_event, merged_packet, part_about, sum_about, switch_packet


class MergeTable(wiring.Component):
    """The incomplete sums of one port of a switch, in sets of `merge_ways` each (CAIS, HPCA 2026).

    1. Parts (UPDATEs) of one kernel, of the same bytes and element type, are added in the order in which they are
       taken, by the near-memory ALU. The last part sends the sum, with the number of its parts and with that last
       part's metadata for the receiver's Tracker.
    2. A sum has one part of each source. A second one is refused, and so is a part that is not one GPU's or not in one
       line: it is taken and dropped.
    3. No sum waits for ever. If a part finds its set full of other sums, the sum with the oldest last part leaves. A
       sum without a new part for `timeout` x `merge_sets` cycles leaves, at the latest after little more than twice as
       long. Such an incomplete sum is no error: the GPU's memory adds it, and `parts` says how many it has, so nothing
       is lost or counted twice. Parts that arrive after an eviction never complete a sum.
    4. A sum of a kernel that is over leaves when its set is looked up, and all such sums leave soon after a flush.
    5. Adding a part takes 7 cycles, in which its set takes no other part. One part per cycle is added if two or more
       sources offer parts of different sets, and one in two cycles from a single source. Each source's parts stay in
       order.
    6. `sums` is a function of registers. `parts[*].ready` and `happened` depend on registers, `whole` and the part that
       is looked up.

    For `merge_sets` cycles after reset no part is taken. The caller must keep an offered part, and must not change
    `whole` while a sum is inside.

    Members
    -------
    parts : In(stream(switch_packet)).array(ports)
        UPDATEs only, from each source.
    whole : In(part_bits)
        Parts of a sum, at least 1.
    timeout : In(SWITCH_TIMEOUT_BITS)
        Cycles from the end of one set's look for overdue sums to the next set's; 0 counts as 1.
    oldest : In(EPOCH_BITS)
        The first kernel that is not over, as in `packets.is_over`.
    flush : In(1)
        Pulse: look at every set now for sums of kernels that are over. Other sums do not age meanwhile.
    sums : Out(stream(merged_packet))
        In the order in which the parts were taken.
    pending : Out(ports)
        Levels, registers: a part taken from this source has not left.
    holds : Out(range(merge_sets * merge_ways + 1))
        Sums that are kept.
    busy : Out(1)
        Clearing or flushing, or a part or a sum is inside.
    """

    #: the adder, replaced by a proof
    alu = NmcAlu

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        switch = geometry.switch
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
        self.rows = Memory(shape=merge_row(geometry), depth=switch.merge_sets, init=[])
        word = data.StructLayout({"about": sum_about(geometry), "column": 8 * switch.packet_bytes})
        self.words = Memory(shape=word, depth=switch.merge_sets * switch.merge_ways, init=[])

    def elaborate(self, platform) -> Module:
        m = Module()
        g, switch = self._geometry, self._geometry.switch
        set_bits = switch.merge_set_bits
        m.submodules.rows, m.submodules.words = self.rows, self.words
        m.submodules.alu = alu = self.alu(switch.packet_bytes)
        m.submodules.queue = queue = TwoEntryQueue(merged_packet(g))
        m.submodules.row = row = MergeRow(g)
        wiring.connect(m, wiring.flipped(self.sums), queue.output)
        row_read, row_write = self.rows.read_port(), self.rows.write_port()
        word_read, word_write = self.words.read_port(), self.words.write_port()
        move = Signal()  # all stages move, as in the adder
        m.d.comb += move.eq(alu.operands.ready)

        def set_of(packet):
            return packet.request.address[switch.packet_shift:switch.packet_shift + set_bits]

        # Sets are looked up in turn: cleared after reset, then searched for overdue sums, repeatedly while one leaves.
        sweep = Signal(range(max(2, switch.merge_sets)))
        clearing = Signal(init=1)
        look_due = Signal()
        set_quiet = Signal()  # nothing leaves
        since_look = Signal(SWITCH_TIMEOUT_BITS)
        sets_to_flush = Signal(range(switch.merge_sets + 1))
        last_set = sweep == switch.merge_sets - 1
        m.d.sync += since_look.eq(Mux(look_due | clearing, 1, since_look + 1))
        with m.If(clearing):
            m.d.sync += [clearing.eq(~last_set), sweep.eq(Mux(last_set, 0, sweep + 1))]
        with m.Elif(look_due):
            with m.If(set_quiet):
                m.d.sync += [look_due.eq(0), sweep.eq(Mux(last_set, 0, sweep + 1)),
                             sets_to_flush.eq(sets_to_flush - (sets_to_flush != 0))]
        with m.Elif((since_look >= self.timeout) | (sets_to_flush != 0)):
            m.d.sync += look_due.eq(1)
        with m.If(self.flush):
            m.d.sync += sets_to_flush.eq(switch.merge_sets)

        # Stages. First: a row is read for a part, or for overdue sums.
        lookup = Signal()
        for_part = Signal()
        lookup_set = Signal(set_bits)
        part_source = Signal(range(switch.ports))
        part_port = Signal(switch.ports)  # one-hot; 0 without a part
        part = Signal(part_about(g), reset_less=True)
        # Second: the row is written, and the sum is read.
        moving_sum = data.StructLayout({
            "set": set_bits, "place": row.sum.place.shape(), "leaves": 1, "why": Why, "tag": sum_tag(g),
            "parts": switch.part_bits, "sources": switch.ports, "about": sum_about(g)})
        row_changes = Signal()
        new_row = Signal(self.rows.shape, reset_less=True)
        sum_valid = Signal()
        read_sum = Signal(moving_sum, reset_less=True)
        column = Signal(8 * switch.packet_bytes, reset_less=True)
        part_adds = Signal()
        sum_stays = Signal()  # the sum is unchanged
        # Then the adder's stages.
        alu_valid = Signal(alu.LATENCY)
        alu_sums = [Signal(moving_sum, name=f"alu_sum_{stage}", reset_less=True) for stage in range(alu.LATENCY)]

        # Choose a part whose set is in no stage, and without room reserved for another source's part; or the sweep's
        # set.
        in_flight = [(lookup, lookup_set), (row_changes, read_sum.set),
                     *((alu_valid[stage], alu_sums[stage].set) for stage in range(alu.LATENCY - 1))]
        made_room = Signal(switch.ports)  # a sum has left for this source's part
        may_go = Signal(switch.ports)
        for number, port in enumerate(self.parts):
            part_set = set_of(port.payload)
            set_free = Signal(name=f"set_free_{number}")
            m.d.comb += [
                set_free.eq(~Cat(*(valid & (flying_set == part_set) for valid, flying_set in in_flight),
                                 *(made_room[other] & (set_of(self.parts[other].payload) == part_set)
                                   for other in range(switch.ports) if other != number)).any()),
                may_go[number].eq(port.valid & set_free & ~part_port[number]),
            ]
        takes_set = Signal()
        takes_part = Signal()
        set_was_last = Signal()  # parts that wait go first
        chosen = Signal(switch.ports)
        m.d.comb += [
            takes_set.eq(look_due & ~Cat(valid & (flying_set == sweep[:set_bits])
                                          for valid, flying_set in in_flight).any()
                         & ~(lookup & ~for_part) & ~(set_was_last & Cat(port.valid for port in self.parts).any())),
            takes_part.eq(move & ~clearing & ~takes_set & may_go.any()),
            chosen.eq(rotating_grant(m, may_go, takes_part) & may_go),
            row_read.en.eq(move),
            row_read.addr.eq(sweep[:set_bits]),
        ]
        with m.If(move & (takes_set | takes_part)):
            m.d.sync += set_was_last.eq(takes_set)
        with m.If(move):
            m.d.sync += [lookup.eq(~clearing & (takes_set | may_go.any())), for_part.eq(~takes_set),
                         lookup_set.eq(row_read.addr), part_port.eq(Mux(takes_part, chosen, 0))]
        for number, port in enumerate(self.parts):
            with m.If(chosen[number] & ~takes_set):
                m.d.comb += row_read.addr.eq(set_of(port.payload))
            with m.If(move & chosen[number]):
                m.d.sync += [part_source.eq(number), *(part[name].eq(port.payload[name]) for name, _ in part_about(g))]

        # Look the part up; take it unless a sum must leave first.
        m.d.comb += [
            row.row.eq(row_read.data),
            row.looks.eq(lookup),
            row.for_part.eq(for_part),
            row.part.eq(part),
            row.source.eq(part_port),
            row.whole.eq(self.whole),
            row.oldest.eq(self.oldest),
            row.flushing.eq(sets_to_flush != 0),
            set_quiet.eq(move & lookup & ~for_part & ~row.expires),
            word_read.en.eq(move & lookup),
            word_read.addr.eq(Cat(lookup_set, row.sum.place)),
        ]
        with m.If(move):
            m.d.sync += [
                row_changes.eq(lookup),
                new_row.eq(row.next_row),
                sum_valid.eq(row.merges | row.evicts | row.expires),
                *(read_sum[name].eq(row.sum[name]) for name in ("place", "tag", "parts", "sources")),
                read_sum.set.eq(lookup_set),
                read_sum.leaves.eq(row.leaves),
                read_sum.why.eq(Mux(row.evicts, Why.EVICTED, Mux(row.expires, Why.EXPIRED, Why.WHOLE))),
                *(read_sum.about[name].eq(part.request[name]) for name, _ in sum_about(g)),
                part_adds.eq(row.merges & row.known),
                sum_stays.eq(~row.merges),
            ]
        for number, port in enumerate(self.parts):
            m.d.comb += port.ready.eq(move & (row.merges | row.refuses) & part_port[number])
            with m.If(move & part_port[number]):
                m.d.sync += [made_room[number].eq(row.evicts), column.eq(port.payload.column)]
        m.d.comb += [
            self.happened.begins.eq(move & row.merges & ~row.known & ~row.last),
            self.happened.joins.eq(move & row.merges & row.known & ~row.last),
            self.happened.completes.eq(move & row.merges & row.last),
            self.happened.refuses.eq(move & row.refuses),
            self.happened.repeats.eq(move & row.refuses & row.repeats),
            self.happened.evicts.eq(move & row.evicts),
            self.happened.expires.eq(move & row.expires),
            self.happened.source.eq(part_source),
            self.happened.address.eq(Mux(row.refuses, part.request.address,
                                         Cat(row.sum.tag.offset, lookup_set, row.sum.tag.line))),
        ]

        # Write the row back, or clear it after reset.
        m.d.comb += [
            row_write.en.eq(clearing | (row_changes & move)),
            row_write.addr.eq(Mux(clearing, sweep, read_sum.set)),
            row_write.data.eq(new_row),
        ]
        with m.If(clearing):
            m.d.comb += [row_write.data.eq(0), *(entry.place.eq(way) for way, entry in enumerate(row_write.data))]

        # Add the part to the sum, or store the first part. An unchanged sum is XORed with 0.
        operands, result = alu.operands, alu.result
        m.d.comb += [
            operands.valid.eq(sum_valid),
            operands.payload.old.eq(word_read.data.column),
            operands.payload.new.eq(Mux(sum_stays, 0, column)),
            operands.payload.op.eq(Mux(sum_stays, AluOp.XOR, Mux(part_adds, AluOp.ADD, AluOp.STORE))),
            operands.payload.dtype.eq(read_sum.tag.dtype),
        ]
        with m.If(move):
            m.d.sync += [alu_valid.eq(Cat(sum_valid, alu_valid)), alu_sums[0].eq(read_sum),
                         *(after.eq(before) for before, after in zip(alu_sums, alu_sums[1:]))]
            with m.If(sum_stays):
                m.d.sync += alu_sums[0].about.eq(word_read.data.about)

        # Keep the sum, or send it.
        last_sum = alu_sums[-1]
        packet = queue.input.payload.packet
        m.d.comb += [
            result.ready.eq(~last_sum.leaves | queue.input.ready),
            word_write.en.eq(result.valid & ~last_sum.leaves),
            word_write.addr.eq(Cat(last_sum.set, last_sum.place)),
            word_write.data.about.eq(last_sum.about),
            word_write.data.column.eq(result.payload.column),
            queue.input.valid.eq(result.valid & last_sum.leaves),
            queue.input.payload.why.eq(last_sum.why),
            queue.input.payload.sources.eq(last_sum.sources),
            packet.request.address.eq(Cat(last_sum.tag.offset, last_sum.set, last_sum.tag.line)),
            packet.request.bytes.eq(last_sum.tag.bytes),
            packet.request.op.eq(Op.UPDATE),
            *(packet.request[name].eq(last_sum.about[name]) for name, _ in sum_about(g)),
            packet.epoch.eq(last_sum.tag.epoch),
            packet.dtype.eq(last_sum.tag.dtype),
            packet.parts.eq(last_sum.parts),
            *([packet.request.more.eq(last_sum.parts - 1)] if g.channel.more_bits else []),
            packet.column.eq(result.payload.column),
        ]

        # Count each source's parts inside, kept or on their way through adder and queue, and the kept sums.
        most = switch.merge_sets * switch.merge_ways + alu.LATENCY + 3
        inside_counts = [Signal(range(most + 1), name=f"inside_{number}") for number in range(switch.ports)]
        for number, inside in enumerate(inside_counts):
            enters = move & row.merges & part_port[number]
            exits = self.sums.valid & self.sums.ready & self.sums.payload.sources[number]
            m.d.sync += inside.eq(inside + enters - exits)
            m.d.comb += self.pending[number].eq(inside != 0)
        with m.If(self.happened.begins):
            m.d.sync += self.holds.eq(self.holds + 1)
        with m.Elif(move & (row.evicts | row.expires | (row.merges & row.known & row.last))):
            m.d.sync += self.holds.eq(self.holds - 1)
        m.d.comb += self.busy.eq(clearing | (sets_to_flush != 0) | (lookup & for_part) | sum_valid | alu_valid.any()
                                 | queue.output.valid | (self.holds != 0))
        return m
