"""Actions of the RTL in a cycle, as events: the handshakes of its ports, and its traced inner signals.

The same functions serve the lockstep loop and the samples of a testbench.
"""

import numpy as np

from t3sim.base.compiled.by_reference import by_reference, lowest_bit
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.cosim.ports import Ports
from t3sim.cosim.traced import Probes, StructBits
from t3sim.gpu.engine.switch_hardware import SwitchHardware
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric.bits import RequestBits
from t3sim.gpu.fabric.network import plane_at
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.trace.recorder import Recorder, is_selected, new_event, packet_event, request_event
from t3sim.trace.schema import (
    ALLOCATED,
    COMPLETE,
    CONDITIONS,
    EXCEEDS,
    MERGES,
    NO_STREAM,
    POLICY_AT,
    REFUSED,
    STREAMS,
    Kind,
    Reason,
)

MERGE = int(Kind.MERGE)
COMPUTE, INBOUND, DMA = range(len(STREAMS))
(BLOCKED, ENTER, DECIDE, REPORT, UPDATE, FULL, TRIGGER, READY, ISSUE, LINE, WALKED, PACKET, COMPLETION, LATE) = (
    int(kind) for kind in (Kind.BLOCKED, Kind.ENTER, Kind.DECIDE, Kind.REPORT, Kind.UPDATE, Kind.FULL, Kind.TRIGGER,
                           Kind.READY, Kind.ISSUE, Kind.LINE, Kind.WALKED, Kind.PACKET, Kind.EVENT, Kind.LATE))
IDLE, OUTPUT_BUSY, GUARD, COALESCER, CLEARING, DECIDED = (int(reason) for reason in (
    Reason.IDLE, Reason.OUTPUT_BUSY, Reason.GUARD, Reason.COALESCER, Reason.CLEARING, Reason.DECIDED))
#: Bits of an arbiter's word, as `cosim.traced` lays it out.
(COMPUTE_ABLE, COMMUNICATION_ABLE, READY_FOR_IT, GRANT_COMPUTE, GRANT_COMMUNICATION, COMPUTE_THERE, INBOUND_THERE,
 DMA_THERE, TAKE_DMA, DMA_ABLE, GUARD_READY, UPDATE_REPORTED) = (CONDITIONS.index(name) for name in (
    "compute_able", "communication_able", "ready", "grant_compute", "grant_communication", "compute_there",
    "inbound_there", "dma_there", "take_dma", "dma_able", "guard_ready", "update_reported"))
CONDITION_BITS = (1 << len(CONDITIONS)) - 1
OCCUPANCY_LSB, THRESHOLD_LSB, ELAPSED_LSB, POLICY_LSB = 24, 32, 40, 56
#: All that says why, but for the starvation counter and what is no business of the arbiter's.
SEEN_BITS = ((1 << ELAPSED_LSB) - 1) & ~(1 << UPDATE_REPORTED) | 15 << POLICY_LSB


@compiled
def observe_ports(p: Ports, fields: RequestBits, r: Recorder, device: int, inp: np.ndarray, out: np.ndarray,
                  now: int) -> None:
    """Record, before the clock edge, what moves through the ports."""
    p = by_reference(p)
    r = by_reference(r)
    if r.kinds[ENTER]:
        for c in range(len(r.channels)):
            if r.channels[c]:
                if inp[p.compute_valid[c]] and out[p.compute_ready[c]]:
                    e = request_event(fields, r, ENTER, now, device, c, inp[p.compute[c]], inp[p.compute[c] + 1])
                    e.stream = COMPUTE
                if inp[p.inbound_valid[c]] and out[p.inbound_ready[c]]:
                    e = request_event(fields, r, ENTER, now, device, c, inp[p.inbound[c]], inp[p.inbound[c] + 1])
                    e.stream = INBOUND
    for lane in range(len(p.packet)):
        if r.kinds[PACKET] and out[p.packet_valid[lane]] and inp[p.packet_ready[lane]]:
            lo, hi = out[p.packet[lane]], out[p.packet[lane] + 1]
            to = bits.get(lo, hi, fields.device, fields.device_bits)
            port = r.port_to[device, to] if to < r.port_to.shape[1] else np.int64(-1)
            if port >= 0:
                port += plane_at(bits.address_of(lo, fields), r.planes)
            e = packet_event(fields, r, now, device, lane, lo, hi, to)
            e.b = r.backlog[port] if port >= 0 else 0
    if r.kinds[COMPLETION] and out[p.event_valid] and inp[p.event_ready]:
        lo, hi = out[p.event], out[p.event + 1]
        wg = bits.get(lo, hi, p.event_wg_lsb, fields.wg_bits)
        if is_selected(r, COMPLETION, wg):
            e = new_event(r, COMPLETION, now, device, 0)
            e.wg, e.wf = wg, bits.get(lo, hi, p.event_wf_lsb, fields.wf_bits)
            e.address = bits.get(lo, hi, 0, fields.address_bits)
    blocked = 1 if inp[p.start] and out[p.blocked] else 0
    if blocked and not r.blocked[device]:
        asks, there = r.names[device, r.asking[device]], out[p.peer_head[0]]
        for peer in range(1, r.peers[device]):
            there = min(there, out[p.peer_head[peer]])
        if is_selected(r, BLOCKED, asks):
            e = new_event(r, BLOCKED, now, device, 0)
            e.wg = asks
            e.a, e.b, e.c = out[p.head], there, r.parts[device, r.asking[device]]
    r.blocked[device] = blocked


