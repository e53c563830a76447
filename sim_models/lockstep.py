"""One memory cycle of everything: the compiled loop that steps models and RTL together.

`fused_cycle` lets the models of a device see the RTL's (registered) outputs, act on them, and set its inputs for this
cycle; then the RTL takes its clock edge. `lockstep` does both in compiled code; another backend calls `fused_cycle`
from Python and steps itself. `baseline` runs the GEMM's models without RTL.
"""

from typing import NamedTuple

import numpy as np

from . import bits, memory, queues, ring_kernel
from . import gemm as gemms
from . import link as links
from .by_reference import by_reference
from .hbm import HbmState
from .jit import compiled, inlined
from .llc import Llc
from .memory_map import MemoryMap, channel_of
from .schedule.mirror import Mirror

IDLE_LIMIT = 200_000  #: cycles without any progress after which a run is declared stuck
RUNNING, DONE, STUCK = range(3)


class Ports(NamedTuple):
    """Word offsets of the RTL's ports in its input and output arrays; arrays are per channel or per lane."""

    compute_valid: np.ndarray
    compute: np.ndarray
    inbound_valid: np.ndarray
    inbound: np.ndarray
    dram_ready: np.ndarray
    occupancy: np.ndarray
    retirement: np.ndarray  # valid is bit 0, bucket above
    outbound_valid: np.ndarray
    outbound: np.ndarray
    packet_ready: np.ndarray
    dispatch_valid: int
    dispatch: int
    tiles_lsb: int
    downstream_head: int
    event_ready: int
    producer_active: int
    compute_ready: np.ndarray  # outputs from here on
    inbound_ready: np.ndarray
    dram_valid: np.ndarray
    dram: np.ndarray
    outbound_ready: np.ndarray
    packet_valid: np.ndarray
    packet: np.ndarray
    dispatch_ready: int
    head: int
    event_valid: int
    event: int
    event_wf_lsb: int
    event_wg_lsb: int


class Control(NamedTuple):
    """What the loop itself keeps; [device] unless said otherwise."""

    heads: np.ndarray  # int64 [device, latency]: the device's window head of past cycles
    events: np.ndarray  # int32 [device, id, wavefront]: times that a tile's event came
    event_count: np.ndarray
    rs_end: np.ndarray  # cycle of the last event
    rs_start: np.ndarray  # cycle of the first packet
    progress: np.ndarray  # int64 [2]: a sum that grows with progress, cycle at which it last grew
    random: np.ndarray  # uint64 [1]
    chaos: np.ndarray  # int64 [3]: probability (of 2^16) that a handshake is held back, largest extra link delay
    downstream: np.ndarray  # device that this one sends to
    blocked_cycles: np.ndarray  # int64 [device]: cycles in which a free compute unit waited for the window
    flushed: np.ndarray  # int64 [device]: cache sets written back after the kernel


class Sim(NamedTuple):
    """All state of a run."""

    b: bits.RequestBits
    m: MemoryMap
    hbm: HbmState
    mem: memory.MemoryState
    compute: queues.RequestQueue
    inbound: queues.RequestQueue
    llc: Llc
    gemm: gemms.GemmState
    shape: gemms.GemmShape
    plan: gemms.GemmPlan
    stores_out: queues.TimedQueue  # stores to remote-mapped tiles
    store_limit: int
    link: links.LinkState
    link_shape: links.LinkShape
    mirrored: bool
    mirror: Mirror
    ring: ring_kernel.RingState
    ring_shape: ring_kernel.RingShape
    phase: int  # memory.GEMM, REDUCE_SCATTER, ALL_GATHER
    fill_cycles: int
    expected_events: np.ndarray  # int64 [device]: final tiles
    control: Control
    ports: Ports


@inlined
def chance(control, which):
    """True with the probability of `chaos[which]`; a 64-bit linear congruential generator, repeatable by seed."""
    if control.chaos[which] == 0:
        return False
    return draw(control) % 65536 < control.chaos[which]


