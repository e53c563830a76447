"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from .named import named_topology
from .ring import ring
from .topology import Link, Topology, TopologyError
from .torus import Torus, torus

__all__ = ["Link", "Topology", "TopologyError", "Torus", "named_topology", "ring", "torus"]
