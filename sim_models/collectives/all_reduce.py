"""All-reduce: a reduce-scatter and an all-gather with one root for each chunk."""

from t3sim.collectives.program import Program, all_ranks


def all_reduce(scatter: Program, gather: Program) -> Program:
    """Join the two trees of each chunk: what has reached its owner in `scatter` is what `gather` passes on.

    A copy overwrites a rank's own partial sum, so it waits until that has left; the way to the owner and back sees to
    it, because everything that is gathered was reduced before.
    """
    offset = len(scatter.transfers)
    shifted = {id(transfer.after): tuple(offset + before for before in transfer.after)
               for transfer in {id(one.after): one for one in gather.transfers}.values()}  # many share one
    after_sum = (transfer._replace(after=(*scatter.arrivals.get((transfer.source, transfer.chunk), ()),
                                          *shifted[id(transfer.after)]))
                 for transfer in gather.transfers)
    everybody = all_ranks(scatter.ranks)
    return Program(scatter.ranks, scatter.chunks, (*scatter.transfers, *after_sum), scatter.start,
                   {key: everybody for key in gather.goal}, in_switch=scatter.in_switch,
                   alike=scatter.alike)
