"""What tells GPUs that data have come: floors from cycles that are made up, and the report's cycles from the RTL."""

import csv
from pathlib import Path

import pytest

from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.dma.trigger import TriggerTimes
from t3sim.papers.today import chains
from t3sim.papers.today import signals as page
from t3sim.papers.today.signals import Trigger, signal_ns

TABLES = Path(__file__).resolve().parents[2] / "docs" / "reports" / "today" / "tables"


def rows(name: str) -> dict[str, list[str]]:
    path, = TABLES.glob(name)
    with path.open(encoding="utf-8", newline="") as file:
        return {first: rest for first, *rest in csv.reader(file)}


def test_floors_hold_the_triggers_cycles_in_ns():
    measured = TriggerTimes(1, 4096, (10, 20.0), (11, 30.0), (20, 40.0), (40, 131.0))
    findings = page._evaluate(None, {page._task(): measured})
    clock, machine = page._task().machine.memory_clock_ghz, load_machine("h100-sxm", COMMERCIAL)
    assert clock == load_machine("h100-t3").memory_clock_ghz
    for name, ns in signal_ns(machine, 8, 1024, Trigger(20 / clock, 131 / clock)).items():
        assert findings.ours[f"{name}: floor"] == pytest.approx(ns / 1e3)
    first, second = findings.tables
    assert [row[0] for row in first.rows] == sorted((row[0] for row in first.rows),
                                                    key=lambda name: findings.ours[f"{name}: floor"])
    assert second.rows[-1][1:] == ("40", "131", f"{131 / clock:.0f}")
    findings.plots["today-signals"]()


def test_chains_are_measured_by_the_tracker_on_the_same_schedule():
    tasks = chains._tasks(None)

    def run(task: chains.ChainTask) -> chains.Queued:
        whole = 2000.0 if task.initiator == "tracker" else 3000.0 if task.reverse else 2500.0
        return chains.Queued(400.0, whole, 0.0, 120, 96, 12 if task.initiator in ("chain", "poll") else 0, 12, 100)
    runs = {task: run(task) for task in tasks}
    findings = chains._evaluate(None, runs)
    assert findings.ours["chain, waves of 8: over the Tracker"] == pytest.approx(25)
    assert findings.ours["chain, waves of 8, last to first: over the Tracker"] == pytest.approx(50)
    many = {row[0]: row[1:] for row in findings.tables[1].rows}
    assert many["chain, waves of 8"] == ("2,500", "+25.0 %", f"{500 / 24:.0f}", "30", "3")
    assert many["tracker"] == ("2,000", "+0.0 %", "0", "0", "0")
    findings.plots["today-chains"]()


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
def test_the_reports_cycles_are_the_rtls():
    times = page._task().run(lambda fraction: None)
    told = rows("today-signals-a-trigger*.csv")
    assert {what: (int(told[what][0]), int(told[what][1])) for what in list(told)[1:]} == {
        "counted by the Tracker": (times.update_cycles[0], round(times.update_cycles[1])),
        "given to an engine": (times.issue_cycles[0], round(times.issue_cycles[1])),
        "first line requested": (times.line_cycles[0], round(times.line_cycles[1])),
        "first line read": (times.read_cycles[0], round(times.read_cycles[1]))}


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
@pytest.mark.parametrize("start", ["chain", "tracker"])
def test_the_reports_tiles_take_what_the_rtl_takes(start):
    task = chains._tile_tasks(chains._machine())[start, 4096]
    place = ["host", "gpu", "poll", "chain", "tracker"].index(start)
    assert rows("today-chains-a-tile*.csv")["4 KB"][place] == f"{task.run(lambda fraction: None).exchange_ns:.0f}"
