"""All-reduce: a reduce-scatter and an all-gather with one root for each chunk."""

from t3sim.collectives.program import Program, all_ranks


def all_reduce(scatter: Program, gather: Program) -> Program:
    """Join the two trees of each chunk: `gather` distributes the sum that `scatter` has reduced at the chunk's owner.

    A copy overwrites a rank's partial sum, which must have left before. The order guarantees this, because every chunk
    is reduced at its owner before it is gathered.
    """
    offset = len(scatter.transfers)
    unique_after = {id(transfer.after): transfer.after for transfer in gather.transfers}  # many transfers share a tuple
    shifted_after = {key: tuple(offset + before for before in after) for key, after in unique_after.items()}
    after_sum = (transfer._replace(after=(*scatter.arrivals.get((transfer.source, transfer.chunk), ()),
                                          *shifted_after[id(transfer.after)]))
                 for transfer in gather.transfers)
    contributions = all_ranks(scatter.ranks)
    return Program(scatter.ranks, scatter.chunks, (*scatter.transfers, *after_sum), scatter.start,
                   {key: contributions for key in gather.goal}, in_switch=scatter.in_switch,
                   alike=scatter.alike)
