"""A point of a study: its settings, the simulations that it needs, and its answer, made up from their results."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from t3sim.study.tasks.task import Task, WarmUpTask

Scalar = bool | int | float | str
Row = Mapping[str, Scalar | None]  #: settings and answer of a point
MACHINE_KEY = "machine"  #: `machine` is its name or file, `machine.SECTION.KEY` what differs from it
#: Of a command's JSON: what says how it was run rather than what came out.
_LEFT_OUT = {"host_seconds", "versions", "machine", "seed"}


class Point(Protocol):
    """One point. It is made ready, which raises BadInput, before anything is run."""

    values: dict[str, Scalar]  #: its settings, by their names in the study
    tasks: tuple[Task, ...]  #: may be those of other points, too

    def answer(self, results: Mapping[str, Any]) -> dict[str, Scalar | None]:
        """Make up every number and word of the answer, by its path; `results` of its tasks by their keys."""

    def warm_up(self) -> WarmUpTask | None:
        """Return the task that compiles for this point and those like it."""


@dataclass(frozen=True)
class WholeAnswer:
    """Every number and word of an answer, by its path in its JSON form: `techniques.t3.total_ns`."""

    values: dict[str, Scalar | None]
    host_seconds: float = field(default=0.0, compare=False)


def label_of(point: Point, varied: Sequence[str]) -> str:
    """Name a point for people, by what tells it from the others."""
    return ", ".join(f"{name} = {point.values[name]}" for name in varied if name in point.values) or "the only point"


def flat(content: Any, path: str = "") -> dict[str, Scalar | None]:
    """Return the leaves of a JSON value by their paths."""
    if isinstance(content, dict):
        items = [(key, value) for key, value in content.items() if key not in _LEFT_OUT]
    elif isinstance(content, list | tuple):
        items = list(enumerate(content))
    else:
        return {path: content}
    leaves: dict[str, Scalar | None] = {}
    for key, value in items:
        leaves |= flat(value, f"{path}.{key}" if path else str(key))
    return leaves


def digest_of_files(path: Path) -> str:
    """Return the digest of a file, or of all in a folder."""
    state = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            state.update(f"{file.relative_to(path)}\n".encode() + file.read_bytes())
    return state.hexdigest()
