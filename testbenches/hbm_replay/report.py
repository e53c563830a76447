"""Tables of `t3 hbm-replay --all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from t3sim.testbenches.hbm_replay.validation import GROUPS, SCHEDULING, MicroRow, Outcome, ValidationRow, Verdict

_TITLES = {
    "timing-bound": "Bound by timing, or paced (where both were run, DRAMsim3 and Ramulator 2 agree within 1.3 %)",
    "load": "Loads below and above saturation",
    SCHEDULING: "Bound by scheduling: with equal timing, what differs is policy",
}
SHOWN = "FRFCFS-q32"  #: the Ramulator 2 that stands for all three


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Make a table with its first two columns to the left, numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
                  padding=(0, 1, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _percent(ours: Outcome | None, theirs: Outcome, what: str = "cycles") -> str:
    if ours is None or getattr(theirs, what) is None:
        return "-"
    difference = 100 * ours.difference(theirs, what)
    return f"{difference:+.{2 if abs(difference) < 9.995 else 1}f}" if abs(difference) >= 0.005 else "0"


def _latency(one: Outcome | None) -> str:
    if one is None or one.read_latency_cycles is None:
        return "-"
    return f"{one.read_latency_cycles:.{1 if one.read_latency_cycles < 1000 else 0}f}"


def _millions(one: Outcome) -> str:
    if one.requests_per_second is None:
        return "-"
    speed = one.requests_per_second / 1e6
    return f"{speed:.{1 if speed < 1.95 else 0}f}"


def _timing(rows: list[ValidationRow], title: str) -> Table:
    return _table(title, ("workload", "config", "cycles\nD3", "%\nours", "%\nFR", "%\nR2", "lat.\nD3", "\nours", "\nFR",
                          "\nR2", "ACT\nD3", "%\n", "REF\nD3", "±\n", "M/s\nours", "\nFR"), (
        (row.workload, row.config, f"{row.dramsim3.cycles:,}", _percent(row.ours, row.dramsim3),
         _percent(row.fr_fcfs, row.dramsim3), _percent(row.ramulator2.get(SHOWN), row.dramsim3),
         *map(_latency, (row.dramsim3, row.ours, row.fr_fcfs, row.ramulator2.get(SHOWN))),
         f"{row.dramsim3.activates:,}", _percent(row.ours, row.dramsim3, "activates"),
         str(row.dramsim3.refreshes), str(row.ours.refreshes - row.dramsim3.refreshes), _millions(row.ours),
         _millions(row.fr_fcfs)) for row in rows))


def _scheduling(rows: list[ValidationRow], title: str) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row.ramulator2))
    return _table(title, ("workload", "config", "cycles\nD3", "%\nours", "%\nFR",
                          *("R2 %\n" + name.replace("-", "\n") for name in names), "ACT\nD3", "\nours", "\nFR", "\nR2",
                          "FR is\nnearest to"), (
        (row.workload, row.config, f"{row.dramsim3.cycles:,}", _percent(row.ours, row.dramsim3),
         _percent(row.fr_fcfs, row.dramsim3), *(_percent(row.ramulator2.get(name), row.dramsim3) for name in names),
         *(f"{one.activates:,}" if one else "-" for one in (row.dramsim3, row.ours, row.fr_fcfs,
                                                           row.ramulator2.get(SHOWN))),
         row.nearest) for row in rows))


def print_validation(rows: list[ValidationRow], micro: list[MicroRow], verdicts: list[Verdict],
                     console: Console) -> None:
    """Print every workload by group, then the verdict on each target. Differences are from DRAMsim3."""
    console.print(f"D3: DRAMsim3; R2: Ramulator 2, {SHOWN} unless named.\nours: with the scheduler that decides as "
                  "DRAMsim3 does; FR: ours with the FR-FCFS of t3-table1.\n%: difference from DRAMsim3; lat.: mean "
                  "read latency in cycles; M/s: million requests per processor second.\n")
    for group in GROUPS:
        if chosen := [row for row in rows if row.group == group]:
            console.print((_scheduling if group == SCHEDULING else _timing)(chosen, _TITLES[group]))
    if micro:
        console.print(_table("Micro cases: command cycles", ("config", "", "cases", "commands", "equal to\nDRAMsim3",
                                                             "both simu-\nlators agree", "FR-FCFS\nagrees"), (
            (config, "", str(len(of)), str(sum(row.commands for row in of)), str(sum(row.equal for row in of)),
             str(sum(row.agreed for row in of)), str(sum(row.agreed and row.fr_fcfs_equal for row in of)))
            for config in dict.fromkeys(row.config for row in micro)
            if (of := [row for row in micro if row.config == config]))))
    console.print(_table("Verdict", ("target", "", "cases", "worst", "limit", "worst case"), (
        (one.target, "met" if one.met else "MISSED", str(one.cases), f"{one.worst:,.2f}",
         f"{one.limit:g} {one.unit}", one.where) for one in verdicts)))
