"""Arrays whose fields lie together in memory, for the models' state.

What a cycle does with one queue entry or one compute unit should touch one cache line of the host: the compiled RTL
walks over most of its caches every cycle, so the models' data are rarely near.
"""

from typing import Any, cast

import numpy as np

HOST_LINE = 64
_AFTER = 128  # bytes: as many as are looked at together


def aligned_zeros(shape: tuple[int, ...] | int, dtype: np.dtype) -> np.ndarray:
    """Return zeros like np.zeros, at the beginning of a cache line; others may be read after their end."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + HOST_LINE + _AFTER, np.uint8)
    start = -memory.ctypes.data % HOST_LINE
    return memory[start:start + size].view(dtype).reshape(shape)


class Record:
    """Layout of records whose fields are the arrays of a named tuple, in this order.

    A named tuple's class lists its own under `RECORDS`, so that compiled code knows how far apart their fields lie
    (`by_reference`). All records of a class have the same size.
    """

    def __init__(self, *fields: tuple) -> None:
        self.dtype = _padded(np.dtype(list(fields)))

    @property
    def names(self) -> tuple[str, ...]:
        return self.dtype.names or ()

    def offset(self, name: str) -> int:
        """Return bytes from a record's beginning to one of its fields."""
        return cast(dict[str, Any], self.dtype.fields)[name][1]

    def arrays(self, shape: tuple[int, ...] | int) -> dict[str, np.ndarray]:
        """Make records of zeros; returns the array of each field.

        The last dimension needs two places: numpy calls one without gaps, which is another type, for which all that
        is compiled would be compiled again.
        """
        array = aligned_zeros(shape, self.dtype)
        return {name: array[name] for name in self.names}

    def holds(self, arrays: Any) -> bool:
        """Return whether a named tuple's arrays lie as compiled code thinks that they do."""
        first = getattr(arrays, self.names[0])
        outer = first.ndim - self.dtype[self.names[0]].ndim
        return first.strides[outer - 1] == self.dtype.itemsize and all(
            getattr(arrays, name).ctypes.data == first.ctypes.data + self.offset(name)
            and getattr(arrays, name).strides[:outer] == first.strides[:outer] for name in self.names)


def check_records(state: Any) -> None:
    """Check the named tuples in a named tuple. Raises ValueError if one's fields do not lie in its records."""
    for record in getattr(state, "RECORDS", ()):
        if not record.holds(state):
            raise ValueError(f"{type(state).__name__}: {', '.join(record.names)} do not lie in records")
    for field in state:
        if isinstance(field, tuple):
            check_records(field)


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
