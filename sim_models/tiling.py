"""How a GEMM's output is cut: macro-tiles, wavefront tiles, ring chunks, slices, and each device's order of execution.

Plain Python and numpy, shared by the GEMM model, the driver and the tests.

A ring chunk has M*N/devices elements, rounded to whole tiles, so chunks and stages do not divide each other (T3 paper,
section 4.1 draws the special case in which they do). A layer whose chunks have more workgroups than the Tracker can
hold beside a stage is cut into *slices*: each slice is reduced by a ring of its own, one after the other, which keeps
every byte count of the ring and shortens the time that a half-reduced tile waits in a Tracker.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: What a ring position does with a tile: send while storing, DMA on when the neighbour's share is in, keep; DMA on what
#: is one's own alone (instead of the first).
REMOTE, DMA, EVENT, STAGED = range(4)


class TilingError(ValueError):
    """A GEMM that cannot be cut this way; the message names the value and what is allowed."""


@dataclass(frozen=True)
class Tiling:
    """An m x n output in column-major order (m contiguous), on `devices` ring neighbours.

    This is the BLAS library's view. A framework keeps C[M, N] by rows, so to the library m = N and n = M.
    Tile t covers rows (t % tile_rows)*tile_m and columns (t // tile_rows)*tile_n: m fastest, the order in which
    CUTLASS and cuBLAS number workgroups.
    """

    m: int
    n: int
    devices: int
    tile_m: int = 128
    tile_n: int = 128
    wavefronts: int = 8
    slices: int = 1
    element_bytes: int = 2
    staged: bool = False  #: the first chunk goes through local memory

    def __post_init__(self) -> None:
        for name in ("m", "n", "tile_m", "tile_n", "wavefronts", "slices"):
            if getattr(self, name) < 1:
                raise TilingError(f"{name}={getattr(self, name)} must be at least 1")
        if self.devices < 2:
            raise TilingError(f"devices={self.devices} must be at least 2: a ring needs a neighbour")
        if self.tile_n % self.wavefronts:
            raise TilingError(f"tile_n={self.tile_n} must be a multiple of wavefronts={self.wavefronts}")
        if self.tile_m * self.element_bytes % 64:
            raise TilingError(f"tile_m={self.tile_m} must make columns of whole 64-byte lines")
        if self.tiles < self.devices * self.slices:
            raise TilingError(f"an output of {self.tiles} tiles of {self.tile_m}x{self.tile_n} is too small: devices="
                              f"{self.devices} chunks need a tile each")

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
        return -(-self.m * self.element_bytes // 64) * 64

    @property
    def output_bytes(self) -> int:
        return self.pitch_bytes * self.n

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of each tile, int64[tiles]."""
        first = np.arange(self.tiles) % self.tile_rows * self.tile_m
        return np.minimum(self.tile_m, self.m - first)

    @cached_property
    def columns(self) -> np.ndarray:
        """Columns of each tile, int64[tiles]."""
        first = np.arange(self.tiles) // self.tile_rows * self.tile_n
        return np.minimum(self.tile_n, self.n - first)

    @cached_property
    def boundaries(self) -> np.ndarray:
        """First tile of each sub-chunk and the end, int64[slices*devices + 1], balanced by elements."""
        elements = np.concatenate([[0], np.cumsum(self.rows * self.columns)])
        parts = self.slices * self.devices
        wanted = elements[-1] * np.arange(parts + 1) / parts
        edges = np.searchsorted(elements, wanted)
        before = np.maximum(edges - 1, 0)
        edges = np.where(wanted - elements[before] < elements[edges] - wanted, before, edges)
        for part in range(1, parts):  # every sub-chunk has at least one tile
            edges[part] = max(edges[part], edges[part - 1] + 1)
        for part in range(parts - 1, 0, -1):
            edges[part] = min(edges[part], edges[part + 1] - 1)
        return edges

    def chunk(self, slice_index: int, chunk: int) -> range:
        """Tiles of one sub-chunk."""
        part = slice_index * self.devices + chunk
        return range(int(self.boundaries[part]), int(self.boundaries[part + 1]))

    def order(self, device: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Execution order of a device: tile, ring position and slice of workgroup 0, 1, 2, ... (each int64[tiles]).

        Device d starts one chunk after its downstream neighbour d-1 (T3 paper, section 4.4), so what it sends at ring
        position p the neighbour computes at position p+1.
        """
        tiles, positions, slices = [], [], []
        for s in range(self.slices):
            for position in range(self.devices):
                chunk = self.chunk(s, (device + 1 + position) % self.devices)
                tiles.extend(chunk)
                positions.extend([position] * len(chunk))
                slices.extend([s] * len(chunk))
        return np.array(tiles), np.array(positions), np.array(slices)

    def wg_offset(self, device: int, slice_index: int) -> int:
        """What to add to a workgroup id of `device` to get the id of the same tile at its downstream neighbour."""
        return len(self.chunk(slice_index, device))

    def max_wg_offset(self, device: int) -> int:
        return max(self.wg_offset(device, s) for s in range(self.slices))

    def kind(self, position: int) -> int:
        if position == 0:
            return STAGED if self.staged else REMOTE
        return EVENT if position == self.devices - 1 else DMA

    def wf_tile_columns(self, tile: int, wf: int) -> int:
        """Columns that wavefront `wf` of a tile writes (0: none)."""
        return int(np.clip(self.columns[tile] - wf * self.wf_columns, 0, self.wf_columns))

    def wf_tiles(self, tile: int) -> int:
        """Wavefront tiles of a tile that are not empty."""
        return -(-int(self.columns[tile]) // self.wf_columns)


def slices_needed(m: int, n: int, devices: int, tile_m: int, tile_n: int, wavefronts: int, window_wgs: int,
                  concurrent_wgs: int) -> int:
    """Fewest slices with which a chunk, one and a half stages and the Tracker's window fit together.

    A tile that the upstream neighbour has sent waits one chunk's time for the local one; the workgroups in flight need
    room beside it. Half a stage more lets early compute units run ahead of late ones. A device whose own chunk is the
    ragged one may have more workgroups, but never as many as the window.
    """
    room = window_wgs - concurrent_wgs - concurrent_wgs // 2
    if room < 1:
        room = max(1, window_wgs // 2)
    tiles = -(-m // tile_m) * -(-n // tile_n)
    slices = 1
    while True:
        tiling = Tiling(m, n, devices, tile_m, tile_n, wavefronts, slices)
        fits = tiling.max_wg_offset(0) <= room and max(map(tiling.max_wg_offset, range(devices))) < window_wgs
        if fits or tiles < 2 * devices * (slices + 1):
            return slices
        slices += 1
