"""Collectives in two levels: within groups of ranks, then between the ranks at one position in all groups.

Groups are nodes of several GPUs, or the rows or columns of a torus. Each level runs a program of its own, a ring or a
star.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from t3sim.collectives.program import (
    Program,
    Transfers,
    all_gather_ends,
    firsts,
    number_sets,
    owners,
    reduce_scatter_ends,
    spans,
)
from t3sim.machine.topologies import Alike

#: Rank of a (group, position within it), or ranks of arrays of them.
Rank = Callable[[Any, Any], Any]


def reduce_scatter(within: Program, between: Program, rank: Rank, alike: Alike | None = None) -> Program:
    """Build the reduce-scatter: each group reduces a chunk at its owner's position, then the owner gets these sums.

    `within` and `between` are reduce-scatters over a group's ranks and over groups, with the symmetry `alike` along
    their dimensions. Chunk c ends at rank c.
    """
    ranks = within.ranks * between.ranks
    return Program(ranks, ranks, _in_turn(_inside(within, between, rank), _across(within, between, rank)),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(within: Program, between: Program, rank: Rank, alike: Alike | None = None) -> Program:
    """Build the all-gather, the reverse: between groups, then within each group.

    Within a group, a rank sends after all its chunks from other groups have arrived.
    """
    ranks = within.ranks * between.ranks
    across = _across(within, between, rank)
    table, count = _in_turn(across, _inside(within, between, rank)), across.shape[1]
    home, sets = (Alike.none(ranks) if alike is None else alike).home, len(table.first) - 1
    at, source = home(table.destination[:count]), home(table.source)
    arrivals = np.argsort(at, kind="stable")
    begin, end = (np.searchsorted(at[arrivals], source, side) for side in ("left", "right"))
    forwards = np.append(np.maximum.reduceat(table.members, table.first[:-1]) >= count if sets else [], False)
    opens = (np.arange(len(table)) >= count) & (forwards[table.waits] == 0)  # its chunk's first inside a group
    waits, names = number_sets(np.where(opens, np.where(end > begin, sets + begin, -1), table.waits))
    first = np.append(table.first[:-1], len(table.members) + np.arange(count + 1))
    counts = np.append(np.diff(table.first), np.zeros(count + 1, np.int64))
    counts[sets + begin[end > begin]] = (end - begin)[end > begin]
    members = np.append(table.members, arrivals)[spans(first[names], counts[names])]
    return Program(ranks, ranks, replace(table, waits=waits, first=firsts(counts[names]), members=members),
                   **all_gather_ends(ranks, alike))


def _in_turn(*hops: np.ndarray) -> Transfers:
    chunk, source, destination, adds = np.concatenate(hops, axis=1)
    return Transfers.in_turn(chunk, source, destination, adds.astype(bool))


def _inside(within: Program, between: Program, rank: Rank) -> np.ndarray:
    """Return the hops within every group, for chunks whose owner's position is the chunk of `within`.

    int64[chunk, source, destination, whether it is added; hop].
    """
    owner, group = np.array(owners(between.ranks, between.alike), np.int64)[:, None], np.arange(between.ranks)
    chunk, source, destination, adds = (column[:, None, None] for column in _columns(within))
    return _flat(rank(owner, chunk), rank(group, source), rank(group, destination), adds)


def _across(within: Program, between: Program, rank: Rank) -> np.ndarray:
    """Return the hops between groups, at the position of the chunk's owner."""
    position = np.array(owners(within.ranks, within.alike), np.int64)
    chunk, source, destination, adds = (column[:, None] for column in _columns(between))
    return _flat(rank(chunk, position), rank(source, position), rank(destination, position), adds)


def _columns(program: Program) -> tuple[np.ndarray, ...]:
    return program.table.chunk, program.table.source, program.table.destination, program.table.adds


def _flat(*columns: np.ndarray) -> np.ndarray:
    return np.stack([column.ravel().astype(np.int64) for column in np.broadcast_arrays(*columns)])
