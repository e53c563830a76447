"""A study's results as one table: a row per point, its settings first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from t3sim.base.output import write_whole
from t3sim.study.sweeps.point import Scalar

FILE = "results.parquet"


def make_table(rows: Sequence[dict[str, Scalar | None]], first: Sequence[str]) -> pa.Table:
    """Make a table of the columns `first`, then all others in alphabetical order; what a point has not is null."""
    names = sorted({name for row in rows for name in row} - set(first))
    return pa.table({name: _column([row.get(name) for row in rows]) for name in [*first, *names]})


def write_table(table: pa.Table, folder: Path) -> None:
    """Write `folder`/results.parquet, whole or not at all; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_whole(folder / FILE, sink.getvalue().to_pybytes())


def _column(values: list[Any]) -> pa.Array:
    """Make a column of one type, whatever the points have: words if any is a word, fractions if any is one."""
    kinds = {type(value) for value in values if value is not None}
    if str in kinds or (bool in kinds and len(kinds) > 1):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if float in kinds:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array(values, pa.bool_() if bool in kinds else pa.int64() if kinds else pa.null())
