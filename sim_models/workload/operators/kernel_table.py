"""A kernel of compute units as data: each workgroup's loads, computation and stores, step by step.

It has three levels, each an array of records. A *group* is a number of workgroups that differ only in the addresses of
their data. A *step* is repeated, each time a stride further; its loads may be sent while earlier steps compute. *Load*
and *store* blocks are rows of bytes at a pitch, or rows at positions in a list. A regular kernel is therefore small at
any depth: a GEMM's loop over K is one step. Addresses, pitches and strides are in bytes, times in memory cycles.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t3sim.base.line import LINE_BYTES

#: `first_step`, `steps`: its rows of `steps`. `id`, `tiles`: first id and number of the wavefront tiles that hardware
#: tracks (0: none). `phase`: it begins when all workgroups of the phase before have ended.
GROUP = np.dtype([("workgroups", np.int64), ("first_step", np.int64), ("steps", np.int64), ("phase", np.int64),
                  ("id", np.int64), ("tiles", np.int64)])
STEP = np.dtype([("repeats", np.int64), ("compute_cycles", np.float64), ("first_load", np.int64), ("loads", np.int64),
                 ("first_store", np.int64), ("stores", np.int64)])
#: `row_list`: its first row's entry in `row_lists`, whose entries count pitches; STRIDED: row r is r pitches further.
LOAD = np.dtype([("base", np.int64), ("pitch", np.int64), ("rows", np.int64), ("bytes", np.int64),
                 ("step_stride", np.int64), ("workgroup_stride", np.int64), ("row_list", np.int64)])
#: `id`, `region`, `wavefront`: hardware counts the store under these; region 0: it does not. The blocks of a step are
#: stored concurrently, a row of each in turn, as wavefronts do. `peer`: index of the destination among the GPU's peers;
#: `id` is then the signal there that counts its lines, 0 none. `part`: part of K whose sums it holds.
STORE = np.dtype([("base", np.int64), ("pitch", np.int64), ("rows", np.int64), ("bytes", np.int64),
                  ("step_stride", np.int64), ("workgroup_stride", np.int64), ("id", np.int32), ("region", np.int32),
                  ("wavefront", np.int16), ("route", np.int8), ("updates", np.int8), ("peer", np.int16),
                  ("part", np.int16)])
#: First and last of the signals that must all be set before a workgroup loads; they count from 1, last 0: no wait.
WAIT = np.dtype([("first", np.int64), ("last", np.int64)])
STRIDED = -1
ASKS_WINDOW = -1  #: in `needs`: the dispatch window starts the group's workgroups
_MOST_ROW_BYTES = 4096  # of a store: buffers must have room for all its lines at once

_MOST_PEERS = 1024
_LARGEST = 1 << 48  # of any number, so that sums of products of a few stay whole
_MOST = (1 << 31) - 1  # of compute units' counters
_MOST_RECORDS = 1 << 22  # of an array


class Route(enum.IntEnum):
    """Destination of stores."""

    CACHE = 0
    MEMORY = 1
    MAPPED = 2  #: to this GPU's address of a neighbour's memory; hardware translates it to the neighbour's
    PEER = 3  #: to a peer's own address, over the link; peer 0 is the neighbour
    BOTH = 4  #: to memory, uncounted, and as `MAPPED`


class Resources(NamedTuple):
    """Resources that limit a kernel's resident workgroups on a compute unit."""

    wavefronts: int = 0  #: of a workgroup; 0: as many resident workgroups as of the machine's GEMM
    registers: int = 0  #: of a lane
    lds_bytes: int = 0  #: of a workgroup


class KernelError(ValueError):
    """A kernel that cannot be run; the message names the record and the allowed values."""


