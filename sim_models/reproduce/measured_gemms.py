"""Isolated GEMMs of machines of the cycle level beside those that GPUs of today were measured with."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

from t3sim.machine import Machine, load_machine
from t3sim.reproduce.figure import Figure, Findings, Results, Setup, Table
from t3sim.reproduce.paper import Target
from t3sim.runs.kernels import GEMM
from t3sim.runs.operators import make_tiling, with_its_kernel
from t3sim.study import plots
from t3sim.tasks.task import KernelTask
from t3sim.workloads import DecodeWorkload, gemm_workload

_WITHIN = 15  #: percent
#: GEMMs by whether the machine's one large kernel has a tile for each unit; libraries have dozens of kernels.
_WHOLE, _SMALL, _FEW = "tiles for all units", "fewer tiles than units", "few tokens"
_KEYS = {"whole": _WHOLE, "small": _SMALL, "few": _FEW}


@dataclass(frozen=True)
class MeasuredGemms:
    """GEMMs in bf16 that GPUs were measured with, and the machine of the cycle level that is to take as long."""

    key: str  #: of its numbers
    called: str  #: the GPU
    machine_name: str
    file: str  #: of `measured`
    gpus: dict[str, int | None]  #: as the file names them: compute units, where they are not the machine's
    longest_us: float  #: of the measured kernels: one that takes a millisecond takes a minute here
    words: str  #: after how many are near

    @cached_property
    def machine(self) -> Machine:
        return load_machine(self.machine_name)

    def machine_of(self, gpu: str) -> Machine:
        """Return the machine with as many compute units as a GPU has."""
        units, machine = self.gpus[gpu], self.machine
        if units is None:
            return machine
        return _with_units(machine, units)

    @cached_property
    def rows(self) -> tuple[tuple[str, int, int, int, float], ...]:
        """GPU, M, N, K and the microseconds of each."""
        text = resources.files("t3sim.measured").joinpath(self.file).read_text(encoding="utf-8")
        found = [(row["gpu"], int(row["m"]), int(row["n"]), int(row["k"]), float(row["time_us_derived"]))
                 for row in csv.DictReader(text.splitlines()) if row["gpu"] in self.gpus and row["dtype"] == "bf16"]
        return tuple(dict.fromkeys(row for row in found if row[-1] <= self.longest_us))

    def cases(self, setup: Setup) -> Iterator[tuple[str, int, int, int, float, KernelTask]]:
        """Yield each row, and the task that simulates it."""
        for gpu, m, n, k, us in self.rows:
            machine = self.machine_of(gpu)
            workload = with_its_kernel(machine, gemm_workload(f"{m}x{n}x{k}", 2, "bf16"))
            yield gpu, m, n, k, us, setup.task(GEMM, workload, machine)

    def tasks(self, setup: Setup) -> list[KernelTask]:
        """List what is to be simulated."""
        return [task for *_, task in self.cases(setup)]

    def evaluate(self, setup: Setup, results: Results) -> Findings:
        """Set each GEMM beside its measurement, launch included."""
        rows, errors, times = [], {}, []
        for gpu, m, n, k, us, task in self.cases(setup):
            machine = self.machine_of(gpu)
            ours, group = (results[task].ns + machine.collective.kernel_launch_ns) / 1e3, _group(machine, task)
            errors.setdefault(group, []).append(100 * (ours / us - 1))
            times.append((us, ours))
            rows.append((*([gpu] if len(self.gpus) > 1 else []), f"{m} x {n} x {k}", group, f"{us:,.1f}",
                         f"{ours:,.1f}", f"{100 * (ours / us - 1):+.1f} %", f"{2e-6 * m * n * k / us:,.0f}",
                         f"{2e-6 * m * n * k / ours:,.0f}"))
        within = {group: 100 * sum(abs(one) <= _WITHIN for one in some) / len(some) for group, some in errors.items()}
        mean = {group: sum(map(abs, some)) / len(some) for group, some in errors.items()}
        groups = [(f"{self.key}_{name}", group) for name, group in _KEYS.items() if group in errors]
        return Findings(
            text=f"{within[_WHOLE]:.0f} % of the {len(errors[_WHOLE])} GEMMs that have a tile for each unit are within "
                 f"{_WITHIN} % of an {self.called}'s times. {self.words}",
            ours={f"{key}_{name}": numbers[group] for key, group in groups
                  for name, numbers in (("within", within), ("mean", mean))},
            targets={key: target for start, group in groups for key, target in (
                (f"{start}_within", Target(f"GEMMs within {_WITHIN} %, {group}", "%", None, "beyond", at_least=100)),
                (f"{start}_mean", Target(f"mean error, {group}", "%", None, "beyond", at_most=_WITHIN)))},
            tables=[Table(f"{self.machine_name} beside an {self.called}", (
                *(["GPU"] if len(self.gpus) > 1 else []), "M x N x K", "kernel", "measured (µs)", "ours (µs)", "error",
                "measured (TFLOP/s)", "ours (TFLOP/s)"), rows)],
            plots={f"{self.key}-gemms": lambda: plots.beside_each_other(
                times, "measured (µs)", "on the cycle level (µs)")})

    def figure(self, title: str) -> Figure:
        """Make the figure of the evaluation."""
        return Figure(f"{self.key}-gemms", title, self.tasks, self.evaluate, paper="beyond")


def _with_units(machine: Machine, units: int) -> Machine:
    """Return a machine with another number of compute units, all else alike."""
    return machine.model_copy(update={"gpu": machine.gpu.model_copy(update={"compute_units": units}),
                                      "name": f"{machine.name} with {units} units"})


def _group(machine: Machine, task: KernelTask) -> str:
    if isinstance(task.workload, DecodeWorkload):
        return _FEW
    return _WHOLE if make_tiling(machine, task.workload).tiles >= machine.gpu.compute_units else _SMALL


H100 = MeasuredGemms(
    "h100", "H100", "h100-t3", "gemms_hopper.csv", {"NVIDIA H100 80GB HBM3": None}, 650.0,
    "The rest take longer here: a library has dozens of tiles, of which one fills the last round, and for few tokens "
    "kernels that load sixteen blocks ahead; this machine has one of each. No constant comes from these rows but the "
    "share of the peak that clock and power leave.")
MI300X = MeasuredGemms(
    "mi300x", "MI300X", "mi300x-t3", "gemm_throughput.csv", {"AMD MI300X": None, "MI308X": 80}, 4000.0,
    "An MI308X is one with 80 of its units. The share of the peak that clock and power leave is one number for the "
    "largest GEMM of MI300X, MI308X and MI325X each, of which the first is in the table; no other constant comes from "
    "these rows.")
H100_GEMMS = H100.figure("Isolated GEMMs on a GPU of today, beside an H100's")
MI300X_GEMMS = MI300X.figure("Isolated GEMMs on a GPU with a memory-side cache, beside an MI300X's and an MI308X's")
