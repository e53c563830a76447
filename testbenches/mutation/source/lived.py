"""Mistakes in the source that no test noticed once, and the test of each that notices it since: `lived.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_LIST = Path(__file__).with_name("lived.toml")


@dataclass(frozen=True)
class Lived:
    """One of them."""

    file: str
    right: str  #: a text that is once in the file
    wrong: str  #: what stands there with the mistake
    test: str  #: `tests/rtl/test_tracker.py::test_name`


@cache
def lived() -> tuple[Lived, ...]:
    return tuple(Lived(**entry) for entry in tomllib.loads(_LIST.read_text(encoding="utf-8"))["mistake"])
