"""Comparison of a setting's values over the cases of a study: each one's loss to one of them, and to the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from t3sim.study.sweeps.point import Scalar
from t3sim.study.sweeps.study import Compare, value_of

Row = Mapping[str, Scalar | None]


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


def regrets(compare: Compare, rows: Sequence[Row], varied: Sequence[str], compared: Sequence[str]) -> list[Regret]:
    """Compare the values of a setting, in the order of the study; none if no case is complete.

    `varied`: the study's settings, of which all but the `compared` ones, and that of repetitions, tell a case.
    """
    case_of = [name for name in varied if name not in (*compared, compare.average)]
    cases: dict[tuple, dict[Scalar, list[float]]] = {}
    for row in rows:
        if isinstance(row.get(compare.by), (int, float)):
            found = cases.setdefault(tuple(row.get(name) for name in case_of), {})
            found.setdefault(value_of(row, compared), []).append(float(row[compare.by]))
    values = list(dict.fromkeys(value_of(row, compared) for row in rows))
    repetitions = len({row.get(compare.average) for row in rows}) if compare.average else 1
    complete = {case: found for case, found in cases.items()
                if [len(found.get(value, ())) for value in values] == [repetitions] * len(values)}
    if not complete:
        return []
    repeated = np.array([[found[value] for value in values] for found in complete.values()])  # [case, value, which]
    times, spread = repeated.mean(axis=2), 100 * (repeated.max(axis=2) / repeated.min(axis=2) - 1)
    base, best = times[:, [values.index(compare.against)]], times.min(axis=1, keepdims=True)
    labels = [", ".join(f"{name} = {value}" for name, value in zip(case_of, case) if value is not None)
              for case in complete]
    worst = np.argmax(times / base, axis=0)

    def share(place: int, over: np.ndarray, percent: float) -> float:
        return 100 * float((times[:, place] <= over[:, 0] * (1 + percent / 100)).mean())
    return [Regret(
        value=value, cases=len(times),
        mean_percent=100 * float(np.exp(np.log(times[:, place] / base[:, 0]).mean()) - 1),
        worst_percent=100 * float(times[worst[place], place] / base[worst[place], 0] - 1),
        worst_case=labels[worst[place]],
        unharmed_percent=share(place, base, compare.slower_percent),
        good_percent=share(place, best, compare.within_percent),
        behind_best_percent=100 * float((times[:, place] / best[:, 0]).max() - 1),
        spread_percent=float(spread[:, place].mean()), worst_spread_percent=float(spread[:, place].max()))
        for place, value in enumerate(values)]
