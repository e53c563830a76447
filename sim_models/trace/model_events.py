"""Actions of the models in a cycle, as events: compute units, DRAM, arrivals."""

from typing import TYPE_CHECKING

import numpy as np

from ..agents.units.stores import first_store
from ..compiled.by_reference import by_reference
from ..compiled.jit import compiled, inlined
from ..fabric import bits
from ..fabric.memory_map import channel_of
from ..hbm.bits import lowest_bit
from .recorder import put, put_request, wanted
from .schema import NO_STREAM, NO_WAVEFRONT, Kind

if TYPE_CHECKING:
    from ..agents.compute_units import ComputeUnits
    from ..engine.state import Sim
    from .recorder import Recorder

DISPATCH, STAGE, DRAM, SERVE, ARRIVE = (
    int(kind) for kind in (Kind.DISPATCH, Kind.STAGE, Kind.DRAM, Kind.SERVE, Kind.ARRIVE))
ACTIVATE, PRECHARGE, REFRESH = 1, 2, 3  # schema.DRAM_OPS


@compiled
def observe_models(s: "Sim", kernel: "ComputeUnits", r: "Recorder", d: int, now: int) -> None:
    s = by_reference(s)
    kernel = by_reference(kernel)
    r = by_reference(r)
    for c in range(s.m.channels):
        if r.channels[c]:
            row = d * s.m.channels + c
            if s.mem.retired[row] and r.kinds[SERVE]:
                put_request(s.b, r, SERVE, now, d, c, s.mem.retired_lo[row], s.mem.retired_hi[row], NO_STREAM, 0,
                            s.hbm.occupancy[row], -1, -1, 0)
            if r.kinds[DRAM] and r.all_wgs:
                row_commands(s, r, d, c, row, now)
    for u in range(kernel.state.state.shape[1]):
        if kernel.state.wg[d, u] != r.wg[d, u] or kernel.state.state[d, u] != r.state[d, u]:
            units_changed(kernel, r, d, u, now)
    for i in range(s.network.first_in[d], s.network.first_in[d + 1]):
        port = s.network.ports_in[i]
        if s.network.flight.head[port] != r.flight_head[port]:
            arrivals(s, r, d, port, now)


@inlined
def row_commands(s: "Sim", r: "Recorder", d: int, c: int, row: int, now: int) -> None:
    channel = s.hbm.channels[row]
    changed = channel.open ^ r.open_banks[row]
    if channel.refreshes != r.refreshes[row]:
        put(r, DRAM, now, d, c, -1, NO_WAVEFRONT, 0, 0, REFRESH, NO_STREAM, 0, 0, 0, -1, -1, -1, 0)
        r.refreshes[row] = channel.refreshes
    elif changed:
        bank = lowest_bit(np.int64(changed))
        opened = (channel.open >> bank) & 1
        put(r, DRAM, now, d, c, -1, NO_WAVEFRONT, 0, 0, ACTIVATE if opened else PRECHARGE, NO_STREAM, 0, 0, 0, bank,
            channel.open_row[bank] if opened else -1, -1, 0)
    r.open_banks[row] = channel.open


@compiled
def units_changed(kernel: "ComputeUnits", r: "Recorder", d: int, u: int, now: int) -> None:
    kernel = by_reference(kernel)
    r = by_reference(r)
    wg, before = kernel.state.wg[d, u], r.wg[d, u]
    name, part = np.int64(-1), np.int64(-1)
    if max(wg, before) >= 0:  # a place keeps the group of the workgroup that has left it
        group = kernel.state.group[d, u]
        at = group - kernel.work.first_group[d]
        name, part = r.names[d, at], r.parts[d, at]
        if wg != before and wg >= 0 and wanted(r, DISPATCH, name):
            put(r, DISPATCH, now, d, u, name, NO_WAVEFRONT, 0, 0, 0, NO_STREAM, 0,
                first_store(kernel, group, kernel.state.member[d, u]), 0, kernel.work.groups[group].tiles, -1, part, 0)
    if kernel.state.state[d, u] != r.state[d, u] and wanted(r, STAGE, name):
        put(r, STAGE, now, d, u, name, NO_WAVEFRONT, 0, 0, 0, NO_STREAM, 0, 0, 0, r.state[d, u],
            kernel.state.state[d, u], part, 0)
    r.wg[d, u] = wg
    r.state[d, u] = kernel.state.state[d, u]


@compiled
def arrivals(s: "Sim", r: "Recorder", d: int, port: int, now: int) -> None:
    """Record packets that device d took from a port's link in this cycle: they are still in the ring buffer."""
    s = by_reference(s)
    r = by_reference(r)
    flight = s.network.flight
    mask = flight.lo.shape[1] - 1
    for packet in range(r.flight_head[port], flight.head[port]):
        at = packet & mask
        lo, hi = flight.lo[port, at], bits.request_of(flight.hi[port, at], s.b)
        channel = channel_of(bits.address_of(lo, s.b), s.m)
        if r.kinds[ARRIVE] and r.channels[channel]:
            put_request(s.b, r, ARRIVE, now, d, channel, lo, hi, NO_STREAM, 0, -1,
                        s.inbound.count[d * s.m.channels + channel] - 1, -1, 0)
    r.flight_head[port] = flight.head[port]
