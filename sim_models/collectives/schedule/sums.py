"""Sums of a switch: how their parts are counted, and the largest dispatch window around one that must never be full.

The RTL's table may be full: then a sum leaves before it is whole. While the model's is, a part of another sum holds up
its link, and the part that a sum waits for may come after it on that link. But a GPU starts no workgroup whose tile is
not in the owner's window, so that a port holds lines of no more tiles than the owner sums within one: with a window
that is small enough there is always room.
"""

import numpy as np

from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.collectives.schedule.roles import Action, ScheduleError
from t3sim.collectives.schedule.schedule import Schedule


def more_bits(devices: int) -> int:
    """Return the bits in which a packet says how many of the other devices' parts it has beside the first."""
    return max(0, devices - 2).bit_length()


def window_for_sums(schedule: Schedule, window: int, memory_bytes: int, planes: int = 1) -> int:
    """Return the largest window of ids, up to `window`, whose sums fit into a port's memory. Raises ScheduleError.

    `planes`: switches side by side that each have such ports; the lines of a tile's column take turns on them.
    """
    tiling = schedule.tiling
    tile_bytes = tiling.tile_n * LINE_BYTES * -(-lines_of(tiling.tile_m * tiling.element_bytes) // planes)
    tiles = memory_bytes // tile_bytes
    held = f"[switch] merge_sets x merge_ways: {memory_bytes} bytes"
    if tiles < 1:
        raise ScheduleError(f"{held} do not hold the {tile_bytes} of one tile")
    for device in range(schedule.devices):
        rows = schedule.rows(device)
        summed = np.sort(rows.id[(rows.actions & Action.STORE != 0) & (rows.updates > 0)])
        if len(summed) > tiles:
            window = min(window, int((summed[tiles:] - summed[:-tiles]).min()))
    if window <= schedule.slack:
        raise ScheduleError(f"{held} hold sums of a window of {window} ids: "
                            f"more than this schedule's slack of {schedule.slack} are needed")
    return window
