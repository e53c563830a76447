"""Sums of a switch: the count of their parts, and the largest dispatch window with which its table is never full.

If the RTL's table is full, a sum leaves before it is complete. If the model's table is full, a part of another sum
blocks its link, and the part that a sum waits for may come later on that link. But a GPU starts no workgroup whose tile
is not in the owner's window, so a port holds lines of at most the tiles that the owner sums within one window. With a
small enough window there is always room.
"""

import numpy as np

from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.collectives.schedule.roles import Action, ScheduleError
from t3sim.collectives.schedule.schedule import Schedule


def more_bits(gpus: int) -> int:
    """Return the bits of a packet's count of the other GPUs' parts beyond the first."""
    return max(0, gpus - 2).bit_length()


def window_for_sums(schedule: Schedule, window: int, memory_bytes: int, planes: int = 1) -> int:
    """Return the largest window of ids, up to `window`, whose sums fit into a port's memory. Raises ScheduleError.

    `planes`: parallel switches that each have such ports; the lines of a tile's column are dealt to them in turn.
    """
    tiling = schedule.tiling
    tile_bytes = tiling.tile_n * LINE_BYTES * -(-lines_of(tiling.tile_m * tiling.element_bytes) // planes)
    tiles = memory_bytes // tile_bytes
    memory_text = f"[switch] merge_sets x merge_ways: {memory_bytes} bytes"
    if tiles < 1:
        raise ScheduleError(f"{memory_text} do not hold the {tile_bytes} of one tile")
    for gpu in range(schedule.gpus):
        rows = schedule.rows(gpu)
        summed_ids = np.sort(rows.id[(rows.actions & Action.STORE != 0) & (rows.updates > 0)])
        if len(summed_ids) > tiles:
            window = min(window, int((summed_ids[tiles:] - summed_ids[:-tiles]).min()))
    if window <= schedule.slack:
        raise ScheduleError(f"{memory_text} hold sums of a window of {window} ids: "
                            f"more than this schedule's slack of {schedule.slack} are needed")
    return window
