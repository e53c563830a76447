"""Copies that flags of a producer release, by the command queue's RTL, beside the Tracker's."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from t3sim.base import plots
from t3sim.machine import Machine, load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.machine.levels import QUEUE
from t3sim.papers.figure import Figure, Findings, ModelTask, Quantities, Results, Scope, Table
from t3sim.runs.queued import ProducerWaves, QueuedRun, run_queued

_MACHINE, _FRACTION, _GPUS, _KB = "h100-t3", 4, 4, 1 << 10
#: Bytes of a tile; a GPU stores one for each GPU, or several.
_TILES, _MANY, _PER_PEER = (4 * _KB, 32 * _KB), 32 * _KB, 8
_STARTS = ("host", "gpu", "poll", "chain", "tracker")
_LEGEND = {"host": "the host", "gpu": "a kernel", "poll": "a flag that the engine polls",
           "chain": "a chain of poll, copy and signal", "tracker": "the Tracker"}  #: of what starts copies
_WAVES, _REVERSED = (1, 8, 32), (8,)  #: tiles; the longest is all


@dataclass(frozen=True)
class Queued(QueuedRun):
    """A run that is kept."""

    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class ChainTask(ModelTask):
    """A reduce-scatter, added in memory, with numbers."""

    machine: Machine
    initiator: str
    tile_bytes: int
    per_peer: int = 1
    wave: int | None = None  #: tiles
    reverse: bool = False

    kind = "chain"
    source = "t3sim.runs.queued"
    needs_rtl = True
    result_type = Queued
    seconds = 30.0

    @property
    def label(self) -> str:
        order = ", last to first" if self.reverse else ""
        tiles = f"{self.per_peer} x {self.tile_bytes} bytes for each GPU"
        return f"{tiles} by {self.initiator}, waves of {self.wave or 1}{order}"

    @property
    def description(self) -> dict[str, Any]:
        return asdict(self) | {"machine": self.machine.model_dump(mode="json")}

    def run(self, progress: Callable[[float], None]) -> Queued:
        size = self.tile_bytes * self.per_peer * _GPUS
        return Queued(**asdict(run_queued(self.machine, "rs", _GPUS, size, self.initiator,
                                          waves=ProducerWaves(self.wave, self.reverse))))


def _tile_tasks(machine: Machine) -> dict[tuple[str, int], ChainTask]:
    """Return the runs with a tile for each GPU, by what starts copies and by bytes."""
    return {(start, size): ChainTask(machine, start, size) for start in _STARTS for size in _TILES}


def _wave_tasks(machine: Machine) -> dict[tuple[str, int, bool], ChainTask]:
    """Return the runs with several, by what starts copies, tiles of a wave, and their order."""
    tasks = {("chain", wave, False): ChainTask(machine, "chain", _MANY, _PER_PEER, wave) for wave in _WAVES}
    tasks |= {("chain", wave, True): ChainTask(machine, "chain", _MANY, _PER_PEER, wave, True) for wave in _REVERSED}
    return tasks | {("tracker", 1, reverse): ChainTask(machine, "tracker", _MANY, _PER_PEER, 1, reverse)
                    for reverse in (False, True)}


def _title(start: str, wave: int, reverse: bool) -> str:
    return start + (f", waves of {wave}" if start == "chain" else "") + (", last to first" if reverse else "")


def _machine() -> Machine:
    return fraction_of(load_machine(_MACHINE, QUEUE), _FRACTION)


def _tasks(setup: Scope) -> list[ChainTask]:
    machine = _machine()
    return [*_tile_tasks(machine).values(), *_wave_tasks(machine).values()]


def _evaluate(setup: Scope, results: Results) -> Findings:
    machine = _machine()
    tile_runs = {key: results[task] for key, task in _tile_tasks(machine).items()}
    wave_runs = {key: results[task] for key, task in _wave_tasks(machine).items()}
    ours = Quantities("beyond the papers")
    for start in _STARTS:
        ours.add(f"a tile of 4 KB, {start}", tile_runs[start, 4 * _KB].exchange_ns, "ns")
    tracker_whole_ns = wave_runs["tracker", 1, False].whole_ns
    slower_percent = {key: 100 * (run.whole_ns / tracker_whole_ns - 1) for key, run in wave_runs.items()}
    for key, percent in slower_percent.items():
        ours.add(f"{_title(*key)}: over the Tracker", percent, "%")
    best = min(_WAVES, key=lambda wave: slower_percent["chain", wave, False])
    worst = max(_REVERSED, key=lambda wave: slower_percent["chain", wave, True])
    chain = wave_runs["chain", best, False]
    chain_ns, tracker_ns = tile_runs["chain", 4 * _KB].exchange_ns, tile_runs["tracker", 4 * _KB].exchange_ns
    return Findings(
        text=f"A tile of 4 KB takes {tracker_ns:.0f} ns from its last store to the last line at its owner with the "
             f"Tracker, and {chain_ns:.0f} ns with a chain of poll, copy and signal commands that a flag of the tile "
             f"releases. For {_PER_PEER} tiles for each of {_GPUS} GPUs the best chain, with {best} tiles per wave, "
             f"takes {slower_percent['chain', best, False]:.0f} % longer than the Tracker and needs "
             f"{chain.commands / _GPUS:.0f} commands per GPU, of which {chain.polls / _GPUS:.0f} are polls. If waves "
             f"of {worst} tiles are stored last to first, the chain takes "
             f"{slower_percent['chain', worst, True]:.0f} % longer, because its commands are in order; the Tracker's "
             f"time changes by {slower_percent['tracker', 1, True]:+.0f} %.",
        cases=[{"figure": "today-chains", "gpus": _GPUS, **task.description, "machine": machine.name,
                **{name: getattr(results[task], name) for name in QueuedRun.__dataclass_fields__}}
               for task in _tasks(setup)],
        ours=ours,
        tables=[Table(f"A tile for each of {_GPUS} GPUs of {machine.name}: ns from the last store to the last line",
                      ("tile", *_STARTS), [(f"{size // _KB} KB", *(f"{tile_runs[start, size].exchange_ns:,.0f}"
                                                                   for start in _STARTS)) for size in _TILES]),
                Table(f"{_PER_PEER} tiles of {_MANY // _KB} KB for each of {_GPUS} GPUs",
                      ("started by", "ns from the first store", "longer than Tracker", "additional ns per tile",
                       "commands per GPU", "polls"),
                      [(_title(*key), f"{run.whole_ns:,.0f}", f"{slower_percent[key]:+.1f} %",
                        f"{(run.whole_ns - tracker_whole_ns) / (_PER_PEER * (_GPUS - 1)):,.0f}",
                        f"{run.commands / _GPUS if run.polls else 0:.0f}", f"{run.polls / _GPUS:.0f}")
                       for key, run in wave_runs.items()])],
        plots={"today-chains": lambda: _draw(tile_runs)})


def _draw(tile_runs: dict[tuple[str, int], Queued]):
    figure, axes = plots.figure(2.6)
    plots.grouped_bars(axes, [f"tile of {size // _KB} KB" for size in _TILES],
                       {start: [tile_runs[start, size].exchange_ns for size in _TILES] for start in _STARTS},
                       dict(zip(_STARTS, (plots.LIGHT, plots.GREY, plots.GREEN, plots.ORANGE, plots.BLUE))), _LEGEND)
    axes.set_ylabel("time from the last store\nto the last line (ns)")
    plots.legend_above(axes, 5)
    return figure


CHAINS = Figure("today-chains", "Copies that a GEMM's flags release, compared with the Tracker", _tasks, _evaluate,
                short="chains", paper="today")
