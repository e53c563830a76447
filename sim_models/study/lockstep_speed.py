"""Speed at which the engines step the same RTL on the same stimulus, in one run.

The stimulus is the beginning of a fused run, bus accesses included: a layer with a small K, so that reads, stores,
triggers, DMA reads and arrivals are all there from the first ten thousand cycles on.
"""

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np

from t3sim.base.at_once import processor_seconds
from t3sim.base.output import collect_versions
from t3sim.machine import Machine
from t3sim.rtlsim.port_map import PortMap
from t3sim.runs.fused import FusedRun, fused_run
from t3sim.runs.plan import Plan
from t3sim.study.gpus_speed import measure_gpus
from t3sim.study.results import BenchResult, SimulatorSpeed
from t3sim.study.whole_run import measure_whole_run
from t3sim.workload.workloads import transformer_workload

_REPEATS = 3
_ACTIVITY = (0.0, 0.03, 0.1, 0.3, 1.0)  #: probability with which each input changes in a cycle


class _InputRecorder:
    """A backend that notes the inputs of every cycle."""

    def __init__(self, backend) -> None:
        self._backend = backend
        self.rows: list[np.ndarray] = []

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def step(self, cycles: int = 1) -> None:
        for _ in range(cycles):
            self.note()
            self._backend.step()

    def note(self) -> None:
        self.rows.append(self._backend.inputs.copy())


def recorded_stimulus(machine: Machine, cycles: int,
                      progress: Callable[[float], None] = lambda share: None) -> np.ndarray:
    """Record what a fused run of the machine gives the RTL from its start.

    The result is rows of input words, one more than cycles as some are bus accesses.
    """
    with closing(_fused(machine, _InputRecorder)) as run:
        recorder, = run.backends
        for cycle in range(cycles):
            run.advance(1)
            recorder.note()
            if cycle % 1000 == 0:
                progress(cycle / cycles)
    return np.array(recorder.rows)


def _fused(machine: Machine, wrap: Callable = lambda backend: backend) -> FusedRun:
    return fused_run("mca", Plan(machine, transformer_workload("t-nlg", "op", 16)), around=wrap)


def measure_rtl(machine: Machine, cycles: int, beside: Sequence[str], progress: Callable[[str, float], None],
                seed: int) -> tuple[SimulatorSpeed, ...]:
    """Measure the RTL alone and other simulators, from inputs at rest to all of them at random."""
    from t3sim.cosim.gpu import compare_gpu
    from t3sim.cosim.other_simulators import activity_stimulus

    def stimuli(ports: PortMap) -> dict[str, np.ndarray]:
        drawn = {f"{share:.0%} change in a cycle": activity_stimulus(ports, cycles, share, seed) for share in _ACTIVITY}
        return drawn | {"the start of a fused run": recorded_stimulus(machine, cycles)}

    speeds = []
    for simulator, build_seconds, cycles_per_second in compare_gpu(machine.geometry(), stimuli, beside):
        speeds.append(SimulatorSpeed(simulator, build_seconds, cycles_per_second))
        progress("rtl", len(speeds) / (1 + len(beside)))
    return tuple(speeds)


def run_bench(machine: Machine, engines: Sequence[str], cycles: int, progress: Callable[[str, float], None],
              seed: int = 0, beside: Sequence[str] = ()) -> BenchResult:
    """Measure cycles per second of a core's time of each engine, and what else `BenchResult` has.

    `seed` is that of engine `rtl`'s inputs, for the other engines they are a workload's; `beside` are simulators that
    are measured with it.
    """
    from t3sim.cosim.gpu import benchmark_gpu
    geometry = machine.geometry()
    speeds = {}
    if "lockstep" in engines:
        best = 0.0
        for attempt in range(_REPEATS + 1):  # the first compiles the loop
            with closing(_fused(machine)) as run:
                start = processor_seconds()
                run.advance(cycles)
                best = max(best, cycles / (processor_seconds() - start)) if attempt else best
            progress("lockstep", (attempt + 1) / (_REPEATS + 1))
        speeds["lockstep"] = best
    gpus = None
    if "gpus" in engines:
        gpus = measure_gpus(machine, cycles, lambda share: progress("gpus", share))
        progress("gpus", 1.0)
    whole_run = None
    if "whole" in engines:
        whole_run = measure_whole_run(machine, lambda share: progress("whole", share))
        progress("whole", 1.0)
    others = [name for name in engines if name not in ("lockstep", "gpus", *BenchResult.ON_REQUEST)]
    if others:
        def report_recording(share: float) -> None:
            for name in others:
                progress(name, 0.5 * share)

        speeds |= benchmark_gpu(geometry, recorded_stimulus(machine, cycles, report_recording), others)
        for name in others:
            progress(name, 1.0)
    rtl = measure_rtl(machine, cycles, beside, progress, seed) if "rtl" in engines else ()
    return BenchResult(cycles_per_second={name: speeds[name] for name in engines if name in speeds},
                       cycles={name: cycles for name in engines if name != "event"}, gpus=gpus, whole=whole_run,
                       rtl=rtl, versions=collect_versions())
