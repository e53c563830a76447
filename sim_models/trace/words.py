"""An event in one line of words."""

from ..gemm import STATES
from .schema import (
    ALLOCATED,
    COMPLETE,
    DRAM_OPS,
    EXCEEDS,
    NO_STREAM,
    OPS,
    QUEUES,
    REASONS,
    REFUSED,
    SOURCES,
    STREAMS,
    Kind,
    Reason,
)


def owner(e) -> str:
    """`wg 37 wf 2`; empty for an access without workgroup."""
    if e["wg"] < 0:
        return ""
    return f"wg {e['wg']}" + (f" wf {e['wf']}" if e["wf"] != 255 else "")


def access(e) -> str:
    """`update of 64 B at 0x1040, wg 37 wf 2`."""
    text = f"{OPS[e['op']]} of {e['amount']} B at {int(e['address']):#x}"
    return f"{text}, {owner(e)}" if owner(e) else text


def describe(e) -> str:
    """What an event says; device and cycle are left to the reader's column headings."""
    kind, tile = Kind(int(e["kind"])), owner(e)
    if kind == Kind.DISPATCH:
        return f"{tile} starts on compute unit {e['unit']}"
    if kind == Kind.STAGE:
        return f"unit {e['unit']}, {tile}: {STATES[e['a']]} -> {STATES[e['b']]}".replace("_", " ")
    if kind == Kind.BLOCKED:
        return f"the window holds {tile} back: heads {e['a']} here, {e['b']} downstream"
    if kind == Kind.ENTER:
        return f"channel {e['unit']} {STREAMS[e['stream']]}: {access(e)}"
    if kind == Kind.DECIDE:
        granted = f"grants {STREAMS[e['stream']]}: {access(e)}" if e["stream"] != NO_STREAM else "grants nothing"
        return f"channel {e['unit']} {granted} ({REASONS[Reason(int(e['reason']))]})"
    if kind == Kind.DRAM:
        place = "" if e["a"] < 0 else f" bank {e['a']}" + (f" row {e['b']}" if e["b"] >= 0 else "")
        return f"channel {e['unit']} {DRAM_OPS[e['op']]}{place}"
    if kind == Kind.SERVE:
        return f"channel {e['unit']} has done: {access(e)}"
    if kind == Kind.REPORT:
        return f"channel {e['unit']} reports {e['amount']} B for {tile}"
    if kind == Kind.UPDATE:
        flags = int(e["flags"])
        marks = [word for bit, word in ((ALLOCATED, "allocated"), (COMPLETE, "FIRES"), (EXCEEDS, "EXCEEDS"),
                                        (REFUSED, "REFUSED")) if flags & bit]
        return (f"bank {e['unit']}: {tile} + {e['amount']} B {SOURCES[e['source']]} = {e['a']}/{e['b']}"
                + (f", {', '.join(marks)}" if marks else ""))
    if kind == Kind.FULL:
        return f"bank {e['unit']}: {tile} waits, its set is full"
    if kind == Kind.TRIGGER:
        return f"trigger of {tile} " + ("to the DMA table" if e["a"] else "out as an event")
    if kind == Kind.READY:
        return f"DMA command of {tile} ready behind {e['a']}"
    if kind == Kind.ISSUE:
        return f"engine {e['unit']} takes the command of {tile}"
    if kind == Kind.LINE:
        return f"engine {e['unit']} asks for {int(e['address']):#x}, {tile}"
    if kind == Kind.WALKED:
        return f"engine {e['unit']} has asked for all of {tile}"
    if kind == Kind.PACKET:
        return f"lane {e['unit']}: {access(e)} of device {e['a']}"
    if kind == Kind.ARRIVE:
        return f"arrives for channel {e['unit']}: {access(e)}"
    if kind == Kind.EVENT:
        return f"final tile {tile} announced"
    return f"at the end in the {QUEUES[e['b']]} of unit {e['unit']}, behind {e['a']}: {access(e)}"
