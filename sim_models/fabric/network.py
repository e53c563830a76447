"""Links: serialisation, latency, and in mirrored mode the neighbour seen through one's own traffic.

A packet waits in the egress buffer, is serialised at the link's bandwidth and arrives a latency later, in order.
Source: T3 paper, Table 1 (75 GB/s per direction, 500 ns); headers are not charged to the payload's bandwidth.
"""

from typing import NamedTuple

import numpy as np

from ..compiled.jit import inlined
from ..line import LINE_BYTES, lines_of
from . import bits, queues

_SPARE_PACKETS = 64  #: places that stay free among those under way: a mirrored packet may become several
_lines_of = inlined(lines_of)


class LinkShape(NamedTuple):
    bytes_per_cycle: float
    latency_cycles: int
    buffer_bytes: float


class LinkState(NamedTuple):
    flight: queues.TimedQueue  # packets by arrival time [device]
    free_time: np.ndarray  # float [device]: when the last accepted packet has left
    last_arrival: np.ndarray  # int64 [device]
    sent_bytes: np.ndarray  # int64 [device]
    sent_packets: np.ndarray
    arrived: np.ndarray  # packets delivered to the memory channels of the receiving device
    busy_cycles: np.ndarray  # float [device]


def make_link(devices: int, shape: LinkShape) -> LinkState:
    in_flight = int(shape.latency_cycles * shape.bytes_per_cycle + shape.buffer_bytes)
    packets = max(1024, in_flight // 8)  # a packet may be as short as one element

    def each(dtype: type = np.int64) -> np.ndarray:
        return np.zeros(devices, dtype)
    return LinkState(queues.timed_queue(devices, packets), each(np.float64), each(), each(), each(), each(),
                     each(np.float64))


@inlined
def can_send(link, shape, d, now):
    """Whether the egress buffer takes another packet."""
    return ((link.free_time[d] - now) * shape.bytes_per_cycle < shape.buffer_bytes
            and queues.timed_room(link.flight, d) > _SPARE_PACKETS)


@inlined
def send(sim, d, now, byte_count, delay, lo, hi, tag):
    """Serialise a packet of device d; `delay` is extra latency (random tests), `tag` as in `queues.tag_of`."""
    link, shape = sim.link, sim.link_shape
    start = max(link.free_time[d], now)
    link.busy_cycles[d] += byte_count / shape.bytes_per_cycle
    link.free_time[d] = start + byte_count / shape.bytes_per_cycle
    arrival = max(np.int64(np.ceil(link.free_time[d])) + shape.latency_cycles + delay, link.last_arrival[d])
    link.last_arrival[d] = arrival
    link.sent_bytes[d] += byte_count
    link.sent_packets[d] += 1
    queues.push_at(link.flight, d, arrival, lo, hi, tag)


@inlined
def send_mirrored(sim, now, byte_count, lo, hi, tag):
    """Send a packet as the upstream neighbour would at this moment: lines of the same rank (schedule/mirror.py)."""
    link, shape, mirror, b = sim.link, sim.link_shape, sim.mirror, sim.b
    row = mirror.sender[bits.get(lo, hi, b.wg, b.wg_bits)]
    wf = bits.get(lo, hi, b.wf, b.wf_bits)
    offset = bits.address_of(lo, b) - mirror.base[row, wf]
    per_column = _lines_of(mirror.column_bytes[row])
    group = mirror.group[row]
    becomes = mirror.becomes[group]
    rank = mirror.rank[row, wf] + offset // mirror.pitch * per_column + offset % mirror.pitch // LINE_BYTES
    first = rank * mirror.lines[becomes] // mirror.lines[group]
    last = (rank + 1) * mirror.lines[becomes] // mirror.lines[group]
    op = bits.get(lo, hi, b.op, 2)
    source = bits.get(lo, hi, b.source, 2)
    if first == last:  # there are fewer lines to receive: the link is busy all the same
        link.free_time[0] = max(link.free_time[0], now) + byte_count / shape.bytes_per_cycle
        link.busy_cycles[0] += byte_count / shape.bytes_per_cycle
        link.sent_bytes[0] += byte_count
        link.sent_packets[0] += 1
    for target in range(first, last):
        at = mirror.list_start[becomes]
        end = mirror.list_start[becomes + 1]
        while end - at > 1:
            middle = (at + end) // 2
            if mirror.list_rank[middle] <= target:
                at = middle
            else:
                end = middle
        to_row, to_wf = mirror.list_row[at], mirror.list_wf[at]
        within = target - mirror.list_rank[at]
        per = _lines_of(mirror.column_bytes[to_row])
        address = mirror.base[to_row, to_wf] + within // per * mirror.pitch + within % per * LINE_BYTES
        size = min(LINE_BYTES, mirror.column_bytes[to_row] - within % per * LINE_BYTES)
        new_lo, new_hi = bits.pack(b, address, size, op, source, mirror.region[to_row, to_wf], to_wf, mirror.id[to_row])
        send(sim, 0, now, size, 0, new_lo, new_hi, tag)
