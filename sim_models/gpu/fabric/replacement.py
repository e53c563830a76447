"""Which line of a cache's set makes room for another.

`lru`: the least recently used one. `srrip`: static re-reference interval prediction, by hits, with two bits per line
(Jaleel et al., "High performance cache replacement using re-reference interval prediction", ISCA 2010): a line that
came in is thought to be used again late, one that was used soon; what is thought to be furthest away makes room, and
if nothing is, all are moved there. A stream that is read once then leaves before what was read twice.
Both keep their state in the cache's `stamp`, and neither evicts a line that is being filled.
"""

import numpy as np

from t3sim.base.compiled.by_reference import PLACES, equal, lowest_bit, lowest_of_free
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.fabric.state import WAYS, Llc, MemoryCache

NAMES = ("lru", "srrip")
LRU, SRRIP = range(2)
SOON, LATE, FURTHEST = 0, 2, 3  #: re-reference intervals
NO_LINE = NOT_FILLED = -1
_GROUP_SHIFT = PLACES.bit_length() - 1
_GROUPS = 256 // PLACES  # of a set, at most
NO_WAY = np.int64(1) << np.int64(60)


def make_sets(caches: int, sets: int, ways: int, policy: str) -> tuple[int, dict[str, np.ndarray]]:
    """Make the ways of empty sets: (groups of each set, arrays [cache, group of a set, way]).

    Places after a set's last way are never free, and no line is there.
    """
    groups = -(-ways // PLACES)
    fields = WAYS.arrays((caches, sets * groups))
    fields["tag"][:] = NO_LINE
    there = np.arange(groups * PLACES) < ways
    fields["pending"][:] = np.tile(np.where(there, NOT_FILLED, 0).reshape(groups, PLACES), (sets, 1))
    fields["stamp"][:] = FURTHEST if policy == "srrip" else 0
    return groups, fields


@inlined
def used(llc: Llc | MemoryCache, gpu: int, s: int, way: int) -> None:
    """Note that a line was found."""
    if llc.replacement == SRRIP:
        llc.stamp[gpu, s, way] = SOON
    else:
        llc.clock[gpu] += 1
        llc.stamp[gpu, s, way] = llc.clock[gpu]


@inlined
def brought(llc: Llc | MemoryCache, gpu: int, s: int, way: int) -> None:
    """Note that a way has another line."""
    if llc.replacement == SRRIP:
        llc.stamp[gpu, s, way] = LATE
    else:
        llc.clock[gpu] += 1
        llc.stamp[gpu, s, way] = llc.clock[gpu]


@inlined
def way_of(llc: Llc | MemoryCache, gpu: int, s: int, line: int) -> tuple[int, int]:
    """Return (group, way) of a line in the set that begins at group `s`; way -1 if it is not there."""
    tag = np.int32(line)
    matches = equal(llc.tag, (gpu, s, 0), tag)
    group, last = s, s + llc.groups - 1
    while matches == 0 and group < last:
        group += 1
        matches = equal(llc.tag, (gpu, group, 0), tag)
    return (group, lowest_bit(matches)) if matches else (s, -1)


@compiled
def victim(llc: Llc | MemoryCache, gpu: int, s: int) -> tuple[int | np.int64, int | np.int64]:
    """Return (group, way) of a set that makes room, way -1 if all are being filled; it begins at group `s`."""
    best = NO_WAY
    flip = np.int32(FURTHEST if llc.replacement == SRRIP else 0)
    for group in range(llc.groups):
        lowest = lowest_of_free(llc.stamp, llc.pending, (gpu, s + group, 0), flip, NO_WAY)
        best = min(best, lowest if lowest == NO_WAY else lowest + group * PLACES)
    if best == NO_WAY:
        return s, -1
    if llc.replacement == SRRIP and best >> 8:
        for group in range(s, s + llc.groups):
            for way in range(PLACES):
                if llc.pending[gpu, group, way] < 0:
                    llc.stamp[gpu, group, way] += best >> 8
    return s + (best >> _GROUP_SHIFT & _GROUPS - 1), best & PLACES - 1
