"""Role of each device for each chunk of a collective, whatever the chunk's size."""

import enum
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.collectives import Op, Program


class ScheduleError(ValueError):
    """A collective that cannot run this way; the message names what does not fit."""


class Action(enum.IntFlag):
    """Actions of a device on a tile; several may apply."""

    STORE = 1  #: compute units store it in this device's memory
    SEND_STORES = 2  #: compute units store it in other devices' memories, as they make it
    SEND_DMA = 4  #: when it is complete, DMA sends it on
    EVENT = 8  #: when it is complete, that is announced


class Ids(enum.Enum):
    """Which tiles get an id, and so a place in the dispatch window."""

    TOUCHED = "touched"  #: every tile that the device stores, here or elsewhere, or receives
    TRACKED = "tracked"  #: those that its Tracker counts


class Limits(enum.Enum):
    """Limits that a tile's request to the dispatch window sets for the device that it goes to."""

    SHIFT = "shift"  #: its id plus the slack, whether it goes on or not: the head there may be so far behind
    EXACT = "exact"  #: the id that it becomes part of, and nothing if it stays


@dataclass(frozen=True)
class Shuffle:
    """Devices that dispatch their tiles out of order, each in an order of its own."""

    places: int  #: by which a tile may come earlier or later
    seed: int = 0

    def order(self, tiles: int, device: int) -> np.ndarray:
        """Draw which tile of the schedule comes first, second, ...: int64[tiles]."""
        random = np.random.default_rng((self.seed, device))
        return np.argsort(np.arange(tiles) + random.integers(0, self.places + 1, tiles), kind="stable")


@dataclass(frozen=True)
class ScheduleOptions:
    """Choices that collective and topology leave open."""

    slices: int = 1  #: the output is cut into so many, each goes through the collective by itself, one after the other
    staged: bool = False  #: what a device sends of its own alone goes through its memory and by DMA
    ids: Ids = Ids.TOUCHED
    limits: Limits = Limits.SHIFT
    shuffle: Shuffle | None = None
    #: Workgroups that make a tile together, each a part of K's sums (split-K); of a placement those of a column's sum.
    parts: int = 1
    present: bool = False  #: staged, and in memory before: a store to a tile's first line says that it may be sent


class TileRoute(NamedTuple):
    """Destination of a role's tiles."""

    device: int
    role: int  #: there


@dataclass(frozen=True)
class Role:
    """Role of a device for a chunk. An all-reduce gives it two: until the chunk is summed, and the sum's copy."""

    chunk: int
    level: int  #: length of the longest chain of transfers that leads here
    contributes: bool  #: the device's compute units make a part of it
    updates: int  #: of each element that the Tracker waits for, the device's own included; 0: it is not tracked
    actions: Action
    routes: tuple[TileRoute, ...]
    fed_by: tuple[TileRoute, ...]  #: devices, and their roles, whose data arrive here

    @property
    def tracked(self) -> bool:
        return self.updates > 0

    @property
    def admitted(self) -> bool:
        """Say whether its tiles only arrive.

        They are complete when their requests have gone, too (rtl/window/dispatch_window.py).
        """
        return self.tracked and not self.contributes

    @property
    def copied(self) -> bool:
        return is_copy(self.admitted, self.updates)


def is_copy(admitted: bool, updates: int) -> bool:
    """Say whether what arrives is the whole tile: it is stored, and added to nothing."""
    return admitted and updates == 1


#: A role's key in a program: device, chunk, and whether it is the copy of a sum.
_Key = tuple[int, int, bool]


def roles_of(program: Program, staged: bool = False, parts: int = 1,
             placed: bool = False) -> tuple[tuple[Role, ...], ...]:
    """Derive each device's roles, in its order of execution.

    What needs nobody else comes first, then what needs one transfer, and so on; chunks of one level begin with that of
    the next rank, so that devices do not all send to the same one. Ring reduce-scatter: every device starts one chunk
    after its downstream neighbour (T3 paper, section 4.4). Each of `parts` workgroups that make a tile together stores
    all of it, here or at a peer: as many updates of each element, where DMA sends one, the sum (section 7.7). With
    `placed` they do so column by column, each of which gets `parts` from whichever devices (`Placement`).
    """
    arrivals: dict[_Key, list[int]] = defaultdict(list)
    departures: dict[_Key, list[int]] = defaultdict(list)
    for index in range(len(program.transfers)):
        arrivals[_arrives_as(program, index)].append(index)
        departures[_leaves_as(program, index)].append(index)
    levels = {key: max((program.levels[index] + 1 for index in arrivals.get(key, ())), default=0)
              for key in {*arrivals, *departures, *((*key, False) for key in program.start)}}

    def turn(key: _Key) -> tuple:
        device, chunk, _ = key
        among = (chunk // program.ranks - device) % program.ranks if program.pairs else chunk  # the source's distance
        return levels[key], (chunk - device - 1) % program.ranks, among
    order = [sorted((key for key in levels if key[0] == device), key=turn) for device in range(program.ranks)]
    number = {key: index for keys in order for index, key in enumerate(keys)}

    def route(key: _Key) -> TileRoute:
        return TileRoute(key[0], number[key])

    def tracked(key: _Key) -> bool:
        return bool(arrivals.get(key)) or (staged and bool(departures.get(key)))

    def updates(index: int) -> int:
        return 1 if tracked(_leaves_as(program, index)) else parts

    def role(key: _Key) -> Role:
        device, chunk, copied = key
        contributes = not copied and (device, chunk) in program.start and not placed
        arriving, leaving = arrivals.get(key, ()), departures.get(key, ())
        wanted_here = (device, chunk) in program.goal and (copied or (device, chunk, True) not in levels)
        actions = Action(0)
        if contributes and (tracked(key) or wanted_here):
            actions |= Action.STORE
        if leaving:
            actions |= Action.SEND_DMA if tracked(key) else Action.SEND_STORES
        if wanted_here and tracked(key):
            actions |= Action.EVENT
        came = parts if placed else sum(map(updates, arriving))  # of a switch's sum each part
        return Role(chunk, levels[key], contributes, (came + contributes * parts) * tracked(key), actions,
                    tuple(route(_arrives_as(program, index)) for index in leaving),
                    tuple(route(_leaves_as(program, index)) for index in arriving))
    return tuple(tuple(map(role, keys)) for keys in order)


def _arrives_as(program: Program, index: int) -> _Key:
    transfer = program.transfers[index]
    copied = transfer.op is Op.COPY
    return transfer.destination, transfer.chunk, copied


def _leaves_as(program: Program, index: int) -> _Key:
    """Return the role whose data a transfer takes: a copy's, if one of its chunk arrived where it starts."""
    transfer = program.transfers[index]
    came = (program.transfers[before] for before in transfer.after)
    copied = any(before.op is Op.COPY and (before.destination, before.chunk) == (transfer.source, transfer.chunk)
                 for before in came)
    return transfer.source, transfer.chunk, copied
