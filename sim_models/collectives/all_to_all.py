"""All-to-all: a chunk for each pair of ranks (experts: T3 paper, section 7.2)."""

from collections.abc import Sequence

import numpy as np

from t3sim.collectives.program import Contributions, Ends, Program, Transfers, owners
from t3sim.machine.topologies import Alike


def all_to_all(ranks: int, alike: Alike | None = None) -> Program:
    """Build the direct all-to-all: chunk s * ranks + d starts at rank s and is sent to rank d; (s, s) stays."""
    sources = owners(ranks, alike)
    source = np.repeat(np.array(sources, np.int64), ranks - 1)
    destination = (source + np.tile(np.arange(1, ranks), len(sources))) % ranks
    return Program(ranks, ranks * ranks, Transfers.in_turn(source * ranks + destination, source, destination,
                                                           np.zeros(len(source), bool)),
                   Ends(chunks_at_source, (ranks, sources)), Ends(chunks_at_destination, (ranks, sources)), pairs=True,
                   alike=alike)


def chunks_at_source(ranks: int, sources: Sequence[int]) -> dict[tuple[int, int], Contributions]:
    """Return `start` of an all-to-all."""
    return {(source, source * ranks + destination): frozenset({source})
            for source in sources for destination in range(ranks)}


def chunks_at_destination(ranks: int, sources: Sequence[int]) -> dict[tuple[int, int], Contributions]:
    """Return `goal` of an all-to-all."""
    return {(destination, source * ranks + destination): frozenset({source})
            for source in sources for destination in range(ranks)}
