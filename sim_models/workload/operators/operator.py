"""Interface of an operator to a run: a kernel table per GPU, independent of the GPU's role in a collective."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from t3sim.workload.operators.kernel_table import STORE, KernelTable, Route, rows_of
from t3sim.workload.operators.tiling import Tiling


@runtime_checkable
class Operator(Protocol):
    """Computes an output that is cut into tiles, on every GPU."""

    def work(self, gpu: int) -> KernelTable:
        """Build a GPU's kernel: a group per tile in the order of tiles, with the stores of `output_stores`.

        With split-K it has a group for each part of a tile, one after the other. If a run fuses it with a collective,
        the schedule sets the order of groups and the destination of each store.
        """


class OutputParts(NamedTuple):
    """Parts of an output that a kernel's workgroups compute, in the order of its groups: int64[workgroup] each."""

    first_row: np.ndarray
    rows: np.ndarray
    first_column: np.ndarray  # of the output, and of the input that it depends on
    columns: np.ndarray

    @classmethod
    def of(cls, tiling: Tiling) -> "OutputParts":
        """Return all tiles of an output."""
        return cls(tiling.first_row, tiling.rows, tiling.first_column, tiling.columns)


def output_stores(tiling: Tiling, base: int, parts: int = 1) -> np.ndarray:
    """Return the store blocks of an output at byte `base`: STORE[tile, part, wavefront tile], column by column.

    Each of `parts` of K stores the whole tile.
    """
    row, wavefront = np.nonzero(np.repeat(tiling.wf_widths, parts, axis=0))
    tile, part = np.divmod(row, parts)
    return rows_of(STORE, len(tile),
                   base=base + tiling.offsets[tile] + wavefront * tiling.wf_columns * tiling.pitch_bytes,
                   pitch=tiling.pitch_bytes, rows=tiling.wf_widths[tile, wavefront],
                   bytes=tiling.rows[tile] * tiling.element_bytes, wavefront=wavefront, route=Route.CACHE,
                   part=part)