@dataclass(frozen=True)
class KernelTable:
    """One GPU's work. Groups run in order; several groups may share steps."""

    groups: np.ndarray  #: GROUP
    steps: np.ndarray  #: STEP
    loads: np.ndarray  #: LOAD
    stores: np.ndarray  #: STORE
    row_lists: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    arrivals: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    #: int64[phase]: lines that must have arrived over the link since the start before the phase ends
    needs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    #: int64[group], or none: ASKS_WINDOW, or the number of ready-table requests that must have been answered; the two
    #: kinds have a queue each, and groups of the former kind come first
    waits: np.ndarray = field(default_factory=lambda: np.zeros(0, WAIT))  #: WAIT[group], or none
    raises: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    #: int64[group], or none: the signal for which each of its workgroups counts when it ends, 0 none
    signals: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    #: int64[signal]: number of lines from peers and workgroups' ends that set it
    adding: int = 0  #: number of groups, the last ones, that add data from peers
    ahead: int = 1  #: most steps that are loaded but not yet computed; 1: single-buffered
    cached_loads: bool = True  #: loads use the last-level cache, else memory, 64 bytes at a time
    persistent: bool = False  #: workgroups fetch their work themselves, else a dispatcher starts one per cycle
    by_turn: bool = False  #: the dispatcher deals workgroups to units in turn, else to the first free slot
    launch_cycles: float = 0.0  #: of each workgroup, before its first load
    end_cycles: float = 0.0  #: from its last store to its end
    phase_launch_cycles: float = 0.0  #: from a phase's end to the launch of the next one
    wavefronts: int = 0  #: as in `Resources`
    registers: int = 0
    lds_bytes: int = 0

    def __post_init__(self) -> None:
        check(self)

    @property
    def resources(self) -> Resources:
        return Resources(self.wavefronts, self.registers, self.lds_bytes)

    @property
    def workgroups(self) -> int:
        return int(self.groups["workgroups"].sum())

    @property
    def group_of_stores(self) -> np.ndarray:
        """Group of each store block, int64[store], if no groups share steps or stores."""
        of_steps = np.repeat(np.arange(len(self.groups)), self.groups["steps"])
        return np.repeat(of_steps, self.steps["stores"])

    def bytes_stored(self) -> int:
        per_step = _sums(self.stores["rows"] * self.stores["bytes"], self.steps["first_store"], self.steps["stores"])
        per_group = _sums(per_step * self.steps["repeats"], self.groups["first_step"], self.groups["steps"])
        return int((per_group * self.groups["workgroups"]).sum())

    def save(self, path: Path) -> None:
        with open(path, "wb") as file:
            np.savez(file, **{one.name: getattr(self, one.name) for one in fields(self)})


def rows_of(dtype: np.dtype, count: int, **columns) -> np.ndarray:
    """Build `count` records; columns without values are 0, load blocks are strided."""
    table = np.zeros(count, dtype)
    if dtype is LOAD:
        table["row_list"] = STRIDED
    for name, values in columns.items():
        table[name] = values
    return table


def check(table: KernelTable) -> None:
    """Raise KernelError for a table that cannot be run."""
    for name, dtype in (("groups", GROUP), ("steps", STEP), ("loads", LOAD), ("stores", STORE),
                        ("row_lists", np.dtype(np.int64)), ("arrivals", np.dtype(np.int64)),
                        ("needs", np.dtype(np.int64)), ("waits", WAIT), ("raises", np.dtype(np.int64)),
                        ("signals", np.dtype(np.int64))):
        array = getattr(table, name)
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
            raise KernelError(f"{name} must be an array of one dimension with elements "
                              f"{', '.join(dtype.names) if dtype.names else 'int64'}")
        if len(array) > _MOST_RECORDS:
            raise KernelError(f"{name} has {len(array):,} entries: at most {_MOST_RECORDS:,}")
        for column in dtype.names or ():
            _within(table, name, column, -_LARGEST if "stride" in column or column == "pitch" else
                    STRIDED if column == "row_list" else 0, _LARGEST)
    if not len(table.arrivals):
        raise KernelError("a kernel needs a phase")
    if table.by_turn and table.persistent:
        raise KernelError("by_turn and persistent cannot be combined: only a dispatcher takes turns")
    if not 1 <= table.ahead <= 64:
        raise KernelError(f"ahead={table.ahead} is not possible: 1 to 64")
    for name in ("launch_cycles", "end_cycles", "phase_launch_cycles"):
        if not 0 <= getattr(table, name) <= _LARGEST:
            raise KernelError(f"{name}={getattr(table, name)} is not possible: 0 or more cycles")
    for name in ("wavefronts", "registers", "lds_bytes"):
        if not 0 <= getattr(table, name) <= _LARGEST:
            raise KernelError(f"{name}={getattr(table, name)} is not possible: 0 or more")
    if not 0 <= table.arrivals.min() <= table.arrivals.max() <= _LARGEST:
        raise KernelError(f"arrivals: {table.arrivals.min()} to {table.arrivals.max()}: 0 to {_LARGEST} lines can come")
    for column in ("workgroups", "steps"):
        _within(table, "groups", column, 1, _MOST)
    for column in ("id", "tiles"):
        _within(table, "groups", column, 0, _MOST)
    _within(table, "groups", "phase", 0, len(table.arrivals) - 1)
    if (np.diff(table.groups["phase"]) < 0).any():
        raise KernelError("groups must be in the order of their phases")
    if len(table.groups) and len(np.unique(table.groups["phase"])) != len(table.arrivals):
        raise KernelError(f"each of the {len(table.arrivals)} phases needs a group of workgroups")
    if len(table.needs):
        _check_needs(table)
    _check_signals(table)
    _within(table, "steps", "repeats", 1, _MOST)
    for name, most in (("loads", _LARGEST), ("stores", _MOST_ROW_BYTES)):
        _within(table, name, "rows", 1, _MOST)
        _within(table, name, "bytes", 1, most)
    for column in ("base", "pitch", "step_stride", "workgroup_stride"):
        bad_stores = np.flatnonzero(table.stores[column] % LINE_BYTES)
        if len(bad_stores):
            raise KernelError(f"stores[{bad_stores[0]}]: {column}={table.stores[column][bad_stores[0]]} must be a "
                              f"multiple of {LINE_BYTES}: rows are stored from a line's first byte on")
    _within(table, "stores", "route", 0, max(Route))
    _within(table, "stores", "updates", 0, 1)
    _within(table, "stores", "peer", 0, _MOST_PEERS - 1)
    _inside(table, "groups", "first_step", "steps", "steps")
    _inside(table, "steps", "first_load", "loads", "loads")
    _inside(table, "steps", "first_store", "stores", "stores")
    list_loads = table.loads[table.loads["row_list"] != STRIDED]
    if len(list_loads) and (list_loads["row_list"] + list_loads["rows"]).max() > len(table.row_lists):
        raise KernelError(f"loads: a list of rows ends after the {len(table.row_lists)} entries of row_lists")
    if len(table.row_lists) and not -_LARGEST <= table.row_lists.min() <= table.row_lists.max() <= _LARGEST:
        raise KernelError(f"row_lists: an entry is beyond {_LARGEST}")


