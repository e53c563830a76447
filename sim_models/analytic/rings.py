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


def ring_time_ns(machine: Machine, size_bytes: int, devices: int) -> float:
    """Return the time of a pass over the links of a machine of the cycle level, without what a kernel adds."""
    return ring_pass_ns(devices, machine.link.latency_ns, size_bytes, machine.link.bandwidth_gb_per_s)


# The vendor's library on the event level, of tiles and, last, of DMA engines

def port_bytes_per_ns(node: Machine, gpus: int) -> float:
    """Return what a GPU sends to all others together, as many rings as its links allow."""
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
    steps, between = passes * (gpus - 1), passes * nodes if nodes > 1 else 0
    hops = (steps - between) * protocol.hop_ns + between * (machine.cards.hop_ns if machine.cards else 0.0)
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
    inside, outside = _split(cluster, ranks, stride)
    return (tier_all_reduce_ns(cluster.intra, size_bytes, inside)
            + tier_all_reduce_ns(cluster.inter, size_bytes / inside, outside))


def group_exchange_ns(cluster: Machine, size_bytes, ranks, stride):
    """Return the time of a pairwise exchange in which each rank sends size/ranks to each other one."""
    inside, outside = _split(cluster, ranks, stride)
    share = size_bytes / ranks
    return ((inside - 1) * (cluster.intra.step_ns + share / cluster.intra.bytes_per_ns)
            + (ranks - inside) * (np.minimum(1, outside - 1) * cluster.inter.step_ns / np.maximum(inside, 1)
                                  + share / cluster.inter.bytes_per_ns))


def send_ns(cluster: Machine, size_bytes, distance):
    """Return the time of one message to the GPU `distance` ranks away."""
    near = distance < cluster.gpus_per_node
    return np.where(near, cluster.intra.step_ns + size_bytes / cluster.intra.bytes_per_ns,
                    cluster.inter.step_ns + size_bytes / cluster.inter.bytes_per_ns)


def _split(cluster: Machine, ranks, stride):
    """Return (ranks in one node, nodes) of a group whose neighbours are `stride` GPUs apart."""
    inside = np.clip(cluster.gpus_per_node // np.maximum(stride, 1), 1, ranks)
    return inside, -(-ranks // inside)


# Wires between some of a node's GPUs: rings through their links, and each GPU to all others at once

def ring_gb_per_s(machine: Machine, gpus: int) -> float:
    """Return what each GPU sends while rings through `gpus` of them are full, before any efficiency."""
    wires = machine.wires
    if wires.kind == "full":
        return wires.gb_per_s * max(1, gpus - 1)
    if wires.kind == "graph":
        return wires.gb_per_s * _rings(wires.pairs, gpus)
    return wires.gb_per_s


def pair_gb_per_s(machine: Machine, gpus: int) -> float:
    """Return what goes from one GPU to each other one while all send to all."""
    wires = machine.wires
    if wires.kind == "full":
        return wires.gb_per_s
    if wires.kind == "graph":  # what has no link of its own crosses another GPU
        return ring_gb_per_s(machine, gpus) / max(1, gpus - 1) / 2
    return wires.gb_per_s / max(1, gpus - 1)


def link_gb_per_s(wires: WiresSection) -> float:
    """Return what one GPU sends to one other while nobody else sends."""
    if wires.kind == "graph":
        return wires.gb_per_s * max(count for *_, count in wires.pairs)
    return wires.gb_per_s


@cache
def _rings(pairs: tuple[tuple[int, int, int], ...], gpus: int) -> int:
    """Return how many rings of one direction lead through the first `gpus` GPUs without sharing a link.

    A link has two directions, so that each cycle is two rings. Two GPUs have as many as links.
    """
    left = {(min(one, other), max(one, other)): count for one, other, count in pairs if max(one, other) < gpus}
    if gpus == 2:
        return left.get((0, 1), 0) or 1
    cycles = [cycle for cycle in _cycles(gpus) if all(edge in left for edge in cycle)]

    def most(left: dict[tuple[int, int], int], first: int) -> int:
        best = 0
        bound = sum(left.values()) // gpus
        for place in range(first, len(cycles)):
            if best == bound:
                break
            if all(left[edge] for edge in cycles[place]):
                best = max(best, 1 + most({**left, **{edge: left[edge] - 1 for edge in cycles[place]}}, place))
        return best

    return 2 * most(left, 0) or 1


@cache
def _cycles(gpus: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the edges of every cycle through all GPUs."""
    found = []

    def walk(path: list[int]) -> None:
        if len(path) == gpus:
            if path[1] < path[-1]:
                found.append(tuple((min(edge), max(edge)) for edge in zip(path, [*path[1:], path[0]])))
            return
        for after in range(1, gpus):
            if after not in path:
                walk([*path, after])

    walk([0])
    return found
