"""Find the symmetry of an algorithm on a topology, to simulate representative GPUs only (as in `schedule/mirror.py`).

GPUs are alike if a shift along a dimension maps links, routes and transfers onto themselves. Half-way around a ring
both directions are as long, and a torus's nodes alternate between them: there every second GPU is alike.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from t3sim.collectives import Program, Transfers
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
    ways, table, gpus = Ways(topology, alike), program.table, topology.gpus
    for pair in np.unique(alike.home(table.source) * gpus + alike.seen(table.source, table.destination)).tolist():
        ways.links(*divmod(pair, gpus))

    def same_routes(periods: tuple[int, ...]) -> bool:
        return topology.same_links(alike, periods) and all(
            ways.hop(alike.moved(source, periods), alike.moved(destination, periods)) == hop
            for (source, destination), hop in ways.hops.items())

    def built_alike(periods: tuple[int, ...]) -> bool:
        return _same(table, build(replace(alike, origin=alike.moved(0, periods))).table, alike)

    return {dimension for dimension in range(len(alike.shape)) for moves in [alike.moves(dimension)]
            if not all(map(same_routes, moves)) or not all(map(built_alike, moves[:1]))}


def _same(one: Transfers, other: Transfers, alike: Alike) -> bool:
    """Compare transfers by source, destination and predecessors, all mapped to representative GPUs."""
    both = Transfers.joined([one, replace(other, members=other.members + len(one))])
    pairs = alike.home(both.source) * math.prod(alike.shape) + alike.seen(both.source, both.destination)
    codes = pairs * 2 + both.adds
    counts, classes, before = np.diff(both.first), np.empty(len(both.first) - 1, np.int64), 0
    for count in np.flatnonzero(np.bincount(counts)):
        sets = np.flatnonzero(counts == count)
        members = np.sort(codes[both.members[both.first[sets, None] + np.arange(count)]], axis=1)
        order = np.lexsort(members.T)
        differs = (members[order[1:]] != members[order[:-1]]).any(axis=1)
        classes[sets[order]] = before + np.append(0, np.cumsum(differs))
        before += len(sets)
    waits = np.where(both.waits < 0, before, np.append(classes, 0)[both.waits])
    names = codes * (before + 1) + waits
    return bool(np.array_equal(np.sort(names[:len(one)]), np.sort(names[len(one):])))
