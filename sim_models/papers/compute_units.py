"""Figures 6 and 20: compute units that kernels share, and twice as many of them."""

from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table, case, layer_result, layer_tasks, variant
from t3sim.papers.layers import group_title, short_title
from t3sim.papers.paper import geomean, percent
from t3sim.runs import kernels
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload

# Figure 6: GEMM and all-reduce on a part of the compute units each (section 3.2.1).

_SHARES = {"72-8": (0.9, 0.1), "64-16": (0.8, 0.2)}  #: of the GEMM and of the all-reduce; names for 80 units


def _layers_figure6(setup: Scope) -> list[Workload]:
    """Return the layers: OP ("Attn.") and FC-2 at the smaller TP degree."""
    tp = min(layer.tp for layer in setup.small)
    return [layer for layer in setup.small if layer.tp == tp and layer.sublayer in ("op", "fc2")]


def _parts(setup: Scope, layer: Workload) -> dict[str, tuple[KernelTask, tuple[KernelTask, KernelTask]]]:
    """Return split: (GEMM, (reduce-scatter, all-gather)); "ideal" has all units for both."""
    units = setup.machine.gpu.compute_units

    def tasks_on(share: float, *parts: kernels.Kernel) -> tuple[KernelTask, ...]:
        machine = variant(setup.machine, {"gpu.compute_units": max(1, round(share * units))})
        return tuple(setup.task(part, layer, machine) for part in parts)

    return {split: (tasks_on(compute, kernels.GEMM)[0],
                    tasks_on(communication, kernels.REDUCE_SCATTER, kernels.ALL_GATHER))
            for split, (compute, communication) in {"ideal": (1, 1), **_SHARES}.items()}


def tasks_figure6(setup: Scope) -> list[KernelTask]:
    return [task for layer in _layers_figure6(setup) for gemm, reduce in _parts(setup, layer).values()
            for task in (gemm, *reduce)]


def evaluate_figure6(setup: Scope, results: Results) -> Findings:
    cases, rows = [], []
    for layer in _layers_figure6(setup):
        times = {split: (results[gemm].ns, sum(results[task].ns for task in reduce))
                 for split, (gemm, reduce) in _parts(setup, layer).items()}
        alone_g, alone_c = times["ideal"]
        potential = {split: (alone_g + alone_c) / max(both) for split, both in times.items()}
        slower = {split: (g / alone_g, c / alone_c) for split, (g, c) in times.items()}
        cases.append({"figure": "figure6", "model": layer.model, "sublayer": layer.sublayer, "tp": layer.tp,
                      "gemm_ns": {split: g for split, (g, _) in times.items()},
                      "all_reduce_ns": {split: c for split, (_, c) in times.items()},
                      "gemm_slowdown": {split: g for split, (g, _) in slower.items()},
                      "all_reduce_slowdown": {split: c for split, (_, c) in slower.items()},
                      "potential": potential})
        rows.append((layer.title, *(f"{time / 1e3:,.1f}" for both in times.values() for time in both),
                     *(f"{factor:.2f}" for factor in potential.values())))

    def mean(quantity: str, split: str) -> float:
        return geomean(case[quantity][split] for case in cases)

    ours = {"potential_ideal": mean("potential", "ideal")}
    for split in _SHARES:
        key = split.replace("-", "_")
        ours[f"all_reduce_slower_{key}_percent"] = percent(mean("all_reduce_slowdown", split))
        ours[f"gemm_slower_{key}_percent"] = percent(mean("gemm_slowdown", split))
        ours[f"potential_{key}"] = mean("potential", split)
    splits = ("ideal", *_SHARES)
    return Findings(
        text=f"On 8 of 80 compute units an all-reduce takes {ours['all_reduce_slower_72_8_percent']:.0f} % longer, on "
             f"16 units {ours['all_reduce_slower_64_16_percent']:.0f} %. The GEMM on the remaining units takes "
             f"{ours['gemm_slower_72_8_percent']:.0f} % and {ours['gemm_slower_64_16_percent']:.0f} % longer. An "
             f"overlap that divides the compute units could gain at most {ours['potential_72_8']:.2f}x or "
             f"{ours['potential_64_16']:.2f}x; an overlap that shares nothing could gain "
             f"{ours['potential_ideal']:.2f}x.",
        cases=cases, ours=ours,
        tables=[Table("Isolated times (µs) and potential speedup of the overlap",
                      ("sub-layer", *(f"{kernel}, {split}" for split in splits for kernel in ("GEMM", "AR")),
                       *(f"potential, {split}" for split in splits)), rows)],
        plots={"figure6": lambda: _draw_figure6(setup, cases, splits)})


def _draw_figure6(setup: Scope, cases: list[dict], splits: tuple[str, ...]):
    figure, (times, gains) = plots.figure(3.0, columns=2, width_ratios=[2, 1])
    names = [f"{group_title(layer).split(',')[0]}\n{short_title(layer)}" for layer in _layers_figure6(setup)]
    series, colours, titles = {}, {}, {}
    for part, (kernel, key, shades) in enumerate((
            ("GEMM", "gemm_slowdown", (plots.SKY, plots.BLUE)),
            ("all-reduce", "all_reduce_slowdown", (plots.YELLOW, plots.ORANGE)))):
        for split, shade in zip(_SHARES, shades):
            name = f"{kernel}, {split}"
            series[name], colours[name] = [case[key][split] for case in cases], shade
            titles[name] = f"{kernel} on {split.split('-')[part]} of 80 CUs"
    plots.grouped_bars(times, names, series, colours, titles)
    times.axhline(1.0, color=plots.BLACK, linewidth=0.8)
    times.set_ylabel("time relative to all CUs")
    figure.legend(loc="outside upper left", ncols=4)
    means = [geomean(case["potential"][split] for case in cases) for split in splits]
    gains.bar(splits, means, 0.6, color=(plots.LIGHT, plots.GREY, plots.GREY))
    gains.set_ylim(bottom=1.0)
    gains.set_xlabel("CUs (GEMM-all-reduce)")
    gains.set_ylabel("potential speedup, geomean")
    return figure


