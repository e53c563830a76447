"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from t3sim.topologies.alike import Alike
from t3sim.topologies.fully_connected import fully_connected
from t3sim.topologies.multi_node import MultiNode
from t3sim.topologies.named import named_topology
from t3sim.topologies.ring import ring
from t3sim.topologies.switch import switch
from t3sim.topologies.topology import Link, Topology, TopologyError
from t3sim.topologies.torus import Torus, torus

__all__ = ["Alike", "Link", "MultiNode", "Topology", "TopologyError", "Torus", "fully_connected", "named_topology",
           "ring", "switch", "torus"]
