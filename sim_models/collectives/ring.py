"""Ring collectives: for each chunk a path through all ranks, to its owner or away from it."""

from collections.abc import Iterator

from t3sim.collectives.program import Op, Program, all_gather_ends, in_turn, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, step: int = -1, alike: Alike | None = None) -> Program:
    """Build the ring reduce-scatter in which rank r sends to r + step (T3 paper, figure 7: r - 1).

    Chunk c starts at the rank after its owner and collects the other ranks' contributions on its path to rank c.
    """
    return Program(ranks, ranks, in_turn(_path(ranks, step, 1, Op.ADD, alike)),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(ranks: int, step: int = -1, alike: Alike | None = None) -> Program:
    """Build the ring all-gather in which rank r sends to r + step; chunk c starts at rank c."""
    return Program(ranks, ranks, in_turn(_path(ranks, step, 0, Op.COPY, alike)),
                   **all_gather_ends(ranks, alike))


def _path(ranks: int, step: int, first: int, op: Op, alike: Alike | None) -> Iterator[tuple[int, int, int, Op]]:
    """Yield the hops of every chunk c; its first hop starts `first` steps from rank c."""
    for hop in range(first, first + ranks - 1):
        for chunk in owners(ranks, alike):
            yield chunk, (chunk + step * hop) % ranks, (chunk + step * (hop + 1)) % ranks, op
