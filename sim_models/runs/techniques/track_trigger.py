"""T3: the GEMM and its collective fused on the RTL, under one of its arbiters' policies; then the all-gather."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from t3sim.base.custom import is_custom
from t3sim.runs.exchange import IN_SWITCH
from t3sim.runs.kernels import ALL_GATHER, PACKED, FusedGemm, GatherAfter, Kernel, KernelResult
from t3sim.runs.phases import PACKING
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.runs.techniques import losses
from t3sim.runs.techniques.parts import gemm_alone, loss_ns, slow_levels, slowing, summed
from t3sim.runs.techniques.result import TechniqueResult
from t3sim.runs.techniques.technique import Technique

#: How each fuses a GEMM and its collective.
FUSIONS = {"t3": FusedGemm("round_robin"), "t3-mca": FusedGemm("mca"),
           "t3-mca+": FusedGemm("ring_aware", staged=True)}


def policy_of(name: str, policy: str | None) -> str:
    """Return the arbiters' policy in a technique; `policy`: what technique t3 takes instead of its own."""
    return policy if policy is not None and name == "t3" else FUSIONS[name].policy


def fusion(name: str, plan: Plan) -> FusedGemm:
    """Return the kernel in which a technique fuses the GEMM and its collective."""
    exchange = plan.exchange
    if (exchange.algorithm, exchange.topology) == ("ring", "switch"):  # nobody else uses a link's way through it
        exchange = replace(exchange, topology="ring")
    skew = Skew() if plan.skew is None and exchange.every_gpu else plan.skew
    staged = FUSIONS[name].staged and exchange.reduces and not is_custom(exchange.producer)
    return FusedGemm(policy_of(name, plan.policy), staged, exchange, skew)


def _kernels(name: str, plan: Plan) -> tuple[Kernel, ...]:
    gemm, fused, slow = gemm_alone(plan), fusion(name, plan), slowing(plan)
    if plan.exchange.of_experts and plan.exchange.before:
        return gemm, fused, replace(PACKED, skew=slow)
    if plan.exchange.collective != "rs":
        return gemm, fused
    if plan.exchange.by_levels:
        return gemm, fused, replace(ALL_GATHER, exchange=plan.exchange)
    gather = GatherAfter.after(fused, plan.exchange.algorithm == IN_SWITCH)
    return gemm, fused, gather if slow is None else replace(ALL_GATHER, skew=slow)


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    """Put it together with the all-gather that follows, or with packing before; else the bytes have their own name."""
    exchange, clock_ghz, (alone, fused, *after) = plan.exchange, plan.machine.memory_clock_ghz, parts
    if after and not exchange.before:
        gather, = after
        return TechniqueResult(
            name=name, total_ns=fused.cycles / clock_ghz + gather.ns,
            phases_ns={"gemm": fused.gemm_cycles / clock_ghz,
                       "reduce-scatter": (fused.cycles - fused.rs_start) / clock_ghz, "all-gather": gather.ns},
            moved=summed(fused, gather), mc_cycles=fused.cycles + gather.simulated_cycles, rtl_in_loop=True,
            host_seconds=fused.host_seconds + gather.host_seconds,
            loss_ns=loss_ns(alone, fused, clock_ghz) | {"all_gather": gather.ns}, hardware=fused.hardware,
            gpus=fused.gpus)
    phase = "all-reduce" if exchange.collective == "ar" else exchange.hides[0]
    attribute = losses.attribute_gathered if exchange.before else losses.attribute
    collective_end = fused.hardware.last_tile_cycle if exchange.before else fused.cycles
    packed = dict(zip((PACKING,), (one.ns for one in after)))
    return TechniqueResult(
        name=name, total_ns=fused.cycles / clock_ghz + sum(packed.values()),
        phases_ns={"gemm": fused.gemm_cycles / clock_ghz, phase: (collective_end - fused.rs_start) / clock_ghz,
                   **packed},
        moved=summed(fused, *after), mc_cycles=fused.cycles + sum(one.simulated_cycles for one in after),
        rtl_in_loop=True, host_seconds=fused.host_seconds + sum(one.host_seconds for one in after),
        loss_ns=loss_ns(alone, fused, clock_ghz, attribute) | packed, hardware=fused.hardware, gpus=fused.gpus)


T3, T3_MCA, T3_MCA_PLUS = (
    Technique(name, title, source, partial(_kernels, name), _combine, slow_levels, by_default=True, splits_k=True)
    for name, title, source in (
        ("t3", "GEMM and reduce-scatter fused, round-robin arbitration; then the all-gather", "T3, section 4"),
        ("t3-mca", "the same with the communication-aware arbiter", "T3, section 4.5"),
        ("t3-mca+", "ring-aware arbitration; the first chunk through local memory where that pays",
         "of this project, beyond T3")))
