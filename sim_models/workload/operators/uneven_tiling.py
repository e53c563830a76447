"""A tiling whose columns of tiles are not alike: each has its own width, and lies where it is said to lie."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from t3sim.workload.operators.tiling import Tiling, TilingError


@dataclass(frozen=True)
class UnevenTiling(Tiling):
    """Columns of tiles of up to `tile_n` columns each, of which some may have none, and each is a part of a cut.

    What no column of tiles has is in the array and in no tile.
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
        found = np.full(self.n, -1)
        for place, (start, width) in enumerate(zip(self.starts, self.widths)):
            found[start:start + width] = place
        return found

    def cut(self, parts: int) -> np.ndarray:
        """Return the first tile of each column of tiles and one past the last. Raises TilingError for other parts."""
        if parts != self.tile_columns:
            raise TilingError(f"{parts} parts: {self.tile_columns} columns of tiles are one each")
        return np.arange(parts + 1) * self.tile_rows