def _check_needs(table: KernelTable) -> None:
    """Raise KernelError for groups that do not fit the two queues."""
    if len(table.needs) != len(table.groups) or len(table.arrivals) != 1 or table.persistent:
        raise KernelError(f"needs has {len(table.needs)} entries: none, or one for each of the {len(table.groups)} "
                          "groups of a kernel of one phase that a dispatcher starts")
    if table.needs.min() < ASKS_WINDOW or ((table.needs[1:] == ASKS_WINDOW) > (table.needs[:-1] == ASKS_WINDOW)).any():
        raise KernelError("needs: groups that ask the dispatch window (-1) come first, others need 0 or more")


def _check_signals(table: KernelTable) -> None:
    """Raise KernelError for signals that do not exist."""
    most = len(table.signals)
    for name, of_groups in (("waits", table.waits["first"]), ("waits", table.waits["last"]), ("raises", table.raises)):
        if len(of_groups) not in (0, len(table.groups)):
            raise KernelError(f"{name} has {len(of_groups)} entries: none, or one for each of the {len(table.groups)} "
                              "groups")
        if len(of_groups) and not 0 <= of_groups.min() <= of_groups.max() <= most:
            raise KernelError(f"{name}: {of_groups.min()} to {of_groups.max()}: the {most} signals are 1 to {most}, 0 "
                              "is none")
    first, last = table.waits["first"], table.waits["last"]
    if (bad_waits := np.flatnonzero((first > last) | (last > 0) & (first < 1))).size:
        raise KernelError(f"waits[{bad_waits[0]}]: first={first[bad_waits[0]]} and last={last[bad_waits[0]]}: signals "
                          "from 1, the first one first")
    if most and not 0 <= table.signals.min() <= table.signals.max() <= _LARGEST:
        raise KernelError(f"signals: {table.signals.min()} to {table.signals.max()}: each is set at 0 to {_LARGEST}")
    to_peers = table.stores[table.stores["route"] == Route.PEER]["id"]
    if most and len(to_peers) and not 0 <= to_peers.min() <= to_peers.max() <= most:
        raise KernelError(f"stores: to peers for signals {to_peers.min()} to {to_peers.max()}: the {most} signals are "
                          f"1 to {most}, 0 is none")
    if not 0 <= table.adding <= len(table.groups):
        raise KernelError(f"adding={table.adding} is not possible: 0 to the {len(table.groups)} groups")


