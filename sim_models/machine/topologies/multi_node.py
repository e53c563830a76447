"""Nodes of fully connected GPUs, joined by a network: GPUs at one position in all nodes share a switch (a rail)."""

from dataclasses import dataclass

import numpy as np

from t3sim.machine.topologies.alike import Alike
from t3sim.machine.topologies.topology import Link, Topology


@dataclass(frozen=True)
class MultiNode(Topology):
    """A network of `groups` nodes of `per_group` GPUs; GPU number = node * per_group + place.

    Rail switches are the last nodes.
    """

    groups: int
    per_group: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.groups, self.per_group

    def seen(self, alike: Alike, reference: int, node: int) -> int:
        """Map a node under the symmetry; a rail maps with its position."""
        if node < self.gpus:
            return alike.seen(reference, node)
        return self.gpus + alike.seen(reference, node - self.gpus) % self.per_group

    def moved(self, alike: Alike, nodes: np.ndarray, periods: tuple[int, ...]) -> np.ndarray:
        """Return the nodes that lie some periods further; a rail moves with its position."""
        return np.where(nodes < self.gpus, alike.moved(nodes, periods),
                        self.gpus + alike.moved(nodes - self.gpus, periods) % self.per_group)

    def next_hop(self, node: int, destination: int) -> int:
        """Return the next neighbour: the GPU at the destination's position, its rail, the destination."""
        if node >= self.gpus or node // self.per_group == destination // self.per_group:
            return super().next_hop(node, destination)
        place = destination % self.per_group
        if node % self.per_group != place:
            return node // self.per_group * self.per_group + place
        return self.gpus + place


def multi_node(groups: int, per_group: int) -> MultiNode:
    """Build `groups` nodes of `per_group` GPUs, each with a network card on its position's rail."""
    gpus = groups * per_group
    node_links = (Link(group * per_group + place, group * per_group + (place + step) % per_group)
                  for group in range(groups) for place in range(per_group) for step in range(1, per_group))
    rail_links = (link for gpu in range(gpus) for link in (Link(gpu, gpus + gpu % per_group, network=True),
                                                           Link(gpus + gpu % per_group, gpu, network=True)))
    return MultiNode("nodes", gpus + per_group, (*node_links, *rail_links), groups, per_group, switches=per_group)
