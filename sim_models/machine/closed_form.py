"""Sections for closed forms and for the event level of networks: one GPU, and the uncertainty of its numbers."""

from t3sim.machine.levels import CLUSTER, NETWORK
from t3sim.machine.section import Count, NotNegative, Positive, Section, Share, needed_by


class Accelerator(Section):
    """One GPU: matrix units, memory, launches, power."""

    #: Dense, operands of the workload's width, by default 16 bits.
    peak_tflop_per_s: Positive = needed_by(CLUSTER, NETWORK)
    cores: Count = needed_by(CLUSTER, NETWORK)  #: each runs one output tile
    tile_m: Count
    tile_n: Count
    matrix_efficiency: Share  #: of the peak, in the main loop of a GEMM
    tile_overhead_k: NotNegative  #: prologue and epilogue of a tile, in steps of the loop over K
    memory_gb: Positive
    memory_gb_per_s: Positive = needed_by(CLUSTER, NETWORK)
    memory_efficiency: Share  #: of the peak, for kernels that only move data
    kernel_ns: NotNegative  #: start and drain of a kernel on the GPU
    host_ns_per_kernel: NotNegative  #: host time per kernel; it limits small layers
    busy_watts: Positive
    idle_watts: NotNegative  #: while it waits in a bubble or for the network

    @property
    def moved_bytes_per_ns(self) -> float:
        return self.memory_gb_per_s * self.memory_efficiency


class Uncertainty(Section):
    """Half-widths of the ranges from which inputs are drawn, relative to their values."""

    matrix_efficiency: NotNegative
    memory_efficiency: NotNegative
    network_efficiency: NotNegative
    host_ns_per_kernel: NotNegative
