"""The five kinds of scenario, and the keys that each takes. A scenario's level and layer decide its kind."""

from typing import NamedTuple

from t3sim.base.custom import is_custom
from t3sim.base.errors import BadInput, named_once
from t3sim.study.scenario.scenario import ALONE, Layer, Scenario, setting

_GEMM = ("layer.operator", "layer.model", "layer.sublayer", "layer.tp", "layer.gemm", "layer.devices", "layer.tokens")
_HARDWARE = ("machine", "seed", "fraction", "gpus.every", "gpus.skew", "exchange.topology", "exchange.algorithm")


class ScenarioKind(NamedTuple):
    """A kind of scenario."""

    name: str  #: in messages
    keys: tuple[str, ...]


KINDS = {
    "layer": ScenarioKind("a layer of the cycle level", (
        *_GEMM, *_HARDWARE, "layer.embedding", "layer.experts", "layer.locality", "layer.chakra",
        "layer.dtype", "layer.split_k", "layer.values", "layer.workload", "exchange.accumulate", "exchange.wire",
        "exchange.sums", "exchange.signal", "techniques", "t3.policy", "decomposed.communication_units", "flux.order",
        "flux.pieces", "flux.tune")),
    "kernel": ScenarioKind("a kernel alone", (
        "layer.operator", "layer.kernel", "layer.gemm", "layer.embedding", "layer.locality", "layer.split_k",
        "layer.dtype", "machine", "fraction", "seed")),
    "collective": ScenarioKind("a collective alone", (
        *_HARDWARE, "layer.collective", "layer.bytes", "layer.values", "layer.devices")),
    "event": ScenarioKind("level = event", (
        *_GEMM, "level", "layer.embedding", "layer.workload", "exchange.signal", "techniques",
        "decomposed.communication_units", "flux.order", "flux.pieces", "flux.tune", "flux.transfer",
        "fused_wg.slice_tasks", "software", "machine")),
    "library": ScenarioKind("a ranking of mechanisms", (
        "level", "layer.model", "layer.tp", "layer.tokens", "layer.dtype", "layer.operator", "machine"))}
#: Settings that ask for a ring, which the event level has anyway.
_SAYS_NOTHING = {("exchange.topology", "ring"), ("exchange.algorithm", "ring")}


def is_alone(layer: Layer) -> bool:
    """Say whether it is a kernel alone, on one GPU."""
    return layer.kernel is not None or layer.operator in ALONE or is_custom(layer.operator)


def kind_of(scenario: Scenario) -> str:
    """Return which of KINDS it is."""
    if scenario.level != "cycle":
        return scenario.level
    if scenario.layer.collective is not None:
        return "collective"
    return "kernel" if is_alone(scenario.layer) else "layer"


def check_keys(scenario: Scenario, kind: str) -> None:
    """Refuse keys that a scenario's kind does not take, and one of another kind. Raises BadInput.

    `t3 overlap` ranks a scenario that does not name its level.
    """
    if scenario.techniques is not None:
        named_once(setting("techniques", scenario.techniques), scenario.techniques)
    own_kind = kind if kind == "library" and scenario.level == "cycle" else kind_of(scenario)
    for key, value in scenario.changes().items():
        if key in KINDS[own_kind].keys or own_kind == "event" and (key, value) in _SAYS_NOTHING:
            continue
        match own_kind:
            case "layer" if key in KINDS["event"].keys:
                why = "needs level = event"
            case "layer":
                why = "is for layer.collective = rs, ag, ar or a2a"
            case "collective":
                why = f"does not go with {setting('layer.collective', scenario.layer.collective)}, which is alone"
            case "library":
                _, *keys, last = KINDS[own_kind].keys
                why = f"does not go with {KINDS[own_kind].name}, which has {', '.join(keys)} and a {last}"
            case _:
                why = f"does not go with {KINDS[own_kind].name}"
        raise BadInput(f"{setting(key, value)} {why}")
    if own_kind != kind:
        raise BadInput(f"{KINDS[own_kind].name} does not go with {KINDS[kind].name}")
