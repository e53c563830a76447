"""Which algorithms there are for a collective on a topology, by name, each a program."""

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
    """A way to run a collective on a topology."""

    name: str
    build: Callable[[Alike | None], Program]

    def program(self, alike: Alike | None = None) -> Program:
        """Build it, or with `alike` only the chunks of ranks that stand for all."""
        return self.build(alike)


def algorithms(collective: str, topology: Topology) -> dict[str, Algorithm]:
    """Return what is possible by name, the usual one first. Raises `BadInput` for an unknown collective."""
    if collective not in COLLECTIVES:
        raise BadInput(f"collective = {collective[:40]!r} is unknown: allowed are {', '.join(COLLECTIVES)}")
    if isinstance(topology, Torus):
        found = _torus_exchanges(topology) if collective == "a2a" else _torus_rings(collective, topology)
    elif isinstance(topology, MultiNode):
        found = _of_nodes(collective, topology)
    elif collective == "a2a":
        found = {"direct": lambda alike: all_to_all(topology.gpus, alike)}
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


def one_ring(collective: str, ranks: int, step: int = -1, alike: Alike | None = None) -> Program:
    """Build a reduce-scatter, all-gather or all-reduce around the ring in which rank r sends to r + step."""
    return _joined(collective, ring.reduce_scatter, ring.all_gather, ranks, step, alike)


def _rings(collective: str, ranks: int) -> dict[str, _Build]:
    both = {} if ranks == 2 else {  # a ring of two has one link in each direction
        "both-rings": lambda alike: together([one_ring(collective, ranks, step, alike) for step in _EITHER_WAY])}
    return {"ring": lambda alike: one_ring(collective, ranks, alike=alike), **both}


def _direct(collective: str, ranks: int) -> dict[str, _Build]:
    return {"direct": lambda alike: _joined(collective, direct.reduce_scatter, direct.all_gather, ranks, alike)}


def _of_nodes(collective: str, on: MultiNode) -> dict[str, _Build]:
    """Return everybody with everybody; and within nodes, then between GPUs of one place."""
    if collective == "a2a":
        return {"direct": lambda alike: all_to_all(on.gpus, alike)}

    def build(kind: str) -> _Build:
        star, both = getattr(direct, kind), getattr(two_level, kind)
        return lambda alike: both(star(on.per_group, along(alike, 1)), star(on.groups, along(alike, 0)),
                                  lambda group, place: group * on.per_group + place, alike)

    return {"hierarchical": lambda alike: _joined(collective, build("reduce_scatter"), build("all_gather"), alike),
            **_direct(collective, on.gpus)}


def _torus_rings(collective: str, on: Torus) -> dict[str, _Build]:
    """Build one ring per row, then one per column; or four programs that share the data and use every link."""
    def one(step: int, columns_first: bool, alike: Alike | None) -> Program:
        return _joined(collective, torus.reduce_scatter, torus.all_gather, on.rows, on.columns, step, columns_first,
                       alike)

    both = {} if 2 in (on.rows, on.columns) else {  # a ring of two has one link in each direction
        "all-rings": lambda alike: together([one(step, order, alike) for order in (False, True)
                                             for step in _EITHER_WAY])}
    return {"hierarchical": lambda alike: one(-1, False, alike), **both}


def _torus_exchanges(on: Torus) -> dict[str, _Build]:
    """Return the exchanges: every pair by itself on the network's routes; or along the rows, then along the columns."""
    return {"direct": lambda alike: all_to_all(on.nodes, alike),
            "hierarchical": lambda alike: torus.all_to_all(on.rows, on.columns, alike=alike)}
