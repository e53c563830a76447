"""Arrays of users' .npz files: how large they may be, and what is wrong with them."""

import math
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from t3sim.base.bounded import TooLarge
from t3sim.base.errors import shown

LARGEST_ARRAYS = 1 << 30  #: bytes of the arrays of an .npz file, uncompressed
_MOST_ARRAYS = 64


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file, after a look at how large they say they are. Raises OSError, ValueError, ...

    An array's header must fit the bytes that are there, so that no more memory is taken than they need.
    """
    if not path.is_file() and path.exists():  # whose end is looked for; a pipe has none to go back from
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        return _members(file)


def _members(file: BinaryIO) -> dict[str, np.ndarray]:
    """Read the arrays of an open .npz file."""
    arrays = {}
    with ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > _MOST_ARRAYS:
            raise TooLarge(f"{len(members):,} arrays: at most {_MOST_ARRAYS}")
        if (total := sum(member.file_size for member in members)) > LARGEST_ARRAYS:
            raise TooLarge(f"its arrays take {total:,} bytes: at most {LARGEST_ARRAYS:,}")
        for member in members:
            if member.flag_bits & 1:
                raise ValueError(f"{shown(member.filename)} is encrypted")
            if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ValueError(f"{shown(member.filename)} is compressed in a way that numpy does not know")
            name = member.filename.removesuffix(".npy")
            if name in arrays or name == member.filename:
                raise ValueError(f"{shown(member.filename)} is not an array, or appears twice")
            arrays[name] = _array(archive.read(member), name)
    return arrays


def _array(content: bytes, name: str) -> np.ndarray:
    """Return an array of the .npy format, which has a header and all of its elements."""
    stream = BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"array {shown(name)} is of an unknown version of the .npy format")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, kind = read_header(stream)
    if kind.hasobject:
        raise ValueError(f"array {shown(name)} holds objects")
    if math.prod(shape) * kind.itemsize != len(content) - stream.tell() or min(shape, default=0) < 0:
        raise ValueError(f"array {shown(name)} declares {shown(shape)}, which does not match its bytes")
    return np.frombuffer(content, kind, math.prod(shape), stream.tell()).reshape(
        shape, order="F" if by_columns else "C").copy()
