"""Loop of the event level: messages as flows that share resources fairly, all state in arrays.

A message waits a step's time, moves its bytes, waits its route's latency, and releases its dependents. Rates are
max-min fair (progressive filling), and are computed again only for flows that share a resource, directly or through
others, with a flow that starts or ends. Movers are messages, then last additions; pending events are in a heap by time.
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled, inlined, unlocked

#: What is pending of a mover: its bytes begin to move, all it lets go is let go, the first of its flows ends.
START, ARRIVE, END = range(3)
#: Why the loop returns.
IDLE, ENDED, FULL, CHANGED = range(4)
#: Places in `FlowState.number`.
PENDING, FREE, MESSAGES, DIRTY, STAMP, ROUND, ARRIVED, WATCH, COMPONENT_FLOWS, ENDS = range(10)
#: Places in `FlowState.time`.
NOW, STEP, LAST_WRITES = range(3)

_ROUNDING = 1e-6  #: bytes that are left of a flow for rounding's sake


class FlowState(NamedTuple):
    """All of a run; lists are ranges of a flat array, from `..._first[i]` to `..._first[i + 1]`."""

    number: np.ndarray
    time: np.ndarray
    # Transfers.
    kind: np.ndarray
    size: np.ndarray
    addition: np.ndarray  # of which it is a part, -1: none
    counts_first: np.ndarray  # the sets whose members it is
    counts: np.ndarray
    next: np.ndarray  # of the same message, -1: none
    play: np.ndarray  # collective of a transfer, then of a last addition
    unfinished: np.ndarray  # transfers and last additions of a collective
    # Sets of transfers for which others wait.
    missing: np.ndarray
    frees_first: np.ndarray  # the transfers that wait for all of it
    frees: np.ndarray
    # Kinds of messages: who sends to whom, and what that uses.
    uses_first: np.ndarray
    uses: np.ndarray  # resources
    weight: np.ndarray  # bytes of each per byte of the message: whole numbers, of which sums are exact
    latency: np.ndarray
    newest: np.ndarray  # message of the kind
    cause: np.ndarray  # message whose arrival let that go, by its number, from 1
    # Last additions.
    parts: np.ndarray  # that are missing
    # Movers.
    mover_kind: np.ndarray
    bytes: np.ndarray
    left: np.ndarray
    rate: np.ndarray
    since: np.ndarray  # when bytes were left
    round: np.ndarray  # in which its rate was set
    entries: np.ndarray  # the first of a flow, -1: it is none
    mark: np.ndarray
    first: np.ndarray  # transfer of a message
    last: np.ndarray
    started: np.ndarray
    ended: np.ndarray
    order: np.ndarray  # messages as they arrive
    component_flows: np.ndarray  # flows of one component
    # Resources.
    capacity: np.ndarray
    flows: np.ndarray  # the first entry, -1: none
    load: np.ndarray
    room: np.ndarray
    settled_load: np.ndarray  # of flows that have their rates
    taken: np.ndarray  # bytes per ns of those
    seen: np.ndarray
    is_dirty: np.ndarray
    dirty: np.ndarray
    component_resources: np.ndarray
    # Entries: one per flow and resource.
    entry_flow: np.ndarray
    entry_resource: np.ndarray
    entry_weight: np.ndarray
    of_flow: np.ndarray  # the next of the same flow, or the next free one
    after: np.ndarray  # the next of the same resource
    before: np.ndarray
    # What is pending, a heap.
    due: np.ndarray
    what: np.ndarray
    mover: np.ndarray
    tag: np.ndarray


@inlined
def _sooner(s: FlowState, one: int, other: int) -> bool:
    if s.due[one] != s.due[other]:
        return s.due[one] < s.due[other]
    if s.mover[one] != s.mover[other]:
        return s.mover[one] < s.mover[other]
    return s.what[one] < s.what[other]


@inlined
def _swap(s: FlowState, one: int, other: int) -> None:
    s.due[one], s.due[other] = s.due[other], s.due[one]
    s.what[one], s.what[other] = s.what[other], s.what[one]
    s.mover[one], s.mover[other] = s.mover[other], s.mover[one]
    s.tag[one], s.tag[other] = s.tag[other], s.tag[one]


@compiled
def _sink(s: FlowState, place: int) -> None:
    while 2 * place + 1 < s.number[PENDING]:
        child = 2 * place + 1
        if child + 1 < s.number[PENDING] and _sooner(s, child + 1, child):
            child += 1
        if not _sooner(s, child, place):
            return
        _swap(s, place, child)
        place = child


@compiled
def _push(s: FlowState, due: float, what: int, mover: int, tag: int) -> None:
    place = s.number[PENDING]
    if place == s.due.shape[0]:  # drop ends of rounds that others have replaced: of those in force each has a flow
        kept = 0
        for one in range(place):
            if s.what[one] != END or s.round[s.mover[one]] == s.tag[one]:
                _swap(s, kept, one)
                kept += 1
        s.number[PENDING] = kept
        for one in range(kept // 2, -1, -1):
            _sink(s, one)
        place = kept
    s.due[place], s.what[place], s.mover[place], s.tag[place] = due, what, mover, tag
    s.number[PENDING] = place + 1
    while place and _sooner(s, place, (place - 1) // 2):
        _swap(s, place, (place - 1) // 2)
        place = (place - 1) // 2


@compiled
def _pop(s: FlowState) -> int:
    s.number[PENDING] -= 1
    _swap(s, 0, s.number[PENDING])
    _sink(s, 0)
    return s.number[PENDING]  # where it lies now


@inlined
def _soil(s: FlowState, resource: int) -> None:
    if not s.is_dirty[resource]:
        s.is_dirty[resource] = 1
        s.dirty[s.number[DIRTY]] = resource
        s.number[DIRTY] += 1


@compiled
def _leave(s: FlowState, transfer: int, cause: int) -> None:
    """Let a transfer go, in one message with others of its kind that the same arrival lets go."""
    kind = s.kind[transfer]
    message = s.newest[kind]
    if message < 0 or s.cause[kind] != cause:
        message = s.number[MESSAGES]
        s.number[MESSAGES] += 1
        s.newest[kind], s.cause[kind] = message, cause
        s.mover_kind[message], s.started[message] = kind, s.time[NOW]
        s.first[message] = transfer
        _push(s, s.time[NOW] + s.time[STEP], START, message, 0)
    else:
        s.next[s.last[message]] = transfer
    s.last[message] = transfer
    s.bytes[message] += s.size[transfer]


@inlined
def _end(s: FlowState, mover: int) -> None:
    wait = s.time[LAST_WRITES] if mover >= s.kind.shape[0] else s.latency[s.mover_kind[mover]]
    _push(s, s.time[NOW] + wait, ARRIVE, mover, 0)


@compiled
def _start(s: FlowState, mover: int) -> None:
    kind = s.mover_kind[mover]
    if s.bytes[mover] <= 0:
        _end(s, mover)
        return
    s.left[mover], s.rate[mover], s.since[mover] = s.bytes[mover], 0.0, s.time[NOW]
    for use in range(s.uses_first[kind], s.uses_first[kind + 1]):
        entry, resource = s.number[FREE], s.uses[use]
        s.number[FREE] = s.of_flow[entry]
        s.entry_flow[entry], s.entry_resource[entry], s.entry_weight[entry] = mover, resource, s.weight[use]
        s.of_flow[entry], s.entries[mover] = s.entries[mover], entry
        s.before[entry], s.after[entry] = -1, s.flows[resource]
        if s.flows[resource] >= 0:
            s.before[s.flows[resource]] = entry
        s.flows[resource] = entry
        _soil(s, resource)


@compiled
def _stop(s: FlowState, mover: int) -> None:
    """Take a flow's entries away."""
    entry = s.entries[mover]
    while entry >= 0:
        resource, before, after, following = (s.entry_resource[entry], s.before[entry], s.after[entry],
                                              s.of_flow[entry])
        if before >= 0:
            s.after[before] = after
        else:
            s.flows[resource] = after
        if after >= 0:
            s.before[after] = before
        _soil(s, resource)
        s.of_flow[entry] = s.number[FREE]
        s.number[FREE] = entry
        entry = following
    s.entries[mover], s.round[mover] = -1, -1


