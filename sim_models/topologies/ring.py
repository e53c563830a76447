"""A ring: every node is linked with the one before and the one after it, in both directions."""

from .topology import Link, Topology


def ring(nodes: int) -> Topology:
    """Build a ring of `nodes` GPUs; two of them share one pair of links."""
    return Topology("ring", nodes, tuple(dict.fromkeys(
        Link(node, (node + step) % nodes) for step in (-1, 1) for node in range(nodes))))
