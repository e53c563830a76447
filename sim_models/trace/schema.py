"""The events of a trace: one record layout, and one place that names every kind and what its fields hold.

An event says what happened in memory cycle `cycle` of `device`. Fields that a kind does not use are -1 in `wg`, `a`,
`b` and `c`, 255 in `wf` and `stream`, 0 elsewhere. An ordinary access (a GEMM's load) belongs to no workgroup: wg -1.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import numpy as np

from t3sim.rtl import arbiter
from t3sim.rtl.arbiter import COMMUNICATION, COMPUTE, View
from t3sim.rtl.registers import NO_THRESHOLD

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
    LATE = 20
    MERGE = 21


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


_PART = "which part of its tile the workgroup makes, -1: all of it"
MEANINGS = {
    Kind.DISPATCH: Meaning("a workgroup starts", "compute unit", "tiles that the Tracker will follow; -1: the unit is "
                           "not known", c=_PART, rtl=False),
    Kind.STAGE: Meaning("a compute unit's workgroup enters another state, such as load, compute or store",
                        "compute unit", "state before, -1: was not recorded", "state now", _PART, rtl=False),
    Kind.BLOCKED: Meaning("the dispatch window begins to hold a workgroup back", "", "window head",
                          "window head of the peer that is furthest behind", _PART),
    Kind.ENTER: Meaning("a request enters a channel's front end", "channel"),
    Kind.DECIDE: Meaning("the arbiter grants a request, or the reason for holding one changes", "channel",
                         "DRAM queue entries, the one on its way included", f"threshold, {NO_THRESHOLD}: none",
                         "cycles since communication last went, at most its limit",
                         "CONDITIONS, and the policy's code from bit 24"),
    Kind.LATE: Meaning("communication falls behind the GEMM, or catches up", "", "1: it has fallen behind",
                       "workgroups started since no command waited", "workgroups of a stage"),
    Kind.DRAM: Meaning("a row command of the DRAM", "channel", "bank, -1: all", "row", rtl=False),
    Kind.SERVE: Meaning("the DRAM has performed a request", "channel", "DRAM queue entries left", rtl=False),
    Kind.REPORT: Meaning("an update leaves a channel's coalescer for the Tracker", "channel"),
    Kind.UPDATE: Meaning("a Tracker bank counts an update", "bank", "count after it, bytes", "threshold, bytes",
                         "way, -1: none needed", "ALLOCATED | COMPLETE | EXCEEDS | REFUSED"),
    Kind.FULL: Meaning("the Tracker refuses an update, because its set has no free way or its region does not belong "
                       "to its tile", "bank", "0: no free way, 1: wrong region"),
    Kind.TRIGGER: Meaning("a complete tile leaves the Tracker", "", "TRIGGERS_GO"),
    Kind.READY: Meaning("a DMA block is complete and its command waits", "", "commands that waited before it"),
    Kind.ISSUE: Meaning("a DMA engine takes a command", "engine", "commands that waited, this one included"),
    Kind.LINE: Meaning("a DMA engine asks for a line", "engine"),
    Kind.WALKED: Meaning("a DMA engine has reached the last line of a command", "engine"),
    Kind.PACKET: Meaning("a packet goes onto the link; ids and address are the destination's",
                         "lane; of a collective alone the GPU's link",
                         "destination GPU", "cycles until it is on its link"),
    Kind.ARRIVE: Meaning("a packet has come over the link and joins a channel's inbound queue", "channel",
                         b="requests ahead of it there", c="parts of a sum that it is; -1: no switch adds",
                         rtl=False),
    Kind.EVENT: Meaning("the completion of a tile that stays here is announced", ""),
    Kind.MERGE: Meaning("in the cycle before, the switch's merge table for this GPU took a part of a sum, or an "
                        "incomplete sum left it", "GPU whose part it is", "parts of the line that it has taken",
                        flags="MERGES"),
    Kind.WAITING: Meaning("where a request was when the recording ended", "channel", "position in the queue", "QUEUES",
                          "destination GPU of what is on a link", rtl=False),
}

NAMES = {kind.name.lower(): kind for kind in Kind}
OPS = ("read", "store", "update")
READ = OPS.index("read")
#: Bits of a MERGE event's flags, as of `t3sim.rtl.switch.packets.merge_event`.
MERGES = ("begins a sum", "joins its sum", "completes its sum", "is refused", "makes room: a sum leaves",
          "waited too long: a sum leaves")
SOURCES = ("local", "remote", "dma", "copy")  #: copy: reads for a copy of the command queue, inside one GPU
STREAMS = ("compute", "inbound", "dma")
NO_STREAM = NO_WAVEFRONT = 255
ALONE = -1  #: part of a workgroup that makes its tile by itself
TRIGGERS_GO = ("out as an event", "to the DMA table", "out of the bank")
DRAM_OPS = ("", "activate", "precharge", "refresh")
QUEUES = ("compute queue", "inbound queue", "link", "stores for the link", "DMA data for the link", "DRAM queue",
          "link from the switch")
ON_LINKS = ("link", "link from the switch")  #: of which requests have the names that they have at their destination
CHANNEL_QUEUES = ("compute queue", "inbound queue", "DRAM queue")  #: of which every channel has one


class Reason(IntEnum):
    """Why the arbiter granted a stream or, with stream 255, none, where that is not its policy's choice.

    What a policy chose has a code from `FIRST_POLICY_REASON` on, in the order of `t3sim.rtl.arbiter.POLICIES`.
    """

    IDLE = 0
    OUTPUT_BUSY = 1
    GUARD = 2
    COALESCER = 3
    CLEARING = 4
    WRONG = 5
    DECIDED = 6  #: only until the events are written (`give_reasons`)


FIRST_POLICY_REASON = 16
POLICIES = tuple(arbiter.POLICIES.values())  #: by code
#: (code of the policy, its reason) by code of a DECIDE event.
POLICY_REASONS = dict(enumerate(((policy.code, reason) for policy in POLICIES for reason in policy.reasons),
                                FIRST_POLICY_REASON))
_REASON_CODES = {entry: code for code, entry in POLICY_REASONS.items()}
REASONS = {
    Reason.IDLE: "nothing waits",
    Reason.OUTPUT_BUSY: "the DRAM queue is full",
    Reason.GUARD: "the DMA read waits for a write of its bucket that the DRAM queue still holds",
    Reason.COALESCER: "a tracked access finds the coalescer blocked by the Tracker",
    Reason.CLEARING: "the order guard is being cleared after reset",
    Reason.WRONG: "no reason: by its policy the arbiter should have decided otherwise",
    **{code: reason.text for code, (_, reason) in POLICY_REASONS.items()},
}

#: Bits of a DECIDE event's flags.
CONDITIONS = ("drain", "compute_able", "communication_able", "communication_waiting", "ready", "grant_compute",
              "grant_communication", "starved", "last_communication", "compute_there", "inbound_there",
              "dma_there", "access_ready", "take_dma", "dma_able", "inbound_able", "guard_ready",
              "output_busy", "update_reported", "ring_late", "overtaken")
POLICY_AT = 24  #: lowest bit of the policy's code in a DECIDE event's flags
_OCCUPANCY_AT, _THRESHOLD_AT = 32, 40  #: beside the flags in a key of `give_reasons`; both have 8 bits
ALLOCATED, COMPLETE, EXCEEDS, REFUSED = 1, 2, 4, 8  #: flags of an UPDATE event
UPDATE_MARKS = {ALLOCATED: "allocated", COMPLETE: "FIRES", EXCEEDS: "EXCEEDS", REFUSED: "REFUSED"}


def conditions(flags: int) -> dict[str, bool]:
    """Return what a DECIDE event's arbiter saw."""
    return {name: bool(flags >> bit & 1) for bit, name in enumerate(CONDITIONS)}


