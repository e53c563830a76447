"""Beyond the T3 paper: the all-gather behind the GEMM, a switch that adds, and GEMMs after an all-gather."""

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
)
from t3sim.papers.layers import layer_bars, runs_of, tasks_of
from t3sim.papers.paper import geomean, percent
from t3sim.runs.exchange import Exchange
from t3sim.runs.gather_before import tiling_for
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload, behind_all_gather

_BOUND = "ideal-overlap"
_FUSED = (BASELINE, "t3-mca")

# The all-gather, which the paper leaves after the fused kernel, hidden behind the GEMM as well.

_SLICED, _BOTH_WAYS = Exchange("ar"), Exchange("ar", "both-rings")
_SLICED_COLOURS = {"after": plots.LIGHT, "within": plots.BLUE, "bound": plots.ORANGE, "both": plots.GREEN}
_SLICED_TITLES = {"after": "T3-MCA, then the all-gather", "within": "T3-MCA, all-reduce by slices",
                  "bound": "bound: the longer of GEMM and RS + AG", "both": "T3-MCA over sequential, both ways around"}


def _tasks_all_reduce(setup: Scope) -> list[KernelTask]:
    return [*tasks_of(setup, setup.layers, _FUSED), *tasks_of(setup, setup.layers, ("t3-mca",), _SLICED),
            *tasks_of(setup, setup.layers, _FUSED, _BOTH_WAYS)]


def _evaluate_all_reduce(setup: Scope, results: Results) -> Findings:
    after_runs = runs_of(setup, results, setup.layers, _FUSED)
    within_runs, both_runs = (runs_of(setup, results, setup.layers, (*_FUSED, _BOUND), exchange)
                              for exchange in (_SLICED, _BOTH_WAYS))
    cases, rows = [], []
    for after, within, both in zip(after_runs, within_runs, both_runs):
        layer, fused, bound_ns = after.workload, within.techniques["t3-mca"], within.techniques[_BOUND].total_ns
        cases.append({
            "figure": "all-reduce", "title": layer.title, "M": layer.m, "N": layer.n, "K": layer.k, "tp": layer.tp,
            "slices": fused.hardware.slices,
            "total_ns": {"sequential": within.baseline.total_ns, "t3-mca": after.techniques["t3-mca"].total_ns,
                         "all-reduce": fused.total_ns, "bound": bound_ns,
                         **{f"{name} both ways": both.techniques[name].total_ns for name in _FUSED}},
            "loss_ns": fused.loss_ns, "streams_bytes": fused.streams_bytes})
        rows.append((layer.title, str(fused.hardware.slices), f"{after.speedup['t3-mca']:.3f}",
                     f"{within.speedup['t3-mca']:.3f}", f"{within.baseline.total_ns / bound_ns:.3f}",
                     f"{both.speedup['t3-mca']:.3f}", f"{both.speedup[_BOUND]:.3f}",
                     f"{fused.loss_ns['window_blocked'] / 1e3:,.0f}", f"{fused.loss_ns['link_tail'] / 1e3:,.0f}"))
    series = {"after": [run.speedup["t3-mca"] for run in after_runs],
              "within": [run.speedup["t3-mca"] for run in within_runs],
              "bound": [run.speedup[_BOUND] for run in within_runs],
              "both": [run.speedup["t3-mca"] for run in both_runs]}
    after_ratios = [new / old for new, old in zip(series["within"], series["after"])]
    bound_shares, both_bound_shares = ([run.speedup["t3-mca"] / run.speedup[_BOUND] for run in runs]
                                       for runs in (within_runs, both_runs))
    ours = Quantities("beyond the paper")
    for name, value, title in (
            ("all_reduce_geomean", percent(geomean(series["within"])), "speedup over sequential, geomean"),
            ("all_reduce_max", percent(max(series["within"])), "speedup over sequential, largest"),
            ("over_t3_mca_geomean", percent(geomean(after_ratios)), "speedup over T3-MCA, geomean"),
            ("over_t3_mca_min", percent(min(after_ratios)), "speedup over T3-MCA, smallest"),
            ("share_of_bound", 100 * geomean(bound_shares), "share of the bound's speedup, geomean"),
            ("both_ways_geomean", percent(geomean(series["both"])),
             "both ways around, speedup over such a sequence, geomean"),
            ("both_ways_max", percent(max(series["both"])), "both ways around, largest"),
            ("both_ways_share_of_bound", 100 * geomean(both_bound_shares),
             "both ways around, share of the bound's speedup, geomean")):
        ours.add(f"{name}_percent", value, "%", title)
    return Findings(
        text="If each slice is gathered while later slices are computed and reduced, layers are "
             f"{ours['all_reduce_geomean_percent']:.1f} % faster than sequential (geometric mean), and "
             f"{ours['over_t3_mca_geomean_percent']:.1f} % faster than T3-MCA followed by an all-gather. This is "
             f"{ours['share_of_bound_percent']:.0f} % of the speedup of the bound, the longer of the GEMM and the two "
             f"rings. With rings in both directions they are {ours['both_ways_geomean_percent']:.1f} % faster than a "
             "sequence that uses both directions.",
        cases=cases, ours=ours,
        tables=[Table("Speedup over sequential, and losses", (
            "sub-layer", "slices", "then all-gather", "all-reduce by slices", "bound", "both ways around",
            "bound both ways", "blocked by window (µs)", "tail (µs)"), rows)],
        plots={"all-reduce": lambda: layer_bars(setup.layers, series, _SLICED_COLOURS, _SLICED_TITLES, columns=2)})


