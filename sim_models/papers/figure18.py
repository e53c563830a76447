"""Figure 18: DRAM accesses of a sub-layer by who made them (section 6.2)."""

from t3sim.base import plots
from t3sim.mechanisms.result import DRAM_STREAMS
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table, case
from t3sim.papers.figure15_16 import small_tasks
from t3sim.papers.layers import name_layers, runs_of
from t3sim.papers.paper import geomean
from t3sim.study.results import RunResult

_RATIOS = ("rs_read_ratio", "write_ratio", "gemm_read_ratio")


def evaluate(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.small)
    cases = [case("figure18", run) for run in runs]
    changes = [100 * one["dram_change"] for one in cases]
    ours = {"dram_change_mean_percent": sum(changes) / len(changes), "dram_change_max_percent": min(changes)}
    for ratio in _RATIOS:
        for tp in sorted({one["tp"] for one in cases}):
            ours[f"{ratio}_tp{tp}"] = geomean(one[ratio] for one in cases if one["tp"] == tp)
        ours[f"{ratio}_geomean"] = geomean(one[ratio] for one in cases)
    rows = []
    for run, one in zip(runs, cases):
        base, mca = run.baseline.dram, run.techniques["t3-mca"].dram
        rows.append((run.workload.title, *(f"{base[stream] / 1e6:,.0f} → {mca[stream] / 1e6:,.0f}"
                                           for stream in DRAM_STREAMS[:4]),
                     f"{(mca['ag_read'] + mca['ag_write']) / 1e6:,.0f}", f"{one['gemm_read_ratio']:.2f}",
                     f"{one['rs_read_ratio']:.2f}", f"{one['write_ratio']:.3f}", f"{100 * one['dram_change']:+.1f} %"))
    return Findings(
        text=f"With T3-MCA a sub-layer moves {-ours['dram_change_mean_percent']:.1f} % fewer bytes to and from DRAM "
             f"on average, {-ours['dram_change_max_percent']:.1f} % at most. Near-memory reduction takes away reads of "
             "partial copies and the last pass, the first chunk never touches its own DRAM, and an output that "
             "bypasses the cache leaves it to the inputs.",
        cases=cases, ours=ours,
        tables=[Table("DRAM traffic of one GPU, sequential → T3-MCA (MB), and ratios sequential over T3-MCA",
                      ("sub-layer", "GEMM reads", "GEMM writes", "RS reads", "RS writes", "AG", "GEMM read ratio",
                       "RS read ratio", "write ratio", "change"), rows)],
        plots={"figure18": lambda: _draw(runs)})


def _draw(runs: list[RunResult]):
    drawn, axes = plots.figure(3.8)
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
    return drawn


FIGURE18 = Figure("figure18", "DRAM traffic (figure 18)", small_tasks, evaluate, per_machine=True)
