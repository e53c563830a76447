"""Yield of a campaign: figures evaluated, results, and what they were made with."""

import os
import time
from dataclasses import dataclass, field
from typing import Any

from t3sim.base.cores import processor
from t3sim.papers.figure import Figure, Findings, Scope, Table
from t3sim.study.tasks.runner import Outcome


@dataclass
class Chapter:
    """One figure, evaluated, or why it could not be."""

    figure: Figure
    findings: Findings | None = None
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""
    plots: dict[str, tuple[str, bytes]] = field(default_factory=dict)  #: name: SVG for the page, PNG
    machine: str = ""  #: whose numbers these are
    second: "Chapter | None" = None  #: the same of the second machine, if it has numbers of its own

    @property
    def tables(self) -> list[Table]:
        """The tables, those of the second machine side by side with these."""
        tables = self.findings.tables if self.findings else []
        if self.second is None or self.second.findings is None:
            return tables
        return [side_by_side(table, second_table, self.second.machine) for table, second_table in
                zip(tables, self.second.findings.tables, strict=True)]


@dataclass
class Campaign:
    """Everything that the report shows."""

    setup: Scope
    chapters: list[Chapter]
    outcome: Outcome
    jobs: int
    provenance: dict[str, Any]  #: machine, versions, commit: what the results depend on
    second_setup: Scope | None = None  #: the second machine's

    @property
    def results(self) -> dict[str, Any]:
        """The content of `results.json`: nothing in it depends on the host, the number of jobs or the hour."""
        second_chapters = [chapter.second for chapter in self.chapters if chapter.second]
        return {**_content(self.chapters), **self.provenance, **({} if self.second_setup is None else {"beside": {
            **_content(second_chapters), "machine": self.second_setup.machine.described()}})}

    @property
    def host(self) -> dict[str, Any]:
        """The content of `host.json`: what the results do not depend on."""
        results = self.outcome.results.items()
        return {
            "jobs": self.jobs, "cores": os.cpu_count(), "processor": processor(),
            "finished": time.strftime("%Y-%m-%d %H:%M:%S %z"), "wall_seconds": self.outcome.seconds,
            "simulations": len(self.outcome.results), "kept": len(self.outcome.stored_keys),
            "core_seconds": sum(result.host_seconds for _, result in results),
            "tasks": {task.key: {"label": task.label, "seconds": result.host_seconds}
                      for task, result in sorted(results, key=lambda item: item[0].key)}}


def _content(chapters: list[Chapter]) -> dict[str, Any]:
    """Return what one machine's chapters say."""
    return {"cases": [case for chapter in chapters if chapter.findings for case in chapter.findings.cases],
            "summary": {chapter.figure.name: chapter.summary for chapter in chapters if chapter.summary},
            "incomplete": {chapter.figure.name: chapter.problem for chapter in chapters if chapter.problem}}


# Two machines beside the paper: a table's numbers of the second one after those of the first.

def side_by_side(table: Table, other: Table, name: str) -> Table:
    """Put another machine's column after each of a table's in which it has something else.

    `other`: the same table of the machine called `name`; a row that it lacks stays empty there.
    """
    other_rows = {row[0]: row for row in other.rows}
    empty_row = ("–",) * len(table.columns)
    pairs = [(row, other_rows.get(row[0], empty_row)) for row in table.rows]
    columns: list[tuple[str, list[str]]] = []
    for index, column in enumerate(table.columns):
        columns.append((column, [row[index] for row, _ in pairs]))
        if index and any(row[index] != other_row[index] for row, other_row in pairs):
            columns.append((f"{other.columns[index]}, {name}", [other_row[index] for _, other_row in pairs]))
    return Table(table.title, tuple(column for column, _ in columns),
                 [tuple(row) for row in zip(*(cells for _, cells in columns))], table.folded)
