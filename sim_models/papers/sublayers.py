"""Figures 15, 16 and 18 and section 6.4: time, speedup and DRAM traffic of sub-layers (sections 6.1, 6.2 and 6.4)."""

from t3sim.base import plots
from t3sim.mechanisms.result import DRAM_STREAMS
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
from t3sim.papers.paper import geomean, geomean_and_max, percent
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask

# Figures 15 and 16: how the time of a sub-layer divides, and what each technique gains (section 6.1).

def small_tasks(setup: Scope) -> list[KernelTask]:
    return tasks_of(setup, setup.small)


def _gains(runs: list[RunResult]) -> dict[str, float]:
    """Compute the quantities of section 6.1."""
    speedup = {name: [run.speedup[name] for run in runs] for name in FASTER}
    over_t3 = [mca / t3 for mca, t3 in zip(speedup["t3-mca"], speedup["t3"])]
    ours = {}
    for name in FASTER:
        if name != "ideal-rs-nmc":
            ours |= geomean_and_max(key_of(name), speedup[name])
    ideal, mca, plus = (ours[f"{key_of(name)}_geomean_percent"] for name in ("ideal-overlap", "t3-mca", "t3-mca+"))
    ours["t3_mca_plus_closes_percent"] = 100 * (plus - mca) / (ideal - mca) if ideal > mca else 100.0
    ours["t3_mca_below_ideal_points"] = ideal - mca
    ours["t3_mca_over_t3_geomean_percent"] = percent(geomean(over_t3))
    ours["t3_mca_over_t3_max_percent"] = percent(max(over_t3))
    for key, layer_key in (("smallest_ideal_percent", ("mega-gpt-2", "op", 16)),
                           ("balanced_ideal_percent", ("t-nlg", "fc1", 16))):
        for run in runs:
            if (run.workload.model, run.workload.sublayer, run.workload.tp) == layer_key:
                ours[key] = percent(run.speedup["ideal-overlap"])
    for tp in sorted({run.workload.tp for run in runs}):
        ours[f"rs_nmc_faster_tp{tp}_percent"] = percent(geomean(
            run.techniques["ideal-overlap"].rs_ns / run.techniques["ideal-rs-nmc"].rs_ns
            for run in runs if run.workload.tp == tp))
    ours["ideal_rs_nmc_over_ideal_max_percent"] = percent(max(
        nmc / ideal for nmc, ideal in zip(speedup["ideal-rs-nmc"], speedup["ideal-overlap"])))
    return ours


def evaluate_figure16(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.small)
    ours = _gains(runs)
    best = max(runs, key=lambda run: run.speedup["t3-mca"])
    return Findings(
        text=f"T3-MCA makes the {len(runs)} sub-layers {ours['t3_mca_geomean_percent']:.1f} % faster (geometric mean), "
             f"and at most {ours['t3_mca_max_percent']:.1f} % ({best.workload.title}). A perfect overlap would give "
             f"{ours['ideal_overlap_geomean_percent']:.1f} %. The all-gather takes about as long as the reduce-scatter "
             "and is never hidden, so no speedup can be much above 1.5.",
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
        text=f"If kernels run one after the other, communication takes {100 * min(shares):.0f} to "
             f"{100 * max(shares):.0f} % of a sub-layer's time. Overlap can gain most if GEMM and reduce-scatter take "
             "equally long (GEMM over RS = 1).",
        ours={"communication_share_min_percent": 100 * min(shares),
              "communication_share_max_percent": 100 * max(shares)},
        cases=[case("figure15", run) for run in runs],
        tables=[Table("Isolated kernels (µs)", ("sub-layer", "GEMM", "RS", "AG", "total", "GEMM share", "GEMM over RS",
                                                "GEMM TFLOP/s"), rows)],
        plots={"figure15": lambda: _draw_shares(runs)})


def _draw_shares(runs: list[RunResult]):
    figure, axes = plots.figure(3.2)
    plots.stacked_bars(axes, [*range(len(runs))], (
        (title, colour, hatch, [100 * getattr(run.baseline, key) / run.baseline.total_ns for run in runs])
        for title, key, colour, hatch in (("GEMM", "gemm_ns", plots.BLUE, ""), ("RS", "rs_ns", plots.ORANGE, "////"),
                                          ("AG", "ag_ns", plots.LIGHT, ""))), edgecolor="white", linewidth=0.5)
    name_layers(axes, [run.workload for run in runs])
    axes.set_ylabel("share of the time (%)")
    plots.legend_above(axes, 3)
    return figure


