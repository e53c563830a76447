"""Figures 15 and 16: how the time of a sub-layer divides, and what each technique gains (section 6.1)."""

from t3sim.base import plots
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table, case
from t3sim.papers.layers import (
    FASTER,
    draw_speedups,
    key_of,
    name_layers,
    runs_of,
    speedup_table,
    tasks_of,
)
from t3sim.papers.paper import geomean, percent
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask


def small_tasks(setup: Scope) -> list[KernelTask]:
    return tasks_of(setup, setup.small)


def _gains(runs: list[RunResult]) -> dict[str, float]:
    """Compute the quantities of section 6.1."""
    speedup = {name: [run.speedup[name] for run in runs] for name in FASTER}
    over_t3 = [mca / t3 for mca, t3 in zip(speedup["t3-mca"], speedup["t3"])]
    ours = {}
    for name in FASTER:
        if name != "ideal-rs-nmc":
            key = key_of(name)
            ours[f"{key}_geomean_percent"] = percent(geomean(speedup[name]))
            ours[f"{key}_max_percent"] = percent(max(speedup[name]))
    if "t3-mca+" in FASTER:
        ideal, mca, plus = (ours[f"{key_of(name)}_geomean_percent"] for name in ("ideal-overlap", "t3-mca", "t3-mca+"))
        ours["t3_mca_plus_closes_percent"] = 100 * (plus - mca) / (ideal - mca) if ideal > mca else 100.0
    ours["t3_mca_below_ideal_points"] = ours["ideal_overlap_geomean_percent"] - ours["t3_mca_geomean_percent"]
    ours["t3_mca_over_t3_geomean_percent"] = percent(geomean(over_t3))
    ours["t3_mca_over_t3_max_percent"] = percent(max(over_t3))
    for key, wanted in (("smallest_ideal_percent", ("mega-gpt-2", "op", 16)),
                        ("balanced_ideal_percent", ("t-nlg", "fc1", 16))):
        for run in runs:
            if (run.workload.model, run.workload.sublayer, run.workload.tp) == wanted:
                ours[key] = percent(run.speedup["ideal-overlap"])
    for tp in sorted({run.workload.tp for run in runs}):
        ours[f"rs_nmc_faster_tp{tp}_percent"] = percent(geomean(
            run.techniques["ideal-overlap"].rs_ns / run.techniques["ideal-rs-nmc"].rs_ns
            for run in runs if run.workload.tp == tp))
    ours["ideal_rs_nmc_over_ideal_max_percent"] = percent(max(
        more / ideal for more, ideal in zip(speedup["ideal-rs-nmc"], speedup["ideal-overlap"])))
    return ours


def evaluate_figure16(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.small)
    ours = _gains(runs)
    best = max(runs, key=lambda run: run.speedup["t3-mca"])
    return Findings(
        text=f"T3-MCA makes the {len(runs)} sub-layers {ours['t3_mca_geomean_percent']:.1f} % faster on geometric "
             f"mean, at most {ours['t3_mca_max_percent']:.1f} % ({best.workload.title}); a perfect overlap would give "
             f"{ours['ideal_overlap_geomean_percent']:.1f} %. The all-gather, about as long as the reduce-scatter, "
             "stays exposed in all of them, so no speedup can exceed 1.5 by much.",
        cases=[case("figure16", run) for run in runs], ours=ours,
        tables=[speedup_table(runs)],
        plots={"figure16": lambda: draw_speedups("figure16", runs)})


def evaluate_figure15(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.small)
    rows, shares = [], []
    for run in runs:
        base = run.baseline
        shares.append(1 - base.gemm_ns / base.total_ns)
        rows.append((run.workload.title, *(f"{ns / 1e3:,.1f}" for ns in (base.gemm_ns, base.rs_ns, base.ag_ns,
                                                                         base.total_ns)),
                     f"{100 * base.gemm_ns / base.total_ns:.0f} %", f"{base.gemm_ns / base.rs_ns:.2f}",
                     f"{run.workload.flop / base.gemm_ns / 1e3:.1f}"))
    return Findings(
        text=f"Communication takes {100 * min(shares):.0f} to {100 * max(shares):.0f} % of a sub-layer that runs its "
             "kernels one after the other. Where GEMM and reduce-scatter take the same time (GEMM over RS = 1), "
             "overlap has most to hide.",
        ours={"communication_share_min_percent": 100 * min(shares),
              "communication_share_max_percent": 100 * max(shares)},
        cases=[case("figure15", run) for run in runs],
        tables=[Table("Isolated kernels (µs)", ("sub-layer", "GEMM", "RS", "AG", "total", "GEMM share", "GEMM over RS",
                                                "GEMM TFLOP/s"), rows)],
        plots={"figure15": lambda: _draw_shares(runs)})


def _draw_shares(runs: list[RunResult]):
    drawn, axes = plots.figure(3.2)
    plots.stacked_bars(axes, [*range(len(runs))], (
        (title, colour, hatch, [100 * getattr(run.baseline, key) / run.baseline.total_ns for run in runs])
        for title, key, colour, hatch in (("GEMM", "gemm_ns", plots.BLUE, ""), ("RS", "rs_ns", plots.ORANGE, "////"),
                                          ("AG", "ag_ns", plots.LIGHT, ""))), edgecolor="white", linewidth=0.5)
    name_layers(axes, [run.workload for run in runs])
    axes.set_ylabel("share of the time (%)")
    axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.14))
    return drawn


FIGURE15 = Figure("figure15", "Where a sub-layer's time goes (figure 15)", small_tasks, evaluate_figure15,
                  per_machine=True)
FIGURE16 = Figure("figure16", "Speedup of the sub-layers (figure 16)", small_tasks, evaluate_figure16, per_machine=True)
