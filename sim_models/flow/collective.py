"""A collective on the event level: the same program and topology as on the cycle level, its transfers as flows."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import simpy

from ..collectives import Op, Program
from ..machine import Machine
from ..topologies import Link, Topology
from .fabric import Fabric

#: A transfer as it happened: chunk, source, destination, start, end (ns).
Step = tuple[int, int, int, float, float]


@dataclass(frozen=True)
class KernelCosts:
    """Costs of collective kernels on compute units besides their bytes, ns and bytes per ns."""

    launch_ns: float
    step_ns: float  #: from the arrival of a chunk to the first bytes that leave of the next step
    last_writes_ns: float  #: that a pass over this memory waits for at its end
    link_ns: float
    link_bytes_per_ns: float
    memory_bytes_per_ns: float  #: that streams of reads and writes reach together
    network_ns: float | None = None  #: of links between nodes; None: the machine has none
    network_bytes_per_ns: float | None = None

    def rate(self, link: Link) -> float:
        """Return bytes per ns of a link."""
        return self.network_bytes_per_ns if link.network else self.link_bytes_per_ns

    def latency_ns(self, link: Link, topology: Topology) -> float:
        """Return the latency of a link, which is half of the way if it leads to or from a switch."""
        whole = self.network_ns if link.network else self.link_ns
        return whole / 2 if max(link.source, link.destination) >= topology.gpus else whole


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
    memory = dram.channels * dram.peak_bytes_per_cycle * clock * dram.refreshed * 3 * columns / (3 * columns + turn)
    first = machine.collective.workgroup_bytes * max(1 / machine.gpu.cu_bytes_per_ns,
                                                     machine.gpu.compute_units / memory)
    card = machine.network
    return KernelCosts(
        launch_ns=machine.collective.kernel_launch_ns,
        step_ns=2 * machine.collective.workgroup_overhead_ns + machine.llc.fill_latency_ns + (load + store) / clock
        + first,
        last_writes_ns=dram.write_wait_limit_cycles / clock, link_ns=machine.link.latency_ns,
        link_bytes_per_ns=machine.link.bandwidth_gb_per_s, memory_bytes_per_ns=memory,
        network_ns=card.latency_ns if card else None, network_bytes_per_ns=card.bandwidth_gb_per_s if card else None)


@dataclass(frozen=True)
class CollectiveRun:
    """Times in ns, from the launch of the kernel."""

    ns: float
    steps: tuple[Step, ...]
    link_bytes: float
    memory_bytes: float  #: of all devices
    busiest_link: float  #: share of the time in which it carries bytes, as if at its full rate


def run_program(program: Program, topology: Topology, chunk_bytes: Callable[[int], float], costs: KernelCosts,
                near_memory: bool = False, watch: Callable[[float, np.ndarray], None] | None = None) -> CollectiveRun:
    """Run a collective alone, as `Network.start` does.

    `watch` gets the rates of the links, in the topology's order, whenever they change.
    """
    network = Network(simpy.Environment(), topology, costs)
    if watch is not None:
        network.fabric.watch = lambda now, rates: watch(now, rates[:len(topology.links)])
    steps = network.env.run(network.start(program, chunk_bytes, near_memory))
    ns, moved = network.env.now + costs.launch_ns + costs.step_ns, network.fabric.moved
    carried = [(moved["link", link.source, link.destination], costs.rate(link) * topology.share)
               for link in topology.links]
    return CollectiveRun(ns, steps, sum(size for size, _ in carried),
                         sum(size for name, size in moved.items() if name[0] == "memory"),
                         max((size / (rate * ns) for size, rate in carried), default=0.0))


class Network:
    """A topology's links and its nodes' memories, over which collectives run, one or several at a time."""

    def __init__(self, env: simpy.Environment, topology: Topology, costs: KernelCosts,
                 also: Mapping[Hashable, float] | None = None) -> None:
        """Take a topology's links; `also`: further resources, bytes per ns."""
        self.env, self.topology, self.costs = env, topology, costs
        self.fabric = Fabric(env, {
            **{("link", link.source, link.destination): costs.rate(link) * topology.share for link in topology.links},
            **{("memory", node): costs.memory_bytes_per_ns for node in range(topology.gpus)}, **(also or {})})
        self._latencies_ns = {("link", link.source, link.destination): costs.latency_ns(link, topology)
                              for link in topology.links}
        self._routes: dict[tuple[int, int], dict[Hashable, float]] = {}

    def start(self, program: Program, chunk_bytes: Callable[[int], float], near_memory: bool = False,
              also: Callable[[int, int], Mapping[Hashable, float]] = lambda source, destination: {}) -> simpy.Event:
        """Start a collective of kernels on compute units and return the event of its end, whose value are its steps.

        A copy reads its chunk and writes it at the other end. A chunk to which others add is read there and here and
        written on the way, as kernels do it; with `near_memory` addition memory adds what arrives. The last addition at
        an owner is a pass of its own: two reads and a write. Chunks that wait for the same arrival and go to the same
        rank are one message. `also(source, destination)`: what a message uses besides links and memories.
        """
        return _Play(self, program, chunk_bytes, near_memory, also).end

    def route(self, source: int, destination: int) -> dict[Hashable, float]:
        """Return the links on the way, as resources that a flow uses once."""
        if (source, destination) not in self._routes:
            links, node = {}, source
            while node != destination:
                following = self.topology.next_hop(node, destination)
                links["link", node, following] = 1.0
                node = following
            self._routes[source, destination] = links
        return self._routes[source, destination]

    def latency_ns(self, links: Iterable[Hashable]) -> float:
        """Return the latency of a route."""
        return sum(self._latencies_ns[link] for link in links)


