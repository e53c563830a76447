"""Placement of workgroups' results column by column, where their tiles are not the schedule's: experts' tokens.

A workgroup's tile has columns of several tiles of the output, which have several owners; GPUs compute unequal numbers
of columns. All columns of the output are sums of equally many parts (`ScheduleOptions.parts`), so that every tile waits
for the same number of bytes, from any sender.
"""

from dataclasses import dataclass

import numpy as np

from t3sim.workload.operators.tiling import Tiling

NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Placement:
    """Columns that each GPU's workgroups compute, whose rows are the output's, and their columns in the output."""

    tilings: tuple[Tiling, ...]  #: of each GPU
    columns: tuple[np.ndarray, ...]  #: int64[computed column] of each GPU: column of the output; NOWHERE: padding
    parts: tuple[np.ndarray, ...]  #: int64[computed column] of each GPU: its index among the parts of the column's sum
    terms: int  #: parts of a column's sum

    def workgroups(self, gpu: int) -> np.ndarray:
        """Return the tiles of a GPU's workgroups, in order: int64[workgroup]. Tiles of padding only have none."""
        tiling = self.tilings[gpu]
        has_columns = (self.of_tiles(self.columns[gpu], gpu) != NOWHERE).any(axis=1)
        return np.flatnonzero(has_columns[tiling.first_column // tiling.tile_n])

    def of_tiles(self, values: np.ndarray, gpu: int) -> np.ndarray:
        """Arrange values of a GPU's columns by tile: int64[column of tiles, column of a tile]."""
        tiling = self.tilings[gpu]
        return np.pad(values, (0, tiling.tile_columns * tiling.tile_n - len(values)),
                      constant_values=NOWHERE).reshape(tiling.tile_columns, tiling.tile_n)

    def columns_of_workgroups(self, gpu: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the output's column and the part of its sum for each column of each workgroup; NOWHERE: none.

        Both int64[workgroup, column of a tile].
        """
        tiling = self.tilings[gpu]
        tile_column = tiling.first_column[self.workgroups(gpu)] // tiling.tile_n
        return (self.of_tiles(self.columns[gpu], gpu)[tile_column], self.of_tiles(self.parts[gpu], gpu)[tile_column])
