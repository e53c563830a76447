"""One sub-layer under each technique of the T3 paper's section 5.3: sums and maxima of kernels' times."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from t3sim.base.at_once import at_once
from t3sim.base.cores import cores
from t3sim.base.output import collect_versions
from t3sim.machine import Machine
from t3sim.runs import kernels
from t3sim.runs.kernels import Kernel, KernelResult
from t3sim.runs.plan import Plan
from t3sim.runs.techniques.choices import Choices
from t3sim.runs.techniques.result import TechniqueResult
from t3sim.runs.techniques.table import TECHNIQUES, check_split_k
from t3sim.study.results import RunResult
from t3sim.study.tasks.estimate import in_threads, kernel_seconds
from t3sim.study.tasks.store import Results
from t3sim.study.tasks.task import kernel_task
from t3sim.workload.workloads import Workload

Progress = Callable[[str, float], None]


BUILD = "build the RTL"


def kernels_of(technique: str, choices: Choices = Choices()) -> tuple[Kernel, ...]:
    """List the kernels that a technique's result is made of. Raises BadInput for choices that it refuses."""
    return TECHNIQUES[technique].kernels_of(choices)


def technique_result(technique: str, done: Mapping[Kernel, KernelResult], clock_ghz: float,
                     choices: Choices = Choices()) -> TechniqueResult:
    """Make up a technique from its kernels on a machine with this memory clock."""
    parts = [done[kernel] for kernel in kernels_of(technique, choices)]
    return TECHNIQUES[technique].result(parts, clock_ghz, choices)


def run_sublayer(workload: Workload, machine: Machine, techniques: Sequence[str], progress: Progress,
                 seed: int = 0, choices: Choices = Choices(), jobs: int | None = None,
                 kept: Results | None = None) -> RunResult:
    """Simulate `workload` under each technique, fused ones with RTL in the loop at every cycle.

    `jobs`: simulations at once, as many as cores if not given; the results are the same. `kept`: where results of
    kernels are that need not be simulated again.
    Raises SimulationError, ToolchainError, and what machine and tiling refuse.
    """
    check_split_k(machine, choices.exchange, techniques)
    if not choices.exchange.before:
        _ = Plan(machine, workload).schedule  # refuse before the work
    parts = {name: kernels_of(name, choices) for name in techniques}
    for kernel in {kernel for of_one in parts.values() for kernel in of_one}:
        kernel.refuse_early(machine, workload, seed)
    done = _simulated(parts, machine, workload, progress, seed, jobs or cores(), kept)
    return run_result(workload, machine, techniques, done, seed, choices)


def run_result(workload: Workload, machine: Machine, techniques: Sequence[str], done: Mapping[Kernel, KernelResult],
               seed: int, choices: Choices) -> RunResult:
    """Make up the techniques of a run from the results of all of their kernels."""
    return RunResult(
        workload=workload, machine=machine, seed=seed, versions=collect_versions(),
        techniques={name: technique_result(name, done, machine.memory_clock_ghz, choices) for name in techniques},
        policy=choices.policy, exchange=choices.exchange, skew=choices.skew)


def _simulated(parts: Mapping[str, Sequence[Kernel]], machine: Machine, workload: Workload, progress: Progress,
               seed: int, jobs: int, kept: Results | None) -> Mapping[Kernel, KernelResult]:
    """Simulate each kernel once; the longest begin first. `progress` hears of the techniques that they belong to."""
    done = {} if kept is None else _known({kernel for of_one in parts.values() for kernel in of_one},
                                                machine, workload, seed, kept)
    seconds = {kernel: kernel_seconds(kernel, machine, workload) for of_one in parts.values() for kernel in of_one}
    shares = dict.fromkeys(seconds, 0.0)

    def told(key: Kernel | str, fraction: float) -> None:
        if key == BUILD:
            progress(BUILD, fraction)
            return
        shares[key] = fraction
        for name, of_one in parts.items():
            if key in of_one:
                share = sum(seconds[part] * shares[part] for part in of_one) / sum(seconds[part] for part in of_one)
                progress(name, 1.0 if all(shares[part] >= 1 for part in of_one) else min(0.99, share))

    for kernel in done:
        told(kernel, 1.0)
    order = sorted((kernel for kernel in seconds if kernel not in done), key=lambda kernel: -seconds[kernel])
    # What has its own threads comes afterwards, one at a time, on all of them.
    together = {kernel: partial(_simulate, kernel, machine, workload, seed, kept, 1)
                for kernel in order if not in_threads(kernel)}
    in_turn = {kernel: partial(_simulate, kernel, machine, workload, seed, kept, jobs)
               for kernel in order if in_threads(kernel)}
    needs = {kernel: BUILD for kernel in together if kernel.needs_rtl}
    if any(kernel.needs_rtl for kernel in order):
        told(BUILD, 0.0)
        together = {BUILD: lambda _: kernels.rtl_design(machine.geometry()), **together}
    return {**done, **at_once(together, jobs, told, needs), **at_once(in_turn, 1, told)}


def _known(asked: Iterable[Kernel], machine: Machine, workload: Workload, seed: int,
                 kept: Results) -> dict[Kernel, KernelResult]:
    """Return what is known of these kernels already."""
    found = {kernel: kept.load(kernel_task(kernel, machine, workload, seed)) for kernel in asked}
    return {kernel: result for kernel, result in found.items() if result is not None}


def _simulate(kernel: Kernel, machine: Machine, workload: Workload, seed: int, kept: Results | None, threads: int,
              progress: Callable[[float], None]) -> KernelResult:
    result = kernels.simulate(kernel, machine, workload, progress, seed, threads=threads)
    if kept is not None:
        kept.save(kernel_task(kernel, machine, workload, seed), result)
    return result
