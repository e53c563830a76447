"""The fused operators' figure 15: a DLRM's training pass on a torus of 128 GPUs, on the event level."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from t3sim.analytic.end_to_end.uncertainty import ranges
from t3sim.base import plots
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import NETWORK
from t3sim.papers.figure import Figure, Findings, ModelTask, Quantities, Results, Scope, Table
from t3sim.papers.fused.dlrm_pass import PAPER, Dlrm, PassOptions, PassTimes, training_pass

#: "Hundreds of tables" on 128 GPUs.
_TABLES_PER_GPU = (1, 2, 4)


@dataclass(frozen=True)
class Factors:
    """Factors of the machine file's rates."""

    link: float = 1.0
    matrix_efficiency: float = 1.0
    memory_efficiency: float = 1.0


@dataclass(frozen=True)
class PassTask(ModelTask):
    """One training pass on the event level."""

    model: Dlrm
    graph: PassOptions
    factors: Factors = Factors()

    kind = "dlrm"
    source = "t3sim.papers.fused.dlrm_pass"
    result_type = PassTimes
    seconds = 12.0

    @property
    def machine(self) -> Machine:
        machine, factors = load_machine("torus-128", NETWORK), self.factors
        machine = machine.changed(link=dict(bandwidth_gb_per_s=machine.link.bandwidth_gb_per_s * factors.link))
        return machine.changed(accelerator={
            name: getattr(machine.accelerator, name) * getattr(factors, name)
            for name in ("matrix_efficiency", "memory_efficiency")})

    @property
    def label(self) -> str:
        usual = asdict(PassOptions(self.graph.fused)) | asdict(Factors())
        unusual = [f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
                   for name, value in (asdict(self.graph) | asdict(self.factors)).items() if value != usual[name]]
        return ", ".join(["DLRM pass", "fused" if self.graph.fused else "baseline",
                          f"{self.model.tables_per_gpu} tables per GPU", *unusual])

    @property
    def description(self) -> dict[str, Any]:
        return {"model": asdict(self.model), "graph": asdict(self.graph), "machine": self.machine.model_dump()}

    def run(self, progress: Callable[[float], None]) -> PassTimes:
        return training_pass(self.model, self.machine, self.graph)


def _pair(tables: int, factors: Factors = Factors(), **graph: Any) -> tuple[PassTask, PassTask]:
    """Make the baseline and the fused pass."""
    return tuple(PassTask(replace(PAPER, tables_per_gpu=tables), PassOptions(fused, **graph), factors)
                 for fused in (False, True))


#: Half-widths, relative: those of the MI210's cluster file.
_HALF_WIDTHS = Factors(link=0.10, matrix_efficiency=0.05, memory_efficiency=0.10)
_SAMPLES = 8


def _sampled_pairs(seed: int) -> Iterator[tuple[PassTask, PassTask]]:
    """Return pairs with the number of tables and the machine's rates drawn from what they may be."""
    random = np.random.default_rng(seed)
    for _ in range(_SAMPLES):
        yield _pair(int(random.choice(_TABLES_PER_GPU)), Factors(**{
            name: 1 + half_width * float(random.uniform(-1, 1)) for name, half_width in asdict(_HALF_WIDTHS).items()}))


#: What moves the reduction, with two tables per GPU.
_EXPERIMENTS = {
    "one backward kernel applies gradients to the rows": _pair(2, applied=True),
    "200 Gb/s per node, so 50 Gb/s on each of its four links": _pair(2, Factors(link=1 / 4)),
    "the all-reduce takes one way around the rings": _pair(2, reduction="hierarchical"),
    "the bottom MLP runs beside the persistent kernel": _pair(2, bottom_beside=True)}


def _tasks(setup: Scope) -> Iterator[PassTask]:
    for tables in _TABLES_PER_GPU:
        yield from _pair(tables)
    for pair in (*_EXPERIMENTS.values(), *_sampled_pairs(setup.seed)):
        yield from pair


def _reduction(baseline: PassTimes, fused: PassTimes) -> float:
    return 100 * (1 - fused.ns / baseline.ns)


