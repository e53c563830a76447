"""Closed forms of the collectives on one level of the network, and across its two levels.

Sizes in bytes of the whole array per GPU; ranks may be arrays. Ring algorithms: bandwidth-optimal, latency per step.
"""

import numpy as np

from t3sim.machine import Machine
from t3sim.machine.links import Tier


def reduce_scatter_ns(net: Tier, size_bytes, ranks):
    """Return the time of a ring reduce-scatter, which is also that of an all-gather of the same array."""
    return (ranks - 1) * (net.step_ns + size_bytes / np.maximum(ranks, 1) / net.bytes_per_ns)


def all_reduce_ns(net: Tier, size_bytes, ranks):
    """Return the time of a ring all-reduce: reduce-scatter, then all-gather."""
    return 2 * reduce_scatter_ns(net, size_bytes, ranks)


def all_to_all_ns(cluster: Machine, size_bytes, ranks, stride):
    """Return the time of a pairwise exchange in which each rank sends size/ranks to each other one."""
    inside, outside = split(cluster, ranks, stride)
    share = size_bytes / np.maximum(ranks, 1)
    return ((inside - 1) * (cluster.intra.step_ns + share / cluster.intra.bytes_per_ns)
            + (ranks - inside) * (np.minimum(1, outside - 1) * cluster.inter.step_ns / np.maximum(inside, 1)
                                  + share / cluster.inter.bytes_per_ns))


def send_ns(cluster: Machine, size_bytes, distance):
    """Return the time of one message to the GPU `distance` ranks away."""
    near = distance < cluster.gpus_per_node
    return np.where(near, cluster.intra.step_ns + size_bytes / cluster.intra.bytes_per_ns,
                    cluster.inter.step_ns + size_bytes / cluster.inter.bytes_per_ns)


def split(cluster: Machine, ranks, stride):
    """Return (ranks in one node, nodes) of a group whose neighbours are `stride` GPUs apart."""
    inside = np.clip(cluster.gpus_per_node // np.maximum(stride, 1), 1, ranks)
    return inside, -(-ranks // inside)


def group_all_reduce_ns(cluster: Machine, size_bytes, ranks, stride):
    """Return the time of an all-reduce over a group that may span nodes: within the nodes first, then between them.

    Source: AMPeD, equations 6 and 10.
    """
    inside, outside = split(cluster, ranks, stride)
    return (all_reduce_ns(cluster.intra, size_bytes, inside)
            + all_reduce_ns(cluster.inter, size_bytes / inside, outside))
