"""Concurrent programs, each with its own part of the data: rings in both directions, or with either dimension first."""

from collections.abc import Sequence

from t3sim.collectives.program import CollectiveError, Program


def together(programs: Sequence[Program]) -> Program:
    """Join programs over the same ranks; chunk c of program p becomes chunk p * chunks + c.

    Raises CollectiveError if their ranks or chunks differ.
    """
    ranks, chunks = programs[0].ranks, programs[0].chunks
    if any((program.ranks, program.chunks) != (ranks, chunks) for program in programs):
        raise CollectiveError("programs side by side need the same ranks and chunks")
    transfers, start, goal = [], {}, {}
    for number, program in enumerate(programs):
        shift, offset = number * chunks, len(transfers)
        transfers += [transfer._replace(chunk=transfer.chunk + shift,
                                        after=tuple(before + offset for before in transfer.after))
                      for transfer in program.transfers]
        start |= {(rank, chunk + shift): contributions for (rank, chunk), contributions in program.start.items()}
        goal |= {(rank, chunk + shift): contributions for (rank, chunk), contributions in program.goal.items()}
    return Program(ranks, chunks * len(programs), tuple(transfers), start, goal, alike=programs[0].alike)
