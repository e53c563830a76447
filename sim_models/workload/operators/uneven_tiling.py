"""A tiling whose columns of tiles each have a position and a width of their own."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from t3sim.workload.operators.tiling import Tiling, TilingError


@dataclass(frozen=True)
class UnevenTiling(Tiling):
    """Columns of tiles of 0 to `tile_n` columns each; each column of tiles is a part of a cut.

    Columns of the array that are in no column of tiles are in no tile.
    """

    starts: tuple[int, ...] = field(kw_only=True)  #: first column of each column of tiles
    widths: tuple[int, ...] = field(kw_only=True)  #: columns of each

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.starts) != len(self.widths) or not all(0 <= width <= self.tile_n for width in self.widths):
            raise TilingError(f"widths={self.widths[:8]}...: each of {len(self.starts)} columns of tiles needs 0 to "
                              f"{self.tile_n}")

    @property
    def tile_columns(self) -> int:
        return len(self.widths)

    @cached_property
    def first_column(self) -> np.ndarray:
        return np.array(self.starts, np.int64)[self._places[1]]

    @cached_property
    def columns(self) -> np.ndarray:
        return np.array(self.widths, np.int64)[self._places[1]]

    @cached_property
    def column_of_tiles(self) -> np.ndarray:
        tile_columns = np.full(self.n, -1)
        for tile_column, (start, width) in enumerate(zip(self.starts, self.widths)):
            tile_columns[start:start + width] = tile_column
        return tile_columns

    def cut(self, parts: int) -> np.ndarray:
        """Return the first tile of each column of tiles and one past the last. Raises TilingError for other parts."""
        if parts != self.tile_columns:
            raise TilingError(f"{parts} parts: {self.tile_columns} columns of tiles are one each")
        return np.arange(parts + 1) * self.tile_rows
