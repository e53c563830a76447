"""Which algorithms there are for a collective on a topology, by name, each a program."""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import BadInput, Key
from ..topologies import MultiNode, Topology, Torus
from . import Program, direct, ring, torus, two_level
from .all_reduce import all_reduce
from .all_to_all import all_to_all
from .together import together

COLLECTIVES = {"rs": "reduce-scatter", "ag": "all-gather", "ar": "all-reduce", "a2a": "all-to-all"}

_EITHER_WAY = (-1, 1)


@dataclass(frozen=True)
class Algorithm:
    """A way to run a collective on a topology."""

    name: str
    program: Callable[[], Program]


def algorithms(collective: str, topology: Topology) -> dict[str, Algorithm]:
    """Return what is possible by name, the usual one first. Raises `BadInput` for an unknown collective."""
    if collective not in COLLECTIVES:
        raise BadInput(Key("collective", repr(collective[:40])),
                       f" is unknown: allowed are {', '.join(COLLECTIVES)}")
    if isinstance(topology, Torus):
        found = _torus_exchanges(topology) if collective == "a2a" else _torus_rings(collective, topology)
    elif isinstance(topology, MultiNode):
        found = _of_nodes(collective, topology)
    elif collective == "a2a":
        found = {"direct": lambda: all_to_all(topology.gpus)}
    elif topology.name == "ring":
        found = _rings(collective, topology.gpus)
    else:
        found = _direct(collective, topology.gpus)
        if topology.switches:  # GPUs share one link each: a ring keeps it as busy as everybody at once does
            found["ring"] = _rings(collective, topology.gpus)["ring"]
    return {name: Algorithm(name, program) for name, program in found.items()}


def _joined(collective: str, scatter: Callable[..., Program], gather: Callable[..., Program], *arguments) -> Program:
    if collective == "ar":
        return all_reduce(scatter(*arguments), gather(*arguments))
    return (scatter if collective == "rs" else gather)(*arguments)


def one_ring(collective: str, ranks: int, step: int = -1) -> Program:
    """Build a reduce-scatter, all-gather or all-reduce around the ring in which rank r sends to r + step."""
    return _joined(collective, ring.reduce_scatter, ring.all_gather, ranks, step)


def _rings(collective: str, ranks: int) -> dict[str, Callable[[], Program]]:
    both = {} if ranks == 2 else {  # a ring of two has one link in each direction
        "both-rings": lambda: together([one_ring(collective, ranks, step) for step in _EITHER_WAY])}
    return {"ring": lambda: one_ring(collective, ranks), **both}


def _direct(collective: str, ranks: int) -> dict[str, Callable[[], Program]]:
    return {"direct": lambda: _joined(collective, direct.reduce_scatter, direct.all_gather, ranks)}


def _of_nodes(collective: str, on: MultiNode) -> dict[str, Callable[[], Program]]:
    """Return everybody with everybody; and within nodes, then between GPUs of one place."""
    if collective == "a2a":
        return {"direct": lambda: all_to_all(on.gpus)}

    def build(kind: str) -> Callable[[], Program]:
        levels = getattr(direct, kind)(on.per_group), getattr(direct, kind)(on.groups)
        return lambda: getattr(two_level, kind)(*levels, lambda group, place: group * on.per_group + place)

    return {"hierarchical": lambda: _joined(collective, build("reduce_scatter"), build("all_gather")),
            **_direct(collective, on.gpus)}


def _torus_rings(collective: str, on: Torus) -> dict[str, Callable[[], Program]]:
    """Build one ring per row, then one per column; or four programs that share the data and use every link."""
    def one(step: int, columns_first: bool) -> Program:
        return _joined(collective, torus.reduce_scatter, torus.all_gather, on.rows, on.columns, step, columns_first)

    both = {} if 2 in (on.rows, on.columns) else {  # a ring of two has one link in each direction
        "all-rings": lambda: together([one(step, order) for order in (False, True) for step in _EITHER_WAY])}
    return {"hierarchical": lambda: one(-1, False), **both}


def _torus_exchanges(on: Torus) -> dict[str, Callable[[], Program]]:
    """Return the exchanges: every pair by itself on the network's routes; or along the rows, then along the columns."""
    return {"direct": lambda: all_to_all(on.nodes),
            "hierarchical": lambda: torus.all_to_all(on.rows, on.columns)}
