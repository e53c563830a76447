"""Constants of machines from measured rows: a fit, and machines without what a source's rows gave.

`[[measured.fitted]]` of a machine's file names the rows from which each constant came. Without a source, a constant is
fitted to all other sources' rows of the same quantities, of every machine that shares it. If these do not determine it,
it has its `prior`: of a document, or of the machine that the file extends. One that has none cannot be left out.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf, log

import numpy as np

from t3sim.analytic.validation.answers import answer_on
from t3sim.analytic.validation.machines import MACHINES, constant, gave, loaded, machine_of, own_fits
from t3sim.analytic.validation.readers import own_rows
from t3sim.analytic.validation.requests import Crowded, Measured, NotExpressible, Request
from t3sim.machine import Machine
from t3sim.machine.files import extended_files

#: Requests that also depend on constants of no key, by source: which rows gave them is beside the constants.
_OTHER_CONSTANTS = {(Crowded, "measure_kernels.py"): "kernels.cluster and kernels.dealt_rounds of h100-sxm"}
_LEAST = 0.3  #: relative change of a time over that of a constant, from which on its row helps to determine it
_OUTLIER = 0.1  #: logarithmic error from which on a row's weight falls
_STEPS, _STRIDE = 6, 0.02
_MOST_ROWS = 100  #: about, so that leaving out a source takes a tenth of a second
_PRIOR, _NO_PRIOR = 1.0, 0.01  #: weight of a prior, in rows, and of a start that is none


def source_of(text: str) -> str:
    """Return who published a row: the repository, or the words before a comma. All its rows are left out together."""
    match = re.match(r"[\w.-]+/[\w.-]+", text) or re.match(r"[^@,;(#]+", text)
    return match[0].strip() if match else text


def with_constants(machine: Machine, values: Mapping[str, float]) -> Machine:
    """Return a machine with other constants, by `section.name` or `section.part.name`."""
    return _replaced(machine, [(key.split("."), value) for key, value in values.items()])


def _replaced(section, values: Sequence[tuple[Sequence[str], float]]):
    """Return a section with other values by their paths; it and each part of it is copied once."""
    if not values:
        return section
    of_part = defaultdict(list)
    for (name, *path), value in values:
        of_part[name].append((path, value))
    return section.model_copy(update={name: _replaced(getattr(section, name), some) if some[0][0] else some[-1][1]
                                      for name, some in of_part.items()})


def _most(machine: Machine, key: str) -> float:
    """Return the largest value that a constant can have."""
    section, _, name = key.rpartition(".")
    fields = type(constant(machine, section)).model_fields
    limits = [one.le for one in fields[name].metadata if hasattr(one, "le")]
    return min([1.0 if re.search("efficiency|share|sustained", key) else inf, *limits])


def fit(start: Mapping[str, float], rows: Sequence[tuple[Request, float, Machine]],
        priors: frozenset[str] = frozenset()) -> dict[str, float]:
    """Return those constants that rows determine, by least squares of logarithmic errors; far rows count less.

    `start`: where the search starts; `rows`: request, measured ns, machine; `priors`: keys whose start is a prior,
    which counts as a row.
    """
    keys = list(start)
    sections = [key.partition(".")[0] for key in keys]
    most = np.log([max(start[key], _most(rows[0][2], key)) for key in keys]) if rows else np.empty(0)

    def errors(x: np.ndarray, some: Sequence[tuple[Request, float, Machine]]) -> np.ndarray:
        values = dict(zip(keys, np.exp(x).tolist()))
        machines = {id(machine): with_constants(machine, values) for *_, machine in some}
        return np.array([log(answer_on(ask, machines[id(machine)]) / ns) for ask, ns, machine in some])

    def slopes(x: np.ndarray, at: np.ndarray, some: Sequence[tuple[Request, float, Machine]],
               moved: set[tuple[type, str]] | None = None) -> np.ndarray:
        slope = np.zeros((len(some), len(x)))
        for place, stride in enumerate(np.where(x + _STRIDE > most, -_STRIDE, _STRIDE)):
            asked = [row for row, (ask, *_) in enumerate(some)
                     if moved is None or (type(ask), sections[place]) in moved]
            after = errors(x + stride * (np.arange(len(x)) == place), [some[row] for row in asked])
            slope[asked, place] = (after - at[asked]) / stride
        return slope

    def cost(x: np.ndarray, at: np.ndarray) -> float:
        far = np.abs(at) > _OUTLIER
        return float(np.where(far, 2 * _OUTLIER * np.abs(at) - _OUTLIER ** 2, at ** 2).sum()
                     + (ridge * (x - first) ** 2).sum())

    ridge = np.array([_PRIOR if key in priors else _NO_PRIOR for key in keys])
    first = x = np.log([start[key] for key in keys])
    if not rows:
        return {}
    sizes = np.abs(slopes(x, errors(x, rows), rows))
    moved = {(type(rows[row][0]), sections[place]) for row, place in zip(*sizes.nonzero())}
    helpful = sizes.max(axis=1) >= _LEAST
    some = [row for row, helps in zip(rows, helpful) if helps]
    if not some:
        return {}
    at, damping = errors(x, some), 1e-3
    steepest = np.zeros(len(keys))
    for _ in range(_STEPS):
        slope = slopes(x, at, some, moved)  # kinds of requests depend on sections
        steepest = np.maximum(steepest, np.abs(slope).max(axis=0))
        weights = _OUTLIER / np.maximum(_OUTLIER, np.abs(at))
        matrix = slope.T @ (weights[:, None] * slope) + np.diag(ridge + damping)
        step = np.linalg.solve(matrix, -slope.T @ (weights * at) - ridge * (x - first))
        after = np.minimum(x + np.clip(step, -1.0, 1.0), most)
        errors_after = errors(after, some)
        if cost(after, errors_after) < cost(x, at):
            done = np.abs(after - x).max() < 5e-3
            x, at, damping = after, errors_after, damping / 3
            if done:
                break
        else:
            damping = max(10 * damping, 1e-2)
    return {key: float(np.exp(value)) for key, value, slope in zip(keys, x, steepest) if slope >= _LEAST}


@dataclass(eq=False)
class Constant:
    """A constant that rows gave."""

    owner: str  #: the preset whose file has its value
    key: str
    prior: float | None = None
    rows: list[Measured] = field(default_factory=list)

    @property
    def sources(self) -> set[str]:
        return {source_of(row.source) for row in self.rows}


@cache
def _files(name: str) -> dict[str, dict]:
    return dict(extended_files(name))


def _owner(name: str, key: str) -> str | None:
    """Return the preset whose file has a machine's value."""
    return next((file for file, content in _files(name).items() if _stated(content, key) is not None), None)


