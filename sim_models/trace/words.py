"""The vocabulary of explanations: events and roles of tiles in words, where requests are, and answers of all that."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from t3sim.gpu.setup import STATES
from t3sim.trace.output_map import TilePlace
from t3sim.trace.replay import DeviceReplay
from t3sim.trace.schema import (
    CHANNEL_QUEUES,
    DRAM_OPS,
    MERGES,
    NO_STREAM,
    NO_WAVEFRONT,
    ON_LINKS,
    OPS,
    QUEUES,
    READ,
    REASONS,
    SOURCES,
    STREAMS,
    TRIGGERS_GO,
    UPDATE_MARKS,
    Kind,
)
from t3sim.trace.store import Trace
from t3sim.trace.tile import Tile

_LOCAL, _REMOTE, _DMA = map(SOURCES.index, ("local", "remote", "dma"))
_DRAM_QUEUE, _ON_LINKS = QUEUES.index("DRAM queue"), [QUEUES.index(name) for name in ON_LINKS]


def plural(count: int, noun: str) -> str:
    """Write a number of things: `1 packet`, `2,000 packets`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def joined(parts: list[str]) -> str:
    """Write a list in words: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def devices(numbers: list[int]) -> str:
    """Write GPUs by their numbers: `GPU 3`, `GPUs 1, 2 and 3`."""
    return f"GPU{'' if len(numbers) == 1 else 's'} {joined(list(map(str, numbers)))}"


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
    text = f"{OPS[e['op']]} of {e['amount']} B at {int(e['address']):#x}"
    return f"{text}, {owner(e)}" if owner(e) else text


def reason(e) -> str:
    """Say why a DECIDE event went as it did."""
    return REASONS[int(e["reason"])]


def state(code: int) -> str:
    """Say what a compute unit does; -1 is what it did before the recording."""
    return STATES[code].replace("_", " ") if code >= 0 else "?"


def place(e) -> str:
    """Say where a WAITING event's request was: `inbound queue of channel 3`."""
    queue = QUEUES[e["b"]]
    return f"{queue} of channel {e['unit']}" if queue in CHANNEL_QUEUES else queue


def _decision(e) -> str:
    granted = "nothing" if e["stream"] == NO_STREAM else f"{STREAMS[e['stream']]}: {access(e)}"
    return f"channel {e['unit']} grants {granted} ({reason(e)})"


def _row_command(e) -> str:
    bank = "" if e["a"] < 0 else f" bank {e['a']}" + (f" row {e['b']}" if e["b"] >= 0 else "")
    return f"channel {e['unit']} {DRAM_OPS[e['op']]}{bank}"


def _update(e) -> str:
    marks = [word for bit, word in UPDATE_MARKS.items() if int(e["flags"]) & bit]
    return (f"bank {e['unit']}: {owner(e)} + {e['amount']} B {SOURCES[e['source']]} = {e['a']}/{e['b']}"
            + "".join(f", {mark}" for mark in marks))


def _merge(e) -> str:
    what = next(text for bit, text in enumerate(MERGES) if int(e["flags"]) >> bit & 1)
    line = f"line {int(e['address']):#x}"
    if "leaves" in what:
        return f"switch, {line}: {what}, {e['a']} of its parts have come"
    return f"switch, {line}: part {e['a']}, of GPU {e['unit']}, {what}"


