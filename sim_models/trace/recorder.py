"""The recorder: looks at the models, at the ports and at the traced RTL's inner signals in every cycle of a window and
writes events. It changes nothing, so a recorded run gives the results of any other.
"""

from typing import NamedTuple

import numpy as np

from .. import bits, lockstep
from .. import gemm as gemms
from ..by_reference import by_reference
from ..cosim.traced import Probes
from ..jit import compiled, inlined
from ..memory import GEMM
from ..queues import DEPTH
from .schema import ALLOCATED, COMPLETE, EVENT, EXCEEDS, NO_STREAM, REFUSED, Kind, Reason

CAPACITY = 1 << 18  #: events between two looks of Python's
NONE = 255  #: no wavefront

(DISPATCH, STAGE, BLOCKED, ENTER, DECIDE, DRAM, SERVE, REPORT, UPDATE, FULL, TRIGGER, READY, ISSUE, LINE, WALKED,
 PACKET, ARRIVE, COMPLETION, WAITING) = (int(kind) for kind in Kind)
(R_IDLE, R_ALONE, R_TURN, R_COMPUTE_FIRST, R_BELOW, R_NO_THRESHOLD, R_STARVED, R_DRAIN, R_OUTPUT_BUSY, R_GUARD,
 R_COALESCER, R_OCCUPANCY, R_CLEARING, R_RING_LATE) = (int(reason) for reason in Reason)
COMPUTE_FIRST, MCA, RING_AWARE = 1, 2, 3  # schema.POLICIES
CONDITION_BITS = (1 << 22) - 1
THRESHOLD_NONE = 127


class Recorder(NamedTuple):
    """Buffer, filters and what was seen last."""

    events: np.ndarray  # EVENT[CAPACITY]
    count: np.ndarray  # int64 [2]: events in the buffer; events that a full buffer has cost (none, by construction)
    kinds: np.ndarray  # bool [256]
    channels: np.ndarray  # bool [channel]
    wgs: np.ndarray  # bool [workgroup id]
    packet_wgs: np.ndarray  # bool [workgroup id at the destination]
    all_wgs: bool
    probes: Probes
    state: np.ndarray  # int64 [device, unit]: compute units
    wg: np.ndarray
    flight_head: np.ndarray  # int64 [device]
    inbound_count: np.ndarray  # int64 [row]
    decision: np.ndarray  # int64 [row]
    waits: np.ndarray  # int64 [device, bank]
    blocked: np.ndarray  # int64 [device]
    open_banks: np.ndarray  # int64 [row]
    refreshes: np.ndarray  # int64 [row]


