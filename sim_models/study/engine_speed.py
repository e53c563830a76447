"""What `t3 bench` measures: the engines' speed on the same RTL and stimulus, in one run, and what else costs time.

The stimulus is the beginning of a fused run, bus accesses included: a layer with a small K, so that reads, stores,
triggers, DMA reads and arrivals are all there from the first ten thousand cycles on.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from t3sim.analytic.closed_forms import chunk_bytes, closed_form_ns
from t3sim.base.at_once import processor_seconds
from t3sim.base.errors import Failure
from t3sim.base.output import collect_versions
from t3sim.event.flow.collective import FlowNetwork
from t3sim.event.flow.layout import Layout, Play
from t3sim.event.flow.runs import request
from t3sim.machine import Machine, load_machine
from t3sim.rtlsim.port_map import PortMap
from t3sim.runs.fused import FusedRun, fused_run, rtl_design
from t3sim.runs.plan import Plan
from t3sim.study.results import BenchResult, EventCase, FirstRun, GpusSpeed, SimulatorSpeed, WholeRun
from t3sim.workload.workloads import gemm_workload, transformer_workload

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


# Engine `gpus`: all GPUs of a run against one that stands for all, and the gain of a second thread.

GPUS = 8  #: of engine `gpus`
_GPUS_SHAPE = "2048x2048x1024"  #: small, but each GPU has more to do than the bench's cycles


def measure_gpus(machine: Machine, cycles: int, progress: Callable[[float], None]) -> GpusSpeed:
    """Measure a fused GEMM of eight GPUs in its first cycles."""
    cases = ((1, 1), (GPUS, 1), (GPUS, 2))
    attempts_by_case = [
        [_gpus_seconds(machine, cycles, *case, progress, (case_number * _REPEATS + attempt) / len(cases) / _REPEATS)
         for attempt in range(_REPEATS)] for case_number, case in enumerate(cases)]
    (mirrored, _), (every_gpu, one_thread), (_, two_threads) = (
        map(min, zip(*attempts)) for attempts in attempts_by_case)
    return GpusSpeed(GPUS, cycles, mirrored, every_gpu, one_thread, two_threads)


def _gpus_seconds(machine: Machine, cycles: int, gpus: int, threads: int, progress: Callable[[float], None],
                  share: float) -> tuple[float, float]:
    """Return the processor and wall seconds of one attempt."""
    progress(share)
    with closing(fused_run("mca", Plan(machine, gemm_workload(_GPUS_SHAPE, GPUS)), every_gpu=gpus > 1)) as run:
        run.threads = threads
        run.advance(0)  # compiles the loop
        processor, wall = processor_seconds(), time.perf_counter()
        run.advance(cycles)
        return processor_seconds() - processor, time.perf_counter() - wall


# Engine `whole`: a fused run at full size, and the share of the hardware that rests meanwhile.

_PERIOD_CYCLES = 100_000
_SAMPLE_CYCLES = 1000  #: at the end of each period, looked at one by one; their time does not count
_MOST_CYCLES = 1_650_000  #: of the run, which is T-NLG's FC-2 on 8 GPUs on a machine like the paper's


def measure_whole_run(machine: Machine, progress: Callable[[float], None],
                      most_cycles: int = _MOST_CYCLES) -> WholeRun:
    """Measure T-NLG FC-2 at TP 8 under round robin: speed, and in samples what rests.

    A cycle in which no input of the RTL changes is one that could at most be left out as a whole.
    """
    design, seconds, cycles, quiet_cycles, resting_instances, samples = rtl_design(machine.geometry()), 0.0, 0, 0, 0, 0
    with closing(fused_run("round_robin", Plan(machine, transformer_workload("t-nlg", "fc2", 8)))) as run:
        backend, = run.backends
        run.advance(0)  # compiles the loop
        while run.now + _PERIOD_CYCLES <= most_cycles:
            begin, start = run.now, processor_seconds()
            run.advance(_PERIOD_CYCLES - _SAMPLE_CYCLES)
            seconds, cycles = seconds + processor_seconds() - start, cycles + run.now - begin
            if run.now < begin + _PERIOD_CYCLES - _SAMPLE_CYCLES:  # it has ended
                break
            for _ in range(_SAMPLE_CYCLES):
                before = backend.inputs.copy()
                run.advance(1)
                quiet_cycles += int((backend.inputs == before).all())
                resting_instances += design.asleep(backend.handle)
            samples += _SAMPLE_CYCLES
            progress(run.now / most_cycles)
    return WholeRun(cycles, cycles / seconds, quiet_cycles / samples, resting_instances / samples)


# Engine `first`: the first run on a machine, which compiles RTL and loops, and the next one.

#: The elaboration and the C++ compiler alone; then the loops, with and without RTL, and a small sub-layer.
_FIRST_BUILD = ("from t3sim.cosim.gpu import gpu_design\nfrom t3sim.machine import load_machine\n"
                "import sys\ngpu_design(load_machine(sys.argv[1]).geometry())")
_FIRST_RUN = "from t3sim.cli import main\nimport sys\nsys.exit(main(sys.argv[1:]))"
_FIRST_SHAPE = ("--gemm", "1024x512x512", "--devices", "4")


def measure_first_run(machine: str) -> FirstRun:
    """Build the RTL of a machine (its name or file) in an empty cache, and run a small sub-layer there twice.

    Raises Failure if one of them fails.
    """
    run = (_FIRST_RUN, "run", *_FIRST_SHAPE, "--machine", machine)
    with tempfile.TemporaryDirectory(prefix="t3-first-") as cache:
        programs = (_FIRST_BUILD, machine), run, run
        return FirstRun(*(seconds for program in programs for seconds in _program_seconds(cache, *program)))


def _program_seconds(cache: str, *program: str) -> tuple[float, float]:
    """Run a program of Python with a cache; return the processor seconds, of what it starts too, and those passed."""
    def processor() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    # Our own loops' folder is in the environment, too; a program that is not told of one finds its own.
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    before, start = processor(), time.perf_counter()
    process = subprocess.run([sys.executable, "-c", *program], env=environment | {"T3_CACHE": cache}, check=False,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if process.returncode:
        raise Failure(f"the first run failed: {(process.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return processor() - before, time.perf_counter() - start


# Engine `event`: messages per second, and networks of which few GPUs stand for all.

_EVENT_BYTES = 192_000_000
#: Machine, topology, collective, algorithm.
_EVERY_GPU = (("torus-128", "torus:8x16", "ar", "all-rings"), ("torus-128", "torus:16x16", "a2a", "direct"),
              ("mi210-2x4", "nodes:8x16", "a2a", "direct"))
_FEW_GPUS = (("torus-128", "torus:32x32", "ar", "all-rings"), ("torus-128", "torus:32x32", "a2a", "direct"),
             ("mi210-2x4", "nodes:128x72", "a2a", "direct"), ("torus-128", "ring:100000", "ar", "ring"),
             ("torus-128", "switch:100000", "a2a", "direct"), ("torus-128", "torus:256x512", "ar", "hierarchical"),
             ("mi210-2x4", "nodes:16384x8", "ar", "hierarchical"))


def measure_event(progress: Callable[[float], None]) -> tuple[EventCase, ...]:
    """Run collectives of which each GPU is simulated, and larger ones of which few are."""
    _event_case("torus-128", "ring:4", "ar", "ring", False)  # compiles the loop
    cases = []
    for every, collectives in ((True, _EVERY_GPU), (False, _FEW_GPUS)):
        for collective in collectives:
            cases.append(_event_case(*collective, every))
            progress(len(cases) / len(_EVERY_GPU + _FEW_GPUS))
    return tuple(cases)


def _event_case(machine: str, topology: str, collective: str, name: str, every: bool) -> EventCase:
    started = processor_seconds()
    flow = request(collective, machine, topology, [name], every=every)
    program = flow.program(flow.chosen[0])
    part = chunk_bytes(collective, program, _EVENT_BYTES)
    network = FlowNetwork(Layout([Play(program, lambda chunk: part)], flow.on, flow.costs))
    ready = processor_seconds()
    network.run()
    ended = processor_seconds()
    closed_ns = closed_form_ns(collective, flow.on, name, flow.costs, _EVENT_BYTES)
    ns = network.now + flow.costs.launch_ns + flow.costs.step_ns
    alike = network.layout.alike
    return EventCase(f"{collective}, {name}, {topology}", flow.on.gpus, len(alike.representatives), network.messages,
                     alike.copies * network.messages, ended - started, ended - ready, ns / closed_ns - 1)


def run_bench(machine_name: str, engines: Sequence[str], cycles: int, progress: Callable[[str, float], None],
              seed: int = 0, beside: Sequence[str] = ()) -> BenchResult:
    """Measure cycles per second of a core's time of each engine, and what else `BenchResult` has.

    `seed` is that of engine `rtl`'s inputs, for the other engines they are a workload's; `beside` are simulators that
    are measured with it.
    """
    from t3sim.cosim.gpu import benchmark_gpu

    machine, speeds = load_machine(machine_name), {}
    if "lockstep" in engines:
        best = 0.0
        for attempt in range(_REPEATS + 1):  # the first compiles the loop
            with closing(_fused(machine)) as run:
                start = processor_seconds()
                run.advance(cycles)
                best = max(best, cycles / (processor_seconds() - start)) if attempt else best
            progress("lockstep", (attempt + 1) / (_REPEATS + 1))
        speeds["lockstep"] = best
    others = [name for name in engines if name not in ("lockstep", "gpus", *BenchResult.ON_REQUEST)]
    if others:
        def report_recording(share: float) -> None:
            for name in others:
                progress(name, 0.5 * share)

        speeds |= benchmark_gpu(machine.geometry(), recorded_stimulus(machine, cycles, report_recording), others)
        for name in others:
            progress(name, 1.0)

    def measured(engine: str, measure: Callable[[Callable[[float], None]], Any]) -> Any:
        if engine not in engines:
            return None
        result = measure(lambda share: progress(engine, share))
        progress(engine, 1.0)
        return result

    return BenchResult(
        cycles_per_second={name: speeds[name] for name in engines if name in speeds},
        cycles={name: cycles for name in engines if name != "event"}, versions=collect_versions(),
        gpus=measured("gpus", lambda report: measure_gpus(machine, cycles, report)),
        whole=measured("whole", lambda report: measure_whole_run(machine, report)),
        first=measured("first", lambda report: measure_first_run(machine_name)),
        event=measured("event", measure_event) or (),
        rtl=measure_rtl(machine, cycles, beside, progress, seed) if "rtl" in engines else ())