ALL_REDUCE = Figure("all-reduce", "The all-gather overlapped as well, tile by tile", _tasks_all_reduce,
                    _evaluate_all_reduce, paper="beyond")

# After section 7.4: Track & Trigger around a switch that adds and copies, and that switch alone.

_RING, _SWITCHED = Exchange(topology="switch"), Exchange("ar", "in-switch", "switch")
_ALONE = (BASELINE, "in-switch", "t3-mca")
_SWITCH_COLOURS = {"in-switch": plots.LIGHT, "t3-mca": plots.ORANGE, "both": plots.BLUE}
_SWITCH_TITLES = {"in-switch": "GEMM, then all-reduce in the switch", "t3-mca": "T3-MCA, ring, then all-gather",
                  "both": "T3-MCA, all-reduce in the switch"}


def _tasks_in_switch(setup: Scope) -> list[KernelTask]:
    return [*tasks_of(setup, setup.layers, _ALONE, _RING), *tasks_of(setup, setup.layers, ("t3-mca",), _SWITCHED)]


def _evaluate_in_switch(setup: Scope, results: Results) -> Findings:
    ring_runs = runs_of(setup, results, setup.layers, _ALONE, _RING)
    series = {name: [run.speedup[name] for run in ring_runs] for name in ("in-switch", "t3-mca")} | {"both": []}
    cases, rows, over_t3, bound_shares = [], [], [], []
    for run, switched_run in zip(ring_runs, runs_of(setup, results, setup.layers, ("t3-mca",), _SWITCHED)):
        layer, fused = run.workload, switched_run.techniques["t3-mca"]
        bound_ns = max(run.baseline.gemm_ns, _SWITCHED.link_bytes(layer) / run.machine.link.bandwidth_gb_per_s)
        series["both"].append(run.baseline.total_ns / fused.total_ns)
        over_t3.append(run.techniques["t3-mca"].total_ns / fused.total_ns)
        bound_shares.append(bound_ns / fused.total_ns)
        times = {name: technique.total_ns for name, technique in run.techniques.items()} | {
            "t3-mca in the switch": fused.total_ns, "bound": bound_ns}
        cases.append({"figure": "in-switch", "title": layer.title, "M": layer.m, "N": layer.n, "K": layer.k,
                      "tp": layer.tp, "total_ns": times})
        rows.append((layer.title, *(f"{ns / 1e3:,.1f}" for ns in times.values()), f"{over_t3[-1]:.3f}",
                     f"{fused.hardware.switch_sum_bytes / 1e6:.2f}"))
    ours = Quantities("beyond the paper")
    for name, value, title in (
            ("in_switch_geomean", percent(geomean(series["in-switch"])),
             "all-reduce in the switch after the GEMM, over sequential, geomean"),
            ("t3_mca_geomean", percent(geomean(series["t3-mca"])), "T3-MCA over sequential, geomean"),
            ("both_geomean", percent(geomean(series["both"])), "T3-MCA with the switch over sequential, geomean"),
            ("both_over_t3_mca_geomean", percent(geomean(over_t3)), "T3-MCA with the switch over T3-MCA, geomean"),
            ("both_over_t3_mca_max", percent(max(over_t3)), "T3-MCA with the switch over T3-MCA, largest"),
            ("share_of_bound", 100 * geomean(bound_shares), "share of the bound's speed, geomean")):
        ours.add(f"{name}_percent", value, "%", title)
    return Findings(
        text="With a switch that adds and copies, T3-MCA is "
             f"{ours['both_over_t3_mca_geomean_percent']:.1f} % faster than T3-MCA with a ring, and "
             f"{ours['both_geomean_percent']:.1f} % faster than sequential (geometric means). The switch without Track "
             f"& Trigger is {ours['in_switch_geomean_percent']:.1f} % faster than sequential. The bound is the longer "
             "of the GEMM and one transfer of its output over a link.",
        cases=cases, ours=ours,
        tables=[Table("Time (µs), and largest content of a port's memory", (
            "sub-layer", "sequential", "in-switch", "T3-MCA", "T3-MCA in the switch", "bound", "over T3-MCA",
            "content (MB)"), rows)],
        plots={"in-switch": lambda: layer_bars(setup.layers, series, _SWITCH_COLOURS, _SWITCH_TITLES)})


