"""Ring collectives as kernels on the compute units: the sequential baselines, and the all-gather after a fused run.

Step by step, as in the T3 paper's figures 3 and 10. In a step every device reads what it sends, the link carries it,
and what arrives is written to memory; the next step starts when this one's data have arrived. Reduce-scatter without
near-memory compute reads two copies per step from the second on and needs a last pass (two reads, one write). With
it, arriving data are op-and-store updates and one read per step suffices (figure 10b).
All devices behave alike: what a device sends is what it receives one latency later.
"""

from typing import NamedTuple

import numpy as np

from . import bits, queues
from . import link as links
from .jit import inlined
from .memory_map import channel_of

PENDING = 65536  #: lines being read, numbered modulo this in the request's workgroup field


class RingShape(NamedTuple):
    """Scalars; addresses in bytes, all chunks line-aligned."""

    devices: int
    chunk_lines: int
    chunk_bytes: int
    data_base: int
    copy_base: int  # received copies (reduce-scatter without near-memory compute)
    two_reads: bool  # reduce-scatter without near-memory compute
    last_pass: bool
    arrival_op: int
    outstanding_lines: int
    lines_per_cycle: int


class RingState(NamedTuple):
    step: np.ndarray  # int64 [device]: 0 first step ... devices-1 last pass, devices: done
    issued: np.ndarray  # lines whose reads were sent this step
    sub: np.ndarray  # reads of that line already sent
    returned: np.ndarray  # lines completely read
    sent: np.ndarray
    arrived: np.ndarray
    written: np.ndarray  # lines of the last pass
    left: np.ndarray  # int8 [device, PENDING]: reads still under way per line
    ready: queues.TimedQueue  # lines read, waiting for the link or for the last write; lo = line
    start_time: np.ndarray
    step_end: np.ndarray  # int64 [device, devices+1]


def make_ring(devices: int, shape: RingShape) -> RingState:
    def each():
        return np.zeros(devices, np.int64)
    return RingState(each(), each(), each(), each(), each(), each(), each(), np.zeros((devices, PENDING), np.int8),
                     queues.timed_queue(devices, PENDING), each(), np.zeros((devices, shape.devices + 1), np.int64))


@inlined
def line_bytes(shape, line):
    return min(64, shape.chunk_bytes - line * 64)


@inlined
def ring_returned(ring, d, tag, now):
    """One read came back."""
    ring.left[d, tag] -= 1
    if ring.left[d, tag] == 0:
        line = ring.returned[d]  # lines are alike: they leave in order of completion
        ring.returned[d] += 1
        queues.push_at(ring.ready, d, now, line, 0)


@inlined
def ring_cycle(ring, shape, link, link_shape, compute, inbound, m, b, d, now):
    """One cycle of device d's collective kernel."""
    step = ring.step[d]
    if step >= shape.devices or now < ring.start_time[d]:
        return
    last = step == shape.devices - 1
    reads = 2 if shape.two_reads and (step > 0 or last) else 1
    chunk = (shape.devices - step) % shape.devices
    for _ in range(shape.lines_per_cycle):
        line = ring.issued[d]
        if line >= shape.chunk_lines or line - (ring.written[d] if last else ring.sent[d]) >= shape.outstanding_lines:
            break
        base = shape.data_base if ring.sub[d] == 0 else shape.copy_base
        address = base + chunk * shape.chunk_lines * 64 + line * 64
        row = d * m.channels + channel_of(address, m)
        if queues.room(compute, row) < 1:
            break
        tag = line % PENDING
        if ring.sub[d] == 0:
            ring.left[d, tag] = reads
        lo, hi = bits.pack(b, address, line_bytes(shape, line), bits.READ, bits.LOCAL, 0, 0, tag)
        queues.push(compute, row, lo, hi)
        ring.sub[d] += 1
        if ring.sub[d] == reads:
            ring.sub[d] = 0
            ring.issued[d] += 1
    while ring.ready.count[d] > 0:
        line = ring.ready.lo[d, ring.ready.head[d]]
        if last:
            address = shape.data_base + chunk * shape.chunk_lines * 64 + line * 64
            row = d * m.channels + channel_of(address, m)
            if queues.room(compute, row) < 1:
                break
            lo, hi = bits.pack(b, address, line_bytes(shape, line), bits.STORE, bits.LOCAL, 0, 0, 0)
            queues.push(compute, row, lo, hi)
            ring.written[d] += 1
        else:
            if not links.can_send(link, link_shape, d, now):
                break
            target = (chunk - 1 + shape.devices) % shape.devices  # the neighbour sent its own next chunk
            base = shape.copy_base if shape.two_reads else shape.data_base
            address = base + target * shape.chunk_lines * 64 + line * 64
            size = line_bytes(shape, line)
            lo, hi = bits.pack(b, address, size, shape.arrival_op, bits.REMOTE, 0, 0, 0)
            links.send(link, link_shape, d, now, size, 0, lo, hi)
            ring.sent[d] += 1
        queues.pop_timed(ring.ready, d)
    done = ring.written[d] if last else link.arrived[d] - step * shape.chunk_lines
    if done >= shape.chunk_lines:
        ring.step_end[d, step] = now
        ring.step[d] = step + 1
        if step + 1 == shape.devices - 1 and not shape.last_pass:
            ring.step[d] = shape.devices
        ring.issued[d] = 0
        ring.returned[d] = 0
        ring.sent[d] = 0
        ring.written[d] = 0
