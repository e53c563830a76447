"""Collectives around rings in closed form: each step has a latency and sends its part of the array.

Sizes are bytes of the whole array of a GPU. A reduce-scatter takes as long as an all-gather, an all-reduce is both. Who
runs them differs: the cycle level's links, the vendor's library with one efficiency and one latency per step, software
included (the event level of tiles), the same library's protocols as its own tuning table prices them, and the two tiers
of a cluster's network (whole trainings, where ranks may be arrays).
"""

from functools import cache

import numpy as np

from t3sim.machine import Machine
from t3sim.machine.libraries import RingProtocol
from t3sim.machine.links import Tier, WiresSection
from t3sim.machine.software import LibraryProtocol

#: Passes over the wires: an all-reduce is a reduce-scatter and an all-gather.
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1}


def ring_pass_ns(ranks, step_ns, size_bytes, bytes_per_ns):
    """Return the time of a reduce-scatter or all-gather; anything may be an array."""
    return (ranks - 1) * (step_ns + size_bytes / ranks / bytes_per_ns)


def ring_time_ns(machine: Machine, size_bytes: int, gpus: int) -> float:
    """Return the time of a pass over the links of a machine of the cycle level, without what a kernel adds."""
    return ring_pass_ns(gpus, machine.link.latency_ns, size_bytes, machine.link.bandwidth_gb_per_s)


# The vendor's library on the event level, of tiles and, last, of DMA engines

def port_bytes_per_ns(node: Machine, gpus: int) -> float:
    """Return a GPU's rate to all others together, over as many rings as its links allow."""
    bandwidth = node.link.bandwidth_gb_per_s
    return bandwidth * (min(gpus, node.gpus) - 1) if node.link.kind == "full" else bandwidth


def library_ring_ns(node: Machine, gpus: int, size_bytes: float, passes: int = 1) -> float:
    """Return the time of a reduce-scatter or all-gather, or of an all-reduce, which has two passes.

    On two nodes rings lead through all network cards of a node, so that a node's cards carry what a link carries.
    """
    def alone_ns(protocol: LibraryProtocol) -> float:
        rate = port_bytes_per_ns(node, gpus) * protocol.efficiency
        if gpus > node.gpus:
            rate = min(rate, node.gpus * node.network.bandwidth_gb_per_s * node.network.efficiency)
        return protocol.base_ns + passes * ring_pass_ns(gpus, protocol.step_ns, size_bytes, rate)
    return min(alone_ns(protocol) for protocol in (node.library, node.library.small) if protocol is not None)


def library_exchange_ns(node: Machine, gpus: int, part_bytes: float) -> float:
    """Return the time in which all GPUs of a node exchange `part_bytes` with each other one, directly."""
    if gpus > node.gpus:
        raise ValueError("all-to-alls are within a node")
    port = port_bytes_per_ns(node, gpus)
    return min(one.base_ns + one.step_ns + (gpus - 1) * part_bytes / (port * one.efficiency)
               for one in (node.library, node.library.small) if one is not None)


def kernel_collective_ns(node: Machine, size_bytes: float, exchanges: int = 1) -> float:
    """Return the time of an exchange, or of two (an all-reduce), by kernels on compute units.

    They take the library's best protocol.
    """
    link = node.link.bandwidth_gb_per_s * node.link.store_efficiency
    return min(one.base_ns + exchanges * (one.hop_ns + size_bytes / node.gpus / (link * one.efficiency))
               for one in (node.kernel.ll, node.kernel.ll128, node.kernel.simple))


# Rings and trees of the vendor's library under its protocols: NVIDIA/nccl `src/graph/tuning.cc` (2.30). A protocol has
# a base latency, a latency per step, and a bandwidth. LL sends a flag beside each word and so half of the wires, LL128
# one per 128 bytes, Simple waits at whole chunks. The machine file has these numbers.

def protocols(machine: Machine) -> dict[str, RingProtocol]:
    """Return the protocols by name."""
    return {"LL": machine.rings.ll, "LL128": machine.rings.ll128, "Simple": machine.rings.simple}