FIGURE15 = Figure("figure15", "Where a sub-layer's time goes (figure 15)", small_tasks, evaluate_figure15,
                  per_machine=True)
FIGURE16 = Figure("figure16", "Speedup of the sub-layers (figure 16)", small_tasks, evaluate_figure16, per_machine=True)


# Figure 18: DRAM accesses of a sub-layer by who made them (section 6.2).

_RATIOS = ("rs_read_ratio", "write_ratio", "gemm_read_ratio")


def evaluate_figure18(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.small)
    cases = [case("figure18", run) for run in runs]
    changes = [100 * entry["dram_change"] for entry in cases]
    ours = {"dram_change_mean_percent": sum(changes) / len(changes), "dram_change_max_percent": min(changes)}
    for ratio in _RATIOS:
        for tp in sorted({entry["tp"] for entry in cases}):
            ours[f"{ratio}_tp{tp}"] = geomean(entry[ratio] for entry in cases if entry["tp"] == tp)
        ours[f"{ratio}_geomean"] = geomean(entry[ratio] for entry in cases)
    rows = []
    for run, entry in zip(runs, cases):
        base, mca = run.baseline.dram, run.techniques["t3-mca"].dram
        rows.append((run.workload.title, *(f"{base[stream] / 1e6:,.0f} → {mca[stream] / 1e6:,.0f}"
                                           for stream in DRAM_STREAMS[:4]),
                     f"{(mca['ag_read'] + mca['ag_write']) / 1e6:,.0f}", f"{entry['gemm_read_ratio']:.2f}",
                     f"{entry['rs_read_ratio']:.2f}", f"{entry['write_ratio']:.3f}",
                     f"{100 * entry['dram_change']:+.1f} %"))
    return Findings(
        text=f"T3-MCA reduces a sub-layer's DRAM traffic by {-ours['dram_change_mean_percent']:.1f} % on average and "
             f"by {-ours['dram_change_max_percent']:.1f} % at most. Near-memory reduction saves the reads of partial "
             "sums and the last pass, the first chunk is sent without being stored in the GPU's own DRAM, and the "
             "output bypasses the cache, which leaves more room for the inputs.",
        cases=cases, ours=ours,
        tables=[Table("DRAM traffic of one GPU, sequential → T3-MCA (MB), and ratios sequential over T3-MCA",
                      ("sub-layer", "GEMM reads", "GEMM writes", "RS reads", "RS writes", "AG", "GEMM read ratio",
                       "RS read ratio", "write ratio", "change"), rows)],
        plots={"figure18": lambda: _draw_traffic(runs)})


def _draw_traffic(runs: list[RunResult]):
    figure, axes = plots.figure(3.8)
    for offset, name in ((-0.2, "sequential"), (0.2, "t3-mca")):
        plots.stacked_bars(axes, [x + offset for x in range(len(runs))], (
            (title if name == "sequential" else None, colour, hatch,
             [100 * run.techniques[name].dram[stream] / sum(run.baseline.dram.values()) for run in runs])
            for stream in DRAM_STREAMS for title, colour, hatch in [plots.STREAM_STYLES[stream]]),
                           0.36, edgecolor="white", linewidth=0.4)
    name_layers(axes, [run.workload for run in runs])
    axes.set_ylabel("DRAM bytes (% of sequential)")
    axes.set_title("left bar: sequential, right bar: T3-MCA", fontsize=8.5, loc="left", pad=16)
    axes.legend(loc="upper right", ncols=6, bbox_to_anchor=(1.0, 1.13), columnspacing=1.2, handlelength=1.4)
    return figure


FIGURE18 = Figure("figure18", "DRAM traffic (figure 18)", small_tasks, evaluate_figure18, per_machine=True)


# Section 6.4: larger Transformers at TP 32.

def evaluate_tp32(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.large)
    ours = {}
    for name in FASTER:
        ours |= geomean_and_max(key_of(name), [run.speedup[name] for run in runs])
    return Findings(
        text=f"On the larger models T3-MCA gains {ours['t3_mca_geomean_percent']:.1f} % (geometric mean) and "
             f"{ours['t3_mca_max_percent']:.1f} % at most. A perfect overlap would give "
             f"{ours['ideal_overlap_geomean_percent']:.1f} % (geometric mean).",
        cases=[case("tp32", run) for run in runs], ours=ours, tables=[speedup_table(runs)],
        plots={"tp32": lambda: draw_speedups("tp32", runs)})


TABLE_TP32 = Figure("tp32", "Larger Transformers, TP 32 (section 6.4)",
                    lambda setup: tasks_of(setup, setup.large), evaluate_tp32, short="TP 32", per_machine=True)