@compiled
def _spread(s: FlowState, stamp: int, flow_count: int, resource_count: int) -> int:
    """Find a component: all that share resources with its first flows or resources. Return how many of these it has."""
    flow, resource = 0, 0
    while flow < flow_count or resource < resource_count:
        if flow < flow_count:
            entry = s.entries[s.component_flows[flow]]
            while entry >= 0:
                other = s.entry_resource[entry]
                if s.seen[other] != stamp:
                    s.seen[other] = stamp
                    s.component_resources[resource_count] = other
                    resource_count += 1
                entry = s.of_flow[entry]
            flow += 1
        else:
            entry = s.flows[s.component_resources[resource]]
            while entry >= 0:
                other = s.entry_flow[entry]
                if s.mark[other] != stamp:
                    s.mark[other] = stamp
                    s.component_flows[flow_count] = other
                    flow_count += 1
                entry = s.after[entry]
            resource += 1
    s.number[COMPONENT_FLOWS] = flow_count
    return resource_count


@inlined
def _account(s: FlowState, flow: int) -> None:
    elapsed = s.time[NOW] - s.since[flow]
    if elapsed > 0:
        s.left[flow] = max(s.left[flow] - s.rate[flow] * elapsed, 0.0)
        s.since[flow] = s.time[NOW]


