"""The techniques by name, in the order of reports."""

from collections.abc import Collection

from t3sim.base.custom import installed
from t3sim.base.errors import BadInput, Key
from t3sim.machine import Machine
from t3sim.runs.exchange import IN_SWITCH as BY_SWITCH
from t3sim.runs.exchange import Exchange
from t3sim.runs.techniques.decomposed import DECOMPOSED
from t3sim.runs.techniques.flux import FLUX
from t3sim.runs.techniques.fused_wg import FUSED_WG
from t3sim.runs.techniques.in_switch import IN_SWITCH
from t3sim.runs.techniques.sequential import IDEAL_OVERLAP, IDEAL_RS_NMC, SEQUENTIAL
from t3sim.runs.techniques.technique import Technique
from t3sim.runs.techniques.track_trigger import T3, T3_MCA, T3_MCA_PLUS

#: A new one is a file and a line here, or an entry point of another distribution.
TECHNIQUES: dict[str, Technique] = {one.name: one for one in (
    SEQUENTIAL,
    DECOMPOSED,
    FLUX,
    FUSED_WG,
    IN_SWITCH,
    T3,
    T3_MCA,
    T3_MCA_PLUS,
    IDEAL_OVERLAP,
    IDEAL_RS_NMC,
)}
TECHNIQUES |= {one.name: one for one in installed("techniques", Technique, TECHNIQUES)}

#: Those that are run if none is named: the T3 paper's, and its own best.
BY_DEFAULT = tuple(one.name for one in TECHNIQUES.values() if one.by_default)


def check_split_k(machine: Machine, exchange: Exchange, techniques: Collection[str]) -> None:
    """Raise BadInput if the machine's parts of K do not go with what follows the GEMM."""
    parts = machine.gpu.k_parts
    if parts == 1:
        return
    if exchange.collective not in ("rs", "ar") or exchange.algorithm == BY_SWITCH or exchange.producer != "gemm":
        raise BadInput(Key("layer.split_k", parts), " is for ", Key("layer.operator", "gemm-rs"),
                       " and gemm-ar, whose tiles are added up by GPUs: ", Key("layer.operator", exchange.operator),
                       " ", Key("exchange.algorithm", exchange.algorithm), " is not among them")
    if exchange.signal is not None:
        raise BadInput(Key("layer.split_k", parts), " does not go with ", Key("exchange.signal", exchange.signal),
                       ": its tiles are complete one by one")
    if without := [name for name in techniques if not TECHNIQUES[name].splits_k]:
        raise BadInput(Key("layer.split_k", parts),
                       f" does not go with technique {without[0]}, whose kernels do not have it")
