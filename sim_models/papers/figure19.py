"""Figure 19: what faster sub-layers make of whole iterations (sections 6.3 and 6.4)."""

from t3sim.analytic.end_to_end.uncertainty import ranges, samples
from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.papers.figure import TECHNIQUE_TITLES, Figure, Findings, Results, Scope, Table
from t3sim.papers.iterations import LayerIteration, mi210, paper_iterations
from t3sim.papers.layers import key_of, runs_of, tasks_of
from t3sim.papers.paper import geomean, percent
from t3sim.study.results import RunResult

_SHOWN = ("t3", "t3-mca", "t3-mca+", "ideal-overlap")


def _speedups(runs: list[RunResult], iteration: LayerIteration) -> dict[str, float] | None:
    """Return the speedup by technique; None if a sub-layer was not run."""
    here = {run.workload.sublayer: run.speedup for run in runs
            if (run.workload.model, run.workload.tp) == (iteration.model, iteration.tp)}
    if not set(iteration.sliced_ns) <= set(here):
        return None
    return {name: iteration.speedup({sub: here[sub][name] for sub in iteration.sliced_ns}) for name in _SHOWN}


def _found(cluster: Machine, runs: list[RunResult]) -> list[tuple[LayerIteration, dict[str, float]]]:
    return [(one, speedups) for one in paper_iterations(cluster) if (speedups := _speedups(runs, one))]


def _gains(found, large: set[str]) -> dict[str, float]:
    """Return percent, by phase, size of the models and technique."""
    ours = {}
    for phase in ("training", "prompt"):
        for size, members in (("", [s for one, s in found if one.phase == phase and one.model not in large]),
                              ("large_", [s for one, s in found if one.phase == phase and one.model in large])):
            for name in _SHOWN if members else ():
                values, key = [speedups[name] for speedups in members], f"{size}{phase}_{key_of(name)}"
                ours |= {f"{key}_geomean_percent": percent(geomean(values)), f"{key}_max_percent": percent(max(values))}
    return ours


def evaluate(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, (*setup.small, *setup.large))
    large = {workload.model for workload in setup.large}
    cluster = mi210()
    found = _found(cluster, runs)
    ours = _gains(found, large)
    return Findings(
        text=f"Whole iterations of the smaller models gain {ours['training_t3_mca_geomean_percent']:.1f} % in training "
             f"and {ours['prompt_t3_mca_geomean_percent']:.1f} % in the prompt phase with T3-MCA, each sub-layer with "
             "the speedup that was simulated for it; the shares of the sub-layers are those of figure 4.",
        ours=ours,
        ranges=ranges(_gains(_found(sample, runs), large) for sample in samples(cluster, setup.seed)),
        tables=[Table("Speedup of whole iterations", ("model", "sliced share", *(TECHNIQUE_TITLES[name] for name in
                                                                               _SHOWN)), [
            (f"{one.title}, {one.phase}", f"{100 * one.sliced:.0f} %", *(f"{speedups[name]:.3f}" for name in _SHOWN))
            for one, speedups in found])],
        plots={"figure19": lambda: _draw(found)})


def _draw(found):
    drawn, axes = plots.figure(3.4)
    series = {name: [speedups[name] for _, speedups in found] for name in _SHOWN}
    plots.grouped_bars(axes, [f"{one.title}\n{one.phase}" for one, _ in found], series, plots.TECHNIQUE_COLOURS,
                       TECHNIQUE_TITLES, baseline=1.0)
    axes.tick_params(axis="x", labelrotation=60, labelsize=7)
    return drawn


FIGURE19 = Figure("figure19", "Speedup of whole iterations (figure 19)",
                  lambda setup: tasks_of(setup, (*setup.small, *setup.large)), evaluate, per_machine=True)
