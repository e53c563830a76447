"""GEMM kernels of libraries, and a machine of the cycle level that has one of them in place of its own."""

import re
from dataclasses import dataclass

from t3sim.analytic.gemm import library_kernel
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.machine import Machine

_NAME = re.compile(r"nvjet\w*?_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)x(\d+)_")
_BYTES = 2  #: of an element


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel on an output of some size."""

    tile: tuple[int, int]  #: along hidden and along tokens
    block_k: int  #: in a unit's shared memory or LDS, one of its stages
    stages: int
    tiles: int
    cluster: int = 1  #: workgroups along its longer edge
    parts: int = 1  #: of K

    @classmethod
    def named(cls, name: str, m: int, n: int, units: int) -> "LibraryKernel":
        """Read one of cuBLAS's names, or several with what runs before and after. Raises BadInput.

        Where K is cut it has as many parts as give each unit one: what cuBLAS takes is not in its name.
        """
        found = _NAME.search(name)
        if found is None:
            raise BadInput(f"kernel {name!r} has no tile, block, stages and cluster: "
                           "nvjet_..._256x128_64x4_1x2_... has")
        high, wide, block_k, stages, *cluster = map(int, found.groups())
        tiles = _tiles(high, wide, m, n)
        return cls((high, wide), block_k, stages, tiles, max(cluster), units // tiles or 1 if "splitK" in name else 1)

    @classmethod
    def modelled(cls, library: Machine, lds_bytes: int, m: int, n: int, k: int) -> "LibraryKernel":
        """Return the kernel that is the fastest by the model of a GPU's library: one block of K fills the LDS."""
        found = library_kernel(library, m, n, k)
        wide, high = found.tile
        deepest = lds_bytes // (_BYTES * (high + wide))
        return cls((high, wide), 1 << deepest.bit_length() - 1, 2, _tiles(high, wide, m, n), parts=found.split)

    @property
    def lies(self) -> bool:
        """Say whether a tile's columns are not whole lines, so that its GEMM is simulated transposed."""
        return self.tile[0] * _BYTES % LINE_BYTES != 0

    def on(self, machine: Machine) -> Machine:
        """Return the machine with this kernel.

        A unit's stages are those of its only tile, or of the machine's places, between whose tiles it goes to and fro:
        one half of them is loaded while the other one is multiplied, as a workgroup has one step's loads on their way.
        """
        gpu, (high, wide) = machine.gpu, self.tile
        places = gpu.workgroups_per_cu if self.tiles > gpu.compute_units else 1
        own = {
            "tile_m": wide if self.lies else high, "tile_n": high if self.lies else wide, "cluster": self.cluster,
            "block_k": self.block_k * max(1, self.stages // (2 * places)), "load_buffers": 2,
            "workgroups_per_cu": places, "k_parts": self.parts,
            "epilogue_ns": gpu.epilogue_ns * high * wide / (gpu.tile_m * gpu.tile_n)}
        return machine.model_copy(update={"name": f"{machine.name} with {self}", "gpu": gpu.model_copy(update=own)})

    def __str__(self) -> str:
        parts = f", K in {self.parts}" if self.parts > 1 else ""
        return f"{self.tile[0]}x{self.tile[1]}, {self.stages} of {self.block_k}{parts}"


def _tiles(high: int, wide: int, m: int, n: int) -> int:
    return -(-n // high) * -(-m // wide)
