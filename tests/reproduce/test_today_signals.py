"""What tells GPUs that data have come: floors from cycles that are made up, and the report's cycles from the RTL."""

import csv
from pathlib import Path

import pytest

from t3sim.libraries.signals import Trigger, signals
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.reproduce.dma.trigger import TriggerTimes
from t3sim.reproduce.today import signals as page

TABLES = Path(__file__).resolve().parents[2] / "docs" / "reports" / "today" / "tables"


def rows(name: str) -> dict[str, list[str]]:
    path, = TABLES.glob(name)
    with path.open(encoding="utf-8", newline="") as file:
        return {first: rest for first, *rest in csv.reader(file)}


def test_floors_hold_the_triggers_cycles_in_ns():
    measured = TriggerTimes(1, 4096, (10, 20.0), (11, 30.0), (20, 40.0), (40, 131.0))
    found = page._evaluate(None, {page._task(): measured})
    clock, machine = page._task().machine.memory_clock_ghz, load_machine("h100-sxm", COMMERCIAL)
    assert clock == load_machine("h100-t3").memory_clock_ghz
    for name, one in signals(machine).items():
        ns = one.ns(machine, 8, 1024, Trigger(20 / clock, 131 / clock))
        assert found.ours[f"{name}: floor"] == pytest.approx(ns / 1e3)
    first, second = found.tables
    assert [row[0] for row in first.rows] == sorted((row[0] for row in first.rows),
                                                    key=lambda name: found.ours[f"{name}: floor"])
    assert second.rows[-1][1:] == ("40", "131", f"{131 / clock:.0f}")
    found.plots["today-signals"]()


@pytest.mark.slow
@pytest.mark.builds_rtl
@pytest.mark.builds_loops
def test_the_reports_cycles_are_the_rtls():
    times = page._task().run(lambda fraction: None)
    told = rows("today-signals-a-trigger*.csv")
    assert {what: (int(told[what][0]), int(told[what][1])) for what in list(told)[1:]} == {
        "it is counted": (times.update_cycles[0], round(times.update_cycles[1])),
        "an engine has it": (times.issue_cycles[0], round(times.issue_cycles[1])),
        "its first line is asked for": (times.line_cycles[0], round(times.line_cycles[1])),
        "its first line is read": (times.read_cycles[0], round(times.read_cycles[1]))}
