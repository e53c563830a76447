"""Beyond the T3 paper: GEMMs after an all-gather, whose workgroups start when their activations have come."""

from t3sim.analytic.rings import ring_time_ns
from t3sim.base import plots
from t3sim.mechanisms.result import BASELINE
from t3sim.papers.figure import (
    TECHNIQUE_TITLES,
    Figure,
    Findings,
    Quantities,
    Results,
    Scope,
    Table,
    case,
    layer_result,
)
from t3sim.papers.figure import layer_tasks as tasks_of_layer
from t3sim.papers.layers import layer_bars
from t3sim.papers.paper import geomean, percent
from t3sim.runs.exchange import Exchange
from t3sim.runs.gather_before import tiling_for
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload, behind_all_gather

_GATHERED = Exchange("ag", before=True)
_BOUND = "ideal-overlap"
_SHOWN = ("t3", "t3-mca", _BOUND)
_FORWARD = ("ip", "fc1")  #: sub-layers that sequence parallelism gathers for in the forward pass


def _layers(setup: Scope) -> list[Workload]:
    return [behind_all_gather(one) for one in (*setup.small, *setup.large) if one.sublayer in _FORWARD]


def _tasks(setup: Scope) -> list[KernelTask]:
    return [task for workload in _layers(setup) for task in tasks_of_layer(
        setup, workload, (BASELINE, *_SHOWN), _GATHERED.hardware(setup.machine, workload), _GATHERED)]


def closed_form_ns(run: RunResult) -> float:
    """Compute the time from the GEMM's alone: it takes at least that, and ends a group's share after the ring.

    The last group's workgroups start when the ring is over, and take a stage of the GEMM at least.
    """
    gpu, workload, gemm_ns = run.machine.gpu, run.workload, run.baseline.gemm_ns
    tiles = -(-workload.m // gpu.tile_n) * -(-workload.n // gpu.tile_m)
    stages = -(-tiles // (gpu.compute_units * gpu.workgroups_per_cu))
    groups = tiling_for(run.machine, workload).tile_columns
    ring_ns = ring_time_ns(run.machine, workload.activation_bytes, workload.tp)
    return max(gemm_ns, ring_ns + max(gemm_ns / stages, gemm_ns / groups))


def _evaluate(setup: Scope, results: Results) -> Findings:
    runs = [layer_result(setup, results, workload, (BASELINE, *_SHOWN), _GATHERED.hardware(setup.machine, workload),
                         _GATHERED) for workload in _layers(setup)]
    forms = [closed_form_ns(run) for run in runs]
    off = [run.techniques["t3"].total_ns / form for run, form in zip(runs, forms)]
    series = {name: [run.speedup[name] for run in runs] for name in _SHOWN}
    reached = [t3 / bound for t3, bound in zip(series["t3"], series[_BOUND])]
    ours = Quantities("beyond the paper")
    for name, value, title in (
            ("t3_geomean", percent(geomean(series["t3"])), "speedup of T3 over sequential, geomean"),
            ("t3_max", percent(max(series["t3"])), "speedup of T3 over sequential, largest"),
            ("t3_mca_geomean", percent(geomean(series["t3-mca"])), "speedup of T3-MCA over sequential, geomean"),
            ("ideal_geomean", percent(geomean(series[_BOUND])), "speedup of the ideal overlap, geomean"),
            ("share_of_bound", 100 * geomean(reached), "of the ideal's speedup, geomean"),
            ("share_of_bound_min", 100 * min(reached), "of the ideal's speedup, smallest"),
            ("closed_form_off_max", 100 * max(abs(one - 1) for one in off),
             "distance of T3 from the closed form, largest")):
        ours.add(f"{name}_percent", value, "%", title)
    return Findings(
        text=f"A GEMM whose workgroups start when their activations have come is {ours['t3_geomean_percent']:.1f} % "
             f"faster than one after its all-gather on geometric mean (T3-MCA: "
             f"{ours['t3_mca_geomean_percent']:.1f} %), where the longer of the two alone would give "
             f"{ours['ideal_geomean_percent']:.1f} %. A closed form from the GEMM's time alone, the ring and the last "
             f"group's stage is met within {ours['closed_form_off_max_percent']:.1f} %.",
        cases=[case("all-gather-gemm", run, closed_form_ns=form) for run, form in zip(runs, forms)], ours=ours,
        targets=ours.targets,
        tables=[_table(runs, forms)], plots={"all-gather-gemm": lambda: layer_bars(
            _layers(setup), series, plots.TECHNIQUE_COLOURS, TECHNIQUE_TITLES)})


def _table(runs: list[RunResult], forms: list[float]) -> Table:
    rows = []
    for run, form in zip(runs, forms):
        base, t3 = run.baseline, run.techniques["t3"]
        rows.append((run.workload.title.replace(" after its all-gather", ""),
                     *(f"{ns / 1e3:,.0f}" for ns in (base.gemm_ns, base.ag_ns, base.total_ns, t3.total_ns, form)),
                     *(f"{run.speedup[name]:.3f}" for name in _SHOWN),
                     f"{t3.loss_ns['inputs_not_there'] / 1e3:,.0f}"))
    return Table("Times in µs, and speedup over sequential", (
        "sub-layer", "GEMM alone", "all-gather alone", "sequential", "T3", "closed form",
        *(TECHNIQUE_TITLES[name] for name in _SHOWN), "inputs not there (µs)"), rows)


ALL_GATHER_GEMM = Figure("all-gather-gemm", "GEMMs after an all-gather of their activations", _tasks, _evaluate,
                         paper="beyond")
