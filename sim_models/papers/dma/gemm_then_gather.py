"""A GEMM whose output an all-gather then distributes, the host between them (DMA collectives paper, section 4.3.2)."""

from t3sim.event.flow.commands import POSSIBLE
from t3sim.event.flow.dma import kernel_collective_ns, run_collective
from t3sim.machine import Machine


def gemm_ns(node: Machine, extent: int) -> float:
    """Return the time of a square GEMM."""
    return 2e-3 * extent**3 / node.stream.gemm_tflop_per_s


def with_kernels_ns(node: Machine, extent: int, size_bytes: float) -> float:
    """Return the time from the GEMM's start until the host sees the end of an all-gather by kernels.

    The all-gather follows the GEMM in its stream.
    """
    return gemm_ns(node, extent) + kernel_collective_ns(node, size_bytes) + node.stream.signal_ns + node.host.observe_ns


def with_engines_ns(node: Machine, extent: int, size_bytes: float) -> float:
    """Return the time from the GEMM's start until the host sees the end of an all-gather by DMA engines.

    It takes the best prelaunched variant: the stream signals, the host sees it and sets the flags that the engines
    poll.
    """
    gather_ns = min(run_collective(node, "ag", variant, size_bytes, "poll").ns for variant in POSSIBLE["ag"])
    return gemm_ns(node, extent) + node.stream.signal_ns + node.host.observe_ns + gather_ns
