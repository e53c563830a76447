"""Builds the state of a run from a machine and a workload: one kernel after another, with or without RTL."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.collectives.schedule import Action
from t3sim.collectives.schedule.mirror import make_mirror
from t3sim.gpu.agents.compute_units import ComputeUnits, make_units, set_condition
from t3sim.gpu.agents.units.state import UnitRates
from t3sim.gpu.engine.chaos import make_chaos
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.fabric import memory, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.llc import make_llc, make_slices
from t3sim.gpu.fabric.memory_cache import NO_MEMORY_CACHE, make_memory_cache
from t3sim.gpu.fabric.state import MemoryCache, Network, SwitchState
from t3sim.gpu.fabric.switch import NO_SWITCH, SwitchShape, make_switch
from t3sim.gpu.setup import BLOCK_BYTES
from t3sim.gpu.state import Control, Sim
from t3sim.machine import Machine, topologies
from t3sim.machine.links import LinkSection
from t3sim.rtl.geometry import Geometry
from t3sim.runs.address_space import AddressSpace, fused_work, scattered_work
from t3sim.runs.gather_before import Consumers, gathering_work
from t3sim.runs.operators import (
    Addresses,
    busiest,
    experts_operator,
    gemm_operator,
    make_tiling,
    resident,
)
from t3sim.runs.plan import Plan
from t3sim.runs.program_kernels import LevelPlan
from t3sim.runs.split_k import parts_added
from t3sim.workload.operators.copy import Copy, Pass
from t3sim.workload.operators.gemm import Matrix
from t3sim.workload.operators.kernel_alone import check_alone
from t3sim.workload.operators.kernel_table import KernelError, KernelTable
from t3sim.workload.operators.operator import OutputParts
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import DispatchWorkload, Workload


def consumers_of(machine: Machine, workload: Workload, device: int) -> Consumers:
    """Return the output parts of a device's workgroups that wait for their inputs."""
    if isinstance(workload, DispatchWorkload):
        operator = experts_operator(machine, workload)
        return Consumers(operator.output_parts(device), int(workload.tokens_of[:device].sum()))
    return Consumers(OutputParts.of(make_tiling(machine, workload)), 0)


def _gathering(machine: Machine, workload: Workload, space: AddressSpace) -> KernelTable:
    """Make a device's kernel that waits for arriving inputs."""
    consumers, pitch = consumers_of(machine, workload, space.device), space.schedule.tiling.pitch_bytes
    inputs = Matrix(space.base + consumers.first_input * pitch, pitch)
    operator = (experts_operator(machine, workload, inputs=inputs) if isinstance(workload, DispatchWorkload) else
                gemm_operator(machine, workload, make_tiling(machine, workload), b=inputs))
    return gathering_work(operator.work(space.device), consumers, space)


def planned_copy(machine: Machine, plans: Sequence[LevelPlan]) -> Copy:
    """Make the kernel of a collective, of each simulated device, at the machine's rates."""
    return copy_kernel(machine, [plan.passes() for plan in plans], plans[0].at.chunk_bytes)


def copy_kernel(machine: Machine, passes: Sequence[Sequence[Pass]], size_bytes: int) -> Copy:
    """Make a kernel of passes of `size_bytes` each, of each device, at the machine's rates."""
    kernel, clock = machine.collective, machine.memory_clock_ghz
    return Copy(passes, size_bytes, kernel.workgroup_bytes,
                launch_cycles=kernel.workgroup_overhead_ns * clock, end_cycles=machine.llc.hit_latency_ns * clock)


def unit_rates(machine: Machine, places: int) -> UnitRates:
    """Return the rates of the machine's compute units, each with this many workgroups at once."""
    gpu, llc, clock = machine.gpu, machine.llc, machine.memory_clock_ghz
    buffer_cycles = machine.link.egress_buffer_bytes / machine.link.bandwidth_gb_per_s * clock
    return UnitRates(
        units=gpu.compute_units, places=places, port_byte_cycles=clock / gpu.cu_bytes_per_ns,
        hit_cycles=llc.hit_latency_ns * clock, llc_bytes_per_cycle=llc.bandwidth_bytes_per_ns / clock,
        link_retry_cycles=max(1, min(64, int(buffer_cycles / 8))))


def engine_rates(machine: Machine) -> UnitRates:
    """Return the rates of the machine's DMA engines as units: each moves a line a cycle, in blocks side by side."""
    places = machine.dma.outstanding_lines * LINE_BYTES // BLOCK_BYTES // machine.dma.engines
    return unit_rates(machine, max(1, places))._replace(
        units=machine.dma.engines, port_byte_cycles=1 / LINE_BYTES, hit_cycles=0.0)


