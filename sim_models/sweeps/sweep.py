"""Runs the points of a study that are not there yet, then writes its table, plots and report."""

import re
from dataclasses import dataclass
from pathlib import Path

from t3sim.commands.flags import in_dashes
from t3sim.errors import BadInput, choices, shown
from t3sim.machine import load_machine
from t3sim.support.output import write_whole
from t3sim.sweeps.page import write_page
from t3sim.sweeps.point import PointTask
from t3sim.sweeps.regimes import Regime, regimes
from t3sim.sweeps.regret import Regret, regrets
from t3sim.sweeps.settings import MACHINE_KEY
from t3sim.sweeps.study import Study
from t3sim.sweeps.table import make_table, rows_of, write_table
from t3sim.tasks.runner import Monitor, Outcome, run_tasks
from t3sim.tasks.store import Store
from t3sim.tasks.task import WarmUpTask


@dataclass(frozen=True)
class Shard:
    """Every `of`-th point from the `number`-th on; 1 of 1: all."""

    number: int = 1
    of: int = 1


@dataclass(frozen=True)
class Swept:
    """How a sweep ended."""

    points: int  #: of the study
    done: int  #: of them, whoever ran them
    outcome: Outcome
    compared: tuple[Regret, ...] = ()
    regimes: tuple[Regime, ...] = ()


def _place(study: Study, message: str) -> str:
    """Say in which section of the study the setting stands that a message begins with."""
    drawn = study.draw.settings if study.draw else {}
    parts = {"options": study.options, "grid": study.grid, "draw.settings": drawn,
             "points": {name: 0 for point in study.points for name in point}}
    said = re.match(r"(?:--|')?([\w-]+)", in_dashes(message))
    return next((f"{part}.{said[1]}: " for part, settings in parts.items() if said and said[1] in settings), "")


def points_of(study: Study) -> list[PointTask]:
    """Make a task per point. Raises BadInput for the first that cannot be run."""
    tasks = [PointTask(settings, tuple(study.varied)) for settings in study.settings()]
    for task in tasks:
        try:
            task.settings.check()
        except BadInput as error:
            raise BadInput(f"{_place(study, str(error))}{error}") from None
    return tasks


def sweep(study: Study, out: Path, monitor: Monitor, jobs: int = 1, shard: Shard = Shard(),
          scheduler: str | None = None) -> Swept:
    """Run this shard's points, `jobs` at once or on a cluster, and write what is known of the whole study into `out`.

    Table, plots and report are the same bytes whoever ran the points. Raises what `run_tasks` and `run_on_cluster`
    raise; `points_of`'s BadInput comes before anything is run.
    """
    tasks, store = points_of(study), Store(out / "cache")
    mine = tasks[shard.number - 1::shard.of]
    if scheduler is not None:
        from t3sim.sweeps.cluster import run_on_cluster

        outcome = run_on_cluster(mine, store, scheduler, monitor)
    else:
        outcome = run_tasks(mine, store, jobs, monitor, _warm_up(mine))
    done = [(task, result) for task in tasks
            if (result := outcome.results.get(task) or store.load(task)) is not None]
    rows = rows_of(done)
    failures = sorted((one.label, one.message) for one in outcome.failures.values())
    out.mkdir(parents=True, exist_ok=True)
    write_table(make_table(rows, study.varied), out)
    known = dict.fromkeys(column for row in rows for column in row)
    for part, column in study.columns() if rows else ():
        # Of levels that have different results, those that are not there yet may have it.
        if column not in known and ("level" not in study.varied or len(done) == len(tasks)):
            raise BadInput(f"{part} names {shown(column)}, which no result has: allowed are {choices(column, known)} "
                           f"(the results are kept in {out})")
    write_page(study, rows, failures, len(tasks), out)
    log = out / "failures.log"
    log.unlink(missing_ok=True)
    if failures:
        write_whole(log, "\n".join(f"{one.label}: {one.message}\n{one.traceback}" for one in outcome.failures.values()))
    return Swept(len(tasks), len(done), outcome,
                 tuple(regrets(study.compare, rows, study.varied)) if study.compare else (),
                 tuple(regimes(study.regimes, rows, study.varied)) if study.regimes else ())


def _warm_up(tasks: list[PointTask]) -> WarmUpTask | None:
    """Make the task by which the first of the points that run a kernel compiles for all of them."""
    first = next((task for task in tasks if task.settings.command == "run" and not task.settings.event_level), None)
    if first is None:
        return None
    with first.settings.arguments() as words:
        named = [word.partition("=")[2] for word in words if word.startswith(f"--{MACHINE_KEY}=")]
        return WarmUpTask(load_machine(*named), any(task.needs_rtl for task in tasks))
