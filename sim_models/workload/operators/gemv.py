"""A matrix times a vector as a kernel table: a workgroup multiplies some rows, and reads each of their elements once.

All wavefronts of a workgroup read its rows block by block, lane by lane. In the end a reduction among lanes gives one
line of the output, which one wavefront stores.
"""

from dataclasses import dataclass

import numpy as np

from t3sim.workload.operators.gemm import Matrix
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, KernelTable, Resources, rows_of
from t3sim.workload.operators.operator import output_stores
from t3sim.workload.operators.tiling import Tiling

ROWS = 32  #: of a workgroup: a line of 16-bit elements
BLOCK_BYTES = 256  #: of a row in one step: with 8 wavefronts of 32 lanes, 2 loads of 16 bytes per lane
REGISTERS = 32  #: of a lane: 8 for these loads, 4 for the vector, 4 sums, 16 for addresses
LDS_BYTES = 1024  #: a sum of each wavefront for each row


def gemv_tiling(rows: int, element_bytes: int) -> Tiling:
    """Cut the output: a tile is the result of one workgroup, and one wavefront stores it."""
    return Tiling(rows, 1, ROWS, 1, 1, element_bytes)


@dataclass(frozen=True)
class Gemv:
    """The operator. Times in memory cycles."""

    tiling: Tiling  #: of `gemv_tiling`
    k: int
    matrix: Matrix  #: pitch from row to row; elements of a row are contiguous
    vector_base: int
    output_base: int
    cycles_per_k: float  #: vector units, one element of all rows of a workgroup
    launch_cycles: float
    reduction_cycles: float  #: among lanes and wavefronts
    wavefronts: int

    @property
    def resources(self) -> Resources:
        return Resources(self.wavefronts, REGISTERS, LDS_BYTES)

    def work(self, gpu: int) -> KernelTable:
        """Build one GPU's kernel: a group per tile, stored through the cache. It is the same on every GPU."""
        tiling, size = self.tiling, self.tiling.element_bytes
        count, block = tiling.tiles, max(1, BLOCK_BYTES // size)
        depths = [(repeats, depth) for repeats, depth in ((self.k // block, block), (1, self.k % block))
                  if repeats and depth]
        steps, loads = np.zeros((count, len(depths) + 1), STEP), np.zeros((count, 2 * len(depths)), LOAD)
        steps["repeats"] = 1
        for index, (repeats, depth) in enumerate(depths):
            start = index * depths[0][0] * block * size
            steps["repeats"][:, index], steps["loads"][:, index] = repeats, 2
            steps["first_load"][:, index] = (np.arange(count) * len(depths) + index) * 2
            steps["compute_cycles"][:, index] = self.cycles_per_k * depth
            loads[:, 2 * index] = rows_of(
                LOAD, count, base=self.matrix.base + tiling.first_row * self.matrix.pitch + start, rows=tiling.rows,
                pitch=self.matrix.pitch, bytes=depth * size, step_stride=block * size)
            loads[:, 2 * index + 1] = rows_of(LOAD, count, base=self.vector_base + start, rows=1, bytes=depth * size,
                                              step_stride=block * size)
        steps["compute_cycles"][:, -1] = self.reduction_cycles
        steps["stores"][:, -1], steps["first_store"][:, -1] = 1, np.arange(count)
        return KernelTable(
            rows_of(GROUP, count, workgroups=1, first_step=np.arange(count) * steps.shape[1], steps=steps.shape[1]),
            steps.ravel(), loads.ravel(), output_stores(tiling, self.output_base),
            launch_cycles=self.launch_cycles, **self.resources._asdict())