@inlined
def _hold(s: FlowState, flow: int, level: float) -> None:
    """Give a flow its rate, and count what it takes."""
    s.rate[flow] = level
    entry = s.entries[flow]
    while entry >= 0:
        s.settled_load[s.entry_resource[entry]] += s.entry_weight[entry]
        s.taken[s.entry_resource[entry]] += s.entry_weight[entry] * level
        entry = s.of_flow[entry]


@compiled
def _fill(s: FlowState, resource_count: int) -> None:
    """Find the rates of a component's flows: all grow alike until a resource is full, which holds those that use it."""
    for place in range(resource_count):
        resource = s.component_resources[place]
        s.room[resource], load, entry = s.capacity[resource], 0.0, s.flows[resource]
        while entry >= 0:
            load += s.entry_weight[entry]
            entry = s.after[entry]
        s.load[resource] = load
    for place in range(s.number[COMPONENT_FLOWS]):
        s.rate[s.component_flows[place]] = -1.0
    while True:
        level, used = np.inf, 0
        for place in range(resource_count):
            resource = s.component_resources[place]
            if s.load[resource] > 0:
                s.component_resources[used] = resource
                used += 1
                level = min(level, s.room[resource] / s.load[resource])
        resource_count = used
        if not resource_count:
            return
        for place in range(resource_count):
            resource = s.component_resources[place]
            if s.room[resource] <= level * s.load[resource] * (1 + 1e-12):  # full, but for rounding
                entry = s.flows[resource]
                while entry >= 0:
                    if s.rate[s.entry_flow[entry]] < 0:
                        _hold(s, s.entry_flow[entry], level)
                    entry = s.after[entry]
                s.load[resource] = 0.0  # not what rounding leaves: nobody would ever take it
        for place in range(resource_count):
            resource = s.component_resources[place]
            s.room[resource] = max(s.room[resource] - s.taken[resource], 0.0)
            s.load[resource] -= s.settled_load[resource]
            s.taken[resource], s.settled_load[resource] = 0.0, 0.0


