"""Ring buffers over numpy arrays: the queues between a GPU's units and its memory channels, and the links' packets.

A channel's queues have one row per channel of every GPU (row = gpu*channels + channel).
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.jit import inlined
from t3sim.base.compiled.records import Record, aligned_zeros
from t3sim.gpu.setup import QUEUE_DEPTH

MASK = QUEUE_DEPTH - 1
STREAM_BITS = 2
DEVICE_BITS = 8
INSIDE = 4  #: more than a channel's hardware holds of one stream: a queue of two, and the register behind the grant


_REQUEST = Record(("lo", np.int64), ("hi", np.int64), ("tag", np.int64))
_TIMED = Record(("lo", np.int64), ("hi", np.int64), ("tag", np.int64), ("time", np.int64))
_TAGS = Record(("tag", np.int64, (INSIDE,)), ("head", np.int64), ("count", np.int64))


class RequestQueue(NamedTuple):
    """int64 words [rows, QUEUE_DEPTH] and int64 head and count [rows]."""

    RECORDS = (_REQUEST,)

    lo: np.ndarray
    hi: np.ndarray
    tag: np.ndarray  # whom a request serves, see `tag_of`; hardware does not carry it
    head: np.ndarray
    count: np.ndarray


class TagQueue(NamedTuple):
    """Tags of the requests that a memory channel's hardware has inside, in order; [row, INSIDE]."""

    RECORDS = (_TAGS,)

    tag: np.ndarray
    head: np.ndarray
    count: np.ndarray


class TimedQueue(NamedTuple):
    """Requests that become visible at a time (memory cycles), in order; [rows, capacity]."""

    RECORDS = (_TIMED,)

    lo: np.ndarray
    hi: np.ndarray
    tag: np.ndarray
    time: np.ndarray
    head: np.ndarray
    count: np.ndarray


def _ends(rows: int) -> dict[str, np.ndarray]:
    """Return the head and count of each queue, each without gaps: many counts are looked at together."""
    return {name: aligned_zeros(rows, np.dtype(np.int64)) for name in ("head", "count")}


def request_queue(rows: int) -> RequestQueue:
    return RequestQueue(**_REQUEST.arrays((rows, QUEUE_DEPTH)), **_ends(rows))


def tag_queue(rows: int) -> TagQueue:
    return TagQueue(**_TAGS.arrays(rows))


def timed_queue(rows: int, capacity: int) -> TimedQueue:
    """Make queues of timed requests; `capacity` is rounded up to a power of two."""
    capacity = 1 << (capacity - 1).bit_length()
    return TimedQueue(**_TIMED.arrays((rows, capacity)), **_ends(rows))


@inlined
def tag_of(stream: int, number: int) -> int:
    """Return a request's tag: its traffic class, and a number by which its sender recognises it."""
    return number << STREAM_BITS | stream


@inlined
def stream_of(tag: int) -> int:
    return tag & ((1 << STREAM_BITS) - 1)


@inlined
def number_of(tag: int) -> int:
    return tag >> STREAM_BITS


@inlined
def sent_by(gpu: int, part: int) -> int:
    """Return the number in the tag of a GPU's packet: the GPU, and the part of K."""
    return gpu | part << DEVICE_BITS


@inlined
def sender_of(number: int) -> int:
    return number & ((1 << DEVICE_BITS) - 1)


@inlined
def part_sent(number: int) -> int:
    return number >> DEVICE_BITS


@inlined
def push(queue: RequestQueue, row: int, lo: int, hi: int, tag: int) -> None:
    at = (queue.head[row] + queue.count[row]) & MASK
    queue.lo[row, at] = lo
    queue.hi[row, at] = hi
    queue.tag[row, at] = tag
    queue.count[row] += 1


@inlined
def pop(queue: RequestQueue, row: int) -> None:
    queue.head[row] = (queue.head[row] + 1) & MASK
    queue.count[row] -= 1


@inlined
def push_tag(queue: TagQueue, row: int, tag: int) -> None:
    """Record a request that the RTL took. Raises OverflowError if it cannot hold so many of one stream."""
    if queue.count[row] >= INSIDE:
        raise OverflowError("a memory channel took more requests of a stream than its queue and registers hold")
    queue.tag[row, (queue.head[row] + queue.count[row]) & (INSIDE - 1)] = tag
    queue.count[row] += 1


@inlined
def drop_tag(queue: TagQueue, row: int) -> None:
    """Forget the request that hardware took last: it was refused."""
    queue.count[row] -= 1


@inlined
def pop_tag(queue: TagQueue, row: int) -> int:
    """Return the tag of the request that hardware passes on. Raises OverflowError if it was given none."""
    if queue.count[row] == 0:
        raise OverflowError("a memory channel passes on a request that it was not given")
    tag = queue.tag[row, queue.head[row]]
    queue.head[row] = (queue.head[row] + 1) & (INSIDE - 1)
    queue.count[row] -= 1
    return tag


@inlined
def room(queue: RequestQueue, row: int) -> int:
    return QUEUE_DEPTH - queue.count[row]


@inlined
def push_at(queue: TimedQueue, row: int, time: int, lo: int, hi: int, tag: int) -> None:
    """Add a request at the end. Raises OverflowError if there is no room; the caller must bound its requests."""
    if queue.count[row] >= queue.lo.shape[1]:
        raise OverflowError("a queue of requests is full that was thought to hold all that can be under way")
    at = (queue.head[row] + queue.count[row]) & (queue.lo.shape[1] - 1)
    queue.lo[row, at] = lo
    queue.hi[row, at] = hi
    queue.tag[row, at] = tag
    queue.time[row, at] = time
    queue.count[row] += 1


@inlined
def pop_timed(queue: TimedQueue, row: int) -> None:
    queue.head[row] = (queue.head[row] + 1) & (queue.lo.shape[1] - 1)
    queue.count[row] -= 1


@inlined
def timed_room(queue: TimedQueue, row: int) -> int:
    return queue.lo.shape[1] - queue.count[row]


class Wires(NamedTuple):
    """Packets under way between two nodes: int64 words [link, capacity] in order of time, int64 counts [link] so far.

    A sender and a receiver may act at the same time, on different threads of the host. Each has its own end and sees
    the other's as it was when the two last met (`meet`). If they meet once per latency, results do not depend on when:
    packets sent since then arrive only later, and news of a free place takes as long as a packet.
    """

    RECORDS = (_TIMED,)

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
    return Wires._make((*_TIMED.arrays((links, capacity)).values(),
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
