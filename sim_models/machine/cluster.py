"""Sections of a machine that the closed form needs: an accelerator, its node, two levels of network."""

from t3sim.machine.accelerator import Accelerator
from t3sim.machine.cycle import Machine
from t3sim.machine.section import Count, NotNegative, Positive, Section, Share


class Network(Section):
    """One level of the network, per GPU and direction."""

    bandwidth_gb_per_s: Positive
    efficiency: Share  #: of the bandwidth, for large messages
    step_ns: NotNegative  #: latency of one step of a collective, software included

    @property
    def bytes_per_ns(self) -> float:
        return self.bandwidth_gb_per_s * self.efficiency


class Uncertainty(Section):
    """Half-widths of the ranges from which inputs are drawn, relative to their values."""

    matrix_efficiency: NotNegative
    memory_efficiency: NotNegative
    network_efficiency: NotNegative
    host_ns_per_kernel: NotNegative


class Cluster(Section):
    """Any number of equal nodes."""

    name: str
    gpus_per_node: Count
    iteration_ns: NotNegative  #: of an iteration, besides everything that is modelled: input, loss scaling, logging
    cycle_machine: str | None = None  #: machine of the cycle level with these GPUs; None if there is none
    accelerator: Accelerator
    intra: Network
    inter: Network
    uncertainty: Uncertainty


def of_machine(machine: Machine, name_or_path: str) -> Cluster:
    """Return the cluster that has this machine of the cycle level, which has that name, as its GPU, all in one ring.

    The main loop's efficiency, the tile and the ports are the machine file's; a tile's overhead in steps of K is its
    prologue, epilogue and the burst of its stores at an equal share of the memory's bandwidth, over one step's time.
    """
    gpu = machine.gpu
    step_ns = 2 * gpu.tile_m * gpu.tile_n / (gpu.matrix_flop_per_cycle_per_cu * gpu.clock_ghz * gpu.matrix_efficiency)
    memory_gb_per_s = machine.dram.peak_bytes_per_cycle * machine.dram.channels * machine.memory_clock_ghz
    store_ns = 2 * gpu.tile_m * gpu.tile_n * gpu.compute_units / memory_gb_per_s
    return Cluster(
        name=machine.name, gpus_per_node=1024, iteration_ns=0.0, cycle_machine=name_or_path,
        accelerator=Accelerator(
            peak_tflop_per_s=gpu.peak_flop_per_ns / 1e3, cores=gpu.compute_units, tile_m=gpu.tile_m, tile_n=gpu.tile_n,
            matrix_efficiency=gpu.matrix_efficiency,
            tile_overhead_k=(gpu.prologue_ns + gpu.epilogue_ns + store_ns) / step_ns,
            memory_gb=64.0, memory_gb_per_s=memory_gb_per_s, memory_efficiency=0.8,
            kernel_ns=machine.collective.kernel_launch_ns, host_ns_per_kernel=0.0, busy_watts=300.0, idle_watts=90.0),
        intra=Network(bandwidth_gb_per_s=machine.link.bandwidth_gb_per_s, efficiency=1.0,
                      step_ns=machine.link.latency_ns),
        inter=Network(bandwidth_gb_per_s=machine.link.bandwidth_gb_per_s, efficiency=1.0,
                      step_ns=machine.link.latency_ns),
        uncertainty=Uncertainty(matrix_efficiency=0.05, memory_efficiency=0.1, network_efficiency=0.05,
                                host_ns_per_kernel=0.0))