@compiled
def observe_switch(fields: RequestBits, switch: SwitchHardware, r: Recorder, device: int, now: int) -> None:
    """Record what the switch's table of a GPU's port did in the cycle before."""
    switch = by_reference(switch)
    r = by_reference(r)
    if len(switch.happened) == 0:
        return
    for number in range(r.merged[device], switch.happened[device]):
        at = number & (switch.events.shape[1] - 1)
        word = switch.events[device, at, 0]
        if r.kinds[MERGE] and r.all_wgs:
            source = bits.get(word, np.int64(0), switch.ports.source, switch.ports.source_bits)
            e = new_event(r, MERGE, now, device, source)
            e.address = bits.get(word, np.int64(0), switch.ports.address, fields.address_bits)
            e.a = switch.events[device, at, 1]
            e.flags = word & ((1 << len(MERGES)) - 1)
    r.merged[device] = switch.happened[device]


@inlined
def condition(word: int, bit: int) -> int:
    return (word >> bit) & 1


@inlined
def reason_of(word: int) -> tuple[int, int]:
    """Return (stream, reason) of an arbiter's word; DECIDED is what its policy chose."""
    compute, communication = condition(word, COMPUTE_ABLE), condition(word, COMMUNICATION_ABLE)
    stream, reason = NO_STREAM, DECIDED
    if condition(word, GRANT_COMPUTE):
        stream = COMPUTE
    elif condition(word, GRANT_COMMUNICATION):
        stream = DMA if condition(word, TAKE_DMA) else INBOUND
    elif not (condition(word, COMPUTE_THERE) or condition(word, INBOUND_THERE) or condition(word, DMA_THERE)):
        reason = IDLE
    elif not condition(word, GUARD_READY):
        reason = CLEARING
    elif not condition(word, READY_FOR_IT):
        reason = OUTPUT_BUSY
    elif not compute and not communication:
        reason = GUARD if condition(word, DMA_THERE) and not condition(word, DMA_ABLE) else COALESCER
    return stream, reason


@compiled
def observe_rtl(fields: RequestBits, r: Recorder, device: int, out: np.ndarray, dram: np.ndarray, now: int) -> None:
    """Record, after the clock edge, what the RTL decided in cycle `now`. `dram`: first words of the DRAM commands."""
    r = by_reference(r)
    p = r.probes
    for c in range(len(p.channel)):
        if not r.channels[c]:
            continue
        word = out[p.channel[c]]
        row = device * len(p.channel) + c
        if r.kinds[DECIDE]:
            stream, reason = reason_of(word)
            seen = 0 if reason == IDLE else word & SEEN_BITS
            if stream != NO_STREAM:
                hi = bits.request_of(out[dram[c] + 1], fields)
                put_decision(request_event(fields, r, DECIDE, now, device, c, out[dram[c]], hi), word, stream, reason)
            elif seen != r.decision[row] and r.all_wgs:
                put_decision(new_event(r, DECIDE, now, device, c), word, stream, reason)
            r.decision[row] = seen
        if condition(word, UPDATE_REPORTED) and r.kinds[REPORT]:
            at = p.channel[c] + 1
            lo, hi, f = out[at], out[at + 1], p.update
            wg = bits.get(lo, hi, f.wg, fields.wg_bits)
            if is_selected(r, REPORT, wg):
                e = new_event(r, REPORT, now, device, c)
                put_update(fields, p, e, lo, hi)
    for bank in range(len(p.bank)):
        if out[p.bank[bank]] & 1:
            observe_bank(fields, r, device, bank, out, now)
    if p.merge >= 0 and out[p.merge] & 3 == 3:
        observe_tile(fields, r, TRIGGER, now, device, 0, (out[p.merge + 1], out[p.merge + 2]), (out[p.merge] >> 2) & 3)
    if p.table >= 0:
        observe_dma(fields, r, device, out, now)
    if p.ring >= 0 and out[p.ring] != r.late[device]:
        r.late[device] = out[p.ring]
        if r.kinds[LATE] and r.all_wgs:
            e = new_event(r, LATE, now, device, 0)
            e.a, e.b, e.c = out[p.ring], out[p.ring + 1], out[p.ring + 2]


