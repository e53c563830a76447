"""Files of users, read as a whole but not without end."""

from importlib.resources.abc import Traversable
from pathlib import Path

LARGEST_MACHINE = 1 << 20  #: bytes
LARGEST_FILE = 64 << 20  #: bytes; far above what a description, a plan or a library of cells takes


class TooLarge(ValueError):
    """A file that is longer than anything of its kind; a device that never ends is one, too."""


def read_bounded(path: Path | Traversable, largest: int = LARGEST_FILE) -> bytes:
    """Read a file's bytes. Raises OSError, and TooLarge before more than that is in memory."""
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise TooLarge(f"longer than {largest:,} bytes")
    return content
