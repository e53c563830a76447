"""Runs the simulations of a study's points that are not there yet, then writes its table, plots and report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from t3sim.base.errors import BadInput, choices, shown
from t3sim.base.output import write_whole
from t3sim.study.sweeps.page import write_page
from t3sim.study.sweeps.point import Point, label_of
from t3sim.study.sweeps.regimes import Regime, regimes
from t3sim.study.sweeps.regret import Regret, regrets
from t3sim.study.sweeps.study import Study
from t3sim.study.sweeps.table import make_table, write_table
from t3sim.study.tasks.kept import KeptResults
from t3sim.study.tasks.runner import Monitor, Outcome, TaskFailure, run_tasks
from t3sim.study.tasks.store import Store


@dataclass(frozen=True)
class Shard:
    """Every `of`-th point from the `number`-th on; 1 of 1: all."""

    number: int = 1
    of: int = 1


@dataclass(frozen=True)
class Swept:
    """The result of a sweep."""

    points: int  #: of the study
    done: int  #: of them, whoever ran them
    kept: int  #: of this part's points, those whose simulations were all there before
    simulations: int  #: that this part's points need, each once
    failures: tuple[TaskFailure, ...]  #: of this part's points, in their order
    compared: tuple[Regret, ...] = ()
    regimes: tuple[Regime, ...] = ()


def sweep(study: Study, points: Sequence[Point], out: Path, monitor: Monitor, jobs: int = 1, shard: Shard = Shard(),
          scheduler: str | None = None) -> Swept:
    """Run this shard of a study's points, `jobs` simulations at once or on a cluster; write what is known into `out`.

    Table, plots and report are those of the whole study, the same bytes whoever ran the points. Raises what `run_tasks`
    and `run_on_cluster` raise.
    """
    store, mine = Store(out / "cache", KeptResults()), points[shard.number - 1::shard.of]
    tasks = {task.key: task for point in mine for task in point.tasks}
    if scheduler is not None:
        from t3sim.study.sweeps.cluster import run_on_cluster

        outcome = run_on_cluster(list(tasks.values()), store, scheduler, monitor)
    else:
        first = next((first for point in mine if (first := point.warm_up()) is not None), None)
        outcome = run_tasks(tasks.values(), store, jobs, monitor, first)
    rows = _rows(points, store, outcome)
    failures = tuple(_failures(study, mine, outcome))
    out.mkdir(parents=True, exist_ok=True)
    write_table(make_table(rows, study.varied), out)
    columns = dict.fromkeys(column for row in rows for column in row)
    for part, column in study.columns() if rows else ():
        # Of levels that have different results, those that are not there yet may have it.
        if column not in columns and ("level" not in study.varied or len(rows) == len(points)):
            raise BadInput(f"{part} names {shown(column)}, which no result has: allowed are {choices(column, columns)} "
                           f"(the results are kept in {out})")
    write_page(study, rows, sorted((one.label, one.message) for one in failures), len(points), out)
    log = out / "failures.log"
    log.unlink(missing_ok=True)
    if failures:
        write_whole(log, "\n".join(f"{one.label}: {one.message}\n{one.traceback}" for one in failures))
    return Swept(len(points), len(rows), sum({task.key for task in point.tasks} <= outcome.kept for point in mine),
                 len(tasks), failures,
                 tuple(regrets(study.compare, rows, study.varied, study.compared)) if study.compare else (),
                 tuple(regimes(study.regimes, rows, study.varied)) if study.regimes else ())


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
        if failed := next((outcome.failures[task.key] for task in point.tasks if task.key in outcome.failures), None):
            yield TaskFailure(label_of(point, study.varied), failed.message, failed.traceback)