def _stated(content: object, key: str) -> float | None:
    """Return what a file itself says of a constant."""
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content  # type: ignore[return-value]


@cache
def rows_by_machine() -> dict[str, list[Measured]]:
    """Return the times that come with the package, by machine."""
    by_machine: dict[str, list[Measured]] = defaultdict(list)
    for row in own_rows():
        if isinstance(row, Measured):
            try:
                by_machine[machine_of(row.gpu)].append(row)
            except NotExpressible:
                continue
    return by_machine


@cache
def constants_by_rows() -> dict[tuple[str, str], Constant]:
    """Return every constant that rows gave, by the preset that has it and its key."""
    constants: dict[tuple[str, str], Constant] = {}
    for name in MACHINES:
        for one in own_fits(name):
            rows = [row for row in rows_by_machine()[name] if gave(row, one)]
            for place, key in enumerate(one.keys):
                if (owner := _owner(name, key)) is None:
                    continue
                constant_ = constants.setdefault((owner, key), Constant(owner, key))
                constant_.rows += rows
                constant_.prior = one.prior[place] if one.prior else constant_.prior
    return constants


@cache
def _values_without(source: str, owner: str) -> tuple[dict[str, float], frozenset[str]]:
    """Return a preset's constants without a source's rows, and the keys of those that cannot be left out."""
    left_out = {one.key: one for (preset, _), one in constants_by_rows().items()
             if preset == owner and source in one.sources}
    if not left_out:
        return {}, frozenset()
    priors = {key: one.prior if one.prior is not None else _inherited(source, owner, key)
              for key, one in left_out.items()}
    start = {key: value if value is not None else constant(loaded(owner), key) for key, value in priors.items()}
    quantities = {row.quantity for one in left_out.values() for row in one.rows}
    rows = [(row.ask, row.ns, loaded(name)) for name in MACHINES if all(_owner(name, key) == owner for key in left_out)
            for row in rows_by_machine()[name] if row.quantity in quantities and source_of(row.source) != source]
    rows = rows[::max(1, len(rows) // _MOST_ROWS)]
    values = {key: value for key, value in priors.items() if value is not None} | fit(
        start, [row for row in rows if _is_answered(row[0], row[2])],
        frozenset(key for key, value in priors.items() if value is not None))
    return values, frozenset(left_out.keys() - values.keys())


def _is_answered(request: Request, machine: Machine) -> bool:
    try:
        answer_on(request, machine)
    except NotExpressible:
        return False
    return True


def _inherited(source: str, owner: str, key: str) -> float | None:
    """Return the value of the machine that a preset extends, without the source's rows; None if it has none."""
    base = _files(owner)[owner].get("extends")
    base_owner = None if base is None else _owner(base, key)
    if base_owner is None:
        return None
    values, kept = _values_without(source, base_owner)
    return None if key in kept else values.get(key, _stated(_files(base_owner)[base_owner], key))


@cache
def without_source(source: str, name: str) -> tuple[Machine, frozenset[str]]:
    """Return a machine without what a source's rows gave, and the keys that cannot be left out."""
    values: dict[str, float] = {}
    kept: set[str] = set()
    for owner in _files(name):
        owner_values, owner_kept = _values_without(source, owner)
        values |= {key: value for key, value in owner_values.items() if _owner(name, key) == owner}
        kept |= {key for key in owner_kept if _owner(name, key) == owner}
    return with_constants(loaded(name), values), frozenset(kept)


def sources_of_constants() -> list[tuple[str, str, float, str, float | None]]:
    """Return machine, key, value, source, and the value without it, of every constant; None: it cannot be left out."""
    return [(owner, key, constant(loaded(owner), key) or 0.0, source, _values_without(source, owner)[0].get(key))
            for (owner, key), one in sorted(constants_by_rows().items()) for source in sorted(one.sources)]


def answer_without_source(request: Request, name: str, source: str,
                          ns_of: Callable[[Request, Machine], float] = answer_on) -> float | None:
    """Return the answer of a machine without the rows of a source; None if that source cannot be left out.

    Raises `NotExpressible`.
    """
    source = source_of(source)
    if (type(request), source) in _OTHER_CONSTANTS:
        return None
    machine, kept = without_source(source, name)
    ns = ns_of(request, machine)
    for key in kept:
        moved = ns_of(request, with_constants(machine, {key: 0.9 * (constant(machine, key) or 1.0)}))
        if abs(log(moved / ns)) > 0.01:
            return None
    return ns
