"""Every GPU has a link to one switch, which forwards packets to the other GPUs."""

from t3sim.machine.topologies.topology import Link, Topology, TopologyError


class SwitchTopology(Topology):
    """GPUs around one switch, which is on every route."""

    def next_hop(self, node: int, destination: int) -> int:
        """Return the switch; at the switch, the destination. Raises TopologyError."""
        if node == destination or not (0 <= node < self.nodes and 0 <= destination < self.nodes):
            raise TopologyError(f"{self.name}: no way leads from {node} to {destination}")
        return destination if node == self.gpus else self.gpus


def switch(gpus: int) -> SwitchTopology:
    """Build a star of `gpus` GPUs around a switch, which is the last node."""
    return SwitchTopology("switch", gpus + 1, tuple(link for gpu in range(gpus)
                                                    for link in (Link(gpu, gpus), Link(gpus, gpu))), switches=1)
