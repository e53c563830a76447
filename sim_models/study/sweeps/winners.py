"""Which of several results is best at each pair of two settings, and by how much: the cells of a map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from t3sim.study.sweeps.point import Scalar
from t3sim.study.sweeps.study import Map

Row = Mapping[str, Scalar | None]


@dataclass(frozen=True)
class WinnerCell:
    """A pair of settings, and who wins there."""

    x: Scalar
    y: Scalar
    best: str  #: in short, see `short_names`
    ahead_percent: float | None  #: by which the next one is more; None if there is no other


def winners(winner_map: Map, rows: Sequence[Row]) -> list[WinnerCell]:
    """Find the least of the map's results in every row that has any; ties go to the first in the map's order."""
    names = short_names(winner_map.least_of)
    cells = []
    for row in rows:
        results = [(float(value), name) for column, name in zip(winner_map.least_of, names)
                   if isinstance(value := row.get(column), (int, float))]
        if results:
            (best, name), *others = sorted(results, key=lambda result: result[0])
            cells.append(WinnerCell(row[winner_map.x], row[winner_map.y], name,
                                    100 * (others[0][0] / best - 1) if others else None))
    return cells


def short_names(columns: Sequence[str]) -> list[str]:
    """Return the columns without the parts, between dots, that all of them begin or end with."""
    parts = [column.split(".") for column in columns]
    shortest = min(map(len, parts))
    first = next((i for i in range(shortest) if len({part[i] for part in parts}) > 1), shortest - 1)
    last = next((i for i in range(shortest - first) if len({part[-1 - i] for part in parts}) > 1), 0)
    return [".".join(part[first:len(part) - last]) for part in parts]
