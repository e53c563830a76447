"""A ring: every node is linked with the one before and the one after it, in both directions."""

from t3sim.machine.topologies.topology import Link, Topology, TopologyError


class Ring(Topology):
    """GPUs in a ring; routes take the shorter way around, downwards if both are as long."""

    def next_hop(self, node: int, destination: int) -> int:
        """Return the next neighbour. Raises TopologyError."""
        if node == destination or not (0 <= node < self.nodes and 0 <= destination < self.nodes):
            raise TopologyError(f"{self.name}: no way leads from {node} to {destination}")
        step = -1 if 2 * ((node - destination) % self.nodes) <= self.nodes else 1
        return (node + step) % self.nodes


def ring(nodes: int) -> Ring:
    """Build a ring of `nodes` GPUs; two of them share one pair of links."""
    return Ring("ring", nodes, tuple(dict.fromkeys(
        Link(node, (node + step) % nodes) for step in (-1, 1) for node in range(nodes))))
