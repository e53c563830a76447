"""Runs what the chosen figures need, evaluates them, and writes report, plots and results into one folder."""

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim_models.errors import BadInput
from sim_models.reproduce.figure import Figure, Findings, Setup
from sim_models.reproduce.paper import TARGETS, compare
from sim_models.reproduce.runner import Monitor, Outcome, run_tasks
from sim_models.reproduce.store import Store
from sim_models.reproduce.tasks import Task, WarmUpTask
from sim_models.results import collect_versions, json_text, write_whole

_PROJECT = Path(__file__).resolve().parents[2]


@dataclass
class Chapter:
    """One figure, evaluated, or why it could not be."""

    figure: Figure
    findings: Findings | None = None
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""
    plots: dict[str, tuple[str, bytes]] = field(default_factory=dict)  #: name: SVG for the page, PNG


@dataclass
class Campaign:
    """Everything that the report shows."""

    setup: Setup
    chapters: list[Chapter]
    outcome: Outcome
    jobs: int
    provenance: dict[str, Any]  #: machine, versions, commit: what the results depend on

    @property
    def results(self) -> dict[str, Any]:
        """The content of `results.json`: nothing in it depends on the host, the number of jobs or the hour."""
        return {
            "cases": [one for chapter in self.chapters if chapter.findings for one in chapter.findings.cases],
            "summary": {chapter.figure.name: chapter.summary for chapter in self.chapters if chapter.summary},
            "incomplete": {chapter.figure.name: chapter.problem for chapter in self.chapters if chapter.problem},
            **self.provenance}

    @property
    def host(self) -> dict[str, Any]:
        """The content of `host.json`: what the results do not depend on."""
        used = self.outcome.results.items()
        return {
            "jobs": self.jobs, "cores": os.cpu_count(), "processor": _processor(),
            "finished": time.strftime("%Y-%m-%d %H:%M:%S %z"), "wall_seconds": self.outcome.seconds,
            "simulations": len(self.outcome.results), "kept": self.outcome.kept,
            "core_seconds": sum(result.host_seconds for _, result in used),
            "tasks": {task.key: {"label": task.label, "seconds": result.host_seconds}
                      for task, result in sorted(used, key=lambda item: item[0].key)}}


def reproduce(figures: Sequence[Figure], setup: Setup, out: Path, jobs: int, monitor: Monitor) -> Campaign:
    """Simulate what is missing in `out`/cache, then write the report. What failed is in the campaign's outcome and in
    `out`/failures.log; figures that do not need it are complete. Raises what `run_tasks` raises."""
    from sim_models.reproduce.report import render_report

    tasks: dict[Figure, list[Task]] = {figure: list(figure.tasks(setup)) for figure in figures}
    needed = [task for wanted in tasks.values() for task in wanted]
    warm_up = WarmUpTask(setup.machine, any(task.needs_rtl for task in needed))
    outcome = run_tasks(needed, Store(out / "cache"), jobs, monitor, warm_up)
    chapters = [_evaluate(figure, wanted, setup, outcome) for figure, wanted in tasks.items()]
    campaign = Campaign(setup, chapters, outcome, jobs, _provenance(setup))
    (out / "plots").mkdir(parents=True, exist_ok=True)
    for chapter in chapters:
        for name, (svg, png) in chapter.plots.items():
            write_whole(out / "plots" / f"{name}.svg", '<?xml version="1.0" encoding="utf-8"?>\n' + svg)
            write_whole(out / "plots" / f"{name}.png", png)
    write_whole(out / "results.json", json_text(campaign.results))
    write_whole(out / "host.json", json_text(campaign.host))
    write_whole(out / "report.html", render_report(campaign))
    log = out / "failures.log"
    log.unlink(missing_ok=True)
    if outcome.failures:
        write_whole(log, "\n".join(f"{one.label} ({key}): {one.message}\n{one.traceback}"
                                   for key, one in outcome.failures.items()))
    return campaign


def _evaluate(figure: Figure, tasks: list[Task], setup: Setup, outcome: Outcome) -> Chapter:
    from sim_models.reproduce.plots import render

    lost = {task.key: task for task in tasks if task not in outcome.results}
    if lost:
        key, task = next(iter(lost.items()))
        reason = outcome.failures[key].message if key in outcome.failures else "its result cannot be read"
        return Chapter(figure, problem=f"{len(lost)} of the simulations that it needs failed; {task.label}: {reason}")
    findings = figure.evaluate(setup, outcome.results)
    return Chapter(figure, findings, compare({**TARGETS.get(figure.name, {}), **findings.targets}, findings.ours),
                   plots={name: render(name, draw) for name, draw in findings.plots.items()})


def check_out(out: Path) -> None:
    """Refuses, before hours of work, a folder that cannot be written. Raises `BadInput`."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {str(out)!r} is not a folder")
    try:
        (out / "cache").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {str(out)!r} cannot be made: {error.strerror}") from None
    if not os.access(out, os.W_OK) or not os.access(out / "cache", os.W_OK):
        raise BadInput(f"--out {str(out)!r} cannot be written: permission denied")


def _provenance(setup: Setup) -> dict[str, Any]:
    return {"machine": setup.machine.model_dump(mode="json"), "seed": setup.seed, "versions": collect_versions(),
            "commit": _commit()}


def _commit() -> str:
    """Of the sources, if they are a git work tree; "+" if files were changed."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", _PROJECT, *arguments], check=True, capture_output=True, text=True,
                              timeout=20).stdout.strip()
    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


