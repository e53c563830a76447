"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from .alike import Alike
from .fully_connected import fully_connected
from .multi_node import MultiNode
from .named import named_topology
from .ring import ring
from .switch import switch
from .topology import Link, Topology, TopologyError
from .torus import Torus, torus

__all__ = ["Alike", "Link", "MultiNode", "Topology", "TopologyError", "Torus", "fully_connected", "named_topology",
           "ring", "switch", "torus"]
