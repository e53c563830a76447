"""One memory channel's front end: queues, arbitration, ordering and the tap for the Tracker."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.arbiter.arbiter import STARVATION_BITS, Arbiter
from t3sim.rtl.arbiter.policies import POLICY_BITS
from t3sim.rtl.arbiter.policy import THRESHOLD_BITS
from t3sim.rtl.channel.coalescer import Coalescer
from t3sim.rtl.channel.order_guard import OrderGuard, bucket_of
from t3sim.rtl.control.soft_reset import SoftReset
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import Op, dram_command, read_for, request, retirement, update
from t3sim.rtl.streams.counting import ones
from t3sim.rtl.streams.pointer_queue import PointerQueue


def is_tracked(access) -> Signal:
    """Return whether a request counts towards a tile: a write to a mapped region."""
    return (access.op != Op.READ) & (access.region != 0)


def is_watched(access, geometry: Geometry) -> Value:
    """Return whether a request belongs to Track & Trigger: a tracked write, or a read of this GPU's DMA engines."""
    return is_tracked(access) | ((access.op == Op.READ) & read_for(access, geometry).any())


class MemoryChannel(wiring.Component):
    """Passes the channel's requests to its DRAM queue, one per cycle, and reports tracked writes to the Tracker.

    The communication stream is the round robin of `inbound` (a peer's stores) and `dma` (reads of this GPU's DMA
    engines). The arbiter (T3 paper, section 4.5) chooses between it and compute.

    1. Order within each stream is kept. A request is on `dram` two cycles after it was accepted, if nothing delays it.
    2. A DMA read never passes an older tracked write to its address (see `OrderGuard`). While it waits, inbound
       requests pass it.
    3. DMA reads never wait for the Tracker, which may wait for them: a tracked write blocked by the coalescer or by the
       guard's `room` lets other streams pass.
    4. While `forget` is 1, tracked writes are performed, but reports to the Tracker are dropped. The order guard keeps
       counting.
    5. The `ready` signals, `dram`, `updates`, `communication_waiting` and `guard_stall` are functions of registers
       only.

    For `guard_buckets` cycles after reset, requests are queued but not granted. The DRAM queue must be reset together
    with the channel.

    Members
    -------
    compute, inbound, dma : In(stream of request)
        `dma` carries reads only.
    occupancy : In(occupancy_bits)
        Entries of the DRAM queue in use at the start of the cycle.
    retirement : In(retirement layout)
        Due once for each tracked write (op not READ, region not 0) taken from `dram`.
    updates : Out(stream of update)
        In the order of the grants, coalesced.
    policy : In(POLICY_BITS), threshold : In(7), starvation_limit : In(16), drain : In(1), ring_late : In(1)
        See `Arbiter`.
    holds : Out(1)
        A tracked write, a DMA read, or a report to the Tracker is inside. Function of registers.
    grant_compute, grant_communication : Out(1)
        Grant in this cycle. Depends on `dram.ready` and `occupancy`.
    starved : Out(1)
        Function of registers and `starvation_limit`.
    guard_stall : Out(1)
        A DMA read waits for a write to its bucket.
    communication_waiting : Out(1)
        An inbound or DMA request is queued.
    merged : Out(1)
        A tracked access joined another one in the coalescer. Function of registers.
    busy : Out(1)
        A request or an update is inside, or the guard is not ready. Function of registers.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        super().__init__({
            "compute": In(stream.Signature(request(geometry))),
            "inbound": In(stream.Signature(request(geometry))),
            "dma": In(stream.Signature(request(geometry))),
            "dram": Out(stream.Signature(dram_command(geometry))),
            "occupancy": In(geometry.channel.occupancy_bits),
            "retirement": In(retirement(geometry)),
            "updates": Out(stream.Signature(update(geometry))),
            "policy": In(POLICY_BITS),
            "threshold": In(THRESHOLD_BITS),
            "starvation_limit": In(STARVATION_BITS),
            "drain": In(1),
            "ring_late": In(1),
            "forget": In(1),
            "holds": Out(1),
            "grant_compute": Out(1),
            "grant_communication": Out(1),
            "starved": Out(1),
            "guard_stall": Out(1),
            "communication_waiting": Out(1),
            "merged": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = Arbiter(self._geometry)
        m.submodules.guard = guard = OrderGuard(self._geometry)
        coalescer = Coalescer(self._geometry)
        m.submodules.coalescer = SoftReset(coalescer, self.forget)

        layout = request(self._geometry)
        m.submodules.compute_queue = compute_queue = PointerQueue(layout, 2)
        m.submodules.inbound_queue = inbound_queue = PointerQueue(layout, 2)
        m.submodules.dma_queue = dma_queue = PointerQueue(
            layout, self._geometry.channel.dma_fifo, digest=lambda read: bucket_of(read.address, self._geometry))
        wiring.connect(m, wiring.flipped(self.compute), compute_queue.input)
        wiring.connect(m, wiring.flipped(self.inbound), inbound_queue.input)
        wiring.connect(m, wiring.flipped(self.dma), dma_queue.input)
        compute, inbound, dma = compute_queue.output, inbound_queue.output, dma_queue.output

        # Registers towards the DRAM queue and the coalescer.
        command_valid = Signal()
        command = Signal(layout, reset_less=True)
        command_communication = Signal(reset_less=True)
        command_new = Signal()  # first cycle of a tracked write in `command`
        access_valid = Signal()
        access = Signal(update(self._geometry), reset_less=True)

        # A tracked request needs room for its report, and in the guard's count.
        access_ready = Signal()
        tracked_able = Signal()
        compute_tracked = Signal()
        inbound_tracked = Signal()
        queued = Signal(range(5))  # tracked writes in the two queues, also behind untracked requests
        inbound_able = Signal()
        dma_able = Signal()
        m.d.comb += [
            access_ready.eq(~access_valid | coalescer.accesses.ready),
            tracked_able.eq(access_ready & guard.room),
            compute_tracked.eq(is_tracked(compute.payload)),
            inbound_tracked.eq(is_tracked(inbound.payload)),
            inbound_able.eq(inbound.valid & (tracked_able | ~inbound_tracked)),
            guard.query.eq(dma_queue.head_digest),
            guard.following.eq(dma_queue.next_digest),
            guard.moves.eq(Mux(dma.valid, dma.ready, self.dma.valid)),
            dma_able.eq(dma.valid & ~guard.blocked),
            self.guard_stall.eq(dma.valid & guard.blocked & guard.ready),
            self.communication_waiting.eq(inbound.valid | dma.valid),
            self.holds.eq((queued != 0) | dma.valid | (command_valid & is_watched(command, self._geometry))
                          | access_valid | coalescer.busy),
        ]

        last_dma = Signal(init=1)  # so inbound has the first turn
        take_dma = Signal()
        m.d.comb += [
            take_dma.eq(dma_able & ~(last_dma & inbound_able)),
            arbiter.policy.eq(self.policy),
            arbiter.threshold.eq(self.threshold),
            arbiter.starvation_limit.eq(self.starvation_limit),
            arbiter.drain.eq(self.drain),
            arbiter.ring_late.eq(self.ring_late),
            arbiter.compute_valid.eq(compute.valid & (tracked_able | ~compute_tracked)),
            arbiter.communication_valid.eq(inbound_able | dma_able),
            arbiter.communication_waiting.eq(self.communication_waiting),
            arbiter.ready.eq((~command_valid | self.dram.ready) & guard.ready),
            # The request in the output register counts like a queued one.
            arbiter.occupancy.eq(self.occupancy + command_valid),
            self.grant_compute.eq(arbiter.grant_compute),
            self.grant_communication.eq(arbiter.grant_communication),
            self.starved.eq(arbiter.starved),
            self.merged.eq(coalescer.merged),
            self.busy.eq(compute.valid | self.communication_waiting | command_valid | access_valid
                         | coalescer.busy | ~guard.ready),
        ]

        granted = Signal()
        tracked = Signal()
        m.d.comb += [
            compute.ready.eq(arbiter.grant_compute),
            inbound.ready.eq(arbiter.grant_communication & ~take_dma),
            dma.ready.eq(arbiter.grant_communication & take_dma),
            granted.eq(arbiter.grant_compute | arbiter.grant_communication),
            tracked.eq((compute.ready & compute_tracked) | (inbound.ready & inbound_tracked)),
        ]
        m.d.sync += queued.eq(queued - tracked + ones(port.valid & port.ready & is_tracked(port.payload)
                                                      for port in (compute_queue.input, inbound_queue.input)))
        with m.If(arbiter.grant_communication):
            m.d.sync += last_dma.eq(take_dma)

        write = Mux(compute.ready, compute.payload, inbound.payload)
        with m.If(granted):
            m.d.sync += [
                command.eq(Mux(dma.ready, dma.payload, write)),
                command_communication.eq(arbiter.grant_communication),
            ]
        with m.If(tracked):
            tapped = data.View(layout, write)
            parts = tapped.more + 1 if self._geometry.channel.more_bits else 1
            m.d.sync += [
                access.address.eq(tapped.address),
                access.amount.eq(tapped.bytes * parts),
                access.source.eq(tapped.source),
                access.region.eq(tapped.region),
                access.wf.eq(tapped.wf),
                access.wg.eq(tapped.wg),
            ]
        m.d.sync += [
            command_valid.eq(granted | (command_valid & ~self.dram.ready)),
            command_new.eq(tracked),
            access_valid.eq(~self.forget & (tracked | (access_valid & ~coalescer.accesses.ready))),
        ]
        m.d.comb += [
            self.dram.valid.eq(command_valid),
            self.dram.payload.request.eq(command),
            self.dram.payload.communication.eq(command_communication),
            self.dram.payload.bucket.eq(guard.write_bucket),
            guard.write.eq(command_new),
            guard.write_address.eq(command.address),
            guard.retired.eq(self.retirement.valid),
            guard.retired_bucket.eq(self.retirement.bucket),
            coalescer.accesses.valid.eq(access_valid),
            coalescer.accesses.payload.eq(access),
        ]
        wiring.connect(m, wiring.flipped(self.updates), coalescer.updates)
        return m
