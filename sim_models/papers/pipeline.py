"""Runs what the chosen figures need, evaluates them, and writes report, plots and results into one folder."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t3sim.base.errors import BadInput
from t3sim.base.output import collect_versions, json_text, write_whole
from t3sim.papers.campaign import Campaign, Chapter
from t3sim.papers.csv_tables import FOLDER, csv_tables
from t3sim.papers.figure import Figure, Scope
from t3sim.papers.paper import TARGETS, compare
from t3sim.papers.report import render_report
from t3sim.study.tasks.runner import Monitor, Outcome, run_tasks
from t3sim.study.tasks.store import KeptResults, Store
from t3sim.study.tasks.task import KernelTask, Task, WarmUpTask

_PROJECT = Path(__file__).resolve().parents[2]


def reproduce(figures: Sequence[Figure], setup: Scope, out: Path, jobs: int, monitor: Monitor,
              second_setup: Scope | None = None) -> Campaign:
    """Simulate what is missing in `out`/cache, then write the report. Raises what `run_tasks` raises.

    `second_setup`: the same cases on a second machine, for the figures whose numbers are a machine's. Failures are in
    the campaign's outcome and in `out`/failures.log; figures that do not need them are complete.
    """
    tasks: dict[Figure, list[Task]] = {figure: list(figure.tasks(setup)) for figure in figures}
    second_tasks = {figure: list(figure.tasks(second_setup))
                    for figure in figures if second_setup and figure.per_machine}
    all_tasks = [task for figure_tasks in (*tasks.values(), *second_tasks.values()) for task in figure_tasks]
    cycle_level = any(isinstance(task, KernelTask) for task in all_tasks)
    warm_up = WarmUpTask(setup.machine, any(task.needs_rtl for task in all_tasks)) if cycle_level else None
    outcome = run_tasks(all_tasks, Store(out / "cache", KeptResults()), jobs, monitor, warm_up)
    chapters = [_evaluate(figure, figure_tasks, setup, outcome) for figure, figure_tasks in tasks.items()]
    for chapter in chapters:
        if second_setup and chapter.figure in second_tasks:
            chapter.second = _evaluate(chapter.figure, second_tasks[chapter.figure], second_setup, outcome,
                                       with_plots=False)
    campaign = Campaign(setup, chapters, outcome, jobs, _provenance(setup), second_setup)
    (out / "plots").mkdir(parents=True, exist_ok=True)
    for chapter in chapters:
        for name, (svg, png) in chapter.plots.items():
            write_whole(out / "plots" / f"{name}.svg", '<?xml version="1.0" encoding="utf-8"?>\n' + svg)
            write_whole(out / "plots" / f"{name}.png", png)
    (out / FOLDER).mkdir(exist_ok=True)
    for name, text in csv_tables(campaign).items():
        write_whole(out / FOLDER / name, text)
    write_whole(out / "results.json", json_text(campaign.results))
    write_whole(out / "host.json", json_text(campaign.host))
    write_whole(out / "report.html", render_report(campaign))
    log = out / "failures.log"
    log.unlink(missing_ok=True)
    if outcome.failures:
        write_whole(log, "\n".join(f"{failure.label} ({key}): {failure.message}\n{failure.traceback}"
                                   for key, failure in outcome.failures.items()))
    return campaign


def _evaluate(figure: Figure, tasks: list[Task], setup: Scope, outcome: Outcome, with_plots: bool = True) -> Chapter:
    from t3sim.base.plots import range_bars, render

    name = setup.machine.name

    missing_tasks = {task.key: task for task in tasks if task not in outcome.results}
    if missing_tasks:
        key, task = next(iter(missing_tasks.items()))
        reason = outcome.failures[key].message if key in outcome.failures else "its result cannot be read"
        return Chapter(figure, machine=name,
                       problem=f"{len(missing_tasks)} of the simulations that it needs failed; {task.label}: {reason}")
    findings = figure.evaluate(setup, outcome.results)
    summary = compare({**TARGETS.get(figure.name, {}), **findings.targets}, findings.ours, findings.ranges)
    if not with_plots:
        return Chapter(figure, findings, summary, machine=name)
    plots = dict(findings.plots)
    if range_entries := [entry for entry in summary.values() if "range" in entry and entry["section"]]:
        plots[f"{figure.name}-ranges"] = lambda: range_bars(range_entries)
    return Chapter(figure, findings, summary, machine=name,
                   plots={plot: render(plot, draw) for plot, draw in plots.items()})


def check_out(out: Path) -> None:
    """Refuse, before hours of work, a folder that cannot be written. Raises `BadInput`."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {str(out)!r} is not a folder")
    try:
        (out / "cache").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {str(out)!r} cannot be created: {error.strerror}") from None
    if not os.access(out, os.W_OK) or not os.access(out / "cache", os.W_OK):
        raise BadInput(f"--out {str(out)!r} cannot be written: permission denied")


def _provenance(setup: Scope) -> dict[str, Any]:
    return {"machine": setup.machine.described(), "seed": setup.seed, "versions": collect_versions(),
            "commit": _commit()}


def _commit() -> str:
    """Name the commit of the sources, if they are a git work tree; "+" if files were changed."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", _PROJECT, *arguments], check=True, capture_output=True, text=True,
                              timeout=20).stdout.strip()
    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
