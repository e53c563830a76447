"""Place of every request when a recording ends."""

from collections.abc import Sequence

import numpy as np

from t3sim.gpu.engine.state import Sim
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric.network import outgoing
from t3sim.trace.schema import EVENT, NO_STREAM, NO_WAVEFRONT, ON_LINKS, QUEUES, Kind


def waiting(sim: Sim, now: int, senders: Sequence[np.ndarray]) -> np.ndarray:
    """List every request that is in a model's queue, oldest first per queue: EVENT[n] of kind WAITING.

    `senders`: each device's, as in `names`.
    """
    channels, devices = sim.m.channels, len(sim.control.downstream)
    by_channel = {row: divmod(row, channels) for row in range(devices * channels)}
    by_port = {int(port): (device, unit) for device in range(devices)
               for unit, port in enumerate(outgoing(sim.network, device))}
    switched = {port: (int(gpu), port) for port, gpu in enumerate(sim.network.target) if port not in by_port}
    flight = sim.network.flight
    queues = {"compute queue": (sim.compute, by_channel), "inbound queue": (sim.inbound, by_channel),
              "link": (flight, by_port), "link from the switch": (flight, switched),
              "stores for the link": (sim.stores_out, by_port),
              "DMA data for the link": (sim.mem.dma_returns, by_port)}
    found = []
    for name, (queue, place) in queues.items():
        for row in place:
            held = (queue.head[row] + np.arange(queue.count[row])) % queue.lo.shape[1]
            found += [_waiting(sim.b, now, name, *place[row], i, queue.lo[row, at],
                               queue.hi[row, at]) for i, at in enumerate(held)]
    for row in range(len(sim.mem.free)):
        held = set(range(sim.mem.free.shape[1])) - set(sim.mem.free[row, :sim.mem.free_count[row]].tolist())
        found += [_waiting(sim.b, now, "DRAM queue", *divmod(row, channels), i, sim.mem.lo[row, entry],
                           sim.mem.hi[row, entry]) for i, entry in enumerate(sorted(held))]
    events = np.array(found, EVENT)
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
