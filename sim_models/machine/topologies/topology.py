"""Nodes and the directed links between them."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from t3sim.machine.topologies.alike import Alike

if TYPE_CHECKING:
    import numpy as np


class TopologyError(ValueError):
    """Nodes that cannot reach each other, or links that lead nowhere; the message names them."""


class Link(NamedTuple):
    """One direction of a cable."""

    source: int
    destination: int
    network: bool = False  #: between nodes, over their network cards; otherwise inside a node


@dataclass(frozen=True)
class Topology:
    """Nodes, of which the last `switches` are no GPUs, and their links.

    The machine sets the bandwidth of each kind of link. A route through a switch takes as long as one link, half on
    either side.
    """

    name: str
    nodes: int
    links: tuple[Link, ...]
    switches: int = field(default=0, kw_only=True)
    share: float = field(default=1.0, kw_only=True)  #: of the machine's link bandwidth that each link has

    @property
    def gpus(self) -> int:
        return self.nodes - self.switches

    def __post_init__(self) -> None:
        for link in self.links:
            if not (0 <= link.source < self.nodes and 0 <= link.destination < self.nodes) or (
                    link.source == link.destination):
                raise TopologyError(f"{self.name}: a link from {link.source} to {link.destination} is impossible with "
                                    f"nodes 0 to {self.nodes - 1}")

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """Nodes to which each node has a link, in the order of the links."""
        neighbours: list[dict[int, None]] = [{} for _ in range(self.nodes)]
        for link in self.links:
            neighbours[link.source][link.destination] = None
        return tuple(map(tuple, neighbours))

    def next_hop(self, node: int, destination: int) -> int:
        """Return the next neighbour on a shortest route, the first in the order of links. Raises TopologyError."""
        if (node, destination) in self.link_of:
            return destination
        distance = self._distances(destination)
        candidates = [neighbour for neighbour in self.neighbours[node] if neighbour in distance]
        if node == destination or not candidates:
            raise TopologyError(f"{self.name}: no route leads from {node} to {destination}")
        return min(candidates, key=distance.__getitem__)

    def way(self, source: int, destination: int) -> tuple[tuple[int, int], ...]:
        """Return the route between two nodes: its links, each as (source, destination). Raises TopologyError."""
        links = []
        while source != destination:
            links.append((source, self.next_hop(source, destination)))
            source = links[-1][1]
        return tuple(links)

    def _distances(self, destination: int) -> dict[int, int]:
        """Return the links on the shortest route from each node that reaches a destination."""
        if destination not in self._distances_to:
            distance, reached = {destination: 0}, [destination]
            for node in reached:
                for source in self._sources[node]:
                    if source not in distance:
                        distance[source] = distance[node] + 1
                        reached.append(source)
            self._distances_to[destination] = distance
        return self._distances_to[destination]

    @cached_property
    def link_of(self) -> dict[tuple[int, int], Link]:
        """The links by source and destination."""
        return {(link.source, link.destination): link for link in self.links}

    @cached_property
    def _sources(self) -> tuple[tuple[int, ...], ...]:
        """Nodes that have a link to each node."""
        sources: list[list[int]] = [[] for _ in range(self.nodes)]
        for link in self.links:
            sources[link.destination].append(link.source)
        return tuple(map(tuple, sources))

    @cached_property
    def _distances_to(self) -> dict[int, dict[int, int]]:
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions in which GPUs are numbered; numbers follow each other along the last."""
        return (self.gpus,)

    def seen(self, alike: Alike, reference: int, node: int) -> int:
        """Map a node under the symmetry, as `Alike.seen` does for GPUs; a switch maps to itself."""
        return alike.seen(reference, node) if node < self.gpus else node

    def moved(self, alike: Alike, nodes: "np.ndarray", periods: tuple[int, ...]) -> "np.ndarray":
        """Return the nodes that lie some periods further, as in `Alike.moved`; a switch maps to itself."""
        import numpy as np

        return np.where(nodes < self.gpus, alike.moved(nodes, periods), nodes)

    def same_links(self, alike: Alike, periods: tuple[int, ...]) -> bool:
        """Say whether a shift of all nodes by some periods maps the links onto themselves."""
        import numpy as np

        source, destination, network = self._link_table
        shifted = self.moved(alike, source, periods), self.moved(alike, destination, periods)
        return bool((np.sort((shifted[0] * self.nodes + shifted[1]) * 2 + network)
                     == np.sort((source * self.nodes + destination) * 2 + network)).all())

    @cached_property
    def _link_table(self) -> "np.ndarray":
        import numpy as np

        return np.array([[link[field] for link in self.links] for field in range(3)], np.int64)

    def invariant_under_shift(self) -> bool:
        """Say whether a shift of every GPU to the next one maps the links onto themselves; switches stay."""
        renamed = [*((gpu + 1) % self.gpus for gpu in range(self.gpus)), *range(self.gpus, self.nodes)]
        return {(renamed[link.source], renamed[link.destination]) for link in self.links} == {
            (link.source, link.destination) for link in self.links}
