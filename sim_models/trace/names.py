"""What a trace calls a workgroup: by the id of its tile, which Tracker and packets name, not by its turn."""

import numpy as np

from ..schedule import Action, Schedule
from ..schedule.schedule import NO_ID


def names(schedule: Schedule, device: int) -> np.ndarray:
    """Name a device's workgroups by numbers, int64[row of `Schedule.rows`]: 0, 1, 2, ... in some order.

    A workgroup whose tile has no id of its own comes after all that have one, in the order of dispatch.
    """
    found = schedule.rows(device).id.copy()
    without = np.flatnonzero(found == NO_ID)
    found[without] = np.arange(len(found) - len(without), len(found))
    return found


def senders(schedule: Schedule, device: int) -> np.ndarray:
    """Name the workgroup whose stores leave for a peer under each id, int64[id]; -1: none."""
    rows, asked = schedule.rows(device), schedule.named(device)
    found = np.full(int(asked.max()) + 1, -1)
    leave = rows.actions & Action.SEND_STORES != 0
    found[asked[leave]] = names(schedule, device)[leave]
    return found


def destinations(schedule: Schedule, device: int, chosen: frozenset[int]) -> set[int]:
    """Return the ids under which what leaves the chosen workgroups arrives at the peer."""
    sent = schedule.rows(device).to_id[np.isin(names(schedule, device), list(chosen))]
    return set(sent[sent != NO_ID].tolist())
