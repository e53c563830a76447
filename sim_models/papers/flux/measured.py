"""GEMMs and all-reduces as others measured them, beside one description of each GPU."""

from statistics import fmean

import numpy as np

from t3sim.analytic.gemm import Shape, best_tile_kernel
from t3sim.analytic.rings import library_ring_ns
from t3sim.base import plots
from t3sim.base.csv_rows import csv_rows
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import TILES
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table

_MEASURED = "t3sim.event.tiles.measured"
_MB = 1 << 20


def gemm_errors(node: Machine) -> dict[Shape, float]:
    """Return the relative error of a node's GEMMs, calls that are waited for, against those measured on an A100."""
    return {shape: (best_tile_kernel(node, shape).ns + node.host.call_ns) / float(row["time_ns"]) - 1
            for row in csv_rows(_MEASURED, "gemms")
            for shape in [Shape(int(row["m"]), int(row["n"]), int(row["k"]))]}


def all_reduce_times(gpu: str) -> list[tuple[int, float]]:
    """Return (bytes, measured ns) on 4 GPUs from 4 MB up."""
    return [(int(row["size_bytes"]), float(row["out_of_place_time_ns"])) for row in csv_rows(_MEASURED, "all_reduces")
            if row["gpu"] == gpu and int(row["size_bytes"]) >= 4 * _MB]


def all_reduce_errors(node: Machine, measured_times: list[tuple[int, float]]) -> list[float]:
    """Return relative errors of the library's all-reduce on 4 GPUs."""
    return [library_ring_ns(node, 4, size, 2) / time - 1 for size, time in measured_times]


def least_error(node: Machine, measured_times: list[tuple[int, float]]) -> float:
    """Return the least that the largest relative error can be, whatever the efficiency and the latency of a step."""
    bytes_ns = np.array([1.5 * size / node.link.bandwidth_gb_per_s for size, _ in measured_times])
    times = np.array([time for _, time in measured_times])
    efficiencies, steps = np.arange(0.3, 1.0, 0.004), np.arange(0.0, 25e3, 200.0)
    errors = (6 * steps[None, :, None] + bytes_ns / efficiencies[:, None, None]) / times - 1
    return float(np.abs(errors).max(axis=2).min())


def _evaluate_gemms(setup: Scope, results: Results) -> Findings:
    node = load_machine("a100-nvlink", TILES)
    errors = gemm_errors(node)
    sizes = [100 * abs(error) for error in errors.values()]
    ours = Quantities()
    ours.add("gemm_error_mean_percent", fmean(sizes), "%", "GEMMs on an A100, mean error", at_most=10)
    ours.add("gemm_error_max_percent", max(sizes), "%", "GEMMs on an A100, largest error", at_most=20)
    rows = [(f"{shape.m} x {shape.n} x {shape.k}", float(row["time_ns"]), best_tile_kernel(node, shape), error)
            for row, (shape, error) in zip(csv_rows(_MEASURED, "gemms"), errors.items())]
    return Findings(
        text=f"For 20 GEMMs that LLMCompass measured on an A100 the model's error is {fmean(sizes):.1f} % on average "
             f"and {max(sizes):.1f} % at most. Three constants of the machine file come from three of these rows: the "
             "efficiency of the main loop, the efficiency of memory, and the time of a call.",
        ours=ours,
        tables=[Table("Time of synchronous calls (µs)",
                      ("m x n x k", "measured", "ours", "difference", "kernel", "rounds"),
                      [(name, f"{time / 1e3:,.1f}", f"{(kernel.ns + node.host.call_ns) / 1e3:,.1f}",
                        f"{100 * error:+.1f} %", kernel.name, str(kernel.rounds()))
                       for name, time, kernel, error in rows])])


GEMMS = Figure("gemm-a100", "GEMMs on an A100 as measured by others", lambda setup: (), _evaluate_gemms,
               short="GEMMs", paper="flux")

_GPUS = {"a100": "a100-nvlink", "v100": "dgx-v100"}


def _evaluate_all_reduces(setup: Scope, results: Results) -> Findings:
    ours, rows, curves = Quantities(), [], {}

    def compare(title: str, node: Machine, measured_times: list[tuple[int, float]]) -> list[float]:
        """Add rows to the table, and return the errors, percent."""
        errors = [100 * error for error in all_reduce_errors(node, measured_times)]
        rows.extend((f"{title}, {size / _MB:.0f} MB", f"{time / 1e3:,.1f}",
                     f"{library_ring_ns(node, 4, size, 2) / 1e3:,.1f}", f"{error:+.1f} %")
                    for (size, time), error in zip(measured_times, errors))
        return errors

    for gpu, name in _GPUS.items():
        node, measured_times = load_machine(name, TILES), all_reduce_times(gpu)
        errors = compare(gpu.upper(), node, measured_times)
        curves[gpu] = [size / _MB for size, _ in measured_times], errors
        ours.add(f"{gpu}_error_max_percent", max(map(abs, errors)), "%",
                 f"all-reduce on 4 {gpu.upper()} from 4 MB, largest error", at_most=5)
        ours.add(f"{gpu}_least_possible_percent", 100 * least_error(node, measured_times), "%",
                 f"smallest error of any efficiency and latency, {gpu.upper()}")
    node = load_machine("a100-nvlink", TILES)
    dgx_times = [(int(row["size_bytes"]), float(row["median_time_ns"]))
                 for row in csv_rows(_MEASURED, "all_reduces_dgx")
                 if row["box"] == "a100_dgx" and int(row["size_bytes"]) >= 4 * _MB]
    ours.add("dgx_error_max_percent", max(map(abs, compare("DGX A100", node, dgx_times))), "%",
             "all-reduce on 4 GPUs of a DGX A100 from 4 MB, largest error")
    quiet = node.without_software()
    return Findings(
        text=f"For NCCL's all-reduce on 4 GPUs from 4 MB up the largest error is {ours['a100_error_max_percent']:.1f} "
             f"% on A100 and {ours['v100_error_max_percent']:.1f} % on V100. With one efficiency and one latency per "
             f"step it cannot be less than {ours['a100_least_possible_percent']:.1f} and "
             f"{ours['v100_least_possible_percent']:.1f} %, because from 4 to 6 MB each further byte takes twice as "
             "long as later on an A100, and almost no time on a V100. Without the library's software 4 MB would take "
             f"{library_ring_ns(quiet, 4, 4 * _MB, 2) / 1e3:.0f} µs instead of "
             f"{library_ring_ns(node, 4, 4 * _MB, 2) / 1e3:.0f} µs.",
        ours=ours,
        tables=[Table("Time (µs)", ("all-reduce", "measured", "ours", "difference"), rows, folded=True)],
        plots={"all-reduce-measured": lambda: _draw(curves)})


def _draw(errors: dict[str, tuple[list[float], list[float]]]):
    figure, axes = plots.figure(2.6)
    for (gpu, (sizes, percents)), colour in zip(errors.items(), (plots.BLUE, plots.ORANGE)):
        axes.plot(sizes, percents, "o-", color=colour, markersize=4, label=gpu.upper())
    axes.axhspan(-5, 5, color=plots.LIGHT, alpha=0.4, zorder=0)
    plots.log_axis(axes, "x", [4 << bits for bits in range(9)])
    axes.set_xlabel("size (MB)")
    axes.set_ylabel("error of the modelled time (%)")
    axes.legend()
    return figure


ALL_REDUCES = Figure("all-reduce-measured", "All-reduces as measured by others", lambda setup: (),
                     _evaluate_all_reduces, short="all-reduces", paper="flux")
