"""Tokens that come to their experts before a GEMM: how what a GPU gets is cut, in which order it comes, where it lies.

Each token is there as often as it goes to an expert, packed by receiver and expert, as the kernel before has written
it: DMA cannot gather tokens, since all tiles of a region go to one GPU one offset further. It lies at the same place of
an array that every GPU has, so that a receiver finds each expert's tokens next to each other: those of the GPU itself,
then the others' as they come. What goes from one GPU to another one's expert is cut into tiles of few tokens, the last
of which may be narrower.

In each slice every pair of GPUs has a tile, so that all GPUs have as many ids, and a tile that is sent a smaller one
than what it becomes; where a pair has fewer, tiles without tokens take their places. Tiles come in the order of the
receiver's experts, and all pairs' last ones late: who gets most has its links in use from the first slice on.
"""

from itertools import product

import numpy as np

from t3sim.machine import Machine
from t3sim.runs.gather_before import LEAST_ROW_BYTES, parts_of_features
from t3sim.workload.operators.uneven_tiling import UnevenTiling
from t3sim.workload.workloads import DispatchWorkload


def dispatch_tiling(machine: Machine, workload: DispatchWorkload, most_regions: int) -> UnevenTiling:
    """Cut all tokens, as often as they go to an expert: a column of tiles for each slice, source and receiver.

    `most_regions`: of a GPU, which needs one for each width of a wavefront tile and GPU. Raises TilingError.
    """
    gpu, ranks = machine.gpu, workload.tp
    _, height = parts_of_features(workload.exchanged_elements, workload.format.bytes)[0]
    counts = workload.routing.counts.reshape(ranks, ranks, -1)  # of a GPU's tokens, for a GPU's expert
    tile_n = gpu.wavefronts_per_workgroup
    while (tile_n < min(gpu.tile_n, counts.mean() / 2)
           and (widths := 2 * tile_n // gpu.wavefronts_per_workgroup) <= machine.dma.block_shapes
           and widths * ranks < most_regions):
        tile_n *= 2
    slices = max(1, int((-(-counts // tile_n)).sum(axis=2).max()))
    tiles = sorted(tile for pair in product(range(ranks), repeat=2) for tile in _tiles(counts, pair, tile_n, slices))
    starts, widths = np.zeros((2, slices, ranks, ranks), np.int64)
    place = 0
    for to, _, _, turn, hop, width in tiles:
        source = (to + hop) % ranks
        starts[turn, source, to], widths[turn, source, to] = place, width
        place += width
    return UnevenTiling(workload.exchanged_elements, place, height, tile_n, gpu.wavefronts_per_workgroup,
                        workload.format.bytes, pitch_unit_bytes=LEAST_ROW_BYTES, whole_columns=True,
                        starts=tuple(starts.ravel().tolist()), widths=tuple(widths.ravel().tolist()))


def _tiles(counts: np.ndarray, pair: tuple[int, int], tile_n: int, slices: int) -> list[tuple[int, ...]]:
    """List the columns of tiles that go from one GPU to another, or stay.

    Each is receiver, expert, whether it comes, slice, how far from the receiver its source is, width: as they lie in
    memory, if sorted.
    """
    source, to = pair
    hop, whole = (source - to) % len(counts), counts[:, to].sum(axis=0)
    before, portions = np.cumsum(whole) - whole, []
    for expert, count in enumerate(counts[pair].tolist()):
        parts = -(-count // tile_n)
        portions += [((before[expert] + (part + 0.5) / parts * whole[expert]) / whole.sum(), expert,
                      min(tile_n, count - part * tile_n)) for part in range(parts)]
    turns = np.array([share * slices for share, _, _ in portions]).astype(np.int64)
    behind = np.arange(len(portions))  # one after the other, none so late that the last ones have no slice
    turns = np.minimum(np.maximum.accumulate(turns - behind) + behind, slices - len(portions) + behind)
    return [(to, expert, int(hop > 0), turn, hop, width) for turn, (_, expert, width) in zip(turns.tolist(), portions)]