@compiled
def _settle(s: FlowState) -> None:
    """Find the rates of all that shares resources with what has changed, one component after the other."""
    s.number[STAMP] += 1
    stamp = s.number[STAMP]
    for place in range(s.number[DIRTY]):
        resource = s.dirty[place]
        s.is_dirty[resource] = 0
        if s.seen[resource] == stamp or s.flows[resource] < 0:
            continue
        s.seen[resource], s.component_resources[0] = stamp, resource
        resource_count = _spread(s, stamp, 0, 1)
        s.number[ROUND] += 1
        for one in range(s.number[COMPONENT_FLOWS]):
            _account(s, s.component_flows[one])
            s.round[s.component_flows[one]] = s.number[ROUND]
        _fill(s, resource_count)
        wait, soonest = np.inf, -1
        for one in range(s.number[COMPONENT_FLOWS]):
            flow = s.component_flows[one]
            if s.left[flow] / s.rate[flow] < wait:
                wait, soonest = s.left[flow] / s.rate[flow], flow
        _push(s, s.time[NOW] + wait, END, soonest, s.number[ROUND])
    s.number[DIRTY] = 0


@compiled
def _end_round(s: FlowState, first: int) -> None:
    """End a flow, and all of its component that would end within rounding of now."""
    s.number[STAMP] += 1
    s.mark[first], s.component_flows[0] = s.number[STAMP], first
    wait = s.time[NOW] - s.since[first]
    _spread(s, s.number[STAMP], 1, 0)
    for one in range(s.number[COMPONENT_FLOWS]):
        flow = s.component_flows[one]
        _account(s, flow)
        if flow == first or s.left[flow] <= _ROUNDING + 1e-9 * s.rate[flow] * wait:
            _stop(s, flow)
            _end(s, flow)


@inlined
def _finish(s: FlowState, part: int) -> None:
    s.unfinished[s.play[part]] -= 1
    s.number[ENDS] += not s.unfinished[s.play[part]]


@compiled
def _arrive(s: FlowState, message: int) -> None:
    s.ended[message] = s.time[NOW]
    s.order[s.number[ARRIVED]] = message
    s.number[ARRIVED] += 1
    transfer = s.first[message]
    while transfer >= 0:
        for place in range(s.counts_first[transfer], s.counts_first[transfer + 1]):
            of = s.counts[place]
            s.missing[of] -= 1
            if not s.missing[of]:
                for freed in range(s.frees_first[of], s.frees_first[of + 1]):
                    _leave(s, s.frees[freed], message + 1)
        addition = s.addition[transfer]
        if addition >= 0:
            s.parts[addition] -= 1
            if not s.parts[addition]:
                _push(s, s.time[NOW] + s.time[STEP], START, s.kind.shape[0] + addition, 0)
        _finish(s, transfer)
        transfer = s.next[transfer]


@inlined
def _has_room(s: FlowState, kind: int) -> bool:
    free = s.number[FREE]
    for _ in range(s.uses_first[kind], s.uses_first[kind + 1]):
        if free < 0:
            return False
        free = s.of_flow[free]
    return True


@unlocked
def begin(state: FlowState, transfers: np.ndarray, now: float) -> None:
    """Let transfers go that wait for nothing."""
    s = by_reference(state)
    s.time[NOW] = now
    for place in range(transfers.shape[0]):
        _leave(s, transfers[place], 0)


@unlocked
def run(state: FlowState, until: float) -> int:
    """Go on until a time, or until nothing is left to do (IDLE), or a collective has ended (ENDED).

    Or until there is no room for another flow's entries (FULL), or, if WATCH is set, rates have changed (CHANGED).
    """
    s = by_reference(state)
    while True:
        if not s.number[PENDING] or s.due[0] > s.time[NOW]:
            if s.number[DIRTY]:
                _settle(s)
                if s.number[WATCH]:
                    return CHANGED
                continue
            if s.number[ENDS]:
                s.number[ENDS] = 0
                return ENDED
            if not s.number[PENDING] or s.due[0] > until:
                return IDLE
        mover, what = s.mover[0], s.what[0]
        if what == START and not _has_room(s, s.mover_kind[mover]):
            return FULL
        place = _pop(s)
        if what == END and s.round[mover] != s.tag[place]:
            continue  # rates have changed since
        s.time[NOW] = s.due[place]
        if what == START:
            _start(s, mover)
        elif what == END:
            _end_round(s, mover)
        elif mover < s.kind.shape[0]:
            _arrive(s, mover)
        else:
            _finish(s, mover)
