"""Runs the simulations of a study's points that are not there yet, then writes its table, plots and report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from t3sim.base.errors import BadInput, choices, shown
from t3sim.base.output import write_whole
from t3sim.study.sweeps.comparisons import Regime, Regret, regimes, regrets
from t3sim.study.sweeps.page import write_page
from t3sim.study.sweeps.point import Point, Scalar, label_of
from t3sim.study.sweeps.study import Study
from t3sim.study.tasks.runner import Monitor, Outcome, TaskFailure, run_tasks
from t3sim.study.tasks.store import KeptResults, Store

FILE = "results.parquet"


def make_table(rows: Sequence[dict[str, Scalar | None]], first: Sequence[str]) -> pa.Table:
    """Make a table of the columns `first`, then all others in alphabetical order; what a point has not is null."""
    names = sorted({name for row in rows for name in row} - set(first))
    return pa.table({name: _column([row.get(name) for row in rows]) for name in [*first, *names]})


def write_table(table: pa.Table, folder: Path) -> None:
    """Write `folder`/results.parquet, whole or not at all; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_whole(folder / FILE, sink.getvalue().to_pybytes())


def _column(values: list[Any]) -> pa.Array:
    """Make a column of one type, whatever the points have: words if any is a word, fractions if any is one."""
    kinds = {type(value) for value in values if value is not None}
    if str in kinds or (bool in kinds and len(kinds) > 1):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if float in kinds:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array(values, pa.bool_() if bool in kinds else pa.int64() if kinds else pa.null())


@dataclass(frozen=True)
class Shard:
    """Every `of`-th point from the `number`-th on; 1 of 1: all."""

    number: int = 1
    of: int = 1


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep."""

    points: int  #: of the study
    finished_points: int  #: of them, whoever ran them
    stored_points: int  #: of this part's points, those whose simulations were all there before
    simulations: int  #: that this part's points need, each once
    failures: tuple[TaskFailure, ...]  #: of this part's points, in their order
    regrets: tuple[Regret, ...] = ()
    regimes: tuple[Regime, ...] = ()


def sweep(study: Study, points: Sequence[Point], out: Path, monitor: Monitor, jobs: int = 1, shard: Shard = Shard(),
          scheduler: str | None = None) -> SweepResult:
    """Run this shard of a study's points, `jobs` simulations at once or on a cluster; write what is known into `out`.

    Table, plots and report are those of the whole study, the same bytes whoever ran the points. Raises what `run_tasks`
    and `run_on_cluster` raise.
    """
    store, shard_points = Store(out / "cache", KeptResults()), points[shard.number - 1::shard.of]
    tasks = {task.key: task for point in shard_points for task in point.tasks}
    if scheduler is not None:
        from t3sim.study.sweeps.cluster import run_on_cluster

        outcome = run_on_cluster(list(tasks.values()), store, scheduler, monitor)
    else:
        first = next((first for point in shard_points if (first := point.warm_up()) is not None), None)
        outcome = run_tasks(tasks.values(), store, jobs, monitor, first)
    rows = _rows(points, store, outcome)
    failures = tuple(_failures(study, shard_points, outcome))
    out.mkdir(parents=True, exist_ok=True)
    write_table(make_table(rows, study.varied_settings), out)
    columns = dict.fromkeys(column for row in rows for column in row)
    for part, column in study.columns() if rows else ():
        # Of levels that have different results, those that are not there yet may have it.
        if column not in columns and ("level" not in study.varied_settings or len(rows) == len(points)):
            raise BadInput(f"{part} names {shown(column)}, which no result has: allowed are {choices(column, columns)} "
                           f"(the results are kept in {out})")
    write_page(study, rows, sorted((failure.label, failure.message) for failure in failures), len(points), out)
    log = out / "failures.log"
    log.unlink(missing_ok=True)
    if failures:
        write_whole(log, "\n".join(f"{failure.label}: {failure.message}\n{failure.traceback}" for failure in failures))
    return SweepResult(len(points), len(rows),
                       sum({task.key for task in point.tasks} <= outcome.stored_keys for point in shard_points),
                       len(tasks), failures,
                       tuple(regrets(study.compare, rows, study.varied_settings, study.compared_settings))
                       if study.compare else (),
                       tuple(regimes(study.regimes, rows, study.varied_settings)) if study.regimes else ())


def _rows(points: Sequence[Point], store: Store, outcome: Outcome) -> list[dict]:
    """Return settings and answer of every point whose simulations are there, whoever ran them.

    A result that has the name of a setting is a repetition of it.
    """
    results, rows = {task.key: result for task, result in outcome.results.items()}, []
    for point in points:
        for task in point.tasks:
            if task.key not in results and (result := store.load(task)) is not None:
                results[task.key] = result
        if all(task.key in results for task in point.tasks):
            rows.append({**point.answer(results), **point.values})
    return rows


def _failures(study: Study, points: Sequence[Point], outcome: Outcome):
    for point in points:
        if failure := next((outcome.failures[task.key] for task in point.tasks if task.key in outcome.failures), None):
            yield TaskFailure(label_of(point, study.varied_settings), failure.message, failure.traceback)
