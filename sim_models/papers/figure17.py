"""Figure 17: DRAM traffic over time, of the GEMM alone and of the fused kernels (section 6.1.2)."""

import numpy as np

from t3sim.base import plots
from t3sim.mechanisms.track_trigger import FUSIONS
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table
from t3sim.papers.paper import percent
from t3sim.runs import kernels
from t3sim.runs.kernel_results import IsolatedKernel, KernelResult
from t3sim.runs.phases import PURPOSES, by_stream
from t3sim.study.tasks.task import KernelTask

WINDOW_NS = 1000
_KERNELS = {"GEMM alone": kernels.GEMM, "T3": FUSIONS["t3"],
            "T3-MCA": FUSIONS["t3-mca"]}
_STREAMS = PURPOSES[:4]  # the all-gather comes later
_ZOOM = (0.35, 0.5)  # of the time
_MOST_SHAPES = 300  # windows drawn as shapes: more are finer than a screen and make a large file


def _tasks(setup: Scope) -> dict[str, KernelTask]:
    window = round(WINDOW_NS * setup.machine.memory_clock_ghz)
    return {title: setup.task(kernel, setup.timed_layer, window_cycles=window) for title, kernel in _KERNELS.items()}


def _end_ns(kernel: KernelResult, clock_ghz: float) -> float:
    """Return when the GEMM's last workgroup has finished."""
    return kernel.ns if isinstance(kernel, IsolatedKernel) else kernel.gemm_cycles / clock_ghz


def evaluate(setup: Scope, results: Results) -> Findings:
    clock = setup.machine.memory_clock_ghz
    kernel_results = {title: results[task] for title, task in _tasks(setup).items()}
    ends = {title: _end_ns(kernel, clock) for title, kernel in kernel_results.items()}
    rates = {title: _rates(kernel, clock) for title, kernel in kernel_results.items()}
    alone_rates = rates["GEMM alone"][1]
    reads, writes = (alone_rates[:, PURPOSES.index(name)] for name in ("gemm_read", "gemm_write"))
    write_windows = writes > reads
    slower_percent = {title: percent(ends[title] / ends["GEMM alone"]) for title in ("T3", "T3-MCA")}
    rows = []
    for title, kernel in kernel_results.items():
        times, rate = rates[title]
        rows.append((title, f"{ends[title] / 1e3:,.1f}", f"{times[-1] / 1e3:,.1f}",
                     *(f"{count / 1e6:,.0f}" for phase in ("gemm", "rs") for count in kernel.dram[phase]),
                     f"{rate.sum(axis=1).max():,.0f}"))
    layer = setup.timed_layer
    return Findings(
        text=f"{layer.title} with {layer.m // 1024}K tokens, in windows of {WINDOW_NS / 1000:g} µs. In "
             f"{100 * np.mean(write_windows):.0f} % of the windows of the GEMM alone, writes exceed reads. Overlapped "
             f"with the reduce-scatter, the GEMM takes {slower_percent['T3']:.1f} % longer with round robin (T3) and "
             f"{slower_percent['T3-MCA']:.1f} % longer with T3-MCA.",
        ours={"gemm_slower_t3_percent": slower_percent["T3"], "gemm_slower_t3_mca_percent": slower_percent["T3-MCA"],
              "gemm_write_windows_percent": 100 * float(np.mean(write_windows))},
        cases=[{"figure": "figure17", "kernel": _KERNELS[title].name, "model": layer.model,
                "sublayer": layer.sublayer, "tp": layer.tp, "M": layer.m, "N": layer.n,
                "K": layer.k, "gemm_ns": ends[title], "dram": by_stream(kernel.dram),
                "window_ns": kernel.traffic.window_cycles / clock, "purposes": list(PURPOSES),
                "bytes_per_window": [list(window) for window in kernel.traffic.windows]}
               for title, kernel in kernel_results.items()],
        tables=[Table("Times (µs), DRAM traffic (MB) and peak rate (GB/s)",
                      ("kernel", "end of GEMM", "end of all", "GEMM reads", "GEMM writes", "RS reads", "RS writes",
                       "peak"), rows)],
        plots={"figure17": lambda: _draw(rates, ends, 0.0, 1.0),
               **({"figure17-zoom": lambda: _draw(rates, ends, *_ZOOM)} if len(alone_rates) > _MOST_SHAPES else {})})


def _rates(kernel: KernelResult, clock_ghz: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the windows in ns [window + 1] and GB/s [window, purpose]."""
    width = kernel.traffic.window_cycles / clock_ghz
    windows = np.array(kernel.traffic.windows, float)
    return np.arange(len(windows) + 1) * width, windows / width


def _draw(rates: dict[str, tuple[np.ndarray, np.ndarray]], ends: dict[str, float], first: float, last: float):
    figure, axes = plots.figure(5.2, rows=len(rates), sharex=True, sharey=True)
    longest = max(times[-1] for times, _ in rates.values()) / 1e3
    for ax, (title, (times, rate)) in zip(axes, rates.items()):
        window_range = slice(*np.searchsorted(times, (1e3 * first * longest, 1e3 * last * longest)))
        edges, rate = times[window_range.start:window_range.stop + 1] / 1e3, rate[window_range]
        below = np.zeros(len(rate))
        for stream in _STREAMS:
            label, colour, _ = plots.STREAM_STYLES[stream]
            above = below + rate[:, PURPOSES.index(stream)]
            ax.stairs(above, edges[:len(rate) + 1], baseline=below, fill=True, color=colour, linewidth=0, label=label,
                      rasterized=len(rate) > _MOST_SHAPES)
            below = above
        ax.axvline(ends[title] / 1e3, color=plots.BLACK, linewidth=0.9, linestyle="--", label="end of the GEMM")
        ax.set_title(title, loc="left", fontsize=9, pad=3)
        ax.set_xlim(first * longest, last * longest)
    axes[0].legend(loc="lower right", ncols=5, bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)
    axes[1].set_ylabel("DRAM traffic (GB/s)")
    axes[-1].set_xlabel("time (µs)")
    return figure


FIGURE17 = Figure("figure17", "DRAM traffic over time (figure 17)", lambda setup: _tasks(setup).values(), evaluate,
                  per_machine=True)
