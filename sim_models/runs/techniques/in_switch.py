"""The GEMM, then an all-reduce by a switch that adds and copies."""

from collections.abc import Sequence

from t3sim.base.errors import Key, Words
from t3sim.runs.kernels import SWITCH_ALL_REDUCE, IsolatedKernel, Kernel
from t3sim.runs.techniques.choices import Choices
from t3sim.runs.techniques.parts import gemm_alone, in_turn, unlike_gpus
from t3sim.runs.techniques.result import TechniqueResult
from t3sim.runs.techniques.technique import Technique


def _refuses(choices: Choices) -> Words | None:
    if choices.exchange.collective not in ("rs", "ar"):
        return Words("technique in-switch all-reduces: ", Key("layer.operator", choices.exchange.operator), " does not")
    if choices.exchange.topology != "switch":
        return Words("technique in-switch adds and copies in a switch: it needs ", Key("exchange.topology", "switch"))
    return unlike_gpus("in-switch", choices)


def _kernels(choices: Choices) -> tuple[Kernel, ...]:
    return gemm_alone(choices), SWITCH_ALL_REDUCE


def _combine(name: str, parts: Sequence[IsolatedKernel], clock_ghz: float, choices: Choices) -> TechniqueResult:
    gemm, all_reduce = parts
    return in_turn(name, gemm, {"all-reduce": all_reduce}, choices.exchange)


IN_SWITCH = Technique(
    "in-switch", "GEMM, then an all-reduce as a kernel that a switch adds for and copies for",
    "Klenk et al., ISCA 2020", _kernels, _combine, _refuses)
