"""The standard streams: closed, full, or in an encoding that lacks a letter; and what a command says that waits."""

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TextIO

STANDARD_OUTPUT = "standard output"  #: what a message calls it
_closed: set[int] = set()  #: descriptors of the standard streams that were


def output_is_closed() -> bool:
    """Say whether standard output was closed (`>&-`) when the command began: what is written there is lost."""
    return 1 in _closed


class _Named(io.TextIOWrapper):
    """Standard output whose errors carry a name, as those of other files do."""

    def write(self, text: str) -> int:
        with _naming():
            return super().write(text)

    def flush(self) -> None:
        with _naming():
            super().flush()


@contextmanager
def _naming() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def prepare_streams() -> None:
    """Make the standard streams writable and their errors clear; streams of others, as tests have, stay."""
    if sys.stdout is None or sys.stderr is None:
        _closed.update(number for number, stream in ((1, sys.stdout), (2, sys.stderr)) if stream is None)
        _fill_closed()
    if sys.stdout is sys.__stdout__ and sys.stdout.fileno() == 1:
        sys.stdout.flush()
        sys.stdout = _Named(open(1, "wb", closefd=False), encoding=sys.stdout.encoding,
                            line_buffering=sys.stdout.line_buffering)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a letter shows ? rather than a traceback
            stream.reconfigure(errors="replace")


def discard_output() -> None:
    """Let what is still to be printed go nowhere: its reader left, or its disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fill_closed() -> None:
    """Give what was closed (`>&-`) a place to go, so that no file of a command gets its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)


class Trimmed:
    """A file in which no line ends in blanks: what only fills a terminal's width is in the way in a pipe."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(re.sub(r"[ \t]+(?=\n)", "", text))
        return len(text)

    def __getattr__(self, name: str):
        return getattr(self._file, name)


@cache
def say(what: str, about: str) -> None:
    """Say on standard error what is being compiled and about how long that takes, the first time in a process."""
    print(f"t3: compiling {what}: {about}, once (it is kept)", file=sys.stderr, flush=True)
