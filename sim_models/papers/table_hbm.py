"""The DRAM model against DRAMsim3 and Ramulator 2, as `t3 hbm-replay --all` prints it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from t3sim.base import plots
from t3sim.machine import load_machine
from t3sim.papers.figure import Figure, Findings, ModelTask, Quantities, Results, Scope, Table
from t3sim.testbenches.hbm_replay.configurations import RECORDED
from t3sim.testbenches.hbm_replay.validation import (
    GROUPS,
    MicroRow,
    Outcome,
    ValidationRow,
    Verdict,
    validate,
    validate_micro,
    verdicts,
)

MACHINE = "hbm2-reference"  #: what the recorded results are for
_SECONDS = 15.0  #: of one configuration
_SPEED = "M requests/s"
_SIMULATORS = {"ours": ("ours, deciding as DRAMsim3", "o", plots.BLUE), "fr_fcfs": ("ours, FR-FCFS", "D", plots.ORANGE),
               "ramulator2": ("Ramulator 2", "_", plots.GREY)}


@dataclass(frozen=True)
class HbmResult:
    """All recorded workloads of one configuration. Speeds depend on the host and do not take part in comparisons."""

    rows: tuple[ValidationRow, ...]
    micro: tuple[MicroRow, ...]
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class HbmTask(ModelTask):
    """The replay of one configuration."""

    config: str

    kind = "hbm"
    source = "t3sim.testbenches.hbm_replay.validation"
    seconds = _SECONDS
    result_type = HbmResult

    @property
    def label(self) -> str:
        return f"recorded DRAM traces, {self.config}"

    @property
    def description(self) -> dict[str, Any]:
        return {"config": self.config, "machine": load_machine(MACHINE).model_dump(mode="json")}

    def run(self, progress: Callable[[float], None]) -> HbmResult:
        dram = load_machine(MACHINE).dram
        rows = validate(dram, [self.config], progress=progress)
        return HbmResult(tuple(rows), tuple(validate_micro(dram, [self.config])))


def evaluate(setup: Scope, results: Results) -> Findings:
    task_results = [results[HbmTask(config)] for config in RECORDED["hbm2"]]
    rows = [row for result in task_results for row in result.rows]
    micro = [row for result in task_results for row in result.micro]
    target_verdicts = verdicts(rows, micro)
    ours = Quantities("–")
    for verdict in target_verdicts:
        if verdict.unit != _SPEED:
            ours.add(re.sub(r"\W+", "_", verdict.target).strip("_").lower(), float(verdict.worst),
                     verdict.unit if verdict.unit == "%" else "", verdict.target, at_most=verdict.limit)
    equal_count = sum(row.equal for row in micro)
    return Findings(
        text=f"The model replays {len(rows)} recorded traces and {len(micro)} cases of a few requests; in "
             f"{equal_count} of these cases it issues the same commands in the same cycles as DRAMsim3. On "
             "timing-bound workloads it finishes when DRAMsim3 does. On scheduling-bound workloads simulators with "
             "equal timing differ from each other.",
        ours=ours,
        cases=[{"figure": "hbm", **_without_speed(row)} for row in rows],
        tables=[_verdict_table(target_verdicts),
                *(_table(group, [row for row in rows if row.group == group]) for group in GROUPS
                  if any(row.group == group for row in rows))],
        plots={"hbm": lambda: _draw(rows)})


def _without_speed(row: ValidationRow) -> dict:
    plain = replace(row, ours=replace(row.ours, requests_per_second=None),
                    fr_fcfs=replace(row.fr_fcfs, requests_per_second=None))
    return plain.to_json()


def _verdict_table(target_verdicts: list[Verdict]) -> Table:
    return Table("Targets and worst cases (speeds depend on the host)",
                 ("target", "cases", "worst", "limit", "where", "met"), [
        (verdict.target, str(verdict.cases), f"{verdict.worst:.2f}", f"{verdict.limit:g} {verdict.unit}", verdict.where,
         "yes" if verdict.met else "no") for verdict in target_verdicts])


def _table(group: str, rows: list[ValidationRow]) -> Table:
    def difference(outcome: Outcome, reference: Outcome, quantity: str = "cycles") -> str:
        return ("–" if getattr(reference, quantity) is None else
                f"{100 * outcome.difference(reference, quantity):+.2f} %")

    return Table(
        f"{group[0].upper()}{group[1:]} workloads, differences from DRAMsim3",
        ("workload", "variant", "cycles", "ours", "ours, FR-FCFS", "Ramulator 2", "read latency", "ours",
         "activates", "FR-FCFS is nearest to"), [
            (row.workload, row.config, f"{row.dramsim3.cycles:,}", difference(row.ours, row.dramsim3),
             difference(row.fr_fcfs, row.dramsim3), _span(row), _latency(row.dramsim3),
             difference(row.ours, row.dramsim3, "read_latency_cycles"), difference(row.ours, row.dramsim3, "activates"),
             row.nearest) for row in rows], folded=True)


def _latency(outcome: Outcome) -> str:
    return "–" if outcome.read_latency_cycles is None else f"{outcome.read_latency_cycles:,.1f}"


def _span(row: ValidationRow) -> str:
    """Write the differences from the Ramulator that differs least to the one that differs most."""
    differences = [100 * outcome.difference(row.dramsim3) for outcome in row.ramulator2.values()]
    return f"{min(differences):+.1f} to {max(differences):+.1f} %"


def _draw(rows: list[ValidationRow]):
    figure, axes = plots.figure(3.6)
    ordered_rows = [row for group in GROUPS for row in rows if row.group == group]
    for name, (title, marker, colour) in _SIMULATORS.items():
        x, y = [], []
        for index, row in enumerate(ordered_rows):
            outcomes = row.ramulator2.values() if name == "ramulator2" else [getattr(row, name)]
            x += [index] * len(outcomes)
            y += [100 * outcome.difference(row.dramsim3) for outcome in outcomes]
        axes.plot(x, y, marker, color=colour, label=title, markersize=4, linestyle="", fillstyle="none")
    plots.name_groups(axes, [row.group for row in ordered_rows], 0.03)
    axes.axhline(0, color=plots.BLACK, linewidth=0.8)
    axes.set_xticks([])
    axes.set_xlim(-0.6, len(ordered_rows) - 0.4)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_yticks([-10, -1, 0, 1, 10], ["−10", "−1", "0", "1", "10"])
    axes.set_ylabel("difference of the finishing time\nfrom DRAMsim3 (%)")
    plots.legend_above(axes, 3)
    return figure


TABLE_HBM = Figure("hbm", "The DRAM model against DRAMsim3 and Ramulator 2",
                   lambda setup: [HbmTask(config) for config in RECORDED["hbm2"]], evaluate, short="DRAM model")
