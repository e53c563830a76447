"""Placement of what workgroups make, column by column, where a tile is not the schedule's: experts' tokens.

A workgroup's tile has columns of several tiles of the output, of several owners; how many of them a device makes is
uneven. Each column of the output is the sum of as many parts as any other (`ScheduleOptions.parts`), so that every
tile waits for the same bytes, whoever sends them.
"""

from dataclasses import dataclass

import numpy as np

from t3sim.workload.operators.tiling import Tiling

NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Placement:
    """Columns that each device's workgroups make, whose rows are the output's, and where they are added."""

    made: tuple[Tiling, ...]
    columns: tuple[np.ndarray, ...]  #: int64[column made] of each device: that of the output; NOWHERE: it is padding
    parts: tuple[np.ndarray, ...]  #: int64[column made] of each device: which of the parts of that column's sum it is
    terms: int  #: parts of a column's sum

    def workgroups(self, device: int) -> np.ndarray:
        """Return the tiles that a device's workgroups make, in their order: int64[workgroup]. Of padding is none."""
        made = self.made[device]
        some = (self.of_tiles(self.columns[device], device) != NOWHERE).any(axis=1)
        return np.flatnonzero(some[made.first_column // made.tile_n])

    def of_tiles(self, values: np.ndarray, device: int) -> np.ndarray:
        """Return what a device's columns have by the tile's column: int64[column of tiles, column of a tile]."""
        made = self.made[device]
        return np.pad(values, (0, made.tile_columns * made.tile_n - len(values)),
                      constant_values=NOWHERE).reshape(made.tile_columns, made.tile_n)

    def columns_of_workgroups(self, device: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the output's column, and the part of its sum, of each column of each workgroup, NOWHERE: it is none.

        Both int64[workgroup, column of a tile].
        """
        made = self.made[device]
        place = made.first_column[self.workgroups(device)] // made.tile_n
        return (self.of_tiles(self.columns[device], device)[place], self.of_tiles(self.parts[device], device)[place])
