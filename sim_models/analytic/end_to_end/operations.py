"""Times of an iteration's kernels and messages on a cluster; every extent may be an array.

A machine with tiers ([intra], [inter]) is timed by closed forms with one tile and one efficiency. Any other is timed by
the models of its vendor's libraries, as in `t3 overlap` and `t3 validate`: its fastest GEMM kernel, its choice of an
algorithm for a collective. GEMMs then run at the rate of a GPU that is hot, and the host queues calls ahead.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from t3sim.analytic.gemm import accelerator_gemm_ns, accelerator_move_ns, grouped_kernel
from t3sim.analytic.libraries.collectives import library_collective, symmetric_ns
from t3sim.analytic.libraries.contention import ATTENTION_SHARE
from t3sim.analytic.rings import group_all_reduce_ns, group_exchange_ns, ring_gb_per_s, tier_send_ns
from t3sim.base.errors import BadInput
from t3sim.machine import Machine

_QUEUED = "calls queued"
_GROUPS = 256  #: equal GEMMs of one kernel that are timed together; more take as much longer


def gemm_ns(cluster: Machine, m, n, k, count=1, width: str = "bf16"):
    """Return the time of `count` GEMMs that run as one kernel. Raises `BadInput` for a width without a rate."""
    if cluster.intra is None:
        return _of_each(partial(_library_gemm_ns, cluster, width), m, n, k, count)
    if width != "bf16":
        raise BadInput(f"{cluster.name} has no rate of {width}")
    return accelerator_gemm_ns(cluster.accelerator, m, n, k, count)


def _library_gemm_ns(machine: Machine, width: str, m: float, n: float, k: float, count: float) -> float:
    groups = min(int(count), _GROUPS)
    kernel = grouped_kernel(machine, (int(m),) * groups, int(n), int(k), width)
    return kernel.ns * count / groups / machine.sharing.steady_share + machine.kernels.launch_ns


def move_ns(cluster: Machine, size_bytes):
    """Return the time of a kernel that reads and writes `size_bytes` in all and computes little."""
    if cluster.intra is None:
        return size_bytes / cluster.memory_bytes_per_ns + cluster.kernels.launch_ns
    return accelerator_move_ns(cluster.accelerator, size_bytes)


def fused_attention_ns(machine: Machine, heads, length, width):
    """Return the time of causal attention in one kernel; `width`: of a head's queries and values together."""
    flop = 1.0 * heads * length * length * width  # half of two products
    rate = 1e3 * machine.peak.bf16 * machine.sustained.bf16 * machine.sharing.steady_share * ATTENTION_SHARE
    return machine.kernels.launch_ns + flop / rate


def all_reduce_ns(cluster: Machine, size_bytes, ranks, stride=1, symmetric: bool = False):
    """Return the time of an all-reduce over a group that may span nodes; `stride`: GPUs between neighbours.

    `symmetric`: within a node by kernels over symmetric memory, as serving engines have them.
    """
    if cluster.intra is not None:
        return group_all_reduce_ns(cluster, size_bytes, ranks, stride)

    def time_ns(size: float, ranks: float, stride: float) -> float:
        node_ranks, nodes = _node_ranks(cluster, ranks, stride)
        if ranks < 2:
            return 0.0
        if symmetric and nodes == 1:
            return symmetric_ns(cluster, "all_reduce", node_ranks, size)
        return library_collective(cluster, "all_reduce", node_ranks * nodes, size, nodes, _QUEUED).ns
    return _of_each(time_ns, size_bytes, ranks, stride)


def exchange_ns(cluster: Machine, size_bytes, ranks, stride):
    """Return the time of a pairwise exchange in which each rank sends size/ranks to each other one."""
    if cluster.intra is not None:
        return group_exchange_ns(cluster, size_bytes, ranks, stride)

    def time_ns(size: float, ranks: float, stride: float) -> float:
        node_ranks, nodes = _node_ranks(cluster, ranks, stride)
        if ranks < 2:
            return 0.0
        simple, part = cluster.rings.simple, size / ranks
        wires_ns = (node_ranks - 1) * part / (ring_gb_per_s(cluster, max(2, node_ranks)) * simple.efficiency)
        cards_ns = 0.0
        if nodes > 1:
            cards_ns = (ranks - node_ranks) * part / (_cards(cluster).gb_per_s * _cards(cluster).efficiency)
        return simple.base_ns + simple.hop_ns + max(wires_ns, cards_ns)
    return _of_each(time_ns, size_bytes, ranks, stride)


def send_ns(cluster: Machine, size_bytes, distance):
    """Return the time of one message to the GPU `distance` ranks away."""
    if cluster.intra is not None:
        return tier_send_ns(cluster, size_bytes, distance)
    return _of_each(lambda size, distance: library_collective(
        cluster, "send_recv", 2, size, 1 if distance < cluster.gpus else 2, _QUEUED).ns, size_bytes, distance)


def _node_ranks(machine: Machine, ranks: float, stride: float) -> tuple[int, int]:
    """Return (ranks in one node, nodes) of a group whose neighbours are `stride` GPUs apart."""
    node_ranks = int(min(max(machine.gpus // max(stride, 1), 1), ranks))
    nodes = -(-int(ranks) // node_ranks)
    return -(-int(ranks) // nodes), nodes


def _cards(machine: Machine):
    if machine.cards is None:
        raise BadInput(f"{machine.name} has no known network cards")
    return machine.cards


def _of_each(time_ns: Callable[..., float], *values):
    """Return the time of each element; equal ones are timed once."""
    if not any(getattr(value, "ndim", 0) for value in values):
        return np.array(time_ns(*map(float, values)))
    arrays = np.broadcast_arrays(*values)
    rows = list(zip(*(array.ravel().astype(float).tolist() for array in arrays)))
    times = {row: time_ns(*row) for row in dict.fromkeys(rows)}
    return np.array([times[row] for row in rows]).reshape(arrays[0].shape)
