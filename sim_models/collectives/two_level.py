"""Collectives in two levels: within groups of ranks, then between the ranks of one place in all groups.

Nodes of several GPUs, or the rows and columns of a torus. What runs in each level is a program of its own, a ring or
a star.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from t3sim.collectives.program import Op, Program, all_gather_ends, in_turn, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike

#: Rank of a (group, place within it).
Rank = Callable[[int, int], int]
_Hop = tuple[int, int, int, Op]  # chunk, source, destination, op


def reduce_scatter(within: Program, between: Program, rank: Rank, alike: Alike | None = None) -> Program:
    """Build the reduce-scatter: in every group a chunk is reduced at its owner's place, these sums at the owner.

    `within` and `between` are reduce-scatters over a group's ranks and over groups, of those that stand for all if so
    is this. Chunk c ends at rank c.
    """
    ranks = within.ranks * between.ranks
    return Program(ranks, ranks, in_turn([*_inside(within, between, rank), *_across(within, between, rank)]),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(within: Program, between: Program, rank: Rank, alike: Alike | None = None) -> Program:
    """Build the all-gather, which takes the way back: between groups, then within each of them.

    Within a group a rank waits until it has everything that reaches it from other groups.
    """
    ranks = within.ranks * between.ranks
    across = list(_across(within, between, rank))
    transfers = in_turn([*across, *_inside(within, between, rank)])
    home = (Alike.none(ranks) if alike is None else alike).home
    found = defaultdict(list)
    for index in range(len(across)):
        found[home(transfers[index].destination)].append(index)
    gathered = defaultdict(tuple, {node: tuple(indices) for node, indices in found.items()})
    waiting = (one._replace(after=gathered[home(one.source)])
               if index >= len(across) and all(before < len(across) for before in one.after) else one
               for index, one in enumerate(transfers))
    return Program(ranks, ranks, tuple(waiting), **all_gather_ends(ranks, alike))


def _inside(within: Program, between: Program, rank: Rank) -> Iterator[_Hop]:
    """Give the hops within every group, of the chunks whose owners have the hop's chunk as their place."""
    for hop in within.transfers:
        for owner in owners(between.ranks, between.alike):
            for group in range(between.ranks):
                yield rank(owner, hop.chunk), rank(group, hop.source), rank(group, hop.destination), hop.op


def _across(within: Program, between: Program, rank: Rank) -> Iterator[_Hop]:
    """Give the hops between groups, at the chunk's place in each of them."""
    for hop in between.transfers:
        for place in owners(within.ranks, within.alike):
            yield rank(hop.chunk, place), rank(hop.source, place), rank(hop.destination, place), hop.op
