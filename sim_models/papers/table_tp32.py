"""Section 6.4: larger Transformers at TP 32."""

from t3sim.papers.figure import Figure, Findings, Results, Scope, case
from t3sim.papers.layers import FASTER, draw_speedups, key_of, runs_of, speedup_table, tasks_of
from t3sim.papers.paper import geomean, percent


def evaluate(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.large)
    ours = {}
    for name in FASTER:
        speedups, key = [run.speedup[name] for run in runs], key_of(name)
        ours[f"{key}_geomean_percent"], ours[f"{key}_max_percent"] = percent(geomean(speedups)), percent(max(speedups))
    return Findings(
        text=f"On the larger models T3-MCA gains {ours['t3_mca_geomean_percent']:.1f} % on geometric mean and "
             f"{ours['t3_mca_max_percent']:.1f} % at most. A perfect overlap would give "
             f"{ours['ideal_overlap_geomean_percent']:.1f} %.",
        cases=[case("tp32", run) for run in runs], ours=ours, tables=[speedup_table(runs)],
        plots={"tp32": lambda: draw_speedups("tp32", runs)})


TABLE_TP32 = Figure("tp32", "Larger Transformers, TP 32 (section 6.4)",
                    lambda setup: tasks_of(setup, setup.large), evaluate, short="TP 32", per_machine=True)