_DESCRIBE: dict[Kind, Callable[[object], str]] = {
    Kind.DISPATCH: lambda e: f"{workgroup(e)} starts" + (f" on compute unit {e['unit']}" if e["a"] >= 0 else ""),
    Kind.STAGE: lambda e: f"unit {e['unit']}, {workgroup(e)}: {state(e['a'])} -> {state(e['b'])}",
    Kind.BLOCKED: lambda e: f"the window holds {workgroup(e)} back: heads {e['a']} here, {e['b']} there",
    Kind.ENTER: lambda e: f"channel {e['unit']} {STREAMS[e['stream']]}: {access(e)}",
    Kind.DECIDE: _decision,
    Kind.LATE: lambda e: (f"communication is {'behind' if e['a'] else 'no longer behind'}: {e['b']} workgroups started "
                          f"since no command waited, a stage has {e['c']}"),
    Kind.DRAM: _row_command,
    Kind.SERVE: lambda e: f"channel {e['unit']} has done: {access(e)}",
    Kind.REPORT: lambda e: f"channel {e['unit']} reports {e['amount']} B for {owner(e)}",
    Kind.UPDATE: _update,
    Kind.FULL: lambda e: f"bank {e['unit']}: an update of {owner(e)} is REFUSED, " + (
        f"region {e['region']} is not its tile's" if e["a"] == 1 else "its set is full"),
    Kind.TRIGGER: lambda e: f"trigger of {owner(e)} {TRIGGERS_GO[e['a']]}",
    Kind.READY: lambda e: f"DMA command of {owner(e)} ready, {e['a']} before it",
    Kind.ISSUE: lambda e: f"engine {e['unit']} takes the command of {owner(e)}",
    Kind.LINE: lambda e: f"engine {e['unit']} asks for {int(e['address']):#x}, {owner(e)}",
    Kind.WALKED: lambda e: f"engine {e['unit']} has walked to the last line of {owner(e)}",
    Kind.PACKET: lambda e: f"{'lane' if e['region'] else 'link'} {e['unit']}: {access(e)} of GPU {e['a']}",
    Kind.ARRIVE: lambda e: f"arrives for channel {e['unit']}: {access(e)}",
    Kind.EVENT: lambda e: f"final tile {owner(e)} announced",
    Kind.MERGE: _merge,
    Kind.WAITING: lambda e: f"at the end in the {place(e)}, {e['a']} before it: {access(e)}",
}


def describe(e) -> str:
    """Say what an event says; device and cycle are left to the reader's column headings."""
    return _DESCRIBE[Kind(int(e["kind"]))](e)


def extent(place: TilePlace) -> str:
    """Write which rows and columns a tile has."""
    return (f"rows {place.row} to {place.row + place.rows - 1}, columns {place.column} to "
            f"{place.column + max(place.columns, 1) - 1}")


def role(tile: Tile) -> str:
    """Write what a GPU does with a tile: `made here, added to what GPU 1 sends, final here`."""
    place, run = tile.place, tile.trace.run
    region = place.region or {}
    if run["around_a_ring"] and place.made and not region.get("present"):
        return f"ring position {place.position} of {run['devices']}"
    senders = others_of(tile)
    send = "send" if senders.startswith("GPUs") else "sends"
    if tile.before:
        parts = ["in memory from the start"]
    elif place.stored is not None:
        parts = [f"{plural(place.stored, 'column')} of it made here" if region.get("to") else
                 f"the sum of {plural(place.stored, 'column')} made here and what {senders} {send}"]
    elif not place.made:
        parts = [f"a copy of what {senders} {send}"]
    else:
        parts = ["made here" + (f" by {place.made} workgroups" if place.made > 1 else "")]
        if region.get("updates_per_element", 0) > 1 and tile.trace.map.fed_by(tile.id):
            parts.append(f"added to {senders}" if _switched(tile) else f"added to what {senders} {send}")
    if region.get("to"):
        parts.append(f"sent {'as it is made' if tile.role == 'remote' else 'on when complete'} to {receivers(tile)}")
    elif region.get("updates_per_element"):
        parts.append("final here")
    return ", ".join(parts)


def receivers(tile: Tile) -> str:
    """Write where a tile goes."""
    numbers = sorted({number for number, _ in tile.trace.map.routes(tile.id)})
    if tile.trace.run["around_a_ring"]:
        return "the neighbour"
    return devices(numbers) + (" through the switch" if tile.trace.run["in_switch"] else "")


def others_of(tile: Tile) -> str:
    """Write from whom a tile's other data come."""
    numbers = tile.trace.map.from_devices(tile.id) if tile.place else []
    if tile.trace.run.get("around_a_ring"):
        return "upstream"
    if not numbers:
        return "other GPUs"
    return f"the switch's sum of {devices(numbers)}" if _switched(tile) else devices(numbers)


