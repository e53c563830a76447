"""Read kernel tables from .npz files."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from t3sim.base.arrays import read_arrays
from t3sim.base.bounded import reading
from t3sim.workload.operators.kernel_table import STORE, KernelError, KernelTable, rows_of

_KINDS = {bool: "b", int: "iu", float: "iuf"}  #: numpy's kinds of arrays for a number of this type


def load_kernel(path: Path) -> KernelTable:
    """Read a kernel from an .npz file whose arrays are the fields of `KernelTable`. Raises KernelError."""
    field_types = {one.name: one.type for one in fields(KernelTable)}
    with reading(f"layer.kernel = {path}", "an .npz file of plain arrays", KernelError):
        arrays = read_arrays(path)
        if unknown := sorted(arrays.keys() - field_types):
            raise KernelError(f"{path}: {unknown[0][:60]!r} is unknown: allowed are {', '.join(sorted(field_types))}")
        if missing_arrays := [name for name in ("groups", "steps", "loads", "stores") if name not in arrays]:
            raise KernelError(f"{path}: {missing_arrays[0]!r} is missing")
        arrays["stores"] = _completed(arrays["stores"])
        numbers = {name: _number(path, name, arrays[name], field_types[name]) for name in arrays
                   if field_types[name] in _KINDS}
        try:
            table = KernelTable(**{**arrays, **numbers})
        except KernelError as error:
            raise KernelError(f"{path}: {error}") from None
        if not len(table.groups):
            raise KernelError(f"{path}: groups is empty: a kernel needs a group of workgroups")
        return table


def _number(path: Path, name: str, array: np.ndarray, kind: type) -> bool | int | float:
    if array.shape or array.dtype.kind not in _KINDS[kind]:
        raise KernelError(f"{path}: {name} must be one number, {'true or false' if kind is bool else kind.__name__}")
    return kind(array.item())


def _completed(stores: np.ndarray) -> np.ndarray:
    """Add the columns that older files lack: peer 0, part 0."""
    if stores.dtype.names not in (STORE.names[:-1], STORE.names[:-2]):
        return stores
    return rows_of(STORE, stores.size, **{name: stores[name].ravel() for name in stores.dtype.names})
