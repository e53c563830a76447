"""A grouped GEMM as a kernel table: one kernel for the GEMMs of several groups of columns, each with its own weights.

A group's columns are padded to whole tiles and take the time of whole tiles. Padding is not in memory: the kernel
neither loads nor stores it. Scales follow a column's elements in memory: a workgroup loads its columns' scales once,
before its loop over K, and keeps them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from t3sim.workload.operators.gemm import Gemm
from t3sim.workload.operators.kernel_table import STEP, KernelTable, Resources, rows_of
from t3sim.workload.operators.operator import OutputParts


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of one GPU, by its columns of tiles."""

    gemm: Gemm  #: of all groups, as if they had the same weights
    group: np.ndarray  #: int64[column of tiles]
    columns: np.ndarray  #: int64[column of tiles]: without padding; 0: nothing is computed

    @property
    def padding_before(self) -> np.ndarray:
        """Columns of padding before each column of tiles, int64[column of tiles]."""
        return np.arange(len(self.columns)) * self.gemm.tiling.tile_n - np.cumsum(self.columns) + self.columns


@dataclass(frozen=True)
class GroupedGemm:
    """The operator."""

    gpus: Sequence[Groups]
    weights_bytes: int  #: from one group's weights to the next one's
    scales_bytes: int = 0  #: of a column, after its K elements

    @property
    def resources(self) -> Resources:
        return self.gpus[0].gemm.resources

    def output_parts(self, gpu: int) -> OutputParts:
        """Return the parts of a GPU's output that its groups compute, in columns without padding."""
        groups = self.gpus[gpu]
        tiling = groups.gemm.tiling
        tile_column = tiling.first_column // tiling.tile_n
        computed = np.flatnonzero(groups.columns[tile_column] > 0)
        first_column = tiling.first_column - groups.padding_before[tile_column]
        return OutputParts(tiling.first_row[computed], tiling.rows[computed], first_column[computed],
                           groups.columns[tile_column][computed])

    def work(self, gpu: int) -> KernelTable:
        """Build one GPU's kernel: a group per tile that is not only padding, in the order of tiles."""
        gpu_groups = self.gpus[gpu]
        gemm = gpu_groups.gemm
        tiling, table = gemm.tiling, gemm.work(gpu)
        tile_column = tiling.first_column // tiling.tile_n
        columns, padding = gpu_groups.columns[tile_column], gpu_groups.padding_before[tile_column]
        loads = table.loads.copy().reshape(tiling.tiles, -1, 2)  # of weights, of columns
        loads["base"][:, :, 0] += (gpu_groups.group[tile_column] * self.weights_bytes)[:, None]
        loads["base"][:, :, 1] -= (padding * gemm.b.pitch)[:, None]
        loads["rows"][:, :, 1] = np.minimum(loads["rows"][:, :, 1], np.maximum(columns, 1)[:, None])
        stores = table.stores.copy()
        store_columns = columns[table.group_of_stores] - table.stores["wavefront"] * tiling.wf_columns
        stores["rows"] = np.minimum(stores["rows"], store_columns)
        stores["base"] -= padding[table.group_of_stores] * tiling.pitch_bytes
        stores_before = np.append(0, np.cumsum(store_columns > 0))  # without stores of padding only
        steps = table.steps.copy()
        ends = stores_before[steps["first_store"] + steps["stores"]]
        steps["first_store"] = stores_before[steps["first_store"]]
        steps["stores"] = ends - steps["first_store"]
        groups, blocks = table.groups, loads.ravel()
        if self.scales_bytes:
            scales = loads[:, 0, 1].copy()
            scales["base"] += gemm.k * gemm.input_bytes
            scales["bytes"], scales["step_stride"] = self.scales_bytes, 0
            first_steps = rows_of(STEP, tiling.tiles, repeats=1, first_load=len(blocks) + np.arange(tiling.tiles),
                                  loads=1)
            steps = np.insert(steps, groups["first_step"], first_steps)
            groups = groups.copy()
            groups["first_step"] += np.arange(tiling.tiles)
            groups["steps"] += 1
            blocks = np.concatenate([blocks, scales])
        return replace(table, groups=groups[columns > 0], steps=steps, loads=blocks, stores=stores[store_columns > 0])
