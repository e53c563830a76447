"""Files of users: how large they may be, and what is wrong with one that cannot be read, in one line.

Whoever reads a file of a user does so within `reading`, with one of the readers below.
"""

import json
import math
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile

from t3sim.base.errors import BadInput, is_ours, shown

LARGEST_TOML = 1 << 20  #: bytes of a machine, a scenario or a study
LARGEST_FILE = 64 << 20  #: bytes of any other file; far above what a description, a plan or a library of cells takes
LARGEST_TEXT = 16 << 20  #: bytes of JSON or XML, whose objects take some thirty times as much
_DEEPEST = 64  #: lists and objects of JSON within each other
_LONGEST_NUMBER = 300  #: digits of one of JSON, which a float still holds
MOST_TRANSFERS = 1 << 16  #: of a collective's plan
MOST_SLOTS = 1 << 18  #: chunks of all GPUs of a plan
MOST_DEPENDENCIES = 1 << 24  #: of a plan's steps on transfers before them
MOST_MAPPINGS = 1 << 15  #: that a search of end-to-end looks at, each with two dozen options
_LONGEST_REASON = 140  #: characters of a library's own message


class TooLarge(ValueError):
    """A file that is longer than anything of its kind, or has no end: a device, or a pipe that nobody writes to."""


#: A file that the shell has opened already, as it does for `<(command)`.
_OPEN_ALREADY = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def check_regular(path: Path) -> None:
    """Refuse what is no regular file before it is opened, which waits for a pipe's writer. Raises OSError, TooLarge.

    Folders are left to who opens them.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or _OPEN_ALREADY.fullmatch(str(path))):
        raise TooLarge("it is not a regular file")


@contextmanager
def reading(subject: str, kind: str, error: type[ValueError] = BadInput) -> Iterator[None]:
    """Turn whatever a damaged file makes a reader raise into one line; ours and those about the file's name stay.

    `subject`: what the line begins with, which names the file. `kind`: what it should be, such as "a Liberty file".
    """
    try:
        yield
    except Exception as failure:
        if is_ours(failure) and not isinstance(failure, TooLarge):
            raise
        if isinstance(failure, OSError) and failure.strerror:
            raise error(f"{subject} cannot be read: {failure.strerror}") from None
        raise error(f"{subject} is not {kind}: {_reason(failure)}") from None


def _reason(failure: Exception) -> str:
    """Say what an exception of a reader means to who has the file."""
    if isinstance(failure, RecursionError):
        return "nested too deeply"
    if isinstance(failure, MemoryError | OverflowError):
        return "a number in it is too large"
    if isinstance(failure, UnicodeError):
        return "it is no text"
    if isinstance(failure, EOFError):
        return "it is cut off"
    if isinstance(failure, KeyError):
        return f"{shown(failure.args[0] if failure.args else '')} is missing"
    text = " ".join(str(failure).split())[:_LONGEST_REASON]
    return text if isinstance(failure, ValueError | BadZipFile | NotImplementedError) and text else "it is damaged"


def read_bounded(path: Path | Traversable, largest: int = LARGEST_FILE) -> bytes:
    """Read a file's bytes. Raises OSError, and TooLarge before more than that is in memory."""
    if isinstance(path, Path):
        check_regular(path)
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise TooLarge(f"longer than {largest:,} bytes")
    return content


def read_toml(path: Path | Traversable) -> dict[str, Any]:
    """Read a TOML file. Raises OSError, ValueError, RecursionError."""
    return tomllib.loads(read_bounded(path, LARGEST_TOML).decode())


def read_json(path: Path | Traversable, nan: bool = False) -> Any:
    """Read a JSON file whose numbers are finite; with `nan`, Python's NaN and Infinity are. Raises OSError, ValueError.

    It has neither numbers that no float holds, nor lists within lists without end.
    """
    def no_number(text: str) -> NoReturn:
        raise ValueError(f"{shown(text)} is no number")

    def finite(text: str) -> float:
        return float(text) if math.isfinite(float(text)) else no_number(text)

    def short(text: str) -> int:
        return int(text) if len(text) <= _LONGEST_NUMBER else no_number(text)
    content = json.loads(read_bounded(path, LARGEST_TEXT), parse_constant=float if nan else no_number,
                         parse_float=finite, parse_int=short)
    level, depth = [content], 0
    while level:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        level = [inner for one in level if isinstance(one, dict | list)
                 for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, dict | list)]
        depth += 1
    return content
