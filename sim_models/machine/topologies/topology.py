"""Nodes and the directed links between them."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from t3sim.machine.topologies.alike import Alike


class TopologyError(ValueError):
    """Nodes that cannot reach each other, or links that lead nowhere; the message names them."""


class Link(NamedTuple):
    """One direction of a cable."""

    source: int
    destination: int
    network: bool = False  #: between nodes, over their network cards; otherwise inside a node


@dataclass(frozen=True)
class Topology:
    """A network of `nodes`, of which the last `switches` are no GPUs, and their links.

    A machine says what links of a kind carry; the way through a switch takes as long as one link, half on either side.
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
        """Nodes that each node has a link to, in the order of the links."""
        found: list[dict[int, None]] = [{} for _ in range(self.nodes)]
        for link in self.links:
            found[link.source][link.destination] = None
        return tuple(map(tuple, found))

    def next_hop(self, node: int, destination: int) -> int:
        """Return the neighbour that is next on a shortest way. Raises TopologyError.

        Of several it is the one whose link is named first.
        """
        if (node, destination) in self.link_of:
            return destination
        distance = self._distances(destination)
        reaching = [neighbour for neighbour in self.neighbours[node] if neighbour in distance]
        if node == destination or not reaching:
            raise TopologyError(f"{self.name}: no way leads from {node} to {destination}")
        return min(reaching, key=distance.__getitem__)

    def way(self, source: int, destination: int) -> tuple[tuple[int, int], ...]:
        """List the links from one node to another, each as (source, destination). Raises TopologyError."""
        links = []
        while source != destination:
            links.append((source, self.next_hop(source, destination)))
            source = links[-1][1]
        return tuple(links)

    def _distances(self, destination: int) -> dict[int, int]:
        """Count the links on the shortest way from each node that has one."""
        if destination not in self._known:
            distance, front = {destination: 0}, [destination]
            for node in front:
                for source in self._sources[node]:
                    if source not in distance:
                        distance[source] = distance[node] + 1
                        front.append(source)
            self._known[destination] = distance
        return self._known[destination]

    @cached_property
    def link_of(self) -> dict[tuple[int, int], Link]:
        """The links by source and destination."""
        return {(link.source, link.destination): link for link in self.links}

    @cached_property
    def _sources(self) -> tuple[tuple[int, ...], ...]:
        """Nodes that have a link to each node."""
        found: list[list[int]] = [[] for _ in range(self.nodes)]
        for link in self.links:
            found[link.destination].append(link.source)
        return tuple(map(tuple, found))

    @cached_property
    def _known(self) -> dict[int, dict[int, int]]:
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions in which GPUs are numbered, the last one's positions following each other."""
        return (self.gpus,)

    def seen(self, alike: Alike, reference: int, node: int) -> int:
        """Return what becomes of a node when GPUs are renamed, as in `Alike.seen`; a switch stays what it is."""
        return alike.seen(reference, node) if node < self.gpus else node

    def moved(self, alike: Alike, nodes: np.ndarray, by: tuple[int, ...]) -> np.ndarray:
        """Return the nodes that lie some periods further, as in `Alike.moved`; a switch stays what it is."""
        return np.where(nodes < self.gpus, alike.moved(nodes, by), nodes)

    def same_links(self, alike: Alike, by: tuple[int, ...]) -> bool:
        """Say whether links are the same if nodes are renamed to those some periods further."""
        source, destination, network = self._link_table
        renamed = self.moved(alike, source, by), self.moved(alike, destination, by)
        return bool((np.sort((renamed[0] * self.nodes + renamed[1]) * 2 + network)
                     == np.sort((source * self.nodes + destination) * 2 + network)).all())

    @cached_property
    def _link_table(self) -> np.ndarray:
        return np.array([[link[place] for link in self.links] for place in range(3)], np.int64)

    def invariant_under_shift(self) -> bool:
        """Say whether the topology is the same if every GPU is renamed to the next one; switches stay what they are."""
        renamed = [*((gpu + 1) % self.gpus for gpu in range(self.gpus)), *range(self.gpus, self.nodes)]
        return {(renamed[link.source], renamed[link.destination]) for link in self.links} == {
            (link.source, link.destination) for link in self.links}
