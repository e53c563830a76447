"""Collectives of the vendor's library, alone: rings with one efficiency and one latency per step, software included."""

from t3sim.analytic.gemm import OPERAND_BYTES, Shape, best_tile_kernel
from t3sim.machine import Machine
from t3sim.machine.software import LibraryProtocol


def port_bytes_per_ns(node: Machine, gpus: int) -> float:
    """Return what a GPU sends to all others together, as many rings as its links allow."""
    bandwidth = node.link.bandwidth_gb_per_s
    return bandwidth * (min(gpus, node.gpus) - 1) if node.link.kind == "full" else bandwidth


def pass_ns(node: Machine, gpus: int, size_bytes: float) -> float:
    """Return the time of a reduce-scatter or all-gather of `size_bytes` (the whole array) on `gpus` GPUs.

    On two nodes rings lead through all network cards of a node, so that a node's cards carry what a link carries.
    """
    return min(one.base_ns + (gpus - 1) * _step_ns(node, one, gpus, size_bytes) for one in _protocols(node))


def all_reduce_ns(node: Machine, gpus: int, size_bytes: float) -> float:
    """Return the time of an all-reduce of `size_bytes` on `gpus` GPUs."""
    return min(one.base_ns + 2 * (gpus - 1) * _step_ns(node, one, gpus, size_bytes) for one in _protocols(node))


def all_to_all_ns(node: Machine, gpus: int, part_bytes: float) -> float:
    """Return the time in which all GPUs exchange `part_bytes` with each other one, directly."""
    times = []
    for one in _protocols(node):
        if gpus > node.gpus:
            raise ValueError("all-to-alls are within a node")
        rate = port_bytes_per_ns(node, gpus) * one.efficiency
        times.append(one.base_ns + one.step_ns + (gpus - 1) * part_bytes / rate)
    return min(times)


def _protocols(node: Machine) -> list[LibraryProtocol]:
    return [one for one in (node.library, node.library.small) if one is not None]


def _step_ns(node: Machine, protocol: LibraryProtocol, gpus: int, size_bytes: float) -> float:
    rate = port_bytes_per_ns(node, gpus) * protocol.efficiency
    if gpus > node.gpus:
        rate = min(rate, node.gpus * node.network.bandwidth_gb_per_s * node.network.efficiency)
    return protocol.step_ns + size_bytes / gpus / rate


def gemm_ns(node: Machine, shape: Shape) -> float:
    """Return the time of the library's fastest kernel, its launch not included."""
    return best_tile_kernel(node, shape).ns


def gathered_bytes(shape: Shape) -> int:
    """Return the size of the input rows that an all-gather brings together."""
    return OPERAND_BYTES * shape.m * shape.k


def scattered_bytes(shape: Shape) -> int:
    """Return the size of the output that a reduce-scatter adds."""
    return OPERAND_BYTES * shape.m * shape.n
