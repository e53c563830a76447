"""The GEMM and its collectives one after the other, each alone on the whole GPU; and what were if they overlapped."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from t3sim.mechanisms.parts import gemm_alone, in_turn, slow_levels, slowing
from t3sim.mechanisms.result import BASELINE, TechniqueResult
from t3sim.mechanisms.technique import Technique
from t3sim.runs.kernel_results import IsolatedKernel
from t3sim.runs.kernels import (
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER_INPUT,
    PACKED,
    REDUCE_SCATTER,
    REDUCE_SCATTER_NMC,
    CollectiveAlone,
    ExpertsAlone,
    Kernel,
)
from t3sim.runs.phases import PACKING
from t3sim.runs.plan import Plan


def _kernels(plan: Plan, scatter: CollectiveAlone = REDUCE_SCATTER) -> tuple[Kernel, ...]:
    exchange, slow, gather, to_all = plan.exchange, slowing(plan), ALL_GATHER, ALL_TO_ALL
    if exchange.of_experts:
        return (gemm_alone(plan), ExpertsAlone(exchange, slow),
                *((replace(PACKED, skew=slow),) if exchange.before else ()))
    if exchange.before:
        gathered = replace(GATHER_INPUT, exchange=exchange) if exchange.by_levels else GATHER_INPUT
        return gemm_alone(plan), replace(gathered, skew=slow)
    if exchange.by_levels:
        scatter, gather, to_all = (replace(one, exchange=exchange) for one in (scatter, gather, to_all))
    used = {"ag": (gather,), "a2a": (to_all,)}.get(exchange.collective, (scatter, gather))
    return gemm_alone(plan), *(one if slow is None else replace(one, skew=slow) for one in used)


def _combine(name: str, parts: Sequence[IsolatedKernel], plan: Plan,
             ideal: bool = False) -> TechniqueResult:
    exchange = plan.exchange
    phases = ("reduce-scatter", "all-gather") if exchange.collective in ("rs", "ar") else (*exchange.hides, PACKING)
    return in_turn(name, parts[0], dict(zip(phases, parts[1:])), exchange, ideal)


SEQUENTIAL = Technique(
    BASELINE, "GEMM, then reduce-scatter, then all-gather, each alone on the whole GPU", "T3, section 5.3",
    _kernels, _combine, slow_levels, by_default=True, splits_k=True)
IDEAL_OVERLAP = Technique(
    "ideal-overlap", "max(GEMM, reduce-scatter) + all-gather, from isolated times", "T3, section 5.3",
    _kernels, partial(_combine, ideal=True), slow_levels, by_default=True, splits_k=True)
IDEAL_RS_NMC = Technique(
    "ideal-rs-nmc", "ideal-overlap with a near-memory reduce-scatter", "T3, section 5.3",
    partial(_kernels, scatter=REDUCE_SCATTER_NMC), partial(_combine, ideal=True), slow_levels, by_default=True,
    splits_k=True)
