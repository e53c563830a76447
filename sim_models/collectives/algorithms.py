"""Algorithms of a collective on a topology, by name, each as a program."""

from collections.abc import Callable
from dataclasses import dataclass

from t3sim.base.errors import BadInput
from t3sim.collectives import Program, direct, ring, torus, two_level
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.all_to_all import all_to_all
from t3sim.collectives.together import together
from t3sim.machine.topologies import Alike, MultiNode, Topology, Torus
from t3sim.machine.topologies.alike import along

COLLECTIVES = {"rs": "reduce-scatter", "ag": "all-gather", "ar": "all-reduce", "a2a": "all-to-all"}

_EITHER_WAY = (-1, 1)
_Build = Callable[[Alike | None], Program]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a collective on a topology."""

    name: str
    build: Callable[[Alike | None], Program]

    def program(self, alike: Alike | None = None) -> Program:
        """Build the program; with `alike` only the chunks of representative ranks."""
        return self.build(alike)


def algorithms(collective: str, topology: Topology) -> dict[str, Algorithm]:
    """Return the algorithms by name, the default first. Raises `BadInput` for an unknown collective."""
    if collective not in COLLECTIVES:
        raise BadInput(f"collective = {collective[:40]!r} is unknown: allowed are {', '.join(COLLECTIVES)}")
    if isinstance(topology, Torus):
        builders = _torus_exchanges(topology) if collective == "a2a" else _torus_rings(collective, topology)
    elif isinstance(topology, MultiNode):
        builders = _of_nodes(collective, topology)
    elif collective == "a2a":
        builders = {"direct": lambda alike: all_to_all(topology.gpus, alike)}
    elif topology.name == "ring":
        builders = _rings(collective, topology.gpus)
    else:
        builders = _direct(collective, topology.gpus)
        if topology.switches:  # a GPU has one link, and a ring uses it as fully as direct transfers do
            builders["ring"] = _rings(collective, topology.gpus)["ring"]
    return {name: Algorithm(name, program) for name, program in builders.items()}


def _joined(collective: str, scatter: Callable[..., Program], gather: Callable[..., Program], *arguments) -> Program:
    if collective == "ar":
        return all_reduce(scatter(*arguments), gather(*arguments))
    return (scatter if collective == "rs" else gather)(*arguments)


def one_ring(collective: str, ranks: int, step: int = -1, alike: Alike | None = None) -> Program:
    """Build a reduce-scatter, all-gather or all-reduce around the ring in which rank r sends to r + step."""
    return _joined(collective, ring.reduce_scatter, ring.all_gather, ranks, step, alike)


def _rings(collective: str, ranks: int) -> dict[str, _Build]:
    both_rings = {} if ranks == 2 else {  # a ring of two has one link in each direction
        "both-rings": lambda alike: together([one_ring(collective, ranks, step, alike)
                                              for step in _EITHER_WAY])}
    return {"ring": lambda alike: one_ring(collective, ranks, alike=alike), **both_rings}


def _direct(collective: str, ranks: int) -> dict[str, _Build]:
    return {"direct": lambda alike: _joined(collective, direct.reduce_scatter, direct.all_gather, ranks, alike)}


def _of_nodes(collective: str, topology: MultiNode) -> dict[str, _Build]:
    """Return the direct algorithm, and the hierarchical one: within nodes, then between GPUs at one position."""
    if collective == "a2a":
        return {"direct": lambda alike: all_to_all(topology.gpus, alike)}

    def build(kind: str) -> _Build:
        star, two_levels = getattr(direct, kind), getattr(two_level, kind)
        return lambda alike: two_levels(
            star(topology.per_group, along(alike, 1)), star(topology.groups, along(alike, 0)),
            lambda group, position: group * topology.per_group + position, alike)

    return {"hierarchical": lambda alike: _joined(collective, build("reduce_scatter"), build("all_gather"), alike),
            **_direct(collective, topology.gpus)}


def _torus_rings(collective: str, topology: Torus) -> dict[str, _Build]:
    """Return one ring per row, then one per column; and 4 such programs that share the data and use every link."""
    def rings(step: int, columns_first: bool, alike: Alike | None) -> Program:
        return _joined(collective, torus.reduce_scatter, torus.all_gather, topology.rows, topology.columns, step,
                       columns_first, alike)

    all_rings = {} if 2 in (topology.rows, topology.columns) else {  # a ring of two has one link in each direction
        "all-rings": lambda alike: together([rings(step, order, alike) for order in (False, True)
                                             for step in _EITHER_WAY])}
    return {"hierarchical": lambda alike: rings(-1, False, alike), **all_rings}


def _torus_exchanges(topology: Torus) -> dict[str, _Build]:
    """Return the all-to-alls: each pair separately on the network's routes; and along rows, then along columns."""
    return {"direct": lambda alike: all_to_all(topology.nodes, alike),
            "hierarchical": lambda alike: torus.all_to_all(topology.rows, topology.columns, alike=alike)}
