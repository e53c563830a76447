"""Fused operators: a persistent kernel whose workgroups store at the owners, and add what came."""

from collections.abc import Sequence

from t3sim.base.custom import is_custom
from t3sim.base.errors import Key, Words
from t3sim.runs.kernels import ALL_GATHER, Kernel, KernelResult, SendingKernel
from t3sim.runs.plan import Plan
from t3sim.runs.techniques import losses
from t3sim.runs.techniques.parts import gemm_alone, overlapped, unlike_gpus, watched, watched_beside
from t3sim.runs.techniques.result import TechniqueResult
from t3sim.runs.techniques.technique import Technique


def _refuses(plan: Plan) -> Words | None:
    exchange = plan.exchange
    if is_custom(exchange.producer):
        return Words("technique fused-wg has its own kernels: ", Key("layer.operator", exchange.operator),
                     " does not go with it")
    if exchange.before or exchange.collective not in ("rs", "ar", "a2a"):
        return Words("technique fused-wg adds what GPUs make, or sends each its part: ",
                     Key("layer.operator", exchange.operator), " does neither")
    if exchange.topology not in ("switch", "full"):
        return Words("technique fused-wg stores at every GPU, in a ring over the others' links too: it needs ",
                     Key("exchange.topology", "switch"), ", or full with ", Key("exchange.algorithm", "direct"))
    return unlike_gpus("fused-wg", plan)


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    exchange = plan.exchange
    return gemm_alone(plan), SendingKernel(exchange), *((ALL_GATHER,) if exchange.collective == "rs" else ())


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    exchange, clock_ghz, (alone, ran, *gather) = plan.exchange, plan.machine.memory_clock_ghz, parts
    loss = losses.attribute_sending(watched(alone, clock_ghz), watched_beside(ran), end=ran.cycles, units=ran.places)
    if gather:
        return overlapped(name, ran, loss, *gather, clock_ghz)
    phase = "all-reduce" if exchange.collective == "ar" else exchange.hides[0]
    return TechniqueResult(
        name=name, total_ns=ran.cycles / clock_ghz,
        phases_ns={"gemm": ran.gemm_cycles / clock_ghz, phase: (ran.cycles - ran.collective_start) / clock_ghz},
        moved=ran.dram, mc_cycles=ran.simulated_cycles, rtl_in_loop=False, host_seconds=ran.host_seconds,
        loss_ns={cause: cycles / clock_ghz for cause, cycles in loss.items()})


FUSED_WG = Technique(
    "fused-wg", "one persistent kernel whose workgroups store at the owners, and add what came; then the all-gather",
    "fused computation-collective operators, section III", _kernels, _combine, _refuses)
