"""Beyond the T3 paper: the all-gather, which it leaves after the fused kernel, hidden behind the GEMM as well."""

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

_GATHERED, _BOTH_WAYS = Exchange("ar"), Exchange("ar", "both-rings")
_BOUND = "ideal-overlap"
_COLOURS = {"after": plots.LIGHT, "within": plots.BLUE, "bound": plots.ORANGE, "both": plots.GREEN}
_TITLES = {"after": "T3-MCA, then the all-gather", "within": "T3-MCA, all-reduce by slices",
           "bound": "longest of GEMM, RS + AG", "both": "both ways around, T3-MCA and sequence"}


def _tasks(setup: Scope) -> list[KernelTask]:
    return [task for workload in (*setup.small, *setup.large)
            for task in (*layer_tasks(setup, workload, ("sequential", "t3-mca")),
                         *layer_tasks(setup, workload, ("t3-mca",), exchange=_GATHERED),
                         *layer_tasks(setup, workload, ("sequential", "t3-mca"),
                                      _BOTH_WAYS.hardware(setup.machine, workload), _BOTH_WAYS))]


def _evaluate(setup: Scope, results: Results) -> Findings:
    workloads = (*setup.small, *setup.large)
    after = [layer_result(setup, results, workload, ("sequential", "t3-mca")) for workload in workloads]
    within = [layer_result(setup, results, workload, ("sequential", "t3-mca", _BOUND), exchange=_GATHERED)
              for workload in workloads]
    both = [layer_result(setup, results, workload, ("sequential", "t3-mca", _BOUND),
                         _BOTH_WAYS.hardware(setup.machine, workload), _BOTH_WAYS) for workload in workloads]
    series = {"after": [run.speedup["t3-mca"] for run in after], "within": [run.speedup["t3-mca"] for run in within],
              "bound": [run.speedup[_BOUND] for run in within], "both": [run.speedup["t3-mca"] for run in both]}
    over = [new / old for new, old in zip(series["within"], series["after"])]
    reached = [new / best for new, best in zip(series["within"], series["bound"])]
    both_reached = [one / run.speedup[_BOUND] for one, run in zip(series["both"], both)]
    ours = Quantities("beyond the paper")
    for name, value, title in (
            ("all_reduce_geomean", percent(geomean(series["within"])), "speedup over sequential, geomean"),
            ("all_reduce_max", percent(max(series["within"])), "speedup over sequential, largest"),
            ("over_t3_mca_geomean", percent(geomean(over)), "speedup over T3-MCA, geomean"),
            ("over_t3_mca_min", percent(min(over)), "speedup over T3-MCA, smallest"),
            ("share_of_bound", 100 * geomean(reached), "of the bound's speedup, geomean"),
            ("both_ways_geomean", percent(geomean(series["both"])),
             "both ways around, over a sequence that goes both ways, geomean"),
            ("both_ways_max", percent(max(series["both"])), "the same, largest"),
            ("both_ways_share_of_bound", 100 * geomean(both_reached), "the same, of its bound's speedup, geomean")):
        ours.add(f"{name}_percent", value, "%", title)
    return Findings(
        text=f"Gathered slice by slice while later slices are made and reduced, layers are "
             f"{ours['all_reduce_geomean_percent']:.1f} % faster than sequential on geometric mean, and "
             f"{ours['over_t3_mca_geomean_percent']:.1f} % faster than T3-MCA with an all-gather after it. That is "
             f"{ours['share_of_bound_percent']:.0f} % of what the bound allows, the longer of GEMM and both rings. "
             f"Both ways around they are {ours['both_ways_geomean_percent']:.1f} % faster than such a sequence.",
        cases=[_case(*runs) for runs in zip(after, within, both)], ours=ours,
        targets=ours.targets,
        tables=[_table(after, within, both)],
        plots={"all-reduce": lambda: layer_bars(workloads, series, _COLOURS, _TITLES, columns=2)})


def _case(after: RunResult, within: RunResult, both: RunResult) -> dict:
    fused = within.techniques["t3-mca"]
    return {"figure": "all-reduce", "title": within.workload.title, "M": within.workload.m, "N": within.workload.n,
            "K": within.workload.k, "tp": within.workload.tp, "slices": fused.hardware.slices,
            "total_ns": {"sequential": within.baseline.total_ns, "t3-mca": after.techniques["t3-mca"].total_ns,
                         "all-reduce": fused.total_ns, "bound": within.techniques[_BOUND].total_ns,
                         **{f"{name} both ways": both.techniques[name].total_ns for name in ("sequential", "t3-mca")}},
            "loss_ns": fused.loss_ns, "streams_bytes": fused.streams_bytes}


def _table(after: list[RunResult], within: list[RunResult], both: list[RunResult]) -> Table:
    rows = []
    for one, other, two in zip(after, within, both):
        fused, bound = other.techniques["t3-mca"], other.techniques[_BOUND].total_ns
        rows.append((other.workload.title, str(fused.hardware.slices), f"{one.speedup['t3-mca']:.3f}",
                     f"{other.speedup['t3-mca']:.3f}", f"{other.baseline.total_ns / bound:.3f}",
                     f"{two.speedup['t3-mca']:.3f}", f"{two.speedup[_BOUND]:.3f}",
                     f"{fused.loss_ns['window_blocked'] / 1e3:,.0f}", f"{fused.loss_ns['link_tail'] / 1e3:,.0f}"))
    return Table("Speedup over sequential, and where the rest went", (
        "sub-layer", "slices", "all-gather after it", "all-reduce by slices", "bound", "both ways around",
        "its bound", "window held it (µs)", "tail (µs)"), rows)


ALL_REDUCE = Figure("all-reduce", "The all-gather after the GEMM, tile by tile, too", _tasks, _evaluate, paper="beyond")
