"""Find the symmetry of an algorithm on a topology, to simulate representative GPUs only (as in `schedule/mirror.py`).

GPUs are alike if a shift along a dimension maps links, routes and transfers onto themselves. Half-way around a ring
both directions are as long, and a torus's nodes alternate between them: there every second GPU is alike.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from t3sim.collectives import Op, Program
from t3sim.event.flow.layout import Ways
from t3sim.machine.topologies import Alike, Topology

_PERIODS = (1, 2)  #: that are tried, if the length has them


def folded(build: Callable[[Alike | None], Program], topology: Topology) -> Program:
    """Build the transfers of as few representative GPUs as possible.

    Links are compared one by one. Routes and transfers of representative GPUs are compared with those one period
    further and half-way around. Others follow from the construction of topologies and algorithms
    (`tests/event/test_folding.py` compares all of them on small networks).
    """
    alike = Alike(topology.shape, (1,) * len(topology.shape))
    while True:
        program = build(alike)
        differing = _unlike(build, program, topology, alike)
        if not differing:
            return program
        alike = replace(alike, period=tuple(
            _longer(length, step) if dimension in differing else step
            for dimension, (length, step) in enumerate(zip(alike.shape, alike.period))))


def _longer(length: int, step: int) -> int:
    """Return the next period to try."""
    return next((one for one in _PERIODS if one > step and length % one == 0), length)


def _unlike(build: Callable[[Alike | None], Program], program: Program, topology: Topology,
            alike: Alike) -> set[int]:
    """Return the dimensions along which a shift changes links, routes or transfers."""
    ways, transfers = Ways(topology, alike), _transfers(program, alike)
    for source, destination, *_ in transfers:
        ways.links(source, destination)

    def same_routes(periods: tuple[int, ...]) -> bool:
        return topology.same_links(alike, periods) and all(
            ways.hop(alike.moved(source, periods), alike.moved(destination, periods)) == ways.hop(source, destination)
            for source, destination in ways.walked)

    def built_alike(periods: tuple[int, ...]) -> bool:
        return _transfers(build(replace(alike, origin=alike.moved(0, periods))), alike) == transfers

    return {dimension for dimension in range(len(alike.shape)) for moves in [alike.moves(dimension)]
            if not all(map(same_routes, moves)) or not all(map(built_alike, moves[:1]))}


def _transfers(program: Program, alike: Alike) -> Counter[tuple]:
    """Count transfers by source, destination and predecessors, all mapped to representative GPUs."""
    source, destination = np.array([one[1:3] for one in program.transfers], np.int64).reshape(-1, 2).T
    home, seen_destination = alike.home(source), alike.seen(source, destination)
    adds = np.array([one.op is Op.ADD for one in program.transfers], bool)
    codes = (home * math.prod(alike.shape) + seen_destination) * 2 + adds
    dependencies = {id(one.after): np.sort(codes[list(one.after)]).tobytes() if len(one.after) > 1 else
                    int(codes[one.after[0]]) if one.after else None for one in program.transfers}
    return Counter(zip(home.tolist(), seen_destination.tolist(), adds.tolist(),
                       (dependencies[id(one.after)] for one in program.transfers)))