IN_SWITCH = Figure("in-switch", "A switch that adds and copies, with and without T3", _tasks_in_switch,
                   _evaluate_in_switch, paper="beyond")

# GEMMs after an all-gather, whose workgroups start when their activations have come.

_GATHERED = Exchange("ag", before=True)
_SHOWN = ("t3", "t3-mca", _BOUND)


def _gathered_layers(setup: Scope) -> list[Workload]:
    """Return the layers for which sequence parallelism gathers in the forward pass."""
    return [behind_all_gather(layer) for layer in setup.layers if layer.sublayer in ("ip", "fc1")]


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


def _evaluate_all_gather_gemm(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, _gathered_layers(setup), (BASELINE, *_SHOWN), _GATHERED)
    cases, rows, form_ratios = [], [], []
    for run in runs:
        base, t3, form_ns = run.baseline, run.techniques["t3"], closed_form_ns(run)
        cases.append(case("all-gather-gemm", run, closed_form_ns=form_ns))
        form_ratios.append(t3.total_ns / form_ns)
        rows.append((run.workload.title.replace(" after its all-gather", ""),
                     *(f"{ns / 1e3:,.0f}" for ns in (base.gemm_ns, base.ag_ns, base.total_ns, t3.total_ns, form_ns)),
                     *(f"{run.speedup[name]:.3f}" for name in _SHOWN),
                     f"{t3.loss_ns['inputs_not_there'] / 1e3:,.0f}"))
    series = {name: [run.speedup[name] for run in runs] for name in _SHOWN}
    bound_shares = [t3 / bound for t3, bound in zip(series["t3"], series[_BOUND])]
    ours = Quantities("beyond the paper")
    for name, value, title in (
            ("t3_geomean", percent(geomean(series["t3"])), "speedup of T3 over sequential, geomean"),
            ("t3_max", percent(max(series["t3"])), "speedup of T3 over sequential, largest"),
            ("t3_mca_geomean", percent(geomean(series["t3-mca"])), "speedup of T3-MCA over sequential, geomean"),
            ("ideal_geomean", percent(geomean(series[_BOUND])), "speedup of the ideal overlap, geomean"),
            ("share_of_bound", 100 * geomean(bound_shares), "share of the ideal's speedup, geomean"),
            ("share_of_bound_min", 100 * min(bound_shares), "share of the ideal's speedup, smallest"),
            ("closed_form_off_max", 100 * max(abs(ratio - 1) for ratio in form_ratios),
             "distance of T3 from the closed form, largest")):
        ours.add(f"{name}_percent", value, "%", title)
    return Findings(
        text="If workgroups start as soon as their activations have arrived, an all-gather and its GEMM are "
             f"{ours['t3_geomean_percent']:.1f} % faster than one after the other (geometric mean; T3-MCA: "
             f"{ours['t3_mca_geomean_percent']:.1f} %). The bound, the longer of the two alone, would give "
             f"{ours['ideal_geomean_percent']:.1f} %. A closed form of the GEMM alone, the ring and the last group's "
             f"stage is within {ours['closed_form_off_max_percent']:.1f} % of T3's times.",
        cases=cases, ours=ours,
        tables=[Table("Times in µs, and speedup over sequential", (
            "sub-layer", "GEMM alone", "all-gather alone", "sequential", "T3", "closed form",
            *(TECHNIQUE_TITLES[name] for name in _SHOWN), "waits for inputs (µs)"), rows)],
        plots={"all-gather-gemm": lambda: layer_bars(_gathered_layers(setup), series, plots.TECHNIQUE_COLOURS,
                                                     TECHNIQUE_TITLES)})


ALL_GATHER_GEMM = Figure(
    "all-gather-gemm", "GEMMs after an all-gather of their activations",
    lambda setup: tasks_of(setup, _gathered_layers(setup), (BASELINE, *_SHOWN), _GATHERED),
    _evaluate_all_gather_gemm, paper="beyond")
