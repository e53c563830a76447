"""Collectives on a 2-D torus, one dimension after the other: rings along all rows, then along all columns.

Rank number = row * columns + column, as in the topology. With `columns_first` the dimensions change places. Programs
with another dimension first, or the other way around their rings, use other links: `together` runs them side by side.
"""

from collections.abc import Iterator, Sequence

from t3sim.collectives import ring, two_level
from t3sim.collectives.program import Op, Program, in_turn, owners
from t3sim.machine.topologies import Alike
from t3sim.machine.topologies.alike import along

_Hop = tuple[int, int, int, Op]  # chunk, source, destination, op


def reduce_scatter(rows: int, columns: int, step: int = -1, columns_first: bool = False,
                   alike: Alike | None = None) -> Program:
    """Build the reduce-scatter of a torus, along rows and then along columns. Chunk c ends at rank c.

    In each row every chunk gathers a part at its owner's column; along the column these are gathered at the owner. With
    `columns_first` it is the other way around.
    """
    within, between, rank = _dimensions(rows, columns, columns_first)
    first, second = _alike(alike, columns_first)
    return two_level.reduce_scatter(ring.reduce_scatter(within, -step, first),
                                    ring.reduce_scatter(between, -step, second), rank, alike)


def all_gather(rows: int, columns: int, step: int = -1, columns_first: bool = False,
               alike: Alike | None = None) -> Program:
    """Build the all-gather, which takes the reduce-scatter's way back: along the owner's column, then along rows."""
    within, between, rank = _dimensions(rows, columns, columns_first)
    first, second = _alike(alike, columns_first)
    return two_level.all_gather(ring.all_gather(within, step, first), ring.all_gather(between, step, second), rank,
                                alike)


def _dimensions(rows: int, columns: int, columns_first: bool) -> tuple[int, int, two_level.Rank]:
    """Return the length of the dimension in which a reduce-scatter begins, of the other, and a rank's number."""
    if columns_first:
        return rows, columns, lambda column, row: row * columns + column
    return columns, rows, lambda row, column: row * columns + column


def _alike(alike: Alike | None, columns_first: bool) -> tuple[Alike | None, Alike | None]:
    """Return who is alike along the dimension in which a reduce-scatter begins, and along the other."""
    return along(alike, 0 if columns_first else 1), along(alike, 1 if columns_first else 0)


def all_to_all(rows: int, columns: int, columns_first: bool = False, alike: Alike | None = None) -> Program:
    """Build the all-to-all: a chunk goes to its destination's column within the row, then along that column.

    Chunk s * ranks + d, made by rank s, ends at rank d. On a dimension's ring a chunk is sent straight to the rank
    where it leaves that ring; the topology's links in between are shared with the others.
    """
    ranks = rows * columns
    made = {(source, source * ranks + destination): frozenset({source})
            for source in owners(ranks, alike) for destination in range(ranks)}
    received = {(destination, chunk): by for (source, chunk), by in made.items() for destination in (chunk % ranks,)}
    return Program(ranks, ranks * ranks, in_turn(_exchange(rows, columns, columns_first, owners(ranks, alike))),
                   start=made, goal=received, alike=alike)


def _exchange(rows: int, columns: int, columns_first: bool, sources: Sequence[int]) -> Iterator[_Hop]:
    ranks = rows * columns
    for first in (True, False):
        for source in sources:
            for hop in range(1, ranks):
                destination = (source + hop) % ranks
                turn = (destination // columns * columns + source % columns if columns_first
                        else source // columns * columns + destination % columns)
                at, to = (source, turn) if first else (turn, destination)
                if at != to:
                    yield source * ranks + destination, at, to, Op.COPY
