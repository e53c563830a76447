"""A collective on the event level: the same program and topology as on the cycle level, its transfers as flows."""

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from ..collectives import Op, Program
from ..machine import Machine
from ..topologies import Topology
from .fabric import Fabric


@dataclass(frozen=True)
class KernelCosts:
    """What collective kernels on compute units cost besides their bytes, ns and bytes per ns."""

    launch_ns: float
    step_ns: float  #: from the arrival of a chunk to the first bytes that leave of the next step
    last_writes_ns: float  #: that a pass over this memory waits for at its end
    link_ns: float
    link_bytes_per_ns: float
    memory_bytes_per_ns: float  #: that streams of reads and writes reach together


def kernel_costs(machine: Machine) -> KernelCosts:
    """Derive the costs from a machine of the cycle level.

    A step starts with a workgroup on each compute unit at once: instructions, loads from DRAM, which they share, more
    instructions, stores. A pass that ends in this memory waits for the last writes, which are too few for a batch.
    Memory: what refresh leaves of the peak, less the turns of the bus: a batch of writes for twice as many reads, and
    the change from reads to writes and back.
    """
    dram, clock = machine.dram, machine.memory_clock_ghz
    load = dram.trcdrd_cycles + dram.cl_cycles + dram.burst_cycles
    store = dram.trcdwr_cycles + dram.cwl_cycles + dram.burst_cycles
    turn = dram.cl_cycles + dram.burst_cycles + dram.twtr_l_cycles + dram.cwl_cycles + dram.trcdrd_cycles
    batch = dram.write_high_watermark - dram.write_low_watermark
    columns = 64 // dram.column_bytes * batch * dram.burst_cycles
    busy = 1 - dram.trfc_cycles / dram.trefi_cycles
    memory = dram.channels * dram.peak_bytes_per_cycle * clock * busy * 3 * columns / (3 * columns + turn)
    first = machine.collective.workgroup_bytes * max(1 / machine.gpu.cu_bytes_per_ns,
                                                     machine.gpu.compute_units / memory)
    return KernelCosts(
        launch_ns=machine.collective.kernel_launch_ns,
        step_ns=2 * machine.collective.workgroup_overhead_ns + machine.llc.fill_latency_ns + (load + store) / clock
        + first,
        last_writes_ns=dram.write_wait_limit_cycles / clock, link_ns=machine.link.latency_ns,
        link_bytes_per_ns=machine.link.bandwidth_gb_per_s, memory_bytes_per_ns=memory)


@dataclass(frozen=True)
class CollectiveRun:
    """Times in ns, from the launch of the kernel."""

    ns: float
    steps: tuple[tuple[int, int, int, float, float], ...]  #: of each transfer: chunk, source, destination, start, end
    link_bytes: float
    memory_bytes: float  #: of all devices


def run_program(program: Program, topology: Topology, chunk_bytes: Callable[[int], float], costs: KernelCosts,
                near_memory: bool = False) -> CollectiveRun:
    """Run a collective with kernels on compute units.

    A copy reads its chunk and writes it at the other end. A chunk to which others add is read there and here and
    written on the way, as kernels do it; with `near_memory` addition memory adds what arrives. The last addition at an
    owner is a pass of its own: two reads and a write.
    """
    env = simpy.Environment()
    capacity = {("link", link.source, link.destination): costs.link_bytes_per_ns for link in topology.links}
    capacity |= {("memory", node): costs.memory_bytes_per_ns for node in range(topology.nodes)}
    fabric = Fabric(env, capacity)
    arrived = [env.event() for _ in program.transfers]
    steps: list[tuple[int, int, int, float, float]] = []
    last_additions = {key: found for key, found in program.arrivals.items()
                      if key in program.goal and program.transfers[found[-1]].op is Op.ADD
                      and key not in program.departures}

    def transfer(index: int):
        one = program.transfers[index]
        yield env.all_of([arrived[before] for before in one.after])
        start, size = env.now, chunk_bytes(one.chunk)
        yield env.timeout(costs.step_ns)
        forwards = bool(one.after) and one.op is Op.ADD and not near_memory
        uses = {("memory", one.source): 2.0 if forwards else 1.0, ("memory", one.destination): 1.0}
        node = one.source
        while node != one.destination:
            following = topology.next_hop(node, one.destination)
            uses["link", node, following] = 1.0
            node = following
        yield fabric.move(size, uses)
        yield env.timeout(costs.link_ns * (len(uses) - 2))
        steps.append((one.chunk, one.source, one.destination, start, env.now))
        arrived[index].succeed()

    def addition(key: tuple[int, int], indices: tuple[int, ...]):
        yield env.all_of([arrived[index] for index in indices])
        yield env.timeout(costs.step_ns)
        yield fabric.move(chunk_bytes(key[1]), {("memory", key[0]): 2.0 + len(indices)})
        yield env.timeout(costs.last_writes_ns)

    for index in range(len(program.transfers)):
        env.process(transfer(index))
    for key, indices in () if near_memory else last_additions.items():
        env.process(addition(key, indices))
    env.run()
    moved = fabric.moved
    return CollectiveRun(env.now + costs.launch_ns + costs.step_ns, tuple(steps),
                         sum(size for name, size in moved.items() if name[0] == "link"),
                         sum(size for name, size in moved.items() if name[0] == "memory"))
