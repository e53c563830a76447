"""Rings and trees of the vendor's library under its protocols, as its own published tuning table prices them.

NVIDIA/nccl `src/graph/tuning.cc` (2.30): a protocol has a base latency, a latency per step, and a bandwidth. LL sends a
flag beside each word and so half of the wires, LL128 one per 128 bytes, Simple waits at whole chunks. The machine file
has these numbers.
"""

from t3sim.analytic.libraries.links import ring_gb_per_s
from t3sim.machine import Machine
from t3sim.machine.libraries import RingProtocol

#: Passes over the wires: an all-reduce is a reduce-scatter and an all-gather.
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1}


def protocols(machine: Machine) -> dict[str, RingProtocol]:
    """Return the protocols by name."""
    return {"LL": machine.rings.ll, "LL128": machine.rings.ll128, "Simple": machine.rings.simple}


def bus_gb_per_s(machine: Machine, protocol: RingProtocol, gpus: int, nodes: int = 1, crossings: float = 1.0) -> float:
    """Return the bandwidth of a ring's GPU under a protocol; a node's cards together carry what its GPUs send.

    `crossings`: how often a node's cards send what a ring's would.
    """
    rate = min(ring_gb_per_s(machine, max(2, gpus // nodes)) * protocol.efficiency, protocol.most_gb_per_s)
    if nodes > 1 and machine.cards is not None:
        rate = min(rate, gpus // nodes * machine.cards.gb_per_s * machine.cards.efficiency / crossings)
    return rate


def ring_ns(machine: Machine, protocol: RingProtocol, kind: str, gpus: int, size: float, nodes: int = 1) -> float:
    """Return the time of a ring without what the host adds; `size`: bytes of the whole tensor."""
    passes = PASSES[kind]
    steps, between = passes * (gpus - 1), passes * nodes if nodes > 1 else 0
    hops = (steps - between) * protocol.hop_ns + between * (machine.cards.hop_ns if machine.cards else 0.0)
    return protocol.base_ns + hops + steps * size / gpus / bus_gb_per_s(machine, protocol, gpus, nodes)


def tree_ns(machine: Machine, protocol: RingProtocol, gpus: int, size: float, nodes: int = 1) -> float:
    """Return the time of a double tree's all-reduce: a chain in each node, a tree over nodes.

    Between two nodes its sums go once each way where a ring's bytes go twice.
    """
    levels = (nodes - 1).bit_length()
    hops = 2 * ((gpus // nodes - 1) * protocol.tree_hop_ns
                + levels * (machine.cards.hop_ns if machine.cards else 0.0))
    return protocol.base_ns + hops + 2 * (gpus - 1) / gpus * size / bus_gb_per_s(
        machine, protocol, gpus, nodes, 0.5 if nodes == 2 else 1.0)
