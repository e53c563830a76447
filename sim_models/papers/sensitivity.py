"""One layer while one parameter of the machine changes (beyond the paper)."""

from dataclasses import dataclass
from typing import Any

from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.papers.figure import (
    TECHNIQUE_TITLES,
    Figure,
    Findings,
    Results,
    Scope,
    Table,
    case,
    layer_result,
    layer_tasks,
    variant,
)
from t3sim.papers.paper import percent
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask

_TECHNIQUES = ("sequential", "t3", "t3-mca", "ideal-overlap")
_STARVATION_LIMIT = "arbiter.starvation_limit_cycles"


@dataclass(frozen=True)
class Parameter:
    """A key of the machine file and the values to try, besides its own."""

    key: str
    title: str
    values: tuple[Any, ...]
    scale: float = 1.0  #: from the machine file's unit to the plot's

    def machine_value(self, setup: Scope) -> Any:
        """Return the machine's own value; of one that is derived, what it comes to."""
        if self.key == _STARVATION_LIMIT:
            return setup.machine.starvation_limit_cycles
        section, name = self.key.split(".")
        return getattr(getattr(setup.machine, section), name)

    def machines(self, setup: Scope) -> dict[Any, Machine]:
        """Return the machines by value; those that this machine cannot have are left out."""
        machines = {}
        for value in sorted({self.machine_value(setup), *self.values}):
            try:
                machines[value] = (setup.machine if value == self.machine_value(setup) else
                                   variant(setup.machine, {self.key: value}))
            except ValueError:
                continue
        return machines

    def format_value(self, value: Any) -> str:
        """Write a value for an axis or a table."""
        return "never" if self.key == _STARVATION_LIMIT and not value else f"{value * self.scale:g}"


PARAMETERS = (
    Parameter("tracker.ways", "Tracker ways", (8, 16, 32)),  # fewer than a workgroup's wavefronts cannot work
    Parameter("tracker.sets", "Tracker sets", (128, 256, 512)),
    Parameter("dma.tiles_per_block", "wavefront tiles per DMA block", (1, 2, 4, 8)),
    Parameter("link.bandwidth_gb_per_s", "link bandwidth, each way (GB/s)", (37.5, 50.0, 75.0, 100.0, 150.0)),
    Parameter("link.latency_ns", "link latency (ns)", (100.0, 500.0, 1000.0, 2000.0)),
    Parameter("dram.ccdwl_cycles", "column delay after op-and-store, CCDWL (cycles)", (2, 4, 8)),
    Parameter("llc.size_bytes", "last-level cache (MiB)", tuple(mib << 20 for mib in (4, 8, 16, 32, 64)), 2**-20),
    Parameter(_STARVATION_LIMIT, "starvation limit (cycles)", (0, 16, 64, 256, 1024)),
)


def tasks(setup: Scope) -> list[KernelTask]:
    return [task for parameter in PARAMETERS for machine in parameter.machines(setup).values()
            for task in layer_tasks(setup, setup.varied_layer, _TECHNIQUES, machine)]


def evaluate(setup: Scope, results: Results) -> Findings:
    series = {parameter: {value: layer_result(setup, results, setup.varied_layer, _TECHNIQUES, machine)
                          for value, machine in parameter.machines(setup).items()} for parameter in PARAMETERS}
    spans = {parameter: [run.speedup["t3-mca"] for run in runs.values()] for parameter, runs in series.items()}
    widest = max(spans, key=lambda parameter: max(spans[parameter]) - min(spans[parameter]))
    narrowest = min(spans, key=lambda parameter: max(spans[parameter]) - min(spans[parameter]))
    return Findings(
        text=f"{setup.varied_layer.title}, one parameter varied at a time; a dotted line marks the default. T3-MCA's "
             f"gain depends most on the {_lower(widest.title)} ({percent(min(spans[widest])):.1f} to "
             f"{percent(max(spans[widest])):.1f} %), and least on the {_lower(narrowest.title)}.",
        cases=[case("sensitivity", run, parameter=parameter.key, value=value)
               for parameter, runs in series.items() for value, run in runs.items()],
        ours={f"{parameter.key.replace('.', '_')}_t3_mca_span_points": 100 * (max(span) - min(span))
              for parameter, span in spans.items()},
        tables=[_table(parameter, runs) for parameter, runs in series.items()],
        plots={f"sensitivity-{parameter.key.replace('.', '-')}":
               lambda parameter=parameter, runs=runs: _draw(setup, parameter, runs)
               for parameter, runs in series.items()})


def _lower(title: str) -> str:
    return title.split(" (")[0].removesuffix(", CCDWL")


def _table(parameter: Parameter, runs: dict[Any, RunResult]) -> Table:
    rows = [(parameter.format_value(value), f"{run.baseline.total_ns / 1e3:,.1f}",
             *(f"{run.speedup[name]:.3f}" for name in _TECHNIQUES[1:])) for value, run in runs.items()]
    return Table(parameter.title, (parameter.title, "sequential (µs)",
                                   *(TECHNIQUE_TITLES[name] for name in _TECHNIQUES[1:])), rows, folded=True)


def _draw(setup: Scope, parameter: Parameter, runs: dict[Any, RunResult]):
    figure, axes = plots.figure(2.5, width=0.48)
    places = range(len(runs))
    for name, marker, line in (("ideal-overlap", "", "--"), ("t3", "s", "-"), ("t3-mca", "o", "-")):
        colour = plots.GREY if name == "ideal-overlap" else plots.TECHNIQUE_COLOURS[name]
        axes.plot(places, [run.speedup[name] for run in runs.values()], marker=marker, linestyle=line, color=colour,
                  markersize=4.5, linewidth=1.4, label=TECHNIQUE_TITLES[name])
    axes.axvline(list(runs).index(parameter.machine_value(setup)), color=plots.BLACK, linewidth=0.8, linestyle=":")
    axes.set_xticks(places, [parameter.format_value(value) for value in runs])
    axes.set_xlabel(parameter.title)
    axes.set_ylabel("speedup over sequential")
    low = min(min(run.speedup[name] for name in _TECHNIQUES) for run in runs.values())
    axes.set_ylim(min(1.0, low), 1.55)
    axes.legend(loc="lower right", ncols=3, bbox_to_anchor=(1.0, 1.0), columnspacing=1.0, handlelength=1.6)
    return figure


SENSITIVITY = Figure("sensitivity", "Sensitivity to the machine's parameters", tasks, evaluate)