class _Play:
    """One collective under way."""

    def __init__(self, network: Network, program: Program, chunk_bytes, near_memory: bool, also) -> None:
        self.network, self.env, self.program, self.chunk_bytes = network, network.env, program, chunk_bytes
        self.near_memory, self.also, self.end = near_memory, also, network.env.event()
        self.steps: list[Step] = []
        self.waits = [len(one.after) for one in program.transfers]
        self.followers, self.last_additions = program.followers, {} if near_memory else program.last_additions
        self.added_at = {index: key for key, found in self.last_additions.items() for index in found}
        self.missing = {key: len(found) for key, found in self.last_additions.items()}
        self.unfinished = len(program.transfers) + len(self.last_additions)
        self.leaving: dict[tuple[int, int, bool, int], list[int]] = {}  # at this moment; as `_message` takes it
        self.messages = 0
        for index, one in enumerate(program.transfers):
            if not one.after:
                self._leave(index, 0)
        if not self.unfinished:
            self.end.succeed(())

    def _leave(self, index: int, after: int) -> None:
        """Let a message leave; `after`: number of the message that was waited for last."""
        one = self.program.transfers[index]
        key = one.source, one.destination, bool(one.after) and one.op is Op.ADD and not self.near_memory, after
        if key not in self.leaving:
            self.leaving[key] = []
            self.env.process(self._message(*key))
        self.leaving[key].append(index)

    def _message(self, source: int, destination: int, forwards: bool, after: int):
        network, costs, start = self.network, self.network.costs, self.env.now
        yield self.env.timeout(0)
        indices = self.leaving.pop((source, destination, forwards, after))
        chunks = [self.program.transfers[index].chunk for index in indices]
        yield self.env.timeout(costs.step_ns)
        links = network.route(source, destination)
        yield network.fabric.move(sum(map(self.chunk_bytes, chunks)), {
            ("memory", source): 2.0 if forwards else 1.0, ("memory", destination): 1.0, **links,
            **self.also(source, destination)})
        yield self.env.timeout(network.latency_ns(links))
        self.steps += [(chunk, source, destination, start, self.env.now) for chunk in chunks]
        self.messages += 1
        for index in indices:
            self._arrive(index, self.messages)

    def _arrive(self, index: int, message: int) -> None:
        for following in self.followers[index]:
            self.waits[following] -= 1
            if not self.waits[following]:
                self._leave(following, message)
        if (key := self.added_at.get(index)) is not None:
            self.missing[key] -= 1
            if not self.missing[key]:
                self.env.process(self._last_addition(key))
        self._finish_one()

    def _last_addition(self, key: tuple[int, int]):
        rank, chunk = key
        yield self.env.timeout(self.network.costs.step_ns)
        yield self.network.fabric.move(self.chunk_bytes(chunk), {("memory", rank): 2.0 + len(self.last_additions[key])})
        yield self.env.timeout(self.network.costs.last_writes_ns)
        self._finish_one()

    def _finish_one(self) -> None:
        self.unfinished -= 1
        if not self.unfinished:
            self.end.succeed(tuple(self.steps))
