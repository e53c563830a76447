"""Persistent workgroups that send what they compute: a collective inside the kernel that makes its data.

The operator's kernel, but for four things: its workgroups draw their tasks themselves, those for other GPUs first; what
belongs to another GPU is stored there, without a copy here; after its stores a workgroup sets its bit in the mask of
its slice, an atomic in the last-level cache; and code that sends takes registers, so that fewer workgroups are
resident. It is over when everything has come that others send.

Where the collective adds, tasks that add follow those that compute: each waits until its slice of the output has come
from all others and is computed here, loads all parts of its tile through the cache, adds them up and stores the
sum; for an all-reduce it stores it at all others, too (two-phase direct). In a step each lane loads 16 bytes of each
part. Source: Optimizing Distributed ML Communication with Fused Computation-Collective Operations, section III.
Known simplifications: additions take no time; a workgroup signals each of its tiles, where the paper's sets one flag
when all of its tiles for a peer are stored.
"""

from dataclasses import dataclass, replace

import numpy as np

from t3sim.base.line import lines_of
from t3sim.mechanisms.flux import FluxOptions, Owners, storing_kernel
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, WAIT, KernelTable, Route, joined, rows_of

#: That calls of a library for communication add to a lane's: eight more than 64 leave seven of eight wavefronts.
SENDING_REGISTERS = 8
_LOAD_BYTES = 512  #: of a wavefront's load of 16 bytes for each of 32 lanes


@dataclass(frozen=True)
class FusedOptions(FluxOptions):
    """Options of a fused kernel for what has arrived."""

    adds: bool = False  #: parts are added up at their owner
    broadcasts: bool = False  #: and sums stored at all others
    slice_tiles: int = 1  #: of an owner, that are signalled together


def sending_kernel(work: KernelTable, owners: Owners, rank: int, mask_cycles: float,
                   options: FusedOptions = FusedOptions()) -> KernelTable:
    """Build the kernel of a rank; `work`: without communication, a group per tile of the output.

    `mask_cycles`: of the atomic after a workgroup's stores.
    """
    table = storing_kernel(work, owners, rank, options)
    if options.adds:
        table = _with_additions(table, owners, rank, options)
    registers = table.registers + SENDING_REGISTERS if table.wavefronts else table.registers
    return replace(table, persistent=True, by_turn=False, end_cycles=mask_cycles, registers=registers)


def _with_additions(table: KernelTable, owners: Owners, rank: int, options: FusedOptions) -> KernelTable:
    """Let tasks that add follow those that compute, and signals tell them when."""
    place = np.argsort(table.groups["first_step"])  # of each tile's group: stores lie in the order of tiles
    step = np.repeat(np.arange(len(table.steps)), table.steps["stores"])
    tile = np.searchsorted(table.groups["first_step"][place], step, "right") - 1
    away = table.stores["route"] == Route.PEER
    owner = np.where(away, (rank + 1 + table.stores["peer"]) % owners.ranks, rank)
    piece = np.zeros(len(tile), np.int64)
    for one in range(owners.ranks):  # an owner's tiles are numbered as they lie, alike on all ranks
        piece[owner == one] = np.unique(tile[owner == one], return_inverse=True)[1]
    signal = 1 + piece // options.slice_tiles
    stores = table.stores.copy()
    stores["id"] = np.where(away, signal, 0)
    raises = np.zeros(len(table.groups), np.int64)
    raises[place[tile[~away]]] = signal[~away]
    lines = stores["rows"] * lines_of(stores["bytes"])
    come, times = (away, 1) if options.mirrored else (~away, owners.ranks - 1)
    signals = np.bincount(raises, minlength=1 + signal.max()) + times * np.bincount(
        signal[come], lines[come], 1 + signal.max()).astype(np.int64)
    own, pieces = stores[~away], piece[~away]
    groups, steps, loads, blocks, row_lists = joined([replace(table, stores=stores), *(
        _addition(own[pieces == one], owners, rank, options.broadcasts) for one in np.unique(pieces))])
    waits = np.zeros(len(groups), WAIT)
    for name in WAIT.names:
        waits[name][len(raises):] = 1 + np.unique(pieces) // options.slice_tiles
    arrivals = table.arrivals
    if options.broadcasts:
        sums = lines[~away].sum()
        arrivals = arrivals + (sums * (owners.ranks - 1) if options.mirrored else lines[away].sum())
    adding = len(groups) - len(raises)
    return replace(table, groups=groups, steps=steps, loads=loads, stores=blocks, row_lists=row_lists, waits=waits,
                   raises=np.append(raises, np.zeros(adding, np.int64)), signals=signals[1:], adding=adding,
                   arrivals=arrivals)


def _addition(own: np.ndarray, owners: Owners, rank: int, broadcasts: bool) -> KernelTable:
    """Build the task that adds the parts of a tile; `own`: how the rank stores its own part."""
    parts = own["base"] - owners.c_base - int(owners.edges[rank]) * owners.pitch_bytes
    bases = [own["base"], *(owners.received_at(distance) + parts for distance in range(1, owners.ranks))]
    each = max(1, _LOAD_BYTES // int(own["bytes"].max()))  # rows of a wavefront's in a step
    whole = int(own["rows"].min()) // each
    steps, loads, stores = [], [], []
    for repeats, first, rows in ((whole, 0, np.full(len(own), each)), (1, whole * each, own["rows"] - whole * each)):
        if not repeats or not rows.any():
            continue
        of_step = own[rows > 0].copy()
        of_step["base"] += first * of_step["pitch"]
        of_step["rows"], of_step["step_stride"] = rows[rows > 0], each * of_step["pitch"]
        shift = first * of_step["pitch"]
        copies = [of_step]
        for peer in range(owners.ranks - 1 if broadcasts else 0):
            copies.append(of_step.copy())
            copies[-1]["route"], copies[-1]["peer"] = Route.PEER, peer
        steps.append((repeats, 0.0, sum(map(len, loads)), len(bases) * len(of_step), sum(map(len, stores)),
                      sum(map(len, copies))))
        loads += [rows_of(LOAD, len(of_step), base=base[rows > 0] + shift,
                          **{name: of_step[name] for name in ("pitch", "rows", "bytes", "step_stride")})
                  for base in bases]
        stores += copies
    return KernelTable(np.array([(1, 0, len(steps), 0, 0, 0)], GROUP), np.array(steps, STEP), np.concatenate(loads),
                       np.concatenate(stores))
