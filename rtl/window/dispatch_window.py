"""Limits how many workgroups start, so that the Tracker always has a way for each of their tiles."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from t3sim.rtl.control.soft_reset import SoftReset
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import ErrorCode, Source, dispatch, error_report, trigger, update
from t3sim.rtl.order import may_start
from t3sim.rtl.registers import EPOCH_BITS
from t3sim.rtl.streams.forwarded_read import forwarded_read
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue


class DispatchWindow(wiring.Component):
    """Sliding window over tile ids, here and at each peer.

    `head` is the oldest unfinished id: not opened, or with tiles that have not triggered. The Tracker is indexed by the
    id modulo its sets (T3 paper, section 4.2.1), so ids in [head, head + window) have their own ways.

    Software must program

    - window <= sets x (ways // tiles per workgroup), and
    - window x tiles per workgroup <= ready_commands. Otherwise a trigger without room in the DMA table would block
      arrivals, all around the ring.

    1. Requests are admitted in the dispatcher's order, whatever their ids. The first one is admitted
       (`order.may_start`) if id < head + window when it opens an id, and there < the peer's head + window when it
       reaches a peer, because its remote stores and DMA become updates there.
    2. While the peer is in another kernel (`epoch`), or its restart is still on the link, no request that reaches it is
       admitted, so no old head is taken for a new one.
    3. A request that starts no workgroup (for a tile that only arrives, or for a further route of a workgroup) is
       admitted without `start`.
    4. A tile that only arrives is not sent on before its own request is admitted, because its next GPU's window may not
       include it yet. The request supplies the last byte that the tile lacks: an *admission*, an update of one byte for
       each of its wavefront tiles.
    5. `head` advances by at most one per cycle. `dispatch.ready`, `grant`, `blocked` and `head` come from registers
       only.

    One memory of `window_slots` rows (indexed by id modulo `window_slots`) holds each opened id's tiles, another its
    completed tiles. Rows name their ids, so opening an id need not clear its completed tiles, and each memory has one
    writer.

    Members
    -------
    dispatch : In(stream(dispatch))
        Ids 0, 1, 2, ..., each opened once, in any order; up to 2^wg_bits of them between restarts.
    grant : Out({valid, id})
        The next request that starts a workgroup is admitted. A restart, here or at the peer, may withdraw it.
    start : In(1)
        There is room for a workgroup: one starts in every cycle with `grant.valid`.
    blocked : Out(1)
        The next request waits for a window, or for earlier admissions.
    waits_here, waits_there : Out(1)
        The next request waits for the window here, or its peer's; both 0 while the memory is cleared.
    admissions : Out(stream(update))
        Like local stores of one byte at the highest address, which is never below the tile's own.
    completion : In({valid, address, region, wf, wg})
        Pulse: this tile triggered, two cycles after its id was opened at the earliest. `address` and `region` are only
        for the error report.
    upcoming : In(wg_bits)
        `completion.wg` of the next cycle, if it is valid then.
    foreign : Out(1)
        The completion's id is open but does not have this wavefront. Function of `completion` and registers.
    window : In(wg_bits + 1)
        Ids, at most `window_slots` of which count; 0 admits none.
    restart : In(1)
        Pulse: a new kernel. Head 0; all requests are dropped, also one taken in this cycle. Nothing is admitted for
        `window_slots` cycles.
    next_epoch : In(EPOCH_BITS)
        Number of the kernel that a restart begins: equal on all devices, different from earlier ones.
    epoch : Out(EPOCH_BITS)
        Number of the kernel of `head`; 0 after a reset.
    limit : Out(wg_bits + 2)
        One past the last id inside the window here; a cycle late, and 0 after a restart.
    busy : Out(1)
        Opened ids are unfinished, requests or admissions wait, a completion is being counted, or the memory is cleared.
    error : Out(error_report)
        ID_REUSED: the request's id was opened before; it is treated as opening none. COMPLETION_UNEXPECTED: the
        completion's id is not open, has no tile left, or lacks this wavefront; it is ignored. ID_REUSED wins in one
        cycle.
    """

    def __init__(self, geometry: Geometry):
        wg_bits = geometry.tracker.wg_bits
        super().__init__({
            "dispatch": In(stream.Signature(dispatch(geometry))),
            "grant": Out(data.StructLayout({"valid": 1, "id": wg_bits})),
            "start": In(1),
            "blocked": Out(1),
            "waits_here": Out(1),
            "waits_there": Out(1),
            "admissions": Out(stream.Signature(update(geometry))),
            "completion": In(data.StructLayout({"valid": 1} | trigger(geometry).members)),
            "upcoming": In(wg_bits),
            "foreign": Out(1),
            "window": In(wg_bits + 1),
            "restart": In(1),
            "next_epoch": In(EPOCH_BITS),
            "epoch": Out(EPOCH_BITS),
            "head": Out(wg_bits + 1),
            "peer_heads": In(wg_bits + 1).array(geometry.dma.peers),
            "peer_epochs": In(EPOCH_BITS).array(geometry.dma.peers),
            "limit": Out(wg_bits + 2),
            "busy": Out(1),
            "error": Out(error_report(geometry)),
        })
        tracker = geometry.tracker
        self._request = dispatch(geometry)
        self._peers = geometry.dma.peers
        self._wg_bits = wg_bits
        self._slots = tracker.window_slots
        self._slot_bits = (self._slots - 1).bit_length()
        self._count_bits = tracker.wf_bits + 1
        owner = {"owner": max(1, wg_bits - self._slot_bits)}  # the id's bits above the slot
        depth = max(2, self._slots)  # a zero-bit address does not survive in Verilog
        self.tiles = Memory(shape=data.StructLayout({"count": self._count_bits, **owner, "opened": 1}), depth=depth,
                            init=[])
        self.progress = Memory(shape=data.StructLayout({"count": self._count_bits, **owner}), depth=depth, init=[])

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.tiles, m.submodules.progress = self.tiles, self.progress
        tiles_write = self.tiles.write_port()
        progress_write = self.progress.write_port()
        head_tiles, head_row = forwarded_read(m, self.tiles, tiles_write, "head_row")
        done_tiles, done_row = forwarded_read(m, self.tiles, tiles_write, "done_row")
        first_tiles, first_row = forwarded_read(m, self.tiles, tiles_write, "first_row")
        head_progress, head_done = forwarded_read(m, self.progress, progress_write, "head_done")
        done_progress, done_before = forwarded_read(m, self.progress, progress_write, "done_before")

        def slot(wg):
            return wg[:self._slot_bits]

        def owner(wg):
            return wg[self._slot_bits:self._wg_bits]

        def opened(row, wg):
            return row.opened & (row.owner == owner(wg))

        # Clear the memories before the first request.
        sweep = Signal(range(max(2, self._slots)))
        sweeping = Signal(init=1)
        with m.If(self.restart):
            m.d.sync += [sweep.eq(0), sweeping.eq(1)]
        with m.Elif(sweeping):
            m.d.sync += [sweep.eq(sweep + 1), sweeping.eq(sweep != self._slots - 1)]

        # Limits: one past the last id of each window. A late limit is only smaller; after a restart the sweep gives it
        # time.
        window = Signal(self._wg_bits + 1)
        near = Signal(self._wg_bits + 2)
        far = [Signal(self._wg_bits + 2, name=f"far_{peer}") for peer in range(self._peers)]
        peer_head = [Signal(self._wg_bits + 1, name=f"peer_head_{peer}") for peer in range(self._peers)]
        same_kernel = Signal(self._peers)
        m.d.sync += [
            window.eq(Mux(self.window > self._slots, self._slots, self.window)),
            near.eq(self.head + window),
        ]
        m.d.comb += self.limit.eq(near)
        for peer in range(self._peers):
            m.d.sync += [
                peer_head[peer].eq(self.peer_heads[peer]),
                same_kernel[peer].eq(self.peer_epochs[peer] == self.epoch),
                far[peer].eq(Mux(same_kernel[peer], peer_head[peer] + window, 0)),
            ]

        # Requests.
        queue = TwoEntryQueue(self._request, look_ahead=True)
        m.submodules.queue = SoftReset(queue, self.restart)
        wiring.connect(m, wiring.flipped(self.dispatch), queue.input)
        first = queue.output.payload
        far_there = Array(far)[first.peer]
        admitting = Signal(self._count_bits)  # wavefront tiles still to admit
        arrives = Signal()
        able = Signal()
        goes = Signal()
        opens = Signal()
        reused = Signal()
        m.d.comb += [
            arrives.eq(first.opens & ~first.starts),
            able.eq(~sweeping & ~(arrives & (admitting != 0))
                    & may_start(first.opens, first.reaches, first.id, first.there, near, far_there)),
            self.grant.valid.eq(queue.output.valid & able & first.starts),
            self.grant.id.eq(first.id),
            self.blocked.eq(queue.output.valid & ~able),
            self.waits_here.eq(queue.output.valid & ~sweeping & ~may_start(first.opens, 0, first.id, 0, near, 0)),
            self.waits_there.eq(queue.output.valid & ~sweeping & ~may_start(0, first.reaches, 0, first.there, 0,
                                                                           far_there)),
            queue.output.ready.eq(able & (self.start | ~first.starts)),
            goes.eq(queue.output.valid & queue.output.ready),
            reused.eq(goes & first.opens & ((first.id < self.head) | opened(first_row, first.id))),
            opens.eq(goes & first.opens & ~reused),
            first_tiles.addr.eq(slot(queue.following.id)),
            first_tiles.en.eq(Mux(queue.output.valid, queue.output.ready, self.dispatch.valid)),
            tiles_write.addr.eq(Mux(sweeping, sweep, slot(first.id))),
            tiles_write.en.eq(sweeping | opens),
        ]
        with m.If(~sweeping):
            m.d.comb += [
                tiles_write.data.count.eq(first.tiles),
                tiles_write.data.owner.eq(owner(first.id)),
                tiles_write.data.opened.eq(1),
            ]

        # Admissions, the last wavefront tile first.
        admission, region = self.admissions, Signal.like(first.region)
        m.d.comb += [
            admission.valid.eq(admitting != 0),
            admission.payload.address.eq(-1),
            admission.payload.amount.eq(1),
            admission.payload.source.eq(Source.LOCAL),
            admission.payload.wf.eq(admitting - 1),
        ]
        with m.If(opens & arrives):
            m.d.sync += [
                admitting.eq(first.tiles),
                admission.payload.wg.eq(first.id),
                admission.payload.region.eq(first.last_region),
                region.eq(first.region),
            ]
        with m.Elif(admission.valid & admission.ready):
            m.d.sync += [admitting.eq(admitting - 1), admission.payload.region.eq(region)]

        completed = Signal.like(self.completion)

        # The head; its rows are read one cycle ahead.
        total = Signal(self._wg_bits + 1)  # ids opened; as many as `head` when all of them are finished
        next_head = Signal(self._wg_bits + 1)
        finished = Signal()
        progress_is_its_own = head_done.owner == owner(self.head)
        m.d.comb += [
            finished.eq(~sweeping & ~self.head[-1] & opened(head_row, self.head)
                        & (head_row.count == Mux(progress_is_its_own, head_done.count, 0))),
            next_head.eq(self.head + finished),
            head_tiles.addr.eq(slot(next_head)),
            head_tiles.en.eq(finished),
            head_progress.addr.eq(slot(next_head)),
            head_progress.en.eq(finished),
            self.busy.eq(sweeping | (self.head != total) | completed.valid | queue.output.valid | admission.valid),
        ]
        m.d.sync += [self.head.eq(next_head), total.eq(total + opens)]

        # Completions: opened tiles are read a cycle ahead; completed ones are read now and count in the next cycle.
        its_own = Signal()
        swept = Signal()  # no row is older than the sweep
        has = Signal()
        all_of_it = Signal(self._count_bits)
        count = Signal(self._count_bits)
        expected = Signal()
        row_slot = Signal.like(done_tiles.addr)  # of `done_row`
        m.d.sync += [
            row_slot.eq(done_tiles.addr),
            swept.eq(~sweeping),
            completed.eq(self.completion),
            has.eq(its_own & ~self.foreign),
            all_of_it.eq(done_row.count),
        ]
        m.d.comb += [
            done_tiles.addr.eq(slot(self.upcoming)),
            done_tiles.en.eq(done_tiles.addr != row_slot),
            done_progress.addr.eq(slot(self.completion.wg)),
            done_progress.en.eq(self.completion.valid),
            its_own.eq(swept & opened(done_row, self.completion.wg)),
            self.foreign.eq(its_own & (self.completion.wf >= done_row.count)),
            count.eq(Mux(done_before.owner == owner(completed.wg), done_before.count, 0)),
            expected.eq(~sweeping & has & (count != all_of_it)),
            progress_write.addr.eq(Mux(sweeping, sweep, slot(completed.wg))),
            progress_write.en.eq(sweeping | (completed.valid & expected)),
        ]
        with m.If(~sweeping):
            m.d.comb += [
                progress_write.data.count.eq(count + 1),
                progress_write.data.owner.eq(owner(completed.wg)),
            ]

        m.d.sync += self.error.valid.eq(0)
        with m.If(completed.valid & ~expected):
            m.d.sync += [
                self.error.valid.eq(1),
                self.error.code.eq(ErrorCode.COMPLETION_UNEXPECTED),
                *(self.error.details[name].eq(completed[name]) for name, _ in self.error.details.shape()),
            ]
        with m.If(reused):
            m.d.sync += [
                self.error.valid.eq(1),
                self.error.code.eq(ErrorCode.ID_REUSED),
                self.error.details.eq(0),
                self.error.details.wg.eq(first.id),
            ]

        with m.If(self.restart):
            m.d.sync += [total.eq(0), self.head.eq(0), completed.valid.eq(0), admitting.eq(0),
                         self.epoch.eq(self.next_epoch), same_kernel.eq(0), near.eq(0), swept.eq(0),
                         *(limit.eq(0) for limit in far)]
        return m
