"""Figure 6: GEMM and all-reduce on a part of the compute units each (section 3.2.1)."""

from t3sim.base import plots
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table
from t3sim.papers.layers import group_title, short_title
from t3sim.papers.paper import geomean, percent
from t3sim.papers.variants import variant
from t3sim.runs import kernels
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload

_SHARES = {"72-8": (0.9, 0.1), "64-16": (0.8, 0.2)}  #: of the GEMM and of the all-reduce; names for 80 units


def _layers(setup: Scope) -> list[Workload]:
    """Return the layers: OP ("Attn.") and FC-2 at the smaller TP degree."""
    tp = min(layer.tp for layer in setup.small)
    return [layer for layer in setup.small if layer.tp == tp and layer.sublayer in ("op", "fc2")]


def _parts(setup: Scope, layer: Workload) -> dict[str, tuple[KernelTask, tuple[KernelTask, KernelTask]]]:
    """Return split: (GEMM, (reduce-scatter, all-gather)); "ideal" has all units for both."""
    units = setup.machine.gpu.compute_units

    def on(share: float, *parts: kernels.Kernel) -> tuple[KernelTask, ...]:
        machine = variant(setup.machine, {"gpu.compute_units": max(1, round(share * units))})
        return tuple(setup.task(part, layer, machine) for part in parts)

    return {split: (on(compute, kernels.GEMM)[0], on(communication, kernels.REDUCE_SCATTER, kernels.ALL_GATHER))
            for split, (compute, communication) in {"ideal": (1, 1), **_SHARES}.items()}


def tasks(setup: Scope) -> list[KernelTask]:
    return [task for layer in _layers(setup) for gemm, reduce in _parts(setup, layer).values()
            for task in (gemm, *reduce)]


def evaluate(setup: Scope, results: Results) -> Findings:
    cases, rows = [], []
    for layer in _layers(setup):
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
                     *(f"{one:.2f}" for one in potential.values())))

    def mean(what: str, split: str) -> float:
        return geomean(case[what][split] for case in cases)

    ours = {"potential_ideal": mean("potential", "ideal")}
    for split in _SHARES:
        key = split.replace("-", "_")
        ours[f"all_reduce_slower_{key}_percent"] = percent(mean("all_reduce_slowdown", split))
        ours[f"gemm_slower_{key}_percent"] = percent(mean("gemm_slowdown", split))
        ours[f"potential_{key}"] = mean("potential", split)
    splits = ("ideal", *_SHARES)
    return Findings(
        text=f"With a tenth of the compute units an all-reduce takes {ours['all_reduce_slower_72_8_percent']:.0f} % "
             f"longer, with a fifth {ours['all_reduce_slower_64_16_percent']:.0f} %, while the GEMM on the rest loses "
             f"{ours['gemm_slower_72_8_percent']:.0f} % and {ours['gemm_slower_64_16_percent']:.0f} %. An overlap that "
             f"shares compute units could gain {ours['potential_72_8']:.2f}x or {ours['potential_64_16']:.2f}x, one "
             f"that shares nothing {ours['potential_ideal']:.2f}x.",
        cases=cases, ours=ours,
        tables=[Table("Isolated times (µs) and potential speedup of the overlap",
                      ("sub-layer", *(f"{kernel}, {split}" for split in splits for kernel in ("GEMM", "AR")),
                       *(f"potential, {split}" for split in splits)), rows)],
        plots={"figure6": lambda: _draw(setup, cases, splits)})


def _draw(setup: Scope, cases: list[dict], splits: tuple[str, ...]):
    drawn, (times, gains) = plots.figure(3.0, columns=2, width_ratios=[2, 1])
    names = [f"{group_title(layer).split(',')[0]}\n{short_title(layer)}" for layer in _layers(setup)]
    series, colours, titles = {}, {}, {}
    for kernel, key, shades in (("GEMM", "gemm_slowdown", (plots.SKY, plots.BLUE)),
                                ("AR", "all_reduce_slowdown", (plots.YELLOW, plots.ORANGE))):
        for split, shade in zip(_SHARES, shades):
            name = f"{kernel}, {split}"
            series[name], colours[name], titles[name] = [case[key][split] for case in cases], shade, name
    plots.grouped_bars(times, names, series, colours, titles)
    times.axhline(1.0, color=plots.BLACK, linewidth=0.8)
    times.set_ylabel("time over all CUs")
    times.legend(loc="lower left", ncols=4, bbox_to_anchor=(0.0, 1.0), columnspacing=1.0)
    means = [geomean(case["potential"][split] for case in cases) for split in splits]
    gains.bar(splits, means, 0.6, color=(plots.LIGHT, plots.GREY, plots.GREY))
    gains.set_ylim(bottom=1.0)
    gains.set_ylabel("potential speedup, geomean")
    return drawn


FIGURE06 = Figure("figure6", "Sharing compute units (figure 6)", tasks, evaluate, per_machine=True)
