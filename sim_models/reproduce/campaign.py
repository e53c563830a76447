"""What a campaign yields: figures evaluated, results, and what they were made with."""

import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t3sim.reproduce.figure import Figure, Findings, Setup
from t3sim.reproduce.runner import Outcome


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


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