def _bus_gb_per_s(machine: Machine, protocol: RingProtocol, gpus: int, nodes: int, crossings: float = 1.0) -> float:
    """Return the bandwidth of a ring's GPU under a protocol; a node's cards together carry what its GPUs send.

    `crossings`: how often a node's cards send what a ring's would.
    """
    rate = min(ring_gb_per_s(machine, max(2, gpus // nodes)) * protocol.efficiency, protocol.most_gb_per_s)
    if nodes > 1 and machine.cards is not None:
        rate = min(rate, gpus // nodes * machine.cards.gb_per_s * machine.cards.efficiency / crossings)
    return rate


def protocol_ring_ns(machine: Machine, protocol: RingProtocol, kind: str, gpus: int, size: float,
                     nodes: int = 1) -> float:
    """Return the time of a ring without what the host adds; steps between nodes have the cards' latency."""
    passes = PASSES[kind]
    steps, node_steps = passes * (gpus - 1), passes * nodes if nodes > 1 else 0
    hops = (steps - node_steps) * protocol.hop_ns + node_steps * (machine.cards.hop_ns if machine.cards else 0.0)
    return protocol.base_ns + hops + steps * size / gpus / _bus_gb_per_s(machine, protocol, gpus, nodes)


def protocol_tree_ns(machine: Machine, protocol: RingProtocol, gpus: int, size: float, nodes: int = 1) -> float:
    """Return the time of a double tree's all-reduce: a chain in each node, a tree over nodes.

    Between two nodes its sums go once each way where a ring's bytes go twice.
    """
    levels = (nodes - 1).bit_length()
    hops = 2 * ((gpus // nodes - 1) * protocol.tree_hop_ns
                + levels * (machine.cards.hop_ns if machine.cards else 0.0))
    return protocol.base_ns + hops + 2 * (gpus - 1) / gpus * size / _bus_gb_per_s(
        machine, protocol, gpus, nodes, 0.5 if nodes == 2 else 1.0)


# The two tiers of a cluster

def tier_all_reduce_ns(tier: Tier, size_bytes, ranks):
    """Return the time of an all-reduce within nodes, or between them."""
    return 2 * ring_pass_ns(ranks, tier.step_ns, size_bytes, tier.bytes_per_ns)


def group_all_reduce_ns(cluster: Machine, size_bytes, ranks, stride):
    """Return the time of an all-reduce over a group that may span nodes: within the nodes first, then between them.

    `stride`: GPUs between neighbours. Source: AMPeD, equations 6 and 10.
    """
    node_ranks, nodes = _split(cluster, ranks, stride)
    return (tier_all_reduce_ns(cluster.intra, size_bytes, node_ranks)
            + tier_all_reduce_ns(cluster.inter, size_bytes / node_ranks, nodes))


def group_exchange_ns(cluster: Machine, size_bytes, ranks, stride):
    """Return the time of a pairwise exchange in which each rank sends size/ranks to each other one."""
    node_ranks, nodes = _split(cluster, ranks, stride)
    share = size_bytes / ranks
    return ((node_ranks - 1) * (cluster.intra.step_ns + share / cluster.intra.bytes_per_ns)
            + (ranks - node_ranks) * (np.minimum(1, nodes - 1) * cluster.inter.step_ns / np.maximum(node_ranks, 1)
                                      + share / cluster.inter.bytes_per_ns))


def tier_send_ns(cluster: Machine, size_bytes, distance):
    """Return the time of one message to the GPU `distance` ranks away."""
    same_node = distance < cluster.gpus_per_node
    return np.where(same_node, cluster.intra.step_ns + size_bytes / cluster.intra.bytes_per_ns,
                    cluster.inter.step_ns + size_bytes / cluster.inter.bytes_per_ns)


def _split(cluster: Machine, ranks, stride):
    """Return (ranks in one node, nodes) of a group whose neighbours are `stride` GPUs apart."""
    node_ranks = np.clip(cluster.gpus_per_node // np.maximum(stride, 1), 1, ranks)
    return node_ranks, -(-ranks // node_ranks)


# Wires between some of a node's GPUs: rings through their links, and each GPU to all others at once

def ring_gb_per_s(machine: Machine, gpus: int) -> float:
    """Return each GPU's rate while rings through `gpus` GPUs are full, before any efficiency."""
    wires = machine.wires
    if wires.kind == "full":
        return wires.gb_per_s * max(1, gpus - 1)
    if wires.kind == "graph":
        return wires.gb_per_s * _rings(wires.pairs, gpus)
    return wires.gb_per_s


def pair_gb_per_s(machine: Machine, gpus: int) -> float:
    """Return the rate from one GPU to each other one while all send to all."""
    wires = machine.wires
    if wires.kind == "full":
        return wires.gb_per_s
    if wires.kind == "graph":  # pairs without a link cross another GPU
        return ring_gb_per_s(machine, gpus) / max(1, gpus - 1) / 2
    return wires.gb_per_s / max(1, gpus - 1)


def link_gb_per_s(wires: WiresSection) -> float:
    """Return the rate from one GPU to another while no other GPU sends."""
    if wires.kind == "graph":
        return wires.gb_per_s * max(count for *_, count in wires.pairs)
    return wires.gb_per_s


@cache
def _rings(pairs: tuple[tuple[int, int, int], ...], gpus: int) -> int:
    """Return the number of one-directional rings through the first `gpus` GPUs that share no link.

    A link has 2 directions, so each cycle is 2 rings. Two GPUs have as many rings as links.
    """
    free_links = {(min(one, other), max(one, other)): count for one, other, count in pairs if max(one, other) < gpus}
    if gpus == 2:
        return free_links.get((0, 1), 0) or 1
    cycles = [cycle for cycle in _cycles(gpus) if all(edge in free_links for edge in cycle)]

    def most_rings(free_links: dict[tuple[int, int], int], first: int) -> int:
        best = 0
        bound = sum(free_links.values()) // gpus
        for index in range(first, len(cycles)):
            if best == bound:
                break
            if all(free_links[edge] for edge in cycles[index]):
                rest = {**free_links, **{edge: free_links[edge] - 1 for edge in cycles[index]}}
                best = max(best, 1 + most_rings(rest, index))
        return best

    return 2 * most_rings(free_links, 0) or 1


@cache
def _cycles(gpus: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the edges of every cycle through all GPUs."""
    cycles = []

    def walk(path: list[int]) -> None:
        if len(path) == gpus:
            if path[1] < path[-1]:
                cycles.append(tuple((min(edge), max(edge)) for edge in zip(path, [*path[1:], path[0]])))
            return
        for gpu in range(1, gpus):
            if gpu not in path:
                walk([*path, gpu])

    walk([0])
    return cycles
