"""Role of each GPU for each chunk of a collective, independent of the chunk's size."""

import enum
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.collectives import Op, Program


class ScheduleError(ValueError):
    """A collective that cannot run this way; the message names the conflict."""


class Action(enum.IntFlag):
    """Actions of a GPU on a tile; several may apply."""

    STORE = 1  #: compute units store it in this GPU's memory
    SEND_STORES = 2  #: compute units store it directly in other GPUs' memories
    SEND_DMA = 4  #: DMA sends it when it is complete
    EVENT = 8  #: hardware raises an event when it is complete


class Ids(enum.Enum):
    """Tiles with an id, and so with an entry in the dispatch window."""

    TOUCHED = "touched"  #: every tile that the GPU stores, locally or at a peer, or receives
    TRACKED = "tracked"  #: tiles that its Tracker counts


class Limits(enum.Enum):
    """Limits that a tile's request to the dispatch window sets for its destination GPU."""

    SHIFT = "shift"  #: its id plus the slack, also without a destination: the head there may be this far behind
    EXACT = "exact"  #: the id of the tile there that it becomes part of; no limit without a destination


@dataclass(frozen=True)
class Shuffle:
    """GPUs that dispatch their tiles out of order, each in an order of its own."""

    places: int  #: positions by which a tile may come earlier or later
    seed: int = 0

    def order(self, tiles: int, gpu: int) -> np.ndarray:
        """Draw the order of the schedule's tiles: int64[tiles]."""
        rng = np.random.default_rng((self.seed, gpu))
        return np.argsort(np.arange(tiles) + rng.integers(0, self.places + 1, tiles), kind="stable")


@dataclass(frozen=True)
class ScheduleOptions:
    """Options that collective and topology leave open."""

    slices: int = 1  #: slices of the output, which pass through the collective separately, one after the other
    staged: bool = False  #: a GPU also stores tiles that contain only its own part in memory, and DMA sends them
    ids: Ids = Ids.TOUCHED
    limits: Limits = Limits.SHIFT
    shuffle: Shuffle | None = None
    #: Workgroups that share a tile, each with a part of K (split-K); with a placement, parts of a column's sum.
    parts: int = 1
    present: bool = False  #: staged, with data already in memory: a store to a tile's first line allows DMA to send it


class TileRoute(NamedTuple):
    """Destination of a role's tiles."""

    gpu: int
    role: int  #: number of the role there


@dataclass(frozen=True)
class Role:
    """Role of a GPU for a chunk. An all-reduce has two per chunk: one until the chunk is summed, one for the sum."""

    chunk: int
    level: int  #: length of the longest chain of transfers that ends here
    contributes: bool  #: the GPU's compute units compute a part of it
    updates: int  #: of each element for which the Tracker waits, the GPU's own included; 0: not tracked
    actions: Action
    routes: tuple[TileRoute, ...]
    fed_by: tuple[TileRoute, ...]  #: GPUs, and their roles, whose data arrive here

    @property
    def tracked(self) -> bool:
        return self.updates > 0

    @property
    def admitted(self) -> bool:
        """Whether its tiles only arrive.

        Such tiles are complete only after their requests to the dispatch window (rtl/window/dispatch_window.py).
        """
        return self.tracked and not self.contributes

    @property
    def copied(self) -> bool:
        return is_copy(self.admitted, self.updates)


def is_copy(admitted: bool, updates: int) -> bool:
    """Say whether arrivals are whole tiles, which are stored and not added."""
    return admitted and updates == 1


#: A role's key in a program: GPU, chunk, and whether it is the copy of a sum.
_Key = tuple[int, int, bool]


def roles_of(program: Program, staged: bool = False, parts: int = 1,
             placed: bool = False) -> tuple[tuple[Role, ...], ...]:
    """Derive each GPU's roles, in its order of execution.

    Chunks that need no transfer come first, then chunks that need one, and so on. Chunks of one level begin with the
    next rank's, so that GPUs do not all send to the same one. Ring reduce-scatter: every GPU starts one chunk after its
    downstream neighbour (T3 paper, section 4.4). Each of the `parts` workgroups that share a tile stores all of it,
    locally or at a peer, which makes `parts` updates of each element; DMA sends one update, the sum (section 7.7). With
    `placed`, each column gets `parts` updates from any GPUs (`Placement`).
    """
    arrivals: dict[_Key, list[int]] = defaultdict(list)
    departures: dict[_Key, list[int]] = defaultdict(list)
    for index in range(len(program.transfers)):
        arrivals[_arrives_as(program, index)].append(index)
        departures[_leaves_as(program, index)].append(index)
    levels = {key: max((program.levels[index] + 1 for index in arrivals.get(key, ())), default=0)
              for key in {*arrivals, *departures, *((*key, False) for key in program.start)}}

    def turn(key: _Key) -> tuple:
        gpu, chunk, _ = key
        source_distance = (chunk // program.ranks - gpu) % program.ranks if program.pairs else chunk
        return levels[key], (chunk - gpu - 1) % program.ranks, source_distance
    order = [sorted((key for key in levels if key[0] == gpu), key=turn) for gpu in range(program.ranks)]
    number = {key: index for keys in order for index, key in enumerate(keys)}

    def route(key: _Key) -> TileRoute:
        return TileRoute(key[0], number[key])

    def tracked(key: _Key) -> bool:
        return bool(arrivals.get(key)) or (staged and bool(departures.get(key)))

    def updates(index: int) -> int:
        return 1 if tracked(_leaves_as(program, index)) else parts

    def role(key: _Key) -> Role:
        gpu, chunk, copied = key
        contributes = not copied and (gpu, chunk) in program.start and not placed
        arriving_transfers, leaving_transfers = arrivals.get(key, ()), departures.get(key, ())
        is_result = (gpu, chunk) in program.goal and (copied or (gpu, chunk, True) not in levels)
        actions = Action(0)
        if contributes and (tracked(key) or is_result):
            actions |= Action.STORE
        if leaving_transfers:
            actions |= Action.SEND_DMA if tracked(key) else Action.SEND_STORES
        if is_result and tracked(key):
            actions |= Action.EVENT
        # A switch's sum counts each of its parts.
        arriving_updates = parts if placed else sum(map(updates, arriving_transfers))
        return Role(chunk, levels[key], contributes, (arriving_updates + contributes * parts) * tracked(key), actions,
                    tuple(route(_arrives_as(program, index)) for index in leaving_transfers),
                    tuple(route(_leaves_as(program, index)) for index in arriving_transfers))
    return tuple(tuple(map(role, keys)) for keys in order)


def _arrives_as(program: Program, index: int) -> _Key:
    transfer = program.transfers[index]
    copied = transfer.op is Op.COPY
    return transfer.destination, transfer.chunk, copied


def _leaves_as(program: Program, index: int) -> _Key:
    """Return the role that a transfer leaves: a copy's, if a copy of its chunk has arrived at its source."""
    transfer = program.transfers[index]
    earlier = (program.transfers[before] for before in transfer.after)
    copied = any(before.op is Op.COPY and (before.destination, before.chunk) == (transfer.source, transfer.chunk)
                 for before in earlier)
    return transfer.source, transfer.chunk, copied
