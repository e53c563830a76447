"""Interface of an operator to a run: a kernel table per device. It knows no device's role."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from t3sim.workload.operators.kernel_table import STORE, KernelTable, Route, rows_of
from t3sim.workload.operators.tiling import Tiling


@runtime_checkable
class Operator(Protocol):
    """Makes an output that is cut into tiles, on every device."""

    def work(self, device: int) -> KernelTable:
        """Build a device's kernel: a group per tile in the order of tiles, whose stores are those of `output_stores`.

        With K in parts, a group for each part of a tile, one after the other.

        Where a run fuses it with a collective, the schedule says in which order groups run, and where each store goes.
        """


class Made(NamedTuple):
    """Parts of an output that a kernel's workgroups make, in the order of its groups: int64[workgroup] each."""

    first_row: np.ndarray
    rows: np.ndarray
    first_column: np.ndarray  # where it is, and the input's of which it is made
    columns: np.ndarray

    @classmethod
    def of(cls, tiling: Tiling) -> "Made":
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