@inlined
def put_decision(e: np.record, word: int, stream: int, reason: int) -> None:
    """Put what an arbiter saw and decided into its event."""
    e.stream, e.reason = stream, reason
    e.a = (word >> OCCUPANCY_LSB) & 255
    e.b = (word >> THRESHOLD_LSB) & NO_THRESHOLD
    e.c = (word >> ELAPSED_LSB) & 65535
    e.flags = (word & CONDITION_BITS) | ((word >> POLICY_LSB) & 15) << POLICY_AT


@inlined
def put_tile(fields: RequestBits, p: Probes, e: np.record, f: StructBits, lo: int, hi: int) -> None:
    """Put the ids and the address of an update or a trigger into its event."""
    e.wg = bits.get(lo, hi, f.wg, fields.wg_bits)
    e.wf = bits.get(lo, hi, f.wf, fields.wf_bits)
    e.region = bits.get(lo, hi, f.region, fields.region_bits)
    e.address = bits.get(lo, hi, f.address, p.address_bits)


@inlined
def put_update(fields: RequestBits, p: Probes, e: np.record, lo: int, hi: int) -> None:
    put_tile(fields, p, e, p.update, lo, hi)
    e.source = bits.get(lo, hi, p.update.source, 2)
    e.amount = bits.get(lo, hi, p.update.amount, p.update.amount_bits)


@compiled
def observe_dma(fields: RequestBits, r: Recorder, device: int, out: np.ndarray, now: int) -> None:
    """Record what the command table and the engines did."""
    r = by_reference(r)
    p = r.probes
    level = (out[p.table] >> 8) & 0xFFFF
    if out[p.table] & 1:
        observe_tile(fields, r, READY, now, device, 0, (out[p.table + 1], out[p.table + 2]), level)
    for engine in range(len(p.engine)):
        word = out[p.engine[engine]]
        if word & 1:
            observe_tile(fields, r, ISSUE, now, device, engine, (out[p.table + 3], out[p.table + 4]), level)
        if condition(word, 3) and r.kinds[LINE]:
            request_event(fields, r, LINE, now, device, engine, out[p.engine[engine] + 1], out[p.engine[engine] + 2])
        if condition(word, 1):
            ids = word >> 8
            wg = (ids >> fields.wf_bits) & ((1 << fields.wg_bits) - 1)
            if is_selected(r, WALKED, wg):
                e = new_event(r, WALKED, now, device, engine)
                e.wg, e.wf = wg, ids & ((1 << fields.wf_bits) - 1)
                e.region = (ids >> (fields.wf_bits + fields.wg_bits)) & ((1 << fields.region_bits) - 1)


@compiled
def observe_bank(fields: RequestBits, r: Recorder, device: int, bank: int, out: np.ndarray, now: int) -> None:
    """Record what a Tracker bank's second stage did.

    An update is counted, or refused: its set is full, its region foreign.
    """
    r = by_reference(r)
    p = r.probes
    at = p.bank[bank]
    word, f = out[at], p.update
    lo, hi = out[at + 4], out[at + 5]
    wg = bits.get(lo, hi, f.wg, fields.wg_bits)
    foreign = condition(word, 7)
    if condition(word, 1) or foreign:
        if is_selected(r, FULL, wg):
            e = new_event(r, FULL, now, device, bank)
            put_update(fields, p, e, lo, hi)
            e.a = 1 if foreign else 0
        return
    if not is_selected(r, UPDATE, wg):
        return
    amount = bits.get(lo, hi, f.amount, f.amount_bits)
    count, room = out[at + 1] & 0xFFFFFFFF, (out[at + 1] >> 32) & 0xFFFFFFFF
    written = np.uint64(out[at + 2])
    way = lowest_bit(np.int64(written)) if written else np.int64(-1)
    flags = 0
    if written and not condition(word, 3):
        flags |= ALLOCATED
    if condition(word, 6):
        flags = REFUSED  # against a threshold of 0 every update exceeds, which means nothing
    elif condition(word, 4):
        flags |= COMPLETE
    elif condition(word, 5):
        flags |= EXCEEDS
    e = new_event(r, UPDATE, now, device, bank)
    put_update(fields, p, e, lo, hi)
    e.region = (word >> 32) & 255
    e.address = out[at + 3]
    e.a, e.b, e.c = count + amount, (room + amount) & p.count_mask, way
    e.flags = flags


@compiled
def observe_tile(fields: RequestBits, r: Recorder, kind: int, now: int, device: int, unit: int,
                 words: tuple[int, int], a: int) -> None:
    """Record a trigger; `words`: its low and high one."""
    r = by_reference(r)
    lo, hi = words
    f = r.probes.trigger
    wg = bits.get(lo, hi, f.wg, fields.wg_bits)
    if is_selected(r, kind, wg):
        e = new_event(r, kind, now, device, unit)
        put_tile(fields, r.probes, e, f, lo, hi)
        e.a = a