def make_recorder(sim: lockstep.Sim, probes: Probes, kinds, channels, wgs, packet_wgs) -> Recorder:
    """`kinds`, `channels`, `wgs`, `packet_wgs`: what to record, None for all."""
    devices, units = sim.gemm.state.shape
    rows = devices * sim.m.channels

    def chosen(names, size):
        mask = np.full(size, names is None)
        if names is not None:
            mask[list(names)] = True
        return mask
    ids = 1 << sim.b.wg_bits
    return Recorder(
        np.zeros(CAPACITY, EVENT), np.zeros(2, np.int64), chosen(kinds, 256), chosen(channels, sim.m.channels),
        chosen(wgs, ids), chosen(packet_wgs, ids), wgs is None, probes,
        np.zeros((devices, units), np.int64), np.full((devices, units), -1, np.int64), np.zeros(devices, np.int64),
        np.zeros(rows, np.int64), np.full(rows, -1, np.int64), np.zeros((devices, len(probes.bank)), np.int64),
        np.zeros(devices, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def look(sim: lockstep.Sim, r: Recorder) -> None:
    """Remember the models' state, so that the first recorded cycle shows changes only."""
    r.state[:], r.wg[:] = sim.gemm.state, sim.gemm.wg
    r.flight_head[:], r.inbound_count[:] = sim.link.flight.head, sim.inbound.count
    r.open_banks[:], r.refreshes[:] = sim.hbm.channels["open"], sim.hbm.channels["refreshes"]
    r.decision[:], r.waits[:], r.blocked[:] = -1, 0, 0


@inlined
def put(r, kind, now, d, unit, wg, wf, region, source, op, stream, reason, address, amount, a, b, c, flags):
    at = r.count[0]
    if at < len(r.events):
        e = r.events[at]
        e.cycle = now
        e.address = np.uint64(address)
        e.wg = wg
        e.amount = amount
        e.a = a
        e.b = b
        e.c = c
        e.flags = flags
        e.unit = unit
        e.kind = kind
        e.device = d
        e.wf = wf
        e.region = region
        e.source = source
        e.op = op
        e.stream = stream
        e.reason = reason
        r.count[0] = at + 1
    else:
        r.count[1] += 1


@inlined
def wanted(r, kind, wg):
    return r.kinds[kind] and (r.all_wgs or (wg >= 0 and r.wgs[wg]))


@compiled
def put_request(s, r, kind, now, d, unit, lo, hi, stream, reason, a, b, c, flags):
    """An event about a request; ordinary accesses have no workgroup."""
    r = by_reference(r)
    region = bits.get(lo, hi, s.b.region, s.b.region_bits)
    wg = bits.get(lo, hi, s.b.wg, s.b.wg_bits) if region else np.int64(-1)
    if kind == PACKET:
        if not (r.all_wgs or r.packet_wgs[wg]):
            return
    elif not (r.all_wgs or (wg >= 0 and r.wgs[wg])):
        return
    wf = bits.get(lo, hi, s.b.wf, s.b.wf_bits) if region else np.int64(NONE)
    put(r, kind, now, d, unit, wg, wf, region, bits.get(lo, hi, s.b.source, 2), bits.get(lo, hi, s.b.op, 2), stream,
        reason, bits.address_of(lo, s.b), bits.get(lo, hi, s.b.bytes, s.b.op - s.b.bytes), a, b, c, flags)


@compiled
def observe(s, r, d, inp, out, now):
    """Between the models and the clock edge: the ports' handshakes of this cycle, and what the models did in it."""
    s = by_reference(s)
    r = by_reference(r)
    p = s.ports
    for c in range(s.m.channels):
        if not r.channels[c]:
            continue
        row = d * s.m.channels + c
        if r.kinds[ENTER]:
            if inp[p.compute_valid[c]] and out[p.compute_ready[c]]:
                put_request(s, r, ENTER, now, d, c, inp[p.compute[c]], inp[p.compute[c] + 1], 0, 0, -1,
                            s.compute.count[row], -1, 0)
            if inp[p.inbound_valid[c]] and out[p.inbound_ready[c]]:
                put_request(s, r, ENTER, now, d, c, inp[p.inbound[c]], inp[p.inbound[c] + 1], 1, 0, -1,
                            s.inbound.count[row], -1, 0)
        if s.mem.retired[row] and r.kinds[SERVE]:
            put_request(s, r, SERVE, now, d, c, s.mem.retired_lo[row], s.mem.retired_hi[row], NO_STREAM, 0,
                        s.hbm.occupancy[row], -1, -1, 0)
        if r.kinds[DRAM] and r.all_wgs:
            channel = s.hbm.channels[row]
            changed = channel.open ^ r.open_banks[row]
            if channel.refreshes != r.refreshes[row]:
                put(r, DRAM, now, d, c, -1, NONE, 0, 0, 3, NO_STREAM, 0, 0, 0, -1, -1, -1, 0)
            elif changed:
                bank = gemms.bit_number(np.uint64(changed & -changed))
                opened = (channel.open >> bank) & 1
                put(r, DRAM, now, d, c, -1, NONE, 0, 0, 1 if opened else 2, NO_STREAM, 0, 0, 0, bank,
                    channel.open_row[bank] if opened else -1, -1, 0)
            r.open_banks[row] = channel.open
            r.refreshes[row] = channel.refreshes
    if s.phase == GEMM:
        for lane in range(len(p.packet)):
            if r.kinds[PACKET] and out[p.packet_valid[lane]] and inp[p.packet_ready[lane]]:
                lo, hi = out[p.packet[lane]], out[p.packet[lane] + 1]
                put_request(s, r, PACKET, now, d, lane, lo, hi, NO_STREAM, 0,
                            bits.get(lo, hi, s.b.device, s.b.device_bits),
                            max(np.int64(0), np.int64(s.link.free_time[d]) - now), -1, 0)
        if r.kinds[COMPLETION] and out[p.event_valid] and inp[p.event_ready]:
            lo, hi = out[p.event], out[p.event + 1]
            wg = bits.get(lo, hi, p.event_wg_lsb, s.b.wg_bits)
            if wanted(r, COMPLETION, wg):
                put(r, COMPLETION, now, d, 0, wg, bits.get(lo, hi, p.event_wf_lsb, s.b.wf_bits), 0, 0, 0, NO_STREAM, 0,
                    bits.get(lo, hi, 0, s.b.address_bits), 0, -1, -1, -1, 0)
        blocked = 1 if inp[p.dispatch_valid] and not out[p.dispatch_ready] else 0
        wg = s.gemm.next_wg[d]
        if blocked and not r.blocked[d] and wanted(r, BLOCKED, wg):
            put(r, BLOCKED, now, d, 0, wg, NONE, 0, 0, 0, NO_STREAM, 0, 0, 0, out[p.head], inp[p.downstream_head], -1,
                0)
        r.blocked[d] = blocked
        for u in range(s.gemm.state.shape[1]):
            if s.gemm.wg[d, u] != r.wg[d, u] or s.gemm.state[d, u] != r.state[d, u]:
                units_changed(s, r, d, u, now)
    flight = s.link.flight
    if flight.head[d] != r.flight_head[d]:
        arrivals(s, r, d, now)


@compiled
def units_changed(s, r, d, u, now):
    r = by_reference(r)
    wg, before = s.gemm.wg[d, u], r.wg[d, u]
    if wg != before and wg >= 0 and wanted(r, DISPATCH, wg):
        put(r, DISPATCH, now, d, u, wg, NONE, 0, 0, 0, NO_STREAM, 0, s.plan.c_base[d, wg], 0, s.plan.tiles[d, wg], -1,
            -1, 0)
    if s.gemm.state[d, u] != r.state[d, u] and wanted(r, STAGE, max(wg, before)):
        put(r, STAGE, now, d, u, max(wg, before), NONE, 0, 0, 0, NO_STREAM, 0, 0, 0, r.state[d, u], s.gemm.state[d, u],
            -1, 0)
    r.wg[d, u] = wg
    r.state[d, u] = s.gemm.state[d, u]


@compiled
def arrivals(s, r, d, now):
    """Packets of device d that were delivered in this cycle: they are still in the ring buffer."""
    r = by_reference(r)
    flight, target = s.link.flight, s.control.downstream[d]
    at, mask = r.flight_head[d], flight.lo.shape[1] - 1
    while at != flight.head[d]:
        lo, hi = flight.lo[d, at], flight.hi[d, at]
        hi &= (1 << (s.b.device - 64)) - 1
        channel = lockstep.channel_of(bits.address_of(lo, s.b), s.m)
        if r.kinds[ARRIVE] and r.channels[channel]:
            put_request(s, r, ARRIVE, now, target, channel, lo, hi, NO_STREAM, 0, -1,
                        s.inbound.count[target * s.m.channels + channel] - 1, -1, 0)
        at = (at + 1) & mask
    r.flight_head[d] = at


@inlined
def condition(word, bit):
    return (word >> bit) & 1


@inlined
def reason_of(word, occupancy, threshold):
    """(stream, reason) of an arbiter's word; bits as in `schema.CONDITIONS`, from bit 2."""
    policy = word & 3
    compute, communication = condition(word, 3), condition(word, 4)
    starved, drain, ring_late = condition(word, 9), condition(word, 2), policy == RING_AWARE and condition(word, 21)
    stream = NO_STREAM
    if condition(word, 7):
        stream = 0
        if not communication:
            reason = R_ALONE
        elif ring_late:
            reason = R_RING_LATE
        elif policy == RING_AWARE or policy == MCA or policy == COMPUTE_FIRST:
            reason = R_COMPUTE_FIRST
        else:
            reason = R_TURN
    elif condition(word, 8):
        stream = 2 if condition(word, 15) else 1
        if policy >= MCA and starved:
            reason = R_STARVED
        elif policy >= MCA and drain:
            reason = R_DRAIN
        elif ring_late:
            reason = R_RING_LATE if compute else R_ALONE
        elif policy >= MCA:
            reason = R_NO_THRESHOLD if threshold == THRESHOLD_NONE else R_BELOW
        else:
            reason = R_TURN if compute else R_ALONE
    elif not (condition(word, 11) or condition(word, 12) or condition(word, 13)):
        reason = R_IDLE
    elif not condition(word, 18):
        reason = R_CLEARING
    elif not condition(word, 6):
        reason = R_OUTPUT_BUSY
    elif communication:
        reason = R_OCCUPANCY
    elif condition(word, 13) and not condition(word, 16):
        reason = R_GUARD
    else:
        reason = R_COALESCER
    return stream, reason


@compiled
def observe_rtl(b, r, channels, d, out, dram, now):
    """Behind the clock edge: what the RTL decided in cycle `now`. `dram`: first words of the DRAM commands."""
    r = by_reference(r)
    p = r.probes
    for c in range(channels):
        if not r.channels[c]:
            continue
        word = out[p.channel[c]]
        row = d * channels + c
        if r.kinds[DECIDE]:
            occupancy, threshold = (word >> 24) & 255, (word >> 32) & 127
            stream, reason = reason_of(word, occupancy, threshold)
            # All but the starvation counter and what is no business of the arbiter's.
            seen = 0 if reason == R_IDLE else word & ((np.int64(1) << 40) - 1) & ~(np.int64(1) << 20)
            if stream != NO_STREAM:
                decision(b, r, now, d, c, word, out[dram[c]], out[dram[c] + 1], stream, reason)
            elif seen != r.decision[row] and r.all_wgs:
                put(r, DECIDE, now, d, c, -1, NONE, 0, 0, 0, NO_STREAM, reason, 0, 0, occupancy, threshold,
                    (word >> 40) & 65535, word & CONDITION_BITS)
            r.decision[row] = seen
        if condition(word, 20) and r.kinds[REPORT]:
            at = p.channel[c] + 1
            lo, hi, f = out[at], out[at + 1], p.update
            wg = bits.get(lo, hi, f.wg, b.wg_bits)
            if wanted(r, REPORT, wg):
                put(r, REPORT, now, d, c, wg, bits.get(lo, hi, f.wf, b.wf_bits),
                    bits.get(lo, hi, f.region, b.region_bits), bits.get(lo, hi, f.source, 2), 0, NO_STREAM, 0,
                    bits.get(lo, hi, f.address, p.address_bits), bits.get(lo, hi, f.amount, f.amount_bits), -1, -1, -1,
                    0)
    for bank in range(len(p.bank)):
        word = out[p.bank[bank]]
        if condition(word, 0) or condition(word, 1):
            observe_bank(b, r, d, bank, out, now)
        elif not condition(word, 1):
            r.waits[d, bank] = 0
    if out[p.merge] & 3 == 3:
        observe_tile(b, r, TRIGGER, now, d, 0, out[p.merge + 1], out[p.merge + 2], condition(out[p.merge], 2))
    if out[p.table] & 1:
        observe_tile(b, r, READY, now, d, 0, out[p.table + 1], out[p.table + 2], (out[p.table] >> 8) & 0xFFFF)
    for e in range(len(p.engine)):
        word = out[p.engine[e]]
        if word & 1:
            observe_tile(b, r, ISSUE, now, d, e, out[p.table + 3], out[p.table + 4], (out[p.table] >> 8) & 0xFFFF)
        if condition(word, 3) and r.kinds[LINE]:
            line_event(b, r, now, d, e, out[p.engine[e] + 1], out[p.engine[e] + 2])
        if condition(word, 1):
            ids = word >> 8
            wg = (ids >> b.wf_bits) & ((1 << b.wg_bits) - 1)
            if wanted(r, WALKED, wg):
                put(r, WALKED, now, d, e, wg, ids & ((1 << b.wf_bits) - 1),
                    (ids >> (b.wf_bits + b.wg_bits)) & ((1 << b.region_bits) - 1), 0, 0, NO_STREAM, 0, 0, 0, -1, -1, -1,
                    0)


@compiled
def decision(b, r, now, d, c, word, lo, hi, stream, reason):
    r = by_reference(r)
    hi &= (1 << (b.dram_communication - 64)) - 1
    region = bits.get(lo, hi, b.region, b.region_bits)
    wg = bits.get(lo, hi, b.wg, b.wg_bits) if region else np.int64(-1)
    if not wanted(r, DECIDE, wg):
        return
    put(r, DECIDE, now, d, c, wg, bits.get(lo, hi, b.wf, b.wf_bits) if region else np.int64(NONE), region,
        bits.get(lo, hi, b.source, 2), bits.get(lo, hi, b.op, 2), stream, reason, bits.address_of(lo, b),
        bits.get(lo, hi, b.bytes, b.op - b.bytes), (word >> 24) & 255, (word >> 32) & 127, (word >> 40) & 65535,
        word & CONDITION_BITS)


@compiled
def line_event(b, r, now, d, e, lo, hi):
    r = by_reference(r)
    wg = bits.get(lo, hi, b.wg, b.wg_bits)
    if wanted(r, LINE, wg):
        put(r, LINE, now, d, e, wg, bits.get(lo, hi, b.wf, b.wf_bits), bits.get(lo, hi, b.region, b.region_bits),
            bits.DMA, bits.READ, NO_STREAM, 0, bits.address_of(lo, b), bits.get(lo, hi, b.bytes, b.op - b.bytes), -1,
            -1, -1, 0)


@compiled
def observe_bank(b, r, d, bank, out, now):
    """A Tracker bank's second stage: an update is counted, or waits for a way."""
    r = by_reference(r)
    p = r.probes
    at = p.bank[bank]
    word, f = out[at], p.update
    lo, hi = out[at + 4], out[at + 5]
    wg, wf = bits.get(lo, hi, f.wg, b.wg_bits), bits.get(lo, hi, f.wf, b.wf_bits)
    source, amount = bits.get(lo, hi, f.source, 2), bits.get(lo, hi, f.amount, f.amount_bits)
    region = (word >> 32) & 255
    if condition(word, 1):
        if not r.waits[d, bank] and wanted(r, FULL, wg):
            put(r, FULL, now, d, bank, wg, wf, region, source, 0, NO_STREAM, 0,
                bits.get(lo, hi, f.address, p.address_bits), amount, -1, -1, -1, 0)
        r.waits[d, bank] = 1
        return
    r.waits[d, bank] = 0
    if not wanted(r, UPDATE, wg):
        return
    count, room = out[at + 1] & 0xFFFFFFFF, (out[at + 1] >> 32) & 0xFFFFFFFF
    written = np.uint64(out[at + 2])
    way = np.int64(gemms.bit_number(written)) if written else np.int64(-1)
    flags = 0
    if written and not condition(word, 3):
        flags |= ALLOCATED
    if condition(word, 4):
        flags |= COMPLETE
    if condition(word, 5):
        flags |= EXCEEDS
    if condition(word, 6):
        flags |= REFUSED
    put(r, UPDATE, now, d, bank, wg, wf, region, source, 0, NO_STREAM, 0, out[at + 3], amount, count + amount,
        (room + amount) & p.count_mask, way, flags)


@compiled
def observe_tile(b, r, kind, now, d, unit, lo, hi, a):
    r = by_reference(r)
    f = r.probes.trigger
    wg = bits.get(lo, hi, f.wg, b.wg_bits)
    if wanted(r, kind, wg):
        put(r, kind, now, d, unit, wg, bits.get(lo, hi, f.wf, b.wf_bits), bits.get(lo, hi, f.region, b.region_bits), 0,
            0, NO_STREAM, 0, bits.get(lo, hi, f.address, r.probes.address_bits), 0, a, -1, -1, 0)


@compiled
def recorded_lockstep(s, r, step, handles, inputs, outputs, now, cycles):
    """As `lockstep.lockstep`, with events; ends early when the buffer might not hold another cycle's."""
    s = by_reference(s)
    r = by_reference(r)
    end = now + cycles
    devices = len(handles)
    # Of each device: one event of most kinds per channel, unit, bank; a mirrored packet may become several.
    most = devices * (8 * s.m.channels + 2 * s.gemm.state.shape[1] + DEPTH * s.m.channels + 64)
    while now < end and r.count[0] + most < len(r.events):
        for d in range(devices):
            lockstep.fused_cycle(s, d, inputs[d], outputs[d], now)
            observe(s, r, d, inputs[d], outputs[d], now)
            step(handles[d])
            observe_rtl(s.b, r, s.m.channels, d, outputs[d], s.ports.dram, now)
        now += 1
        state = lockstep.outcome(s, now)
        if state != lockstep.RUNNING:
            return now, state
    return now, lockstep.RUNNING
