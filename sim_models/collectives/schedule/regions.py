"""Regions of a GPU's output: one for each treatment of one shape of wavefront tile. Planned first, then frozen.

The Tracker counts all arrivals under the receiver's event region for their shape and number of updates, which has the
same number on every GPU. The receiver's own store or admission then sets the tile's region, so a sender does not need
its neighbour's map (rtl/track/tracker.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.collectives.schedule.roles import Action, Role, ScheduleError, is_copy
from t3sim.collectives.schedule.schedule import Schedule, Share


class RegionDestination(NamedTuple):
    """Destination of a region's tiles, with their region and id there."""

    gpu: int
    region: "Region"  #: of their arrivals
    id_offset: int  #: the tile's id there minus the id that its stores name here


@dataclass(frozen=True)
class Region:
    """One kind of treatment; `rows` and `columns` are one wavefront tile's."""

    actions: Action
    rows: int
    columns: int
    updates: int  #: of each element until the tile is complete; 0: not tracked
    admitted: bool = False  #: complete tiles wait for their requests
    destinations: tuple[RegionDestination, ...] = ()  #: empty: the tile is not sent
    tiles_per_block: int = 1  #: wavefront tiles that DMA sends together
    present: bool = False  #: complete when its first line is stored (`ScheduleOptions.present`)

    @property
    def arrival(self) -> "Region":
        """The region of arrivals for its tiles; the tile's own store, or its admission, sets the other properties."""
        return Region(Action.EVENT if self.admitted else Action.STORE | Action.EVENT, self.rows, self.columns,
                      self.updates, self.admitted)

    @property
    def copied(self) -> bool:
        return is_copy(self.admitted, self.updates)


@dataclass(frozen=True)
class RegionTable:
    """One GPU's regions, numbered from 1, and the region of each of its tiles.

    Tables are int64[row of `Schedule.rows`, 2]: of the tile's wavefront tiles of full width, and of its narrow one. 0:
    none.
    """

    regions: tuple[Region, ...]
    own_regions: np.ndarray
    arrivals: np.ndarray  #: regions of arrivals

    def number(self, region: Region) -> int:
        """Find a region's number. Raises ValueError if the table has no such region."""
        return self.regions.index(region) + 1


def plan_regions(schedule: Schedule, gpu: int, tiles_per_block: int, capacity: int) -> RegionTable:
    """Plan a GPU's regions, those of arrivals first. Raises ScheduleError beyond `capacity`."""
    tiling, numbers = schedule.tiling, {}
    rows, shares = schedule.rows(gpu), list(schedule.shares(gpu))
    heights = sorted(set(tiling.rows.tolist()), reverse=True)
    widths = sorted(set(tiling.wf_widths.ravel().tolist()) - {0}, reverse=True)
    arriving_roles = {(role.updates, role.admitted): role for roles in schedule.roles for role in roles if role.fed_by}
    for shape_index in sorted(arriving_roles):  # the same on every GPU, so that neighbours agree on the numbers
        for height in heights:
            for width in widths:
                numbers.setdefault(_arrival(height, width, arriving_roles[shape_index]), len(numbers) + 1)
    own_regions, arrivals = np.zeros((len(rows.tile), 2), np.int64), np.zeros((len(rows.tile), 2), np.int64)
    for row, (tile, index) in enumerate(zip(rows.tile.tolist(), rows.share.tolist())):
        share, height, columns = shares[index], int(tiling.rows[tile]), int(tiling.columns[tile])
        whole_blocks = columns % (tiling.wf_columns * tiles_per_block) == 0
        full, narrow = tiling.wf_columns, columns % tiling.wf_columns
        for shape_index, width in ((0, full if columns >= full else 0), (1, narrow)):
            if not width:
                continue
            if share.role.tracked or share.role.routes:
                region = _own_region(schedule, share, height, width, tiles_per_block if whole_blocks else 1)
                own_regions[row, shape_index] = numbers.setdefault(region, len(numbers) + 1)
            if share.role.fed_by:
                arrivals[row, shape_index] = numbers[_arrival(height, width, share.role)]
    if len(numbers) >= capacity:
        raise ScheduleError(f"regions={capacity} are too few for the shapes and chunk sizes of a {tiling.n}x{tiling.m} "
                            f"output over {schedule.gpus} GPUs; a larger power of two up to 64 is needed in "
                            "[dma] regions")
    return RegionTable(tuple(numbers), own_regions, arrivals)


def _arrival(rows: int, columns: int, role: Role) -> Region:
    return Region(role.actions, rows, columns, role.updates, role.admitted).arrival


def _own_region(schedule: Schedule, share: Share, rows: int, columns: int, blocks: int) -> Region:
    role = share.role
    if not role.routes:
        return Region(role.actions, rows, columns, role.updates, role.admitted)
    destinations = tuple(RegionDestination(
        route.gpu, _arrival(rows, columns, schedule.roles[route.gpu][route.role]),
        schedule.id_offset(share, route)) for route in role.routes)
    return Region(role.actions, rows, columns, role.updates, role.admitted, destinations,
                  blocks if Action.SEND_DMA in role.actions else 1, schedule.policy.present and role.contributes)
