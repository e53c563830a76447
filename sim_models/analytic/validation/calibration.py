"""A machine from its owner's measurements: constants that they determine, and the error on rows held out of the fit."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from t3sim.analytic.validation.answers import answer_on
from t3sim.analytic.validation.fit import constant, constants_by_rows, fit, with_constants
from t3sim.analytic.validation.machines import MACHINES, machine_of
from t3sim.analytic.validation.requests import Measured, NotExpressible, Ratio, Read
from t3sim.base.errors import BadInput
from t3sim.machine import Machine

_FOLDS = 5  #: parts of the rows, each held out of a fit to the others


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
    values: dict[str, float]  #: constants that the rows determine, by `section.name`
    undetermined: tuple[str, ...]  #: constants that keep the machine's value
    errors: tuple[RowErrors, ...]
    misses: tuple[tuple[Measured, float], ...]  #: rows by their error after the fit, the largest first
    left_out: dict[str, int]  #: rows that no model here answers, by the reason

    def to_toml(self, name: str, files: Iterable[str]) -> str:
        """Write the machine as a file that extends the one that was calibrated."""
        rows = sum(quantity.rows for quantity in self.errors)
        lines = [f"# Written by t3 calibrate from {rows} rows of {', '.join(map(json.dumps, files))}.",
                 f"extends = {json.dumps(self.machine.name)}", f"name = {json.dumps(name)}"]
        sections = sorted({key.rpartition(".")[0] for key in self.values})
        for section in sections:
            lines += ["", f"[{section}]", *(f"{key.rpartition('.')[2]} = {float(f'{value:.6g}')}"
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

    The constants are those that rows gave to some machine that comes with the package. Each part of the rows is held
    out of a fit to the others. Raises BadInput for rows of another machine's GPUs, and if none can be answered.
    """
    rows, left_out = _answered(machine, read)
    start = {key: value for key in dict.fromkeys(key for _, key in constants_by_rows())
             if isinstance(value := constant(machine, key), float) and value > 0}
    timed = [(row.ask, row.ns, machine) for row in rows]
    values = fit(start, timed)
    number_of = {ask: number for number, ask in enumerate(dict.fromkeys(row.ask for row in rows))}
    folds = min(_FOLDS, len(number_of))
    fold_of = [number_of[row.ask] % folds for row in rows]  # rows of one request are held out together
    errors_held_out: dict[int, float] = {}
    for fold in range(folds if folds > 1 else 0):
        others = with_constants(machine, fit(start, [row for row, place in zip(timed, fold_of) if place != fold]))
        errors_held_out |= {index: _error(row, others) for index, row in enumerate(rows) if fold_of[index] == fold}
    calibrated = with_constants(machine, values)
    errors = []
    for quantity in dict.fromkeys(row.quantity for row in rows):
        places = [index for index, row in enumerate(rows) if row.quantity == quantity]
        unseen = [abs(errors_held_out[place]) for place in places if place in errors_held_out]
        errors.append(RowErrors(quantity, len(places), fmean(abs(_error(rows[place], machine)) for place in places),
                                fmean(unseen) if unseen else None, max(unseen, default=None)))
    misses = sorted(((row, _error(row, calibrated)) for row in rows), key=lambda miss: -abs(miss[1]))
    undetermined = tuple(key for key in start if key not in values)
    return Calibration(machine, values, undetermined, tuple(errors), tuple(misses), left_out)


def _answered(machine: Machine, read: Sequence[Read]) -> tuple[list[Measured], dict[str, int]]:
    """Return the rows that the machine answers, and how many it does not, by the reason. Raises BadInput."""
    rows: list[Measured] = []
    left_out: dict[str, int] = {}
    for row in read:
        try:
            if not isinstance(row, Measured):
                raise NotExpressible("a ratio of two times is no row of a fit" if isinstance(row, Ratio) else
                                     row.reason)
            other = _machine_or_none(row.gpu)
            if machine.name in MACHINES and other not in (None, machine.name):
                raise BadInput(f"rows are of {row.gpu[:60]!r}, which is machine {other}: --machine is {machine.name}")
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

