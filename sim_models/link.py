"""The ring links: serialisation, latency, and in mirrored mode the neighbour seen through one's own traffic.

A packet waits in the egress buffer, is serialised at the link's bandwidth and arrives a latency later, in order.
Source: T3 paper, Table 1 (75 GB/s per direction, 500 ns); headers are not charged to the payload's bandwidth.

Mirrored mode (T3 paper, section 5.1.1: all GPUs behave alike): what this GPU sends at ring position p stands for what
its upstream neighbour sends at the same moment, which is the data of this GPU's position p+1. The k-th line of one
position becomes the k-th line of the next (in proportion, where a ragged edge makes their line counts differ).
"""

from typing import NamedTuple

import numpy as np

from . import bits, queues
from .jit import inlined
from .tiling import Tiling


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


class Mirror(NamedTuple):
    """Line ranks of mirrored mode; groups are (slice, position) in execution order."""

    group: np.ndarray  # int64 [workgroup]
    sender: np.ndarray  # int64 [workgroup id at the downstream device]: this device's id of the same tile, -1 none
    rank: np.ndarray  # int64 [workgroup, wavefront]: rank of the wavefront tile's first line in its group
    base: np.ndarray  # int64 [workgroup, wavefront]: address of its first line
    rows: np.ndarray  # int64 [workgroup]
    list_start: np.ndarray  # int64 [group + 1]: first entry of each group in the lists below
    list_rank: np.ndarray
    list_wg: np.ndarray
    list_wf: np.ndarray
    lines: np.ndarray  # int64 [group]
    pitch: int


def make_link(devices: int, shape: LinkShape) -> LinkState:
    in_flight = int(shape.latency_cycles * shape.bytes_per_cycle + shape.buffer_bytes)
    packets = max(1024, in_flight // 8)  # a packet may be as short as one element

    def each(dtype=np.int64):
        return np.zeros(devices, dtype)
    return LinkState(queues.timed_queue(devices, packets), each(np.float64), each(), each(), each(), each(),
                     each(np.float64))


def make_mirror(tiling: Tiling, device: int, c_base: int) -> Mirror:
    tiles, positions, slices = tiling.order(device)
    count, wavefronts = len(tiles), tiling.wavefronts
    group = slices * tiling.devices + positions
    rank = np.zeros((count, wavefronts), np.int64)
    base = np.zeros((count, wavefronts), np.int64)
    groups = tiling.slices * tiling.devices
    lines = np.zeros(groups, np.int64)
    start, list_rank, list_wg, list_wf = [0], [], [], []
    for q in range(count):
        tile = int(tiles[q])
        if group[q] == len(start):
            start.append(len(list_rank))
        m0, n0 = tile % tiling.tile_rows * tiling.tile_m, tile // tiling.tile_rows * tiling.tile_n
        per_column = -(-int(tiling.rows[tile]) * tiling.element_bytes // 64)
        for wf in range(wavefronts):
            rank[q, wf] = lines[group[q]]
            base[q, wf] = c_base + (n0 + wf * tiling.wf_columns) * tiling.pitch_bytes + m0 * tiling.element_bytes
            columns = tiling.wf_tile_columns(tile, wf)
            if columns:
                list_rank.append(int(rank[q, wf]))
                list_wg.append(q)
                list_wf.append(wf)
                lines[group[q]] += columns * per_column
    start.append(len(list_rank))
    sender = np.full(count + max(tiling.wg_offset(device, s) for s in range(tiling.slices)), -1)
    for q in range(count):
        if positions[q] < tiling.devices - 1:
            sender[q + tiling.wg_offset(device, int(slices[q]))] = q
    return Mirror(group, sender, rank, base, tiling.rows[tiles].astype(np.int64), np.array(start), np.array(list_rank),
                  np.array(list_wg), np.array(list_wf), lines, tiling.pitch_bytes)


@inlined
def can_send(link, shape, d, now):
    """Whether the egress buffer takes another packet."""
    return ((link.free_time[d] - now) * shape.bytes_per_cycle < shape.buffer_bytes
            and queues.timed_room(link.flight, d) > 64)


@inlined
def send(link, shape, d, now, byte_count, delay, lo, hi):
    """Serialise a packet of device d; `delay` is extra latency (random tests)."""
    start = max(link.free_time[d], now)
    link.busy_cycles[d] += byte_count / shape.bytes_per_cycle
    link.free_time[d] = start + byte_count / shape.bytes_per_cycle
    arrival = max(np.int64(np.ceil(link.free_time[d])) + shape.latency_cycles + delay, link.last_arrival[d])
    link.last_arrival[d] = arrival
    link.sent_bytes[d] += byte_count
    link.sent_packets[d] += 1
    queues.push_at(link.flight, d, arrival, lo, hi)


@inlined
def send_mirrored(link, shape, mirror, b, event_region, now, byte_count, lo, hi):
    """Send a packet as the upstream neighbour would at this moment: next position's lines of the same rank."""
    wg = mirror.sender[bits.get(lo, hi, b.wg, b.wg_bits)]
    wf = bits.get(lo, hi, b.wf, b.wf_bits)
    offset = bits.address_of(lo, b) - mirror.base[wg, wf]
    per_column = -(-mirror.rows[wg] * 2 // 64)
    group = mirror.group[wg]
    rank = mirror.rank[wg, wf] + offset // mirror.pitch * per_column + offset % mirror.pitch // 64
    first = rank * mirror.lines[group + 1] // mirror.lines[group]
    last = (rank + 1) * mirror.lines[group + 1] // mirror.lines[group]
    op = bits.get(lo, hi, b.op, 2)
    source = bits.get(lo, hi, b.source, 2)
    if first == last:  # fewer lines in the next position: the link is busy all the same
        link.free_time[0] = max(link.free_time[0], now) + byte_count / shape.bytes_per_cycle
        link.busy_cycles[0] += byte_count / shape.bytes_per_cycle
        link.sent_bytes[0] += byte_count
        link.sent_packets[0] += 1
    for target in range(first, last):
        at = mirror.list_start[group + 1]
        end = mirror.list_start[group + 2]
        while end - at > 1:
            middle = (at + end) // 2
            if mirror.list_rank[middle] <= target:
                at = middle
            else:
                end = middle
        to_wg, to_wf = mirror.list_wg[at], mirror.list_wf[at]
        within = target - mirror.list_rank[at]
        per = -(-mirror.rows[to_wg] * 2 // 64)
        address = mirror.base[to_wg, to_wf] + within // per * mirror.pitch + within % per * 64
        size = min(64, mirror.rows[to_wg] * 2 - within % per * 64)
        new_lo, new_hi = bits.pack(b, address, size, op, source, event_region[to_wg, to_wf], to_wf, to_wg)
        send(link, shape, 0, now, size, 0, new_lo, new_hi)
