"""Last-level cache: the unit that turns a kernel's loads into DRAM reads.

Set-associative, write-back, write-allocate without fetch (whole lines are written), with miss-status registers
that merge the loads of all compute units for a line in flight. What it reads and writes back goes to the memory
channels' queues. What makes room is up to `replacement`. Its bandwidth is accounted for by the caller.
It may be several caches, each of as many compute units that lie together: then each has a part of the sets, and none
sees what another holds (numbers are not affected, as no cache holds any).
Known simplification: one set index for all banks (no bank conflicts), uniform latency.

It may have slices, each of which serves loads in the order in which they came. A load waits in its slice's queue. The
slice looks up one line after the other at its share of the cache's bandwidth; a miss that cannot go to memory now holds
what is behind it, hits too. A unit's loads leave in order, so a queue that is full holds those for other slices: the
crossbar has one first-in first-out buffer per unit.
Source: GPGPU-Sim's l2cache.cc (a sub-partition takes the head of its queue only, and nothing while the way to DRAM is
full) and local_interconnect.cc (only the front of an input buffer is considered).
Known simplifications: data go back without a queue; stores do not wait here.
"""

import numpy as np

from t3sim.base.compiled.by_reference import fetch_ahead
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.compiled.records import aligned_zeros
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.fabric import bits, queues, replacement
from t3sim.gpu.fabric.bits import MemoryMap, channel_of, local_line, row_of
from t3sim.gpu.fabric.state import CacheSlices, Llc, MemoryState
from t3sim.gpu.setup import MISS_REGISTERS

#: What a load found: its data, a line in flight for which the unit waits now, one for which it waited already.
#: BLOCKED: try again later, nothing was changed.
HIT, WAITING, KNOWN, BLOCKED = range(4)
_BLOCK_LINES_SHIFT = 2  #: a channel's slices take turns every 256 bytes


