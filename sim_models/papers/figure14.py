"""Figure 14: the multi-GPU reduce-scatter, against the ring's closed form and against all GPUs simulated."""

from t3sim.base import plots
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table
from t3sim.papers.paper import geomean, percent
from t3sim.runs import kernels
from t3sim.study.tasks.estimate import ring_ns
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import Workload


def tasks(setup: Scope) -> list[KernelTask]:
    return [task for layer in setup.arrays for task in _pair(setup, layer)]


def _pair(setup: Scope, layer: Workload) -> list[KernelTask]:
    """Make the two tasks: a representative GPU, and all GPUs."""
    return [setup.task(kernels.REDUCE_SCATTER, layer, mirrored=mirrored) for mirrored in (True, False)]


def evaluate(setup: Scope, results: Results) -> Findings:
    cases, rows = [], []
    for layer in setup.arrays:
        mirrored, whole = (results[task] for task in _pair(setup, layer))
        closed_ns = ring_ns(setup.machine, layer)
        cases.append({"figure": "figure14", "size_bytes": layer.output_bytes, "devices": layer.tp,
                      "mirrored_ns": mirrored.ns, "all_gpus_ns": whole.ns, "exchange_ns": mirrored.exchange_ns,
                      "closed_form_ns": closed_ns, "exchange_over_closed_form": mirrored.exchange_ns / closed_ns,
                      "mirrored_over_all_gpus": mirrored.ns / whole.ns})
        rows.append((f"{layer.output_bytes / 1e6:g}",
                     *(f"{ns / 1e3:,.1f}" for ns in (closed_ns, mirrored.exchange_ns, mirrored.ns, whole.ns)),
                     f"{percent(mirrored.exchange_ns / closed_ns):+.2f} %",
                     f"{percent(mirrored.ns / whole.ns):+.2f} %"))
    ours = {
        "exchange_error_geomean_percent": percent(geomean(
            max(case["exchange_over_closed_form"], 1 / case["exchange_over_closed_form"]) for case in cases)),
        "mirrored_error_max_percent": max(abs(percent(case["mirrored_over_all_gpus"])) for case in cases)}
    devices = setup.arrays[0].tp
    return Findings(
        text=f"In a ring reduce-scatter on {devices} GPUs, the {devices - 1} steps that exchange data differ from the "
             f"closed form by {ours['exchange_error_geomean_percent']:.2f} % (geometric mean). Simulating one "
             "representative GPU (\"mirrored\") and simulating all GPUs give the same time within "
             f"{ours['mirrored_error_max_percent']:.2f} %.",
        cases=cases, ours=ours,
        tables=[Table(f"Reduce-scatter on {devices} GPUs (µs); totals include the launch and the last local reduction",
                      ("MB", "closed form", "exchange", "total, mirrored", "total, all GPUs",
                       "exchange against closed form", "mirrored against all"), rows)],
        plots={"figure14": lambda: _draw(cases)})


def _draw(cases: list[dict]):
    figure, axes = plots.figure(3.2, width=0.7)
    x = [case["size_bytes"] / 1e6 for case in cases]
    for key, title, marker, colour in (("closed_form_ns", "closed form of the exchange", "", plots.BLACK),
                                       ("mirrored_ns", "a representative GPU", "o", plots.BLUE),
                                       ("all_gpus_ns", "all GPUs simulated", "x", plots.ORANGE)):
        axes.plot(x, [case[key] / 1e3 for case in cases], marker=marker, linestyle="--" if not marker else "",
                  color=colour, label=title, markersize=7, fillstyle="none", markeredgewidth=1.5)
    plots.log_axis(axes, "x", x)
    plots.log_axis(axes, "y")
    axes.set_xlabel("array size (MB)")
    axes.set_ylabel("time (µs)")
    axes.legend()
    return figure


FIGURE14 = Figure("figure14", "Multi-GPU reduce-scatter (figure 14)", tasks, evaluate, per_machine=True)
