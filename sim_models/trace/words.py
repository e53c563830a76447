"""An event, and what it is about, in words."""

from collections.abc import Callable

from t3sim.gpu.agents.units.state import STATES
from t3sim.trace import schema
from t3sim.trace.schema import NO_STREAM, NO_WAVEFRONT, Kind


def plural(count: int, noun: str) -> str:
    """Write a number of things: `1 packet`, `2,000 packets`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def joined(parts: list[str]) -> str:
    """Write a list in words: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def owner(e) -> str:
    """Write `wg 37 wf 2`; empty for an access without workgroup."""
    if e["wg"] < 0:
        return ""
    return f"wg {e['wg']}" + (f" wf {e['wf']}" if e["wf"] != NO_WAVEFRONT else "")


def workgroup(e) -> str:
    """Write `wg 37`, or `wg 37 part 2` where several workgroups make the tile; of events about a workgroup."""
    return owner(e) + (f" part {e['c']}" if e["c"] >= 0 else "")


def access(e) -> str:
    """Write `update of 64 B at 0x1040, wg 37 wf 2`; an arbiter alone does not see requests."""
    if not e["amount"]:
        return "a request"
    text = f"{schema.OPS[e['op']]} of {e['amount']} B at {int(e['address']):#x}"
    return f"{text}, {owner(e)}" if owner(e) else text


def reason(e) -> str:
    """Say why a DECIDE event went as it did."""
    return schema.REASONS[int(e["reason"])]


def state(code: int) -> str:
    """Say what a compute unit does; -1 is what it did before the recording."""
    return STATES[code].replace("_", " ") if code >= 0 else "?"


def place(e) -> str:
    """Say where a WAITING event's request was: `inbound queue of channel 3`."""
    queue = schema.QUEUES[e["b"]]
    return f"{queue} of channel {e['unit']}" if queue in schema.CHANNEL_QUEUES else queue


def _decision(e) -> str:
    granted = "nothing" if e["stream"] == NO_STREAM else f"{schema.STREAMS[e['stream']]}: {access(e)}"
    return f"channel {e['unit']} grants {granted} ({reason(e)})"


def _row_command(e) -> str:
    bank = "" if e["a"] < 0 else f" bank {e['a']}" + (f" row {e['b']}" if e["b"] >= 0 else "")
    return f"channel {e['unit']} {schema.DRAM_OPS[e['op']]}{bank}"


def _update(e) -> str:
    marks = [word for bit, word in schema.UPDATE_MARKS.items() if int(e["flags"]) & bit]
    return (f"bank {e['unit']}: {owner(e)} + {e['amount']} B {schema.SOURCES[e['source']]} = {e['a']}/{e['b']}"
            + "".join(f", {mark}" for mark in marks))


def _merge(e) -> str:
    what = next(text for bit, text in enumerate(schema.MERGES) if int(e["flags"]) >> bit & 1)
    line = f"line {int(e['address']):#x}"
    if "leaves" in what:
        return f"switch, {line}: {what}, {e['a']} of its parts have come"
    return f"switch, {line}: part {e['a']}, of device {e['unit']}, {what}"


_DESCRIBE: dict[Kind, Callable[[object], str]] = {
    Kind.DISPATCH: lambda e: f"{workgroup(e)} starts" + (f" on compute unit {e['unit']}" if e["a"] >= 0 else ""),
    Kind.STAGE: lambda e: f"unit {e['unit']}, {workgroup(e)}: {state(e['a'])} -> {state(e['b'])}",
    Kind.BLOCKED: lambda e: f"the window holds {workgroup(e)} back: heads {e['a']} here, {e['b']} there",
    Kind.ENTER: lambda e: f"channel {e['unit']} {schema.STREAMS[e['stream']]}: {access(e)}",
    Kind.DECIDE: _decision,
    Kind.LATE: lambda e: (f"communication is {'behind' if e['a'] else 'no longer behind'}: {e['b']} workgroups started "
                          f"since no command waited, a stage has {e['c']}"),
    Kind.DRAM: _row_command,
    Kind.SERVE: lambda e: f"channel {e['unit']} has done: {access(e)}",
    Kind.REPORT: lambda e: f"channel {e['unit']} reports {e['amount']} B for {owner(e)}",
    Kind.UPDATE: _update,
    Kind.FULL: lambda e: f"bank {e['unit']}: an update of {owner(e)} is REFUSED, " + (
        f"region {e['region']} is not its tile's" if e["a"] == 1 else "its set is full"),
    Kind.TRIGGER: lambda e: f"trigger of {owner(e)} {schema.TRIGGERS_GO[e['a']]}",
    Kind.READY: lambda e: f"DMA command of {owner(e)} ready, {e['a']} before it",
    Kind.ISSUE: lambda e: f"engine {e['unit']} takes the command of {owner(e)}",
    Kind.LINE: lambda e: f"engine {e['unit']} asks for {int(e['address']):#x}, {owner(e)}",
    Kind.WALKED: lambda e: f"engine {e['unit']} has walked to the last line of {owner(e)}",
    Kind.PACKET: lambda e: f"{'lane' if e['region'] else 'link'} {e['unit']}: {access(e)} of device {e['a']}",
    Kind.ARRIVE: lambda e: f"arrives for channel {e['unit']}: {access(e)}",
    Kind.EVENT: lambda e: f"final tile {owner(e)} announced",
    Kind.MERGE: _merge,
    Kind.WAITING: lambda e: f"at the end in the {place(e)}, {e['a']} before it: {access(e)}",
}


def describe(e) -> str:
    """Say what an event says; device and cycle are left to the reader's column headings."""
    return _DESCRIBE[Kind(int(e["kind"]))](e)
