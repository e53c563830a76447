"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from .multi_node import MultiNode
from .named import named_topology
from .ring import ring
from .topology import Link, Topology, TopologyError
from .torus import Torus, torus

__all__ = ["Link", "MultiNode", "Topology", "TopologyError", "Torus", "named_topology", "ring", "torus"]
