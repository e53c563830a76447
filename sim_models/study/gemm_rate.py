"""Rate of a GEMM: TFLOP/s, the share of the machine's peak, and what keeps it from more."""

from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t3sim.machine import Machine
    from t3sim.workload.workloads import Workload

_BINDS = 0.7  #: share of the time from which on the largest bound is what limits a GEMM
_NOTABLE = 1.1  #: times the work of an even share, from which on the fullest compute unit's is uneven


@dataclass(frozen=True)
class GemmRate:
    """A GEMM's speed on one GPU."""

    tflop_per_s: float
    peak_tflop_per_s: float
    tile: tuple[int, int]  #: rows and columns of the output, as the BLAS library has it
    limited_by: str

    @property
    def share(self) -> float:
        return self.tflop_per_s / self.peak_tflop_per_s

    @property
    def words(self) -> str:
        return (f"{self.tflop_per_s:,.1f} of {self.peak_tflop_per_s:,.1f} TFLOP/s ({self.share:.0%} of peak), in tiles "
                f"of {self.tile[0]} x {self.tile[1]}; limited by {self.limited_by}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"share_of_peak": self.share}


def gemm_rate(machine: "Machine", workload: "Workload", ns: float, dram_bytes: float) -> GemmRate | None:
    """Rate a GEMM that took `ns` alone and moved `dram_bytes`; None for a kernel without matrices.

    What limits it is the largest of four bounds on its time, if that explains most of it, and latency if not: the
    multiplications of the compute unit with most tiles, what such a unit loads through its port, what DRAM moves, and
    the starts and ends of tiles that no other workgroup hides.
    """
    from t3sim.runs.operators import largest_gemm, resident

    if not workload.multiplies_matrices:
        return None
    gpu, operator = machine.gpu, largest_gemm(machine, workload)
    tiling = operator.tiling
    clock, places = machine.memory_clock_ghz, resident(machine, operator.resources)
    fullest = ceil(tiling.tiles * gpu.k_parts / gpu.compute_units)
    depth = workload.k / gpu.k_parts
    rate, efficiency = gpu.matrix_rate(workload.format.bytes)
    peak = gpu.compute_units * rate * gpu.clock_ghz
    even_ns = workload.flop / peak / efficiency
    matrix_ns = fullest * depth * operator.cycles_per_k / clock
    loaded_bytes = fullest * depth * (tiling.tile_m + tiling.tile_n) * workload.format.bytes
    dram_bytes_per_ns = machine.dram_peak_bytes_per_ns
    ends_ns = ceil(fullest / places) * (operator.launch_cycles + operator.epilogue_cycles) / clock
    bounds = {
        f"the matrix units, which reach {efficiency:.0%} of their peak": matrix_ns,
        f"the compute units' ports ({gpu.cu_bytes_per_ns:g} B/ns each)": loaded_bytes / gpu.cu_bytes_per_ns,
        f"DRAM ({dram_bytes_per_ns:,.0f} GB/s)": dram_bytes / dram_bytes_per_ns,
        "starts and ends of its tiles": ends_ns,
    }
    words, bound = max(bounds.items(), key=lambda item: item[1])
    if bound == matrix_ns and matrix_ns > _NOTABLE * even_ns:
        words = (f"its tiles, {tiling.tiles:,} for {gpu.compute_units} compute units: the fullest does "
                 f"{matrix_ns / even_ns:.1f} times an even share")
    if bound < _BINDS * ns:
        words = f"latency, of loads and of starts, which nothing hides; then by {words}"
    return GemmRate(workload.flop / ns / 1e3, peak / 1e3, (tiling.tile_m, tiling.tile_n), words)
