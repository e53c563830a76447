"""A tiled GEMM as a kernel table: one workgroup per macro-tile, a buffered loop over K, then the tile's stores.

With split-K, each part of K has a workgroup of its own; parts are whole steps and differ by at most 1 step.

Rows, columns, A and B are the BLAS library's (operators/tiling.py). A holds the weights, contiguous along K forward and
along rows backward; B holds the activations, always contiguous along K. A ragged tile takes the time of a whole one, as
in a kernel with predicated lanes.

Workgroups of a cluster have consecutive tiles and load common operands once: each loads a share, which is multicast to
all of them (Hopper). The model leaves out their waits for one another and the multicast's use of their ports.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, KernelTable, Resources, rows_of
from t3sim.workload.operators.operator import output_stores
from t3sim.workload.operators.tiling import Tiling, TilingError


@dataclass(frozen=True)
class Matrix:
    """Place of an operand in memory, in bytes."""

    base: int
    pitch: int


@dataclass(frozen=True)
class Gemm:
    """The operator. Times in memory cycles."""

    tiling: Tiling
    k: int
    block_k: int  #: depth of one step
    a: Matrix
    a_along_k: bool  #: A is contiguous along K; else along a tile's rows
    b: Matrix  #: pitch from column to column; consecutive elements of K are contiguous
    c_base: int
    cycles_per_k: float  #: matrix units, one element of K of a macro-tile
    launch_cycles: float
    epilogue_cycles: float
    buffers: int = 2  #: of blocks of K; 1: a workgroup loads or computes, and another workgroup hides the wait
    resources: Resources = Resources()
    parts: int = 1  #: of K (split-K), each computed by a workgroup of its own
    cluster: int = 1  #: workgroups that load common operands once
    by_turn: bool = False  #: workgroups are dealt to compute units in turn
    operand_bytes: int | None = None  #: of an element of A and B; None: as the output's

    def __post_init__(self) -> None:
        if self.parts > self._blocks:
            raise TilingError(f"[gpu] k_parts = {self.parts} (layer.split_k) is not possible: K = {self.k} has "
                              f"{self._blocks} steps of {self.block_k}, and each part needs one")

    @property
    def input_bytes(self) -> int:
        """Bytes of an element of A and B."""
        return self.tiling.element_bytes if self.operand_bytes is None else self.operand_bytes

    @property
    def _blocks(self) -> int:
        return -(-self.k // self.block_k)

    def _depths(self, part: int) -> list[tuple[int, int, int]]:
        """Return a part's loops over K: (first step, steps, depth of a step); the last step of K may be shallower."""
        first, end = (self._blocks * edge // self.parts for edge in (part, part + 1))
        whole_steps = min(end, self.k // self.block_k) - first
        loops = [(first, whole_steps, self.block_k),
                 (first + whole_steps, end - first - whole_steps, self.k % self.block_k)]
        return [loop for loop in loops if loop[1]]

    def work(self, gpu: int) -> KernelTable:
        """Build one GPU's kernel: a group per part of a tile, in the order of tiles, stored through the cache.

        It is the same on every GPU.
        """
        tiling, tiles = self.tiling, np.arange(self.tiling.tiles)
        depths = [self._depths(part) for part in range(self.parts)]
        loads = [block for loops in depths for first, _, depth in loops for block in self._loads(first, depth)]
        counts = np.repeat(tiling.wf_tiles, self.parts)
        stores = output_stores(tiling, self.c_base, self.parts)
        lengths = [len(loops) + 1 for loops in depths]  # the last step writes the sums through the LDS, and stores
        steps = np.zeros((len(tiles), sum(lengths)), STEP)
        steps["repeats"] = 1
        last_steps = np.cumsum(lengths) - 1
        loop_steps = np.delete(np.arange(sum(lengths)), last_steps)
        for index, (column, (_, repeats, depth)) in enumerate(zip(loop_steps, chain(*depths))):
            steps["repeats"][:, column] = repeats
            steps["compute_cycles"][:, column] = self.cycles_per_k * depth
            steps["loads"][:, column] = 2
            steps["first_load"][:, column] = tiles * len(loads) + 2 * index
        steps["compute_cycles"][:, last_steps] = self.epilogue_cycles
        steps["stores"][:, last_steps] = counts.reshape(-1, self.parts)
        steps["first_store"][:, last_steps] = (np.cumsum(counts) - counts).reshape(-1, self.parts)
        first_steps = tiles[:, None] * sum(lengths) + np.cumsum(lengths) - lengths
        groups = rows_of(GROUP, len(tiles) * self.parts, workgroups=1, first_step=first_steps.ravel(),
                         steps=np.tile(lengths, len(tiles)))
        return KernelTable(groups, steps.ravel(), np.stack(loads, axis=1).ravel(), stores, ahead=self.buffers,
                           by_turn=self.by_turn, launch_cycles=self.launch_cycles, **self.resources._asdict())

    def _loads(self, first_step: int, depth: int) -> list[np.ndarray]:
        """Return A's and B's blocks of every tile in steps of `depth` from `first_step` on."""
        tiling, count, size = self.tiling, self.tiling.tiles, self.input_bytes
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
        self._share(a, tiling.first_row)
        self._share(b, tiling.first_column)
        return [a, b]

    def _share(self, blocks: np.ndarray, first_element: np.ndarray) -> None:
        """Leave each workgroup of a cluster its share of the rows of a block that all of them load."""
        clustered = len(blocks) // self.cluster * self.cluster
        first_elements = first_element[:clustered].reshape(-1, self.cluster)
        same_block = (first_elements == first_elements[:, :1]).all(axis=1)
        shared = np.flatnonzero(np.repeat(same_block, self.cluster) & (blocks["rows"][:clustered] >= self.cluster))
        member, rows = shared % self.cluster, blocks["rows"][shared]
        first, end = (rows * edge // self.cluster for edge in (member, member + 1))
        blocks["base"][shared] += first * blocks["pitch"][shared]
        blocks["rows"][shared] = end - first
