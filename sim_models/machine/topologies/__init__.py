"""Topologies as data: nodes, directed links, and which neighbour is next on the way to a node."""

from t3sim.machine.topologies.alike import Alike
from t3sim.machine.topologies.fully_connected import fully_connected
from t3sim.machine.topologies.multi_node import MultiNode
from t3sim.machine.topologies.named import named_topology
from t3sim.machine.topologies.ring import ring
from t3sim.machine.topologies.switch import switch
from t3sim.machine.topologies.topology import Link, Topology, TopologyError
from t3sim.machine.topologies.torus import Torus, torus

__all__ = ["Alike", "Link", "MultiNode", "Topology", "TopologyError", "Torus", "fully_connected", "named_topology",
           "ring", "switch", "torus"]
