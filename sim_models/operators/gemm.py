"""A tiled GEMM as a kernel table: one workgroup per macro-tile, a buffered loop over K, then the tile's stores.

Rows, columns, A and B are the BLAS library's (operators/tiling.py): A holds the weights, kept along K forward and along
its rows backward, B the activations, always kept along K. A ragged tile costs the time of a whole one, as in a kernel
with predicated lanes.
"""

from dataclasses import dataclass

import numpy as np

from .kernel_table import GROUP, LOAD, STEP, KernelTable, Resources, rows_of
from .operator import output_stores
from .tiling import Tiling


@dataclass(frozen=True)
class Matrix:
    """Where an operand lies, in bytes."""

    base: int
    pitch: int


@dataclass(frozen=True)
class Gemm:
    """The operator. Times in memory cycles."""

    tiling: Tiling
    k: int
    block_k: int  #: depth of one step
    a: Matrix
    a_along_k: bool  #: consecutive elements of K are contiguous; else those of a tile's rows
    b: Matrix  #: pitch from column to column; consecutive elements of K are contiguous
    c_base: int
    cycles_per_k: float  #: matrix units, one element of K of a macro-tile
    launch_cycles: float
    epilogue_cycles: float
    buffers: int = 2  #: of blocks of K; 1: a block is loaded, then computed, and another workgroup hides the wait
    resources: Resources = Resources()

    def work(self, device: int) -> KernelTable:
        """Build one device's kernel: a group per tile, in the order of tiles, stored through the cache.

        It is the same on every device.
        """
        tiling, tiles = self.tiling, np.arange(self.tiling.tiles)
        depths = [(self.k // self.block_k, self.block_k), (1, self.k % self.block_k)]
        depths = [(repeats, depth) for repeats, depth in depths if repeats and depth]
        loads = [block for index, (_, depth) in enumerate(depths) for block in self._loads(index * depths[0][0], depth)]
        stores = output_stores(tiling, self.c_base)
        per_tile = len(depths) + 1  # the last step writes the sums through the LDS, and stores
        steps = np.zeros((len(tiles), per_tile), STEP)
        for index, (repeats, depth) in enumerate(depths):
            steps["repeats"][:, index] = repeats
            steps["compute_cycles"][:, index] = self.cycles_per_k * depth
            steps["loads"][:, index] = 2
            steps["first_load"][:, index] = tiles * len(loads) + 2 * index
        steps["repeats"][:, -1] = 1
        steps["compute_cycles"][:, -1] = self.epilogue_cycles
        steps["stores"][:, -1] = tiling.wf_tiles
        steps["first_store"][:, -1] = np.cumsum(tiling.wf_tiles) - tiling.wf_tiles
        groups = rows_of(GROUP, len(tiles), workgroups=1, first_step=tiles * per_tile, steps=per_tile)
        return KernelTable(groups, steps.ravel(), np.stack(loads, axis=1).ravel(), stores, ahead=self.buffers,
                           launch_cycles=self.launch_cycles, **self.resources._asdict())

    def _loads(self, first_step: int, depth: int) -> list[np.ndarray]:
        """Return A's and B's blocks of every tile in steps of `depth` from `first_step` on."""
        tiling, size, count = self.tiling, self.tiling.element_bytes, self.tiling.tiles
        k = first_step * self.block_k
        if self.a_along_k:
            a = rows_of(LOAD, count, base=self.a.base + tiling.first_row * self.a.pitch + k * size, rows=tiling.rows,
                        bytes=depth * size, step_stride=self.block_k * size)
        else:
            a = rows_of(LOAD, count, base=self.a.base + k * self.a.pitch + tiling.first_row * size, rows=depth,
                        bytes=tiling.rows * size, step_stride=self.block_k * self.a.pitch)
        b = rows_of(LOAD, count, base=self.b.base + tiling.first_column * self.b.pitch + k * size, rows=tiling.columns,
                    bytes=depth * size, step_stride=self.block_k * size, pitch=self.b.pitch)
        a["pitch"] = self.a.pitch
        return [a, b]
