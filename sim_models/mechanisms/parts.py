"""Parts that several techniques share: their GEMM, what they refuse, and sums of their kernels' times and bytes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from t3sim.base.custom import is_custom
from t3sim.mechanisms import losses
from t3sim.mechanisms.result import TechniqueResult
from t3sim.runs.exchange import Exchange
from t3sim.runs.kernel_results import FusedResult, IsolatedKernel, KernelResult, OverlappedKernels
from t3sim.runs.kernels import GEMM, GEMM_PART, Kernel
from t3sim.runs.phases import Moved
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew


def gemm_alone(plan: Plan) -> Kernel:
    return replace(GEMM_PART if plan.exchange.of_parts else GEMM, skew=plan.skew)


def slowing(plan: Plan) -> Skew | None:
    """Return the skew if it slows collectives by a GPU or a link."""
    return plan.skew if plan.skew and plan.skew.slows_collectives else None


def unlike_gpus(technique: str, plan: Plan) -> str | None:
    """Refuse GPUs that are not alike."""
    return None if plan.skew is None else (
        f"technique {technique} has no GPUs that are not alike: gpus.every = true does not go with it")


def slow_levels(plan: Plan) -> str | None:
    """Refuse slow GPUs and links together with kernels that run level by level."""
    return None if not plan.exchange.by_levels or slowing(plan) is None else (
        f"gpus.skew of a clock, units or a link does not go with exchange.algorithm = {plan.exchange.algorithm}: "
        "its kernels alone have all GPUs and links alike")


def only_a_reduce_scatter(technique: str, plan: Plan) -> str | None:
    """Refuse plans of another collective than a reduce-scatter around one ring."""
    exchange = plan.exchange
    if is_custom(exchange.producer):
        return f"technique {technique} has its own GEMM: layer.operator = {exchange.operator} does not go with it"
    if exchange.collective not in ("rs", "ar"):
        return f"technique {technique} is of a reduce-scatter: layer.operator = {exchange.operator} has none"
    if refused := unlike_gpus(technique, plan):
        return refused
    if exchange.by_levels:
        return f"technique {technique} does not go with exchange.algorithm = {exchange.algorithm}"
    return None


def in_turn(name: str, gemm: IsolatedKernel, collectives: Mapping[str, IsolatedKernel],
            exchange: Exchange, ideal: bool = False) -> TechniqueResult:
    """Add the times of phases that follow each other; with `ideal`, hidden ones run concurrently with the GEMM.

    All GPUs wait for the one whose GEMM ends last.
    """
    late_ns = gemm.start_ns
    g = gemm.ns + late_ns
    phases_ns = {phase: kernel.ns for phase, kernel in collectives.items()}
    simulated = () if ideal else (gemm, *collectives.values())
    hidden = sum(phases_ns[phase] for phase in exchange.hides) if ideal else 0.0
    total, loss = max(g, hidden), {"link_tail": max(0.0, hidden - g)} if ideal else {}
    for phase, ns in phases_ns.items():
        if not ideal or phase not in exchange.hides:
            total, loss[phase.replace("-", "_")] = total + ns, ns
    if late_ns:
        loss["late_start"] = late_ns
    return TechniqueResult(
        name=name, total_ns=total, phases_ns={"gemm": g, **phases_ns}, moved=summed(gemm, *collectives.values()),
        mc_cycles=sum(kernel.simulated_cycles for kernel in simulated), rtl_in_loop=False,
        host_seconds=sum(kernel.host_seconds for kernel in simulated), loss_ns=loss)


def watched(alone: IsolatedKernel, clock: float) -> losses.Watched:
    return losses.Watched(alone.ns * clock, np.array(alone.unit_cycles), np.array(alone.waited))


def watched_beside(gemm: OverlappedKernels) -> losses.Watched:
    return losses.Watched(gemm.gemm_cycles, np.array(gemm.unit_cycles), np.array(gemm.waited))


def overlapped(name: str, ran: OverlappedKernels, loss: Mapping[str, float], gather: IsolatedKernel,
                clock: float) -> TechniqueResult:
    return TechniqueResult(
        name=name, total_ns=ran.cycles / clock + gather.ns,
        phases_ns={"gemm": ran.gemm_cycles / clock, "reduce-scatter": (ran.cycles - ran.collective_start) / clock,
                   "all-gather": gather.ns},
        moved=summed(ran, gather), mc_cycles=ran.simulated_cycles + gather.simulated_cycles,
        rtl_in_loop=False, host_seconds=ran.host_seconds + gather.host_seconds,
        loss_ns={cause: cycles / clock for cause, cycles in loss.items()} | {"all_gather": gather.ns})


def loss_ns(alone: IsolatedKernel, fused: FusedResult, clock: float,
             attribute: Callable[..., dict[str, float]] = losses.attribute) -> dict[str, float]:
    loss = attribute(
        watched(alone, clock),
        losses.Watched(fused.gemm_cycles, np.array(fused.unit_cycles), np.array(fused.waited)),
        end=fused.cycles, units=fused.units)
    return {cause: cycles / clock for cause, cycles in loss.items()}


def summed(*parts: KernelResult) -> dict[str, Moved]:
    """Sum the bytes at one GPU's DRAM by phase."""
    by_phase = [(phase, moved) for part in parts for phase, moved in part.dram.items()]
    return {phase: Moved(*map(sum, zip(*(moved for other, moved in by_phase if other == phase))))
            for phase in dict.fromkeys(phase for phase, _ in by_phase)}
