"""One bank of the Tracker: counts the bytes of wavefront tiles and sends a trigger for each complete one."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from t3sim.rtl.check_bits import check_bits
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Source, error_report, fault_report, tracker_entry, tracker_tag, trigger, update
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue
from t3sim.rtl.track.corrected_row import CorrectedRow
from t3sim.rtl.track.memory_codec import MemoryCodec


class TrackerBank(wiring.Component):
    """Tracks the workgroups whose low id bits select this bank (T3 paper, section 4.2.1).

    A set is indexed by the workgroup id's low bits; an entry's tag is the remaining bits and the wavefront id.

    1. Each update adds its bytes. The update that makes the count equal its region's threshold frees the entry and
       sends one trigger, with the smallest address seen.
    2. The trigger's region is the region of the tile's local update, whenever it arrives, or else of the first update.
       So this GPU's map decides the treatment of a tile, and a sender need not know it.
    3. An update of another family than its entry's is refused.
    4. An update whose set has no free way is refused, with an error and uncounted; later updates continue, because none
       of them need free a way. DispatchWindow prevents this. An update that reaches the threshold by itself needs no
       way.
    5. One update per cycle in two stages: the row is read, then compared, added and written back. The last write
       overrides an older row, so updates of one entry can follow each other without a gap.

    With protected memories (`TrackerGeometry.protection`) a stage is added in front: the row is read while the update
    waits in a register, then searched by CorrectedRow. A tile whose entry or tag cannot be corrected never fires: its
    updates are dropped or open another entry. Both are errors, and such a tag's way is lost until reset.

    After reset a sweep of `sets_per_bank` cycles clears the tags, and no update is accepted. The region table is read
    when an update is accepted; the caller must keep it stable while tiles are open.

    Members
    -------
    updates : In(stream(update))
        Only this bank's workgroups (unchecked). `ready` depends on the update ahead, not on `updates.valid`.
    thresholds : In(count_bits).array(regions)
        Bytes that complete a tile of the region.
    tracked : In(1).array(regions)
        The region's tiles are tracked. Region 0 never is.
    families : In(region_bits).array(regions)
        Regions with one number are a family, for one kind of tile.
    error : Out(error_report)
        REGION_UNCONFIGURED: region not tracked or threshold 0; the update is dropped.
        THRESHOLD_EXCEEDED: the entry is freed without a trigger.
        REGION_MISMATCH: the entry's region is of another family; the update is dropped.
        TRACKER_FULL: every way of the set holds another tile; the update is dropped.
        TRACKER_MEMORY: flipped bits cannot be corrected; `fault` names them.
    fault : Out(fault_report)
        Only with protected memories: flipped bits, when an update meets them.
    busy : Out(1)
        The sweep is running, or an update or trigger is inside.
    refused_full : Out(1)
        In this cycle an update is refused because its set is full.
    occupied : Out(unsigned)
        Valid entries, a cycle late.
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
            """Build one memory per way, with a row per set; with protection, its words have check bits."""
            word = layout.size + check_bits(tracker.protection, layout.size)
            shape = word if self._protected else layout
            return [Memory(shape=shape, depth=depth, init=[]) for _ in range(tracker.ways)]

        #: The sweep clears `tags`; an entry counts only with a valid tag.
        self.tags, self.entries = memories(self._tag_layout), memories(self._entry_layout)

    def elaborate(self, platform) -> Module:
        m = Module()
        tracker = self._geometry.tracker
        ways = range(tracker.ways)
        index_bits = max(1, tracker.set_bits - tracker.bank_bits)
        m.submodules.queue = queue = TwoEntryQueue(trigger(self._geometry))
        wiring.connect(m, queue.output, wiring.flipped(self.triggers))

        tag_reads, tag_writes, entry_reads, entry_writes = [], [], [], []
        for way in ways:
            m.submodules[f"tags_{way}"] = self.tags[way]
            m.submodules[f"entries_{way}"] = self.entries[way]
            tag_read, tag_write = self.tags[way].read_port(), self.tags[way].write_port()
            entry_read, entry_write = self.entries[way].read_port(), self.entries[way].write_port()
            tag_reads.append(tag_read)
            tag_writes.append(tag_write)
            entry_reads.append(entry_read)
            entry_writes.append(entry_write)

        sweep = Signal(range(tracker.sets_per_bank + 1))
        sweeping = Signal(init=1)
        accept = Signal()
        done = Signal()

        # Stage 0: read the row (with protection: one stage earlier), look up the region.
        valid = Signal()
        if self._protected:
            fetch = Signal()
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
        threshold = Signal(tracker.count_bits)
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
        room = Signal(tracker.count_bits)  # largest count that this update does not push over the threshold
        suffices = Signal()  # reaches or exceeds the threshold by itself
        allowed_regions = Signal(self._geometry.dma.regions)  # of one family
        with m.If(accept):
            m.d.sync += [
                valid.eq(1),
                current.eq(new),
                refused.eq(~tracked | (threshold == 0)),
                over.eq(new.amount > threshold),
                suffices.eq(new.amount >= threshold),
                room.eq(threshold - new.amount),
                allowed_regions.eq(Cat(other == family for other in self.families)),
            ]
        with m.Elif(done):
            m.d.sync += valid.eq(0)
        for port in tag_reads + entry_reads:
            m.d.comb += [port.addr.eq(self.updates.payload.wg[tracker.bank_bits:tracker.set_bits]), port.en.eq(fetch)]

        # Stage 1: find the entry in the row or in the last write, which the row may not contain yet. Stage 0 has
        # compared the last write's set and tile, including a write by the update that was in stage 1.
        index = Signal(index_bits)
        last_index = Signal(index_bits)
        tag = Signal(tracker.tag_bits)
        new_index = Signal(index_bits)
        new_tag = Signal(tracker.tag_bits)
        same_set = Signal()
        hit_recent = Signal()
        last_way = Signal(tracker.ways)  # one-hot; 0: nothing written since reset
        last_tag = Signal(self._tag_layout, reset_less=True)
        last_entry = Signal(self._entry_layout, reset_less=True)
        recent = Signal(tracker.ways)
        in_row = Signal(tracker.ways)
        match = Signal(tracker.ways)
        used = Signal(tracker.ways)
        free = Signal(tracker.ways)
        hit = Signal()
        full = Signal()
        if self._protected:
            m.submodules.row = row = CorrectedRow(tracker.protection, tracker.ways, self._tag_layout,
                                                  self._entry_layout)
            row_used, row_match = row.used, row.match
        else:  # may be older than the last write
            row_used = [port.data.valid for port in tag_reads]
            row_match = [port.data.valid & (port.data.tag == tag) for port in tag_reads]
        m.d.comb += [
            index.eq(current.wg[tracker.bank_bits:tracker.set_bits]),
            tag.eq(Cat(current.wf, current.wg[tracker.set_bits:])),
            new_index.eq(new.wg[tracker.bank_bits:tracker.set_bits]),
            new_tag.eq(Cat(new.wf, new.wg[tracker.set_bits:])),
            recent.eq(Mux(same_set, last_way, 0)),
            used.eq(Cat(Mux(recent[way], last_tag.valid, row_used[way]) for way in ways)),
            in_row.eq(Cat(row_match[way] & ~recent[way] for way in ways)),
            match.eq(in_row | Mux(hit_recent, last_way, 0)),
            free.eq(~used & (used + 1)),  # lowest free way
            hit.eq(hit_recent | in_row.any()),
            full.eq(used.all()),
        ]
        stored = Signal(self._entry_layout)
        found = Const(0)
        if self._protected:
            for way in ways:
                m.d.comb += [row.tags[way].eq(tag_reads[way].data), row.entries[way].eq(entry_reads[way].data)]
            m.d.comb += [
                row.tag.eq(new_tag), row.take.eq(accept), row.needed.eq(valid & in_row.any()),
                row.last_way.eq(Mux(new_index == last_index, last_way, 0)),
                row.last_tag.eq(last_tag), row.last_entry.eq(last_entry),
            ]
            m.d.sync += self.fault.set.eq(current.wg[:tracker.set_bits])
            m.d.sync += [self.fault[name].eq(row.fault[name]) for name, _ in row.fault.shape()]
            found = Mux(in_row.any(), row.entry.as_value(), 0)
        else:
            for way in ways:
                found = found | Mux(in_row[way], entry_reads[way].data.as_value(), 0)
        m.d.comb += stored.eq(Mux(hit_recent, last_entry.as_value(), found))

        # Count.
        count = Signal(tracker.count_bits)
        region = Signal.like(current.region)
        address = Signal(tracker.address_bits)
        complete = Signal()
        exceeds = Signal()
        closes = Signal()
        set_full = Signal()
        wrong_family = Signal()
        able = valid & queue.input.ready
        dropped = refused | wrong_family  # not counted
        wrong = done & (dropped | set_full | exceeds)
        opened = Signal()
        freed = Signal()
        # Stay busy until `occupied` includes a newly opened entry, because a restart could miss it otherwise.
        inside = sweeping | valid | queue.output.valid | opened
        if self._protected:
            able, dropped, inside = able & ~row.flawed, dropped | row.lost, inside | fetched
            memory_fault = row.fault.valid & row.fault.uncorrectable
            wrong = (done & (refused | set_full | ((wrong_family | exceeds) & ~row.lost))) | memory_fault
        m.d.comb += [
            count.eq(stored.count),  # 0 without a hit
            region.eq(Mux(hit & (current.source != Source.LOCAL), stored.region, current.region)),
            address.eq(Mux(hit & (stored.address < current.address), stored.address, current.address)),
            exceeds.eq(over | (count > room)),
            complete.eq(~over & (count == room)),
            closes.eq(exceeds | complete),
            wrong_family.eq(hit & ~refused & ~allowed_regions.bit_select(stored.region, 1)),
            set_full.eq(full & ~hit & ~suffices & ~refused),
            done.eq(able),
            self.refused_full.eq(done & set_full),
            queue.input.valid.eq(done & complete & ~dropped),
            queue.input.payload.address.eq(address),
            queue.input.payload.region.eq(region),
            queue.input.payload.wf.eq(current.wf),
            queue.input.payload.wg.eq(current.wg),
            self.busy.eq(inside),
        ]

        # Write the entry back, keep it as the last write, and compare it with the next update.
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
        with m.If(writes):
            m.d.sync += [last_index.eq(index), last_way.eq(write), last_tag.eq(next_tag), last_entry.eq(next_entry)]
        with m.If(accept):
            m.d.sync += [
                same_set.eq(Mux(writes, new_index == index, new_index == last_index)),
                hit_recent.eq(Mux(writes, (new_index == index) & (new_tag == tag) & ~closes,
                                  (new_index == last_index) & (new_tag == last_tag.tag) & last_tag.valid
                                  & last_way.any())),
            ]
        m.d.sync += [opened.eq(writes & ~hit), freed.eq(writes & hit & closes)]
        with m.If(opened | freed):
            m.d.sync += self.occupied.eq(Mux(freed, self.occupied - 1, self.occupied + 1))
        # Write one way, or clear the tags of a set.
        tag_word, entry_word = next_tag.as_value(), next_entry.as_value()
        if self._protected:
            m.submodules.tag_codec = tag_codec = MemoryCodec(tracker.protection, len(tag_word))
            m.submodules.entry_codec = entry_codec = MemoryCodec(tracker.protection, len(entry_word))
            m.d.comb += [tag_codec.data.eq(tag_word), entry_codec.data.eq(entry_word)]
            tag_word, entry_word = tag_codec.word, entry_codec.word
        for way in ways:
            m.d.comb += [
                tag_writes[way].addr.eq(Mux(sweeping, sweep, index)),
                tag_writes[way].data.eq(Mux(sweeping, 0, tag_word)),
                tag_writes[way].en.eq(sweeping | write[way]),
                entry_writes[way].addr.eq(index),
                entry_writes[way].data.eq(entry_word),
                entry_writes[way].en.eq(write[way]),
            ]
        with m.If(sweeping):
            m.d.sync += [sweep.eq(sweep + 1), sweeping.eq(sweep != tracker.sets_per_bank - 1)]

        # Errors.
        m.d.sync += self.error.valid.eq(wrong)
        with m.If(wrong):
            m.d.sync += [
                self.error.code.eq(Mux(refused, ErrorCode.REGION_UNCONFIGURED,
                                       Mux(set_full, ErrorCode.TRACKER_FULL, Mux(
                                           wrong_family, ErrorCode.REGION_MISMATCH, ErrorCode.THRESHOLD_EXCEEDED)))),
                self.error.details.address.eq(current.address),
                self.error.details.region.eq(current.region),
                self.error.details.wf.eq(current.wf),
                self.error.details.wg.eq(current.wg),
            ]
            if self._protected:
                with m.If(memory_fault):
                    m.d.sync += self.error.code.eq(ErrorCode.TRACKER_MEMORY)
        return m
