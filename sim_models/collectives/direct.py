"""Direct collectives on a fully connected topology: for each chunk a star around its owner (T3 paper, section 7.1)."""

from t3sim.collectives.program import Op, Program, all_gather_ends, in_turn, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct reduce-scatter: every rank sends its part of chunk c to rank c."""
    chunk_owners = set(owners(ranks, alike))
    return Program(ranks, ranks, in_turn((owner, rank, owner, Op.ADD) for rank in range(ranks)
                                         for owner in _others(rank, ranks, chunk_owners)),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct all-gather: rank c sends chunk c to every other rank."""
    return Program(ranks, ranks, in_turn((rank, rank, (rank + hop) % ranks, Op.COPY)
                                         for rank in owners(ranks, alike) for hop in range(1, ranks)),
                   **all_gather_ends(ranks, alike))


def _others(rank: int, ranks: int, chunk_owners: set[int]) -> list[int]:
    """Return the owners without `rank`, in the order of their distance after it."""
    return sorted(chunk_owners - {rank}, key=lambda other: (other - rank) % ranks)
