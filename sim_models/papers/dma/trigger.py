"""Cost of starting a copy, over the size of a tile: by host, kernel and poll, and by T3's Tracker from the RTL."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from t3sim.base import plots
from t3sim.event.flow.commands import Command, Queue
from t3sim.event.flow.dma import INITIATORS, run_queues
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.figure import Figure, Findings, ModelTask, Results, Scope, Table
from t3sim.runs.plan import Plan
from t3sim.trace.record import record
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import COMPLETE, READ, Kind
from t3sim.trace.setup import Setup
from t3sim.trace.store import Trace
from t3sim.workload.workloads import Workload

_KB = 1 << 10
#: Extents of an output tile, and wavefront tiles that one command copies: 4 to 64 KB.
_TILES = ((128, 128, 1), (128, 128, 2), (128, 256, 2), (128, 256, 4), (128, 256, 8))
_UNNAMED = "-"  #: the evaluation's machine, whose name changes no result
_KINDS = frozenset({Kind.DECIDE, Kind.UPDATE, Kind.ISSUE, Kind.LINE, Kind.SERVE})


@dataclass(frozen=True)
class TriggerTimes:
    """Cycles from the grant of the last write of what is copied, over all copies of a GPU: least and median."""

    copies: int
    copy_bytes: int
    update_cycles: tuple[int, float]  #: until the Tracker has counted it
    issue_cycles: tuple[int, float]  #: until an engine has the command
    line_cycles: tuple[int, float]  #: until the engine asks for the first line
    read_cycles: tuple[int, float]  #: until the first line has been read
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class TriggerTask(ModelTask):
    """A small fused GEMM on four GPUs, recorded from inside the RTL."""

    machine: Machine
    tile_m: int
    tile_n: int
    tiles_per_block: int

    kind = "triggers"
    source = "t3sim.trace.record"
    needs_rtl = True
    result_type = TriggerTimes
    seconds = 60.0

    @property
    def label(self) -> str:
        suffix = "" if self.machine.name == _UNNAMED else f", {self.machine.name}"
        return f"triggers of {self.tile_m} x {self.tile_n} tiles, {self.tiles_per_block} wavefronts a copy{suffix}"

    @property
    def description(self) -> dict[str, Any]:
        return {"tile": [self.tile_m, self.tile_n, self.tiles_per_block],
                "machine": self.machine.model_dump(mode="json")}

    def run(self, progress: Callable[[float], None]) -> TriggerTimes:
        machine = self.machine.changed(gpu=dict(tile_m=self.tile_m, tile_n=self.tile_n),
                                       dma=dict(tiles_per_block=self.tiles_per_block))
        workload = Workload("custom", "gemm", 4, 4 * self.tile_m, 4 * self.tile_n, 2 * machine.gpu.block_k)
        with tempfile.TemporaryDirectory() as folder:
            setup = Setup(Plan(machine, workload), "t3")
            record(setup, Path(folder) / "trace", Filter(kinds=_KINDS), progress=progress)
            return _times(Trace.load(Path(folder) / "trace").events, self.tiles_per_block)


def _times(events: np.ndarray, per_copy: int) -> TriggerTimes:
    """Return the times; `per_copy`: wavefront tiles that one command copies."""
    events = events[events["wg"] >= 0]
    copies: dict[tuple[int, int], np.ndarray] = {}
    keys = events["wg"].astype(np.int64) * 256 + events["wf"] // per_copy
    order = np.argsort(keys, kind="stable")
    for group in np.split(events[order], np.flatnonzero(np.diff(keys[order])) + 1):
        copies[int(group["wg"][0]), int(group["wf"][0]) // per_copy] = group
    rows = []
    for group in copies.values():
        issues, lines = (group[group["kind"] == kind] for kind in (Kind.ISSUE, Kind.LINE))
        if not len(issues) or not len(lines):
            continue  # not sent on by DMA
        writes = group[(group["kind"] == Kind.DECIDE) & (group["op"] != READ)]
        updates = group[(group["kind"] == Kind.UPDATE) & (group["flags"] & COMPLETE != 0)]
        reads = group[(group["kind"] == Kind.SERVE) & (group["op"] == READ)]
        last_write = writes["cycle"].max()
        rows.append((updates["cycle"].max() - last_write, issues["cycle"].min() - last_write,
                     lines["cycle"].min() - last_write, reads["cycle"].min() - last_write, lines["amount"].sum()))
    columns = np.array(rows).T
    return TriggerTimes(len(rows), int(columns[4].max()),
                        *((int(column.min()), float(np.median(column))) for column in columns[:4]))


def _tasks(setup: Scope) -> list[TriggerTask]:
    machine = setup.machine.model_copy(update={"name": _UNNAMED})
    return [TriggerTask(machine, *tile) for tile in _TILES]


def evaluate(setup: Scope, results: Results) -> Findings:
    node, rows = load_machine("mi300x", ENGINES), []
    times = {results[task].copy_bytes: results[task] for task in _tasks(setup)}
    copy_us: dict[str, list[float]] = {initiator: [] for initiator in INITIATORS}
    for size, trigger_times in sorted(times.items()):
        copy = [Queue(0, (Command(0, (1,)),))]
        for initiator in INITIATORS:
            copy_us[initiator].append(run_queues(node, copy, size, initiator).ns / 1e3)
        rows.append((f"{size // _KB} KB", *(f"{copy_us[initiator][-1]:.2f}" for initiator in INITIATORS),
                     *(f"{least} / {median:.0f}" for least, median in (
                         trigger_times.update_cycles, trigger_times.issue_cycles, trigger_times.line_cycles,
                         trigger_times.read_cycles)), f"{trigger_times.copies}"))
    small = times[min(times)]
    host_us = copy_us["host"][0]

    def draw():
        figure, axes = plots.figure(2.8)
        sizes = [size / _KB for size in sorted(times)]
        for (initiator, values), colour in zip(copy_us.items(), (plots.BLUE, plots.ORANGE, plots.GREEN, plots.RED)):
            axes.plot(sizes, values, "o-", color=colour, label=initiator)
        axes.plot(sizes, [size * _KB / node.link.bandwidth_gb_per_s / 1e3 for size in sizes], "--", color=plots.BLACK,
                  label="the link alone")
        plots.log_axis(axes, "x", sizes)
        plots.log_axis(axes, "y")
        axes.set_xlabel("size of the tile (KB)")
        axes.set_ylabel("time from the complete tile\nto its copy (µs)")
        axes.legend(ncols=3)
        return figure

    return Findings(
        text=f"A copy of a 4 KB tile that the host launches takes {host_us:.1f} µs; the link alone takes 0.1 µs. In T3 "
             f"it takes at least {small.issue_cycles[0]} cycles from the grant of the tile's last write until an "
             f"engine has the command, and {small.read_cycles[0]} cycles until the first line has been read. With the "
             f"GEMM's traffic the medians are {small.issue_cycles[1]:.0f} and {small.read_cycles[1]:.0f} cycles. "
             "Cycles are recorded from the RTL in a fused GEMM, for each tile size.",
        ours={"host_copy_4k_us": host_us, "trigger_least_cycles": small.issue_cycles[0],
              "trigger_median_cycles": small.issue_cycles[1], "first_read_least_cycles": small.read_cycles[0]},
        tables=[Table("Time by initiator (µs); cycles from the grant of the last write, smallest / median",
                      ("tile", *INITIATORS, "counted", "issued", "first line", "first read", "copies"), rows)],
        plots={"trigger-cost": draw})


TRIGGER = Figure("trigger-cost", "Cost of starting a copy, by initiator and tile", _tasks, evaluate,
                 short="trigger", paper="dma")
