"""One bank of the Tracker: counts the bytes of wavefront tiles and fires when a tile is complete."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from ..check_bits import check_bits
from ..geometry import Geometry
from ..layouts import (
    ErrorCode,
    Source,
    error_report,
    fault_report,
    tracker_entry,
    tracker_tag,
    trigger,
    update,
)
from ..streams.two_entry_queue import TwoEntryQueue
from .corrected_row import CorrectedRow
from .memory_codec import MemoryCodec


class _Ports(NamedTuple):
    """Ports of the memories, lists of one for each way."""

    tag_reads: list
    tag_writes: list
    entry_reads: list
    entry_writes: list


class _Moves(NamedTuple):
    """Movement of updates through the stages."""

    sweeping: Signal  # none may come
    accept: Signal  # one enters stage 1
    valid: Signal  # one is there
    done: Signal  # and leaves


class _Judged(NamedTuple):
    """The update in stage 1, and what its region says of it."""

    current: Any
    refused: Signal
    over: Signal
    room: Signal  # threshold - amount: a count above it exceeds the threshold
    suffices: Signal  # reaches or exceeds the threshold by itself
    kin: Signal  # regions that the tile's entry may have


class _Last(NamedTuple):
    """The last write, which the row that was read may not contain yet."""

    index: Signal
    way: Signal  # one-hot; 0: nothing written since reset
    tag: Any
    entry: Any
    same_set: Signal  # it is of the set of the update in stage 1
    hit_recent: Signal  # and left that update's tile open
    new_index: Signal  # of the update in stage 0
    new_tag: Signal


class _Found(NamedTuple):
    """The set of the update in stage 1."""

    index: Signal
    tag: Signal
    match: Signal
    free: Signal
    hit: Signal
    full: Signal
    stored: Any  # the tile's entry; 0 without a hit
    row: CorrectedRow | None


class _Counted(NamedTuple):
    """The tile's entry with the update."""

    count: Signal
    region: Signal
    address: Signal
    closes: Signal
    dropped: Value  # it is not counted
    crowded: Signal  # for want of a way
    foreign: Signal  # as it is of another family
    wrong: Value  # there is an error
    hurt: Value  # the memories'


class _Written(NamedTuple):
    """The tag and the entry that go back to the memories."""

    writes: Signal
    write: Signal  # one-hot
    tag: Any
    entry: Any