def origin(tile: Tile, source: int) -> str:
    """Write who sent what is counted under one of `SOURCES`."""
    if source == _LOCAL:
        if tile.place and tile.place.stored:
            return "this GPU's own stores, or its request at the dispatch window"
        return "its own request at the dispatch window" if tile.admitted else "this GPU's own stores"
    what = "DMA" if source == _DMA else "stores"
    if tile.place is None or not (numbers := _senders(tile, source)):
        return f"another GPU's {what}"
    if tile.trace.run["around_a_ring"]:
        return f"the upstream GPU's {what}"
    if _switched(tile):
        return f"the switch's sum of {devices(numbers)}"
    return f"the {what} of {devices(numbers)}" if len(numbers) > 1 else f"{devices(numbers)}'s {what}"


def _senders(tile: Tile, source: int) -> list[int]:
    """List the devices whose data come so: those of whose tile it is the role, all if one stands for them."""
    output_map = tile.trace.map
    if tile.trace.run["mirrored"]:
        return output_map.from_devices(tile.id)
    key = "remote" if source == _REMOTE else "dma"
    return [one.device for one in output_map.fed_by(tile.id) if Tile.of_id(tile.trace, one).role == key]


def _switched(tile: Tile) -> bool:
    """Say whether what comes to a tile is a sum that a switch has made."""
    return bool(tile.trace.run["in_switch"] and tile.place and tile.place.made)


def whereabouts(tile: Tile) -> Iterator[str]:
    """List where a tile's requests are, in an update's order: queues, arbiters, coalescers, the way to the Tracker."""
    yield from _in_queues(tile)
    yield from _at_arbiters(tile)
    yield from _on_the_way_to_the_tracker(tile)
    yield from _refused(tile)


def _in_queues(tile: Tile) -> Iterator[str]:
    """List what was in the models' queues when the recording ended.

    A write in a DRAM queue has been counted already.
    """
    waiting = tile.trace.of(Kind.WAITING)
    waiting = waiting[(waiting["b"] != _DRAM_QUEUE) | (waiting["op"] == READ)]
    mine = waiting[(waiting["wg"] == tile.wg) & (waiting["wf"] == tile.wf)]
    flying = np.isin(mine["b"], _ON_LINKS)
    mine = mine[np.where(flying, mine["c"] == tile.number, mine["device"] == tile.device)]
    for device, queue in np.unique(mine[["device", "b"]]):
        here = mine[(mine["device"] == device) & (mine["b"] == queue)]
        units, counts = np.unique(here["unit"], return_counts=True)
        last = here[here["unit"] == units[np.argmax(counts)]]
        ahead = waiting[(waiting["device"] == device) & (waiting["b"] == queue) & (waiting["unit"] == last["unit"][0])
                        & (waiting["a"] < last["a"].min())]
        what = "channels" if QUEUES[queue] in CHANNEL_QUEUES else "links"
        most = f" of {len(units)} {what}, {len(last)} of them in the" if len(units) > 1 else " in the"
        behind = f", {plural(len(ahead), 'other')} before it, the first {access(ahead[0])}" if len(ahead) else ""
        end = "to" if QUEUES[queue] == ON_LINKS[1] else "of"
        yield (f"At the end {plural(len(here), 'request')} of it ({int(here['amount'].sum()):,} bytes) waited{most} "
               f"{place(last[0])} {end} GPU {tile.trace.run['numbers'][device]}{behind}.")


def _at_arbiters(tile: Tile) -> Iterator[str]:
    """List what has entered a channel's front end and was not granted."""
    writes = tile.events[tile.events["op"] != READ]
    entered = writes[writes["kind"] == Kind.ENTER]
    granted = _granted(writes)
    decisions = tile.trace.of(Kind.DECIDE, tile.device)
    for channel in np.unique(entered["unit"]):
        waiting = int((entered["unit"] == channel).sum() - (granted["unit"] == channel).sum())
        if waiting > 0:
            last = decisions[decisions["unit"] == channel]
            why = f": {reason(last[-1])}" if len(last) else ""
            yield f"{plural(waiting, 'request')} of it waited at the arbiter of channel {channel}{why}."


