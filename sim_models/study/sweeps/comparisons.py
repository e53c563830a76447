"""Comparisons of a study's results: losses of a setting's values over all cases or along others, and winners of a map.

A case is what differs in nothing but the setting. Regimes: along a setting cases are grouped by its values, along a
result with more than a few values into thirds of the cases. The best of a case is the value that loses least there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t3sim.study.sweeps.point import Row, Scalar
from t3sim.study.sweeps.study import Compare, Map, Regimes, value_of

BEST = "best"
_FEW = 6  #: values that are groups of their own
_PARTS = 3


@dataclass(frozen=True)
class CaseLoss:
    """Loss of a value in one case."""

    case: str
    slower_percent: float  #: than the value that all are compared with; less than 0: faster
    spread_percent: float  #: of repetitions, the slowest over the fastest


@dataclass(frozen=True)
class Regret:
    """Loss of one value of the setting, over all cases in which every value has a result.

    It is in percent of the other's time.
    """

    value: Scalar
    cases: int
    mean_percent: float  #: slower than the value it is compared with, on geometric mean; less than 0: faster
    worst_percent: float  #: the most by which it is slower than that
    worst_case: str  #: where
    unharmed_percent: float  #: share of the cases in which it is at most `Compare.slower_percent` slower than that
    good_percent: float  #: share of the cases in which it is within `Compare.within_percent` of the best
    behind_best_percent: float  #: the most by which it is slower than the best
    spread_percent: float  #: of a case's repetitions, the slowest over the fastest, mean over the cases
    worst_spread_percent: float  #: the same of the case with the largest
    by_case: tuple[CaseLoss, ...]


def regrets(compare: Compare, rows: Sequence[Row], varied_settings: Sequence[str],
            compared_settings: Sequence[str]) -> list[Regret]:
    """Compare the values of a setting, in the order of the study; none if no case is complete.

    `varied_settings`: the study's settings, of which all but the `compared_settings`, and that of repetitions, identify
    a case.
    """
    case_of = [name for name in varied_settings if name not in (*compared_settings, compare.average)]
    cases: dict[tuple, dict[Scalar, list[float]]] = {}
    for row in rows:
        if isinstance(row.get(compare.by), (int, float)):
            times_by_value = cases.setdefault(tuple(row.get(name) for name in case_of), {})
            times_by_value.setdefault(value_of(row, compared_settings), []).append(float(row[compare.by]))
    values = list(dict.fromkeys(value_of(row, compared_settings) for row in rows))
    repetitions = len({row.get(compare.average) for row in rows}) if compare.average else 1
    complete = {case: times_by_value for case, times_by_value in cases.items()
                if [len(times_by_value.get(value, ())) for value in values] == [repetitions] * len(values)}
    if not complete:
        return []
    # [case, value, repetition]
    repetition_times = np.array([[times_by_value[value] for value in values] for times_by_value in complete.values()])
    times = repetition_times.mean(axis=2)
    spread = 100 * (repetition_times.max(axis=2) / repetition_times.min(axis=2) - 1)
    base, best = times[:, [values.index(compare.against)]], times.min(axis=1, keepdims=True)
    labels = [", ".join(f"{name} = {value}" for name, value in zip(case_of, case) if value is not None)
              for case in complete]
    slower_percent = 100 * (times / base - 1)
    worst = np.argmax(slower_percent, axis=0)

    def share(index: int, over: np.ndarray, percent: float) -> float:
        return 100 * float((times[:, index] <= over[:, 0] * (1 + percent / 100)).mean())
    return [Regret(
        value=value, cases=len(times),
        mean_percent=100 * float(np.exp(np.log(times[:, index] / base[:, 0]).mean()) - 1),
        worst_percent=float(slower_percent[worst[index], index]),
        worst_case=labels[worst[index]],
        unharmed_percent=share(index, base, compare.slower_percent),
        good_percent=share(index, best, compare.within_percent),
        behind_best_percent=100 * float((times[:, index] / best[:, 0]).max() - 1),
        spread_percent=float(spread[:, index].mean()), worst_spread_percent=float(spread[:, index].max()),
        by_case=tuple(CaseLoss(label, float(slower), float(apart)) for label, slower, apart in zip(
            labels, slower_percent[:, index], spread[:, index])))
        for index, value in enumerate(values)]


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


@dataclass(frozen=True)
class Regime:
    """A group of cases, and what each value of the setting loses there."""

    along: str
    group: str  #: the value, or the least and the most
    cases: int
    mean_percent: dict[str, float]  #: by value of the setting, and by `BEST`: longer than the bound, arithmetic mean
    worst_percent: dict[str, float]  #: the same, at most


def regimes(grouping: Regimes, rows: Sequence[Row], varied_settings: Sequence[str]) -> list[Regime]:
    """Group the cases in which every value of the setting has a result, along each of what `grouping` names.

    `varied_settings`: the study's settings, of which all but the compared one identify a case. A result along which
    cases are grouped is that of the setting's first value.
    """
    values = list(dict.fromkeys(row[grouping.over] for row in rows))
    rows_by_case: dict[tuple, dict[Scalar | None, Row]] = {}
    for row in rows:
        case = tuple(row.get(name) for name in varied_settings if name != grouping.over)
        rows_by_case.setdefault(case, {})[row[grouping.over]] = row
    cases = []
    for of_case in rows_by_case.values():
        losses = [_loss_percent(grouping, of_case.get(value, {})) for value in values]
        if None not in losses:
            cases.append((of_case[values[0]], losses))
    names = [*map(str, values), BEST]
    summaries = []
    for along in grouping.along:
        for group, members in _groups(along, cases):
            losses = np.array([[*losses, min(losses)] for losses in members])
            summaries.append(Regime(along, group, len(members), dict(zip(names, losses.mean(axis=0).tolist())),
                                    dict(zip(names, losses.max(axis=0).tolist()))))
    return summaries


def _loss_percent(grouping: Regimes, row: Row) -> float | None:
    """Return how much longer than the bound a result is; None if there is none."""
    time, bound = row.get(grouping.by), row.get(grouping.bound)
    if not isinstance(time, (int, float)) or not isinstance(bound, (int, float)) or not bound:
        return None
    return 100 * (time / bound - 1)


def _groups(along: str, cases: Sequence[tuple[Row, list[float]]]) -> list[tuple[str, list[list[float]]]]:
    """Group cases' losses by a setting or a result, in the order of its values; cases that have none are left out."""
    valued = [(row[along], losses) for row, losses in cases if row.get(along) is not None]
    kinds = {value for value, _ in valued}
    if not all(isinstance(value, (int, float)) for value in kinds):
        return [(str(kind), [losses for value, losses in valued if value == kind]) for kind in sorted(kinds, key=str)]
    valued.sort(key=lambda pair: pair[0])
    if len(kinds) <= _FEW:
        return [(str(kind) if isinstance(kind, int) else f"{kind:g}",
                 [losses for value, losses in valued if value == kind]) for kind in sorted(kinds)]
    cuts = [round(part * len(valued) / _PARTS) for part in range(_PARTS + 1)]
    parts = [valued[first:last] for first, last in zip(cuts, cuts[1:]) if last > first]
    return [(f"{part[0][0]:.2g} to {part[-1][0]:.2g}", [losses for _, losses in part]) for part in parts]
