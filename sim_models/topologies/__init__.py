"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from .ring import ring
from .topology import Link, Topology, TopologyError
from .torus import torus

__all__ = ["Link", "Topology", "TopologyError", "ring", "torus"]
