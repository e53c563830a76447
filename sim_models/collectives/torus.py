"""Collectives on a 2-D torus, one dimension after the other: rings along all rows, then along all columns.

Rank number = row * columns + column, as in the topology. With `columns_first` the dimensions change places. Programs
with another dimension first, or the other way around their rings, use other links: `together` runs them side by side.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from .program import Op, Program, all_gather_ends, in_turn, reduce_scatter_ends

_Hop = tuple[int, int, int, Op]  # chunk, source, destination, op


def reduce_scatter(rows: int, columns: int, step: int = -1, columns_first: bool = False) -> Program:
    """Build the reduce-scatter: in its row every chunk gathers a part at its owner's column, these in the column at the
    owner. Chunk c ends at rank c."""
    ranks = rows * columns
    return Program(ranks, ranks, in_turn(_reversed(_away(rows, columns, step, columns_first))),
                   **reduce_scatter_ends(ranks))


def all_gather(rows: int, columns: int, step: int = -1, columns_first: bool = False) -> Program:
    """Build the all-gather, which takes the reduce-scatter's way back: along the owner's column, then along all
    rows, for which a rank waits until it has everything of its column."""
    ranks = rows * columns
    program = Program(ranks, ranks, in_turn(_away(rows, columns, step, columns_first)), **all_gather_ends(ranks))
    first = (columns if columns_first else rows) - 1  # steps of the first dimension, `ranks` transfers each
    gathered = defaultdict(tuple)
    for index in range(first * ranks):
        gathered[program.transfers[index].destination] += (index,)
    turning = range(first * ranks, len(program.transfers))
    transfers = list(program.transfers)
    for index in turning:
        one = transfers[index]
        if all(before < first * ranks for before in one.after):
            transfers[index] = one._replace(after=gathered[one.source])
    return replace(program, transfers=tuple(transfers))


def all_to_all(rows: int, columns: int, columns_first: bool = False) -> Program:
    """Build the all-to-all: a chunk goes to its destination's column within the row, then along that column.

    Chunk s * ranks + d, made by rank s, ends at rank d. On a dimension's ring a chunk is sent straight to the rank
    where it leaves that ring; the topology's links in between are shared with the others.
    """
    ranks = rows * columns
    made = {(source, source * ranks + destination): frozenset({source})
            for source in range(ranks) for destination in range(ranks)}
    received = {(destination, chunk): by for (source, chunk), by in made.items() for destination in (chunk % ranks,)}
    return Program(ranks, ranks * ranks, in_turn(_exchange(rows, columns, columns_first)), start=made, goal=received)


def _exchange(rows: int, columns: int, columns_first: bool) -> Iterator[_Hop]:
    ranks = rows * columns
    for first in (True, False):
        for source in range(ranks):
            for hop in range(1, ranks):
                destination = (source + hop) % ranks
                turn = (destination // columns * columns + source % columns if columns_first
                        else source // columns * columns + destination % columns)
                at, to = (source, turn) if first else (turn, destination)
                if at != to:
                    yield source * ranks + destination, at, to, Op.COPY


def _away(rows: int, columns: int, step: int, columns_first: bool) -> Iterator[_Hop]:
    """Hops of the all-gather, all chunks' first ones first."""
    ranks = rows * columns
    for along_columns in (not columns_first, columns_first):
        length, other = (rows, columns) if along_columns else (columns, rows)
        first_dimension = along_columns != columns_first
        for hop in range(length - 1):
            for chunk in range(ranks):
                row, column = divmod(chunk, columns)
                # In the first dimension only the owner's ring has the chunk, in the second one all rings have it.
                for ring in (column if along_columns else row,) if first_dimension else range(other):
                    start = row if along_columns else column
                    at, to = ((start + step * distance) % length for distance in (hop, hop + 1))
                    yield (chunk, *((at * columns + ring, to * columns + ring) if along_columns
                                    else (ring * columns + at, ring * columns + to)), Op.COPY)


def _reversed(hops: Iterator[_Hop]) -> list[_Hop]:
    """The way back, on which contributions are added."""
    return [(chunk, destination, source, Op.ADD) for chunk, source, destination, _ in reversed(list(hops))]
