"""Time of one operator on one GPU: a GEMM by tiles and waves, anything else by the bytes that it moves.

All sizes may be arrays. Units: elements, bytes, ns.
"""

import numpy as np

from t3sim.machine.closed_form import Accelerator

ELEMENT_BYTES = 2  #: 16-bit operands


def ceil_div(value, by):
    return -(-value // by)


def gemm_ns(gpu: Accelerator, m, n, k, count=1, element_bytes=ELEMENT_BYTES):
    """Return the time of `count` GEMMs m x n x k that run as one kernel.

    The output's tiles run on the cores in waves; a tile's loop over K goes at the sustained matrix rate and has a fixed
    overhead. A GEMM with little reuse is bound by the bytes of its operands instead.
    """
    waves = ceil_div(ceil_div(m, gpu.tile_m) * ceil_div(n, gpu.tile_n) * count, gpu.cores)
    flop_per_ns_and_core = gpu.peak_tflop_per_s * 1e3 * gpu.matrix_efficiency / gpu.cores
    computing = waves * (2 * gpu.tile_m * gpu.tile_n * (k + gpu.tile_overhead_k) / flop_per_ns_and_core)
    operands = element_bytes * count * (m * k + k * n + m * n)
    return np.maximum(computing, _stream_ns(gpu, operands)) + gpu.kernel_ns


def move_ns(gpu: Accelerator, size_bytes):
    """Return the time of a kernel that reads and writes `size_bytes` in all and computes little."""
    return _stream_ns(gpu, size_bytes) + gpu.kernel_ns


def _stream_ns(gpu: Accelerator, size_bytes):
    return size_bytes / (gpu.memory_gb_per_s * gpu.memory_efficiency)
