"""Why a channel's arbiter granted this request in a cycle and not that one, under whichever policy."""

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.rtl.arbiter import OVERTAKEN_AT
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.trace.schema import (
    NO_STREAM,
    POLICY_REASONS,
    REASONS,
    STREAMS,
    Kind,
    Reason,
    conditions,
    policy_of,
    waits_of,
)
from t3sim.trace.store import Trace
from t3sim.trace.words import Answer, access, plural, reason

COMPUTE, INBOUND, DMA = range(3)


def explain_channel(trace: Trace, channel: int, cycle: int, device: int = 0) -> Answer:
    """Explain a decision of a channel's arbiter.

    Raises BadInput if there is no such channel, or if the trace does not hold all that it did.
    """
    _check(trace, channel, cycle, device)
    mine = trace.of(None, device)
    mine = mine[mine["unit"] == channel]
    decisions = mine[mine["kind"] == Kind.DECIDE]
    answer = Answer(f"GPU {trace.run['numbers'][device]}, channel {channel}, cycle {cycle:,}")
    index = int(np.searchsorted(decisions["cycle"], cycle, "right")) - 1
    if index < 0:
        answer.conclude("Nothing has been decided on this channel since the recording began.")
        return answer
    now = decisions[index]
    saw, fresh = conditions(int(now["flags"])), int(now["cycle"]) == cycle
    if now["stream"] != NO_STREAM and not fresh:  # a decision that stands is recorded when it changes
        answer.conclude("Nothing was granted: no stream had a request.")
        return answer
    offers = {stream: _head(mine, stream, cycle) for stream in range(len(STREAMS)) if saw[f"{STREAMS[stream]}_there"]}
    for stream, name in enumerate(STREAMS):
        answer.tell(cycle, f"{name:8} {_offer(offers, stream)}")
    waited = int(waits_of(decisions)[index]) + (cycle - int(now["cycle"]) if saw["communication_waiting"] else 0)
    answer.tell(cycle, _state(trace, now, saw, waited))
    if saw["ring_late"] and "ring_late" in policy_of(int(now["flags"])).goes_by:
        answer.tell(cycle, "communication is behind: compute requests have overtaken it in this channel "
                    f"{OVERTAKEN_AT:,} times, and it has not caught up since" if saw["overtaken"]
                    else _lateness(trace, device, cycle))
    if now["stream"] == NO_STREAM:
        since = "" if fresh else f" (since cycle {int(now['cycle']):,})"
        answer.conclude(f"Nothing was granted: {reason(now)}{since}.")
    else:
        answer.conclude(f"Granted: {STREAMS[now['stream']]}, {access(now)}. Why: {reason(now)}.")
    why = {stream: _why_not(stream, now, saw) for stream in offers if stream != now["stream"]}
    answer.conclude(*(f"Not {STREAMS[stream]}: {text}." for stream, text in why.items() if text != reason(now)))
    return answer


def _check(trace: Trace, channel: int, cycle: int, device: int) -> None:
    trace.check_device(device)
    channels, selection = trace.run["geometry"]["channels"], trace.run["filter"]
    if not 0 <= channel < channels:
        raise BadInput(f"channel = {channel} does not exist: this run has 0 to {channels - 1}")
    first, last = trace.window
    if not first <= cycle < last:
        raise BadInput(f"cycle = {cycle} is not in the recording, which has {first} to {last - 1}")
    if (selection["kinds"] is not None and "decide" not in selection["kinds"] or selection["wgs"] is not None
            or selection["channels"] is not None and channel not in selection["channels"]):
        raise BadInput(f"this trace does not hold every decision of channel {channel}: record it without a choice of "
                       "workgroups, and with kind = decide,enter if with a choice of kinds")


def _state(trace: Trace, now, saw: dict[str, bool], waited: int) -> str:
    """Describe what the policy goes by; `waited`: cycles that communication has."""
    policy, entries = policy_of(int(now["flags"])), trace.run["geometry"]["queue_entries"]
    parts = [f"policy {policy.name}, {plural(now['a'], 'request')} in or on the way to the DRAM queue of {entries}"]
    if policy.has_threshold:
        parts[0] += f" (threshold {'none' if now['b'] == NO_THRESHOLD else now['b']})"
    if policy.ends_starvation:
        limit = trace.run["starvation_limit"]
        parts.append(f"communication has waited {plural(waited, 'cycle')} (starvation limit {limit or 'none'}"
                     f"{', reached' if saw['starved'] else ''})")
    if "drain" in policy.goes_by:
        parts.append(f"the producer {'has ended' if saw['drain'] else 'runs'}")
    if "last_communication" in policy.goes_by:
        parts.append(f"the last grant went to {'communication' if saw['last_communication'] else 'compute'}")
    return ", ".join(parts)


def _lateness(trace: Trace, device: int, cycle: int) -> str:
    late = trace.of(Kind.LATE, device)
    late = late[late["cycle"] <= cycle]
    if not len(late):
        return "communication is behind the GEMM since before the recording"
    return (f"communication is behind the GEMM since cycle {int(late['cycle'][-1]):,}: more workgroups "
            f"({late['b'][-1]}) had started since a command last did not wait than a stage has ({late['c'][-1]})")


def _offer(offers: dict, stream: int) -> str:
    if stream not in offers:
        return "has nothing"
    if offers[stream] is not None:
        return f"offers {access(offers[stream])}"
    return "offers a request that the recording does not name"


def _why_not(stream: int, now, saw: dict[str, bool]) -> str:
    """Say why a stream that has a request was not granted."""
    able = {COMPUTE: saw["compute_able"], INBOUND: saw["inbound_able"], DMA: saw["dma_able"]}[stream]
    rival = now["stream"]
    if not able:
        why = REASONS[Reason.GUARD if stream == DMA else Reason.COALESCER]
    elif rival == NO_STREAM or now["reason"] == Reason.WRONG:
        why = reason(now)
    elif COMPUTE not in (stream, rival):
        why = "inbound and DMA requests take turns, and this stream went last"
    else:
        _, chosen = POLICY_REASONS[int(now["reason"])]
        why = chosen.loser or chosen.text
    return why


def _head(mine: np.ndarray, stream: int, cycle: int):
    """Return the oldest request of a stream that entered and was not granted before `cycle`; None: not known."""
    granted = mine[(mine["kind"] == Kind.DECIDE) & (mine["stream"] == stream)]
    later = granted[granted["cycle"] >= cycle]
    if len(later):  # streams keep their order: the next to be granted is the oldest
        return later[0]
    entered = mine[(mine["kind"] == Kind.ENTER) & (mine["stream"] == stream) & (mine["cycle"] < cycle)]
    last = np.flatnonzero(entered["address"] == granted["address"][-1]) if len(granted) else []
    behind = entered[last[-1] + 1:] if len(last) else entered if not len(granted) else entered[:0]
    return behind[0] if len(behind) else None
