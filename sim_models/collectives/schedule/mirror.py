"""Mirrored mode: a representative GPU whose own traffic stands for its upstream neighbour's (T3 paper, section 5.1.1).

All GPUs behave alike, so a line that this GPU sends of a share becomes a line that its upstream neighbour sends at the
same moment, of the next rank's chunk. The k-th line of one share becomes the k-th line of the other (in proportion, if
a ragged edge makes their line counts differ).
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.line import lines_of
from t3sim.collectives.schedule.roles import ScheduleError
from t3sim.collectives.schedule.schedule import NO_ID, Schedule


class Mirror(NamedTuple):
    """Line ranks of mirrored mode, by row of `Schedule.rows`; groups are the GPU's shares."""

    group: np.ndarray  # int64 [row]
    sender: np.ndarray  # int64 [destination GPU, id there]: this GPU's row of the same tile, -1 none
    rank: np.ndarray  # int64 [row, wavefront]: rank of the wavefront tile's first line in its group
    base: np.ndarray  # int64 [row, wavefront]: address of its first line
    region: np.ndarray  # int64 [row, wavefront]: region of its arrivals
    column_bytes: np.ndarray  # int64 [row]: of one column of the tile
    id: np.ndarray  # int64 [row]
    route: np.ndarray  # int64 [destination GPU, id there]: index of the row's route to it, -1 none
    becomes: np.ndarray  # int64 [group, route]: group whose data arrive when this group's are sent, -1 none
    list_start: np.ndarray  # int64 [group + 1]: first entry of each group in the lists below
    list_rank: np.ndarray
    list_row: np.ndarray
    list_wf: np.ndarray
    lines: np.ndarray  # int64 [group]
    pitch: int


_TABLES = {"sender", "rank", "base", "region", "route", "becomes"}  #: of two dimensions

#: Placeholder in a run that is not mirrored.
NO_MIRROR = Mirror(*(np.zeros((1,) * (2 if name in _TABLES else 1), np.int64)
                     for name in Mirror._fields[:-1]), pitch=0)


def make_mirror(schedule: Schedule, gpu: int, base: int, arrivals: np.ndarray) -> Mirror:
    """Build the tables for a GPU whose output is at `base`; `arrivals` as in `RegionTable`.

    Raises ScheduleError if it cannot represent all GPUs.
    """
    if not schedule.is_symmetric():
        raise ScheduleError("one GPU cannot represent all: renaming every rank to the next one changes the "
                            "collective or the topology, or a chunk is empty; every GPU must be simulated "
                            "(gpus.every = true)")
    tiling, rows = schedule.tiling, schedule.rows(gpu)
    widths = tiling.wf_widths[rows.tile]
    column_bytes = tiling.rows[rows.tile] * tiling.element_bytes
    lines = widths * lines_of(column_bytes)[:, None]
    total = np.append(0, np.cumsum(lines))  # lines before each wavefront tile, and all
    starts = np.searchsorted(rows.share, np.arange(rows.share[-1] + 2))  # first row of each share, and the end
    first = total[starts * tiling.wavefronts]
    rank = total[:-1].reshape(lines.shape) - first[rows.share][:, None]
    wf_offsets = np.arange(tiling.wavefronts) * tiling.wf_columns * tiling.pitch_bytes
    region = np.where(widths == tiling.wf_columns, arrivals[:, :1], np.where(widths > 0, arrivals[:, 1:], 0))
    row, wf = map(np.ascontiguousarray, np.nonzero(lines))
    sender = np.full((schedule.gpus, rows.to_id.max() + 1), -1)
    route = sender.copy()
    routed = np.nonzero(rows.to_id != NO_ID)
    target = rows.to_gpu[routed], rows.to_id[routed]
    sender[target], route[target] = routed
    return Mirror(
        group=rows.share, sender=sender, rank=rank, base=base + tiling.offsets[rows.tile][:, None] + wf_offsets,
        region=region, column_bytes=column_bytes, id=rows.id, route=route, becomes=_becomes(schedule, gpu),
        list_start=np.searchsorted(rows.share[row], np.arange(len(starts))), list_rank=rank[row, wf], list_row=row,
        list_wf=wf, lines=np.diff(first), pitch=tiling.pitch_bytes)


def _becomes(schedule: Schedule, gpu: int) -> np.ndarray:
    """Return the group of each group's counterpart on each of its routes.

    A shift of all ranks keeps the order of roles. If a peer's role receives data from here, the role with the same
    number here therefore receives the same data from another GPU.
    """
    shares = list(schedule.shares(gpu))
    group = {(share.slice_index, share.number): index for index, share in enumerate(shares)}
    groups = np.full((len(shares), max(1, *(len(share.role.routes) for share in shares))), -1)
    for index, share in enumerate(shares):
        for number, route in enumerate(share.role.routes):
            groups[index, number] = group[share.slice_index, route.role]
    return groups
