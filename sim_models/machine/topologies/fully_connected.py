"""Every GPU has a link to every other."""

from t3sim.machine.topologies.topology import Link, Topology


def fully_connected(nodes: int, divided: bool = False) -> Topology:
    """Build a full mesh; a node's links are in the order of the distance from it.

    `divided`: a node's links share the bandwidth of one link of the machine.
    """
    return Topology("full", nodes, tuple(Link(node, (node + step) % nodes) for node in range(nodes)
                                         for step in range(1, nodes)), share=1 / (nodes - 1) if divided else 1.0)
