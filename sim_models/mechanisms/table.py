"""The techniques by name, in the order of reports."""

from collections.abc import Collection
from importlib import import_module
from pkgutil import walk_packages

from t3sim import mechanisms
from t3sim.base.custom import installed
from t3sim.base.errors import BadInput, Key
from t3sim.machine import Machine
from t3sim.mechanisms.technique import Technique
from t3sim.runs.exchange import IN_SWITCH as BY_SWITCH
from t3sim.runs.exchange import Exchange

#: The order of reports. Others follow.
_ORDER = ("sequential", "decomposed", "flux", "fused-wg", "in-switch", "t3", "t3-mca", "t3-mca+", "ideal-overlap",
          "ideal-rs-nmc")


def _techniques() -> dict[str, Technique]:
    """Collect the techniques that this folder's modules define, then those of other distributions."""
    names = [module.name for module in walk_packages(mechanisms.__path__, f"{mechanisms.__name__}.")]
    defined = {one.name: one for name in names if name != __name__
               for one in vars(import_module(name)).values() if isinstance(one, Technique)}
    in_order = {name: defined[name] for name in (*_ORDER, *(name for name in defined if name not in _ORDER))}
    return in_order | {one.name: one for one in installed("techniques", Technique, in_order)}


#: A new one is a file of this folder, or an entry point of another distribution.
TECHNIQUES = _techniques()

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
