"""Common parts of figures about sub-layers: names, the table of speedups, and its bars."""

from collections.abc import Iterable, Sequence

from t3sim.base import plots
from t3sim.mechanisms.result import BASELINE
from t3sim.papers.figure import (
    TECHNIQUE_TITLES,
    TECHNIQUES,
    Results,
    Scope,
    Table,
    layer_result,
    layer_tasks,
)
from t3sim.papers.paper import TARGETS, geomean
from t3sim.runs.exchange import REDUCED, Exchange
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import MODELS, Workload

FASTER = tuple(name for name in TECHNIQUES if name != BASELINE)
_SUBLAYER_TITLES = {"op": "OP", "fc1": "FC-1", "fc2": "FC-2", "ip": "IP"}


def key_of(technique: str) -> str:
    """Write a technique as part of a quantity's name."""
    return technique.replace("-", "_").replace("+", "_plus")


def short_title(workload: Workload) -> str:
    """Name a sub-layer, whether its GEMM is before or behind its collective."""
    return _SUBLAYER_TITLES.get(workload.sublayer.rpartition("-")[2], f"{workload.m}x{workload.n}x{workload.k}")


def group_title(workload: Workload) -> str:
    model = MODELS.get(workload.model)
    return f"{model.title if model else 'GEMM'}, TP {workload.tp}"


def tasks_of(setup: Scope, workloads: Iterable[Workload], techniques: tuple[str, ...] = TECHNIQUES,
             exchange: Exchange = REDUCED, policy: str | None = None) -> list[KernelTask]:
    """Make the tasks of these techniques on all of these; the rest is as for `layer_tasks`."""
    return [task for workload in workloads
            for task in layer_tasks(setup, workload, techniques, exchange=exchange, policy=policy)]


def runs_of(setup: Scope, results: Results, workloads: Iterable[Workload], techniques: tuple[str, ...] = TECHNIQUES,
            exchange: Exchange = REDUCED, policy: str | None = None) -> list[RunResult]:
    return [layer_result(setup, results, workload, techniques, exchange=exchange, policy=policy)
            for workload in workloads]


def speedup_table(runs: list[RunResult]) -> Table:
    rows = [(run.workload.title, *(f"{run.speedup[name]:.3f}" for name in FASTER),
             f"{100 * run.overlap_efficiency['t3-mca']:.0f} %") for run in runs]
    rows.append(("geomean", *(f"{geomean(run.speedup[name] for run in runs):.3f}" for name in FASTER), ""))
    return Table("Speedup over sequential",
                 ("sub-layer", *(TECHNIQUE_TITLES[name] for name in FASTER), "RS hidden by T3-MCA"), rows)


def draw_speedups(figure_name: str, runs: list[RunResult]):
    """Draw bars per sub-layer and their geomean, with the paper's geomean if its text has one."""
    series = {name: [run.speedup[name] for run in runs] + [geomean(run.speedup[name] for run in runs)]
              for name in FASTER}
    figure = layer_bars([run.workload for run in runs], series, plots.TECHNIQUE_COLOURS, TECHNIQUE_TITLES,
                        more=("geomean",))
    axes, last, width = figure.axes[0], len(runs), plots.GROUP_WIDTH / len(FASTER)
    label = "the paper's geomean"
    for index, name in enumerate(FASTER):
        target = TARGETS[figure_name].get(f"{key_of(name)}_geomean_percent")
        if target and target.paper is not None:
            left = last - plots.GROUP_WIDTH / 2 + index * width
            axes.plot([left, left + width], [1 + target.paper / 100] * 2, color=plots.RED, linewidth=2, label=label)
            label = None
    axes.set_ylim(1.0, max(1.55, max(map(max, series.values())) + 0.02))
    plots.legend_above(axes, 6)
    return figure


def name_layers(axes, workloads: Sequence[Workload]) -> None:
    """Make an axis of sub-layers: their names, models and TP."""
    axes.set_xticks(range(len(workloads)), map(short_title, workloads))
    axes.set_xlim(-0.6, len(workloads) - 0.4)
    axes.tick_params(axis="x", length=0)
    plots.name_groups(axes, map(group_title, workloads), 0.11)


def layer_bars(workloads: Sequence[Workload], series: dict[str, list[float]], colours: dict[str, str],
               titles: dict[str, str], columns: int = 3, more: tuple[str, ...] = ()):
    """Draw speedups of sub-layers, and of `more` groups, over sequential, under a legend of so many columns."""
    figure, axes = plots.figure(3.6)
    plots.grouped_bars(axes, [*map(short_title, workloads), *more], series, colours, titles, baseline=1.0)
    plots.name_groups(axes, [*map(group_title, workloads), *("" for _ in more)], 0.11)
    axes.set_ylabel("speedup over sequential")
    plots.legend_above(axes, columns)
    return figure
