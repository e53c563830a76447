"""Events of the models: what compute units, DRAM and links do in a cycle, and what is in their queues at the end."""

from collections.abc import Sequence

import numpy as np

from t3sim.base.compiled.by_reference import by_reference, lowest_bit
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.agents.compute_units import ComputeUnits
from t3sim.gpu.agents.units.state import IDLE
from t3sim.gpu.agents.units.stores import first_store
from t3sim.gpu.engine.loop import is_for
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.bits import channel_of
from t3sim.gpu.state import Sim
from t3sim.trace.recorder import Recorder, is_selected, new_event, packet_event, request_event
from t3sim.trace.schema import EVENT, NO_STREAM, NO_WAVEFRONT, ON_LINKS, QUEUES, Kind

DISPATCH, STAGE, DRAM, SERVE, PACKET, ARRIVE = (
    int(kind) for kind in (Kind.DISPATCH, Kind.STAGE, Kind.DRAM, Kind.SERVE, Kind.PACKET, Kind.ARRIVE))
ACTIVATE, PRECHARGE, REFRESH = 1, 2, 3  # schema.DRAM_OPS


@compiled
def observe_models(s: Sim, kernel: ComputeUnits, r: Recorder, device: int, now: int) -> None:
    s = by_reference(s)
    kernel = by_reference(kernel)
    r = by_reference(r)
    for c in range(s.mem.m.channels):
        if r.channels[c]:
            row = device * s.mem.m.channels + c
            if s.mem.retired[row] and r.kinds[SERVE]:
                e = request_event(s.b, r, SERVE, now, device, c, s.mem.retired_lo[row], s.mem.retired_hi[row])
                e.a = s.mem.hbm.occupancy[row]
            if r.kinds[DRAM] and r.all_wgs:
                row_commands(s, r, device, c, row, now)
    for u in range(kernel.state.state.shape[1]):
        if kernel.state.wg[device, u] != r.wg[device, u] or kernel.state.state[device, u] != r.state[device, u]:
            units_changed(kernel, r, device, u, now)
    for i in range(s.network.first_in[device], s.network.first_in[device + 1]):
        port = s.network.ports_in[i]
        if s.network.flight.head[port] != r.flight_head[port]:
            arrivals(s, r, device, port, now)
    if r.units_send:
        for i in range(s.network.first_out[device], s.network.first_out[device + 1]):
            departures(s, r, device, s.network.ports_out[i], i - s.network.first_out[device], now)


@inlined
def row_commands(s: Sim, r: Recorder, device: int, c: int, row: int, now: int) -> None:
    channel = s.mem.hbm.channels[row]
    changed = channel.open ^ r.open_banks[row]
    if channel.refreshes != r.refreshes[row]:
        e = new_event(r, DRAM, now, device, c)
        e.op = REFRESH
        r.refreshes[row] = channel.refreshes
    elif changed:
        bank = lowest_bit(np.int64(changed))
        e = new_event(r, DRAM, now, device, c)
        e.a = bank
        if (channel.open >> bank) & 1:
            e.op = ACTIVATE
            e.b = channel.open_row[bank]
        else:
            e.op = PRECHARGE
    r.open_banks[row] = channel.open


@compiled
def units_changed(kernel: ComputeUnits, r: Recorder, device: int, u: int, now: int) -> None:
    kernel = by_reference(kernel)
    r = by_reference(r)
    wg, before = kernel.state.wg[device, u], r.wg[device, u]
    name, part = np.int64(-1), np.int64(-1)
    if max(wg, before) >= 0:  # a place keeps the group of the workgroup that has left it
        group = kernel.state.group[device, u]
        at = group - kernel.work.first_group[device]
        name, part = r.names[device, at] + kernel.state.member[device, u], r.parts[device, at]
        if min(wg, before) >= 0 and wg != before:  # it has drawn its next workgroup in the cycle in which one ended
            if is_selected(r, STAGE, r.called[device, u]):
                put_stage(r, now, device, u, r.called[device, u], part, IDLE)
            r.state[device, u] = IDLE
        if wg != before and wg >= 0 and is_selected(r, DISPATCH, name):
            e = new_event(r, DISPATCH, now, device, u)
            e.wg = name
            e.address = first_store(kernel, group, kernel.state.member[device, u])
            e.a, e.c = kernel.work.groups[group].tiles, part
    state = kernel.state.state[device, u]
    if state != r.state[device, u] and is_selected(r, STAGE, name):
        put_stage(r, now, device, u, name, part, state)
    r.wg[device, u], r.called[device, u], r.state[device, u] = wg, name, state


@inlined
def put_stage(r: Recorder, now: int, device: int, u: int, name: int, part: int, state: int) -> None:
    e = new_event(r, STAGE, now, device, u)
    e.wg = name
    e.a, e.b, e.c = r.state[device, u], state, part


