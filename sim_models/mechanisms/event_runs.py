"""An operator and its collective under several techniques on one node, and what each leaves of the communication."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from t3sim.analytic.gemm import Shape, best_tile_kernel
from t3sim.analytic.rings import library_ring_ns
from t3sim.base.errors import BadInput, choices
from t3sim.machine import Machine
from t3sim.mechanisms.decomposed.event import COMMUNICATION_UNITS, decomposed
from t3sim.mechanisms.flux.event import OPERATORS as FUSED
from t3sim.mechanisms.flux.event import Choice, fused

OPERATORS = (*FUSED, "gemm-ar")
TECHNIQUES = ("sequential", "decomposed", "flux", "ideal-overlap")
_ROUNDING_NS = 1e-3


@dataclass(frozen=True)
class EventTechnique:
    """One technique's time; `loss_ns` adds up to what the operator takes longer than the GEMM alone."""

    total_ns: float  #: as on the cycle level, until all GPUs have the whole output: gemm-rs and an all-gather
    operator_ns: float  #: the operator alone: gemm-rs without the all-gather
    ect_ns: float  #: the operator's effective communication time: less the GEMM alone (Flux, equation 1)
    overlap_efficiency: float  #: one less this one's over the sequential one's (Flux, equation 2)
    speedup: float  #: of the total over sequential
    choice: dict[str, Any]
    loss_ns: dict[str, float]


@dataclass(frozen=True)
class OverlapRun:
    """An operator on a node."""

    operator: str
    machine: str
    gpus: int
    m: int
    n: int
    k: int  #: n and k are one GPU's
    sublayer: str  #: of a model; else empty
    gemm_ns: float
    gemm_kernel: str
    collective_ns: float
    techniques: dict[str, EventTechnique]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_gpus(node: Machine, gpus: int, m: int, key: str = "layer.devices") -> None:
    """Refuse a number of GPUs, which `key` has, that a node, or two, has not. Raises BadInput."""
    if gpus < 2 or gpus > 2 * node.gpus or node.gpus < gpus < 2 * node.gpus:
        raise BadInput(f"{key} = {gpus}: machine {node.name} has 2 to {node.gpus} GPUs, or {2 * node.gpus} on two "
                       "nodes")
    if gpus > node.gpus and node.network is None:
        raise BadInput(f"{key} = {gpus}: machine {node.name} has no [network] that joins two nodes of {node.gpus}")
    if m < gpus:
        raise BadInput(f"M = {m} cannot be shared by {gpus} GPUs: a row each is needed")


def run_overlap(node: Machine, operator: str, shape: Shape, gpus: int, techniques: Sequence[str] = TECHNIQUES,
                choice: Choice | None = None, communication_units: int = COMMUNICATION_UNITS,
                sublayer: str = "") -> OverlapRun:
    """Play `operator` under each technique; `shape`: one GPU's GEMM; `choice`: of Flux, None for the best.

    The all-reduce of `gemm-ar` is the library's in turn; the other mechanisms have a reduce-scatter, then the library's
    all-gather.

    Raises BadInput for what the node has not, or a name that is unknown.
    """
    if operator not in OPERATORS:
        raise BadInput(f"layer.operator = {operator!r} is unknown: allowed are {choices(operator, OPERATORS)}")
    for name in techniques:
        if name not in TECHNIQUES:
            raise BadInput(f"techniques = {name!r} is unknown on the event level: allowed are "
                           f"{choices(name, TECHNIQUES)}")
    check_gpus(node, gpus, shape.m)
    if not 1 <= communication_units < node.gpu.compute_units:
        raise BadInput(f"decomposed.communication_units = {communication_units}: machine {node.name} has "
                       f"{node.gpu.compute_units} compute units, and the GEMM needs one")
    if "decomposed" in techniques and gpus > node.gpus:
        raise BadInput(f"techniques = decomposed works within a node: {node.name}'s has {node.gpus} GPUs")
    gemm = best_tile_kernel(node, shape)
    gather_ns = node.host.launch_ns + library_ring_ns(node, gpus, shape.scattered_bytes)  # after a reduce-scatter
    collective_ns = library_ring_ns(node, gpus, shape.gathered_bytes if operator == "ag-gemm" else
                                    shape.scattered_bytes, passes=2 if operator == "gemm-ar" else 1)
    after_ns = gather_ns if operator == "gemm-rs" else 0.0
    sequential_ns = gemm.ns + node.host.launch_ns + collective_ns
    results: dict[str, EventTechnique] = {}
    for name in techniques:
        is_whole = operator == "gemm-ar" and name in ("flux", "decomposed")
        alone, setting, losses = _play(name, node, "gemm-rs" if is_whole else operator, shape, gpus,
                                       (collective_ns, choice, communication_units))
        if is_whole:
            alone, losses = alone + gather_ns, {**losses, "all-gather": gather_ns}
        ect = alone - gemm.ns
        rest_ns = ect - sum(losses.values())
        losses["waiting and tails"] = rest_ns if abs(rest_ns) > _ROUNDING_NS else 0.0
        results[name] = EventTechnique(alone + after_ns, alone, ect, 1 - ect / (sequential_ns - gemm.ns),
                                       (sequential_ns + after_ns) / (alone + after_ns), setting, losses)
    return OverlapRun(operator, node.name, gpus, shape.m, shape.n, shape.k, sublayer, gemm.ns, gemm.name, collective_ns,
                      results)


def _play(name: str, node: Machine, operator: str, shape: Shape, gpus: int,
          more: tuple[float, Choice | None, int]) -> tuple[float, dict[str, Any], dict[str, float]]:
    """Play a technique; return the total in ns, what was chosen, and the losses besides waiting."""
    collective_ns, choice, units = more
    gemm = best_tile_kernel(node, shape)
    if name == "sequential":
        return gemm.ns + node.host.launch_ns + collective_ns, {}, {"collective": collective_ns,
                                                                   "launches": node.host.launch_ns}
    if name == "ideal-overlap":
        return max(gemm.ns, collective_ns), {}, {}
    if name == "flux":
        run = fused(node, operator, shape, gpus, choice)
        settings = asdict(run.choice)
        settings = {name: settings[name] for name in (("order", "signal") if operator == "gemm-rs" else settings)
                    if name != "signal" or run.choice.signal}
        return run.ns, {"kernel": run.kernel.name, **settings}, {
            "another kernel": run.kernel.ns - gemm.ns, "reduction": run.reduction_ns, "launches": run.launch_ns}
    split = decomposed(node, operator, shape, gpus, units)
    launches = (split.parts - 1) * node.host.launch_ns if operator == "gemm-rs" else 0.0
    return split.ns, {"kernel": split.kernel.name, "parts": split.parts, "method": split.method}, {
        "split GEMM": split.parts * split.kernel.ns - gemm.ns, "launches": launches}
