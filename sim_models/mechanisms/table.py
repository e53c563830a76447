"""The techniques of the cycle level in the order of reports, and a table of the mechanisms of all levels."""

from collections.abc import Collection
from dataclasses import replace
from importlib import import_module
from itertools import product
from pkgutil import walk_packages
from typing import NamedTuple

from t3sim import mechanisms
from t3sim.analytic.libraries.experts import EXPERTS_MECHANISMS
from t3sim.analytic.libraries.mechanisms import MECHANISMS
from t3sim.base.custom import installed
from t3sim.base.errors import BadInput
from t3sim.machine import Machine, load_machine
from t3sim.mechanisms import event_runs
from t3sim.mechanisms.fused_wg import event
from t3sim.mechanisms.technique import Technique
from t3sim.runs.exchange import ALGORITHMS, FUSED_OPERATORS, TOPOLOGIES, Exchange, fused_with
from t3sim.runs.exchange import IN_SWITCH as BY_SWITCH
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import gemm_workload

#: The order of reports. Others follow.
_ORDER = ("sequential", "decomposed", "flux", "fused-wg", "in-switch", "t3", "t3-mca", "t3-mca+", "ideal-overlap",
          "ideal-rs-nmc")


def _techniques() -> dict[str, Technique]:
    """Collect the techniques that this folder's modules define, then those of other distributions."""
    names = [module.name for module in walk_packages(mechanisms.__path__, f"{mechanisms.__name__}.")]
    defined: dict[str, Technique] = {}
    for module in (import_module(name) for name in names if name != __name__):
        for one in vars(module).values():
            if isinstance(one, Technique) and defined.setdefault(one.name, one) is not one:
                raise BadInput(f"technique {one.name} is defined twice, once in {module.__name__}")
    in_order = {name: defined[name] for name in (*_ORDER, *(name for name in defined if name not in _ORDER))}
    return in_order | {one.name: one for one in installed("techniques", Technique, in_order)}


#: A new one is a file of this folder, or an entry point of another distribution.
TECHNIQUES = _techniques()

#: Those that are run if none is named: the T3 paper's, and its own best.
BY_DEFAULT = tuple(one.name for one in TECHNIQUES.values() if one.by_default)


class MechanismRow(NamedTuple):
    """A mechanism on a level.

    That is `cycle` (`t3 run`), `event` (`t3 run --level event`), `library` (`t3 overlap`), or `experts` (`t3 overlap
    --expert-parallel`).
    """

    name: str
    level: str
    title: str
    source: str
    operators: tuple[str, ...]
    topologies: tuple[str, ...] = ()  #: of the cycle level
    by_default: bool = False  #: run if none is named
    split_k: bool = False  #: its GEMM's K can be in parts
    in_switch: bool = False  #: only with a switch that adds


def every_mechanism() -> list[MechanismRow]:
    """List the mechanisms of all levels."""
    rows = [MechanismRow(name, "cycle", one.title, one.source, *_goes_with(one), one.by_default, one.splits_k)
            for name, one in TECHNIQUES.items()]
    rows += [MechanismRow(name, "event", TECHNIQUES[name].title, TECHNIQUES[name].source, event_runs.OPERATORS)
             for name in event_runs.TECHNIQUES]
    fused = TECHNIQUES["fused-wg"]
    rows.append(MechanismRow(fused.name, "event", fused.title, fused.source, event.OPERATORS))
    rows += [MechanismRow(name, "library", one.title, one.source, one.operators, in_switch=one.in_switch)
             for name, one in MECHANISMS.items()]
    return rows + [MechanismRow(name, "experts", one.title, one.source, ("experts",))
                   for name, one in EXPERTS_MECHANISMS.items()]


def _goes_with(technique: Technique) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operators and topologies that a technique accepts, of topologies whose name has no size."""
    plan = Plan(load_machine(), gemm_workload("1024x1024x1024", 8))
    operators, links = {}, {}
    for operator, topology, algorithm in product(FUSED_OPERATORS, TOPOLOGIES[:3], ALGORITHMS):
        try:
            exchange = fused_with(operator, topology, algorithm)
        except BadInput:
            continue
        if technique.refuses(replace(plan, exchange=exchange)) is None:
            operators[operator] = links[topology] = True
    return tuple(operators), tuple(links)


def check_split_k(machine: Machine, exchange: Exchange, techniques: Collection[str]) -> None:
    """Raise BadInput if the machine's parts of K do not go with what follows the GEMM."""
    parts = machine.gpu.k_parts
    if parts == 1:
        return
    if exchange.collective not in ("rs", "ar") or exchange.algorithm == BY_SWITCH or exchange.producer != "gemm":
        raise BadInput(f"layer.split_k = {parts} is for layer.operator = gemm-rs and gemm-ar, whose tiles are added "
                       f"up by GPUs: layer.operator = {exchange.operator} exchange.algorithm = {exchange.algorithm} "
                       "is not among them")
    if exchange.signal is not None:
        raise BadInput(f"layer.split_k = {parts} does not go with exchange.signal = {exchange.signal}: its tiles are "
                       "complete one by one")
    if without := [name for name in techniques if not TECHNIQUES[name].splits_k]:
        raise BadInput(f"layer.split_k = {parts} does not go with technique {without[0]}, whose kernels do not have it")
