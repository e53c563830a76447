"""Slices of the last-level cache, each of which serves loads in the order in which they came.

A load waits in its slice's queue. The slice looks up one line after the other at its share of the cache's bandwidth;
a miss that cannot go to memory now holds what is behind it, hits too. A unit's loads leave in order, so a queue that is
full holds those for other slices: the crossbar has one first-in first-out buffer per unit.
Source: GPGPU-Sim's l2cache.cc (a sub-partition takes the head of its queue only, and nothing while the way to DRAM is
full) and local_interconnect.cc (only the front of an input buffer is considered).
Known simplifications: data go back without a queue; stores do not wait here.
"""

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.base.compiled.records import aligned_zeros
from t3sim.gpu.fabric.memory_map import channel_of, local_line
from t3sim.gpu.state import CacheSlices, Sim

_BLOCK_LINES_SHIFT = 2  #: a channel's slices take turns every 256 bytes


def make_slices(gpus: int, slices: int, channels: int, entries: int, line_cycles: float) -> CacheSlices:
    """Make empty queues of `entries` loads each; `line_cycles` as in `CacheSlices`."""
    rows = max(1, gpus * slices)
    whole, real = np.dtype(np.int64), np.dtype(np.float64)
    return CacheSlices(
        slices, max(1, slices // channels), line_cycles, aligned_zeros((rows, entries), whole),
        aligned_zeros((rows, entries), whole), aligned_zeros(rows, whole), aligned_zeros(rows, whole),
        aligned_zeros(rows, real), aligned_zeros(gpus, whole))


@inlined
def slice_of(sim: Sim, gpu: int, address: int) -> int:
    """Return the row of the slice that has an address."""
    queue = sim.slices
    inner = (local_line(address, sim.m) >> _BLOCK_LINES_SHIFT) % queue.per_channel
    return gpu * queue.slices + channel_of(address, sim.m) * queue.per_channel + inner


@inlined
def push(sim: Sim, gpu: int, address: int, slot: int) -> bool:
    """Let a load wait at its slice; False: the queue is full."""
    queue, row = sim.slices, slice_of(sim, gpu, address)
    if queue.count[row] == queue.line.shape[1]:
        return False
    at = (queue.head[row] + queue.count[row]) % queue.line.shape[1]
    queue.line[row, at] = address >> sim.llc.line_shift
    queue.slot[row, at] = slot
    queue.count[row] += 1
    queue.waiting[gpu] += 1
    return True


@inlined
def pop(queue: CacheSlices, gpu: int, row: int, now: int) -> None:
    """Take the head of a slice, which has looked it up."""
    queue.head[row] = (queue.head[row] + 1) % queue.line.shape[1]
    queue.count[row] -= 1
    queue.waiting[gpu] -= 1
    queue.free[row] = max(queue.free[row], now - 1.0) + queue.line_cycles
