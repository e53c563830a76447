"""One sub-layer under each technique of the T3 paper's section 5.3: sums and maxima of kernels' times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from t3sim.base.at_once import at_once
from t3sim.base.cores import cores
from t3sim.base.output import collect_versions
from t3sim.mechanisms.table import TECHNIQUES, check_split_k
from t3sim.runs import kernels
from t3sim.runs.kernel_results import KernelResult
from t3sim.runs.kernels import Kernel
from t3sim.runs.plan import Plan
from t3sim.study.results import RunResult
from t3sim.study.tasks.estimate import in_threads, kernel_seconds
from t3sim.study.tasks.store import Results
from t3sim.study.tasks.task import kernel_task

Progress = Callable[[str, float], None]


BUILD = "build the RTL"


def kernels_of(technique: str, plan: Plan) -> tuple[Kernel, ...]:
    """List the kernels that a technique's result is made of. Raises BadInput for a plan that it refuses."""
    return TECHNIQUES[technique].kernels_of(plan)


def run_sublayer(plan: Plan, techniques: Sequence[str], progress: Progress = lambda name, fraction: None,
                 jobs: int | None = None, store: Results | None = None) -> RunResult:
    """Simulate the plan's workload under each technique, fused ones with RTL in the loop at every cycle.

    `jobs`: simulations at once, as many as cores if not given; the results are the same. `store`: results of kernels
    that need not be simulated again.
    Raises SimulationError, ToolchainError, and what machine and tiling refuse.
    """
    check_split_k(plan.machine, plan.exchange, techniques)
    if not plan.exchange.before:
        _ = plan.schedule  # refuse before the work
    parts = {name: kernels_of(name, plan) for name in techniques}
    result = run_result(plan, techniques, _simulate(parts, plan, progress, jobs or cores(), store))
    return replace(result, versions=collect_versions())


def run_result(plan: Plan, techniques: Sequence[str], kernel_results: Mapping[Kernel, KernelResult]) -> RunResult:
    """Compute the techniques' results from their kernels'; `versions` is empty."""
    results = {name: TECHNIQUES[name].result([kernel_results[kernel] for kernel in kernels_of(name, plan)], plan)
               for name in techniques}
    return RunResult(workload=plan.workload, machine=plan.machine, seed=plan.seed, versions={},
                     techniques=results, policy=plan.policy, exchange=plan.exchange, skew=plan.skew)


def _simulate(parts: Mapping[str, Sequence[Kernel]], plan: Plan, progress: Progress,
              jobs: int, store: Results | None) -> Mapping[Kernel, KernelResult]:
    """Simulate each kernel once, by its own plan, the longest first; `progress` gets the techniques' shares."""
    tasks = {kernel: kernel_task(kernel, plan.machine, plan.workload, plan.seed)
             for technique_kernels in parts.values() for kernel in technique_kernels}
    stored_results = {} if store is None else {
        kernel: result for kernel, task in tasks.items() if (result := store.load(task)) is not None}
    plans = {kernel: kernel.prepare(plan) for kernel in tasks if kernel not in stored_results}
    seconds = {kernel: kernel_seconds(kernel, plan.machine, plan.workload) for kernel in tasks}
    shares = dict.fromkeys(seconds, 0.0)

    def report(key: Kernel | str, fraction: float) -> None:
        if key == BUILD:
            progress(BUILD, fraction)
            return
        shares[key] = fraction
        for name, technique_kernels in parts.items():
            if key in technique_kernels:
                share = (sum(seconds[part] * shares[part] for part in technique_kernels)
                         / sum(seconds[part] for part in technique_kernels))
                progress(name, 1.0 if all(shares[part] >= 1 for part in technique_kernels) else min(0.99, share))

    for kernel in stored_results:
        report(kernel, 1.0)
    order = sorted(plans, key=lambda kernel: -seconds[kernel])

    def simulate(kernel: Kernel, threads: int, progress: Callable[[float], None]) -> KernelResult:
        result = kernels.simulate_plan(kernel, plans[kernel], progress, threads=threads)
        if store is not None:
            store.save(tasks[kernel], result)
        return result

    # Kernels with threads of their own run afterwards, one at a time, on all cores.
    together = {kernel: partial(simulate, kernel, 1) for kernel in order if not in_threads(kernel)}
    in_turn = {kernel: partial(simulate, kernel, jobs) for kernel in order if in_threads(kernel)}
    needs = {kernel: BUILD for kernel in together if kernel.needs_rtl}
    if any(kernel.needs_rtl for kernel in order):
        from t3sim.runs.fused import rtl_design

        report(BUILD, 0.0)
        together = {BUILD: lambda _: rtl_design(plan.machine.geometry()), **together}
    return {**stored_results, **at_once(together, jobs, report, needs), **at_once(in_turn, 1, report)}
