"""Lets only so many workgroups start that the Tracker always has a way for each of their tiles."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .geometry import Geometry
from .layouts import ErrorCode, dispatch, error_report, trigger
from .registers import EPOCH_BITS


class DispatchWindow(wiring.Component):
    """Sliding window over workgroup ids, here and at the downstream neighbour.

    The Tracker is indexed by the id modulo its sets (T3 paper, section 4.2.1), so workgroups
    [head, head + window) have ways of their own if window <= sets x (ways // tiles per workgroup), which
    software programs. It also keeps window x tiles per workgroup <= ready_commands: so many commands can wait
    in the DMA table, and a trigger that found no place there would hold up arrivals, all around the ring.
    `head` is the oldest workgroup that is not finished: not started, or with tiles
    that have not triggered. Workgroup q may start if

        q < head + window  and  q < downstream_head + window - shift  (if `enable_downstream`)

    because its remote stores and its DMA become updates of workgroup q + shift downstream. While that device is in
    another kernel (`epoch`), or its restart is still on the link, nothing starts: no head of the past is taken for new.

    A memory of `window_slots` rows (id modulo that) holds each workgroup's tiles, another its completed
    tiles together with the workgroup they belong to, so that starting a workgroup need not clear
    them and each memory has one writer. `head` advances by at most one per cycle.
    `dispatch.ready` and `head` come from registers only.

    Members
    -------
    dispatch : In(stream(dispatch))
        Workgroups 0, 1, 2, ... in order, up to 2^wg_bits of them between restarts.
    completion : In({valid, address, region, wf, wg})
        Pulse: this tile triggered. All but `wg` is for the error report.
    window, shift, downstream_head : In(wg_bits + 1)
        Workgroups. A window of more than `window_slots` counts as that; 0 stops dispatch.
    enable_downstream : In(1)
    restart : In(1)
        Pulse: new kernel, head and the next workgroup are 0. `dispatch` waits for `window_slots` cycles.
    next_epoch : In(EPOCH_BITS)
        Number of the kernel that a restart begins: the same on all devices, another than of the kernels before it.
    epoch : Out(EPOCH_BITS), downstream_epoch : In(EPOCH_BITS)
        Number of the kernel to which the head belongs, here and downstream; 0 after a reset.
    head : Out(wg_bits + 1)
    busy : Out(1)
        Started workgroups are not finished, a completion is being counted, or the memory is being cleared.
    error : Out(error_report)
        DISPATCH_ORDER: not the next workgroup; accepted and ignored. COMPLETION_UNEXPECTED: of a
        workgroup that has not started or has no tile left; ignored. In the same cycle the
        former is shown.
    """

    def __init__(self, geometry: Geometry):
        wg_bits = geometry.tracker.wg_bits
        super().__init__({
            "dispatch": In(stream.Signature(dispatch(geometry))),
            "completion": In(data.StructLayout({"valid": 1} | trigger(geometry).members)),
            "window": In(wg_bits + 1),
            "shift": In(wg_bits + 1),
            "downstream_head": In(wg_bits + 1),
            "enable_downstream": In(1),
            "restart": In(1),
            "next_epoch": In(EPOCH_BITS),
            "epoch": Out(EPOCH_BITS),
            "downstream_epoch": In(EPOCH_BITS),
            "head": Out(wg_bits + 1),
            "busy": Out(1),
            "error": Out(error_report(geometry)),
        })
        tracker = geometry.tracker
        self._wg_bits = wg_bits
        self._slots = tracker.window_slots
        self._slot_bits = (self._slots - 1).bit_length()
        self._count_bits = tracker.wf_bits + 1
        self._progress_layout = data.StructLayout({
            "count": self._count_bits,
            "owner": max(1, wg_bits - self._slot_bits),  # the workgroup's bits above the slot
        })
        depth = max(2, self._slots)  # a zero-bit address does not survive in Verilog
        self.tiles = Memory(shape=self._count_bits, depth=depth, init=[])
        self.progress = Memory(shape=self._progress_layout, depth=depth, init=[])

    def elaborate(self, platform):
        m = Module()
        m.submodules.tiles, m.submodules.progress = self.tiles, self.progress
        tiles_write = self.tiles.write_port()
        progress_write = self.progress.write_port()
        head_tiles = self.tiles.read_port(transparent_for=(tiles_write,))
        head_progress = self.progress.read_port(transparent_for=(progress_write,))
        done_tiles = self.tiles.read_port(transparent_for=(tiles_write,))
        done_progress = self.progress.read_port(transparent_for=(progress_write,))

        def slot(wg):
            return wg[:self._slot_bits]

        def owner(wg):
            return wg[self._slot_bits:self._wg_bits]

        # The memory of an earlier kernel is cleared before the first dispatch.
        sweep = Signal(range(max(2, self._slots)))
        sweeping = Signal(init=1)
        with m.If(self.restart):
            m.d.sync += [sweep.eq(0), sweeping.eq(1)]
        with m.Elif(sweeping):
            m.d.sync += [sweep.eq(sweep + 1), sweeping.eq(sweep != self._slots - 1)]

        # Dispatch. The limit and what was programmed are a cycle or two old, which only makes it smaller; after a
        # restart the sweep lets it catch up.
        following = Signal(self._wg_bits + 1)  # the workgroup that must come next
        limit = Signal(signed(self._wg_bits + 3))
        here = Signal.like(limit)
        there = Signal.like(limit)
        window = Signal(self._wg_bits + 1)
        lead = Signal(signed(self._wg_bits + 2))
        downstream_head = Signal(self._wg_bits + 1)
        same_kernel = Signal(init=1)
        accept = Signal()
        in_order = Signal()
        m.d.comb += [
            here.eq(self.head + window),
            there.eq(downstream_head + lead),
            self.dispatch.ready.eq(~sweeping & (following < limit)),
            accept.eq(self.dispatch.valid & self.dispatch.ready),
            in_order.eq(self.dispatch.payload.wg == following),
            tiles_write.addr.eq(slot(self.dispatch.payload.wg)),
            tiles_write.data.eq(self.dispatch.payload.tiles),
            tiles_write.en.eq(accept & in_order),
        ]
        m.d.sync += [
            window.eq(Mux(self.window > self._slots, self._slots, self.window)),
            lead.eq(window - self.shift),
            downstream_head.eq(self.downstream_head),
            same_kernel.eq(self.downstream_epoch == self.epoch),
            limit.eq(Mux(self.enable_downstream, Mux(same_kernel, Mux(there < here, there, here), 0), here)),
        ]
        with m.If(accept & in_order):
            m.d.sync += following.eq(following + 1)

        completed = Signal.like(self.completion)

        # Head. Its rows are read every cycle, one cycle ahead.
        next_head = Signal(self._wg_bits + 1)
        finished = Signal()
        m.d.comb += [
            finished.eq((self.head != following) & (head_tiles.data == Mux(
                head_progress.data.owner == owner(self.head), head_progress.data.count, 0))),
            next_head.eq(self.head + finished),
            head_tiles.addr.eq(slot(next_head)),
            head_progress.addr.eq(slot(next_head)),
            self.busy.eq(sweeping | (self.head != following) | completed.valid),
        ]
        m.d.sync += self.head.eq(next_head)

        # Completions: read, then count in the next cycle.
        count = Signal(self._count_bits)
        expected = Signal()
        m.d.sync += completed.eq(self.completion)
        m.d.comb += [
            done_tiles.addr.eq(slot(self.completion.wg)),
            done_progress.addr.eq(slot(self.completion.wg)),
            count.eq(Mux(done_progress.data.owner == owner(completed.wg), done_progress.data.count, 0)),
            expected.eq((completed.wg >= self.head) & (completed.wg < following) & (count != done_tiles.data)),
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
        with m.If(accept & ~in_order):
            m.d.sync += [
                self.error.valid.eq(1),
                self.error.code.eq(ErrorCode.DISPATCH_ORDER),
                self.error.details.eq(0),
                self.error.details.wg.eq(self.dispatch.payload.wg),
            ]

        with m.If(self.restart):
            m.d.sync += [following.eq(0), self.head.eq(0), completed.valid.eq(0), self.epoch.eq(self.next_epoch),
                         same_kernel.eq(0), limit.eq(0)]
        return m
