"""Kernel tables of .npz files."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from t3sim.base.bounded import read_arrays, reading
from t3sim.workload.operators.kernel_table import STORE, KernelError, KernelTable, rows_of

_KINDS = {bool: "b", int: "iu", float: "iuf"}  #: of arrays that hold such a number


def load_kernel(path: Path) -> KernelTable:
    """Read a kernel from an .npz file whose arrays are the fields of `KernelTable`. Raises KernelError."""
    known = {one.name: one.type for one in fields(KernelTable)}
    with reading(f"layer.kernel = {path}", "an .npz file of plain arrays", KernelError):
        found = read_arrays(path)
        if unknown := sorted(found.keys() - known):
            raise KernelError(f"{path}: {unknown[0][:60]!r} is unknown: allowed are {', '.join(sorted(known))}")
        if missing := [name for name in ("groups", "steps", "loads", "stores") if name not in found]:
            raise KernelError(f"{path}: {missing[0]!r} is missing")
        found["stores"] = _completed(found["stores"])
        numbers = {name: _number(path, name, found[name], known[name]) for name in found
                   if known[name] in _KINDS}
        try:
            table = KernelTable(**{**found, **numbers})
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
    """Complete store blocks of a file from before there were several peers, or parts: they have the first one."""
    if stores.dtype.names not in (STORE.names[:-1], STORE.names[:-2]):
        return stores
    return rows_of(STORE, stores.size, **{name: stores[name].ravel() for name in stores.dtype.names})
