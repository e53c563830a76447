"""What becomes of a part, or of a sum that waits, in one set of a merge table."""

from functools import reduce
from operator import or_

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.channel.nmc_alu import AluDtype
from t3sim.rtl.geometry import Geometry, bits_for
from t3sim.rtl.registers import EPOCH_BITS
from t3sim.rtl.switch.packets import is_over, part_about


def sum_tag(geometry: Geometry) -> data.StructLayout:
    """Lay out what the parts of a sum have in common, but for their set."""
    switch = geometry.switch
    return data.StructLayout({
        "line": geometry.tracker.address_bits - switch.packet_shift - switch.merge_set_bits,
        "offset": switch.packet_shift, "bytes": geometry.channel.byte_count_bits, "epoch": EPOCH_BITS,
        "dtype": AluDtype})


def merge_row(geometry: Geometry) -> data.ArrayLayout:
    """Lay out the sums of a set: in the order of their last parts, the latest first; what is not valid comes last."""
    switch = geometry.switch
    entry = data.StructLayout({"valid": 1, "waited": 1, "parts": switch.part_bits, "sources": switch.ports,
                               "tag": sum_tag(geometry), "place": bits_for(switch.merge_ways)})
    return data.ArrayLayout(entry, switch.merge_ways)


class MergeRow(wiring.Component):
    """Decides what becomes of a part or of a waiting sum, within the cycle: it has no registers.

    Members
    -------
    row : In(merge_row)
    looks : In(1), for_part : In(1)
        The row is looked at: for `part`, or for sums that wait.
    part : In(part_about), source : In(ports)
        The part, and whose it is: one-hot, 0 without a part.
    whole : In(part_bits), oldest : In(EPOCH_BITS)
        As of MergeTable.
    flushing : In(1)
        Only sums of kernels that are over leave, and none is marked as one that waits.
    merges, refuses, evicts, expires : Out(1)
        At most one: the part is added to its sum or begins one; it goes nowhere; a sum makes room for it; a sum leaves
        because it has waited or its kernel is over.
    known, last, repeats : Out(1)
        The part's sum has begun; it is whole with this part; it has a part of this source already.
    leaves : Out(1)
        `sum` leaves the row.
    sum : Out(an entry of merge_row)
        That which the part is in, or which leaves.
    next_row : Out(merge_row)
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        switch, row = geometry.switch, merge_row(geometry)
        super().__init__({
            "row": In(row), "looks": In(1), "for_part": In(1), "part": In(part_about(geometry)),
            "source": In(switch.ports), "whole": In(switch.part_bits), "oldest": In(EPOCH_BITS), "flushing": In(1),
            "merges": Out(1), "refuses": Out(1), "evicts": Out(1), "expires": Out(1), "known": Out(1), "last": Out(1),
            "repeats": Out(1), "leaves": Out(1), "sum": Out(row.elem_shape), "next_row": Out(row)})

    def elaborate(self, platform) -> Module:
        m = Module()
        switch, part, row = self._geometry.switch, self.part, self.row
        ways = switch.merge_ways
        request = part.request
        offset = request.address[:switch.packet_shift]
        tag = Signal(sum_tag(self._geometry))
        m.d.comb += [
            tag.line.eq(request.address[switch.packet_shift + switch.merge_set_bits:]),
            tag.offset.eq(offset),
            tag.bytes.eq(request.bytes),
            tag.epoch.eq(part.epoch),
            tag.dtype.eq(part.dtype),
        ]

        # Which entry: the part's own, else the one that is the longest unchanged; or the oldest that is to leave.
        hits = Signal(ways)
        overdue = Signal(ways)  # has waited, or its kernel is over
        oldest_overdue = overdue & ~Cat(overdue[way + 1:].any() for way in range(ways))
        selected = Signal(ways)  # one-hot
        entry = Signal(row.shape().elem_shape)
        m.d.comb += [
            hits.eq(Cat(one.valid & (one.tag.as_value() == tag.as_value()) for one in row)),
            overdue.eq(Cat(one.valid & ((one.waited & ~self.flushing) | is_over(one.tag.epoch, self.oldest))
                           for one in row)),
            self.known.eq(hits.any()),
            selected.eq(Mux(~self.for_part, oldest_overdue, Mux(self.known, hits, 1 << ways - 1))),
        ]
        for way, one in enumerate(row):
            with m.If(selected[way]):
                m.d.comb += entry.eq(one)

        # The sum with the part. Totals with each entry, and of the part alone, are compared while the entry is found.
        totals = [*((one.parts + 1)[:switch.part_bits] for one in row), C(1, switch.part_bits)]
        matches = Cat(hits, ~self.known)
        with_part = Signal(row.shape().elem_shape)
        m.d.comb += [
            self.last.eq(Cat(match & (total == self.whole) for match, total in zip(matches, totals)).any()),
            with_part.valid.eq(1),
            with_part.parts.eq(reduce(or_, (Mux(match, total, 0) for match, total in zip(matches, totals)))),
            with_part.sources.eq(self.source | Mux(self.known, entry.sources, 0)),
            with_part.tag.eq(tag),
            with_part.place.eq(entry.place),
            self.sum.eq(Mux(self.merges, with_part, entry)),
        ]

        # What becomes of it.
        unlike = Signal()  # the part is none that a GPU sends
        alone = Signal()  # all of its sum
        m.d.comb += [
            unlike.eq((part.parts != 1) | (request.bytes == 0) | (offset + request.bytes > switch.packet_bytes)),
            self.repeats.eq(Cat(hit & (one.sources & self.source).any() for hit, one in zip(hits, row)).any()),
            alone.eq(self.last & ~self.known),
            self.refuses.eq(self.looks & self.for_part & (unlike | self.repeats)),
            self.evicts.eq(self.looks & self.for_part & ~unlike & ~alone & ~self.known & row[-1].valid),
            self.expires.eq(self.looks & ~self.for_part & overdue.any()),
            self.merges.eq(self.looks & self.for_part & ~self.refuses & ~self.evicts),
            self.leaves.eq(self.evicts | self.expires | (self.merges & self.last)),
        ]

        # Entries up to the selected one move back by one for it to come first; if it leaves, those after it forward.
        from_selected, up_to_selected = selected | ~(selected - 1), selected | (selected - 1)
        for way, one in enumerate(row):
            new = self.next_row[way]
            with m.If(~self.for_part & ~self.expires):
                m.d.comb += [new.eq(one), new.waited.eq(one.waited | ~self.flushing)]
            with m.Elif(self.for_part & (alone | self.refuses)):
                m.d.comb += new.eq(one)
            with m.Elif(self.leaves):
                if way == ways - 1:
                    m.d.comb += new.place.eq(entry.place)
                else:
                    m.d.comb += new.eq(Mux(from_selected[way], row[way + 1], one))
            with m.Else():
                m.d.comb += new.eq(Mux(up_to_selected[way], row[way - 1] if way else with_part, one))
        return m