@inlined
def draw(control):
    control.random[0] = control.random[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return np.int64(control.random[0] >> np.uint64(33))


@inlined
def channels_cycle(s, d, inp, out, now):
    """Memory channels of device d: DRAM side, then the heads of both streams offered to the arbiters."""
    p = s.ports
    for c in range(s.m.channels):
        row = d * s.m.channels + c
        occupancy = s.hbm.occupancy[row]
        bucket = memory.dram_cycle(s.mem, s.hbm, s.b, d, row, now, s.phase, s.fill_cycles)
        inp[p.retirement[c]] = 0 if bucket < 0 else 1 | (bucket << 1)
        inp[p.occupancy[c]] = occupancy
        ready = occupancy < s.hbm.queue_entries and not chance(s.control, 0)
        inp[p.dram_ready[c]] = ready
        if ready and out[p.dram_valid[c]]:
            at = p.dram[c]
            lo, hi = out[at], out[at + 1]
            bucket = bits.get(lo, hi, s.b.dram_bucket, s.b.bucket_bits)
            # Bits above the request must go: requests travel on in this form.
            hi &= (1 << (s.b.dram_communication - 64)) - 1
            memory.dram_accept(s.mem, s.hbm, s.b, s.m, row, now, lo, hi, bucket)
        offer(s, s.compute, row, inp, out, p.compute_valid[c], p.compute[c], p.compute_ready[c])
        offer(s, s.inbound, row, inp, out, p.inbound_valid[c], p.inbound[c], p.inbound_ready[c])


@inlined
def offer(s, queue, row, inp, out, valid, payload, ready):
    """Head of a queue to a stream of the RTL; it leaves the queue if the RTL takes it in this cycle."""
    if queue.count[row] > 0:
        at = queue.head[row]
        inp[valid] = 1
        inp[payload] = queue.lo[row, at]
        inp[payload + 1] = queue.hi[row, at]
        if out[ready]:
            queues.pop(queue, row)
    else:
        inp[valid] = 0


@compiled
def egress_cycle(s, d, inp, out, now):
    """Lines for the link into the egress lanes, packets from them onto the link."""
    p = s.ports
    for lane in range(len(p.outbound)):
        if out[p.packet_valid[lane]]:
            at = p.packet[lane]
            accepted = links.can_send(s.link, s.link_shape, d, now) and not chance(s.control, 1)
            inp[p.packet_ready[lane]] = accepted
            if accepted:
                lo, hi = out[at], out[at + 1]
                size = bits.get(lo, hi, s.b.bytes, s.b.op - s.b.bytes)
                if s.control.rs_start[d] < 0:
                    s.control.rs_start[d] = now
                if s.mirrored:
                    links.send_mirrored(s.link, s.link_shape, s.mirror, s.b, now, size, lo, hi)
                else:
                    delay = draw(s.control) % (s.control.chaos[2] + 1) if s.control.chaos[2] else 0
                    links.send(s.link, s.link_shape, d, now, size, delay, lo, hi)
        else:
            inp[p.packet_ready[lane]] = 0
        returns, stores = s.mem.dma_returns, s.stores_out
        from_dma = returns.count[d] > 0 and returns.time[d, returns.head[d]] <= now
        from_units = stores.count[d] > 0
        if from_dma and (not from_units or (now + lane) & 1):
            offer_timed(returns, d, inp, out, p.outbound_valid[lane], p.outbound[lane], p.outbound_ready[lane])
        elif from_units:
            offer_timed(stores, d, inp, out, p.outbound_valid[lane], p.outbound[lane], p.outbound_ready[lane])
        else:
            inp[p.outbound_valid[lane]] = 0


@inlined
def offer_timed(queue, d, inp, out, valid, payload, ready):
    """Offer only when it will be taken: the source may change from cycle to cycle, a held offer must not."""
    if not out[ready]:
        inp[valid] = 0
        return
    at = queue.head[d]
    inp[valid] = 1
    inp[payload] = queue.lo[d, at]
    inp[payload + 1] = queue.hi[d, at]
    queues.pop_timed(queue, d)


@compiled
def deliver(s, source, target, now):
    """Packets that have arrived go to the memory channels of their device, in order."""
    flight = s.link.flight
    while flight.count[source] > 0:
        at = flight.head[source]
        if flight.time[source, at] > now:
            return
        lo, hi = flight.lo[source, at], flight.hi[source, at]
        hi &= (1 << (s.b.device - 64)) - 1  # a request has no destination field
        row = target * s.m.channels + channel_of(bits.address_of(lo, s.b), s.m)
        if queues.room(s.inbound, row) < 1:
            return
        queues.push(s.inbound, row, lo, hi)
        s.link.arrived[target] += 1
        queues.pop_timed(flight, source)


@inlined
def fills_cycle(s, d, now):
    """Reads of the local stream that came back."""
    fills = s.mem.fills
    while fills.count[d] > 0 and fills.time[d, fills.head[d]] <= now:
        tag = fills.lo[d, fills.head[d]]
        if s.phase == memory.GEMM:
            gemms.fill(s.gemm, s.llc, d, tag, now, s.shape)
        else:
            ring_kernel.ring_returned(s.ring, s.ring_shape, d, tag, now)
        queues.pop_timed(fills, d)


@compiled
def dispatch_cycle(s, d, inp, out, now):
    """Next workgroup to a free compute unit, if the hardware's window lets it start."""
    p = s.ports
    inp[p.dispatch_valid] = 0
    wg = s.gemm.next_wg[d]
    if wg >= s.shape.workgroups:
        return
    u = gemms.waiting_unit(s.gemm, d)
    if u < 0:
        return
    inp[p.dispatch_valid] = 1
    inp[p.dispatch] = wg | (s.plan.tiles[d, wg] << p.tiles_lsb)
    if out[p.dispatch_ready]:
        gemms.start(s.gemm, s.shape, d, u, wg, now)
    else:
        s.control.blocked_cycles[d] += 1
        for unit in range(s.gemm.state.shape[1]):
            if s.gemm.state[d, unit] == gemms.IDLE:
                gemms.enter(s.gemm, d, unit, gemms.BLOCKED, now)


@compiled
def fused_cycle(s, d, inp, out, now):
    """Everything of device d in memory cycle `now` except the RTL's clock edge. `out` is what the RTL shows now."""
    s = by_reference(s)
    p = s.ports
    channels_cycle(s, d, inp, out, now)
    fills_cycle(s, d, now)
    if s.phase == memory.GEMM:
        egress_cycle(s, d, inp, out, now)
        dispatch_cycle(s, d, inp, out, now)
        gemms.gemm_cycle(s.gemm, s.shape, s.plan, s.llc, s.compute, s.stores_out, s.store_limit, s.m, s.b, d, now)
        inp[p.producer_active] = s.gemm.finished[d] < s.shape.workgroups
        latency = s.control.heads.shape[1]
        s.control.heads[d, now % latency] = out[p.head]
        inp[p.downstream_head] = s.control.heads[s.control.downstream[d], (now + 1) % latency]
        ready = 0 if chance(s.control, 1) else 1
        inp[p.event_ready] = ready
        if ready and out[p.event_valid]:
            lo, hi = out[p.event], out[p.event + 1]
            wg = bits.get(lo, hi, p.event_wg_lsb, s.b.wg_bits)
            wf = bits.get(lo, hi, p.event_wf_lsb, s.b.wf_bits)
            s.control.events[d, wg, wf] += 1
            s.control.event_count[d] += 1
            s.control.rs_end[d] = now
    else:
        inp[p.dispatch_valid] = 0
        inp[p.producer_active] = 0
        inp[p.event_ready] = 1
        ring_kernel.ring_cycle(s.ring, s.ring_shape, s.link, s.link_shape, s.compute, s.m, s.b, d, now)
    deliver(s, d, s.control.downstream[d], now)


@compiled
def finished(s):
    """Whether all that was to happen has happened and nothing is under way any more."""
    for d in range(len(s.control.downstream)):
        if s.phase == memory.GEMM:
            if s.gemm.finished[d] < s.shape.workgroups or s.control.event_count[d] < s.expected_events[d]:
                return False
            if s.shape.cached_output and s.control.flushed[d] < s.llc.tag.shape[1]:
                return False
        elif s.ring.step[d] < s.ring_shape.devices:
            return False
        if s.link.flight.count[d] or s.stores_out.count[d] or s.mem.dma_returns.count[d] or s.mem.fills.count[d]:
            return False
        for c in range(s.m.channels):
            row = d * s.m.channels + c
            if s.hbm.occupancy[row] or s.compute.count[row] or s.inbound.count[row]:
                return False
    return True


@compiled
def stuck(s, now):
    """Whether nothing has moved for IDLE_LIMIT cycles."""
    total = 0
    for d in range(len(s.control.downstream)):
        total += s.link.sent_bytes[d] + s.control.event_count[d] + s.gemm.next_wg[d]
        for purpose in range(s.mem.total_bytes.shape[1]):
            total += s.mem.total_bytes[d, purpose]
        for u in range(s.gemm.state.shape[1]):
            total += s.gemm.computed[d, u] + s.gemm.loaded[d, u]
    if total != s.control.progress[0]:
        s.control.progress[0] = total
        s.control.progress[1] = now
    return now - s.control.progress[1] > IDLE_LIMIT


@compiled
def outcome(s, now):
    """RUNNING, DONE or STUCK; looked at every 64 cycles at most."""
    s = by_reference(s)
    if now & 63 == 0:
        if finished(s):
            return DONE
        if now & 16383 == 0 and stuck(s, now):
            return STUCK
    return RUNNING


@compiled
def lockstep(s, step, handles, inputs, outputs, now, cycles):
    """At most `cycles` memory cycles of all devices with compiled RTL; (next cycle, outcome)."""
    s = by_reference(s)
    end = now + cycles
    while now < end:
        for d in range(len(handles)):
            fused_cycle(s, d, inputs[d], outputs[d], now)
            step(handles[d])
        now += 1
        state = outcome(s, now)
        if state != RUNNING:
            return now, state
    return now, RUNNING


@compiled
def baseline(s, now, cycles):
    """An unfused GEMM without RTL, on the same models: device 0, every device is alike."""
    s = by_reference(s)
    end = now + cycles
    while now < end:
        memory.direct_cycle(s.mem, s.hbm, s.compute, s.inbound, s.b, s.m, 0, now, s.phase, s.fill_cycles)
        fills_cycle(s, 0, now)
        wg = s.gemm.next_wg[0]
        if wg < s.shape.workgroups:
            u = gemms.waiting_unit(s.gemm, 0)
            if u >= 0:
                gemms.start(s.gemm, s.shape, 0, u, wg, now)
        gemms.gemm_cycle(s.gemm, s.shape, s.plan, s.llc, s.compute, s.stores_out, s.store_limit, s.m, s.b, 0, now)
        if s.gemm.finished[0] == s.shape.workgroups:  # the collective reads what the cache still holds
            s.control.flushed[0] = gemms.flush(s.llc, s.compute, s.m, s.b, 0, s.control.flushed[0], s.shape)
        now += 1
        state = outcome(s, now)
        if state != RUNNING:
            return now, state
    return now, RUNNING