def make_slices(gpus: int, slices: int, channels: int, entries: int, line_cycles: float) -> CacheSlices:
    """Make empty queues of `entries` loads each; `line_cycles` as in `CacheSlices`."""
    rows = max(1, gpus * slices)
    whole, real = np.dtype(np.int64), np.dtype(np.float64)
    return CacheSlices(
        slices, max(1, slices // channels), line_cycles, aligned_zeros((rows, entries), whole),
        aligned_zeros((rows, entries), whole), aligned_zeros(rows, whole), aligned_zeros(rows, whole),
        aligned_zeros(rows, real), aligned_zeros(gpus, whole))


def make_llc(gpus: int, size_bytes: int, line_bytes: int, ways: int, slots: int, policy: str, slices: CacheSlices, *,
             parts: int = 1, part_units: int = 1) -> Llc:
    """Make empty caches, each in `parts` that are `size_bytes` together; `slots`: places that may wait for lines."""
    sets = size_bytes // (line_bytes * ways * parts)
    if sets < 1 or sets & (sets - 1):
        raise ValueError(f"llc: {size_bytes // parts} bytes in {ways} ways of {line_bytes} bytes make {sets} sets; "
                         "a power of two is needed")
    groups, ways_of_sets = replacement.make_sets(gpus, sets * parts, ways, policy)

    def each(dtype: type, *shape: int) -> np.ndarray:
        return np.zeros((gpus, *shape), dtype)
    return Llc(
        **ways_of_sets, clock=each(np.int64), miss_left=each(np.int32, MISS_REGISTERS),
        miss_set=each(np.int32, MISS_REGISTERS), miss_way=each(np.int32, MISS_REGISTERS),
        waiters=each(np.uint64, MISS_REGISTERS, (slots + 63) // 64),
        free=np.tile(np.arange(MISS_REGISTERS, dtype=np.int32), (gpus, 1)),
        free_count=np.full(gpus, MISS_REGISTERS, np.int64), lookups=each(np.int64), misses=each(np.int64),
        line_bytes=line_bytes, line_shift=(line_bytes - 1).bit_length(), line_requests=line_bytes // LINE_BYTES,
        replacement=replacement.NAMES.index(policy), groups=groups, sets=sets, parts=parts, part_units=part_units,
        slices=slices)


@inlined
def _set_of(llc: Llc, line: int, unit: int) -> int:
    """Return the first group of a line's set in the part that a compute unit sees."""
    s = (line ^ (line >> 11) ^ (line >> 22)) & (llc.sets - 1)
    if llc.parts > 1:
        s += unit // llc.part_units * llc.sets
    return s * llc.groups


@inlined
def find(llc: Llc, gpu: int, line: int, unit: int) -> tuple[int, int]:
    """Return (group, way) of a line where a compute unit sees it, way -1 if it is not there."""
    return replacement.way_of(llc, gpu, _set_of(llc, line, unit), line)


@inlined
def wait_for(llc: Llc, gpu: int, s: int, way: int, slot: int) -> bool:
    """Note that a slot waits for a line in flight. False if it did so already."""
    register = llc.pending[gpu, s, way]
    bit = np.uint64(1) << np.uint64(slot & 63)
    if llc.waiters[gpu, register, slot >> 6] & bit:
        return False
    llc.waiters[gpu, register, slot >> 6] |= bit
    return True


@inlined
def allocate_miss(llc: Llc, gpu: int, s: int, way: int, line: int, requests: int) -> int:
    """Give a line's way to a miss; returns the miss register. The caller checked that one is free."""
    llc.free_count[gpu] -= 1
    register = llc.free[gpu, llc.free_count[gpu]]
    llc.tag[gpu, s, way] = line
    llc.dirty[gpu, s, way] = 0
    llc.pending[gpu, s, way] = register
    llc.miss_left[gpu, register] = requests
    llc.miss_set[gpu, register] = s
    llc.miss_way[gpu, register] = way
    llc.misses[gpu] += 1
    for word in range(llc.waiters.shape[2]):
        llc.waiters[gpu, register, word] = np.uint64(0)
    return register


@inlined
def release_miss(llc: Llc, gpu: int, register: int) -> None:
    llc.pending[gpu, llc.miss_set[gpu, register], llc.miss_way[gpu, register]] = -1
    llc.free[gpu, llc.free_count[gpu]] = register
    llc.free_count[gpu] += 1


@inlined
def expect(llc: Llc, gpu: int, line: int, unit: int) -> None:
    """Fetch the record of a line that a unit looks up soon.

    Its set's record is not in the host's nearest caches, because there are thousands of sets.
    """
    fetch_ahead(llc.tag, (gpu, _set_of(llc, line, unit), 0))


@inlined
def load(llc: Llc, mem: MemoryState, gpu: int, line: int, slot: int, unit: int, stream: int) -> tuple[int, int]:
    """Load a line for a slot of a compute unit; return the outcome, and the row of the channel without room or -1.

    `stream`: traffic class of the load, and of write-backs that make room for it.
    """
    llc.lookups[gpu] += 1
    s, way = find(llc, gpu, line, unit)
    if way >= 0:
        replacement.used(llc, gpu, s, way)
        if llc.pending[gpu, s, way] < 0:
            return HIT, -1
        return WAITING if wait_for(llc, gpu, s, way, slot) else KNOWN, -1
    s, way = make_room(llc, mem, gpu, s, stream)
    if way < 0 or llc.free_count[gpu] == 0:
        return BLOCKED, -1
    start = line << llc.line_shift
    row = row_of(start, mem.m, gpu)
    if queues.room(mem.compute, row) < llc.line_requests:
        return BLOCKED, row
    register = allocate_miss(llc, gpu, s, way, line, llc.line_requests)
    replacement.brought(llc, gpu, s, way)
    wait_for(llc, gpu, s, way, slot)
    for i in range(llc.line_requests):
        lo, hi = bits.pack(mem.b, start + i * LINE_BYTES, LINE_BYTES, bits.READ, bits.LOCAL, 0, 0,
                           0)
        queues.push(mem.compute, row, lo, hi, queues.tag_of(stream, np.int64(register)))
    return WAITING, -1


@compiled
def store(llc: Llc, mem: MemoryState, gpu: int, line: int, unit: int, stream: int) -> bool:
    """Store a whole line of a compute unit in the cache; False: not now."""
    s, way = find(llc, gpu, line, unit)
    if way < 0:
        s, way = make_room(llc, mem, gpu, s, stream)
        if way < 0:
            return False
        llc.tag[gpu, s, way] = line
        replacement.brought(llc, gpu, s, way)
    else:
        replacement.used(llc, gpu, s, way)
    llc.dirty[gpu, s, way] = 1
    return True


@inlined
def fill(llc: Llc, gpu: int, register: int) -> bool:
    """Take one request of a miss back from DRAM; return whether its line is complete.

    Its waiters are known until the caller releases it.
    """
    llc.miss_left[gpu, register] -= 1
    return llc.miss_left[gpu, register] == 0


@compiled
def make_room(llc: Llc, mem: MemoryState, gpu: int, s: int, stream: int) -> tuple[int, int]:
    """Find (group, way) of a set that may be overwritten, its dirty data sent to DRAM; way -1: not now."""
    s, way = replacement.victim(llc, gpu, s)
    if way < 0 or not llc.dirty[gpu, s, way]:
        return s, way
    row = row_of(np.int64(llc.tag[gpu, s, way]) << llc.line_shift, mem.m, gpu)
    if queues.room(mem.compute, row) < 2 * llc.line_requests:  # the miss that follows may go to the same channel
        return s, -1
    write_back(llc, mem, gpu, s, way, row, stream)
    return s, way


@compiled
def write_back(llc: Llc, mem: MemoryState, gpu: int, s: int, way: int, row: int, stream: int) -> None:
    """Send a dirty line to its channel, which has room."""
    start = np.int64(llc.tag[gpu, s, way]) << llc.line_shift
    for i in range(llc.line_requests):
        lo, hi = bits.pack(mem.b, start + i * LINE_BYTES, LINE_BYTES, bits.STORE, bits.LOCAL, 0, 0,
                           0)
        queues.push(mem.compute, row, lo, hi, queues.tag_of(stream, 0))
    llc.dirty[gpu, s, way] = 0


@compiled
def flush(llc: Llc, mem: MemoryState, gpu: int, cursor: int, stream: int) -> int:
    """Write dirty lines back, set by set from `cursor`, as far as the queues take them; returns the next cursor."""
    while cursor < llc.tag.shape[1]:
        for way in range(llc.tag.shape[2]):
            if llc.dirty[gpu, cursor, way]:
                row = row_of(np.int64(llc.tag[gpu, cursor, way]) << llc.line_shift, mem.m, gpu)
                if queues.room(mem.compute, row) < llc.line_requests:
                    return cursor
                write_back(llc, mem, gpu, cursor, way, row, stream)
        cursor += 1
    return cursor


@inlined
def slice_of(slices: CacheSlices, layout: MemoryMap, gpu: int, address: int) -> int:
    """Return the row of the slice that has an address."""
    inner = (local_line(address, layout) >> _BLOCK_LINES_SHIFT) % slices.per_channel
    return gpu * slices.slices + channel_of(address, layout) * slices.per_channel + inner


@inlined
def wait_at_slice(llc: Llc, layout: MemoryMap, gpu: int, address: int, slot: int) -> bool:
    """Let a load wait at its slice; False: the queue is full."""
    queue, row = llc.slices, slice_of(llc.slices, layout, gpu, address)
    if queue.count[row] == queue.line.shape[1]:
        return False
    at = (queue.head[row] + queue.count[row]) % queue.line.shape[1]
    queue.line[row, at] = address >> llc.line_shift
    queue.slot[row, at] = slot
    queue.count[row] += 1
    queue.waiting[gpu] += 1
    return True


@inlined
def leave_slice(queue: CacheSlices, gpu: int, row: int, now: int) -> None:
    """Take the head of a slice, which has looked it up."""
    queue.head[row] = (queue.head[row] + 1) % queue.line.shape[1]
    queue.count[row] -= 1
    queue.waiting[gpu] -= 1
    queue.free[row] = max(queue.free[row], now - 1.0) + queue.line_cycles
