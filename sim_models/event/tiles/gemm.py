"""A GEMM of a library as tiles: how long each takes, and which kernel the library would take.

A compute unit computes one tile after the other. In a tile's main loop operands come from the last-level cache into the
LDS and from there into the matrix units while these work, whichever takes longest; what does not fit the rounds of all
units is their tail. Where all tiles together need more of the memory than it gives, each takes longer by as much. Split
along K, a tile's parts are added by a kernel of their own. Rows are those of the output (tokens), columns its width.
The library is taken to know the fastest of its kernels.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, sqrt

from t3sim.machine import Machine

OPERAND_BYTES = 2
_SUM_BYTES = 4


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
    def compulsory_bytes(self) -> float:
        """Operands once, output once."""
        return OPERAND_BYTES * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True)
class Kernel:
    """One kernel on one shape and this many compute units."""

    shape: Shape
    tile_m: int
    tile_n: int
    split: int
    units: int
    tile_ns: float  #: of one tile (one part of it if split)
    sum_ns: float  #: of adding the parts, with its launch

    @property
    def rows(self) -> int:
        """Tiles along the rows."""
        return ceil(self.shape.m / self.tile_m)

    @property
    def columns(self) -> int:
        return ceil(self.shape.n / self.tile_n)

    @property
    def tiles(self) -> int:
        """Tiles of all that run, parts counted."""
        return self.rows * self.columns * self.split

    @property
    def rounds(self) -> int:
        return ceil(self.tiles / self.units)

    @property
    def ns(self) -> float:
        """Alone, from its first tile to its last."""
        return self.rounds * self.tile_ns + self.sum_ns

    @property
    def name(self) -> str:
        return f"{self.tile_m}x{self.tile_n}" + (f", K in {self.split}" if self.split > 1 else "")


def kernel(node: Machine, shape: Shape, tile: tuple[int, int], split: int = 1, units: int | None = None,
           band: int | None = None) -> Kernel:
    """Return one kernel's times.

    `units`: compute units that it has, all if not given; `band`: rows that it finishes before it goes on to others, all
    if not given.
    """
    gpu, units = node.gpu, units or node.gpu.compute_units
    tile_ns = ceil(shape.k / split) * _step_cycles(node, *tile) / gpu.clock_ghz + gpu.tile_ns
    sum_ns, parts = 0.0, _part_bytes(shape, split)
    if split > 1:
        sum_ns = node.host.launch_ns + (parts + OPERAND_BYTES * shape.m * shape.n) / node.memory.moved_bytes_per_ns
    made = Kernel(shape, *tile, split, units, tile_ns, sum_ns)
    moved = _read_bytes(made, band or shape.m) + OPERAND_BYTES * shape.m * shape.n + parts
    return replace(made, tile_ns=max(tile_ns, moved / node.memory.moved_bytes_per_ns / made.rounds))


def _part_bytes(shape: Shape, split: int) -> int:
    return split * shape.m * shape.n * _SUM_BYTES if split > 1 else 0


def _step_cycles(node: Machine, tile_m: int, tile_n: int) -> float:
    """Return cycles per step along K: the longest of multiplying, loading from the cache, and moving in the LDS."""
    gpu = node.gpu
    rows, columns = min(gpu.matrix_block[0], tile_m), min(gpu.matrix_block[1], tile_n)
    while (blocks := ceil(tile_m / rows) * ceil(tile_n / columns)) < gpu.blocks_at_once:
        rows, columns = (rows, columns / 2) if columns >= rows else (rows / 2, columns)
    through_lds = OPERAND_BYTES * (blocks * (rows + columns) + tile_m + tile_n)
    return max(2 * tile_m * tile_n / (gpu.matrix_flop_per_cycle_per_cu * gpu.matrix_efficiency),
               OPERAND_BYTES * (tile_m + tile_n) * gpu.compute_units / gpu.l2_bytes_per_cycle,
               through_lds / gpu.lds_bytes_per_cycle_per_cu)


def _read_bytes(one: Kernel, band: int) -> float:
    """Return the bytes of operands that are read from memory.

    Tiles of a round lie in a block as square as the band allows and share what they read.
    """
    shape, area = one.shape, one.units * one.tile_m * one.tile_n / one.split
    rows = max(one.tile_m, min(sqrt(area), max(band, area / shape.n)), area / shape.n)
    rows = min(shape.m, rows)
    columns = min(shape.n, max(one.tile_n, area / rows))
    blocks = max(1.0, shape.m / rows) * max(1.0, shape.n / columns)
    once = OPERAND_BYTES * shape.k * (shape.m + shape.n)
    return max(once, blocks * OPERAND_BYTES * shape.k * (rows + columns))


def kernels(node: Machine, shape: Shape, units: int | None = None, split: bool = True,
            band: int | None = None) -> list[Kernel]:
    """Return all kernels that the library has, the fastest first; `split`: along K, too, as its workspace allows."""
    found = [kernel(node, shape, tile, parts, units, band) for tile in node.gpu.tiles
             for parts in (node.gpu.split_k if split else (1,))
             if parts <= shape.k and _part_bytes(shape, parts) <= node.gpu.workspace_bytes]
    return sorted(found, key=lambda one: one.ns)


@lru_cache(maxsize=4096)
def best(node: Machine, shape: Shape, units: int | None = None) -> Kernel:
    """Return the library's fastest kernel for a shape."""
    return kernels(node, shape, units)[0]
