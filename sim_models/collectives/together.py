"""Concurrent programs, each with its own part of the data: rings in both directions, or with either dimension first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from t3sim.collectives.program import CollectiveError, Contributions, Ends, Program, Transfers, firsts


def together(programs: Sequence[Program]) -> Program:
    """Join programs over the same ranks; chunk c of program p becomes chunk p * chunks + c.

    Raises CollectiveError if their ranks or chunks differ.
    """
    ranks, chunks = programs[0].ranks, programs[0].chunks
    if any((program.ranks, program.chunks) != (ranks, chunks) for program in programs):
        raise CollectiveError("programs side by side need the same ranks and chunks")
    tables = [program.table for program in programs]
    parts = [replace(table, chunk=table.chunk + number * chunks, members=table.members + offset)
             for number, (table, offset) in enumerate(zip(tables, firsts(list(map(len, tables)))))]
    start, goal = (Ends(_side_by_side, (chunks, [getattr(program, name) for program in programs]))
                   for name in ("start", "goal"))
    return Program(ranks, chunks * len(programs), Transfers.joined(parts), start, goal, alike=programs[0].alike)


def _side_by_side(chunks: int, ends: Sequence[Mapping[tuple[int, int], Contributions]]
                  ) -> dict[tuple[int, int], Contributions]:
    return {(rank, chunk + number * chunks): contributions
            for number, one in enumerate(ends) for (rank, chunk), contributions in one.items()}
