"""Collectives on a 2-D torus, one dimension after the other: rings along all rows, then along all columns.

Rank number = row * columns + column, as in the topology. With `columns_first` the dimensions change places. Programs
with another first dimension or ring direction use other links; `together` runs them concurrently.
"""

from collections.abc import Sequence

import numpy as np

from t3sim.collectives import ring, two_level
from t3sim.collectives.all_to_all import chunks_at_destination, chunks_at_source
from t3sim.collectives.program import Ends, Program, Transfers, owners
from t3sim.machine.topologies import Alike
from t3sim.machine.topologies.alike import along


def reduce_scatter(rows: int, columns: int, step: int = -1, columns_first: bool = False,
                   alike: Alike | None = None) -> Program:
    """Build the reduce-scatter of a torus, along rows and then along columns. Chunk c ends at rank c.

    Each row reduces a chunk's partial sum at its owner's column; the column then reduces these sums at the owner. With
    `columns_first`, columns come before rows.
    """
    within, between, rank = _dimensions(rows, columns, columns_first)
    first, second = _alike(alike, columns_first)
    return two_level.reduce_scatter(ring.reduce_scatter(within, -step, first),
                                    ring.reduce_scatter(between, -step, second), rank, alike)


def all_gather(rows: int, columns: int, step: int = -1, columns_first: bool = False,
               alike: Alike | None = None) -> Program:
    """Build the all-gather, the reverse of the reduce-scatter: along the owner's column, then along rows."""
    within, between, rank = _dimensions(rows, columns, columns_first)
    first, second = _alike(alike, columns_first)
    return two_level.all_gather(ring.all_gather(within, step, first), ring.all_gather(between, step, second), rank,
                                alike)


def _dimensions(rows: int, columns: int, columns_first: bool) -> tuple[int, int, two_level.Rank]:
    """Return the length of a reduce-scatter's first dimension and of its second one, and a function to rank numbers."""
    if columns_first:
        return rows, columns, lambda column, row: row * columns + column
    return columns, rows, lambda row, column: row * columns + column


def _alike(alike: Alike | None, columns_first: bool) -> tuple[Alike | None, Alike | None]:
    """Return the symmetry along a reduce-scatter's first dimension, and along its second one."""
    return along(alike, 0 if columns_first else 1), along(alike, 1 if columns_first else 0)


def all_to_all(rows: int, columns: int, columns_first: bool = False, alike: Alike | None = None) -> Program:
    """Build the all-to-all: a chunk moves to its destination's column within the row, then along that column.

    Chunk s * ranks + d starts at rank s and ends at rank d. Within a dimension's ring a chunk is one transfer to the
    rank where it leaves the ring; it shares the links in between with other chunks.
    """
    ranks, sources = rows * columns, owners(rows * columns, alike)
    return Program(ranks, ranks * ranks, _exchange(rows, columns, columns_first, sources),
                   Ends(chunks_at_source, (ranks, sources)), Ends(chunks_at_destination, (ranks, sources)), alike=alike)


def _exchange(rows: int, columns: int, columns_first: bool, sources: Sequence[int]) -> Transfers:
    ranks = rows * columns
    source = np.repeat(np.array(sources, np.int64), ranks - 1)
    destination = (source + np.tile(np.arange(1, ranks), len(sources))) % ranks
    corner = (destination // columns * columns + source % columns if columns_first
              else source // columns * columns + destination % columns)
    chunk, sender, receiver = (np.concatenate(pair) for pair in (
        [source * ranks + destination] * 2, (source, corner), (corner, destination)))
    moves = sender != receiver
    return Transfers.in_turn(chunk[moves], sender[moves], receiver[moves], np.zeros(moves.sum(), bool))
