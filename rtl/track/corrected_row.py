"""One row of a protected Tracker bank: corrected, and searched for a tile."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.geometry import bits_for
from t3sim.rtl.track.memory_codec import MemoryCodec


class CorrectedRow(wiring.Component):
    """The stage that protection adds to a TrackerBank: corrects and compares the tags, and chooses one entry.

    1. The entry is passed on uncorrected, together with a check of its bits. If it is wrong (`flawed`), the last stage
       waits two cycles for the corrected entry. So correction adds no latency when there is no error.
    2. A tag that cannot be corrected makes its way used and matches no tile.

    Parameters
    ----------
    tag_layout, entry_layout : StructLayout
        As in TrackerBank; `tag_layout` is {valid, tag}.

    Members
    -------
    tags, entries : In(word).array(ways)
        The row as read, with check bits.
    tag : In
        Tag of the tile to find.
    last_way : In(ways)
        One-hot: the way of the last write, if it was to this row; the row as read may be older.
    last_tag : In(tag_layout), last_entry : In(entry_layout)
        The last write, to any row.
    take : In(1)
        The search ends; the outputs are registers that show its result from the next cycle on.
    entry : Out(entry_layout)
        Entry of the matching way, 0 without a match.
    needed : In(1)
        The entry will be used.
    flawed : Out(1)
        The entry is wrong and not corrected yet. Only with `needed`.
    lost : Out(1)
        The entry cannot be corrected.
    fault : Out({valid, uncorrectable, in_entry, way})
        As in `t3sim.rtl.layouts.fault_report`: one cycle for the row's tags, one for its entry.
    """

    def __init__(self, protection: str, ways: int, tag_layout, entry_layout):
        self._ways = ways
        self._codecs = [MemoryCodec(protection, tag_layout.size) for _ in range(ways)]
        self._codec = MemoryCodec(protection, entry_layout.size)
        super().__init__({
            "tags": In(len(self._codecs[0].stored)).array(ways),
            "entries": In(len(self._codec.stored)).array(ways),
            "tag": In(tag_layout["tag"].width),
            "last_way": In(ways),
            "last_tag": In(tag_layout),
            "last_entry": In(entry_layout),
            "take": In(1),
            "used": Out(ways),
            "match": Out(ways),
            "entry": Out(entry_layout),
            "needed": In(1),
            "flawed": Out(1),
            "lost": Out(1),
            "fault": Out(data.StructLayout({"valid": 1, "uncorrectable": 1, "in_entry": 1, "way": bits_for(ways)})),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entry_codec = codec = self._codec
        used, match, corrected, uncorrectable = [], [], [], []
        chosen = Mux((self.last_way != 0) & self._is_wanted(self.last_tag), self.last_entry.as_value(), 0)
        for way, tag_codec in enumerate(self._codecs):
            m.submodules[f"tag_codec_{way}"] = tag_codec
            m.d.comb += tag_codec.stored.eq(self.tags[way])
            read = data.View(self.last_tag.shape(), tag_codec.found)
            old = self.last_way[way]
            hit = ~old & self._is_wanted(read) & ~tag_codec.uncorrectable
            used.append(Mux(old, self.last_tag.valid, read.valid | tag_codec.uncorrectable))
            match.append(hit | (old & self._is_wanted(self.last_tag)))
            corrected.append(~old & tag_codec.corrected)
            uncorrectable.append(~old & tag_codec.uncorrectable)
            chosen = chosen | Mux(hit, self.entries[way], 0)

        word = Signal(len(codec.stored))
        right = Signal()  # the entry is corrected, or never was in a memory
        new = Signal()  # the first cycle of a result
        tags_corrected = Signal(self._ways)
        tags_lost = Signal(self._ways)
        repair = Signal()
        in_tags = tags_corrected | tags_lost
        m.d.sync += new.eq(self.take)
        m.d.comb += [
            codec.stored.eq(word),
            self.entry.eq(word[:len(codec.found)]),
            self.flawed.eq(self.needed & ~right & codec.wrong),
            repair.eq(self.flawed & ~new),  # a cycle after a fault of the tags
            self.fault.valid.eq(repair | (new & in_tags.any())),
            self.fault.uncorrectable.eq(Mux(repair, codec.uncorrectable, tags_lost.any())),
            self.fault.in_entry.eq(repair),
            self.fault.way.eq(self._number(Mux(repair, self.match, Mux(tags_lost.any(), tags_lost, tags_corrected)))),
        ]
        with m.If(repair):
            m.d.sync += [word[:len(codec.found)].eq(codec.found), right.eq(1), self.lost.eq(codec.uncorrectable)]
        with m.If(self.take):
            m.d.sync += [
                self.used.eq(Cat(used)), self.match.eq(Cat(match)), word.eq(chosen),
                right.eq((self.last_way != 0) & self._is_wanted(self.last_tag)), self.lost.eq(0),
                tags_corrected.eq(Cat(corrected)), tags_lost.eq(Cat(uncorrectable)),
            ]
        return m

    def _is_wanted(self, tag):
        return tag.valid & (tag.tag == self.tag)

    def _number(self, ways):
        """Return the lowest way whose bit is set; the last way if no bit is."""
        number = self._ways - 1
        for way in reversed(range(self._ways - 1)):
            number = Mux(ways[way], way, number)
        return number
