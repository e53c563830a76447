"""Collectives of the vendor's library, alone: rings with one efficiency and one latency per step, software included."""

from .gemm import OPERAND_BYTES, Shape, best
from .node import Node


def port_bytes_per_ns(node: Node, gpus: int) -> float:
    """Return what a GPU sends to all others together, as many rings as its links allow."""
    bandwidth = node.link.bandwidth_gb_per_s
    return bandwidth * (min(gpus, node.gpus) - 1) if node.link.kind == "full" else bandwidth


def pass_ns(node: Node, gpus: int, size_bytes: float) -> float:
    """Return the time of a reduce-scatter or all-gather of `size_bytes` (the whole array) on `gpus` GPUs.

    On two nodes rings lead through all network cards of a node, so that a node's cards carry what a link carries.
    """
    rate = port_bytes_per_ns(node, gpus) * node.library.efficiency
    if gpus > node.gpus:
        rate = min(rate, node.gpus * node.network.bandwidth_gb_per_s * node.network.efficiency)
    return node.library.base_ns + (gpus - 1) * (node.library.step_ns + size_bytes / gpus / rate)


def all_reduce_ns(node: Node, gpus: int, size_bytes: float) -> float:
    """Return the time of an all-reduce of `size_bytes` on `gpus` GPUs."""
    return 2 * pass_ns(node, gpus, size_bytes) - node.library.base_ns


def gemm_ns(node: Node, shape: Shape) -> float:
    """Return the time of the library's fastest kernel, its launch not included."""
    return best(node, shape).ns


def gathered_bytes(shape: Shape) -> int:
    """Return the size of the input rows that an all-gather brings together."""
    return OPERAND_BYTES * shape.m * shape.k


def scattered_bytes(shape: Shape) -> int:
    """Return the size of the output that a reduce-scatter adds."""
    return OPERAND_BYTES * shape.m * shape.n