def link_shape(machine: Machine, link: LinkSection | None = None) -> links.LinkShape:
    """Convert a link of the machine, or another one, to memory cycles."""
    clock, link = machine.memory_clock_ghz, link or machine.link
    return links.LinkShape(link.bandwidth_gb_per_s / clock, round(link.latency_ns * clock),
                           float(link.egress_buffer_bytes), float(link.head_bytes))


def card_of(machine: Machine) -> LinkSection:
    """Return a GPU's network card as a link, with the buffer of the others. Raises BadInput without a [network]."""
    if machine.network is None:
        raise BadInput(f"machine {machine.name!r} has no [network], which links between nodes need")
    return machine.link.model_copy(update=machine.network.model_dump())


def loop_network(machine: Machine) -> Network:
    """Make the network of a representative GPU: what it sends arrives at itself."""
    return links.make_network([links.LinkPort(0, 0, link_shape(machine))], np.zeros((1, 1)), one_for_all=True)


def network_of(machine: Machine, topology: topologies.Topology,
               links_of_their_own: Mapping[tuple[int, int], LinkSection], groups: int = 0,
               planes: int = 1) -> Network:
    """Make the network of a topology with the machine's links.

    Links between certain nodes (source, destination) may differ; `groups`: where a GPU sends over its one link;
    `planes`: links side by side that share the rate of each, and its buffer.

    The way through a switch takes as long as one link, half on either side. Raises BadInput.
    """
    if unknown := links_of_their_own.keys() - {(link.source, link.destination) for link in topology.links}:
        raise BadInput(f"links={sorted(unknown)}: topology {topology.name!r} has no such links (gpus.skew = "
                       "link:FROM-TO names them)")
    ports = []
    for source, destination, card in topology.links:
        own_link = links_of_their_own.get((source, destination))
        shape = link_shape(machine, card_of(machine) if card and own_link is None else own_link)
        if own_link is None:
            shape = shape._replace(bytes_per_cycle=shape.bytes_per_cycle * topology.share)
        early, late = shape.latency_cycles // 2, shape.latency_cycles - shape.latency_cycles // 2
        if max(source, destination) >= topology.gpus:
            shape = shape._replace(latency_cycles=early if destination >= topology.gpus else late)
        shape = shape._replace(bytes_per_cycle=shape.bytes_per_cycle / planes, buffer_bytes=shape.buffer_bytes / planes)
        ports += [links.LinkPort(source, destination, shape)] * planes
    number = {(port.source, port.target): index for index, port in reversed(list(enumerate(ports)))}
    next_port = np.full((topology.nodes, topology.gpus), links.NO_PORT)
    for node, destination in np.ndindex(next_port.shape):
        if node != destination:
            with suppress(topologies.TopologyError):
                next_port[node, destination] = number[node, topology.next_hop(node, destination)]
    to_groups = np.repeat(next_port.max(axis=1, keepdims=True), groups, axis=1)
    return links.make_network(ports, np.hstack([next_port, to_groups]), groups=groups, planes=planes)


