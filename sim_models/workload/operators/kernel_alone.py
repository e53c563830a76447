"""Checks of a kernel that runs alone, before compiled code sees its table."""

from collections.abc import Mapping

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.workload.operators.kernel_table import KernelError, KernelTable, Route, added, check_memory

_MOST_LINES = 1 << 33  #: lines, steps and workgroups of a kernel: about a day of simulation
_MOST_CYCLES = 1 << 36  #: about a day of simulation
_LONGEST_WAIT = 40_000  #: cycles without progress: 4 of them fit into `engine.end.IDLE_LIMIT`


def check_alone(table: KernelTable, memory_bytes: int, largest_values: Mapping[str, int], slots: int) -> None:
    """Raise KernelError for a kernel that a GPU alone, without Track & Trigger, cannot run, or not within days.

    `largest_values`: of columns of stores that requests carry. `slots`: for resident workgroups.
    """
    check_memory(table, memory_bytes)
    stores = table.stores
    if (stores["region"] != 0).any() or np.isin(stores["route"], (Route.MAPPED, Route.BOTH)).any():
        raise KernelError("stores: a region or a mapped address needs Track & Trigger; a kernel alone runs without it")
    if (stores["peer"] != 0).any():
        raise KernelError("stores: a kernel alone has one neighbour, peer 0")
    if len(table.needs):
        raise KernelError("needs: a kernel alone has neither dispatch window nor ready table, which would answer")
    to_peer = stores["route"] == Route.PEER
    for column, largest in {"part": np.iinfo(np.int16).max, **largest_values}.items():
        bad_stores = np.flatnonzero((stores[column] < 0) | (stores[column] > largest))
        if len(bad_stores):
            raise KernelError(f"stores[{bad_stores[0]}]: {column}={stores[column][bad_stores[0]]} is not possible: "
                              f"0 to {largest}")
    if not len(table.signals) and (stores["id"][to_peer] != 0).any():
        raise KernelError("stores name a signal of the peer, but signals is empty")
    _check_time(table, slots)
    _check_ends(table, to_peer)


def _check_ends(table: KernelTable, to_peer: np.ndarray) -> None:
    """Raise KernelError if the kernel waits for more lines than it sends to itself, or for a signal never set."""
    groups, steps, stores = table.groups, table.steps, table.stores
    turns = added(steps["first_store"], steps["stores"], _turns(table), len(stores))
    lines = np.where(to_peer, turns * stores["rows"] * -(-stores["bytes"] // LINE_BYTES), 0)
    if table.arrivals.max() > lines.sum():
        raise KernelError(f"arrivals: {table.arrivals.max()} lines are expected, but the kernel sends itself "
                          f"{lines.sum():.0f}: it would never end")
    arriving_lines = np.bincount(np.where(to_peer, stores["id"], 0), lines, len(table.signals) + 1).astype(float)
    if len(table.raises):
        arriving_lines += np.bincount(table.raises, groups["workgroups"], len(table.signals) + 1)
    never_set = np.append(0, np.cumsum(table.signals > arriving_lines[1:]))
    first, last = table.waits["first"], table.waits["last"]
    if (endless := np.flatnonzero((last > 0) & (never_set[last] > never_set[first - 1]))).size:
        signal = int(np.searchsorted(never_set, never_set[first[endless[0]] - 1], side="right"))
        raise KernelError(f"waits: signal {signal} is set at {table.signals[signal - 1]}, and "
                          f"{arriving_lines[signal]:.0f} are counted for it: it would never be set")


def _turns(table: KernelTable) -> np.ndarray:
    """Return how often all workgroups together run each step."""
    groups, steps = table.groups, table.steps
    return steps["repeats"] * added(groups["first_step"], groups["steps"], groups["workgroups"], len(steps))


def _check_time(table: KernelTable, slots: int) -> None:
    """Raise KernelError if a lower bound on the work exceeds days of simulation."""
    steps, turns = table.steps, _turns(table)
    events = turns.sum() + float(table.groups["workgroups"].sum())
    for name in ("loads", "stores"):
        blocks = getattr(table, name)
        lines_before = np.append(0.0, np.cumsum(blocks["rows"] * (blocks["bytes"] / LINE_BYTES)))
        first = steps[f"first_{name[:-1]}"]
        events += (turns * (lines_before[first + steps[name]] - lines_before[first])).sum()
    if events > _MOST_LINES:
        raise KernelError(f"the kernel has {events:.3g} lines, steps and workgroups: at most {_MOST_LINES} are "
                          "simulated")
    workgroups = float(table.groups["workgroups"].sum())
    cycles = ((turns * steps["compute_cycles"]).sum() + workgroups * (table.launch_cycles + table.end_cycles)) / slots
    cycles += len(table.arrivals) * table.phase_launch_cycles
    if cycles > _MOST_CYCLES:
        raise KernelError(f"the kernel takes {cycles:.3g} cycles at least: at most {_MOST_CYCLES} are simulated")
    for name, waits in (("steps: compute_cycles", steps["compute_cycles"]), ("launch_cycles", table.launch_cycles),
                        ("end_cycles", table.end_cycles), ("phase_launch_cycles", table.phase_launch_cycles)):
        if (longest := float(np.max(waits, initial=0))) > _LONGEST_WAIT:
            raise KernelError(f"{name}={longest:g} is not possible: 0 to {_LONGEST_WAIT}, beyond which a run counts as "
                              "stuck")
