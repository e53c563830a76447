"""The events of a trace: one record layout, and one place that names every kind and what its fields hold.

An event says what happened in memory cycle `cycle` of `device`. Fields that a kind does not use are -1 in `wg`, `a`,
`b` and `c`, 255 in `wf` and `stream`, 0 elsewhere. An ordinary access (a GEMM's load) belongs to no workgroup: wg -1.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

EVENT = np.dtype([
    ("cycle", np.int64), ("address", np.uint64),
    ("wg", np.int32), ("amount", np.int32),  # workgroup; bytes
    ("a", np.int32), ("b", np.int32), ("c", np.int32), ("flags", np.uint32),
    ("unit", np.uint16),  # which of the kind's units: a channel, a bank, a compute unit ...
    ("kind", np.uint8), ("device", np.uint8), ("wf", np.uint8), ("region", np.uint8), ("source", np.uint8),
    ("op", np.uint8), ("stream", np.uint8), ("reason", np.uint8)])


class Kind(IntEnum):
    DISPATCH = 1
    STAGE = 2
    BLOCKED = 3
    ENTER = 4
    DECIDE = 5
    DRAM = 6
    SERVE = 7
    REPORT = 8
    UPDATE = 9
    FULL = 10
    TRIGGER = 11
    READY = 12
    ISSUE = 13
    LINE = 14
    WALKED = 15
    PACKET = 16
    ARRIVE = 17
    EVENT = 18
    WAITING = 19


@dataclass(frozen=True)
class Meaning:
    """One kind: what it says, what its unit is, and its fields a, b, c and flags."""

    text: str
    unit: str
    a: str = ""
    b: str = ""
    c: str = ""
    flags: str = ""
    rtl: bool = True  #: read from the RTL's signals, else from the models


MEANINGS = {
    Kind.DISPATCH: Meaning("a workgroup starts", "compute unit", "tiles that the Tracker will follow", rtl=False),
    Kind.STAGE: Meaning("a compute unit does something else", "compute unit", "what it did", "what it does now",
                        rtl=False),
    Kind.BLOCKED: Meaning("the dispatch window holds a workgroup back from here on", "", "window head",
                          "window head of the device downstream"),
    Kind.ENTER: Meaning("a request enters a channel's front end", "channel",
                        b="requests behind it in the model's queue"),
    Kind.DECIDE: Meaning("the arbiter grants a request, or why it holds one changes", "channel",
                         "DRAM queue entries, the one on its way included", "MCA's threshold, 127: none",
                         "starvation counter, cycles", "CONDITIONS"),
    Kind.DRAM: Meaning("a row command of the DRAM", "channel", "bank, -1: all", "row", rtl=False),
    Kind.SERVE: Meaning("the DRAM has performed a request", "channel", "DRAM queue entries left", rtl=False),
    Kind.REPORT: Meaning("an update leaves a channel's coalescer for the Tracker", "channel"),
    Kind.UPDATE: Meaning("a Tracker bank counts an update", "bank", "count after it, bytes", "threshold, bytes",
                         "way, -1: none needed", "UPDATE_FLAGS"),
    Kind.FULL: Meaning("an update waits from here on: its set has no free way", "bank"),
    Kind.TRIGGER: Meaning("a complete tile leaves the Tracker", "", "1: to the DMA table, 0: out as an event"),
    Kind.READY: Meaning("a DMA block is complete and its command waits", "", "commands that waited before it"),
    Kind.ISSUE: Meaning("a DMA engine takes a command", "engine", "commands that waited, this one included"),
    Kind.LINE: Meaning("a DMA engine asks for a line", "engine"),
    Kind.WALKED: Meaning("a DMA engine has asked for the last line of a command", "engine"),
    Kind.PACKET: Meaning("a packet goes onto the link; ids and address are the destination's", "lane",
                         "destination device", "cycles until it is on the link"),
    Kind.ARRIVE: Meaning("a packet has come over the link and joins a channel's inbound queue", "channel",
                         b="requests ahead of it there", rtl=False),
    Kind.EVENT: Meaning("a complete tile of the last ring position is announced", ""),
    Kind.WAITING: Meaning("where a request was when the recording ended", "channel", "position in the queue", "QUEUES",
                          rtl=False),
}

NAMES = {kind.name.lower(): kind for kind in Kind}
OPS = ("read", "store", "update")
SOURCES = ("local", "remote", "dma")
STREAMS = ("compute", "inbound", "dma")
NO_STREAM = 255
DRAM_OPS = ("", "activate", "precharge", "refresh")
QUEUES = ("compute queue", "inbound queue", "link", "stores for the link", "DMA data for the link", "DRAM queue")


class Reason(IntEnum):
    """Why the arbiter granted a stream or, with stream 255, none."""

    IDLE = 0
    ALONE = 1
    TURN = 2
    COMPUTE_FIRST = 3
    BELOW = 4
    NO_THRESHOLD = 5
    STARVED = 6
    DRAIN = 7
    OUTPUT_BUSY = 8
    GUARD = 9
    COALESCER = 10
    OCCUPANCY = 11
    CLEARING = 12
    RING_LATE = 13


REASONS = {
    Reason.IDLE: "nothing waits",
    Reason.ALONE: "no other stream has a request that can go",
    Reason.TURN: "round robin: the other stream went last",
    Reason.COMPUTE_FIRST: "compute goes first",
    Reason.BELOW: "compute is empty and the DRAM queue is below the threshold",
    Reason.NO_THRESHOLD: "compute is empty and no threshold is set",
    Reason.STARVED: "communication has waited for the starvation limit",
    Reason.DRAIN: "the producer has ended: communication goes first",
    Reason.OUTPUT_BUSY: "the DRAM queue is full",
    Reason.GUARD: "the DMA read waits for a write of its bucket that the DRAM queue still holds",
    Reason.COALESCER: "a tracked access finds the coalescer blocked by the Tracker",
    Reason.OCCUPANCY: "the DRAM queue is not below the threshold",
    Reason.CLEARING: "the order guard is being cleared after reset",
    Reason.RING_LATE: "the ring is behind the GEMM: the streams take turns",
}

#: Bits of a DECIDE event's flags, from bit 2; bits 0 and 1 are the policy.
CONDITIONS = ("drain", "compute_able", "communication_able", "communication_waiting", "ready", "grant_compute",
              "grant_communication", "starved", "last_communication", "compute_there", "inbound_there",
              "dma_there", "access_ready", "take_dma", "dma_able", "inbound_able", "guard_ready",
              "output_busy", "update_reported", "ring_late")
POLICIES = ("round_robin", "compute_first", "mca", "ring_aware")  #: rtl.arbiter.POLICIES
ALLOCATED, COMPLETE, EXCEEDS, REFUSED = 1, 2, 4, 8  #: flags of an UPDATE event
UPDATE_FLAGS = {ALLOCATED: "allocated", COMPLETE: "complete", EXCEEDS: "exceeds the threshold",
                REFUSED: "region is not tracked"}


def conditions(flags: int) -> dict[str, bool]:
    """What a DECIDE event's arbiter saw."""
    return {name: bool(flags >> (2 + bit) & 1) for bit, name in enumerate(CONDITIONS)}
