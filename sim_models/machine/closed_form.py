"""Sections for whole iterations and for the event level of networks: one GPU, and the uncertainty of its numbers."""

from t3sim.machine.levels import CLUSTER, NETWORK
from t3sim.machine.section import Count, NotNegative, Positive, Section, Share, needed_by


class Accelerator(Section):
    """One GPU: matrix units, memory, launches, power. Where models of libraries time it, they have its rates."""

    peak_tflop_per_s: Positive = needed_by(CLUSTER, NETWORK)  #: dense, 16-bit operands
    cores: Count = needed_by(CLUSTER, NETWORK)  #: units that compute one output tile each
    tile_m: Count = needed_by(CLUSTER, NETWORK)
    tile_n: Count = needed_by(CLUSTER, NETWORK)
    matrix_efficiency: Share = needed_by(CLUSTER, NETWORK)  #: share of the peak in the main loop of a GEMM
    #: Prologue and epilogue of a tile, in steps of the loop over K.
    tile_overhead_k: NotNegative = needed_by(CLUSTER, NETWORK)
    memory_gb_per_s: Positive = needed_by(CLUSTER, NETWORK)
    memory_efficiency: Share = needed_by(CLUSTER, NETWORK)  #: share of the peak for kernels that only move data
    kernel_ns: NotNegative = needed_by(CLUSTER, NETWORK)  #: time to start and drain a kernel on the GPU
    memory_gb: Positive
    host_ns_per_kernel: NotNegative  #: host time per kernel, which limits small layers
    busy_watts: Positive
    idle_watts: NotNegative  #: while the GPU waits in a pipeline bubble or for the network

    @property
    def moved_bytes_per_ns(self) -> float:
        return self.memory_gb_per_s * self.memory_efficiency


class Uncertainty(Section):
    """Half-widths of the ranges from which inputs are drawn, relative to their values."""

    matrix_efficiency: NotNegative
    memory_efficiency: NotNegative
    network_efficiency: NotNegative
    host_ns_per_kernel: NotNegative
