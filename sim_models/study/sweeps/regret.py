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
    worst = np.argmax(times / base, axis=0)

    def share(index: int, over: np.ndarray, percent: float) -> float:
        return 100 * float((times[:, index] <= over[:, 0] * (1 + percent / 100)).mean())
    return [Regret(
        value=value, cases=len(times),
        mean_percent=100 * float(np.exp(np.log(times[:, index] / base[:, 0]).mean()) - 1),
        worst_percent=100 * float(times[worst[index], index] / base[worst[index], 0] - 1),
        worst_case=labels[worst[index]],
        unharmed_percent=share(index, base, compare.slower_percent),
        good_percent=share(index, best, compare.within_percent),
        behind_best_percent=100 * float((times[:, index] / best[:, 0]).max() - 1),
        spread_percent=float(spread[:, index].mean()), worst_spread_percent=float(spread[:, index].max()))
        for index, value in enumerate(values)]
