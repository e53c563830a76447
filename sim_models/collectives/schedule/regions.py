"""Regions of a device's output: one for each treatment of one shape of wavefront tile. Planned first, then frozen.

All arrivals are tracked under the receiver's event region of their shape and of what their tile waits for, which has
the same number on every device; the receiver's own store or admission then gives the tile its region, so a sender need
not know its neighbour's map (rtl/track/tracker.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.collectives.schedule.roles import Action, Role, ScheduleError, is_copy
from t3sim.collectives.schedule.schedule import Schedule, Share


class RegionDestination(NamedTuple):
    """Destination of a region's tiles, and what they are there."""

    device: int
    region: "Region"  #: under which they arrive
    id_offset: int  #: from the id that their stores name here to that of the same tile there


@dataclass(frozen=True)
class Region:
    """One kind of treatment; `rows` and `columns` are those of one wavefront tile."""

    actions: Action
    rows: int
    columns: int
    updates: int  #: of each element that complete a tile; 0: not tracked
    admitted: bool = False  #: complete tiles wait for their requests
    destinations: tuple[RegionDestination, ...] = ()  #: none: it goes nowhere
    tiles_per_block: int = 1  #: wavefront tiles that DMA sends together
    present: bool = False  #: complete when its first line is stored (`ScheduleOptions.present`)

    @property
    def arrival(self) -> "Region":
        """The region under which arrivals for its tiles come.

        The tile's own store, or its admission, decides the rest.
        """
        return Region(Action.EVENT if self.admitted else Action.STORE | Action.EVENT, self.rows, self.columns,
                      self.updates, self.admitted)

    @property
    def copied(self) -> bool:
        return is_copy(self.admitted, self.updates)


@dataclass(frozen=True)
class RegionTable:
    """One device's regions, numbered from 1, and which one each of its tiles has.

    Tables are int64[row of `Schedule.rows`, 2]: of a wavefront tile of full width, and of the tile's narrow one. 0: it
    has none.
    """

    regions: tuple[Region, ...]
    own: np.ndarray
    arrivals: np.ndarray  #: under which arrivals are tracked

    def number(self, region: Region) -> int:
        """Find a region's number. Raises ValueError if the table has no such region."""
        return self.regions.index(region) + 1


def plan_regions(schedule: Schedule, device: int, tiles_per_block: int, capacity: int) -> RegionTable:
    """Plan the regions that a device needs, those of arrivals first. Raises ScheduleError beyond `capacity`."""
    tiling, numbers = schedule.tiling, {}
    rows, shares = schedule.rows(device), list(schedule.shares(device))
    heights = sorted(set(tiling.rows.tolist()), reverse=True)
    widths = sorted(set(tiling.wf_widths.ravel().tolist()) - {0}, reverse=True)
    received = {(role.updates, role.admitted): role for roles in schedule.roles for role in roles if role.fed_by}
    for kind in sorted(received):  # the same on every device, so that neighbours agree on the numbers
        for height in heights:
            for width in widths:
                numbers.setdefault(_arrival(height, width, received[kind]), len(numbers) + 1)
    own, arrivals = np.zeros((len(rows.tile), 2), np.int64), np.zeros((len(rows.tile), 2), np.int64)
    for row, (tile, index) in enumerate(zip(rows.tile.tolist(), rows.share.tolist())):
        share, height, columns = shares[index], int(tiling.rows[tile]), int(tiling.columns[tile])
        whole = columns % (tiling.wf_columns * tiles_per_block) == 0
        full, narrow = tiling.wf_columns, columns % tiling.wf_columns
        for kind, width in ((0, full if columns >= full else 0), (1, narrow)):
            if not width:
                continue
            if share.role.tracked or share.role.routes:
                region = _own_region(schedule, share, height, width, tiles_per_block if whole else 1)
                own[row, kind] = numbers.setdefault(region, len(numbers) + 1)
            if share.role.fed_by:
                arrivals[row, kind] = numbers[_arrival(height, width, share.role)]
    if len(numbers) >= capacity:
        raise ScheduleError(f"regions={capacity} are too few for the shapes and chunk sizes of a {tiling.n}x{tiling.m} "
                            f"output over {schedule.devices} devices; a larger power of two up to 64 is needed in "
                            "[dma] regions")
    return RegionTable(tuple(numbers), own, arrivals)


def _arrival(rows: int, columns: int, role: Role) -> Region:
    return Region(role.actions, rows, columns, role.updates, role.admitted).arrival


def _own_region(schedule: Schedule, share: Share, rows: int, columns: int, blocks: int) -> Region:
    role = share.role
    if not role.routes:
        return Region(role.actions, rows, columns, role.updates, role.admitted)
    destinations = tuple(RegionDestination(
        route.device, _arrival(rows, columns, schedule.roles[route.device][route.role]),
        schedule.id_offset(share, route)) for route in role.routes)
    return Region(role.actions, rows, columns, role.updates, role.admitted, destinations,
                  blocks if Action.SEND_DMA in role.actions else 1, schedule.policy.present and role.contributes)
