"""Which line of a cache's set makes room for another.

`lru`: the least recently used one. `srrip`: static re-reference interval prediction, by hits, with two bits per line
(Jaleel et al., "High performance cache replacement using re-reference interval prediction", ISCA 2010): a line that
came in is thought to be used again late, one that was used soon; what is thought to be furthest away makes room, and
if nothing is, all are moved there. A stream that is read once then leaves before what was read twice.
Both keep their state in the cache's `stamp`, and neither evicts a line that is being filled.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..compiled.jit import compiled, inlined
from ..compiled.records import record_fields
from ..compiled.scan import PLACES, lowest_of_free

if TYPE_CHECKING:
    from .llc import Llc
    from .memory_cache import MemoryCache

NAMES = ("lru", "srrip")
LRU, SRRIP = range(2)
SOON, LATE, FURTHEST = 0, 2, 3  #: re-reference intervals
NO_LINE = NOT_FILLED = -1
NO_WAY = np.int64(1) << np.int64(60)


def make_sets(shape: tuple[int, int], ways: int) -> tuple[np.ndarray, ...]:
    """Make tags, stamps, what is filled, and what is dirty, of empty ways; places behind them are never found."""
    places = -(-ways // PLACES) * PLACES
    tag, stamp, pending, dirty = record_fields(shape, [
        ("tag", np.int32, (places,)), ("stamp", np.int32, (places,)), ("pending", np.int16, (places,)),
        ("dirty", np.uint8, (places,))])
    tag[:] = NO_LINE
    pending[..., :ways] = NOT_FILLED
    return tuple(field[..., :ways] for field in (tag, stamp, pending, dirty))


@inlined
def used(llc: "Llc | MemoryCache", device: int, s: int, way: int) -> None:
    """Note that a line was found."""
    if llc.replacement == SRRIP:
        llc.stamp[device, s, way] = SOON
    else:
        llc.clock[device] += 1
        llc.stamp[device, s, way] = llc.clock[device]


@inlined
def brought(llc: "Llc | MemoryCache", device: int, s: int, way: int) -> None:
    """Note that a way has another line."""
    if llc.replacement == SRRIP:
        llc.stamp[device, s, way] = LATE
    else:
        llc.clock[device] += 1
        llc.stamp[device, s, way] = llc.clock[device]


@compiled
def victim(llc: "Llc | MemoryCache", device: int, s: int) -> int | np.int64:
    """Return the way of a set that makes room, -1 if all are being filled."""
    best = NO_WAY
    flip = np.int32(FURTHEST if llc.replacement == SRRIP else 0)
    for first in range(0, llc.tag.shape[2], PLACES):
        found = lowest_of_free(llc.stamp, llc.pending, (device, s, first), flip, NO_WAY)
        best = min(best, found if found == NO_WAY else found + first)
    if best == NO_WAY:
        return -1
    if llc.replacement == SRRIP and best >> 8:
        for way in range(llc.tag.shape[2]):
            if llc.pending[device, s, way] < 0:
                llc.stamp[device, s, way] += best >> 8
    return best & 255
