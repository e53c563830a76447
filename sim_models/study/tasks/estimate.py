"""Estimate of a run's time and memory before it starts: cycles by the rate laws, times measured speeds.

An estimate, to tell seconds from years: within a factor of a few on another host.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from t3sim.analytic.rings import ring_time_ns
from t3sim.base.cores import memory_bytes
from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.runs.kernels import Kernel
from t3sim.runs.operators import make_tiling
from t3sim.workload.workloads import Workload

#: Memory cycles per second of one core of a laptop, for the default machine.
BASELINE_CYCLES_PER_SECOND = 500_000
FUSED_CYCLES_PER_SECOND = 110_000

#: Measured with tracemalloc on outputs of 2,048 and 8,192 tiles of eight wavefronts, and a process' own.
_BYTES_PER_TILE = 2900
_SETUP_SECONDS_PER_TILE = 2e-4
BASE_BYTES = 400_000_000

LONGEST_SECONDS = 86_400.0


@dataclass(frozen=True)
class Estimate:
    """An estimate of a run."""

    cycles: float
    seconds: float
    memory_bytes: float

    def __str__(self) -> str:
        return (f"about {_duration(self.seconds)} and {self.memory_bytes / 1e9:,.1f} GB of memory for "
                f"{self.cycles:,.0f} cycles")


def estimate(machine: Machine, workload: Workload, kernels: Iterable[Kernel], mirrored: bool = True,
             jobs: int = 1) -> Estimate:
    """Estimate a run of these kernels, `jobs` at once, each once; what is not `mirrored` simulates every GPU."""
    distinct_kernels = list(dict.fromkeys(kernels))
    tiles = make_tiling(machine, workload).tiles
    seconds = [_SETUP_SECONDS_PER_TILE * tiles * kernel.uses_depth + kernel_seconds(kernel, machine, workload, mirrored)
               for kernel in distinct_kernels]
    bytes_per_run = _BYTES_PER_TILE * tiles + 4 * machine.llc.size_bytes / machine.llc.line_bytes
    return Estimate(
        cycles=sum(kernel_cycles(kernel, machine, workload) for kernel in distinct_kernels),
        seconds=max([*(kernel_time / (min(jobs, workload.tp) if in_threads(kernel) else 1)
                       for kernel, kernel_time in zip(distinct_kernels, seconds)), sum(seconds) / jobs]),
        memory_bytes=BASE_BYTES + min(jobs, len(distinct_kernels)) * bytes_per_run)


def in_threads(kernel: Kernel) -> bool:
    """Return whether a kernel has RTL for every GPU, which several threads step."""
    return kernel.needs_rtl and kernel.every_gpu


def kernel_cycles(kernel: Kernel, machine: Machine, workload: Workload) -> float:
    """Estimate the memory cycles of a kernel."""
    work = kernel.work(workload)
    ns = max(gemm_ns(machine, work.gemm) if work.gemm else 0.0,
             ring_time_ns(machine, work.moved_bytes, workload.tp) * work.rounds if work.moved_bytes else 0.0)
    return ns * machine.memory_clock_ghz


def kernel_seconds(kernel: Kernel, machine: Machine, workload: Workload, mirrored: bool = True) -> float:
    """Estimate a core's time for a kernel; without `mirrored`, each simulates every GPU."""
    speed = FUSED_CYCLES_PER_SECOND if kernel.needs_rtl else BASELINE_CYCLES_PER_SECOND
    gpus = workload.tp if not mirrored or kernel.every_gpu else 1
    return gpus * kernel_cycles(kernel, machine, workload) / speed


def ring_ns(machine: Machine, workload: Workload) -> float:
    """Return the time of a link-bound ring reduce-scatter or all-gather in closed form."""
    return ring_time_ns(machine, workload.output_bytes, workload.tp)


def gemm_ns(machine: Machine, workload: Workload) -> float:
    """Estimate a kernel's time: its rate, and a fixed cost per tile worth 180 steps of K, or its inputs at peak."""
    return max(workload.flop * (1 + 180 / workload.k) / (machine.gpu.peak_flop_per_ns * machine.gpu.matrix_efficiency),
               workload.input_bytes / machine.dram_peak_bytes_per_ns)


class Sized(Protocol):
    """Thing that a message names by its kind and its size, as a workload."""

    @property
    def kind(self) -> str: ...

    @property
    def size(self) -> str: ...


def check(estimated: Estimate, workload: Sized) -> None:
    """Refuse what takes more than a day, or more memory than this host gives. Raises BadInput."""
    memory = memory_bytes()
    if estimated.seconds > LONGEST_SECONDS or estimated.memory_bytes > memory:
        article = "an" if workload.kind[0] in "aeiou" else "a"
        raise BadInput(f"{article} {workload.kind} of {workload.size} would take {estimated} (estimated): up to a day "
                       f"and this host's {memory / 1e9:,.0f} GB are allowed")


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365 * 86_400), ("days", 86_400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(1.0, seconds):.0f} s"
