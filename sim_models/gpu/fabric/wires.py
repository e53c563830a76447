"""Packets under way between two nodes: a ring buffer for each link, with a sender and a receiver.

Both may act at the same time, on different threads of the host. Each has its own end and sees the other's as it was
when the two last met (`meet`). If they meet once per latency, results do not depend on when: packets sent since then
arrive only later, and news of a free place takes as long as a packet.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.base.compiled.records import Record, aligned_zeros

_PACKET = Record(("lo", np.int64), ("hi", np.int64), ("tag", np.int64), ("time", np.int64))


class Wires(NamedTuple):
    """int64 words [link, capacity] in order of time, and int64 counts [link] since the beginning."""

    RECORDS = (_PACKET,)

    lo: np.ndarray
    hi: np.ndarray
    tag: np.ndarray
    time: np.ndarray  # when a packet arrives; of a place that is free again: when it was taken
    tail: np.ndarray  # the sender's: packets that it has sent
    freed: np.ndarray  # the sender's: packets whose places it knows to be free
    head: np.ndarray  # the receiver's: packets that it has taken
    tail_seen: np.ndarray  # `tail` when both last met
    head_seen: np.ndarray

    @property
    def count(self) -> np.ndarray:
        """Packets under way."""
        return self.tail - self.head


def make_wires(links: int, capacity: int) -> Wires:
    """Make wires without traffic; `capacity` is rounded up to a power of two."""
    capacity = 1 << (capacity - 1).bit_length()
    return Wires._make((*_PACKET.arrays((links, capacity)).values(),
                        *(aligned_zeros(links, np.dtype(np.int64)) for _ in range(5))))


@inlined
def under_way(wires: Wires, link: int) -> int:
    """Return how many packets are under way; only while neither end acts."""
    return wires.tail[link] - wires.head[link]


@inlined
def meet(wires: Wires, link: int) -> None:
    """Show each end the other's progress; only while neither end acts."""
    wires.tail_seen[link] = wires.tail[link]
    wires.head_seen[link] = wires.head[link]


@inlined
def has_room(wires: Wires, link: int, now: int, latency: int, spare: int) -> bool:
    """Return whether the sender knows of more than `spare` free places; it learns of one after `latency` cycles."""
    capacity = wires.lo.shape[1]
    if wires.tail[link] - wires.freed[link] < capacity - spare:
        return True
    while wires.freed[link] < wires.head_seen[link] and (
            wires.time[link, wires.freed[link] & (capacity - 1)] + latency <= now):
        wires.freed[link] += 1
    return wires.tail[link] - wires.freed[link] < capacity - spare


@inlined
def put(wires: Wires, link: int, time: int, lo: int, hi: int, tag: int) -> None:
    """Send a packet that arrives at a time, not before the one sent last.

    Raises OverflowError if there is no room: what sends has to look before.
    """
    if wires.tail[link] - wires.freed[link] >= wires.lo.shape[1]:
        raise OverflowError("more is under way on a link than was thought possible")
    at = wires.tail[link] & (wires.lo.shape[1] - 1)
    wires.lo[link, at] = lo
    wires.hi[link, at] = hi
    wires.tag[link, at] = tag
    wires.time[link, at] = time
    wires.tail[link] += 1


@inlined
def arrives(wires: Wires, link: int, now: int) -> bool:
    """Return whether a packet has arrived that was not taken: at the place `head_of`."""
    return wires.head[link] < wires.tail_seen[link] and wires.time[link, head_of(wires, link)] <= now


@inlined
def head_of(wires: Wires, link: int) -> int:
    """Return the place of the packet that is taken next."""
    return wires.head[link] & (wires.lo.shape[1] - 1)


@inlined
def take(wires: Wires, link: int, now: int) -> None:
    """Take the packet that has arrived first."""
    wires.time[link, head_of(wires, link)] = now
    wires.head[link] += 1
