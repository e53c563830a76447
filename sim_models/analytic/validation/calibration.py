"""A machine from its owner's measurements: constants that they determine, and the error on rows held out of the fit.

Times determine rates and latencies. How much one kernel slows another down determines the constants of contention.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log, sqrt
from statistics import fmean, stdev

from t3sim.analytic.validation.answers import answer_on, check_rate
from t3sim.analytic.validation.fit import constants_by_rows, fit, source_of, with_constants
from t3sim.analytic.validation.machines import MACHINES, constant, loaded, machine_of
from t3sim.analytic.validation.requests import (
    Beside,
    Collective,
    ExpertsExchange,
    GemmRequest,
    Measured,
    NotExpressible,
    OverlapRequest,
    Ratio,
    Read,
    Request,
    Slowdown,
    Steady,
)
from t3sim.base.errors import BadInput
from t3sim.machine import Machine

_FOLDS = 5  #: parts of the rows, each held out of a fit to the others
#: Constants of contention, together where they depend on each other, and values that are tried besides the machine's:
#: many are whole numbers, and times depend on the others too little for a fit by slopes.
_CONTENTION: tuple[tuple[tuple[str, ...], tuple[tuple[float, ...], ...]], ...] = (
    (("kernels.cluster", "kernels.dealt_rounds"), tuple(product((1, 2, 4, 8), range(5)))),
    (("sharing.kernel_units",), tuple(product((1, 2, *range(4, 33, 2), 40, 48, 56, 64, 80, 96, 112)))),
    (("sharing.copier_requests",), tuple(product(2 ** (power / 4) for power in range(-8, 9)))),
    (("sharing.power_share",), tuple(product(percent / 100 for percent in range(31)))))
_KEYS_OF_CONTENTION = tuple(key for keys, _ in _CONTENTION for key in keys)
_FEWEST_OF_SOURCE = 9  #: rows from which on a source's machine is calibrated
_FEWEST = 10  #: requests from which on rows of contention determine its constants
_BETTER = 0.95  #: of the mean error of a value, from which on another one is taken


@dataclass(frozen=True)
class RowErrors:
    """Errors of one quantity's rows: of the machine as it was, and held out of the fit; None: too few rows for that."""

    quantity: str
    rows: int
    before: float
    held_out: float | None
    worst: float | None


@dataclass(frozen=True)
class Calibration:
    """What measured rows say of a machine's constants."""

    machine: Machine
    values: dict[str, float]  #: constants that the rows determine, by `section.name`; whole numbers are int
    undetermined: tuple[str, ...]  #: constants that keep the machine's value
    errors: tuple[RowErrors, ...]
    misses: tuple[tuple[Measured, float], ...]  #: rows by their error after the fit, the largest first
    left_out: dict[str, int]  #: rows that no model here answers, by the reason
    contention: str  #: what rows of contention say of its constants

    def to_toml(self, name: str, files: Iterable[str]) -> str:
        """Write the machine as a file that extends the one that was calibrated."""
        rows = sum(quantity.rows for quantity in self.errors)
        lines = [f"# Written by t3 calibrate from {rows} rows of {', '.join(map(json.dumps, files))}.",
                 f"extends = {json.dumps(self.machine.name)}", f"name = {json.dumps(name)}"]
        sections = sorted({key.rpartition(".")[0] for key in self.values})
        for section in sections:
            lines += ["", f"[{section}]", *(f"{key.rpartition('.')[2]} = "
                                            f"{value if isinstance(value, int) else float(f'{value:.6g}')}"
                                            for key, value in sorted(self.values.items())
                                            if key.rpartition(".")[0] == section)]
        for quantity in self.errors:
            if quantity.held_out is not None and quantity.worst is not None:
                lines += ["", "[[measured.held_out]]", f"quantity = {json.dumps(quantity.quantity)}",
                          f"rows = {quantity.rows}", f"mean_error = {quantity.held_out:.4f}",
                          f"worst = {quantity.worst:.4f}"]
        return "\n".join(lines) + "\n"


