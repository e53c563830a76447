"""Last-level cache: the unit that turns the GEMM's tile loads into DRAM reads.

Set-associative, LRU, write-back, write-allocate without fetch (a GEMM writes whole lines), with miss-status registers
that merge the loads of all compute units for a line in flight. Its bandwidth is accounted for by the caller.
Known simplification: one set index for all banks (no bank conflicts), uniform latency.
"""

from typing import NamedTuple

import numpy as np

from .compiled.jit import compiled, inlined
from .compiled.records import record_fields

HIT, PENDING, BLOCKED = 0, 1, 2  #: what a lookup found; BLOCKED: try again later, nothing was changed
MISS_REGISTERS = 16384
NO_WAY = np.int64(1) << np.int64(60)


class Llc(NamedTuple):
    """Arrays [device, set, way] and miss registers [device, register]."""

    tag: np.ndarray  # int32 line number, -1 empty (32 bits, so that a set is one line of the host's own cache)
    stamp: np.ndarray  # int32, time of last use in lookups
    dirty: np.ndarray  # uint8
    pending: np.ndarray  # int16 miss register, -1 valid data
    clock: np.ndarray  # int64 [device]
    miss_left: np.ndarray  # int32 DRAM requests still under way
    miss_set: np.ndarray
    miss_way: np.ndarray
    waiters: np.ndarray  # uint64 [device, register, words]: compute units that wait, one bit each
    free: np.ndarray  # int32 stack of free registers
    free_count: np.ndarray  # int64 [device]
    lookups: np.ndarray  # int64 [device]
    misses: np.ndarray  # int64 [device]


def make_llc(devices: int, size_bytes: int, line_bytes: int, ways: int, compute_units: int) -> Llc:
    sets = size_bytes // (line_bytes * ways)
    if sets < 1 or sets & (sets - 1):
        raise ValueError(f"llc: {size_bytes} bytes in {ways} ways of {line_bytes} bytes make {sets} sets; "
                         "a power of two is needed")
    tag, stamp, pending, dirty = record_fields((devices, sets), [
        ("tag", np.int32, (ways,)), ("stamp", np.int32, (ways,)), ("pending", np.int16, (ways,)),
        ("dirty", np.uint8, (ways,))])
    tag[:] = pending[:] = -1
    return Llc(
        tag, stamp, dirty, pending, np.zeros(devices, np.int64),
        np.zeros((devices, MISS_REGISTERS), np.int32), np.zeros((devices, MISS_REGISTERS), np.int32),
        np.zeros((devices, MISS_REGISTERS), np.int32),
        np.zeros((devices, MISS_REGISTERS, (compute_units + 63) // 64), np.uint64),
        np.tile(np.arange(MISS_REGISTERS, dtype=np.int32), (devices, 1)),
        np.full(devices, MISS_REGISTERS, np.int64), np.zeros(devices, np.int64), np.zeros(devices, np.int64))


@inlined
def _set_of(llc, line):
    return (line ^ (line >> 11) ^ (line >> 22)) & (llc.tag.shape[1] - 1)


@inlined
def find(llc, d, line):
    """(set, way) of a line, way -1 if it is not there."""
    s = _set_of(llc, line)
    wanted = np.int32(line)
    found = -1
    for way in range(llc.tag.shape[2]):  # no early exit: all ways are compared at once
        if llc.tag[d, s, way] == wanted:
            found = way
    return s, found


@compiled
def victim(llc, d, s):
    """Least recently used way of a set that is not being filled, -1 if there is none."""
    best = NO_WAY
    for way in range(llc.tag.shape[2]):  # without a branch that depends on the data
        age = np.int64(llc.stamp[d, s, way]) << 8 | way
        best = min(best, age if llc.pending[d, s, way] < 0 else NO_WAY)
    return best & 255 if best < NO_WAY else -1


@inlined
def touch(llc, d, s, way):
    llc.clock[d] += 1
    llc.stamp[d, s, way] = llc.clock[d]


@inlined
def wait_for(llc, d, s, way, unit):
    """Note that compute unit `unit` waits for a line in flight. False if it did so already."""
    register = llc.pending[d, s, way]
    bit = np.uint64(1) << np.uint64(unit & 63)
    if llc.waiters[d, register, unit >> 6] & bit:
        return False
    llc.waiters[d, register, unit >> 6] |= bit
    return True


@inlined
def allocate_miss(llc, d, s, way, line, requests):
    """Give a line's way to a miss; returns the miss register. The caller checked that one is free."""
    llc.free_count[d] -= 1
    register = llc.free[d, llc.free_count[d]]
    llc.tag[d, s, way] = line
    llc.dirty[d, s, way] = 0
    llc.pending[d, s, way] = register
    llc.miss_left[d, register] = requests
    llc.miss_set[d, register] = s
    llc.miss_way[d, register] = way
    llc.misses[d] += 1
    for word in range(llc.waiters.shape[2]):
        llc.waiters[d, register, word] = np.uint64(0)
    return register


@inlined
def release_miss(llc, d, register):
    llc.pending[d, llc.miss_set[d, register], llc.miss_way[d, register]] = -1
    llc.free[d, llc.free_count[d]] = register
    llc.free_count[d] += 1
