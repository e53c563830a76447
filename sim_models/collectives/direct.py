"""Direct collectives on a fully connected topology: for each chunk a star around its owner (T3 paper, section 7.1)."""

import numpy as np

from t3sim.collectives.program import Program, Transfers, all_gather_ends, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct reduce-scatter: every rank sends its part of chunk c to rank c, the next ones first."""
    rank, chunks = np.arange(ranks), np.array(owners(ranks, alike), np.int64)
    hops = np.sort((chunks - rank[:, None]) % ranks, axis=1)
    source, hop = np.repeat(rank, len(chunks))[hops.ravel() > 0], hops[hops > 0]
    owner = (source + hop) % ranks
    return Program(ranks, ranks, Transfers.in_turn(owner, source, owner, np.ones(len(hop), bool)),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct all-gather: rank c sends chunk c to every other rank."""
    chunks = np.array(owners(ranks, alike), np.int64)
    rank, hop = np.repeat(chunks, ranks - 1), np.tile(np.arange(1, ranks), len(chunks))
    return Program(ranks, ranks, Transfers.in_turn(rank, rank, (rank + hop) % ranks, np.zeros(len(hop), bool)),
                   **all_gather_ends(ranks, alike))
