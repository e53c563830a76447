"""Isolated GEMMs of the machine `h100-t3` beside those that an H100 was measured with."""

import csv
from collections.abc import Iterator
from functools import cache
from importlib import resources

from t3sim.machine import Machine, load_machine
from t3sim.reproduce.figure import Figure, Findings, Results, Setup, Table
from t3sim.reproduce.paper import Target
from t3sim.runs.kernels import GEMM
from t3sim.runs.operators import make_tiling, with_its_kernel
from t3sim.study import plots
from t3sim.tasks.task import KernelTask
from t3sim.workloads import DecodeWorkload, gemm_workload

_MACHINE, _GPU = "h100-t3", "NVIDIA H100 80GB HBM3"
_LONGEST_US = 650.0  #: of the measured kernels: one that takes a millisecond takes a minute here
_WITHIN = 15  #: percent
#: GEMMs by whether the machine's one large kernel has a tile for each unit; libraries have dozens of kernels.
_WHOLE, _SMALL, _FEW = "tiles for all units", "fewer tiles than units", "few tokens"
_KEYS = {"whole": _WHOLE, "small": _SMALL, "few": _FEW}


@cache
def _rows() -> tuple[tuple[int, int, int, float], ...]:
    """Return M, N, K and the microseconds of each measured GEMM in bf16."""
    text = resources.files("t3sim.measured").joinpath("gemms_hopper.csv").read_text(encoding="utf-8")
    found = [(int(row["m"]), int(row["n"]), int(row["k"]), float(row["time_us_derived"]))
             for row in csv.DictReader(text.splitlines()) if row["gpu"] == _GPU and row["dtype"] == "bf16"]
    return tuple(dict.fromkeys(row for row in found if row[3] <= _LONGEST_US))


def _cases(setup: Setup) -> Iterator[tuple[int, int, int, float, KernelTask]]:
    machine = load_machine(_MACHINE)
    for m, n, k, us in _rows():
        workload = with_its_kernel(machine, gemm_workload(f"{m}x{n}x{k}", 2, "bf16"))
        yield m, n, k, us, setup.task(GEMM, workload, machine)


def _group(machine: Machine, task: KernelTask) -> str:
    if isinstance(task.workload, DecodeWorkload):
        return _FEW
    return _WHOLE if make_tiling(machine, task.workload).tiles >= machine.gpu.compute_units else _SMALL


def evaluate(setup: Setup, results: Results) -> Findings:
    machine = load_machine(_MACHINE)
    rows, errors, times = [], {group: [] for group in (_WHOLE, _SMALL, _FEW)}, []
    for m, n, k, us, task in _cases(setup):
        ours, group = (results[task].ns + machine.collective.kernel_launch_ns) / 1e3, _group(machine, task)
        errors[group].append(100 * (ours / us - 1))
        times.append((us, ours))
        rows.append((f"{m} x {n} x {k}", group, f"{us:,.1f}", f"{ours:,.1f}", f"{100 * (ours / us - 1):+.1f} %",
                     f"{2e-6 * m * n * k / us:,.0f}", f"{2e-6 * m * n * k / ours:,.0f}"))
    within = {group: 100 * sum(abs(one) <= _WITHIN for one in some) / len(some) for group, some in errors.items()}
    mean = {group: sum(map(abs, some)) / len(some) for group, some in errors.items()}

    def draw():
        drawn, axes = plots.figure(3.2)
        axes.plot(*zip(*times), "o", color=plots.BLUE, markersize=4)
        span = min(map(min, times)), max(map(max, times))
        axes.plot(span, span, color=plots.BLACK, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("measured (µs)")
        axes.set_ylabel("on the cycle level (µs)")
        return drawn

    return Findings(
        text=f"{within[_WHOLE]:.0f} % of the {len(errors[_WHOLE])} GEMMs that have a tile for each unit are within "
             f"{_WITHIN} % of an H100's times. The rest take longer here: a "
             "library has dozens of tiles, of which one fills the last round, and for few tokens kernels that load "
             "sixteen blocks ahead; this machine has one of each. No constant comes from these rows but the share of "
             "the peak that clock and power leave.",
        ours={key: value for name, group in _KEYS.items()
              for key, value in ((f"h100_{name}_within", within[group]), (f"h100_{name}_mean", mean[group]))},
        targets={key: target for name, group in _KEYS.items() for key, target in (
            (f"h100_{name}_within", Target(f"GEMMs within {_WITHIN} %, {group}", "%", None, "beyond", at_least=100)),
            (f"h100_{name}_mean", Target(f"mean error, {group}", "%", None, "beyond", at_most=_WITHIN)))},
        tables=[Table(f"{_MACHINE} beside an H100", ("M x N x K", "kernel", "measured (µs)", "ours (µs)", "error",
                                                     "measured (TFLOP/s)", "ours (TFLOP/s)"), rows)],
        plots={"h100-gemms": draw})


def _tasks(setup: Setup) -> list[KernelTask]:
    return [task for *_, task in _cases(setup)]


H100_GEMMS = Figure("h100-gemms", "Isolated GEMMs on a GPU of today, beside an H100's", _tasks, evaluate,
                    paper="beyond")
