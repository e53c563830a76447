"""GEMMs on one GPU: compute units process one tile after the other, and a library uses its fastest kernel.

Tiles beyond whole rounds of all units are the tail. A GEMM split along K has a kernel of its own that adds the parts.
Rows are the output's (tokens), columns its width. There are 3 models of a tile's time:

- `tile_kernel`: from the hardware, for the event level of tiles. In a tile's main loop operands come from the
  last-level cache into the LDS and from there into the matrix units while these compute; the slowest limits. If all
  tiles together exceed the memory's rate, each takes proportionally longer.
- `library_kernel`: from rates measured on commercial GPUs. A tile takes its main loop, or the loads that feed it, a
  fixed time, and the exposed part of its stores. The kernel takes at least the time to read the operands and write the
  output once.
- `accelerator_gemm_ns`: tiles of one size, for whole trainings, where extents are arrays of many mappings at once.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil, sqrt

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.machine.closed_form import Accelerator
from t3sim.machine.libraries import Kernels

OPERAND_BYTES = 2  #: of 16 bits, as the output has
_SUM_BYTES = 4
#: Bytes of an operand, by width.
BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
#: The first blocks of another kernel each occupy a unit of a different cluster; later ones fill these clusters. Read
#: off the H100's rows, as `dealt_rounds` is; the H200's are predictions.
_APART = 4


@dataclass(frozen=True)
class Shape:
    """One GPU's GEMM: rows x columns of the output, depth."""

    m: int
    n: int
    k: int

    @property
    def flop(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the input rows, the result of an all-gather."""
        return OPERAND_BYTES * self.m * self.k

    @property
    def scattered_bytes(self) -> int:
        """Bytes of the output, the input of a reduce-scatter."""
        return OPERAND_BYTES * self.m * self.n

    def compulsory_bytes(self, operand_bytes: float = OPERAND_BYTES, groups: int = 1) -> float:
        """Operands once, output once; `groups`: each has weights of its own."""
        return operand_bytes * self.k * (self.m + groups * self.n) + OPERAND_BYTES * self.m * self.n


@dataclass(frozen=True)
class GemmKernel:
    """A kernel of the library on a GEMM, or on several GEMMs that share its units.

    The cost of held units was measured on an H100 and an H200 (`beside_hopper.csv`). The library's kernels start as
    many clusters of units as the GPU has, and each has its first tile, or up to `dealt_rounds` rounds all its tiles,
    before it starts. A cluster with held units starts when the others have ended: 4 held units of 132 make a GEMM of 2
    rounds take almost twice as long. Few units then run, at the peak rate instead of the sustained one.
    """

    shape: Shape  #: of all together
    tile: tuple[int, int]
    split: int  #: parts along K
    tiles: int  #: of all that run, parts counted
    units: int
    tile_ns: float  #: of one tile (one part of it if split)
    sum_ns: float = 0.0  #: of adding the parts, with its launch
    memory_ns: float = 0.0  #: that memory needs, if `tile_ns` does not know
    cluster: int = 1  #: units that start together
    dealt_rounds: int = 0  #: rounds up to which clusters have all their tiles when they start; 0: none has any
    lone: float = 1.0  #: of a tile's time while few others work

    @property
    def rows(self) -> int:
        """Tiles along the rows."""
        return ceil(self.shape.m / self.tile[0])

    @property
    def columns(self) -> int:
        return ceil(self.shape.n / self.tile[1])

    @cached_property
    def ns(self) -> float:
        """From its first tile to its last, alone on the GPU, its launch not included."""
        return self.ns_beside(0)

    @property
    def name(self) -> str:
        return f"{self.tile[0]}x{self.tile[1]}" + (f", K in {self.split}" if self.split > 1 else "")

    def ns_beside(self, held_units: int) -> float:
        """Return the time while another kernel holds this many compute units."""
        return max(self.rounds(held_units) * self.tile_ns, self.memory_ns) + self.sum_ns

    def rounds(self, held_units: int = 0) -> float:
        """Return the most tiles that a unit processes, one after the other."""
        clusters, tile_clusters = max(1, self.units // self.cluster), ceil(self.tiles / self.cluster)
        clusters_held = min(clusters - 1, held_units if self.cluster == 1 else
                            max(min(held_units, _APART), ceil(held_units / self.cluster)))
        clusters_free, full_rounds = clusters - clusters_held, ceil(tile_clusters / clusters)
        if not clusters_held or not self.dealt_rounds:
            return ceil(tile_clusters / clusters_free)
        if full_rounds <= self.dealt_rounds:
            return full_rounds + full_rounds * self.lone * (ceil(ceil(tile_clusters / full_rounds) / clusters_free) - 1)
        return ceil((tile_clusters - clusters_held) / clusters_free) + self.lone * ceil(clusters_held / clusters_free)


def _sums_ns(shape: Shape, split: int, bytes_per_ns: float, start_ns: float) -> float:
    """Return the time of the kernel that adds the parts of a split GEMM; `start_ns`: until it moves bytes."""
    return start_ns + (split * _SUM_BYTES + OPERAND_BYTES) * shape.m * shape.n / bytes_per_ns if split > 1 else 0.0


def tile_kernel(node: Machine, shape: Shape, tile: tuple[int, int], split: int = 1, units: int | None = None,
                band: int | None = None) -> GemmKernel:
    """Return one kernel, timed from the hardware.

    `units`: its compute units, by default all; `band`: rows that it finishes before it continues with others, by
    default all.
    """
    gpu, memory, units = node.gpu, node.memory.moved_bytes_per_ns, units or node.gpu.compute_units
    tiles = ceil(shape.m / tile[0]) * ceil(shape.n / tile[1]) * split
    kernel = GemmKernel(shape, tile, split, tiles, units,
                        ceil(shape.k / split) * _step_cycles(node, *tile) / gpu.clock_ghz + gpu.tile_ns,
                        _sums_ns(shape, split, memory, node.host.launch_ns))
    memory_bytes = _read_bytes(kernel, band or shape.m) + OPERAND_BYTES * shape.m * shape.n + _part_bytes(shape, split)
    return replace(kernel, tile_ns=max(kernel.tile_ns, memory_bytes / memory / kernel.rounds()))


def _part_bytes(shape: Shape, split: int) -> int:
    return split * shape.m * shape.n * _SUM_BYTES if split > 1 else 0


def _step_cycles(node: Machine, tile_m: int, tile_n: int) -> float:
    """Return cycles per step along K: the longest of multiplying, loading from the cache, and moving in the LDS.

    Tiles of a cluster lie side by side along their shorter edge, and load their common operand once.
    """
    gpu = node.gpu
    rows, columns = min(gpu.matrix_block[0], tile_m), min(gpu.matrix_block[1], tile_n)
    while (blocks := ceil(tile_m / rows) * ceil(tile_n / columns)) < gpu.blocks_at_once:
        rows, columns = (rows, columns / 2) if columns >= rows else (rows / 2, columns)
    lds_bytes = OPERAND_BYTES * (blocks * (rows + columns) + tile_m + tile_n)
    loaded_elements = min(tile_m, tile_n) + max(tile_m, tile_n) / gpu.cluster
    return max(2 * tile_m * tile_n / (gpu.matrix_flop_per_cycle_per_cu * gpu.matrix_efficiency),
               OPERAND_BYTES * loaded_elements * gpu.compute_units / gpu.l2_bytes_per_cycle,
               lds_bytes / gpu.lds_bytes_per_cycle_per_cu)


def _read_bytes(kernel: GemmKernel, band: int) -> float:
    """Return the bytes of operands that a kernel reads from memory.

    Tiles of a round form a block, as square as the band allows, and share their reads.
    """
    shape, (tile_m, tile_n) = kernel.shape, kernel.tile
    area = kernel.units * tile_m * tile_n / kernel.split
    rows = max(tile_m, min(sqrt(area), max(band, area / shape.n)), area / shape.n)
    rows = min(shape.m, rows)
    columns = min(shape.n, max(tile_n, area / rows))
    blocks = max(1.0, shape.m / rows) * max(1.0, shape.n / columns)
    once = OPERAND_BYTES * shape.k * (shape.m + shape.n)
    return max(once, blocks * OPERAND_BYTES * shape.k * (rows + columns))


def tile_kernels(node: Machine, shape: Shape, units: int | None = None, split: bool = True,
                 band: int | None = None) -> list[GemmKernel]:
    """Return all kernels of the library, the fastest first; `split`: also along K, within its workspace."""
    kernels = [tile_kernel(node, shape, tile, parts, units, band) for tile in node.gpu.tiles
               for parts in (node.gpu.split_k if split else (1,))
               if parts <= shape.k and _part_bytes(shape, parts) <= node.gpu.workspace_bytes]
    return sorted(kernels, key=lambda kernel: kernel.ns)


@lru_cache(maxsize=4096)
def best_tile_kernel(node: Machine, shape: Shape, units: int | None = None) -> GemmKernel:
    """Return the library's fastest kernel for a shape."""
    return tile_kernels(node, shape, units)[0]


def width_of(dtype: str) -> str | None:
    """Return the width for a source's name of a format; None if there is no rate for it."""
    name = dtype.lower().split(",")[0].strip()
    for width, words in (("fp8", ("fp8", "e4m3", "e5m2", "mxfp8", "float8")), ("fp4", ("fp4", "nvfp4", "mxfp4")),
                         ("bf16", ("bf16", "fp16", "half", "bfloat16", "float16", "", "?"))):
        if name in words:
            return width
    return None


def library_kernel(machine: Machine, m: int, n: int, k: int, width: str = "bf16",
                   units: int | None = None) -> GemmKernel:
    """Return the library's fastest kernel for this many compute units, by default all. Raises BadInput."""
    return grouped_kernel(machine, (m,), n, k, width, units)


def grouped_kernel(machine: Machine, rows: tuple[int, ...], n: int, k: int, width: str = "bf16",
                   units: int | None = None) -> GemmKernel:
    """Return the library's fastest kernel for GEMMs that share its units, such as experts' GEMMs.

    `rows`: of each GEMM, which has weights of its own. Several GEMMs are not split along K. Raises BadInput.
    """
    peak, sustained = getattr(machine.peak, width), getattr(machine.sustained, width)
    if peak is None or sustained is None:
        raise BadInput(f"{machine.name} has no rate of {width}")
    return _grouped_kernel(machine.kernels, peak, sustained, machine.gpu.compute_units, machine.memory_bytes_per_ns,
                           rows, n, k, width, units or machine.gpu.compute_units)


@lru_cache(maxsize=1 << 14)
def _grouped_kernel(kernels: Kernels, peak: float, sustained: float, compute_units: int, memory: float,
                    rows: tuple[int, ...], n: int, k: int, width: str, units: int) -> GemmKernel:
    """Choose the kernel from what it depends on, because comparing whole machines took most of a fit's time."""
    bytes_, shape = BYTES[width], Shape(sum(rows), n, k)
    flop_per_ns = 1e3 * peak * sustained / compute_units
    memory_share = memory / compute_units
    memory_ns, clusters = shape.compulsory_bytes(bytes_, len(rows)) / memory, max(1, units // kernels.cluster)
    parts = [(split, depth, _sums_ns(shape, split, memory, kernels.next_ns + kernels.tile_ns))
             for split in (kernels.split_k if len(rows) == 1 else (1,))
             if (depth := ceil(k / split)) >= 128 or split == 1]
    cluster, fixed_ns, unit_bytes_per_ns = kernels.cluster, kernels.tile_ns, kernels.unit_bytes_per_ns
    best_ns, best = 0.0, None
    for tile_m, tile_n in (kernels.fp8_shapes if width == "fp8" else ()) or kernels.shapes:
        flop, loaded_bytes = 2 * tile_m * tile_n, bytes_ * (tile_m + tile_n)
        stores = kernels.shown_stores * OPERAND_BYTES * tile_m * tile_n / memory_share
        output_tiles = sum([ceil(one / tile_m) for one in rows]) * ceil(n / tile_n)
        for split, depth, sum_ns in parts:
            tiles = output_tiles * split
            loop = max(flop * depth / flop_per_ns, loaded_bytes * depth / unit_bytes_per_ns)
            tile_ns = loop + fixed_ns + stores
            ns = max(ceil(ceil(tiles / cluster) / clusters) * tile_ns, memory_ns) + sum_ns  # its `ns`, sooner
            if best is None or ns < best_ns:
                best_ns, best = ns, ((tile_m, tile_n), split, tiles, tile_ns, sum_ns)
    assert best is not None
    tile, split, tiles, tile_ns, sum_ns = best
    return GemmKernel(shape, tile, split, tiles, units, tile_ns, sum_ns, memory_ns, kernels.cluster,
                      kernels.dealt_rounds, sustained)


def library_gemm_ns(machine: Machine, m: int, n: int, k: int, width: str = "bf16") -> float:
    """Return the time of a GEMM with its launch."""
    return library_kernel(machine, m, n, k, width).ns + machine.kernels.launch_ns


def ceil_div(value, by):
    """Return how many times `by` is needed for a value; either may be an array."""
    return -(-value // by)


def accelerator_gemm_ns(gpu: Accelerator, m, n, k, count=1, element_bytes=OPERAND_BYTES):
    """Return the time of `count` GEMMs that run as one kernel; all extents may be arrays.

    A tile's loop over K goes at the sustained matrix rate and has a fixed overhead. A GEMM with little reuse is bound
    by the bytes of its operands instead.
    """
    rounds = ceil_div(ceil_div(m, gpu.tile_m) * ceil_div(n, gpu.tile_n) * count, gpu.cores)
    flop_per_ns_and_core = gpu.peak_tflop_per_s * 1e3 * gpu.matrix_efficiency / gpu.cores
    compute_ns = rounds * (2 * gpu.tile_m * gpu.tile_n * (k + gpu.tile_overhead_k) / flop_per_ns_and_core)
    operands = element_bytes * count * (m * k + k * n + m * n)
    return np.maximum(compute_ns, operands / gpu.moved_bytes_per_ns) + gpu.kernel_ns


def accelerator_move_ns(gpu: Accelerator, size_bytes):
    """Return the time of a kernel that reads and writes `size_bytes` in all and computes little."""
    return size_bytes / gpu.moved_bytes_per_ns + gpu.kernel_ns
