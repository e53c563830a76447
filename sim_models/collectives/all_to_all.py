"""All-to-all: a chunk for each pair of ranks (experts: T3 paper, section 7.2)."""

from t3sim.collectives.program import Op, Program, in_turn, owners
from t3sim.machine.topologies import Alike


def all_to_all(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct all-to-all: chunk s * ranks + d starts at rank s and is sent to rank d; (s, s) stays."""
    start = {(source, source * ranks + destination): frozenset({source})
             for source in owners(ranks, alike) for destination in range(ranks)}
    goal = {(destination, source * ranks + destination): frozenset({source})
            for source in owners(ranks, alike) for destination in range(ranks)}
    return Program(ranks, ranks * ranks, in_turn((rank * ranks + (rank + hop) % ranks, rank, (rank + hop) % ranks,
                                                  Op.COPY) for rank in owners(ranks, alike)
                                                 for hop in range(1, ranks)),
                   start=start, goal=goal, pairs=True, alike=alike)
