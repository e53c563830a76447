"""Medium-grained overlap on the event level, as in TransformerEngine's user buffers: a GEMM in several, with transfers.

Sources: TransformerEngine 1.4, `initialize_ub` and `UbufCommOverlap` (defaults: 16 compute units, four splits, rings
for all-gathers); Flux (arXiv 2406.06858), section 2.2: GEMMs of a reduce-scatter do not run side by side, those of an
all-gather do. Like the paper, the best of all settings counts.
"""

from dataclasses import dataclass
from math import ceil

from t3sim.analytic.gemm import OPERAND_BYTES, GemmKernel, Shape, best_tile_kernel
from t3sim.event.tiles.ports import direct_ns, store_bytes_per_ns
from t3sim.event.tiles.slots import run_tiles
from t3sim.machine import Machine

COMMUNICATION_UNITS = 16
#: Points of overlap efficiency by which this hides more than TransformerEngine did, on the mean of Flux's figures 11
#: to 13: `t3 reproduce --paper flux`.
TOO_GOOD = {"a100-pcie": 118, "a100-nvlink": 91, "h800-sxm": 38}
_SPLITS = (2, 4, 8)  #: of a reduce-scatter in a pipeline


@dataclass(frozen=True)
class Decomposed:
    """A run, ns from its start."""

    ns: float
    kernel: GemmKernel  #: of one part
    parts: int
    method: str  #: "pipeline" or "ring"


def decomposed(node: Machine, operator: str, shape: Shape, ranks: int,
               communication_units: int = COMMUNICATION_UNITS) -> Decomposed:
    """Return the best setting's run; `communication_units`: those that kernels which send take from the GEMMs."""
    runs = []
    if operator == "gemm-rs":
        runs += [_pipeline(node, shape, ranks, communication_units, parts) for parts in _SPLITS
                 if shape.m % (parts * ranks) == 0]
        runs.append(_ring_scatter(node, shape, ranks, communication_units))
    else:
        runs += [_ring_gather(node, shape, ranks, communication_units, together)
                 for together in (1, 2) if ranks % together == 0]
    return min(runs, key=lambda run: run.ns)


def _one_by_one(node: Machine, kernel: GemmKernel, transfer_ns: float, parts: int) -> tuple[float, float]:
    """Return (end of the last GEMM, end of the last transfer) of GEMMs one after the other, each before a transfer."""
    gemm_end = sent_ns = 0.0
    for part in range(parts):
        gemm_end += kernel.ns + (node.host.launch_ns if part else 0.0)
        sent_ns = max(sent_ns, gemm_end + node.host.event_ns) + transfer_ns
    return gemm_end, sent_ns


def _pipeline(node: Machine, shape: Shape, ranks: int, units: int, parts: int) -> Decomposed:
    """Play parts of the rows of all ranks, each scattered by a kernel that pulls from all."""
    kernel = best_tile_kernel(node, Shape(shape.m // parts, shape.n, shape.k), node.gpu.compute_units - units)
    transfer_ns = node.link.latency_ns + direct_ns(node, ranks, OPERAND_BYTES * kernel.shape.m * shape.n / ranks)
    return Decomposed(_one_by_one(node, kernel, transfer_ns, parts)[1], kernel, parts, "pipeline")


def _ring_scatter(node: Machine, shape: Shape, ranks: int, units: int) -> Decomposed:
    """Play one GEMM for each rank's rows; sums go around while they run, and the last one is the rank's own."""
    kernel = best_tile_kernel(node, Shape(max(1, shape.m // ranks), shape.n, shape.k), node.gpu.compute_units - units)
    bytes_ = OPERAND_BYTES * kernel.shape.m * shape.n
    gemms, arrival_ns = _one_by_one(node, kernel, node.link.latency_ns + bytes_ / store_bytes_per_ns(node), ranks - 1)
    own_ns = gemms + node.host.launch_ns + kernel.ns
    adding_ns = 3 * bytes_ / node.memory.moved_bytes_per_ns
    return Decomposed(max(own_ns, arrival_ns) + node.host.event_ns + adding_ns, kernel, ranks, "ring")


def _ring_gather(node: Machine, shape: Shape, ranks: int, units: int, together: int) -> Decomposed:
    """Play one GEMM for the rows of each rank, or of two, as they come around a ring; GEMMs run side by side.

    The first of a pair is the rank's own or has come before, the second is waited for.
    """
    parts = ranks // together
    gpu = node.gpu
    kernel = best_tile_kernel(node, Shape(max(1, shape.m // parts), shape.n, shape.k), gpu.compute_units - units)
    bytes_ = OPERAND_BYTES * ceil(shape.m / ranks) * shape.k
    hop_ns = node.host.event_ns + node.link.latency_ns + bytes_ / store_bytes_per_ns(node)
    hops = [part * together + together - 1 for part in range(parts)]
    arrivals_ns = [count * hop_ns + (node.host.event_ns if count else 0.0) for count in hops]
    free = [0.0] * (gpu.compute_units - units) + [arrivals_ns[-1]] * units  # of which the senders are rid then
    end = run_tiles(free, kernel.tile_ns, (there for there in arrivals_ns for _ in range(kernel.tiles)))
    return Decomposed(end + parts * kernel.sum_ns, kernel, parts, "ring")
