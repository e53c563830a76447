"""Groups of coverage points, and their collection by testbenches."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from t3sim.rtl.geometry import Geometry

#: The folder that a run leaves its counts in; without it nothing is collected.
FOLDER = "T3_COVERAGE"

Point = tuple[str, ...]


class Bench(Protocol):
    """View of a cross into a testbench."""

    geometry: Geometry

    def get(self, name: str) -> Any:
        """Return what a port shows: an integer, or the fields of a struct."""

    def elements(self, name: str) -> list[str]:
        """Name an array's elements."""

    def add(self, agent: Any) -> None:
        """Let somebody take part in every cycle."""


@dataclass(frozen=True)
class Cross:
    """Every combination of the axes' values is a point that must be reached, but for the impossible ones.

    `watch(bench)` gives a function that is called in every cycle before the clock rises, and yields the points that
    are reached in it. `impossible`: point -> why it cannot be reached; "*" stands for any value.
    """

    block: str
    name: str
    axes: dict[str, tuple[str, ...]]
    watch: Callable[[Bench], Callable[[], Iterable[Point]]]
    impossible: dict[Point, str] = field(default_factory=dict)

    def points(self) -> list[Point]:
        return [point for point in product(*self.axes.values()) if not self.why_impossible(point)]

    def why_impossible(self, point: Point) -> str:
        return next((why for pattern, why in self.impossible.items()
                     if all(part in ("*", value) for part, value in zip(pattern, point))), "")


class Collector:
    """Counts one cross's points. A point that is none is a mistake in the cross, and an error."""

    def __init__(self, bench: Bench, cross: Cross, counts: Counter[Point]) -> None:
        self._cross, self._counts = cross, counts
        self._known = set(cross.points())
        self._watch = cross.watch(bench)

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        for point in self._watch():
            assert point in self._known, f"{self._cross.name}: {point} should be impossible"
            self._counts[point] += 1

    def reset(self) -> None:
        pass


class Counts:
    """Points that one cocotb test reaches over its rounds; `crosses` gives those of all blocks, if any are counted."""

    def __init__(self, block: str, test: str, crosses: Callable[[], Sequence[Cross]]) -> None:
        folder = os.environ.get(FOLDER)
        self._path = Path(folder) / f"{block}-{test}-{os.getpid()}.json" if folder else None
        self._crosses = [cross for cross in crosses() if cross.block == block] if folder else []
        self._counts: list[Counter[Point]] = [Counter() for _ in self._crosses]

    def attach(self, bench: Bench) -> None:
        for cross, counts in zip(self._crosses, self._counts):
            bench.add(Collector(bench, cross, counts))

    def save(self) -> None:
        if self._path:
            self._path.write_text(json.dumps([
                {"block": cross.block, "cross": cross.name, "points": [[*point, n] for point, n in counts.items()]}
                for cross, counts in zip(self._crosses, self._counts)]))


def merge(folder: Path) -> dict[tuple[str, str], Counter[Point]]:
    """Return (block, cross) -> how often each point was reached, over all runs that left their counts in the folder."""
    merged: dict[tuple[str, str], Counter[Point]] = {}
    for path in sorted(folder.glob("*.json")):
        for told in json.loads(path.read_text()):
            counts = merged.setdefault((told["block"], told["cross"]), Counter())
            for *point, count in told["points"]:
                counts[tuple(point)] += count
    return merged
