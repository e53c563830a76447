"""Costs of collectives by kernels on compute units besides their bytes."""

from dataclasses import dataclass

from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import CYCLE, NETWORK
from t3sim.machine.load import serves
from t3sim.machine.topologies import Link, Topology, named_topology


@dataclass(frozen=True)
class KernelCosts:
    """Costs of collective kernels on compute units besides their bytes, ns and bytes per ns."""

    launch_ns: float
    step_ns: float  #: from the arrival of a chunk to the first bytes of the next step on the link
    last_writes_ns: float  #: wait for the last writes at the end of a pass over this memory
    link_ns: float
    link_bytes_per_ns: float
    memory_bytes_per_ns: float  #: of streams of reads and writes together
    network_ns: float | None = None  #: of links between nodes; None: the machine has none
    network_bytes_per_ns: float | None = None

    def rate(self, link: Link) -> float:
        """Return bytes per ns of a link."""
        return self.network_bytes_per_ns if link.network else self.link_bytes_per_ns

    def latency_ns(self, link: Link, topology: Topology) -> float:
        """Return the latency of a link, half of the route's if it leads to or from a switch."""
        route_ns = self.network_ns if link.network else self.link_ns
        return route_ns / 2 if max(link.source, link.destination) >= topology.gpus else route_ns


def memory_bytes_per_ns(machine: Machine, reads_per_write: float = 2) -> float:
    """Return DRAM's peak without refresh and bus turnarounds, for streams of reads and writes together.

    One turnaround to writes and back is for a batch of writes, with as many reads to each.
    """
    dram = machine.dram
    turnaround_cycles = dram.cl_cycles + dram.burst_cycles + dram.twtr_l_cycles + dram.cwl_cycles + dram.trcdrd_cycles
    batch_writes = dram.write_high_watermark - dram.write_low_watermark
    batch_cycles = 64 // dram.column_bytes * batch_writes * dram.burst_cycles
    return (dram.channels * dram.peak_bytes_per_cycle * machine.memory_clock_ghz * dram.refreshed
            * (1 + reads_per_write) * batch_cycles / ((1 + reads_per_write) * batch_cycles + turnaround_cycles))


def kernel_costs(machine: Machine) -> KernelCosts:
    """Derive the costs from a machine of the cycle level.

    A step starts with a workgroup on each compute unit at once: instructions, loads from the DRAM that they share, more
    instructions, stores. A pass that ends in this memory waits for the last writes, which are too few for a batch.
    """
    dram, clock = machine.dram, machine.memory_clock_ghz
    load_cycles = dram.entry_latency_cycles + dram.trcdrd_cycles + dram.cl_cycles + dram.burst_cycles
    store_cycles = dram.entry_latency_cycles + dram.trcdwr_cycles + dram.cwl_cycles + dram.burst_cycles
    memory_rate = memory_bytes_per_ns(machine)
    first_wave_ns = machine.collective.workgroup_bytes * max(1 / machine.gpu.cu_bytes_per_ns,
                                                             machine.gpu.compute_units / memory_rate)
    card = machine.network
    return KernelCosts(
        launch_ns=machine.collective.kernel_launch_ns,
        step_ns=2 * machine.collective.workgroup_overhead_ns + machine.llc.fill_latency_ns
        + (load_cycles + store_cycles) / clock + first_wave_ns,
        last_writes_ns=dram.write_wait_limit_cycles / clock, link_ns=machine.link.latency_ns,
        link_bytes_per_ns=machine.link.bandwidth_gb_per_s, memory_bytes_per_ns=memory_rate,
        network_ns=card.latency_ns if card else None, network_bytes_per_ns=card.bandwidth_gb_per_s if card else None)


def network_costs(network: Machine) -> KernelCosts:
    """Return the costs of collectives on a network; memory at the rate of kernels that only move data."""
    gpu = network.accelerator
    return KernelCosts(network.kernel.launch_ns, network.kernel.step_ns, 0.0, network.link.latency_ns,
                       network.link.bandwidth_gb_per_s, gpu.moved_bytes_per_ns,
                       *((network.network.latency_ns, network.network.bandwidth_gb_per_s) if network.network else ()))


def load_costs(name_or_path: str) -> tuple[str, KernelCosts, Topology]:
    """Return name, costs and default topology of a network. Raises `MachineError`.

    A machine with only the cycle level's sections is a ring of 8.
    """
    if serves(name_or_path, CYCLE) and not serves(name_or_path, NETWORK):
        machine = load_machine(name_or_path)
        return machine.name, kernel_costs(machine), named_topology("ring:8")
    network = load_machine(name_or_path, NETWORK)
    return network.name, network_costs(network), named_topology(network.topology)
