"""The arbiter: thresholds of T3-MCA (section 6.1.3), and what each policy loses (beyond the paper)."""

from collections.abc import Sequence

import numpy as np

from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.mechanisms.result import BASELINE, TechniqueResult
from t3sim.papers.figure import (
    TECHNIQUE_TITLES,
    Figure,
    Findings,
    Quantities,
    Results,
    Scope,
    Table,
    layer_result,
    layer_tasks,
    variant,
)
from t3sim.papers.layers import key_of, name_layers, runs_of, tasks_of
from t3sim.papers.paper import geomean, percent
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload

# The occupancy thresholds of T3-MCA: what the hardware chose, and what each would have given (section 6.1.3).

CHOICES = (3, 5, 15, "none")
_THRESHOLD_MARKERS = {"3": ("v", plots.ORANGE), "5": ("s", plots.GREEN), "15": ("D", plots.BLUE),
                      "none": ("^", plots.PURPLE)}


def _machines(setup: Scope) -> dict[str, Machine]:
    return {str(choice): variant(setup.machine, {"arbiter.threshold": choice}) for choice in ("auto", *CHOICES)}


def chosen_threshold(result: TechniqueResult) -> str:
    """Write the occupancy threshold that the hardware chose."""
    threshold = result.hardware.chosen_threshold
    return "none" if threshold == NO_THRESHOLD else str(threshold)


def tasks(setup: Scope) -> list[KernelTask]:
    return [task for layer in setup.small for machine in _machines(setup).values()
            for task in layer_tasks(setup, layer, (BASELINE, "t3-mca"), machine)]


def evaluate(setup: Scope, results: Results) -> Findings:
    cases, rows = [], []
    for layer in setup.small:
        runs = {name: layer_result(setup, results, layer, (BASELINE, "t3-mca"), machine)
                for name, machine in _machines(setup).items()}
        speedup = {name: run.speedup["t3-mca"] for name, run in runs.items()}
        auto = runs["auto"].techniques["t3-mca"]
        hardware, threshold = auto.hardware, chosen_threshold(auto)
        best = max(map(str, CHOICES), key=speedup.__getitem__)
        cases.append({"figure": "thresholds", "model": layer.model, "sublayer": layer.sublayer, "tp": layer.tp,
                      "M": layer.m, "N": layer.n, "K": layer.k, "chosen_threshold": threshold, "best_threshold": best,
                      "producer_mean_occupancy": hardware.producer_mean_occupancy, "speedup": speedup})
        rows.append((layer.title, f"{hardware.producer_mean_occupancy:.1f}", threshold,
                     *(f"{factor:.3f}" for factor in speedup.values()), best))
    means = {name: geomean(case["speedup"][name] for case in cases) for name in ("auto", *map(str, CHOICES))}
    best = geomean(max(case["speedup"].values()) for case in cases)
    rows.append(("geomean", "", "", *(f"{mean:.3f}" for mean in means.values()), ""))
    counts = {str(choice): sum(case["chosen_threshold"] == str(choice) for case in cases) for choice in CHOICES}
    choice_text = ", ".join(f"{name} on {count}" for name, count in counts.items() if count)
    best_fixed = max(map(str, CHOICES), key=means.__getitem__)
    return Findings(
        text=f"The hardware observes the GEMM's first stage and chose threshold {choice_text} of {len(cases)} "
             f"sub-layers, which gains {percent(means['auto']):.1f} % (geometric mean). The best single threshold, "
             f"{best_fixed}, would gain {percent(means[best_fixed]):.1f} %, and the best threshold for each layer "
             f"{percent(best):.1f} %.",
        cases=cases,
        ours={"auto_geomean_percent": percent(means["auto"]), "best_per_layer_geomean_percent": percent(best),
              **{f"fixed_{name}_geomean_percent": percent(means[name]) for name in map(str, CHOICES)}},
        tables=[Table("T3-MCA's speedup over sequential by threshold",
                      ("sub-layer", "GEMM's mean queue", "chosen", "auto", *map(str, CHOICES), "best"), rows)],
        plots={"thresholds": lambda: _draw_thresholds(cases, setup.small)})


