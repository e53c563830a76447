"""A GEMM as a library runs it on a GPU that is sold, with operands of 16, 8 or 4 bits.

Compute units take one tile after the other, in rounds; a tile costs its main loop, or the loads that feed it, a fixed
time, and the part of its stores that nothing hides. A kernel after a GEMM split along K adds its parts. Below it lies
the time in which memory gives the operands once and takes the output. The library is taken to know the fastest of its
kernels for the whole GPU, and starts the same one when another kernel holds some of the units.

What held units cost was measured on an H100 and an H200 (`beside_hopper.csv`). The library's kernels start as many
clusters of units as the GPU has, and each has its first tile, or all of them where there are two rounds at most, before
it starts. A cluster whose units are held starts when the others have ended: four units of 132 make a GEMM of two rounds
take almost twice as long. Few units then work, at the peak's rate rather than the sustained one.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from t3sim.base.errors import BadInput
from t3sim.machine import Machine

#: Bytes of an operand, by width; the output has 16 bits.
BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
_OUT_BYTES, _SUM_BYTES = 2, 4


def width_of(dtype: str) -> str | None:
    """Return the width that a source's words mean; None for one without a rate."""
    word = dtype.lower().split(",")[0].strip()
    for width, words in (("fp8", ("fp8", "e4m3", "e5m2", "mxfp8", "float8")), ("fp4", ("fp4", "nvfp4", "mxfp4")),
                         ("bf16", ("bf16", "fp16", "half", "bfloat16", "float16", "", "?"))):
        if word in words:
            return width
    return None


#: Blocks of another kernel that each take a unit of another cluster; later ones take the units left over of those.
#: Read off the H100's rows, as `dealt_rounds` is; the H200's are predictions.
_APART = 4


@dataclass(frozen=True)
class Kernel:
    """One kernel on one shape."""

    tile: tuple[int, int]
    split: int
    tiles: int
    units: int
    tile_ns: float
    memory_ns: float
    sum_ns: float
    cluster: int = 1  #: units that start together
    dealt_rounds: int = 0  #: rounds up to which clusters have all their tiles when they start; 0: none has any
    lone: float = 1.0  #: of a tile's time while few others work

    @property
    def ns(self) -> float:
        """On the GPU, its launch not included."""
        return self.ns_beside(0)

    def ns_beside(self, held: int) -> float:
        """Return the time while another kernel holds this many compute units."""
        return max(self.rounds(held) * self.tile_ns, self.memory_ns) + self.sum_ns

    def rounds(self, held: int = 0) -> float:
        """Return how many tiles the unit with most of them takes, one after the other."""
        clusters, waiting = max(1, self.units // self.cluster), ceil(self.tiles / self.cluster)
        lost = min(clusters - 1, held if self.cluster == 1 else max(min(held, _APART), ceil(held / self.cluster)))
        left, whole = clusters - lost, ceil(waiting / clusters)
        if not lost or not self.dealt_rounds:
            return ceil(waiting / left)
        if whole <= self.dealt_rounds:
            return whole + whole * self.lone * (ceil(ceil(waiting / whole) / left) - 1)
        return ceil((waiting - lost) / left) + self.lone * ceil(lost / left)

    @property
    def bound(self) -> str:
        """Say what it waits for."""
        return "memory" if self.memory_ns > self.rounds() * self.tile_ns else "matrix units"

    @property
    def name(self) -> str:
        return f"{self.tile[0]}x{self.tile[1]}" + (f", K in {self.split}" if self.split > 1 else "")


def best(machine: Machine, m: int, n: int, k: int, width: str = "bf16", units: int | None = None) -> Kernel:
    """Return the library's fastest kernel; `units`: that it is made for, all if not given. Raises BadInput."""
    return grouped(machine, (m,), n, k, width, units)


@lru_cache(maxsize=1 << 14)
def grouped(machine: Machine, rows: tuple[int, ...], n: int, k: int, width: str = "bf16",
            units: int | None = None) -> Kernel:
    """Return the library's fastest kernel for GEMMs that share its units, as those of experts do.

    `rows`: of each, which has weights of its own. Of several none is split along K. Raises BadInput.
    """
    kernels, bytes_, m = machine.kernels, BYTES[width], sum(rows)
    units = units or machine.gpu.compute_units
    peak, sustained = getattr(machine.peak, width), getattr(machine.sustained, width)
    if peak is None or sustained is None:
        raise BadInput(f"{machine.name} has no rate of {width}")
    flop_per_ns = 1e3 * peak * sustained / machine.gpu.compute_units
    compulsory = (bytes_ * k * (m + len(rows) * n) + _OUT_BYTES * m * n) / machine.memory_bytes_per_ns
    memory_share = machine.memory_bytes_per_ns / machine.gpu.compute_units
    found = []
    for high, wide in (kernels.fp8_shapes if width == "fp8" else ()) or kernels.shapes:
        for split in kernels.split_k if len(rows) == 1 else (1,):
            depth = ceil(k / split)
            if split > 1 and depth < 128:
                continue
            loop = max(2 * high * wide * depth / flop_per_ns,
                       bytes_ * (high + wide) * depth / kernels.unit_bytes_per_ns)
            sums = 0.0 if split == 1 else (split * _SUM_BYTES + _OUT_BYTES) * m * n / machine.memory_bytes_per_ns
            sums += kernels.next_ns + kernels.tile_ns if split > 1 else 0.0  # a kernel of its own
            stores = kernels.shown_stores * _OUT_BYTES * high * wide / memory_share
            tiles = sum(ceil(one / high) for one in rows) * ceil(n / wide) * split
            found.append(Kernel((high, wide), split, tiles, units, loop + kernels.tile_ns + stores, compulsory, sums,
                                kernels.cluster, kernels.dealt_rounds, sustained))
    return min(found, key=lambda one: one.ns)


def gemm_ns(machine: Machine, m: int, n: int, k: int, width: str = "bf16", units: int | None = None) -> float:
    """Return the time of a GEMM with its launch."""
    return best(machine, m, n, k, width, units).ns + machine.kernels.launch_ns
