"""Collectives in two levels: within groups of ranks, then between the ranks at one position in all groups.

Groups are nodes of several GPUs, or the rows or columns of a torus. Each level runs a program of its own, a ring or a
star.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from t3sim.collectives.program import Op, Program, all_gather_ends, in_turn, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike

#: Rank of a (group, position within it).
Rank = Callable[[int, int], int]
_Hop = tuple[int, int, int, Op]  # chunk, source, destination, op


def reduce_scatter(within: Program, between: Program, rank: Rank, alike: Alike | None = None) -> Program:
    """Build the reduce-scatter: each group reduces a chunk at its owner's position, then the owner gets these sums.

    `within` and `between` are reduce-scatters over a group's ranks and over groups, with the symmetry `alike` along
    their dimensions. Chunk c ends at rank c.
    """
    ranks = within.ranks * between.ranks
    return Program(ranks, ranks, in_turn([*_inside(within, between, rank), *_across(within, between, rank)]),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(within: Program, between: Program, rank: Rank, alike: Alike | None = None) -> Program:
    """Build the all-gather, the reverse: between groups, then within each group.

    Within a group, a rank sends after all its chunks from other groups have arrived.
    """
    ranks = within.ranks * between.ranks
    between_groups = list(_across(within, between, rank))
    transfers = in_turn([*between_groups, *_inside(within, between, rank)])
    home = (Alike.none(ranks) if alike is None else alike).home
    arriving = defaultdict(list)
    for index in range(len(between_groups)):
        arriving[home(transfers[index].destination)].append(index)
    arrivals = defaultdict(tuple, {node: tuple(indices) for node, indices in arriving.items()})
    ordered = (one._replace(after=arrivals[home(one.source)])
               if index >= len(between_groups) and all(before < len(between_groups) for before in one.after) else one
               for index, one in enumerate(transfers))
    return Program(ranks, ranks, tuple(ordered), **all_gather_ends(ranks, alike))


def _inside(within: Program, between: Program, rank: Rank) -> Iterator[_Hop]:
    """Yield the hops within every group, for chunks whose owner's position is the chunk of `within`."""
    for hop in within.transfers:
        for owner in owners(between.ranks, between.alike):
            for group in range(between.ranks):
                yield rank(owner, hop.chunk), rank(group, hop.source), rank(group, hop.destination), hop.op


def _across(within: Program, between: Program, rank: Rank) -> Iterator[_Hop]:
    """Yield the hops between groups, at the position of the chunk's owner."""
    for hop in between.transfers:
        for position in owners(within.ranks, within.alike):
            yield rank(hop.chunk, position), rank(hop.source, position), rank(hop.destination, position), hop.op
