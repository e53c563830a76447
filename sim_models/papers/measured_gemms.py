"""Isolated GEMMs of machines of the cycle level beside those that GPUs of today were measured with."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from t3sim.analytic.gemm import library_kernel
from t3sim.base import plots
from t3sim.base.csv_rows import csv_rows
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.runs.kernels import GEMM
from t3sim.runs.operators import make_tiling, with_its_kernel
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import DecodeWorkload, gemm_workload

# GEMM kernels of libraries, and a machine of the cycle level that has one of them in place of its own.

_NAME = re.compile(r"nvjet\w*?_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)x(\d+)_")
_BYTES = 2  #: of an element


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel on an output of some size."""

    tile: tuple[int, int]  #: along hidden and along tokens
    block_k: int  #: in a unit's shared memory or LDS, one of its stages
    stages: int
    tiles: int
    cluster: int = 1  #: workgroups along its longer edge
    parts: int = 1  #: of K

    @classmethod
    def from_name(cls, name: str, m: int, n: int, units: int) -> "LibraryKernel":
        """Read one of cuBLAS's names, or several with what runs before and after. Raises BadInput.

        Where K is cut it has as many parts as give each unit one: what cuBLAS takes is not in its name.
        """
        match = _NAME.search(name)
        if match is None:
            raise BadInput(f"kernel {name!r} has no tile, block, stages and cluster: "
                           "nvjet_..._256x128_64x4_1x2_... has")
        high, wide, block_k, stages, *cluster = map(int, match.groups())
        tiles = _tiles(high, wide, m, n)
        return cls((high, wide), block_k, stages, tiles, max(cluster), units // tiles or 1 if "splitK" in name else 1)

    @classmethod
    def from_model(cls, library: Machine, lds_bytes: int, m: int, n: int, k: int) -> "LibraryKernel":
        """Return the kernel that is the fastest by the model of a GPU's library: one block of K fills the LDS."""
        kernel = library_kernel(library, m, n, k)
        wide, high = kernel.tile
        deepest = lds_bytes // (_BYTES * (high + wide))
        return cls((high, wide), 1 << deepest.bit_length() - 1, 2, _tiles(high, wide, m, n), parts=kernel.split)

    @property
    def is_transposed(self) -> bool:
        """Say whether a tile's columns are not whole lines, so that its GEMM is simulated transposed."""
        return self.tile[0] * _BYTES % LINE_BYTES != 0

    def on_machine(self, machine: Machine) -> Machine:
        """Return the machine with this kernel.

        A unit's stages are those of its only tile, or of the machine's places, between whose tiles it goes to and fro:
        one half of them is loaded while the other one is multiplied, as a workgroup has one step's loads on their way.
        """
        gpu, (high, wide) = machine.gpu, self.tile
        places = gpu.workgroups_per_cu if self.tiles > gpu.compute_units else 1
        gpu_keys = {
            "tile_m": wide if self.is_transposed else high, "tile_n": high if self.is_transposed else wide,
            "cluster": self.cluster, "block_k": self.block_k * max(1, self.stages // (2 * places)), "load_buffers": 2,
            "workgroups_per_cu": places, "k_parts": self.parts,
            "epilogue_ns": gpu.epilogue_ns * high * wide / (gpu.tile_m * gpu.tile_n)}
        return machine.changed(gpu=gpu_keys).model_copy(update={"name": f"{machine.name} with {self}"})

    def __str__(self) -> str:
        parts = f", K in {self.parts}" if self.parts > 1 else ""
        return f"{self.tile[0]}x{self.tile[1]}, {self.stages} of {self.block_k}{parts}"


def _tiles(high: int, wide: int, m: int, n: int) -> int:
    return -(-n // high) * -(-m // wide)


# GEMMs that were measured.

_WITHIN = 15  #: percent
#: GEMMs by whether the machine's one large kernel has a tile for each unit; libraries have dozens of kernels.
_WHOLE, _SMALL, _FEW = "tiles for all units", "fewer tiles than units", "few tokens"
_KEYS = {"whole": _WHOLE, "small": _SMALL, "few": _FEW}
_LIBRARY = "with the library's kernel"  #: of numbers


class MeasuredGemm(NamedTuple):
    """A GEMM that was measured."""

    gpu: str
    m: int
    n: int
    k: int
    us: float
    kernel: str  #: that ran; empty: not known


class Case(NamedTuple):
    """A GEMM, and the tasks that simulate it with the machine's kernel and with its library's."""

    row: MeasuredGemm
    task: KernelTask
    kernel: LibraryKernel
    library: KernelTask


@dataclass(frozen=True)
class MeasuredGemms:
    """GEMMs in bf16 that GPUs were measured with, and the machine of the cycle level that is to take as long."""

    key: str  #: of its numbers
    gpu_title: str  #: the GPU
    machine_name: str
    file: str  #: of `measured`
    gpus: dict[str, int | None]  #: as the file names them: compute units, where they are not the machine's
    libraries: dict[str, str]  #: machines that model their library, where the file does not name its kernels
    longest_us: float  #: of the measured kernels: one that takes a millisecond takes a minute here
    remarks: str  #: after how many are near

    @cached_property
    def machine(self) -> Machine:
        return load_machine(self.machine_name)

    def machine_of(self, gpu: str) -> Machine:
        """Return the machine with as many compute units as a GPU has."""
        units, machine = self.gpus[gpu], self.machine
        return machine if units is None else machine.changed(gpu=dict(compute_units=units)).model_copy(
            update={"name": f"{machine.name} with {units} units"})

    @cached_property
    def rows(self) -> tuple[MeasuredGemm, ...]:
        """List what was measured, in bf16."""
        rows = [MeasuredGemm(row["gpu"], int(row["m"]), int(row["n"]), int(row["k"]), float(row["time_us_derived"]),
                             row.get("kernel", ""))
                for row in csv_rows("t3sim.analytic.measured", self.file)
                if row["gpu"] in self.gpus and row["dtype"] == "bf16"]
        return tuple(dict.fromkeys(row for row in rows if row.us <= self.longest_us))

    def cases(self, setup: Scope) -> Iterator[Case]:
        """Yield each row, and the tasks that simulate it."""
        for row in self.rows:
            machine, workload = self.machine_of(row.gpu), gemm_workload(f"{row.m}x{row.n}x{row.k}", 2, "bf16")
            kernel = self._library_kernel(row, machine)
            kernel_workload = replace(workload, m=row.n, n=row.m) if kernel.is_transposed else workload
            yield Case(row, setup.task(GEMM, with_its_kernel(machine, workload), machine), kernel,
                       setup.task(GEMM, kernel_workload, kernel.on_machine(machine)))

    def _library_kernel(self, row: MeasuredGemm, machine: Machine) -> LibraryKernel:
        if row.kernel:
            return LibraryKernel.from_name(row.kernel, row.m, row.n, machine.gpu.compute_units)
        assert machine.occupancy is not None
        return LibraryKernel.from_model(load_machine(self.libraries[row.gpu], COMMERCIAL),
                                        machine.occupancy.lds_bytes_per_cu, row.m, row.n, row.k)

    def tasks(self, setup: Scope) -> list[KernelTask]:
        """List what is to be simulated."""
        return [task for case in self.cases(setup) for task in (case.task, case.library)]

    def evaluate(self, setup: Scope, results: Results) -> Findings:
        """Set each GEMM beside its measurement, launch included."""
        rows, errors, times = [], {}, []
        for row, task, kernel, library in self.cases(setup):
            launch = self.machine.collective.kernel_launch_ns
            ours_us = [(results[simulation].ns + launch) / 1e3 for simulation in (task, library)]
            group, row_errors = _group(self.machine_of(row.gpu), task), [100 * (us / row.us - 1) for us in ours_us]
            for name, error in zip((group, f"{group}, {_LIBRARY}"), row_errors):
                errors.setdefault(name, []).append(error)
            times.append((row.us, ours_us[-1]))
            rows.append((*([row.gpu] if len(self.gpus) > 1 else []), f"{row.m} x {row.n} x {row.k}", group,
                         f"{row.us:,.1f}", f"{ours_us[0]:,.1f}", f"{row_errors[0]:+.1f} %", str(kernel),
                         f"{ours_us[1]:,.1f}", f"{row_errors[1]:+.1f} %",
                         *(f"{2e-6 * row.m * row.n * row.k / us:,.0f}" for us in (row.us, ours_us[-1]))))
        within_percent = {group: 100 * sum(abs(error) <= _WITHIN for error in group_errors) / len(group_errors)
                          for group, group_errors in errors.items()}
        mean_error = {group: sum(map(abs, group_errors)) / len(group_errors) for group, group_errors in errors.items()}
        ours = Quantities()
        for name, group_title in _KEYS.items():
            for suffix, group in (("", group_title), ("_library", f"{group_title}, {_LIBRARY}")):
                if group in errors:
                    ours.add(f"{self.key}_{name}{suffix}_within", within_percent[group], "%",
                             f"GEMMs within {_WITHIN} %, {group}", at_least=100)
                    ours.add(f"{self.key}_{name}{suffix}_mean", mean_error[group], "%", f"mean error, {group}",
                             at_most=_WITHIN)
        return Findings(
            text=f"Of the {len(errors[_WHOLE])} GEMMs with a tile for each compute unit, "
                 f"{within_percent[_WHOLE]:.0f} % are within {_WITHIN} % of the times measured on an "
                 f"{self.gpu_title}; with its library's kernel, {within_percent[f'{_WHOLE}, {_LIBRARY}']:.0f} %. "
                 f"{self.remarks}",
            ours=ours,
            tables=[Table(f"{self.machine_name} beside an {self.gpu_title}", (
                *(["GPU"] if len(self.gpus) > 1 else []), "M x N x K", "kernel", "measured (µs)", "ours (µs)", "error",
                "library's kernel", "with it (µs)", "its error",
                "measured (TFLOP/s)", "ours (TFLOP/s)"), rows)],
            plots={f"{self.key}-gemms": lambda: plots.scatter_pairs(
                times, f"measured time on an {self.gpu_title} (µs)", "time on the cycle level (µs)")})

    def figure(self, title: str) -> Figure:
        """Make the figure of the evaluation."""
        return Figure(f"{self.key}-gemms", title, self.tasks, self.evaluate, paper="beyond")


def _group(machine: Machine, task: KernelTask) -> str:
    if isinstance(task.workload, DecodeWorkload):
        return _FEW
    return _WHOLE if make_tiling(machine, task.workload).tiles >= machine.gpu.compute_units else _SMALL


H100 = MeasuredGemms(
    "h100", "H100", "h100-t3", "gemms_hopper", {"NVIDIA H100 80GB HBM3": None}, {}, 650.0,
    "A library has dozens of kernels, the machine has two. Kernels of cuBLAS are modelled from their names, which give "
    "tile, stages and cluster; if K is split, it is split into as many parts as fill the units. The only constant from "
    "these rows is the share of the peak that clock and power leave.")
MI300X = MeasuredGemms(
    "mi300x", "MI300X", "mi300x-t3", "gemm_throughput", {"AMD MI300X": None, "MI308X": 80},
    {"AMD MI300X": "mi300x", "MI308X": "mi308x"}, 4000.0,
    "An MI308X is modelled as an MI300X with 80 compute units. The kernels that ran are not published; the fastest "
    "kernel by the model of hipBLASLt is taken. The share of the peak that clock and power leave is one number for the "
    "largest GEMMs of MI300X, MI308X and MI325X, of which the first is in the table; no other constant comes from "
    "these rows.")
H100_GEMMS = H100.figure("Isolated GEMMs, compared with an H100")
MI300X_GEMMS = MI300X.figure("Isolated GEMMs with a memory-side cache, compared with an MI300X and an MI308X")