def network_at_switch(machine: Machine, gpus: int, groups: int) -> Network:
    """Make the links between a representative GPU and a switch that adds and copies, its node 1."""
    shape, latency = link_shape(machine), link_shape(machine).latency_cycles
    ports = [links.LinkPort(0, 1, shape._replace(latency_cycles=latency // 2)),
             links.LinkPort(1, 0, shape._replace(latency_cycles=latency - latency // 2))]
    return links.make_network(ports, np.repeat([[0], [1]], gpus + groups, axis=1), one_for_all=True, groups=groups)


def switch_shape(machine: Machine, planes: int = 1) -> SwitchShape:
    """Return the capacity of the machine's switches, and an addition's cycles. Raises BadInput.

    `planes`: switches that are simulated; a single one represents all of the machine's.
    """
    if machine.switch is None:
        raise BadInput(f"machine {machine.name!r} has no [switch], which a collective in the switch needs")
    hardware = machine.switch.hardware()
    return SwitchShape(hardware.merge_bytes * machine.switch.planes // planes, hardware.latency_cycles, planes)


def planes_of(machine: Machine, in_switch: bool) -> int:
    """Return the switches that are side by side where every GPU is simulated, if they add or copy."""
    return machine.switch.planes if in_switch and machine.switch else 1


def switch_of(machine: Machine, spaces: Sequence[AddressSpace], planes: int) -> SwitchState:
    """Make the switch around which the simulated devices are; one that only passes on, if it is not to add or copy."""
    schedule = spaces[0].schedule
    if not schedule.program.in_switch:
        return NO_SWITCH
    adds = schedule.program.adds
    return make_switch(
        schedule.gpus, schedule.gpus - 1 if adds else 0, np.array([space.base for space in spaces]),
        schedule.tiling.output_bytes, switch_shape(machine, planes),
        groups=tuple(tuple(map(space.group_offsets, space.groups)) for space in spaces))


def mirrored_network(machine: Machine, topology: topologies.Topology, device: int) -> Network:
    """Make the ports of a representative GPU.

    Each link brings what the GPU sends that comes as far before it.
    """
    every_link = network_of(machine, topology, {})
    out = links.outgoing(every_link, device)
    ports = [links.LinkPort(0, 0, link_shape(machine)._replace(bytes_per_cycle=float(every_link.bytes_per_cycle[port])))
             for port in out]
    next_port = np.searchsorted(out, np.maximum(every_link.next_port[[device]], out[0]))
    return links.make_network(ports, next_port, one_for_all=True)


def copy_units(machine: Machine, operator: Copy, stream: int) -> ComputeUnits:
    """Compute units at the start of a copy kernel; `stream` as for `make_units`."""
    return make_units(unit_rates(machine, machine.collective.workgroups_per_cu),
                      [operator.work(device) for device in range(len(operator.passes))], stream)


def late_starts(devices: int, latest_cycle: int, seed: int) -> tuple[int, ...]:
    """Draw `Plan.start_cycles` from 0 to `latest_cycle`."""
    return tuple(np.random.default_rng(seed).integers(0, latest_cycle + 1, devices).tolist())


def machine_state(machine: Machine, kernel: ComputeUnits, network: Network,
                  downstream: Sequence[int] | Sequence[Sequence[int]], signals: int = 0) -> Sim:
    """Make the state at cycle 0 of simulated GPUs without hardware that run a kernel.

    `downstream`: of each, the device to which its stores to the neighbour go, or those to each peer; `signals`: for
    which its workgroups wait.
    """
    devices, slots = kernel.shape
    geometry: Geometry = machine.geometry()
    llc, ports = machine.llc, len(network.free_time)

    def each() -> np.ndarray:
        return np.zeros(devices, np.int64)
    region_ports = np.full((devices, geometry.dma.regions, geometry.dma.copies), links.NO_PORT)
    region_ports[:, :, 0] = np.array([links.outgoing(network, device)[0] for device in range(devices)])[:, None]
    mem = memory.make_memory(geometry, machine.dram, _memory_cache(machine, devices),
                             round(llc.fill_latency_ns * machine.memory_clock_ghz), region_ports, ports)
    control = Control(
        events=np.zeros((devices, 1, 1), np.int32),
        event_count=each(), rs_end=each(), rs_start=np.full(devices, -1, np.int64), progress=np.zeros(2, np.int64),
        downstream=np.array(downstream, np.int64).reshape(devices, -1),
        picks_ports=np.zeros(devices, bool), inside=np.zeros(ports, np.int64), start=each(), blocked_cycles=each(),
        signals=np.zeros((devices, 1 + signals), np.int64), halt=np.zeros(1, np.int64))
    return Sim(
        b=mem.b, mem=mem,
        llc=make_llc(devices, llc.size_bytes, llc.line_bytes, llc.ways, slots, llc.replacement,
                     make_slices(devices, llc.slices, geometry.channel.channels, llc.slice_queue_loads,
                                 _slice_cycles(machine)),
                     parts=llc.parts, part_units=machine.gpu.compute_units // llc.parts),
        stores_out=queues.timed_queue(ports, machine.link.stores_bytes // LINE_BYTES + 1),
        store_limit=-(-machine.link.stores_bytes // LINE_BYTES // network.planes), network=network, switch=NO_SWITCH,
        hardware_stream=memory.EXCHANGE, expected_events=each(),
        control=control, chaos=make_chaos(devices, 0, 0.0, 0), kernel=kernel, hardware=None)


def _slice_cycles(machine: Machine) -> float:
    """Return the cycles that a slice of the cache takes for a line, 0 without slices."""
    llc = machine.llc
    return llc.slices * llc.line_bytes / llc.bandwidth_bytes_per_ns * machine.memory_clock_ghz


def _memory_cache(machine: Machine, devices: int) -> MemoryCache:
    """Make the slices of the machine's memory-side cache, if it has one."""
    cache, channels, clock = machine.memory_cache, machine.channels.count, machine.memory_clock_ghz
    if cache is None:
        return NO_MEMORY_CACHE
    return make_memory_cache(
        devices * channels, cache.sets(channels), cache.ways, cache.requests,
        line_cycles=channels * LINE_BYTES / cache.bandwidth_bytes_per_ns * clock,
        hit_cycles=round(cache.hit_latency_ns * clock), fill_cycles=round(cache.fill_latency_ns * clock),
        policy=cache.replacement)


def _most_ids(spaces: Sequence[AddressSpace]) -> int:
    return max(1, *(space.schedule.rows(space.device).ids for space in spaces))


def memory_bytes(machine: Machine) -> int:
    """Return the bytes of a GPU's memory that the hardware's addresses reach."""
    return min(machine.channels.count * machine.dram.channel_bytes, 1 << machine.geometry().tracker.address_bits)


def table_sim(machine: Machine, table: KernelTable) -> Sim:
    """Make the state at cycle 0 of one GPU that runs a custom kernel. Raises KernelError."""
    geometry, places = machine.geometry(), resident(machine, table.resources)
    check_alone(table, memory_bytes(machine), {"id": (1 << geometry.tracker.wg_bits) - 1,
                                      "wavefront": (1 << geometry.tracker.wf_bits) - 1},
                machine.gpu.compute_units * places)
    kernel = make_units(unit_rates(machine, places), [table], memory.COMPUTE)
    return machine_state(machine, kernel, loop_network(machine), [0], len(table.signals))


def _alone(machine: Machine, workload: Workload, tiling: Tiling, work: KernelTable) -> KernelTable:
    """Complete a kernel that no hardware helps: one with K in parts is followed by the kernel that adds them."""
    if machine.gpu.k_parts == 1:
        return work
    at, launch_cycles = Addresses.of(workload, tiling), machine.collective.kernel_launch_ns * machine.memory_clock_ghz
    return parts_added(work, tiling, at.c, at.copies, launch_cycles)


def _fused(work: KernelTable, space: AddressSpace, tiling: Tiling) -> KernelTable:
    """Let a device's compute units store as its schedule says, tile by tile or column by column."""
    return fused_work(work, space, tiling) if space.schedule.placement is None else scattered_work(work, space)


def make_sim(plan: Plan, *, spaces: Sequence[AddressSpace] = (), mirrored: bool = True,
             hardware: Hardware | None = None) -> Sim:
    """Make the state at cycle 0 of a GEMM. Raises BadInput.

    `spaces`: one per simulated device of a fused run, else empty.
    """
    machine, workload = plan.machine, plan.workload
    devices, fused = max(1, len(spaces)), bool(spaces)
    starts = plan.start_cycles or (0,) * devices
    if len(starts) != devices or min(starts) < 0:
        raise BadInput(f"start_cycles={starts} is not possible: {devices} numbers of at least 0 are needed, one for "
                       "each simulated GPU")
    tiling = make_tiling(machine, workload) if not fused or spaces[0].schedule.placement is None else (
        spaces[0].schedule.tiling)
    if plan.gathers:
        tables = [_gathering(machine, workload, space) for space in spaces]
    else:
        at = 0 if fused else Addresses.of(workload, tiling).c
        operator = plan.operator(machine, workload, tiling, at)
        gpu = busiest(machine, workload) if plan.gpu is None else plan.gpu
        tables = [_fused(operator.work(space.device), space, tiling) for space in spaces] or [
            _alone(machine, workload, tiling, operator.work(gpu))]
    if fused and any(len(table.signals) for table in tables):
        raise KernelError("signals: a kernel that Track & Trigger sends for has none, it waits by the dispatch window")
    kernel = make_units(unit_rates(machine, resident(machine, tables[0].resources)), tables, memory.COMPUTE)
    for device, condition in plan.conditions.items():
        set_condition(kernel, device, condition)
    if not fused:
        network = loop_network(machine)
    elif mirrored and spaces[0].schedule.program.in_switch:
        network = network_at_switch(machine, spaces[0].schedule.gpus, len(spaces[0].groups))
    elif mirrored:
        network = mirrored_network(machine, spaces[0].schedule.topology, spaces[0].device)
    else:
        network = network_of(machine, spaces[0].schedule.topology, plan.links,
                             max(len(space.groups) for space in spaces),
                             planes_of(machine, spaces[0].schedule.program.in_switch))
    sim = machine_state(machine, kernel, network, [0] if mirrored else [space.peers[0] for space in spaces],
                        len(tables[0].signals))
    sim.control.start[:] = starts
    if not fused:
        return sim
    for d, space in enumerate(spaces):
        sim.expected_events[d] = space.schedule.wf_tiles(space.device, Action.EVENT)
        for number, region in enumerate(space.regions, start=1):
            ways = region.destinations[:1] if region.destinations in space.groups else region.destinations
            for copy, to in enumerate(ways):
                sim.mem.region_ports[d, number, copy] = network.next_port[d, to.gpu]
        sim.control.picks_ports[d] = len(set(network.next_port[d, list(space.peers)])) * network.planes > 1
    if mirrored:
        network = network._replace(mirrored=True, mirror=make_mirror(
            spaces[0].schedule, spaces[0].device, spaces[0].base, spaces[0].table.arrivals))
    return sim._replace(
        network=network,
        control=sim.control._replace(
            events=np.zeros((devices, _most_ids(spaces), spaces[0].schedule.tiling.wavefronts), np.int32)),
        hardware=hardware, switch=switch_of(machine, spaces, network.planes),
        chaos=make_chaos(devices, plan.seed, plan.hold_back, plan.link_jitter_cycles))
