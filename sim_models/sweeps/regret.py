"""How a setting's values compare over the cases of a study: by how much each loses to one of them, and to the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from t3sim.sweeps.settings import Scalar
from t3sim.sweeps.study import Compare

Row = Mapping[str, Scalar | None]


@dataclass(frozen=True)
class Regret:
    """What one value of the setting loses, over all cases in which every value has a result.

    It is in percent of the other's time.
    """

    value: Scalar
    cases: int
    mean_percent: float  #: slower than the value it is compared with, on geometric mean; less than 0: faster
    worst_percent: float  #: the most by which it is slower than that
    worst_case: str  #: where
    good_percent: float  #: share of the cases in which it is within `Compare.within_percent` of the best
    behind_best_percent: float  #: the most by which it is slower than the best


def regrets(compare: Compare, rows: Sequence[Row], varied: Sequence[str]) -> list[Regret]:
    """Compare the values of a setting, in the order of the study; none if no case is complete.

    `varied`: the study's settings, of which all but the compared one tell a case.
    """
    case_of = [name for name in varied if name != compare.over]
    cases: dict[tuple, dict[Scalar, float]] = {}
    for row in rows:
        if isinstance(row.get(compare.by), (int, float)):
            cases.setdefault(tuple(row.get(name) for name in case_of), {})[row[compare.over]] = float(row[compare.by])
    values = list(dict.fromkeys(row[compare.over] for row in rows))
    complete = {case: found for case, found in cases.items() if len(found) == len(values)}
    if not complete:
        return []
    times = np.array([[found[value] for value in values] for found in complete.values()])  # [case, value]
    base, best = times[:, [values.index(compare.against)]], times.min(axis=1, keepdims=True)
    labels = [", ".join(f"{name} = {value}" for name, value in zip(case_of, case) if value is not None)
              for case in complete]
    worst = np.argmax(times / base, axis=0)
    return [Regret(
        value=value, cases=len(times),
        mean_percent=100 * float(np.exp(np.log(times[:, place] / base[:, 0]).mean()) - 1),
        worst_percent=100 * float(times[worst[place], place] / base[worst[place], 0] - 1),
        worst_case=labels[worst[place]],
        good_percent=100 * float((times[:, place] <= best[:, 0] * (1 + compare.within_percent / 100)).mean()),
        behind_best_percent=100 * float((times[:, place] / best[:, 0]).max() - 1))
        for place, value in enumerate(values)]