def _draw_thresholds(cases: list[dict], workloads: Sequence[Workload]):
    figure, axes = plots.figure(3.4)
    for index, (name, (marker, colour)) in enumerate(_THRESHOLD_MARKERS.items()):
        x = [group + (index - 1.5) * 0.17 for group in range(len(cases))]
        axes.plot(x, [case["speedup"][name] for case in cases], marker, color=colour, markersize=5, linestyle="",
                  label="no threshold" if name == "none" else f"threshold {name}")
    axes.plot(range(len(cases)), [case["speedup"]["auto"] for case in cases], "_", color=plots.BLACK, markersize=26,
              markeredgewidth=1.2, linestyle="", label="chosen by the hardware")
    name_layers(axes, workloads)
    axes.set_ylabel("speedup over sequential")
    plots.legend_above(axes, 5)
    return figure


THRESHOLDS = Figure("thresholds", "The arbiter's occupancy thresholds (section 6.1.3)", tasks, evaluate)


# Beyond the T3 paper: what each arbitration policy loses where another would have been better, over all 28 layers.
#
# T3-MCA+ is more than its policy, ring-aware arbitration: where that pays it stages the first chunk in local memory.
# So both are shown, and the best is that of the three policies.

_TECHNIQUES, _RING_AWARE = ("t3", "t3-mca", "t3-mca+"), "ring_aware"
#: The policies, then T3-MCA+.
_TITLES = {name: TECHNIQUE_TITLES[name] for name in ("t3", "t3-mca")} | {
    _RING_AWARE: "ring-aware", "t3-mca+": TECHNIQUE_TITLES["t3-mca+"]}
_OTHERS, _POLICIES = tuple(_TITLES)[1:], 3
_UNHARMED_PERCENT, _NEAR_PERCENT = 0.5, 1.5  #: slower than round robin, than the best of the three
_ALIKE_PERCENT = 0.1  #: apart at most, of three of which none is called the fastest
_POLICY_MARKERS = {"t3-mca": "s", _RING_AWARE: "o", "t3-mca+": "^"}
_COLOURS = plots.TECHNIQUE_COLOURS | {_RING_AWARE: plots.RED}


def _tasks(setup: Scope) -> list[KernelTask]:
    return [*tasks_of(setup, setup.layers, _TECHNIQUES), *tasks_of(setup, setup.layers, ("t3",), policy=_RING_AWARE)]


