"""Costs of collectives on a network, of whatever level its description is."""

from t3sim.analytic.costs import KernelCosts, kernel_costs
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import CYCLE, NETWORK
from t3sim.machine.load import serves
from t3sim.machine.topologies import Topology, named_topology


def network_costs(network: Machine) -> KernelCosts:
    """Return what collectives on a network cost; memory at the rate of kernels that only move data."""
    gpu = network.accelerator
    return KernelCosts(network.kernel.launch_ns, network.kernel.step_ns, 0.0, network.link.latency_ns,
                       network.link.bandwidth_gb_per_s, gpu.moved_bytes_per_ns,
                       *((network.network.latency_ns, network.network.bandwidth_gb_per_s) if network.network else ()))


def load_costs(name_or_path: str) -> tuple[str, KernelCosts, Topology]:
    """Return name, costs and usual topology of a network. Raises `MachineError`.

    A machine that says only what the cycle level needs is a network, too (a ring of eight).
    """
    if serves(name_or_path, CYCLE) and not serves(name_or_path, NETWORK):
        machine = load_machine(name_or_path)
        return machine.name, kernel_costs(machine), named_topology("ring:8")
    network = load_machine(name_or_path, NETWORK)
    return network.name, network_costs(network), named_topology(network.topology)
