"""The occupancy thresholds of T3-MCA: what the hardware chose, and what each would have given (section 6.1.3)."""

from collections.abc import Sequence

from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.mechanisms.result import BASELINE
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table, layer_result, layer_tasks
from t3sim.papers.layers import name_layers
from t3sim.papers.paper import geomean, percent
from t3sim.papers.variants import variant
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload

CHOICES = (3, 5, 15, "none")
_MARKERS = {"3": ("v", plots.ORANGE), "5": ("s", plots.GREEN), "15": ("D", plots.BLUE), "none": ("^", plots.PURPLE)}


def _machines(setup: Scope) -> dict[str, Machine]:
    return {str(choice): variant(setup.machine, {"arbiter.threshold": choice}) for choice in ("auto", *CHOICES)}


def tasks(setup: Scope) -> list[KernelTask]:
    return [task for layer in setup.small for machine in _machines(setup).values()
            for task in layer_tasks(setup, layer, (BASELINE, "t3-mca"), machine)]


def evaluate(setup: Scope, results: Results) -> Findings:
    cases, rows = [], []
    for layer in setup.small:
        runs = {name: layer_result(setup, results, layer, (BASELINE, "t3-mca"), machine)
                for name, machine in _machines(setup).items()}
        speedup = {name: run.speedup["t3-mca"] for name, run in runs.items()}
        hardware = runs["auto"].techniques["t3-mca"].hardware
        chose = "none" if hardware.chosen_threshold == NO_THRESHOLD else str(hardware.chosen_threshold)
        best = max(map(str, CHOICES), key=speedup.__getitem__)
        cases.append({"figure": "thresholds", "model": layer.model, "sublayer": layer.sublayer, "tp": layer.tp,
                      "M": layer.m, "N": layer.n, "K": layer.k, "chosen_threshold": chose, "best_threshold": best,
                      "producer_mean_occupancy": hardware.producer_mean_occupancy, "speedup": speedup})
        rows.append((layer.title, f"{hardware.producer_mean_occupancy:.1f}", chose,
                     *(f"{one:.3f}" for one in speedup.values()), best))
    means = {name: geomean(case["speedup"][name] for case in cases) for name in ("auto", *map(str, CHOICES))}
    best = geomean(max(case["speedup"].values()) for case in cases)
    rows.append(("geomean", "", "", *(f"{mean:.3f}" for mean in means.values()), ""))
    counts = {str(choice): sum(case["chosen_threshold"] == str(choice) for case in cases) for choice in CHOICES}
    chosen = ", ".join(f"{name} on {count}" for name, count in counts.items() if count)
    fixed = max(map(str, CHOICES), key=means.__getitem__)
    return Findings(
        text=f"Observing the GEMM's first stage, the hardware chose {chosen} of {len(cases)} sub-layers. The best "
             f"single threshold would have been {fixed} ({percent(means[fixed]):.1f} % geomean against "
             f"{percent(means['auto']):.1f} %), the best one for each layer would give {percent(best):.1f} %.",
        cases=cases,
        ours={"auto_geomean_percent": percent(means["auto"]), "best_per_layer_geomean_percent": percent(best),
              **{f"fixed_{name}_geomean_percent": percent(means[name]) for name in map(str, CHOICES)}},
        tables=[Table("T3-MCA's speedup over sequential by threshold",
                      ("sub-layer", "GEMM's mean queue", "chosen", "auto", *map(str, CHOICES), "best"), rows)],
        plots={"thresholds": lambda: _draw(cases, setup.small)})


def _draw(cases: list[dict], workloads: Sequence[Workload]):
    drawn, axes = plots.figure(3.4)
    for place, (name, (marker, colour)) in enumerate(_MARKERS.items()):
        x = [group + (place - 1.5) * 0.17 for group in range(len(cases))]
        axes.plot(x, [case["speedup"][name] for case in cases], marker, color=colour, markersize=5, linestyle="",
                  label=name)
    axes.plot(range(len(cases)), [case["speedup"]["auto"] for case in cases], "_", color=plots.BLACK, markersize=26,
              markeredgewidth=1.2, linestyle="", label="chosen by the hardware")
    name_layers(axes, workloads)
    axes.set_ylabel("speedup over sequential")
    axes.legend(loc="upper center", ncols=5, bbox_to_anchor=(0.5, 1.14))
    return drawn


THRESHOLDS = Figure("thresholds", "The arbiter's occupancy thresholds (section 6.1.3)", tasks, evaluate)