FIGURE06 = Figure("figure6", "Sharing compute units (figure 6)", tasks_figure6, evaluate_figure6, per_machine=True)


# Figure 20: twice the compute units, everything else the same (section 7.5).

_TECHNIQUES = ("sequential", "t3-mca", "ideal-overlap")
_LARGER, _SMALLER = "fc2", "op"


def _layers_figure20(setup: Scope) -> list[Workload]:
    return [layer for layer in setup.layers if layer.sublayer in (_LARGER, _SMALLER)]


def _machines(setup: Scope) -> dict[int, Machine]:
    """Return the machines by their compute units."""
    units = setup.machine.gpu.compute_units
    return {units: setup.machine, 2 * units: variant(setup.machine, {"gpu.compute_units": 2 * units})}


def tasks_figure20(setup: Scope):
    return [task for machine in _machines(setup).values() for layer in _layers_figure20(setup)
            for task in layer_tasks(setup, layer, _TECHNIQUES, machine)]


def evaluate_figure20(setup: Scope, results: Results) -> Findings:
    usual_runs, doubled_runs = ([layer_result(setup, results, layer, _TECHNIQUES, machine)
                                 for layer in _layers_figure20(setup)] for machine in _machines(setup).values())
    pairs = list(zip(usual_runs, doubled_runs))
    ours = {}
    for sublayer in (_LARGER, _SMALLER):
        for name, key in (("t3-mca", "t3_mca"), ("ideal-overlap", "ideal")):
            before, after = (100 * (geomean(run.speedup[name] for run in runs if run.workload.sublayer == sublayer) - 1)
                             for runs in (usual_runs, doubled_runs))
            ours[f"{sublayer}_{key}_gain_points"] = after - before
    rows = [(usual.workload.title, *(f"{run.speedup[name]:.3f}" for name in ("t3-mca", "ideal-overlap")
                                     for run in (usual, doubled)),
             *(f"{run.baseline.gemm_ns / run.baseline.rs_ns:.2f}" for run in (usual, doubled)))
            for usual, doubled in pairs]
    larger_pairs = [pair for pair in pairs if pair[0].workload.sublayer == _LARGER]
    rising_layers = {name: sum(doubled.speedup[name] > usual.speedup[name] for usual, doubled in larger_pairs)
                     for name in _TECHNIQUES[1:]}
    units = list(_machines(setup))
    return Findings(
        text=f"With {units[1]} instead of {units[0]} compute units, T3-MCA's speedup changes by "
             f"{ours['fc2_t3_mca_gain_points']:+.1f} points on FC-2 and by {ours['op_t3_mca_gain_points']:+.1f} points "
             f"on OP. It increases on {rising_layers['t3-mca']} of {len(larger_pairs)} FC-2 layers, and the speedup "
             f"of ideal overlap on {rising_layers['ideal-overlap']}: those on which half of the GEMM's time is closer "
             "to the reduce-scatter's time than all of it.",
        cases=[case("figure20", run, compute_units=count)
               for runs, count in zip((usual_runs, doubled_runs), units) for run in runs],
        ours=ours,
        tables=[Table("Speedup over sequential on each machine",
                      ("sub-layer", *(f"{title}, {count} CUs" for title in ("T3-MCA", "ideal overlap")
                                      for count in units), *(f"GEMM over RS, {count} CUs" for count in units)), rows)],
        plots={"figure20": lambda: _draw_figure20(pairs, units)})


def _draw_figure20(pairs: list[tuple[RunResult, RunResult]], units: list[int]):
    figure, axes = plots.figure(3.4, columns=2, sharey=True)
    for ax, sublayer in zip(axes, (_LARGER, _SMALLER)):
        sublayer_pairs = [pair for pair in pairs if pair[0].workload.sublayer == sublayer]
        names = [group_title(usual.workload).replace(", ", "\n") for usual, _ in sublayer_pairs]
        series = {str(count): [pair[index].speedup["t3-mca"] for pair in sublayer_pairs]
                  for index, count in enumerate(units)}
        plots.grouped_bars(ax, names, series, dict(zip(series, (plots.SKY, plots.BLUE))),
                           {count: f"T3-MCA, {count} CUs" for count in series}, baseline=1.0)
        for index in range(2):
            x = [group + (index - 0.5) * plots.GROUP_WIDTH / 2 for group in range(len(sublayer_pairs))]
            ax.plot(x, [pair[index].speedup["ideal-overlap"] for pair in sublayer_pairs], "_", color=plots.BLACK,
                    markersize=11, markeredgewidth=1.5, label="ideal overlap" if index == 0 else None)
        ax.tick_params(axis="x", labelsize=7)
        ax.set_title(short_title(sublayer_pairs[0][0].workload) if sublayer_pairs else sublayer, loc="left")
    axes[0].set_ylabel("speedup over sequential")
    axes[0].set_ylim(bottom=1.0)
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


FIGURE20 = Figure("figure20", "Twice the compute units (figure 20)", tasks_figure20, evaluate_figure20,
                  per_machine=True)