def waits_of(decisions: np.ndarray) -> np.ndarray:
    """Return how many cycles communication had waited at each of a channel's DECIDE events, of which none is left out.

    A wait begins with a request, or after a grant, and not before the recording.
    """
    waiting, went = (decisions["flags"] >> CONDITIONS.index(name) & 1 == 1
                     for name in ("communication_waiting", "grant_communication"))
    begins = waiting.copy()
    begins[1:] &= ~waiting[:-1] | went[:-1]
    since = np.maximum.accumulate(np.where(begins, decisions["cycle"], 0))
    return np.where(waiting, decisions["cycle"] - since, 0)


def policy_of(flags: int) -> arbiter.Policy:
    """Return the policy under which a DECIDE event's arbiter decided."""
    return POLICIES[flags >> POLICY_AT]


def give_reasons(events: np.ndarray) -> None:
    """Replace `Reason.DECIDED` in EVENT[n] by what the policy says, in place."""
    decided = np.flatnonzero((events["kind"] == Kind.DECIDE) & (events["reason"] == Reason.DECIDED))
    if not len(decided):
        return
    mine = events[decided]
    keys = (mine["flags"].astype(np.int64) | mine["a"].astype(np.int64) << _OCCUPANCY_AT
            | mine["b"].astype(np.int64) << _THRESHOLD_AT)
    different, which = np.unique(keys, return_inverse=True)
    events["reason"][decided] = np.array([_reason(key) for key in different.tolist()], np.uint8)[which]


@cache
def _reason(key: int) -> int:
    """Return the code of the policy's reason; WRONG if by its policy the arbiter should have decided otherwise."""
    flags, occupancy, threshold = key & (1 << _OCCUPANCY_AT) - 1, key >> _OCCUPANCY_AT & 255, key >> _THRESHOLD_AT
    saw, policy = conditions(flags), policy_of(flags)
    granted = COMPUTE if saw["grant_compute"] else COMMUNICATION if saw["grant_communication"] else None
    expected, reason = policy.decide(View(
        saw["compute_able"], saw["communication_able"], saw["last_communication"], occupancy, threshold,
        saw["ring_late"], saw["starved"], saw["drain"]))
    return _REASON_CODES[policy.code, reason] if granted == expected else Reason.WRONG
