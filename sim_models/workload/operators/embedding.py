"""Pooling of embeddings as a kernel table: a wavefront adds up the rows of a table in a list, and stores the sum.

A *bag* is one sample's list for one table. Its rows are drawn from a distribution over the rows of the table, and the
kernel reads a list from memory before its rows. Bags of one sample, one per table, are consecutive.
"""

from dataclasses import dataclass

import numpy as np

from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, KernelTable, Resources, rows_of
from t3sim.workload.operators.operator import output_stores
from t3sim.workload.operators.tiling import Tiling, TilingError

INDEX_BYTES = 8


def embedding_tiling(bags: int, dimension: int, wavefronts: int, element_bytes: int) -> Tiling:
    """Cut the output: a column is a bag's sum, and each wavefront of a workgroup has one. Raises TilingError."""
    if bags % wavefronts:
        raise TilingError(f"{bags} bags are not a multiple of the {wavefronts} that a workgroup pools")
    return Tiling(dimension, bags, dimension, wavefronts, wavefronts, element_bytes)


@dataclass(frozen=True)
class Embedding:
    """The operator. Times in memory cycles, addresses of first bytes."""

    tiling: Tiling  #: of `embedding_tiling`
    tables: int
    pooled: int  #: rows of a bag
    weights: np.ndarray  #: float64[row of a table]: relative frequency of each row
    tables_base: int
    lists_base: int
    output_base: int
    rows_at_once: int  #: rows that a wavefront loads before it waits
    cycles_per_row: float  #: vector units, one row of every wavefront
    launch_cycles: float
    registers: int
    seed: int

    @property
    def resources(self) -> Resources:
        return Resources(self.tiling.wavefronts, self.registers)

    def rows_named(self) -> np.ndarray:
        """Draw the rows of every bag, numbered over all tables: int64[bag, row of the bag]."""
        bags = self.tiling.n
        cumulative = np.cumsum(self.weights) / np.sum(self.weights)
        rows = np.searchsorted(cumulative, np.random.default_rng(self.seed).random((bags, self.pooled)), side="right")
        table = np.arange(bags)[:, None] % self.tables
        return table * len(self.weights) + np.minimum(rows, len(self.weights) - 1)

    def work(self, gpu: int) -> KernelTable:
        """Build one GPU's kernel: a group per tile, stored through the cache. It is the same on every GPU."""
        tiling, count, wavefronts = self.tiling, self.tiling.tiles, self.tiling.wavefronts
        row_bytes = tiling.m * tiling.element_bytes
        edges = [*range(0, self.pooled, self.rows_at_once), self.pooled]
        step_rows = np.diff(edges)  # of a wavefront
        bag_rows = self.rows_named().reshape(count, wavefronts, self.pooled)
        row_lists = np.concatenate([bag_rows[:, :, begin:end].reshape(count, -1)
                                    for begin, end in zip(edges, edges[1:])], axis=1)
        steps, loads = np.zeros((count, len(step_rows) + 1), STEP), np.zeros((count, len(step_rows) + 1), LOAD)
        steps["repeats"], steps["loads"] = 1, 1
        steps["first_load"] = np.arange(steps.size).reshape(steps.shape)
        steps["compute_cycles"][:, 1:] = step_rows * self.cycles_per_row
        steps["stores"][:, -1], steps["first_store"][:, -1] = wavefronts, np.arange(count) * wavefronts
        list_bytes = wavefronts * self.pooled * INDEX_BYTES
        loads[:, 0] = rows_of(LOAD, count, base=self.lists_base + np.arange(count) * list_bytes, rows=1,
                              bytes=list_bytes)
        for index, rows in enumerate(step_rows):
            loads[:, index + 1] = rows_of(
                LOAD, count, base=self.tables_base, pitch=row_bytes, rows=rows * wavefronts, bytes=row_bytes,
                row_list=(np.arange(count) * self.pooled + edges[index]) * wavefronts)
        return KernelTable(
            rows_of(GROUP, count, workgroups=1, first_step=np.arange(count) * steps.shape[1], steps=steps.shape[1]),
            steps.ravel(), loads.ravel(), output_stores(tiling, self.output_base), row_lists.ravel(),
            launch_cycles=self.launch_cycles, **self.resources._asdict())
