"""The index of a run: where in it something worth a window of its own happens, each place with its cycle."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.state import Sim
from t3sim.trace.schema import Kind
from t3sim.trace.store import Trace

#: Few enough of a whole run at full size to keep them all.
KINDS = frozenset({Kind.DISPATCH, Kind.BLOCKED, Kind.TRIGGER, Kind.READY, Kind.ISSUE, Kind.LATE, Kind.EVENT})
_LONGEST = 3  #: waits of a kind that are listed
_MARGIN_CYCLES = 1_000  #: around a place, in the window that is suggested for it


class _Seen(NamedTuple):
    """The first arrivals as the loop notes them."""

    first: np.ndarray

    def before_edge(self, sim: Sim, kernel: tuple, hardware: Hardware | None, device: int, now: int) -> None:
        """Note the first arrival: arrivals change in the models' part of a cycle only."""
        if self.first[device] < 0 and sim.network.arrived[device] > 0:
            self.first[device] = now

    def after_edge(self, sim: Sim, kernel: tuple, hardware: Hardware | None, device: int, now: int) -> None:
        """Do nothing in the hardware's part of a cycle."""


class FirstArrivals(Observer):
    """The cycle in which each GPU's first packet came over the link; an event per packet would be millions."""

    def __init__(self, devices: int) -> None:
        self.cycles = np.full(devices, -1, np.int64)  #: -1: none came

    def before(self, now: int, end: int) -> tuple[_Seen, int]:
        return _Seen(self.cycles), end


@dataclass(frozen=True)
class Happening:
    """Something that happened to `device` in `cycle`, or from it on."""

    what: str
    device: int
    cycle: int
    lasted_cycles: int | None = None  #: of a wait
    detail: str = ""

    @property
    def window(self) -> tuple[int, int]:
        """The `--from` and `--until` that show it."""
        return max(0, self.cycle - _MARGIN_CYCLES), self.cycle + (self.lasted_cycles or 0) + _MARGIN_CYCLES

    def to_json(self) -> dict:
        return asdict(self) | dict(zip(("from", "until"), self.window))


def places(trace: Trace) -> list[Happening]:
    """Index a trace that has events of these KINDS, in the order of cycles.

    A place whose kind was not recorded is left out.
    """
    found_places = []
    for device in range(trace.devices):
        of = {kind: trace.of(kind, device) for kind in KINDS}
        found_places += [*_milestones(trace, device, of), *_waits(trace, device, of)]
    return sorted(found_places, key=lambda place: (place.cycle, place.device))


def _milestones(trace: Trace, device: int, of: dict[Kind, np.ndarray]) -> Iterator[Happening]:
    for what, events, at in (
            ("first workgroup", of[Kind.DISPATCH], 0), ("first trigger", of[Kind.TRIGGER], 0),
            ("first DMA command", of[Kind.ISSUE], 0), ("first final tile", of[Kind.EVENT], 0),
            ("last trigger", of[Kind.TRIGGER], -1), ("last DMA command", of[Kind.ISSUE], -1),
            ("last final tile", of[Kind.EVENT], -1)):
        if len(events):
            tile = f"wg {events['wg'][at]}" + (f" wf {events['wf'][at]}" if what != "first workgroup" else "")
            yield Happening(what, device, int(events["cycle"][at]), detail=tile)
    arrived = trace.run["first_arrivals"][device]
    if arrived >= 0:
        yield Happening("first arrival over the link", device, arrived)
    if trace.passes:
        for step in range(1, trace.passes.steps(device)):
            if (began := trace.passes.over(device, step - 1)) is not None:
                wg = trace.passes.of_step(device, step)[0]
                yield Happening(f"step {step + 1} begins", device, began, detail=f"wg {wg}")
        return
    started = of[Kind.DISPATCH]
    units = trace.run["geometry"]["compute_units"]
    for stage, first in enumerate(range(units, len(started), units), 1):  # the first stage is the first workgroup's
        yield Happening(f"stage {stage} begins", device, int(started["cycle"][first]),
                        detail=f"wg {started['wg'][first]}")


def _waits(trace: Trace, device: int, of: dict[Kind, np.ndarray]) -> Iterator[Happening]:
    yield from _longest("the window holds a workgroup", device, of[Kind.BLOCKED], of[Kind.DISPATCH], ("wg",))
    yield from _longest("a DMA command waits for an engine", device, of[Kind.READY], of[Kind.ISSUE],
                        ("wg", "wf", "region"))
    late = of[Kind.LATE]
    yield from _longest("communication is behind the GEMM", device, late[late["a"] == 1], late[late["a"] == 0], ())


def _longest(what: str, device: int, begins: np.ndarray, ends: np.ndarray,
             names: tuple[str, ...]) -> Iterator[Happening]:
    """Find the longest waits between a beginning and the next end of the same `names`."""
    waits = []
    at: dict[tuple, list[int]] = {}
    for event in ends:
        at.setdefault(tuple(event[name] for name in names), []).append(int(event["cycle"]))
    for event in begins:
        cycles = at.get(tuple(event[name] for name in names), [])
        after = bisect_left(cycles, event["cycle"])
        if after < len(cycles):
            waits.append((cycles[after] - int(event["cycle"]), event))
    for lasted, event in sorted(waits, key=lambda wait: -wait[0])[:_LONGEST]:
        detail = " ".join(f"{name} {event[name]}" for name in names if name != "region")
        yield Happening(what, device, int(event["cycle"]), lasted, detail)
