"""Direct collectives on a fully connected topology: for each chunk a star around its owner (T3 paper, section 7.1)."""

from .program import Op, Program, all_gather_ends, in_turn, reduce_scatter_ends


def reduce_scatter(ranks: int) -> Program:
    """Build the direct reduce-scatter: everybody sends its part of chunk c to rank c."""
    return Program(ranks, ranks, in_turn(((rank + hop) % ranks, rank, (rank + hop) % ranks, Op.ADD)
                                         for rank in range(ranks) for hop in range(1, ranks)),
                   **reduce_scatter_ends(ranks))


def all_gather(ranks: int) -> Program:
    """Build the direct all-gather: rank c sends chunk c to everybody."""
    return Program(ranks, ranks, in_turn((rank, rank, (rank + hop) % ranks, Op.COPY)
                                         for rank in range(ranks) for hop in range(1, ranks)),
                   **all_gather_ends(ranks))