def check_memory(table: KernelTable, memory_bytes: int) -> None:
    """Raise KernelError if a block lies outside the memory."""
    groups, steps = table.groups, table.steps
    members = greatest(groups["first_step"], groups["steps"], groups["workgroups"] - 1, len(steps))
    for name in ("loads", "stores"):
        blocks = getattr(table, name)
        step_blocks = steps[f"first_{name[:-1]}"], steps[name]
        turn = greatest(*step_blocks, steps["repeats"] - 1, len(blocks))
        member = greatest(*step_blocks, members, len(blocks))
        lowest = highest = blocks["base"].astype(np.float64)
        first_row, last_row = np.zeros(len(blocks)), blocks["rows"] - 1.0
        if name == "loads" and len(table.row_lists):
            list_loads = blocks["row_list"] != STRIDED
            first_row[list_loads], last_row[list_loads] = table.row_lists.min(), table.row_lists.max()
        for stride, least, most in ((blocks["step_stride"], 0, turn), (blocks["workgroup_stride"], 0, member),
                                    (blocks["pitch"], first_row, last_row)):
            lowest = lowest + np.minimum(stride * least, stride * most)
            highest = highest + np.maximum(stride * least, stride * most)
        bad_blocks = np.flatnonzero((lowest < 0) | (highest + blocks["bytes"] > memory_bytes))
        if len(bad_blocks):
            raise KernelError(f"{name}[{bad_blocks[0]}] reaches from byte {lowest[bad_blocks[0]]:.0f} to "
                              f"{highest[bad_blocks[0]] + blocks['bytes'][bad_blocks[0]]:.0f}: the memory has 0 to "
                              f"{memory_bytes}")


def greatest(first: np.ndarray, count: np.ndarray, values: np.ndarray, places: int) -> np.ndarray:
    """Return for each position the greatest value of the runs that cover it, which may overlap; 0 without a run.

    Two overlapping runs of a power of two cover each run; these are halved until they are single positions.
    """
    largest = np.zeros(places)
    bits = np.frexp(np.maximum(count, 1))[1] - 1
    for bit in range(int(bits.max(initial=0)), -1, -1):
        half, doubled, largest = 1 << bit, largest, largest.copy()
        np.maximum(largest[half:], doubled[:-half], out=largest[half:])
        runs = (bits == bit) & (count > 0)
        for start in (first[runs], first[runs] + count[runs] - half):
            np.maximum.at(largest, start, values[runs])
    return largest


def added(first: np.ndarray, count: np.ndarray, values: np.ndarray, places: int) -> np.ndarray:
    """Return for each position the sum of the values of the runs that cover it."""
    ends = np.bincount(first, values, places + 1) - np.bincount(first + count, values, places + 1)
    return np.cumsum(ends[:places])


def _sums(values: np.ndarray, first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sum of each run of `count` values."""
    total = np.append(0, np.cumsum(values))
    return total[first + count] - total[first]


def _within(table: KernelTable, name: str, column: str, least: int, most: int) -> None:
    values = getattr(table, name)[column]
    bad_rows = np.flatnonzero(~((values >= least) & (values <= most)))
    if len(bad_rows):
        raise KernelError(f"{name}[{bad_rows[0]}]: {column}={values[bad_rows[0]]} is not possible: {least} to {most}")


def _inside(table: KernelTable, name: str, first: str, count: str, target: str) -> None:
    rows, size = getattr(table, name), len(getattr(table, target))
    bad_rows = np.flatnonzero(rows[first] + rows[count] > size)
    if len(bad_rows):
        raise KernelError(f"{name}[{bad_rows[0]}]: {first}={rows[first][bad_rows[0]]} and "
                          f"{count}={rows[count][bad_rows[0]]} end after the last of {size} {target}")


def joined(tables: Sequence[KernelTable]) -> tuple[np.ndarray, ...]:
    """Join groups, steps, loads, stores and row lists of several GPUs, with indices into the joined arrays."""
    steps_before = np.cumsum([0, *(len(table.steps) for table in tables)])
    loads_before = np.cumsum([0, *(len(table.loads) for table in tables)])
    stores_before = np.cumsum([0, *(len(table.stores) for table in tables)])
    lists_before = np.cumsum([0, *(len(table.row_lists) for table in tables)])
    groups, steps, loads = ([getattr(table, name).copy() for table in tables] for name in ("groups", "steps", "loads"))
    for gpu in range(len(tables)):
        groups[gpu]["first_step"] += steps_before[gpu]
        steps[gpu]["first_load"] += loads_before[gpu]
        steps[gpu]["first_store"] += stores_before[gpu]
        list_loads = loads[gpu]["row_list"] != STRIDED
        loads[gpu]["row_list"][list_loads] += lists_before[gpu]
    return (np.concatenate(groups), np.concatenate(steps), np.concatenate(loads),
            np.concatenate([table.stores for table in tables]), np.concatenate([table.row_lists for table in tables]))
