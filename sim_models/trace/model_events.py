"""What the models did in a cycle, as events: compute units, DRAM, arrivals; and the lockstep loop that records."""

import numpy as np

from .. import bits, lockstep
from .. import gemm as gemms
from ..by_reference import by_reference
from ..jit import compiled, inlined, unlocked
from ..queues import DEPTH
from .recorder import put, put_request, wanted
from .rtl_events import observe_ports, observe_rtl
from .schema import NO_STREAM, NO_WAVEFRONT, Kind

DISPATCH, STAGE, DRAM, SERVE, ARRIVE = (
    int(kind) for kind in (Kind.DISPATCH, Kind.STAGE, Kind.DRAM, Kind.SERVE, Kind.ARRIVE))
ACTIVATE, PRECHARGE, REFRESH = 1, 2, 3  # schema.DRAM_OPS


@compiled
def observe_models(s, r, d, now):
    s = by_reference(s)
    r = by_reference(r)
    for c in range(s.m.channels):
        if r.channels[c]:
            row = d * s.m.channels + c
            if s.mem.retired[row] and r.kinds[SERVE]:
                put_request(s.b, r, SERVE, now, d, c, s.mem.retired_lo[row], s.mem.retired_hi[row], NO_STREAM, 0,
                            s.hbm.occupancy[row], -1, -1, 0)
            if r.kinds[DRAM] and r.all_wgs:
                row_commands(s, r, d, c, row, now)
    for u in range(s.gemm.state.shape[1]):
        if s.gemm.wg[d, u] != r.wg[d, u] or s.gemm.state[d, u] != r.state[d, u]:
            units_changed(s, r, d, u, now)
    if s.link.flight.head[d] != r.flight_head[d]:
        arrivals(s, r, d, now)


@inlined
def row_commands(s, r, d, c, row, now):
    channel = s.hbm.channels[row]
    changed = channel.open ^ r.open_banks[row]
    if channel.refreshes != r.refreshes[row]:
        put(r, DRAM, now, d, c, -1, NO_WAVEFRONT, 0, 0, REFRESH, NO_STREAM, 0, 0, 0, -1, -1, -1, 0)
        r.refreshes[row] = channel.refreshes
    elif changed:
        bank = gemms.bit_number(np.uint64(changed & -changed))
        opened = (channel.open >> bank) & 1
        put(r, DRAM, now, d, c, -1, NO_WAVEFRONT, 0, 0, ACTIVATE if opened else PRECHARGE, NO_STREAM, 0, 0, 0, bank,
            channel.open_row[bank] if opened else -1, -1, 0)
    r.open_banks[row] = channel.open


@compiled
def units_changed(s, r, d, u, now):
    s = by_reference(s)
    r = by_reference(r)
    wg, before = s.gemm.wg[d, u], r.wg[d, u]
    if wg != before and wg >= 0 and wanted(r, DISPATCH, wg):
        put(r, DISPATCH, now, d, u, wg, NO_WAVEFRONT, 0, 0, 0, NO_STREAM, 0, s.plan.c_base[d, wg], 0,
            s.plan.tiles[d, wg], -1, -1, 0)
    if s.gemm.state[d, u] != r.state[d, u] and wanted(r, STAGE, max(wg, before)):
        put(r, STAGE, now, d, u, max(wg, before), NO_WAVEFRONT, 0, 0, 0, NO_STREAM, 0, 0, 0, r.state[d, u],
            s.gemm.state[d, u], -1, 0)
    r.wg[d, u] = wg
    r.state[d, u] = s.gemm.state[d, u]


@compiled
def arrivals(s, r, d, now):
    """Packets of device d that were delivered in this cycle: they are still in the ring buffer."""
    s = by_reference(s)
    r = by_reference(r)
    flight, target = s.link.flight, s.control.downstream[d]
    at, mask = r.flight_head[d], flight.lo.shape[1] - 1
    while at != flight.head[d]:
        lo, hi = flight.lo[d, at], flight.hi[d, at]
        hi &= (1 << (s.b.device - 64)) - 1
        channel = lockstep.channel_of(bits.address_of(lo, s.b), s.m)
        if r.kinds[ARRIVE] and r.channels[channel]:
            put_request(s.b, r, ARRIVE, now, target, channel, lo, hi, NO_STREAM, 0, -1,
                        s.inbound.count[target * s.m.channels + channel] - 1, -1, 0)
        at = (at + 1) & mask
    r.flight_head[d] = at


@unlocked
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
            backlog = max(0, int(s.link.free_time[d]) - now)
            observe_ports(s.ports, s.b, r, d, inputs[d], outputs[d], backlog, now)
            observe_models(s, r, d, now)
            step(handles[d])
            observe_rtl(s.b, r, d, outputs[d], s.ports.dram, now)
        now += 1
        state = lockstep.outcome(s, now)
        if state != lockstep.RUNNING:
            return now, state
    return now, lockstep.RUNNING