def _evaluate(setup: Scope, results: Results) -> Findings:
    cases, rows, times = [], [], np.zeros((len(setup.layers), len(_TITLES)))
    for layer, run, aware_run, layer_times in zip(
            setup.layers, runs_of(setup, results, setup.layers, _TECHNIQUES),
            runs_of(setup, results, setup.layers, ("t3",), policy=_RING_AWARE), times):
        techniques = run.techniques | {_RING_AWARE: aware_run.techniques["t3"]}
        total_ns = {name: techniques[name].total_ns for name in _TITLES}
        layer_times[:] = list(total_ns.values())
        threshold = chosen_threshold(techniques["t3-mca"])
        is_staged = techniques["t3-mca+"].hardware.staged_first_chunk  # the first chunk goes through local memory
        is_alike = layer_times[:_POLICIES].max() <= layer_times[:_POLICIES].min() * (1 + _ALIKE_PERCENT / 100)
        cases.append({"figure": "policies", "title": layer.title, "M": layer.m, "N": layer.n, "K": layer.k,
                      "tp": layer.tp, "chosen_threshold": threshold, "staged": is_staged, "total_ns": total_ns})
        rows.append((layer.title, f"{layer_times[0] / 1e3:,.1f}", threshold,
                     *(f"{100 * (time / layer_times[0] - 1):+.2f} %" for time in layer_times[1:]),
                     "yes" if is_staged else "no",
                     "alike" if is_alike else [*_TITLES.values()][layer_times[:_POLICIES].argmin()]))
    # By technique: slower than round robin, behind the best policy, and on how many layers not by much.
    slower_percent = 100 * (times / times[:, :1] - 1)
    slower_geomean_percent = 100 * np.expm1(np.log(times / times[:, :1]).mean(axis=0))
    behind_percent = 100 * (times / times[:, :_POLICIES].min(axis=1, keepdims=True) - 1)
    unharmed_layers = (slower_percent <= _UNHARMED_PERCENT).sum(axis=0)
    near_layers = (behind_percent <= _NEAR_PERCENT).sum(axis=0)
    ours = Quantities()
    for index, name in enumerate(_OTHERS, 1):
        for quantity, value, title, bounds in (
                ("slower_geomean", slower_geomean_percent[index], "slower than round robin, geomean", {}),
                ("slower_max", slower_percent[:, index].max(), "slower than round robin, most",
                 {"at_most": _UNHARMED_PERCENT}),
                ("unharmed", 100 * unharmed_layers[index] / len(times),
                 f"layers at most {_UNHARMED_PERCENT} % slower", {}),
                ("near_best", 100 * near_layers[index] / len(times),
                 f"layers within {_NEAR_PERCENT} % of the best policy", {"at_least": 95})):
            ours.add(f"{key_of(name)}_{quantity}_percent", float(value), "%", f"{_TITLES[name]}, {title}", **bounds)
    return Findings(
        text=f"Compared with round robin, T3-MCA is at most {ours['t3_mca_slower_max_percent']:.1f} % slower, "
             f"ring-aware arbitration {ours['ring_aware_slower_max_percent']:.1f} %, and T3-MCA+, which also stages "
             f"the first chunk, {ours['t3_mca_plus_slower_max_percent']:.1f} %. Layers, of {len(times)}, on which each "
             f"is within {_NEAR_PERCENT} % of the best policy: "
             + ", ".join(f"{title} {count}" for title, count in zip(_TITLES.values(), near_layers)) + ".",
        cases=cases, ours=ours,
        tables=[Table("Slower than round robin", (
                    "sub-layer", "T3, round robin (µs)", "T3-MCA's threshold", *(_TITLES[name] for name in _OTHERS),
                    "T3-MCA+ stages", "fastest policy"), rows),
                Table("Over all layers", (
                    "technique", "slower than round robin, geomean", "at most", f"at most {_UNHARMED_PERCENT} % slower",
                    f"within {_NEAR_PERCENT} % of the best policy", "slower than it, at most"), [
                    (title, f"{slower_geomean_percent[index]:+.2f} %", f"{slower_percent[:, index].max():+.2f} %",
                     f"{unharmed_layers[index]} of {len(times)}", f"{near_layers[index]} of {len(times)}",
                     f"{behind_percent[:, index].max():.2f} %") for index, title in enumerate(_TITLES.values())])],
        plots={"policies": lambda: _draw_policies(setup.layers, slower_percent)})


def _draw_policies(layers: Sequence[Workload], slower_percent: np.ndarray):
    figure, axes = plots.figure(3.4)
    for index, name in enumerate(_OTHERS, 1):
        axes.plot(range(len(layers)), slower_percent[:, index], _POLICY_MARKERS[name], markersize=5, linestyle="",
                  color=_COLOURS[name], label=_TITLES[name])
    axes.axhline(0, color=plots.TECHNIQUE_COLOURS["t3"], linewidth=1.2, label="T3, round robin")
    axes.axhline(_UNHARMED_PERCENT, color=plots.GREY, linewidth=0.8, linestyle="--",
                 label=f"{_UNHARMED_PERCENT} % slower")
    name_layers(axes, layers)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylabel("slowdown against round robin (%)")
    plots.legend_above(axes, 5)
    return figure


POLICIES = Figure("policies", "Losses of each arbitration policy", _tasks, _evaluate, paper="beyond", per_machine=True)