def calibrate(machine: Machine, read: Sequence[Read]) -> Calibration:
    """Fit a machine's constants to its owner's rows, which count far more than the values that it has.

    The constants are those that rows gave to some machine that comes with the package, and those of contention. Each
    part of the rows is held out of a fit to the others. Constants of contention are kept only if they are better than
    the machine's on rows that are held out. Raises BadInput for rows of another machine's GPUs, and if none can be
    answered.
    """
    rows, left_out = _answered(machine, read)
    start = {key: value for key in dict.fromkeys(key for _, key in constants_by_rows())
             if key not in _KEYS_OF_CONTENTION and isinstance(value := constant(machine, key), float) and value > 0}
    number_of = {ask: number for number, ask in enumerate(dict.fromkeys(row.ask for row in rows))}
    folds = min(_FOLDS, len(number_of))
    fold_of = [number_of[row.ask] % folds for row in rows]  # rows of one request are held out together
    of_contention = [index for index, row in enumerate(rows) if _is_contention(row.ask)]
    enough = len({rows[index].ask for index in of_contention}) >= _FEWEST
    unseen: dict[int, float] = {}  # errors of rows that are held out
    unseen_with: dict[int, float] = {}  # with constants of contention from the others
    for fold in range(folds if folds > 1 else 0):
        others = [row for row, place in zip(rows, fold_of) if place != fold]
        times = with_constants(machine, _fit_times(machine, start, others))
        both = with_constants(times, _fit_contention(times, others)) if enough else times
        for index in (index for index, place in enumerate(fold_of) if place == fold):
            unseen[index] = _error(rows[index], times)
            if index in of_contention:
                unseen_with[index] = _error(rows[index], both)
    values: dict[str, float] = _fit_times(machine, start, rows)
    contention = "no row depends on the constants of contention: they keep their values"
    if of_contention and not enough:
        contention = f"fewer than {_FEWEST} scenarios of contention: its constants keep their values"
    elif of_contention:
        before, after = ([abs(errors[index]) for index in of_contention] for errors in (unseen, unseen_with))
        better = _clearly_less(after, before)
        contention = (f"rows of contention that are held out: error {fmean(before):.1%} with the machine's constants, "
                      f"{fmean(after):.1%} with those of the other rows, which are {'' if better else 'not '}taken")
        if better:
            values |= _fit_contention(with_constants(machine, values), rows)
            unseen |= unseen_with
    calibrated = with_constants(machine, values)
    errors = []
    for quantity in dict.fromkeys(row.quantity for row in rows):
        places = [index for index, row in enumerate(rows) if row.quantity == quantity]
        held_out = [abs(unseen[place]) for place in places if place in unseen]
        errors.append(RowErrors(quantity, len(places), fmean(abs(_error(rows[place], machine)) for place in places),
                                fmean(held_out) if held_out else None, max(held_out, default=None)))
    misses = sorted(((row, _error(row, calibrated)) for row in rows), key=lambda miss: -abs(miss[1]))
    undetermined = tuple(key for key in (*start, *_KEYS_OF_CONTENTION) if key not in values)
    return Calibration(machine, values, undetermined, tuple(errors), tuple(misses), left_out, contention)


def calibrated(rows: Iterable[tuple[Measured, str]]) -> dict[str, RowErrors]:
    """Return the errors by quantity of machines each calibrated to one source's rows; `rows`: each with its machine.

    A source needs `_FEWEST_OF_SOURCE` rows of collectives, GEMMs, fused operators or experts.
    """
    by_source: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for row, machine in rows:
        if isinstance(row.ask, Collective | GemmRequest | OverlapRequest | ExpertsExchange):
            by_source[source_of(row.source), machine].append(row)
    by_quantity: dict[str, list[RowErrors]] = defaultdict(list)
    for (_, machine), some in by_source.items():
        if len(some) >= _FEWEST_OF_SOURCE:
            for one in calibrate(loaded(machine), some).errors:
                if one.held_out is not None:
                    by_quantity[one.quantity].append(one)
    return {name: _together(name, some) for name, some in sorted(by_quantity.items())}


