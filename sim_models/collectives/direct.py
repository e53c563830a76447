"""Direct collectives on a fully connected topology: for each chunk a star around its owner (T3 paper, section 7.1)."""

from t3sim.collectives.program import Op, Program, all_gather_ends, in_turn, owners, reduce_scatter_ends
from t3sim.machine.topologies import Alike


def reduce_scatter(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct reduce-scatter: everybody sends its part of chunk c to rank c."""
    kept = set(owners(ranks, alike))
    return Program(ranks, ranks, in_turn((to, rank, to, Op.ADD) for rank in range(ranks)
                                         for to in _others(rank, ranks, kept)),
                   **reduce_scatter_ends(ranks, alike))


def all_gather(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct all-gather: rank c sends chunk c to everybody."""
    return Program(ranks, ranks, in_turn((rank, rank, (rank + hop) % ranks, Op.COPY)
                                         for rank in owners(ranks, alike) for hop in range(1, ranks)),
                   **all_gather_ends(ranks, alike))


def _others(rank: int, ranks: int, kept: set[int]) -> list[int]:
    """Return those of `kept` that are not `rank`, the nearest that follows it first."""
    return sorted(kept - {rank}, key=lambda other: (other - rank) % ranks)
