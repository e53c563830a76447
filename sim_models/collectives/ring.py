"""Ring collectives: for each chunk a path through all ranks, to its owner or away from it."""

import numpy as np

from t3sim.collectives.program import Program, Transfers, all_gather_ends, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, step: int = -1, alike: Alike | None = None) -> Program:
    """Build the ring reduce-scatter in which rank r sends to r + step (T3 paper, figure 7: r - 1).

    Chunk c starts at the rank after its owner and collects the other ranks' contributions on its path to rank c.
    """
    return Program(ranks, ranks, _path(ranks, step, 1, True, alike), **reduce_scatter_ends(ranks, alike))


def all_gather(ranks: int, step: int = -1, alike: Alike | None = None) -> Program:
    """Build the ring all-gather in which rank r sends to r + step; chunk c starts at rank c."""
    return Program(ranks, ranks, _path(ranks, step, 0, False, alike), **all_gather_ends(ranks, alike))


def _path(ranks: int, step: int, first: int, adds: bool, alike: Alike | None) -> Transfers:
    """Return the hops of every chunk c; its first hop starts `first` steps from rank c."""
    chunks = np.array(owners(ranks, alike), np.int64)
    hop, chunk = np.repeat(np.arange(first, first + ranks - 1), len(chunks)), np.tile(chunks, ranks - 1)
    return Transfers.in_turn(chunk, (chunk + step * hop) % ranks, (chunk + step * (hop + 1)) % ranks,
                             np.full(len(hop), adds))
