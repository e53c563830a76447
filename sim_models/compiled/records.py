"""Arrays whose fields lie together in memory, for the models' state.

What a cycle does with one queue entry or one compute unit should touch one cache line of the host: the compiled RTL
walks over most of its caches every cycle, so the models' data are rarely near.
"""

from typing import Any, cast

import numpy as np

HOST_LINE = 64


def aligned_zeros(shape: tuple[int, ...] | int, dtype: np.dtype) -> np.ndarray:
    """Return zeros like np.zeros, at the beginning of a cache line."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + HOST_LINE, np.uint8)
    start = -memory.ctypes.data % HOST_LINE
    return memory[start:start + size].view(dtype).reshape(shape)


def record_fields(shape: tuple[int, ...] | int, fields: list[tuple]) -> list[np.ndarray]:
    """Make one array per field (name, type[, shape]), as views of one array of records.

    Each record is in as few lines as possible.
    """
    array = aligned_zeros(shape, _padded(np.dtype(fields)))
    return [array[name] for name in array.dtype.names or ()]


def _padded(packed: np.dtype) -> np.dtype:
    size = packed.itemsize
    size = 1 << (size - 1).bit_length() if size < HOST_LINE else -(-size // HOST_LINE) * HOST_LINE
    names, fields = packed.names or (), cast(dict[str, Any], packed.fields or {})
    return np.dtype({"names": list(names), "formats": [fields[name][0] for name in names],
                     "offsets": [fields[name][1] for name in names], "itemsize": size})


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Copy an array; records are padded so that each lies in as few lines as possible."""
    packed = array.dtype
    if packed.names is None:
        copy = aligned_zeros(array.shape, packed)
        copy[:] = array
        return copy
    copy = aligned_zeros(array.shape, _padded(packed))
    for name in packed.names:
        copy[name] = array[name]
    return copy
