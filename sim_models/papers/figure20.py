"""Figure 20: twice the compute units, everything else the same (section 7.5)."""

from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table, case, layer_result, layer_tasks
from t3sim.papers.layers import group_title, short_title
from t3sim.papers.paper import geomean
from t3sim.papers.variants import variant
from t3sim.study.results import RunResult
from t3sim.workload.workloads import Workload

_TECHNIQUES = ("sequential", "t3-mca", "ideal-overlap")
_LARGER, _SMALLER = "fc2", "op"


def _layers(setup: Scope) -> list[Workload]:
    return [one for one in (*setup.small, *setup.large) if one.sublayer in (_LARGER, _SMALLER)]


def _machines(setup: Scope) -> dict[int, Machine]:
    """Return the machines by their compute units."""
    units = setup.machine.gpu.compute_units
    return {units: setup.machine, 2 * units: variant(setup.machine, {"gpu.compute_units": 2 * units})}


def tasks(setup: Scope):
    return [task for machine in _machines(setup).values() for layer in _layers(setup)
            for task in layer_tasks(setup, layer, _TECHNIQUES, machine)]


def evaluate(setup: Scope, results: Results) -> Findings:
    now, twice = ([layer_result(setup, results, layer, _TECHNIQUES, machine) for layer in _layers(setup)]
                  for machine in _machines(setup).values())
    pairs = list(zip(now, twice))
    ours = {}
    for sublayer in (_LARGER, _SMALLER):
        for name, key in (("t3-mca", "t3_mca"), ("ideal-overlap", "ideal")):
            before, after = (100 * (geomean(run.speedup[name] for run in runs if run.workload.sublayer == sublayer) - 1)
                             for runs in (now, twice))
            ours[f"{sublayer}_{key}_gain_points"] = after - before
    rows = [(one.workload.title, *(f"{run.speedup[name]:.3f}" for name in ("t3-mca", "ideal-overlap")
                                   for run in (one, other)),
             *(f"{run.baseline.gemm_ns / run.baseline.rs_ns:.2f}" for run in (one, other))) for one, other in pairs]
    larger = [pair for pair in pairs if pair[0].workload.sublayer == _LARGER]
    risen = {name: sum(other.speedup[name] > one.speedup[name] for one, other in larger) for name in _TECHNIQUES[1:]}
    units = list(_machines(setup))
    return Findings(
        text=f"With {units[1]} instead of {units[0]} compute units T3-MCA's gain changes by "
             f"{ours['fc2_t3_mca_gain_points']:+.1f} points on FC-2 and by {ours['op_t3_mca_gain_points']:+.1f} on OP. "
             f"It rises on {risen['t3-mca']} of {len(larger)} FC-2 layers, that of ideal overlap on "
             f"{risen['ideal-overlap']}: where half the GEMM's time is nearer to the reduce-scatter's than all of it.",
        cases=[case("figure20", run, compute_units=count) for runs, count in zip((now, twice), units) for run in runs],
        ours=ours,
        tables=[Table("Speedup over sequential on each machine",
                      ("sub-layer", *(f"{title}, {count} CUs" for title in ("T3-MCA", "ideal overlap")
                                      for count in units), *(f"GEMM over RS, {count} CUs" for count in units)), rows)],
        plots={"figure20": lambda: _draw(pairs, units)})


def _draw(pairs: list[tuple[RunResult, RunResult]], units: list[int]):
    drawn, axes = plots.figure(3.4, columns=2, sharey=True)
    for ax, sublayer in zip(axes, (_LARGER, _SMALLER)):
        chosen = [pair for pair in pairs if pair[0].workload.sublayer == sublayer]
        names = [group_title(one.workload).replace(", ", "\n") for one, _ in chosen]
        series = {str(count): [pair[place].speedup["t3-mca"] for pair in chosen] for place, count in enumerate(units)}
        plots.grouped_bars(ax, names, series, dict(zip(series, (plots.SKY, plots.BLUE))),
                           {count: f"T3-MCA, {count} CUs" for count in series}, baseline=1.0)
        for place in range(2):
            x = [group + (place - 0.5) * plots.GROUP_WIDTH / 2 for group in range(len(chosen))]
            ax.plot(x, [pair[place].speedup["ideal-overlap"] for pair in chosen], "_", color=plots.BLACK, markersize=11,
                    markeredgewidth=1.5, label="ideal overlap" if place == 0 else None)
        ax.tick_params(axis="x", labelsize=7)
        ax.set_title(short_title(chosen[0][0].workload) if chosen else sublayer, loc="left")
    axes[0].set_ylabel("speedup over sequential")
    axes[0].set_ylim(bottom=1.0)
    drawn.legend(*axes[1].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawn


FIGURE20 = Figure("figure20", "Twice the compute units (figure 20)", tasks, evaluate, per_machine=True)
