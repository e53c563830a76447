"""Measured rows beside what the models answer: errors, signs, and what cannot be answered."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from t3sim.analytic.validation.answers import answer, check_rate
from t3sim.analytic.validation.fit import answer_without_source, rows_by_machine
from t3sim.analytic.validation.machines import MACHINES, is_fitted, loaded, machine_of
from t3sim.analytic.validation.requests import Measured, NotExpressible, Ratio, Read, Unread
from t3sim.base.cache import kept


@dataclass(frozen=True)
class Compared:
    """A measured time beside ours."""

    row: Measured
    machine: str
    ours_ns: float
    fitted: bool  #: a constant of the machine comes from this row
    without_source_ns: float | None  #: ours with no constant from this row's source; None: that is not possible

    @property
    def error(self) -> float:
        return self.ours_ns / self.row.ns - 1

    @property
    def error_without_source(self) -> float | None:
        return None if self.without_source_ns is None else self.without_source_ns / self.row.ns - 1

    def to_json(self) -> dict[str, Any]:
        return {"source": self.row.source, "file": self.row.file, "machine": self.machine, "gpu": self.row.gpu,
                "quantity": self.row.quantity, "scenario": self.row.scenario, "measured_ns": self.row.ns,
                "ours_ns": self.ours_ns, "error": self.error, "fitted": self.fitted,
                "without_source_ns": self.without_source_ns, "error_without_source": self.error_without_source}


@dataclass(frozen=True)
class ComparedRatio:
    """A measured ratio beside ours."""

    row: Ratio
    machine: str
    ours: float
    without_source: float | None  #: ours with no constant from this row's source; None: that is not possible

    @property
    def right_without_source(self) -> bool | None:
        if self.row.kind != "sign" or self.without_source is None:
            return None
        return (self.without_source > 1) == (self.row.measured > 1)

    @property
    def right(self) -> bool | None:
        """Say whether ours is on the same side; None of what is no sign."""
        return (self.ours > 1) == (self.row.measured > 1) if self.row.kind == "sign" else None

    @property
    def points(self) -> float | None:
        """Percentage points between ours and the measured one; None of a sign."""
        return None if self.row.kind == "sign" else self.ours - self.row.measured

    def to_json(self) -> dict[str, Any]:
        return {"source": self.row.source, "file": self.row.file, "machine": self.machine, "gpu": self.row.gpu,
                "quantity": self.row.quantity, "scenario": self.row.scenario, "kind": self.row.kind,
                "measured": self.row.measured, "ours": self.ours, "without_source": self.without_source,
                **({"right": self.right} if self.right is not None else {"error_points": self.points})}


@dataclass(frozen=True)
class Validation:
    """Every row, answered or not."""

    rows: tuple[Compared, ...]
    ratios: tuple[ComparedRatio, ...]
    left_out: dict[str, list[str]]  #: scenarios by reason

    def summary(self, compared: Iterable[Compared], ratios: Iterable[ComparedRatio]) -> dict[str, Any]:
        """Return counts and errors of some rows: of all, with each row's source left out, and apart from fitted ones.

        `kept`: rows whose source cannot be left out, which count in no error of `without_source`.
        """
        compared, ratios = list(compared), list(ratios)
        signs = [one.right for one in ratios if one.right is not None]
        points = [abs(one.points) for one in ratios if one.points is not None]
        unseen = [one.error_without_source for one in compared if one.error_without_source is not None]
        unseen_signs = [one.right_without_source for one in ratios if one.right_without_source is not None]
        summary = summary_of([one.error for one in compared]) | {
            "signs_right": sum(signs), "signs": len(signs),
            "predicted": summary_of([one.error for one in compared if not one.fitted]),
            "fitted": summary_of([one.error for one in compared if one.fitted]),
            "without_source": summary_of(unseen) | {"kept": len(compared) - len(unseen),
                                                    "signs_right": sum(unseen_signs), "signs": len(unseen_signs)}}
        if points:
            summary |= {"percentages": len(points), "mean_abs_points": fmean(points), "worst_points": max(points),
                        "within_10_points": sum(one <= 10 for one in points)}
        return summary

    def grouped(self, by: str) -> dict[str, dict[str, Any]]:
        """Return the summary by `machine` or `quantity`."""
        def key(one: Compared | ComparedRatio) -> str:
            return one.machine if by == "machine" else one.row.quantity

        names = sorted({key(one) for one in (*self.rows, *self.ratios)})
        return {name: self.summary((one for one in self.rows if key(one) == name),
                                   (one for one in self.ratios if key(one) == name)) for name in names}

    def to_json(self) -> dict[str, Any]:
        return {"rows": [one.to_json() for one in self.rows], "ratios": [one.to_json() for one in self.ratios],
                "summary": {**self.summary(self.rows, self.ratios), "by_machine": self.grouped("machine"),
                            "by_quantity": self.grouped("quantity")},
                "not_expressible": [{"reason": reason, "rows": len(some), "scenarios": some}
                                    for reason, some in sorted(self.left_out.items())]}


def summary_of(errors: Sequence[float]) -> dict[str, Any]:
    """Return how many errors there are, the mean size and the worst."""
    sizes = list(map(abs, errors))
    return {"rows": len(sizes), "mean_abs_error": fmean(sizes) if sizes else None, "worst": max(sizes, default=None)}


def compare(readings: Sequence[Read], only: str | None = None) -> Validation:
    """Answer every row; `only`: those of one machine."""
    rows: list[Compared] = []
    ratios: list[ComparedRatio] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    for row in readings:
        if isinstance(row, Unread) and not row.gpu:  # of no machine that is known
            left_out[row.reason].append(row.scenario)
            continue
        try:
            machine = machine_of(row.gpu)
        except NotExpressible as reason:
            if only is None:
                left_out[str(reason)].append(row.scenario)
            continue
        if only not in (None, machine):
            continue
        try:
            if isinstance(row, Measured):
                check_rate(row, loaded(machine))
                rows.append(Compared(row, machine, answer(row.ask, machine), is_fitted(row, machine),
                                     answer_without_source(row.ask, machine, row.source)))
            elif isinstance(row, Ratio):
                ratios.append(_ratio(row, machine))
            elif isinstance(row, Unread):
                left_out[row.reason].append(row.scenario)
        except NotExpressible as reason:
            left_out[str(reason)].append(row.scenario)
    return Validation(tuple(rows), tuple(ratios), dict(left_out))


def _ratio(one: Ratio, machine: str) -> ComparedRatio:
    def compared(first: float, second: float) -> float:
        return {"sign": first / second, "share": 100 * (1 - second / first),
                "slowdown": 100 * (first / second - 1)}[one.kind]

    first, second = (answer_without_source(request, machine, one.source) for request in (one.first, one.second))
    return ComparedRatio(one, machine, compared(answer(one.first, machine), answer(one.second, machine)),
                         None if first is None or second is None else compared(first, second))


@cache
def own_comparison(machine: str) -> tuple[Compared, ...]:
    """Return a machine's times that come with the package next to ours, which are kept in the user's cache."""
    rows = rows_by_machine().get(machine, ())
    if not rows:
        return ()
    places = {id(row): place for place, row in enumerate(rows)}
    answers = kept(f"rows-{machine}", lambda: [
        (places[id(one.row)], one.ours_ns, one.fitted, one.without_source_ns) for one in compare(rows, machine).rows])
    return tuple(Compared(rows[place], machine, *answer) for place, *answer in answers)


@cache
def expected_error(machine: str) -> dict[str, Any] | None:
    """Return the error over all of a machine's rows, each answered without its source, as `t3 validate` has it."""
    if machine not in MACHINES:
        return None
    error = Validation((), (), {}).summary(own_comparison(machine), ())["without_source"]
    return error if error["rows"] else None
