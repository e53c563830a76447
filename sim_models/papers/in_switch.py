"""Beyond the T3 paper, after its section 7.4: Track & Trigger around a switch that adds and copies, and that alone."""

from t3sim.base import plots
from t3sim.papers.figure import (
    Figure,
    Findings,
    Quantities,
    Results,
    Scope,
    Table,
    layer_result,
    layer_tasks,
)
from t3sim.papers.layers import layer_bars
from t3sim.papers.paper import geomean, percent
from t3sim.runs.exchange import Exchange
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload

_RING, _SWITCHED = Exchange(topology="switch"), Exchange("ar", "in-switch", "switch")
_ALONE = ("sequential", "in-switch", "t3-mca")
_COLOURS = {"in-switch": plots.LIGHT, "t3-mca": plots.ORANGE, "both": plots.BLUE}
_TITLES = {"in-switch": "GEMM, then all-reduce in the switch", "t3-mca": "T3-MCA, ring, then all-gather",
           "both": "T3-MCA, all-reduce in the switch"}


def _tasks(setup: Scope) -> list[KernelTask]:
    return [task for workload in (*setup.small, *setup.large)
            for task in (*layer_tasks(setup, workload, _ALONE, exchange=_RING),
                         *layer_tasks(setup, workload, ("t3-mca",), _SWITCHED.hardware(setup.machine, workload),
                                      _SWITCHED))]


def _evaluate(setup: Scope, results: Results) -> Findings:
    layers = (*setup.small, *setup.large)
    alone = [layer_result(setup, results, workload, _ALONE, exchange=_RING) for workload in layers]
    both = [layer_result(setup, results, workload, ("t3-mca",), _SWITCHED.hardware(setup.machine, workload), _SWITCHED)
            for workload in layers]
    fused_ns = [run.techniques["t3-mca"].total_ns for run in both]
    series = {name: [run.speedup[name] for run in alone] for name in ("in-switch", "t3-mca")}
    series["both"] = [run.baseline.total_ns / ns for run, ns in zip(alone, fused_ns)]
    over_t3 = [run.techniques["t3-mca"].total_ns / ns for run, ns in zip(alone, fused_ns)]
    reached = [_bound_ns(run.workload, run) / ns for run, ns in zip(alone, fused_ns)]
    ours = Quantities("beyond the paper")
    for name, value, title in (
            ("in_switch_geomean", percent(geomean(series["in-switch"])),
             "all-reduce in the switch after the GEMM, over sequential, geomean"),
            ("t3_mca_geomean", percent(geomean(series["t3-mca"])), "T3-MCA over sequential, geomean"),
            ("both_geomean", percent(geomean(series["both"])), "T3-MCA with the switch over sequential, geomean"),
            ("both_over_t3_mca_geomean", percent(geomean(over_t3)), "T3-MCA with the switch over T3-MCA, geomean"),
            ("both_over_t3_mca_max", percent(max(over_t3)), "T3-MCA with the switch over T3-MCA, largest"),
            ("share_of_bound", 100 * geomean(reached), "of the bound's speed, geomean")):
        ours.add(f"{name}_percent", value, "%", title)
    return Findings(
        text=f"Around a switch that adds and copies, T3-MCA is {ours['both_over_t3_mca_geomean_percent']:.1f} % faster "
             f"than without it on geometric mean, and {ours['both_geomean_percent']:.1f} % faster than sequential; the "
             f"switch without Track & Trigger is {ours['in_switch_geomean_percent']:.1f} %. The bound is the longer of "
             "the GEMM and its output once through a link.",
        cases=[_case(one, ns) for one, ns in zip(alone, fused_ns)], ours=ours,
        targets=ours.targets,
        tables=[_table(alone, both)], plots={"in-switch": lambda: layer_bars(layers, series, _COLOURS, _TITLES)})


def _bound_ns(workload: Workload, run: RunResult) -> float:
    return max(run.baseline.gemm_ns, _SWITCHED.link_bytes(workload) / run.machine.link.bandwidth_gb_per_s)


def _case(run: RunResult, fused_ns: float) -> dict:
    workload = run.workload
    return {"figure": "in-switch", "title": workload.title, "M": workload.m, "N": workload.n, "K": workload.k,
            "tp": workload.tp, "total_ns": {name: one.total_ns for name, one in run.techniques.items()} | {
                "t3-mca in the switch": fused_ns, "bound": _bound_ns(workload, run)}}


def _table(alone: list[RunResult], both: list[RunResult]) -> Table:
    rows = []
    for one, other in zip(alone, both):
        fused = other.techniques["t3-mca"]
        times = (*(one.techniques[name].total_ns for name in _ALONE), fused.total_ns, _bound_ns(one.workload, one))
        rows.append((one.workload.title, *(f"{ns / 1e3:,.1f}" for ns in times),
                     f"{one.techniques['t3-mca'].total_ns / fused.total_ns:.3f}",
                     f"{fused.hardware.switch_sum_bytes / 1e6:.2f}"))
    return Table("Time (µs), and what a port's memory held at most", (
        "sub-layer", "sequential", "in-switch", "T3-MCA", "T3-MCA in the switch", "bound", "over T3-MCA", "held (MB)"),
        rows)


IN_SWITCH = Figure("in-switch", "A switch that adds and copies, with T3 and without", _tasks, _evaluate, paper="beyond")
