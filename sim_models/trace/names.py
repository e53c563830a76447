"""Names of a trace: a tile by the id that Tracker and packets use, a workgroup by the tile that it makes."""

from collections.abc import Sequence

import numpy as np

from t3sim.collectives.schedule import Action, Schedule
from t3sim.collectives.schedule.schedule import NO_ID
from t3sim.mechanisms.gather_before import groups_of, rows_sent
from t3sim.mechanisms.track_trigger import AddressSpace, rows_of_workgroups
from t3sim.workload.operators.tiling import Tiling

ALONE = -1  #: part of a workgroup that makes its tile by itself


def names(schedule: Schedule, device: int) -> np.ndarray:
    """Name a device's tiles by numbers, int64[row of `Schedule.rows`]: 0, 1, 2, ... in some order.

    A tile that has no id of its own comes after all that have one, in the order of dispatch.
    """
    found = schedule.rows(device).id.copy()
    without = np.flatnonzero(found == NO_ID)
    found[without] = np.arange(len(found) - len(without), len(found))
    return found


def count(schedule: Schedule, made: Tiling) -> int:
    """Return how many names there are on the device that has most; `made` as for `workgroups`."""
    tiles = max(len(schedule.rows(device).tile) for device in range(schedule.devices))
    if schedule.placement is not None:
        return tiles + max(len(schedule.placement.workgroups(device)) for device in range(schedule.devices))
    return tiles + made.tiles if schedule.policy.present else tiles


def workgroups(space: AddressSpace, made: Tiling) -> tuple[np.ndarray, np.ndarray]:
    """Name a device's workgroups, two int64[group of its kernel]: the tile that each makes, and which part of it.

    Parts count from 0 in the order of dispatch; `ALONE` if there is but one. `made`: what workgroups make. Those whose
    inputs are tiles of the schedule, which others make, or that make columns of several of them, come after all tiles,
    in the order of dispatch.
    """
    if space.schedule.placement is not None:
        found = np.arange(len(space.schedule.placement.workgroups(space.device)))
        return max(len(space.schedule.rows(one).tile) for one in range(space.schedule.devices)) + found, (
            np.full(len(found), ALONE))
    called = names(space.schedule, space.device)
    if space.schedule.policy.present:
        sending = called[rows_sent(space)]
        found = np.concatenate([sending, len(called) + np.arange(made.tiles)])
        return found, np.full(len(found), ALONE)
    of_row = np.sort(np.repeat(rows_of_workgroups(space, made), space.schedule.policy.parts))
    of_row = of_row[of_row >= 0]
    part = np.arange(len(of_row)) - np.searchsorted(of_row, of_row)
    return called[of_row], np.where(np.bincount(of_row)[of_row] > 1, part, ALONE)


def padded(rows: Sequence[np.ndarray], value: int) -> np.ndarray:
    """Stack rows of which some are shorter, which end with a value."""
    most = max(map(len, rows))
    return np.stack([np.concatenate([row, np.full((most - len(row), *row.shape[1:]), value, row.dtype)])
                     for row in rows])


def last_groups(space: AddressSpace, needs: np.ndarray) -> np.ndarray:
    """Return the group of inputs for which each workgroup waits last, int64[workgroup]; -1: for none.

    `needs`: how many groups of others must have come, in their order.
    """
    come = groups_of(space).in_turn
    return np.where(needs > 0, come[needs - 1], -1) if len(come) else np.full(needs.shape, -1)


def senders(space: AddressSpace) -> np.ndarray:
    """Name the tile whose stores leave for a peer under each region and id, int64[region, id]; -1: none."""
    schedule, device = space.schedule, space.device
    rows, asked, called = schedule.rows(device), schedule.named(device), names(schedule, device)
    found = np.full((len(space.regions) + 1, int(asked.max()) + 1), -1)
    leave = np.flatnonzero(rows.actions & Action.SEND_STORES)
    for region in space.table.own[leave].T:
        found[region, asked[leave]] = called[leave]
    found[0] = -1
    return found


def destinations(schedule: Schedule, device: int, chosen: frozenset[int]) -> set[int]:
    """Return the ids under which what leaves the chosen tiles arrives at their peers."""
    sent = schedule.rows(device).to_id[np.isin(names(schedule, device), list(chosen))]
    return set(sent[sent != NO_ID].tolist())
