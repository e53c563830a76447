"""The queues between a GPU's units and its memory channels, and the requests that wait in DRAM.

Ring buffers over numpy arrays, one row per channel of every GPU (row = gpu*channels + channel).
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
