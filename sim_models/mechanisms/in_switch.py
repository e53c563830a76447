"""The GEMM, then an all-reduce by a switch that adds and copies."""

from collections.abc import Sequence

from t3sim.mechanisms.parts import gemm_alone, in_turn, unlike_gpus
from t3sim.mechanisms.result import TechniqueResult
from t3sim.mechanisms.technique import Technique
from t3sim.runs.kernel_results import IsolatedKernel
from t3sim.runs.kernels import SWITCH_ALL_REDUCE, Kernel
from t3sim.runs.plan import Plan


def _refuses(plan: Plan) -> str | None:
    if plan.exchange.collective not in ("rs", "ar"):
        return f"technique in-switch all-reduces: layer.operator = {plan.exchange.operator} does not"
    if plan.exchange.topology != "switch":
        return "technique in-switch adds and copies in a switch: it needs exchange.topology = switch"
    return unlike_gpus("in-switch", plan)


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    return gemm_alone(plan), SWITCH_ALL_REDUCE


def _combine(name: str, parts: Sequence[IsolatedKernel], plan: Plan) -> TechniqueResult:
    gemm, all_reduce = parts
    return in_turn(name, gemm, {"all-reduce": all_reduce}, plan.exchange)


IN_SWITCH = Technique(
    "in-switch", "GEMM, then an all-reduce kernel for which a switch adds and copies",
    "Klenk et al., ISCA 2020", _kernels, _combine, _refuses)
