"""Memory-side cache: a slice before the DRAM of each memory channel.

What the hardware's memory channel commits comes to its slice instead of the DRAM queue. A slice looks up one request
after the other, at its share of the cache's bandwidth. What it has it reads, overwrites or adds to itself: the
near-memory ALU stands at the slice, so DRAM only reads and writes. A read or an update that misses fetches its line; a
store of a whole line needs none. What asks for a line under way waits for it, in order. A dirty line that makes room is
written back.

One request of a channel is performed per cycle, at most, as the hardware hears of one. A line is a request's 64 bytes,
a slice's set index a fold of the line's number in its channel. What makes room is up to `replacement`.
Source: AMD CDNA 3 white paper ("Infinity Cache": memory-side, 16 ways, 2 MB and 64 bytes per clock for each of 128
channels); that it adds is this project's.
Known simplifications: no banks, no prefetches; a run starts with an empty cache, and leaves its dirty lines there.
"""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.compiled.records import aligned_zeros
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.fabric import bits, queues, replacement
from t3sim.gpu.fabric.bits import local_line
from t3sim.gpu.fabric.state import MemoryCache, MemoryState
from t3sim.gpu.hbm import READ, STORE, hbm_enqueue, hbm_step

NONE = -1  #: no entry, no way
WRITE_BACK = 1 << 20  #: token at DRAM of a line that is written back, beyond those of requests


def make_memory_cache(rows: int, sets: int, ways: int, requests: int, *, line_cycles: float, hit_cycles: int,
                      fill_cycles: int, policy: str = "lru") -> MemoryCache:
    """Make empty slices of `sets` x `ways` lines of 64 bytes, each of which holds `requests` at once.

    Cycles as in `MemoryCache`. Raises ValueError unless `sets` is a power of two.
    """
    if sets < 1 or sets & (sets - 1):
        raise ValueError(f"memory_cache: {sets} sets in a slice: a power of two is needed")
    groups, ways_of_sets = replacement.make_sets(rows, sets, ways, policy)
    whole = np.dtype(np.int64)
    first_back = aligned_zeros(rows, whole)
    first_back[:] = NONE
    clock, head, count, last_back, hits, misses, written_back = (aligned_zeros(rows, whole) for _ in range(7))
    return MemoryCache(
        requests, line_cycles, hit_cycles, fill_cycles, replacement.NAMES.index(policy), sets, groups, **ways_of_sets,
        **MemoryCache.RECORDS[1].arrays((rows, max(1, requests))), clock=clock, head=head, count=count,
        first_back=first_back, last_back=last_back, free=aligned_zeros(rows, np.dtype(np.float64)), hits=hits,
        misses=misses, written_back=written_back)


#: Two rows, as one lies in memory without gaps: another type, for which all loops would be compiled again.
NO_MEMORY_CACHE = make_memory_cache(2, 1, 1, 0, line_cycles=1.0, hit_cycles=0, fill_cycles=0)


@inlined
def _set_of(cache: MemoryCache, line: int) -> int:
    """Return the first group of a line's set."""
    return ((line ^ (line >> 11) ^ (line >> 22)) & (cache.sets - 1)) * cache.groups


@inlined
def _find(cache: MemoryCache, row: int, line: int) -> tuple[int, int]:
    """Return (group, way) of a line, way NONE if it is not there."""
    return replacement.way_of(cache, row, _set_of(cache, line), line)


@inlined
def accept(cache: MemoryCache, row: int, entry: int) -> None:
    """Let a request wait to be looked up; the caller saw a free entry."""
    cache.queue[row, (cache.head[row] + cache.count[row]) % cache.requests] = entry
    cache.count[row] += 1


@inlined
def busy(cache: MemoryCache, row: int) -> bool:
    """Return whether a slice has something to do by itself."""
    return cache.count[row] > 0 or cache.first_back[row] != NONE


@compiled
def step(mem: MemoryState, row: int, now: int) -> tuple[int, bool]:
    """Step a slice and its DRAM by a cycle: (entry of the request performed now or NONE, whether without DRAM)."""
    entry = hbm_step(mem.hbm, row, now)
    if entry == WRITE_BACK:
        entry = NONE
    if entry >= 0:
        _come(mem, row, entry)
    served = _serve(mem, row, now, entry == NONE)
    return (entry, False) if entry >= 0 else (served, True)


