"""Shapes of networks, and their short texts in options and machine files: ring:8, full:8, torus:8x16, nodes:2x8."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from t3sim.machine.topologies.alike import Alike
from t3sim.machine.topologies.topology import Link, Topology, TopologyError

if TYPE_CHECKING:
    import numpy as np

_LARGEST = 1 << 17  #: GPUs
_MOST_LINKS = 2_000_000


def fully_connected(nodes: int, divided: bool = False) -> Topology:
    """Build a full mesh; a node's links are in the order of the distance from it.

    `divided`: a node's links share the bandwidth of one link of the machine.
    """
    return Topology("full", nodes, tuple(Link(node, (node + step) % nodes) for node in range(nodes)
                                         for step in range(1, nodes)), share=1 / (nodes - 1) if divided else 1.0)


class Ring(Topology):
    """GPUs in a ring; routes take the shorter way around, downwards if both are as long."""

    def next_hop(self, node: int, destination: int) -> int:
        """Return the next neighbour. Raises TopologyError."""
        if node == destination or not (0 <= node < self.nodes and 0 <= destination < self.nodes):
            raise TopologyError(f"{self.name}: no route leads from {node} to {destination}")
        step = -1 if 2 * ((node - destination) % self.nodes) <= self.nodes else 1
        return (node + step) % self.nodes


def ring(nodes: int) -> Ring:
    """Build a ring of `nodes` GPUs; two of them share one pair of links."""
    return Ring("ring", nodes, tuple(dict.fromkeys(
        Link(node, (node + step) % nodes) for step in (-1, 1) for node in range(nodes))))


class SwitchTopology(Topology):
    """GPUs around one switch, which is on every route."""

    def next_hop(self, node: int, destination: int) -> int:
        """Return the switch; at the switch, the destination. Raises TopologyError."""
        if node == destination or not (0 <= node < self.nodes and 0 <= destination < self.nodes):
            raise TopologyError(f"{self.name}: no route leads from {node} to {destination}")
        return destination if node == self.gpus else self.gpus


def switch(gpus: int) -> SwitchTopology:
    """Build a star of `gpus` GPUs around a switch, which is the last node."""
    return SwitchTopology("switch", gpus + 1, tuple(link for gpu in range(gpus)
                                                    for link in (Link(gpu, gpus), Link(gpus, gpu))), switches=1)


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

    def moved(self, alike: Alike, nodes: "np.ndarray", periods: tuple[int, ...]) -> "np.ndarray":
        """Return the nodes that lie some periods further; a rail moves with its position."""
        import numpy as np

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


@dataclass(frozen=True)
class Torus(Topology):
    """Nodes in `rows` and `columns`; node number = row * columns + column. Routes go along the row first."""

    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows, self.columns

    def next_hop(self, node: int, destination: int) -> int:
        """Return the next neighbour in dimension order: along the row the shorter way around, then along the column.

        Half-way around a ring both directions are as long: nodes at even positions go up, the others down, so that both
        directions carry the same. Raises TopologyError.
        """
        if node == destination or not (0 <= node < self.nodes and 0 <= destination < self.nodes):
            raise TopologyError(f"{self.name}: no route leads from {node} to {destination}")
        (row, column), (to_row, to_column) = divmod(node, self.columns), divmod(destination, self.columns)
        if column != to_column:
            return row * self.columns + _step(column, to_column, self.columns)
        return _step(row, to_row, self.rows) * self.columns + column


def _step(position: int, to: int, length: int) -> int:
    """Return the next position on a ring."""
    up = (to - position) % length
    shorter_up = 2 * up < length or (2 * up == length and position % 2 == 0)
    return (position + (1 if shorter_up else -1)) % length


def torus(rows: int, columns: int) -> Torus:
    """Build a torus of `rows` times `columns` GPUs; a ring of 2 has one pair of links, a ring of 1 has none."""
    if rows < 1 or columns < 1:
        raise TopologyError(f"torus: {rows} rows and {columns} columns are impossible")
    nodes = [(row, column) for row in range(rows) for column in range(columns)]
    along_rows = (Link(row * columns + column, row * columns + (column + step) % columns)
                  for step in (-1, 1) for row, column in nodes if columns > 1)
    along_columns = (Link(row * columns + column, (row + step) % rows * columns + column)
                     for step in (-1, 1) for row, column in nodes if rows > 1)
    return Torus("torus", rows * columns, tuple(dict.fromkeys((*along_rows, *along_columns))), rows, columns)


#: Of each kind: its form, a function that builds it, and a function that returns its largest number of links.
_KINDS: dict[str, tuple[str, Callable[..., Topology], Callable[..., int]]] = {
    "ring": ("N", ring, lambda gpus: 2 * gpus), "full": ("N", fully_connected, lambda gpus: gpus * (gpus - 1)),
    "switch": ("N", switch, lambda gpus: 2 * gpus), "torus": ("RxC", torus, lambda rows, columns: 4 * rows * columns),
    "nodes": ("NxG", multi_node, lambda groups, places: groups * places * (places + 1))}


def named_topology(text: str) -> Topology:
    """Return the topology that `text` describes. Raises TopologyError, which lists the allowed forms."""
    kind, _, size = text.partition(":")
    shape, build, links = _KINDS.get(kind, ("", None, None))
    pattern = r"(\d{1,6})x(\d{1,6})" if "x" in shape else r"(\d{1,6})"
    numbers = re.fullmatch(pattern, size, re.ASCII)
    if build is None or links is None or numbers is None:
        allowed = ", ".join(f"{name}:{form}" for name, (form, *_) in _KINDS.items())
        raise TopologyError(f"topology = {text[:40]!r} is unknown: allowed are {allowed}")
    lengths = [int(number) for number in numbers.groups()]
    nodes = lengths[0] * lengths[-1] if len(lengths) > 1 else lengths[0]
    if not 2 <= nodes <= _LARGEST:
        raise TopologyError(f"topology = {text!r} has {nodes} GPUs: 2 to {_LARGEST} are possible")
    if kind == "nodes" and lengths[0] < 2:
        raise TopologyError(f"topology = {text!r} joins {lengths[0]} nodes: at least 2 are needed, full:N is one")
    if (link_count := links(*lengths)) > _MOST_LINKS:
        raise TopologyError(f"topology = {text!r} has {link_count} links: up to {_MOST_LINKS} are possible")
    return build(*lengths)
