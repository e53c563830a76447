"""Regimes in which a setting matters: the loss of each value against a bound, along other settings and results.

A case is what differs in nothing but the setting. Along a setting cases are grouped by its values, along a result with
more than a few values into thirds of the cases. The best of a case is the value of the setting that loses least there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from t3sim.study.sweeps.point import Scalar
from t3sim.study.sweeps.study import Regimes

Row = Mapping[str, Scalar | None]
BEST = "best"
_FEW = 6  #: values that are groups of their own
_PARTS = 3


@dataclass(frozen=True)
class Regime:
    """A group of cases, and what each value of the setting loses there."""

    along: str
    group: str  #: the value, or the least and the most
    cases: int
    mean_percent: dict[str, float]  #: by value of the setting, and by `BEST`: longer than the bound, arithmetic mean
    worst_percent: dict[str, float]  #: the same, at most


@dataclass(frozen=True)
class _Case:
    row: Row
    losses: list[float]  #: by value of the setting, percent


def regimes(grouping: Regimes, rows: Sequence[Row], varied_settings: Sequence[str]) -> list[Regime]:
    """Group the cases in which every value of the setting has a result, along each of what `grouping` names.

    `varied_settings`: the study's settings, of which all but the compared one identify a case. A result along which
    cases are grouped is that of the setting's first value.
    """
    values = list(dict.fromkeys(row[grouping.over] for row in rows))
    cases = [case for rows_of_case in _cases(grouping, rows, varied_settings).values() if (case := _case(
        grouping, rows_of_case, values))]
    names = [*map(str, values), BEST]
    summaries = []
    for along in grouping.along:
        for group, members in _groups(along, cases):
            losses = np.array([[*case.losses, min(case.losses)] for case in members])
            summaries.append(Regime(along, group, len(members), dict(zip(names, losses.mean(axis=0).tolist())),
                                    dict(zip(names, losses.max(axis=0).tolist()))))
    return summaries


def _cases(grouping: Regimes, rows: Sequence[Row],
           varied_settings: Sequence[str]) -> dict[tuple, dict[Scalar | None, Row]]:
    by_case: dict[tuple, dict[Scalar | None, Row]] = {}
    for row in rows:
        case = tuple(row.get(name) for name in varied_settings if name != grouping.over)
        by_case.setdefault(case, {})[row[grouping.over]] = row
    return by_case


def _case(grouping: Regimes, rows: Mapping[Scalar | None, Row], values: Sequence[Scalar | None]) -> _Case | None:
    """Return a case's losses, None if a value has none."""
    losses = []
    for value in values:
        row = rows.get(value, {})
        time, bound = row.get(grouping.by), row.get(grouping.bound)
        if not isinstance(time, (int, float)) or not isinstance(bound, (int, float)) or not bound:
            return None
        losses.append(100 * (time / bound - 1))
    return _Case(rows[values[0]], losses)


def _groups(along: str, cases: Sequence[_Case]) -> list[tuple[str, list[_Case]]]:
    """Group cases by a setting or a result, in the order of its values; those that have none are left out."""
    valued_cases = [(case.row[along], case) for case in cases if case.row.get(along) is not None]
    kinds = {value for value, _ in valued_cases}
    if not all(isinstance(value, (int, float)) for value in kinds):
        return [(str(kind), [case for value, case in valued_cases if value == kind]) for kind in sorted(kinds, key=str)]
    valued_cases.sort(key=lambda pair: pair[0])
    if len(kinds) <= _FEW:
        return [(str(kind) if isinstance(kind, int) else f"{kind:g}",
                 [case for value, case in valued_cases if value == kind]) for kind in sorted(kinds)]
    cuts = [round(part * len(valued_cases) / _PARTS) for part in range(_PARTS + 1)]
    parts = [valued_cases[first:last] for first, last in zip(cuts, cuts[1:]) if last > first]
    return [(f"{part[0][0]:.2g} to {part[-1][0]:.2g}", [case for _, case in part]) for part in parts]