def _on_the_way_to_the_tracker(tile: Tile) -> Iterator[str]:
    if any(tile.trace.run["filter"][name] is not None for name in ("kinds", "channels")):
        return
    granted = int(_granted(tile.events[tile.events["op"] != READ])["amount"].sum())
    reported, counted, refused = (
        int(tile.of(kind)["amount"].sum()) for kind in (Kind.REPORT, Kind.UPDATE, Kind.FULL))
    counted += refused
    if granted > reported:
        yield f"{granted - reported:,} bytes were granted and not yet reported: in a coalescer."
    if reported > counted:
        yield (f"{reported - counted:,} bytes were reported and not yet counted: in the update network or a bank's "
               "queue.")


def _refused(tile: Tile) -> Iterator[str]:
    refused = tile.of(Kind.FULL)
    full = refused[refused["a"] != 1]
    if len(full) < len(refused):
        yield (f"{int(refused['amount'][refused['a'] == 1].sum()):,} bytes named a region that is not the tile's: they "
               "were refused.")
    if not len(full):
        return
    replay = DeviceReplay(tile.trace, tile.device)
    number = tile.wg % replay.sets
    at = int(full["cycle"][-1])
    owners = [owner(e) for e in replay.open_tiles(at) if e["wg"] % replay.sets == number]
    yield (f"{int(full['amount'].sum()):,} bytes of it were refused, the last at cycle {at:,}: set {number} had no "
           "free way" + (f", {', '.join(owners)} held them" if owners else "") + ".")


def _granted(events: np.ndarray) -> np.ndarray:
    return events[(events["kind"] == Kind.DECIDE) & (events["stream"] != NO_STREAM)]


@dataclass
class Answer:
    """Known events in order of time, and what follows from them."""

    subject: str
    steps: list[tuple[int | None, str]] = field(default_factory=list)  #: (cycle, what happened)
    verdict: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    gpus: list[dict[str, str]] = field(default_factory=list)  #: what waits where, of a run that stands still

    def tell(self, cycle: int | None, text: str) -> None:
        self.steps.append((None if cycle is None else int(cycle), text))

    def tell_all(self, events: np.ndarray, text: str) -> None:
        """Tell of all events in the cycle of the last; nothing if there are none."""
        if len(events):
            self.tell(events["cycle"][-1], f"{text}, the first at cycle {int(events['cycle'][0]):,}")

    def conclude(self, *lines: str) -> None:
        self.verdict += filter(None, lines)

    def in_order(self) -> "Answer":
        """Return the answer with its steps sorted by time; those without a cycle first."""
        self.steps.sort(key=lambda step: -1 if step[0] is None else step[0])
        return self

    def to_json(self) -> dict:
        return {
            "subject": self.subject,
            "steps": [{"cycle": cycle, "text": text} for cycle, text in self.steps],
            "verdict": self.verdict,
            "caveats": [*map(str, self.caveats)],
            "gpus": self.gpus,
        }


def caveats(trace: Trace, wg: int | None = None) -> Iterable[str]:
    """List what the trace cannot know, because of its window, its limit or its filters."""
    first, last = trace.window
    recorded, chosen = trace.run["recorded"], trace.run["filter"]
    if first > 0:
        yield (f"The recording starts at cycle {first:,}; of what happened before, only updates of tiles that were "
               "open then are known.")
    if recorded["dropped"]:
        yield f"The recording reached its limit: events from cycle {last:,} on are missing."
    elif recorded["outcome"] in ("window", "interrupted") or last < recorded["cycles_of_run"]:
        yield f"The recording ends at cycle {last:,}, before the run did."
    if chosen["kinds"] is not None:
        yield f"Only these kinds were recorded: {', '.join(chosen['kinds'])}."
    if chosen["channels"] is not None:
        yield f"Requests were recorded on these channels only: {', '.join(map(str, chosen['channels']))}."
    if wg is not None and chosen["wgs"] is not None and wg not in chosen["wgs"]:
        yield f"Workgroup {wg} is not among those recorded ({', '.join(map(str, chosen['wgs'][:20]))})."
