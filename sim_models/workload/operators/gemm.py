"""A tiled GEMM as a kernel table: one workgroup per macro-tile, a buffered loop over K, then the tile's stores.

With split-K, a workgroup for each part of K: whole steps, as many as the other parts have or one more.

Rows, columns, A and B are the BLAS library's (operators/tiling.py): A holds the weights, kept along K forward and along
its rows backward, B the activations, always kept along K. A ragged tile costs the time of a whole one, as in a kernel
with predicated lanes.

In a cluster, workgroups whose tiles follow one another load what they have in common once: each a share of it, which
goes to all of them (Hopper's multicast). That they wait for one another is not modelled, nor their ports' share of it.
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
    a_along_k: bool  #: consecutive elements of K are contiguous; else those of a tile's rows
    b: Matrix  #: pitch from column to column; consecutive elements of K are contiguous
    c_base: int
    cycles_per_k: float  #: matrix units, one element of K of a macro-tile
    launch_cycles: float
    epilogue_cycles: float
    buffers: int = 2  #: of blocks of K; 1: a block is loaded, then computed, and another workgroup hides the wait
    resources: Resources = Resources()
    parts: int = 1  #: of K (split-K), each computed by a workgroup of its own
    cluster: int = 1  #: workgroups that load what they have in common once
    by_turn: bool = False  #: units take its workgroups by turn
    operand_bytes: int | None = None  #: of an element of A and B; None: as many as the output's

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
        """List a part's loops over K: (first step, how many, depth of each); the last step of all may be less deep."""
        first, end = (self._blocks * edge // self.parts for edge in (part, part + 1))
        whole = min(end, self.k // self.block_k) - first
        loops = [(first, whole, self.block_k), (first + whole, end - first - whole, self.k % self.block_k)]
        return [loop for loop in loops if loop[1]]

    def work(self, device: int) -> KernelTable:
        """Build one device's kernel: a group per part of a tile, in the order of tiles, stored through the cache.

        It is the same on every device.
        """
        tiling, tiles = self.tiling, np.arange(self.tiling.tiles)
        depths = [self._depths(part) for part in range(self.parts)]
        loads = [block for loops in depths for first, _, depth in loops for block in self._loads(first, depth)]
        counts = np.repeat(tiling.wf_tiles, self.parts)
        stores = output_stores(tiling, self.c_base, self.parts)
        lengths = [len(loops) + 1 for loops in depths]  # the last step writes the sums through the LDS, and stores
        steps = np.zeros((len(tiles), sum(lengths)), STEP)
        steps["repeats"] = 1
        last = np.cumsum(lengths) - 1
        looping = np.delete(np.arange(sum(lengths)), last)
        for index, (column, (_, repeats, depth)) in enumerate(zip(looping, chain(*depths))):
            steps["repeats"][:, column] = repeats
            steps["compute_cycles"][:, column] = self.cycles_per_k * depth
            steps["loads"][:, column] = 2
            steps["first_load"][:, column] = tiles * len(loads) + 2 * index
        steps["compute_cycles"][:, last] = self.epilogue_cycles
        steps["stores"][:, last] = counts.reshape(-1, self.parts)
        steps["first_store"][:, last] = (np.cumsum(counts) - counts).reshape(-1, self.parts)
        first = tiles[:, None] * sum(lengths) + np.cumsum(lengths) - lengths
        groups = rows_of(GROUP, len(tiles) * self.parts, workgroups=1, first_step=first.ravel(),
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

    def _share(self, blocks: np.ndarray, place: np.ndarray) -> None:
        """Leave each workgroup of a cluster its share of the rows, where all of them have the same block."""
        whole = len(blocks) // self.cluster * self.cluster
        same = (place[:whole].reshape(-1, self.cluster) == place[:whole:self.cluster, None]).all(axis=1)
        shared = np.flatnonzero(np.repeat(same, self.cluster) & (blocks["rows"][:whole] >= self.cluster))
        member, rows = shared % self.cluster, blocks["rows"][shared]
        first, end = (rows * edge // self.cluster for edge in (member, member + 1))
        blocks["base"][shared] += first * blocks["pitch"][shared]
        blocks["rows"][shared] = end - first