def _together(quantity: str, errors: Sequence[RowErrors]) -> RowErrors:
    """Return the errors over all rows of several sources."""
    rows = sum(one.rows for one in errors)
    return RowErrors(quantity, rows, sum(one.rows * one.before for one in errors) / rows,
                     sum(one.rows * (one.held_out or 0.0) for one in errors) / rows,
                     max(one.worst or 0.0 for one in errors))


def _is_contention(ask: Request) -> bool:
    return isinstance(ask, Slowdown | Beside | Steady)


def _clearly_less(errors: Sequence[float], others: Sequence[float]) -> bool:
    """Say whether errors of the same rows are less by more than two standard errors of the difference."""
    gains = [other - error for error, other in zip(errors, others)]
    return len(gains) > 1 and fmean(gains) > 2 * stdev(gains) / sqrt(len(gains))


def _fit_times(machine: Machine, start: Mapping[str, float], rows: Sequence[Measured]) -> dict[str, float]:
    return fit(start, [(row.ask, row.ns, machine) for row in rows if not _is_contention(row.ask)])


def _fit_contention(machine: Machine, rows: Sequence[Measured]) -> dict[str, float]:
    """Return the constants of contention that rows determine: those with the least error of the rows that they move."""
    rows = [row for row in rows if _is_contention(row.ask)]

    def errors(some: Sequence[Measured], values: Mapping[str, float]) -> list[float]:
        """Return the errors of rows, each at most 1, so that few bad ones do not decide."""
        fitted = with_constants(machine, values)
        return [min(1.0, abs(log(answer_on(row.ask, fitted) / row.ns))) for row in some]

    values: dict[str, float] = {}
    for _ in range(3):  # they depend on each other
        before = dict(values)
        for keys, others in _CONTENTION:
            tried = [dict(zip(keys, other)) for other in others if other[0] < machine.gpu.compute_units]
            ends = zip(rows, *(errors(rows, values | end) for end in (tried[0], tried[-1])))
            moved = [row for row, low, high in ends if low != high]
            if moved:
                costs = [fmean(errors(moved, values | other)) for other in tried]
                if min(costs) < _BETTER * fmean(errors(moved, values)):
                    values |= tried[costs.index(min(costs))]
        if values == before:
            break
    return values


def _answered(machine: Machine, read: Sequence[Read]) -> tuple[list[Measured], dict[str, int]]:
    """Return the rows that the machine answers, and how many it does not, by the reason. Raises BadInput."""
    rows: list[Measured] = []
    left_out: dict[str, int] = {}
    for row in read:
        try:
            if isinstance(row, Ratio) and row.kind == "slowdown":
                row = Measured(row.source, row.gpu, row.quantity, row.scenario, Slowdown(row.first, row.second),
                               1 + row.measured / 100, row.file)
            if not isinstance(row, Measured):
                raise NotExpressible("the row's two times are rows of their own" if isinstance(row, Ratio) else
                                     row.reason)
            other = _machine_or_none(row.gpu)
            if machine.name in MACHINES and other not in (None, machine.name):
                raise BadInput(f"rows are of {row.gpu[:60]!r}, which is machine {other}: --machine is {machine.name}")
            check_rate(row, machine)
            answer_on(row.ask, machine)
            rows.append(row)
        except NotExpressible as reason:
            left_out[str(reason)] = left_out.get(str(reason), 0) + 1
    if not rows:
        reasons = "; ".join(f"{count}: {reason}" for reason, count in left_out.items())
        raise BadInput(f"no row can be answered for machine {machine.name}{f' ({reasons})' if reasons else ''}")
    return rows, left_out


def _machine_or_none(gpu: str) -> str | None:
    try:
        return machine_of(gpu)
    except NotExpressible:
        return None


def _error(row: Measured, machine: Machine) -> float:
    return answer_on(row.ask, machine) / row.ns - 1

