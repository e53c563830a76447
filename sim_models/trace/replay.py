"""State of a trace in any cycle, and when a condition comes true. Backwards is as quick as forwards."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.trace.schema import (
    ALLOCATED,
    COMPLETE,
    EXCEEDS,
    NAMES,
    NO_STREAM,
    REFUSED,
    STREAMS,
    Kind,
    conditions,
    waits_of,
)
from t3sim.trace.store import Trace

CONDITION_HELP = ("set 17 full", "count of wg 37 wf 2 reaches 96", "wg 37 wf 2 fires", "channel 3 grants dma",
                  "channel 3 queue reaches 60", "channel 3 starved", "commands reach 4", "kind trigger", "wg 37",
                  "address 0x305000")


@dataclass(frozen=True)
class Channel:
    """One channel's arbiter as it was last seen deciding."""

    decision: np.void  #: DECIDE event
    waited: int  #: cycles that communication had, then
    entered: tuple[int, int]  #: compute and inbound requests inside the front end


class DeviceReplay:
    """One device of a trace."""

    def __init__(self, trace: Trace, device: int = 0) -> None:
        trace.check_device(device)
        self.trace, self.device = trace, device
        self.sets, self.ways = trace.run["geometry"]["sets"], trace.run["geometry"]["ways"]
        mine = trace.of(None, device)
        mine = mine[mine["kind"] != Kind.WAITING]
        self.events = mine[mine["cycle"] >= self.first]
        self.cycles = self.events["cycle"]
        self._kinds = {kind: self.events[self.events["kind"] == kind] for kind in Kind}
        decided, entered = self.of(Kind.DECIDE), self.of(Kind.ENTER)
        channels = range(trace.run["geometry"]["channels"])
        self._decided = {c: decided[decided["unit"] == c] for c in channels}
        self._entered = {c: entered[entered["unit"] == c] for c in channels}
        updates = mine[mine["kind"] == Kind.UPDATE]
        self.updates = updates[(updates["flags"] & REFUSED) == 0]  # with those before of tiles that were open
        key = self.updates["wg"].astype(np.int64) << 8 | self.updates["wf"]
        order = np.lexsort((np.arange(len(key)), key))
        #: cycle in which the same tile's next update comes
        self._superseded = np.full(len(key), np.iinfo(np.int64).max)
        same = key[order][1:] == key[order][:-1]
        self._superseded[order[:-1][same]] = self.updates["cycle"][order[1:][same]]
        self._closed = (self.updates["flags"] & (COMPLETE | EXCEEDS)) != 0
        self._found: tuple[str, np.ndarray] | None = None  #: the last condition, and the events that make it true

    def of(self, kind: Kind) -> np.ndarray:
        return self._kinds[kind]

    @property
    def first(self) -> int:
        return self.trace.window[0]

    @property
    def last(self) -> int:
        return max(self.first, self.trace.window[1] - 1)

    def at(self, cycle: int) -> np.ndarray:
        """Return the events of a cycle."""
        return self.events[np.searchsorted(self.cycles, cycle):np.searchsorted(self.cycles, cycle, "right")]

    def _until(self, kind: Kind, cycle: int) -> np.ndarray:
        events = self.of(kind)
        return events[:np.searchsorted(events["cycle"], cycle, "right")]

    def open_tiles(self, cycle: int) -> np.ndarray:
        """Return the last UPDATE of each tile that the Tracker holds at a cycle's end, by sets and ways."""
        open_updates = self.updates[(self.updates["cycle"] <= cycle) & (self._superseded > cycle) & ~self._closed]
        return open_updates[np.lexsort((open_updates["c"], open_updates["wg"] % self.sets))]

    def channel(self, number: int, cycle: int) -> Channel | None:
        """Return a channel's state; None if it has not decided anything yet."""
        decided, entered = (side[number][:np.searchsorted(side[number]["cycle"], cycle, "right")]
                            for side in (self._decided, self._entered))
        if not len(decided):
            return None
        inside = [max(0, int((entered["stream"] == s).sum() - (decided["stream"] == s).sum())) for s in (0, 1)]
        return Channel(decided[-1], int(waits_of(decided)[-1]), (inside[0], inside[1]))

    def commands(self, cycle: int) -> tuple[int, np.ndarray]:
        """Return how many DMA commands wait for an engine, and the READY events of those, oldest first.

        The events are of those commands that came since the recording began.
        """
        ready, issued = self._until(Kind.READY, cycle), self._until(Kind.ISSUE, cycle)
        ready_and_issue = self.events[(self.events["kind"] == Kind.READY) | (self.events["kind"] == Kind.ISSUE)]
        before = int(ready_and_issue["a"][0]) if len(ready_and_issue) else 0
        return before + len(ready) - len(issued), ready[max(0, len(issued) - before):]

    def engines(self, cycle: int) -> list[np.void | None]:
        """Return the command (ISSUE) that each engine walks, None: idle."""
        changes = []
        issued, walked = self._until(Kind.ISSUE, cycle), self._until(Kind.WALKED, cycle)
        for engine in range(self.trace.run["geometry"]["engines"]):
            mine, done = issued[issued["unit"] == engine], int((walked["unit"] == engine).sum())
            changes.append(mine[done] if done < len(mine) else None)
        return changes

    def units(self, cycle: int) -> np.ndarray:
        """Return the last STAGE of each compute unit that has done anything."""
        stages = self._until(Kind.STAGE, cycle)
        _, latest = np.unique(stages["unit"][::-1], return_index=True)
        return stages[len(stages) - 1 - latest]

    # Moving

    def next_event(self, cycle: int, forwards: bool = True, kind: Kind | None = None) -> int | None:
        """Return the nearest other cycle with an event (of a kind); None: there is none."""
        cycles = self.cycles if kind is None else self.of(kind)["cycle"]
        return _nearest(cycles, cycle, forwards)

    def find(self, condition: str, cycle: int, forwards: bool = True) -> int | None:
        """Find the nearest other cycle in which a condition comes true. Raises BadInput for what is no condition."""
        return _nearest(self._fulfilling(condition)["cycle"], cycle, forwards)

    def fulfilling(self, condition: str, cycle: int) -> np.ndarray:
        """Return the events of a cycle that make a condition come true. Raises BadInput for what is no condition."""
        events = self._fulfilling(condition)
        return events[events["cycle"] == cycle]

    def _fulfilling(self, condition: str) -> np.ndarray:
        text = " ".join(condition.lower().split())
        if self._found is None or self._found[0] != text:
            self._found = text, self._search(text, condition)
        return self._found[1]

    def _search(self, text: str, condition: str) -> np.ndarray:
        for pattern, search in _CONDITIONS:
            match = re.fullmatch(pattern, text, re.ASCII)
            if match:
                events = search(self, *(int(g) if g is not None and g.isdecimal() else g for g in match.groups()))
                return events[events["cycle"] >= self.first]
        raise BadInput(f"{condition!r} is not a condition; allowed are: {'; '.join(CONDITION_HELP)}")

    def _set_full(self, number: int) -> np.ndarray:
        mine = self.updates[(self.updates["wg"] % self.sets == number) & (self.updates["c"] >= 0)]
        change = ((mine["flags"] & ALLOCATED) != 0).astype(int) - ((mine["flags"] & (COMPLETE | EXCEEDS)) != 0)
        full = np.cumsum(change) >= self.ways
        refused = self.of(Kind.FULL)
        theirs = (refused["wg"] % self.sets == number) & (refused["a"] != 1)
        waits = np.concatenate([mine[_rises(full)], refused[theirs]])
        return waits[np.argsort(waits["cycle"], kind="stable")]

    def _count(self, wg: int, wf: int, count: int) -> np.ndarray:
        mine = self.updates[(self.updates["wg"] == wg) & (self.updates["wf"] == wf)]
        return mine[(mine["a"] >= count) & (mine["a"] - mine["amount"] < count)]

    def _fires(self, wg: int, wf: int | None) -> np.ndarray:
        mine = self.updates[(self.updates["wg"] == wg) & ((self.updates["flags"] & COMPLETE) != 0)]
        return mine[(mine["wf"] == wf) if wf is not None else slice(None)]

    def _decisions(self, channel: int) -> np.ndarray:
        if channel not in self._decided:
            raise BadInput(f"channel {channel} does not exist: this trace has 0 to {len(self._decided) - 1}")
        return self._decided[channel]

    def _grants(self, channel: int, stream: str) -> np.ndarray:
        decided = self._decisions(channel)
        number = NO_STREAM if stream == "nothing" else STREAMS.index(stream)
        return decided[decided["stream"] == number]

    def _queue(self, channel: int, length: int) -> np.ndarray:
        decided = self._decisions(channel)
        return decided[_rises(decided["a"] >= length)]

    def _starved(self, channel: int) -> np.ndarray:
        decided = self._decisions(channel)
        return decided[_rises(np.array([conditions(int(f))["starved"] for f in decided["flags"]], bool))]

    def _commands(self, length: int) -> np.ndarray:
        ready = self.of(Kind.READY)
        return ready[_rises(ready["a"] + 1 >= length)]

    def _kind(self, name: str, wg: int | None) -> np.ndarray:
        if name not in NAMES:
            raise BadInput(f"kind {name!r} is unknown: allowed are {', '.join(NAMES)}")
        events = self.of(NAMES[name])
        return events[(events["wg"] == wg) if wg is not None else slice(None)]

    def _address(self, address: str) -> np.ndarray:
        return self.events[self.events["address"] == int(address, 16)]

    def _tile(self, wg: int, wf: int | None) -> np.ndarray:
        mine = self.events[self.events["wg"] == wg]
        return mine[(mine["wf"] == wf) if wf is not None else slice(None)]


