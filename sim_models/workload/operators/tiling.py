"""Tiling of a GEMM's output into macro-tiles and wavefront tiles.

The schedule (`t3sim.collectives.schedule`), not the operator, decides which GPU computes a tile, when, and where its
output is sent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from t3sim.base.line import LINE_BYTES


class TilingError(ValueError):
    """A GEMM that cannot be cut this way; the message names the value and what is allowed."""


@dataclass(frozen=True)
class Tiling:
    """An m x n output in column-major order (m contiguous).

    This is the BLAS library's view. A framework keeps C[M, N] by rows, so to the library m = N and n = M.
    Tile t covers rows (t % tile_rows)*tile_m and columns (t // tile_rows)*tile_n: m is fastest, the order in which
    CUTLASS and cuBLAS number workgroups. With `along_n`, n is fastest, and a stage does not store contiguous memory:
    the "row-major scheduling" over a "column-major allocation" of T3's section 4.2.1. Numbers advance over `abreast`
    lines of tiles together (columns along m, rows along n), which keeps a cluster's workgroups next to each other.
    """

    m: int
    n: int
    tile_m: int = 128
    tile_n: int = 128
    wavefronts: int = 8
    element_bytes: int = 2
    along_n: bool = False
    abreast: int = 1  #: lines of tiles
    pitch_unit_bytes: int = LINE_BYTES  #: a column's pitch is a multiple of this
    whole_columns: bool = False  #: `cut` cuts only between columns of tiles

    def __post_init__(self) -> None:
        for name in ("m", "n", "tile_m", "tile_n", "wavefronts", "abreast"):
            if getattr(self, name) < 1:
                raise TilingError(f"{name}={getattr(self, name)} must be at least 1")
        if self.tile_n % self.wavefronts:
            raise TilingError(f"tile_n={self.tile_n} must be a multiple of wavefronts={self.wavefronts}")
        if self.tile_m * self.element_bytes % LINE_BYTES:
            raise TilingError(f"tile_m={self.tile_m} must make columns of whole {LINE_BYTES}-byte lines")

    @property
    def tile_rows(self) -> int:
        return -(-self.m // self.tile_m)

    @property
    def tile_columns(self) -> int:
        return -(-self.n // self.tile_n)

    @property
    def tiles(self) -> int:
        return self.tile_rows * self.tile_columns

    @property
    def wf_columns(self) -> int:
        """Columns of one wavefront tile."""
        return self.tile_n // self.wavefronts

    @property
    def pitch_bytes(self) -> int:
        """Leading dimension of the output in bytes; columns start on 64-byte lines."""
        return -(-self.m * self.element_bytes // self.pitch_unit_bytes) * self.pitch_unit_bytes

    @property
    def output_bytes(self) -> int:
        return self.pitch_bytes * self.n

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of each tile in the grid of tiles, two int64[tiles]."""
        length, lines = self._lines
        band, in_band = np.divmod(np.arange(self.tiles), self.abreast * length)
        fast_index, line = np.divmod(in_band, np.minimum(self.abreast, lines - band * self.abreast))
        slow_index = band * self.abreast + line
        return (slow_index, fast_index) if self.along_n else (fast_index, slow_index)

    @property
    def _lines(self) -> tuple[int, int]:
        """Tiles per line, and number of lines."""
        return (self.tile_columns, self.tile_rows) if self.along_n else (self.tile_rows, self.tile_columns)

    @cached_property
    def first_row(self) -> np.ndarray:
        """First row of each tile, int64[tiles]."""
        return self._places[0] * self.tile_m

    @cached_property
    def first_column(self) -> np.ndarray:
        """First column of each tile, int64[tiles]."""
        return self._places[1] * self.tile_n

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of each tile, int64[tiles]."""
        return np.minimum(self.tile_m, self.m - self.first_row)

    @cached_property
    def columns(self) -> np.ndarray:
        """Columns of each tile, int64[tiles]."""
        return np.minimum(self.tile_n, self.n - self.first_column)

    @cached_property
    def wf_widths(self) -> np.ndarray:
        """Columns that each wavefront of a tile writes (0: none), int64[tiles, wavefronts]."""
        return np.clip(self.columns[:, None] - np.arange(self.wavefronts) * self.wf_columns, 0, self.wf_columns)

    @cached_property
    def wf_tiles(self) -> np.ndarray:
        """Wavefront tiles of each tile that are not empty, int64[tiles]."""
        return (self.wf_widths > 0).sum(axis=1)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Byte offset of each tile's first element in the output, int64[tiles]."""
        return self.first_column * self.pitch_bytes + self.first_row * self.element_bytes

    def holding(self, finer: "Tiling") -> np.ndarray:
        """Return the tile that contains each tile of a finer tiling of the same output, int64[finer.tiles]."""
        return self.at(finer.first_row, finer.first_column)

    @cached_property
    def column_of_tiles(self) -> np.ndarray:
        """Column of tiles of each column, int64[n]; -1: none."""
        return np.arange(self.n) // self.tile_n

    def at(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Return the tile of each element, by its row and column: int64 of their shape."""
        row, column = row // self.tile_m, self.column_of_tiles[column]
        length, lines = self._lines
        slow_index, fast_index = (row, column) if self.along_n else (column, row)
        band, line = np.divmod(slow_index, self.abreast)
        missing_lines = np.maximum(0, (band + 1) * self.abreast - lines)  # of the last band
        return (band * length + fast_index) * self.abreast + line - fast_index * missing_lines

    def cut(self, parts: int) -> np.ndarray:
        """Cut the tiles into parts of consecutive tiles, balanced by elements; no part is empty if tiles suffice.

        Returns the first tile of each part and one past the last, int64[parts + 1].
        """
        step = self.tile_rows if self.whole_columns else 1
        elements = np.concatenate([[0], np.cumsum(self.rows * self.columns)])[::step]
        targets = elements[-1] * np.arange(parts + 1) / parts
        edges = np.searchsorted(elements, targets)
        lower_edges = np.maximum(edges - 1, 0)
        edges = np.where(targets - elements[lower_edges] < elements[edges] - targets, lower_edges, edges)
        if self.tiles >= parts * step:
            for part in range(1, parts):
                edges[part] = max(edges[part], edges[part - 1] + 1)
            for part in range(parts - 1, 0, -1):
                edges[part] = min(edges[part], edges[part + 1] - 1)
        return edges * step