@inlined
def _line_and_op(mem: MemoryState, row: int, entry: int) -> tuple[int, int]:
    """Return the number of an entry's line in its channel, and its operation."""
    lo, hi = mem.lo[row, entry], mem.hi[row, entry]
    return local_line(bits.address_of(lo, mem.b), mem.m), bits.get(lo, hi, mem.b.op, 2)


@inlined
def _come(mem: MemoryState, row: int, entry: int) -> None:
    """Take a line that was fetched for an entry; entries that wait for it are next."""
    cache = mem.cache
    line, op = _line_and_op(mem, row, entry)
    s, way = _find(cache, row, line)
    cache.pending[row, s, way] = NONE
    cache.dirty[row, s, way] = op != READ
    if cache.last[row, entry] != entry:
        if cache.first_back[row] == NONE:
            cache.first_back[row] = cache.after[row, entry]
        else:
            cache.after[row, cache.last_back[row]] = cache.after[row, entry]
        cache.last_back[row] = cache.last[row, entry]


@inlined
def _serve(mem: MemoryState, row: int, now: int, may_perform: bool) -> int:
    """Look up the next request, if one may be; return its entry if that performs it, else NONE."""
    cache = mem.cache
    if cache.free[row] > now:
        return NONE
    entry = cache.first_back[row]
    if entry != NONE:  # nothing was looked up since its line has come, so it is still there
        if not may_perform:
            return NONE
        cache.first_back[row] = NONE if entry == cache.last_back[row] else cache.after[row, entry]
        _look_up(mem, row, now, entry, True)
        served = entry
    elif cache.count[row] > 0:
        entry = cache.queue[row, cache.head[row]]
        looked_up, performed = _look_up(mem, row, now, entry, may_perform)
        if not looked_up:
            return NONE
        cache.head[row] = (cache.head[row] + 1) % cache.requests
        cache.count[row] -= 1
        served = entry if performed else NONE
    else:
        return NONE
    cache.free[row] = max(cache.free[row], now - 1.0) + cache.line_cycles
    return served


@compiled
def _look_up(mem: MemoryState, row: int, now: int, entry: int, may_perform: bool) -> tuple[bool, bool]:
    """Look up a request: (whether that could be done now, whether it is performed)."""
    cache = mem.cache
    line, op = _line_and_op(mem, row, entry)
    s, way = _find(cache, row, line)
    if way != NONE and cache.pending[row, s, way] != NONE:
        fetching = cache.pending[row, s, way]
        cache.after[row, cache.last[row, fetching]] = entry
        cache.last[row, fetching] = entry
        return True, False
    lo, hi = mem.lo[row, entry], mem.hi[row, entry]
    fetches = way == NONE and (op != STORE or bits.get(lo, hi, mem.b.bytes, mem.b.op - mem.b.bytes) < LINE_BYTES)
    if not fetches and not may_perform:
        return False, False
    if way == NONE:
        s, way = replacement.victim(cache, row, s)
        if way < 0 or not _make_room(mem, row, now, entry, s, way, fetches):
            return False, False
        cache.tag[row, s, way] = line
        replacement.brought(cache, row, s, way)
    else:
        replacement.used(cache, row, s, way)
    if fetches:
        cache.pending[row, s, way] = entry
        cache.last[row, entry] = entry
        cache.misses[row] += 1
        _count(mem, row, entry, 0)
        hbm_enqueue(mem.hbm, row, now, line, READ, entry)
        return True, False
    if op != READ:
        cache.dirty[row, s, way] = 1
    cache.hits[row] += 1
    return True, True


@inlined
def _count(mem: MemoryState, row: int, entry: int, write: int) -> None:
    """Count a line that DRAM reads or writes under the stream of the request that needs it, or its room."""
    mem.dram_bytes[row // mem.m.channels, 2 * queues.stream_of(mem.tag[row, entry]) + write] += LINE_BYTES


@inlined
def _make_room(mem: MemoryState, row: int, now: int, entry: int, s: int, way: int, fetches: bool) -> bool:
    """Empty a way for an entry, its dirty line sent to DRAM; False: no room in the queue for that and the fetch."""
    cache, hbm = mem.cache, mem.hbm
    dirty = cache.dirty[row, s, way] != 0
    if hbm.occupancy[row] + dirty + fetches > hbm.queue_entries:
        return False
    if dirty:
        cache.dirty[row, s, way] = 0
        cache.written_back[row] += 1
        _count(mem, row, entry, 1)
        hbm_enqueue(hbm, row, now, np.int64(cache.tag[row, s, way]), STORE, WRITE_BACK)
    return True
