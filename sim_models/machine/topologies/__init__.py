"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from t3sim.machine.topologies.alike import Alike
from t3sim.machine.topologies.shapes import MultiNode, Torus, fully_connected, named_topology, ring, switch, torus
from t3sim.machine.topologies.topology import Link, Topology, TopologyError

__all__ = ["Alike", "Link", "MultiNode", "Topology", "TopologyError", "Torus", "fully_connected", "named_topology",
           "ring", "switch", "torus"]
