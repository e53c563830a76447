"""The decision about a part, or about overdue sums, in one set of a merge table."""

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
    """Lay out the key that parts of a sum share, except for their set."""
    switch = geometry.switch
    return data.StructLayout({
        "line": geometry.tracker.address_bits - switch.packet_shift - switch.merge_set_bits,
        "offset": switch.packet_shift, "bytes": geometry.channel.byte_count_bits, "epoch": EPOCH_BITS,
        "dtype": AluDtype})


def merge_row(geometry: Geometry) -> data.ArrayLayout:
    """Lay out the sums of a set, the one with the latest part first; invalid ones are last."""
    switch = geometry.switch
    entry = data.StructLayout({"valid": 1, "waited": 1, "parts": switch.part_bits, "sources": switch.ports,
                               "tag": sum_tag(geometry), "place": bits_for(switch.merge_ways)})
    return data.ArrayLayout(entry, switch.merge_ways)


class MergeRow(wiring.Component):
    """Decides about a part or an overdue sum within the cycle, without registers.

    Members
    -------
    looks : In(1), for_part : In(1)
        The row is looked up: for `part`, or for overdue sums.
    part : In(part_about), source : In(ports)
        The part, and its source: one-hot, 0 without a part.
    whole : In(part_bits), oldest : In(EPOCH_BITS)
        As in MergeTable.
    flushing : In(1)
        Only sums of kernels that are over leave, and no other sum ages.
    merges, refuses, evicts, expires : Out(1)
        At most one: the part is added or begins a sum; the part is dropped; a sum leaves to make room for the part; an
        overdue sum leaves.
    known, last, repeats : Out(1)
        The part's sum exists; this part completes it; it already has a part of this source.
    leaves : Out(1)
        `sum` leaves the row.
    sum : Out(an entry of merge_row)
        The part's sum with the part, or the sum that leaves.
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

        # Select the part's own entry, else the longest unchanged; or the oldest overdue one.
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

        # The sum with the part. Totals for each entry are compared in parallel with the search.
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

        unlike = Signal()  # the part is not one that a GPU sends
        alone = Signal()  # it is the whole sum
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

        # Move the selected entry to the front, or close the gap if it leaves.
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