def evaluate(setup: Scope, results: Results) -> Findings:
    times = {tables: [results[task] for task in _pair(tables)] for tables in _TABLES_PER_GPU}
    reductions = {tables: _reduction(*pair) for tables, pair in times.items()}
    experiments = {title: _reduction(*(results[task] for task in pair)) for title, pair in _EXPERIMENTS.items()}
    spread = ranges({"dlrm_reduction_percent": _reduction(*(results[task] for task in pair))}
                    for pair in _sampled_pairs(setup.seed))
    mean, (baseline, fused) = fmean(reductions.values()), times[2]
    ours = Quantities()
    ours.add("dlrm_reduction_percent", mean, "%", "training pass shorter, mean", 21, "IV-D", 5)
    embedding = sum(baseline.duration_ns(name) for name in ("pooling", "row gradients")) / 1e6
    rows = [(f"{tables} per GPU, {128 * tables} in all", f"{baseline_pass.ns / 1e6:.1f}", f"{fused_pass.ns / 1e6:.1f}",
             f"{reductions[tables]:.1f} %", *(f"{baseline_pass.duration_ns(name) / 1e6:.1f}" for name in (
                 "pooling", "row gradients", "optimizer, rows", "all-to-all forward")))
            for tables, (baseline_pass, fused_pass) in times.items()]
    return Findings(
        text="With pooling and row gradients fused with their all-to-alls, a training pass is "
             f"{mean:.1f} % shorter on average over 1, 2 and 4 tables per GPU (the model's source says hundreds of "
             "tables in all). As in the paper, most of the embedding operations are hidden: with 2 tables "
             f"{(baseline.ns - fused.ns) / 1e6:.1f} of {embedding:.1f} ms.",
        ours=ours, ranges=spread,
        tables=[Table("Training pass (ms)", ("tables", "baseline", "fused", "shorter by", "pooling", "row gradients",
                                      "optimizer, rows", "all-to-all, each"), rows),
                Table("Sensitivity, with two tables per GPU", ("change", "shorter by"),
                      [("none", f"{reductions[2]:.1f} %"), *((title, f"{value:.1f} %")
                                                                 for title, value in experiments.items())])],
        plots={"dlrm": lambda: _draw((baseline, fused))})


#: Colours of the plot by what a span's name begins with.
_COLOURS = {"all-to-all": plots.ORANGE, "all-reduce": plots.RED, "pooling": plots.BLUE, "row gradients": plots.BLUE,
            "bottom MLP": plots.SKY, "top MLP": plots.SKY, "interaction": plots.GREEN, "optimizer": plots.GREY}
_LEGEND = {"pooling, row gradients": plots.BLUE, "MLPs": plots.SKY, "interaction": plots.GREEN,
           "optimizer": plots.GREY, "all-to-all": plots.ORANGE, "all-reduce": plots.RED}


def _draw(pair: tuple[PassTimes, PassTimes]):
    figure, axes = plots.figure(3.0)
    for place, times in enumerate(pair):
        for name, start, end in times.spans:
            colour = next(colour for kind, colour in _COLOURS.items() if name.startswith(kind))
            line = 1 if name.startswith("all-to-all") else 2 if name.startswith("all-reduce") else 0
            axes.barh(3.6 * place + line, (end - start) / 1e6, 0.85, left=start / 1e6, color=colour, edgecolor="white",
                      linewidth=0.5)
    axes.set_yticks([3.6 * place + line for place in range(2) for line in range(3)], [
        f"{title}: {kind}" for title in ("baseline", "fused") for kind in ("kernels", "all-to-all", "all-reduce")])
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.set_ylim(6.1, -0.5)
    axes.set_xlabel("time (ms)")
    for title, colour in _LEGEND.items():
        axes.barh(0, 0, color=colour, label=title)
    plots.legend_above(axes, 6)
    return figure


DLRM = Figure("dlrm", "DLRM training on a torus of 128 GPUs (figure 15)", _tasks, evaluate, short="DLRM",
              paper="fused")