@compiled
def arrivals(s: Sim, r: Recorder, device: int, port: int, now: int) -> None:
    """Record packets for device d that it took from a port's link in this cycle: they are still in the ring buffer.

    What it passes on does not arrive here.
    """
    s = by_reference(s)
    r = by_reference(r)
    flight = s.network.flight
    mask = flight.lo.shape[1] - 1
    for packet in range(r.flight_head[port], flight.head[port]):
        at = packet & mask
        lo, hi = flight.lo[port, at], bits.request_of(flight.hi[port, at], s.b)
        channel = channel_of(bits.address_of(lo, s.b), s.mem.m)
        if r.kinds[ARRIVE] and r.channels[channel] and is_for(
                s.network, links.destination_of(flight.hi[port, at], s.b), device):
            e = request_event(s.b, r, ARRIVE, now, device, channel, lo, hi)
            e.b = s.mem.inbound.count[device * s.mem.m.channels + channel] - 1
            if s.b.more_bits:
                e.c = 1 + bits.get(lo, flight.hi[port, at], s.b.more, s.b.more_bits)
    r.flight_head[port] = flight.head[port]


@compiled
def departures(s: Sim, r: Recorder, device: int, port: int, unit: int, now: int) -> None:
    """Record packets that device d's compute units put onto a port's link in this cycle, or that it passes on."""
    s = by_reference(s)
    r = by_reference(r)
    flight = s.network.flight
    for packet in range(r.flight_tail[port], flight.tail[port]):
        at = packet & (flight.lo.shape[1] - 1)
        lo, hi = flight.lo[port, at], flight.hi[port, at]
        if r.kinds[PACKET]:
            e = packet_event(s.b, r, now, device, unit, lo, bits.request_of(hi, s.b), links.destination_of(hi, s.b))
            e.b = max(0, flight.time[port, at] - s.network.latency_cycles[port] - now)
    r.flight_tail[port] = flight.tail[port]


def waiting(sim: Sim, now: int, senders: Sequence[np.ndarray]) -> np.ndarray:
    """List every request that is in a model's queue, oldest first per queue: EVENT[n] of kind WAITING.

    `senders`: each device's, as in `describe`.
    """
    channels, devices = sim.mem.m.channels, len(sim.control.downstream)
    by_channel = {row: divmod(row, channels) for row in range(devices * channels)}
    by_port = {int(port): (device, unit) for device in range(devices)
               for unit, port in enumerate(links.outgoing(sim.network, device))}
    switched = {port: (int(gpu), port) for port, gpu in enumerate(sim.network.target) if port not in by_port}
    flight = sim.network.flight
    queues = {"compute queue": (sim.mem.compute, by_channel), "inbound queue": (sim.mem.inbound, by_channel),
              "link": (flight, by_port), "link from the switch": (flight, switched),
              "stores for the link": (sim.stores_out, by_port),
              "DMA data for the link": (sim.mem.dma_returns, by_port)}
    waits = []
    for name, (queue, place) in queues.items():
        for row in place:
            slots = (queue.head[row] + np.arange(queue.count[row])) % queue.lo.shape[1]
            waits += [_waiting(sim.b, now, name, *place[row], i, queue.lo[row, at],
                               queue.hi[row, at]) for i, at in enumerate(slots)]
    for row in range(len(sim.mem.free)):
        slots = set(range(sim.mem.free.shape[1])) - set(sim.mem.free[row, :sim.mem.free_count[row]].tolist())
        waits += [_waiting(sim.b, now, "DRAM queue", *divmod(row, channels), i, sim.mem.lo[row, entry],
                           sim.mem.hi[row, entry]) for i, entry in enumerate(sorted(slots))]
    events = np.array(waits, EVENT)
    for device, name in enumerate(senders):
        mine = (events["device"] == device) & (events["b"] == QUEUES.index("stores for the link"))
        events["wg"][mine] = name[events["region"][mine], events["wg"][mine]]
    return events


def _waiting(b: bits.RequestBits, now: int, queue: str, device: int, unit: int, position: int, lo, hi) -> tuple:
    value = (int(hi) & (1 << 64) - 1) << 64 | int(lo) & (1 << 64) - 1

    def field(lsb, width):
        return value >> lsb & (1 << width) - 1

    region = field(b.region, b.region_bits)
    event = {
        "cycle": now, "kind": Kind.WAITING, "device": device, "unit": unit, "a": position, "b": QUEUES.index(queue),
        "c": field(b.device, b.device_bits) if queue in ON_LINKS else -1, "flags": 0, "stream": NO_STREAM, "reason": 0,
        "region": region, "address": field(0, b.address_bits), "amount": field(b.bytes, b.op - b.bytes),
        "source": field(b.source, 2), "op": field(b.op, 2),
        "wg": field(b.wg, b.wg_bits) if region else -1, "wf": field(b.wf, b.wf_bits) if region else NO_WAVEFRONT,
    }
    return tuple(event[name] for name in EVENT.names)
