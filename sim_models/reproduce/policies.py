"""Beyond the T3 paper: what each arbitration policy loses where another would have been better, over all 28 layers.

T3-MCA+ is more than a policy: where the GEMM outlasts the ring it stages the first chunk in local memory.
"""

from dataclasses import dataclass

import numpy as np

from t3sim.reproduce.figure import (
    TECHNIQUE_TITLES,
    Figure,
    Findings,
    Results,
    Setup,
    Table,
    Target,
    layer_result,
    layer_tasks,
)
from t3sim.reproduce.layers import key_of, name_groups, short_title
from t3sim.reproduce.tasks import KernelTask
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.study import plots
from t3sim.study.results import RunResult

_TECHNIQUES = ("t3", "t3-mca", "t3-mca+")
_OTHERS = _TECHNIQUES[1:]
_UNHARMED_PERCENT, _NEAR_PERCENT = 0.5, 1.5  #: slower than round robin, than the best of the three
_ALIKE_PERCENT = 0.1  #: apart at most, of three of which none is called the fastest
_MARKERS = {"t3-mca": "s", "t3-mca+": "^"}


def _tasks(setup: Setup) -> list[KernelTask]:
    return [task for workload in (*setup.small, *setup.large) for task in layer_tasks(setup, workload, _TECHNIQUES)]


@dataclass(frozen=True)
class _Verdict:
    """What one technique loses over all layers, percent of the other's time."""

    slower_geomean: float  #: than round robin; less than 0: faster
    slower_max: float
    unharmed: int  #: layers at most `_UNHARMED_PERCENT` slower than round robin
    near_best: int  #: layers within `_NEAR_PERCENT` of the best of the three
    behind_best_max: float


def _verdicts(times: np.ndarray) -> dict[str, _Verdict]:
    """Judge times[layer, technique]."""
    slower, behind = 100 * (times / times[:, :1] - 1), 100 * (times / times.min(axis=1, keepdims=True) - 1)
    means = 100 * np.expm1(np.log(times / times[:, :1]).mean(axis=0))
    return {name: _Verdict(float(means[place]), float(slower[:, place].max()),
                           int((slower[:, place] <= _UNHARMED_PERCENT).sum()),
                           int((behind[:, place] <= _NEAR_PERCENT).sum()), float(behind[:, place].max()))
            for place, name in enumerate(_TECHNIQUES)}


def _evaluate(setup: Setup, results: Results) -> Findings:
    runs = [layer_result(setup, results, workload, _TECHNIQUES) for workload in (*setup.small, *setup.large)]
    times = np.array([[run.techniques[name].total_ns for name in _TECHNIQUES] for run in runs])
    verdicts = _verdicts(times)
    ours, targets = {}, {}
    for name in _OTHERS:
        one, title = verdicts[name], TECHNIQUE_TITLES[name]
        for what, value, words, bounds in (
                ("slower_geomean", one.slower_geomean, "slower than round robin, geomean", {}),
                ("slower_max", one.slower_max, "slower than round robin, most", {"at_most": _UNHARMED_PERCENT}),
                ("unharmed", 100 * one.unharmed / len(runs), f"layers at most {_UNHARMED_PERCENT} % slower", {}),
                ("near_best", 100 * one.near_best / len(runs), f"layers within {_NEAR_PERCENT} % of the best",
                 {"at_least": 95})):
            ours[f"{key_of(name)}_{what}_percent"] = value
            targets[f"{key_of(name)}_{what}_percent"] = Target(f"{title}, {words}", "%", None, "beyond", **bounds)
    near = ", ".join(f"{TECHNIQUE_TITLES[name]} on {one.near_best}" for name, one in verdicts.items())
    return Findings(
        text=f"T3-MCA is {ours['t3_mca_slower_max_percent']:.1f} % slower than round robin at most, T3-MCA+ "
             f"{ours['t3_mca_plus_slower_max_percent']:.1f} %. Within {_NEAR_PERCENT} % of the best of the three are, "
             f"of {len(runs)} layers, {near}.",
        cases=[_case(run) for run in runs], ours=ours, targets=targets,
        tables=[_layers(runs, times), _summary(verdicts, len(runs))],
        plots={"policies": lambda: _draw(runs, times)})


def _threshold(run: RunResult) -> str:
    chosen = run.techniques["t3-mca"].details["chosen_threshold"]
    return "none" if chosen == NO_THRESHOLD else str(chosen)


def _case(run: RunResult) -> dict:
    workload = run.workload
    return {"figure": "policies", "title": workload.title, "M": workload.m, "N": workload.n, "K": workload.k,
            "tp": workload.tp, "chosen_threshold": _threshold(run),
            "total_ns": {name: run.techniques[name].total_ns for name in _TECHNIQUES}}


def _fastest(times: np.ndarray) -> str:
    if times.max() <= times.min() * (1 + _ALIKE_PERCENT / 100):
        return "alike"
    return TECHNIQUE_TITLES[_TECHNIQUES[int(times.argmin())]]


def _layers(runs: list[RunResult], times: np.ndarray) -> Table:
    rows = [(run.workload.title, f"{own[0] / 1e3:,.1f}", _threshold(run),
             *(f"{100 * (time / own[0] - 1):+.2f} %" for time in own[1:]),
             _fastest(own)) for run, own in zip(runs, times)]
    return Table("Slower than round robin", (
        "sub-layer", "T3, round robin (µs)", "T3-MCA's threshold", *(TECHNIQUE_TITLES[name] for name in _OTHERS),
        "fastest"), rows)


def _summary(verdicts: dict[str, _Verdict], layers: int) -> Table:
    return Table("Over all layers", (
        "technique", "slower than round robin, geomean", "at most", f"at most {_UNHARMED_PERCENT} % slower",
        f"within {_NEAR_PERCENT} % of the best", "behind the best, at most"), [
        (TECHNIQUE_TITLES[name], f"{one.slower_geomean:+.2f} %", f"{one.slower_max:+.2f} %",
         f"{one.unharmed} of {layers}", f"{one.near_best} of {layers}", f"{one.behind_best_max:.2f} %")
        for name, one in verdicts.items()])


def _draw(runs: list[RunResult], times: np.ndarray):
    drawn, axes = plots.figure(3.4)
    for place, name in enumerate(_OTHERS, 1):
        axes.plot(range(len(runs)), 100 * (times[:, place] / times[:, 0] - 1), _MARKERS[name], markersize=5,
                  linestyle="", color=plots.TECHNIQUE_COLOURS[name], label=TECHNIQUE_TITLES[name])
    axes.axhline(0, color=plots.TECHNIQUE_COLOURS["t3"], linewidth=1.2, label="T3, round robin")
    axes.axhline(_UNHARMED_PERCENT, color=plots.RED, linewidth=0.8, linestyle="--",
                 label=f"{_UNHARMED_PERCENT} % slower")
    axes.set_xticks(range(len(runs)), [short_title(run.workload) for run in runs])
    axes.set_xlim(-0.6, len(runs) - 0.4)
    axes.tick_params(axis="x", length=0, labelsize=7)
    name_groups(axes, [run.workload for run in runs])
    axes.set_ylabel("slower than round robin (%)")
    axes.legend(loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1.14))
    return drawn


POLICIES = Figure("policies", "What each arbitration policy loses", _tasks, _evaluate, paper="beyond", per_machine=True)
