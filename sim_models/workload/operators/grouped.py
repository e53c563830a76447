"""A grouped GEMM as a kernel table: one kernel for the GEMMs of several groups of columns, each with its own weights.

A group's columns are padded to whole tiles, which cost the time of whole ones; what pads them is neither loaded nor
stored, and not in memory. Scales of a column's elements lie after them: a workgroup loads those of its columns once,
before its loop over K, and keeps them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from t3sim.workload.operators.gemm import Gemm
from t3sim.workload.operators.kernel_table import STEP, KernelTable, Resources, rows_of
from t3sim.workload.operators.operator import Made


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of one device, by its columns of tiles."""

    gemm: Gemm  #: of all of them, as if they had the same weights
    group: np.ndarray  #: int64[column of tiles]
    columns: np.ndarray  #: int64[column of tiles]: those that are no padding; 0: nothing is made

    @property
    def moved(self) -> np.ndarray:
        """Columns by which each column of tiles lies before its padded place, int64[column of tiles]."""
        return np.arange(len(self.columns)) * self.gemm.tiling.tile_n - np.cumsum(self.columns) + self.columns


@dataclass(frozen=True)
class GroupedGemm:
    """The operator."""

    devices: Sequence[Groups]
    weights_bytes: int  #: from one group's weights to the next one's
    scales_bytes: int = 0  #: of a column, after its K elements

    @property
    def resources(self) -> Resources:
        return self.devices[0].gemm.resources

    def made(self, device: int) -> Made:
        """Return what a device's groups make, of its columns without padding."""
        of = self.devices[device]
        tiling = of.gemm.tiling
        place = tiling.first_column // tiling.tile_n
        some = np.flatnonzero(of.columns[place] > 0)
        return Made(tiling.first_row[some], tiling.rows[some], (tiling.first_column - of.moved[place])[some],
                    of.columns[place][some])

    def work(self, device: int) -> KernelTable:
        """Build one device's kernel: a group per tile of which something is made, in the order of tiles."""
        of = self.devices[device]
        tiling, table = of.gemm.tiling, of.gemm.work(device)
        place = tiling.first_column // tiling.tile_n
        columns = of.columns[place]
        loads = table.loads.copy().reshape(tiling.tiles, -1, 2)  # of weights, of columns
        loads["base"][:, :, 0] += (of.group[place] * self.weights_bytes)[:, None]
        loads["base"][:, :, 1] -= (of.moved[place] * of.gemm.b.pitch)[:, None]
        loads["rows"][:, :, 1] = np.minimum(loads["rows"][:, :, 1], np.maximum(columns, 1)[:, None])
        stores, first = table.stores.copy(), table.stores["wavefront"] * tiling.wf_columns
        left = columns[table.group_of_stores] - first
        stores["rows"] = np.minimum(stores["rows"], left)
        stores["base"] -= of.moved[place][table.group_of_stores] * tiling.pitch_bytes
        kept = np.append(0, np.cumsum(left > 0))
        steps = table.steps.copy()
        ends = kept[steps["first_store"] + steps["stores"]]
        steps["first_store"] = kept[steps["first_store"]]
        steps["stores"] = ends - steps["first_store"]
        groups, rows = table.groups, loads.ravel()
        if self.scales_bytes:
            scales = loads[:, 0, 1].copy()
            scales["base"] += of.gemm.k * of.gemm.input_bytes
            scales["bytes"], scales["step_stride"] = self.scales_bytes, 0
            first = rows_of(STEP, tiling.tiles, repeats=1, first_load=len(rows) + np.arange(tiling.tiles), loads=1)
            steps = np.insert(steps, groups["first_step"], first)
            groups = groups.copy()
            groups["first_step"] += np.arange(tiling.tiles)
            groups["steps"] += 1
            rows = np.concatenate([rows, scales])
        return replace(table, groups=groups[columns > 0], steps=steps, loads=rows, stores=stores[left > 0])
