"""All-reduce: a reduce-scatter and an all-gather with one root for each chunk."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from t3sim.collectives.program import Contributions, Ends, Program, Transfers, all_ranks, firsts, number_sets, spans


def all_reduce(scatter: Program, gather: Program) -> Program:
    """Join the two trees of each chunk: `gather` distributes the sum that `scatter` has reduced at the chunk's owner.

    A copy overwrites a rank's partial sum, which must have left before. The order guarantees this, because every chunk
    is reduced at its owner before it is gathered.
    """
    return Program(scatter.ranks, scatter.chunks, Transfers.joined([scatter.table, _after(scatter, gather)]),
                   scatter.start, Ends(_whole_sums, (scatter.ranks, gather.goal)), in_switch=scatter.in_switch,
                   alike=scatter.alike)


def _after(scatter: Program, gather: Program) -> Transfers:
    """Let transfers of `gather` wait for what `scatter` has brought to the chunk's owner, and then for their own sets.

    What another rank sends has come from the owner.
    """
    table, sets = gather.table, len(gather.table.first) - 1
    at = scatter.table.destination * scatter.chunks + scatter.table.chunk
    arrivals, left = np.argsort(at, kind="stable"), table.source * scatter.chunks + table.chunk
    begin, end = (np.searchsorted(at[arrivals], left, side) for side in ("left", "right"))
    owned = ~np.isin(left, table.destination * scatter.chunks + table.chunk)
    begin = np.where(owned & (end > begin), begin, len(arrivals))
    counts = np.zeros(len(arrivals) + 1, np.int64)
    counts[begin] = np.where(begin < len(arrivals), end - begin, 0)
    waits, names = number_sets(np.where((begin < len(arrivals)) | (table.waits >= 0),
                                        begin * (sets + 1) + table.waits % (sets + 1), -1))
    begin, own = np.divmod(names, sets + 1)  # set number `sets`: none
    counts, own_counts = counts[begin], np.append(np.diff(table.first), 0)[own]
    first = firsts(counts + own_counts)
    members = np.empty(first[-1], np.int64)
    members[spans(first[:-1], counts)] = arrivals[spans(begin, counts)]
    members[spans(first[:-1] + counts, own_counts)] = (
        table.members[spans(table.first[own], own_counts)] + len(arrivals))
    return replace(table, waits=waits, first=first, members=members)


def _whole_sums(ranks: int, goal: Mapping[tuple[int, int], Contributions]) -> dict[tuple[int, int], Contributions]:
    contributions = all_ranks(ranks)
    return {key: contributions for key in goal}