class TrackerBank(wiring.Component):
    """Tracks the workgroups whose low id bits select this bank (T3 paper, section 4.2.1).

    A set is indexed by the workgroup id's low bits; an entry is tagged with the remaining bits and the
    wavefront id. Each update adds its bytes; the one that makes the count equal to its region's
    threshold frees the entry and sends a trigger with the smallest address seen. The region is not part
    of the tag: the trigger names that of the tile's local update, whatever its place in the order, else
    that of the first. So this GPU's own map decides what becomes of a tile, and a sender need not know it. All regions
    of a tile's updates must be of one family, though: one whose region is of another family than the entry's is
    refused, whatever its threshold.

    Two stages at one update per cycle: an accepted update reads its set's row, and in the next cycle is
    compared, added and written back. The last write is kept and overrides the row that was read beside
    it, so updates of one entry can follow each other without a gap. Memories are kept per way, narrow,
    and only the way that changes is written.

    An update whose set has no free way is refused: it is an error and not counted. Updates after it go on, for none
    of them need be one that frees a way. DispatchWindow makes sure that this cannot happen. An update that reaches the
    threshold by itself never needs a way.

    Protected memories (`TrackerGeometry.protection`) keep words with check bits, and add a stage in
    front: the row is read while the update waits in a register, then searched by CorrectedRow. A tile
    whose entry or tag cannot be corrected never fires: its updates are swallowed or open another entry.
    Either is an error, and such a tag's way is lost until reset.

    After reset a sweep of `sets_per_bank` cycles clears the tags; no update is accepted meanwhile. The
    region table is read when an update is accepted and must be stable while tiles are open.

    Members
    -------
    updates : In(stream(update))
        Only workgroups of this bank (`wg` modulo `banks` is not checked). `ready` looks at the
        update ahead but not at `updates.valid`.
    triggers : Out(stream(trigger))
    thresholds : In(count_bits).array(regions)
        Bytes that complete a tile of the region.
    tracked : In(1).array(regions)
        The region's tiles are tracked. Those of region 0 never are.
    families : In(region_bits).array(regions)
        Regions with the same number are of one family: those of one kind of tile.
    error : Out(error_report)
        REGION_UNCONFIGURED: region not tracked or threshold 0; the update is swallowed.
        THRESHOLD_EXCEEDED: the entry is freed without a trigger.
        REGION_MISMATCH: the entry's region is of another family; the update is swallowed.
        TRACKER_FULL: every way of the set holds another tile; the update is swallowed.
        TRACKER_MEMORY: bits have flipped and cannot be corrected; which, says `fault`.
    fault : Out(fault_report)
        Only with protected memories: flipped bits, when an update meets them.
    busy : Out(1)
        The sweep is running, or an update or trigger is inside.
    refused_full : Out(1)
        In this cycle an update is refused because its set has no free way.
    occupied : Out(unsigned)
        Valid entries, 0 to sets_per_bank x ways; a cycle late.
    """

    def __init__(self, geometry: Geometry):
        tracker = geometry.tracker
        self._protected = tracker.protection != "none"
        super().__init__({
            "updates": In(stream.Signature(update(geometry))),
            "triggers": Out(stream.Signature(trigger(geometry))),
            "thresholds": In(tracker.count_bits).array(geometry.dma.regions),
            "tracked": In(1).array(geometry.dma.regions),
            "families": In(geometry.dma.region_bits).array(geometry.dma.regions),
            "error": Out(error_report(geometry)),
            **({"fault": Out(fault_report(geometry))} if self._protected else {}),
            "busy": Out(1),
            "refused_full": Out(1),
            "occupied": Out(bits_for(tracker.sets_per_bank * tracker.ways)),
        })
        self._geometry = geometry
        self._tag_layout, self._entry_layout = tracker_tag(geometry), tracker_entry(geometry)
        depth = max(2, tracker.sets_per_bank)  # a zero-bit address does not survive in Verilog

        def memories(layout):
            """Build one memory per way, with a row per set; with protection, its words are those of a MemoryCodec."""
            word = layout.size + check_bits(tracker.protection, layout.size)
            shape = word if self._protected else layout
            return [Memory(shape=shape, depth=depth, init=[]) for _ in range(tracker.ways)]

        #: `tags` is cleared by the sweep, an entry counts only with a valid tag.
        self.tags, self.entries = memories(self._tag_layout), memories(self._entry_layout)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = TwoEntryQueue(trigger(self._geometry))
        wiring.connect(m, queue.output, wiring.flipped(self.triggers))
        ports = self._ports(m)
        sweeping = Signal(init=1)
        accept = Signal()
        done = Signal()
        valid = Signal()
        moves = _Moves(sweeping, accept, valid, done)

        new, waits = self._take(m, ports, moves)
        judged = self._look_up(m, new, moves)
        last = self._last_write(m, new)
        found = self._find(m, ports, moves, judged.current, last)
        counted = self._count(m, moves, judged, found, queue.input)
        written = self._write(m, ports, moves, judged, found, counted)
        self._remember(m, moves, found, counted, last, written)
        opened = self._occupy(m, found, counted, written)
        # Who opens an entry is inside until `occupied` says it: a restart between the two would find nothing.
        inside = sweeping | valid | queue.output.valid | opened
        m.d.comb += self.busy.eq(inside if waits is None else inside | waits)
        self._report(m, judged, counted)
        return m

    def _index(self, one) -> Value:
        """Return the row of an update's set."""
        return one.wg[self._geometry.tracker.bank_bits:self._geometry.tracker.set_bits]

    def _tag(self, one) -> Value:
        """Return what tells an update's tile from others of its set."""
        return Cat(one.wf, one.wg[self._geometry.tracker.set_bits:])

    def _ports(self, m: Module) -> _Ports:
        """Put the memories into the bank."""
        tag_reads, tag_writes, entry_reads, entry_writes = [], [], [], []
        for way in range(self._geometry.tracker.ways):
            m.submodules[f"tags_{way}"] = self.tags[way]
            m.submodules[f"entries_{way}"] = self.entries[way]
            tag_read, tag_write = self.tags[way].read_port(), self.tags[way].write_port()
            entry_read, entry_write = self.entries[way].read_port(), self.entries[way].write_port()
            tag_reads.append(tag_read)
            tag_writes.append(tag_write)
            entry_reads.append(entry_read)
            entry_writes.append(entry_write)
        return _Ports(tag_reads, tag_writes, entry_reads, entry_writes)

    def _take(self, m: Module, ports: _Ports, moves: _Moves) -> tuple[Any, Signal | None]:
        """Read the row of an update. Return the update that stage 1 takes next, and whether it waits in front of it.

        It waits with protection only, where a row is read a stage earlier.
        """
        sweeping, accept, valid, done = moves
        fetched = None
        if self._protected:
            fetch = Signal()  # a row is read
            fetched = Signal()  # an update waits in `ahead` beside its row
            new = ahead = Signal(self.updates.payload.shape(), reset_less=True)
            m.d.comb += [
                self.updates.ready.eq(~sweeping & (~fetched | accept)),
                fetch.eq(self.updates.valid & self.updates.ready),
                accept.eq(fetched & (~valid | done)),
            ]
            with m.If(fetch):
                m.d.sync += [fetched.eq(1), ahead.eq(self.updates.payload)]
            with m.Elif(accept):
                m.d.sync += fetched.eq(0)
        else:
            new, fetch = self.updates.payload, accept
            m.d.comb += [
                self.updates.ready.eq(~sweeping & (~valid | done)),
                accept.eq(self.updates.valid & self.updates.ready),
            ]
        for port in ports.tag_reads + ports.entry_reads:
            m.d.comb += [port.addr.eq(self._index(self.updates.payload)), port.en.eq(fetch)]
        return new, fetched

    def _look_up(self, m: Module, new, moves: _Moves) -> _Judged:
        """Look up the region of an update that enters stage 1."""
        _, accept, valid, done = moves
        threshold = Signal(self._geometry.tracker.count_bits)
        tracked = Signal()
        family = Signal.like(new.region)
        with m.Switch(new.region):
            for i in range(1, self._geometry.dma.regions):
                with m.Case(i):
                    m.d.comb += [threshold.eq(self.thresholds[i]), tracked.eq(self.tracked[i]),
                                 family.eq(self.families[i])]

        refused = Signal()
        over = Signal()
        current = Signal(self.updates.payload.shape(), reset_less=True)
        room = Signal.like(threshold)
        suffices = Signal()
        kin = Signal(self._geometry.dma.regions)
        with m.If(accept):
            m.d.sync += [
                valid.eq(1),
                current.eq(new),
                refused.eq(~tracked | (threshold == 0)),
                over.eq(new.amount > threshold),
                suffices.eq(new.amount >= threshold),
                room.eq(threshold - new.amount),
                kin.eq(Cat(other == family for other in self.families)),
            ]
        with m.Elif(done):
            m.d.sync += valid.eq(0)
        return _Judged(current, refused, over, room, suffices, kin)

    def _last_write(self, m: Module, new) -> _Last:
        """Declare what is kept of the last write."""
        tracker = self._geometry.tracker
        last_index = Signal(max(1, tracker.set_bits - tracker.bank_bits))
        last_way = Signal(tracker.ways)
        last_tag = Signal(self._tag_layout, reset_less=True)
        last_entry = Signal(self._entry_layout, reset_less=True)
        same_set = Signal()
        hit_recent = Signal()
        new_index = Signal.like(last_index)
        new_tag = Signal(tracker.tag_bits)
        m.d.comb += [new_index.eq(self._index(new)), new_tag.eq(self._tag(new))]
        return _Last(last_index, last_way, last_tag, last_entry, same_set, hit_recent, new_index, new_tag)

    def _find(self, m: Module, ports: _Ports, moves: _Moves, current, last: _Last) -> _Found:
        """Find the entry of the update in stage 1, in the row or in the last write.

        Whether that is of the same set, and of the same tile, is compared in stage 0, with the update in stage 1 in
        case it writes now.
        """
        tracker, ways = self._geometry.tracker, range(self._geometry.tracker.ways)
        last_index, last_way, last_tag, _, same_set, hit_recent, _, _ = last
        index = Signal.like(last_index)
        tag = Signal(tracker.tag_bits)
        recent = Signal(tracker.ways)
        in_row = Signal(tracker.ways)
        match = Signal(tracker.ways)
        used = Signal(tracker.ways)
        free = Signal(tracker.ways)
        hit = Signal()
        full = Signal()
        row = None
        if self._protected:
            m.submodules.row = row = CorrectedRow(tracker.protection, tracker.ways, self._tag_layout,
                                                  self._entry_layout)
            row_used, row_match = row.used, row.match
        else:  # what the row says, which may be older than the last write
            row_used = [port.data.valid for port in ports.tag_reads]
            row_match = [port.data.valid & (port.data.tag == tag) for port in ports.tag_reads]
        m.d.comb += [
            index.eq(self._index(current)),
            tag.eq(self._tag(current)),
            recent.eq(Mux(same_set, last_way, 0)),
            used.eq(Cat(Mux(recent[way], last_tag.valid, row_used[way]) for way in ways)),
            in_row.eq(Cat(row_match[way] & ~recent[way] for way in ways)),
            match.eq(in_row | Mux(hit_recent, last_way, 0)),
            free.eq(~used & (used + 1)),  # lowest free way
            hit.eq(hit_recent | in_row.any()),
            full.eq(used.all()),
        ]
        stored = self._entry(m, ports, moves, current, last, in_row, row)
        return _Found(index, tag, match, free, hit, full, stored, row)

    def _entry(self, m: Module, ports: _Ports, moves: _Moves, current, last: _Last, in_row: Signal,
               row: CorrectedRow | None) -> Any:
        """Return the tile's entry, 0 if there is none; with protection it comes corrected from the row."""
        _, accept, valid, _ = moves
        last_index, last_way, last_tag, last_entry, _, hit_recent, new_index, new_tag = last
        ways = range(self._geometry.tracker.ways)
        stored = Signal(self._entry_layout)
        found = Const(0)
        if row:
            for way in ways:
                m.d.comb += [row.tags[way].eq(ports.tag_reads[way].data),
                             row.entries[way].eq(ports.entry_reads[way].data)]
            m.d.comb += [
                row.tag.eq(new_tag), row.take.eq(accept), row.needed.eq(valid & in_row.any()),
                row.last_way.eq(Mux(new_index == last_index, last_way, 0)),
                row.last_tag.eq(last_tag), row.last_entry.eq(last_entry),
            ]
            m.d.sync += self.fault.set.eq(current.wg[:self._geometry.tracker.set_bits])
            m.d.sync += [self.fault[name].eq(row.fault[name]) for name, _ in row.fault.shape()]
            found = Mux(in_row.any(), row.entry.as_value(), 0)
        else:
            for way in ways:
                found = found | Mux(in_row[way], ports.entry_reads[way].data.as_value(), 0)
        m.d.comb += stored.eq(Mux(hit_recent, last_entry.as_value(), found))
        return stored

    def _count(self, m: Module, moves: _Moves, judged: _Judged, found: _Found, fires) -> _Counted:
        """Count the update, and fire its tile's trigger into the stream `fires` if that completes it."""
        tracker = self._geometry.tracker
        valid, done = moves.valid, moves.done
        current, refused, over, room, suffices, kin = judged
        hit, full, stored, row = found.hit, found.full, found.stored, found.row
        hurt = Const(0)
        count = Signal(tracker.count_bits)
        region = Signal.like(current.region)
        address = Signal(tracker.address_bits)
        complete = Signal()
        exceeds = Signal()
        closes = Signal()
        crowded = Signal()
        foreign = Signal()
        able = valid & fires.ready
        dropped = refused | foreign  # not counted
        wrong = done & (dropped | crowded | exceeds)
        if row:
            able, dropped = able & ~row.flawed, dropped | row.lost
            hurt = row.fault.valid & row.fault.uncorrectable
            wrong = (done & (refused | crowded | ((foreign | exceeds) & ~row.lost))) | hurt
        m.d.comb += [
            count.eq(stored.count),  # 0 without a hit
            region.eq(Mux(hit & (current.source != Source.LOCAL), stored.region, current.region)),
            address.eq(Mux(hit & (stored.address < current.address), stored.address, current.address)),
            exceeds.eq(over | (count > room)),
            complete.eq(~over & (count == room)),
            closes.eq(exceeds | complete),
            foreign.eq(hit & ~refused & ~kin.bit_select(stored.region, 1)),
            crowded.eq(full & ~hit & ~suffices & ~refused),
            done.eq(able),
            self.refused_full.eq(done & crowded),
            fires.valid.eq(done & complete & ~dropped),
            fires.payload.address.eq(address),
            fires.payload.region.eq(region),
            fires.payload.wf.eq(current.wf),
            fires.payload.wg.eq(current.wg),
        ]
        return _Counted(count, region, address, closes, dropped, crowded, foreign, wrong, hurt)

    def _write(self, m: Module, ports: _Ports, moves: _Moves, judged: _Judged, found: _Found,
               counted: _Counted) -> _Written:
        """Write the entry back, or clear the tags."""
        tracker, sweeping, done = self._geometry.tracker, moves.sweeping, moves.done
        index, tag, match, free, hit, full, _, _ = found
        count, region, address, closes, dropped = counted[:5]
        current, suffices = judged.current, judged.suffices
        writes = Signal()
        write = Signal(tracker.ways)  # one-hot
        next_tag = Signal(self._tag_layout)
        next_entry = Signal(self._entry_layout)
        m.d.comb += [
            writes.eq(done & ~dropped & (hit | (~suffices & ~full))),
            write.eq(Mux(writes, Mux(hit, match, free), 0)),
            next_tag.valid.eq(~closes),
            next_tag.tag.eq(tag),
            next_entry.address.eq(address),
            next_entry.region.eq(region),
            next_entry.count.eq(count + current.amount),
        ]
        sweep = Signal(range(tracker.sets_per_bank + 1))
        tag_word, entry_word = next_tag.as_value(), next_entry.as_value()
        if self._protected:
            m.submodules.tag_codec = tag_codec = MemoryCodec(tracker.protection, len(tag_word))
            m.submodules.entry_codec = entry_codec = MemoryCodec(tracker.protection, len(entry_word))
            m.d.comb += [tag_codec.data.eq(tag_word), entry_codec.data.eq(entry_word)]
            tag_word, entry_word = tag_codec.word, entry_codec.word
        for way in range(tracker.ways):
            m.d.comb += [
                ports.tag_writes[way].addr.eq(Mux(sweeping, sweep, index)),
                ports.tag_writes[way].data.eq(Mux(sweeping, 0, tag_word)),
                ports.tag_writes[way].en.eq(sweeping | write[way]),
                ports.entry_writes[way].addr.eq(index),
                ports.entry_writes[way].data.eq(entry_word),
                ports.entry_writes[way].en.eq(write[way]),
            ]
        with m.If(sweeping):
            m.d.sync += [sweep.eq(sweep + 1), sweeping.eq(sweep != tracker.sets_per_bank - 1)]
        return _Written(writes, write, next_tag, next_entry)

    def _remember(self, m: Module, moves: _Moves, found: _Found, counted: _Counted, last: _Last,
                  written: _Written) -> None:
        """Keep what is written now, and compare it with the update that enters stage 1."""
        last_index, last_way, last_tag, last_entry, same_set, hit_recent, new_index, new_tag = last
        writes, write, next_tag, next_entry = written
        accept, index, tag, closes = moves.accept, found.index, found.tag, counted.closes
        with m.If(writes):
            m.d.sync += [last_index.eq(index), last_way.eq(write), last_tag.eq(next_tag), last_entry.eq(next_entry)]
        with m.If(accept):
            m.d.sync += [
                same_set.eq(Mux(writes, new_index == index, new_index == last_index)),
                hit_recent.eq(Mux(writes, (new_index == index) & (new_tag == tag) & ~closes,
                                  (new_index == last_index) & (new_tag == last_tag.tag) & last_tag.valid
                                  & last_way.any())),
            ]

    def _occupy(self, m: Module, found: _Found, counted: _Counted, written: _Written) -> Signal:
        """Count valid entries. Return whether one was opened that is not among them yet."""
        writes, hit, closes = written.writes, found.hit, counted.closes
        opened = Signal()
        freed = Signal()
        m.d.sync += [opened.eq(writes & ~hit), freed.eq(writes & hit & closes)]
        with m.If(opened | freed):
            m.d.sync += self.occupied.eq(Mux(freed, self.occupied - 1, self.occupied + 1))
        return opened

    def _report(self, m: Module, judged: _Judged, counted: _Counted) -> None:
        """Report an error."""
        current, refused = judged.current, judged.refused
        crowded, foreign, wrong, hurt = counted[5:]
        m.d.sync += self.error.valid.eq(wrong)
        with m.If(wrong):
            m.d.sync += [
                self.error.code.eq(Mux(refused, ErrorCode.REGION_UNCONFIGURED,
                                       Mux(crowded, ErrorCode.TRACKER_FULL, Mux(
                                           foreign, ErrorCode.REGION_MISMATCH, ErrorCode.THRESHOLD_EXCEEDED)))),
                self.error.details.address.eq(current.address),
                self.error.details.region.eq(current.region),
                self.error.details.wf.eq(current.wf),
                self.error.details.wg.eq(current.wg),
            ]
            if self._protected:
                with m.If(hurt):
                    m.d.sync += self.error.code.eq(ErrorCode.TRACKER_MEMORY)