def _rises(true: np.ndarray) -> np.ndarray:
    """Return where a truth value becomes true."""
    return true & ~np.concatenate([[False], true[:-1]])[:len(true)]


def _nearest(cycles: np.ndarray, cycle: int, forwards: bool) -> int | None:
    """Return the nearest other one of sorted cycles."""
    if forwards:
        at = int(np.searchsorted(cycles, cycle, "right"))
        return int(cycles[at]) if at < len(cycles) else None
    at = int(np.searchsorted(cycles, cycle, "left")) - 1
    return int(cycles[at]) if at >= 0 else None


_CONDITIONS: tuple[tuple[str, Callable], ...] = (
    (r"set (\d+) (?:is )?full", DeviceReplay._set_full),
    (r"count (?:of )?wg (\d+) wf (\d+) reaches (\d+)", DeviceReplay._count),
    (r"wg (\d+)(?: wf (\d+))? fires", DeviceReplay._fires),
    (r"channel (\d+) grants (compute|inbound|dma|nothing)", DeviceReplay._grants),
    (r"channel (\d+) queue reaches (\d+)", DeviceReplay._queue),
    (r"channel (\d+) (?:is )?starved", DeviceReplay._starved),
    (r"commands reach (\d+)", DeviceReplay._commands),
    (r"kind (\w+)(?: of wg (\d+))?", DeviceReplay._kind),
    (r"wg (\d+)(?: wf (\d+))?", DeviceReplay._tile),
    (r"address (0x[0-9a-f]{1,16})", DeviceReplay._address),
)
