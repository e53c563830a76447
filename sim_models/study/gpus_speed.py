"""Cost of all GPUs of a run against one that stands for all, and the gain of a second thread."""

import time
from collections.abc import Callable
from contextlib import closing

from t3sim.base.at_once import processor_seconds
from t3sim.machine import Machine
from t3sim.runs.fused import fused_run
from t3sim.runs.plan import Plan
from t3sim.study.results import GpusSpeed
from t3sim.workload.workloads import gemm_workload

GPUS = 8
_SHAPE = "2048x2048x1024"  #: small, but each GPU has more to do than the bench's cycles
_REPEATS = 3


def measure_gpus(machine: Machine, cycles: int, progress: Callable[[float], None]) -> GpusSpeed:
    """Measure a fused GEMM of eight GPUs in its first cycles."""
    cases = ((1, 1), (GPUS, 1), (GPUS, 2))
    attempts_by_case = [
        [_seconds(machine, cycles, *case, progress, (case_number * _REPEATS + attempt) / len(cases) / _REPEATS)
         for attempt in range(_REPEATS)] for case_number, case in enumerate(cases)]
    (mirrored, _), (every_gpu, one_thread), (_, two_threads) = (
        map(min, zip(*attempts)) for attempts in attempts_by_case)
    return GpusSpeed(GPUS, cycles, mirrored, every_gpu, one_thread, two_threads)


def _seconds(machine: Machine, cycles: int, gpus: int, threads: int, progress: Callable[[float], None],
             share: float) -> tuple[float, float]:
    """Return the processor and wall seconds of one attempt."""
    progress(share)
    with closing(fused_run("mca", Plan(machine, gemm_workload(_SHAPE, GPUS)), every_gpu=gpus > 1)) as run:
        run.threads = threads
        run.advance(0)  # compiles the loop
        processor, wall = processor_seconds(), time.perf_counter()
        run.advance(cycles)
        return processor_seconds() - processor, time.perf_counter() - wall
