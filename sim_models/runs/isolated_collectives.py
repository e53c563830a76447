"""Collectives alone: on the whole GPU or on some of its compute units, one GPU for all (mirrored) or all of them.

The T3 paper's section 5.1.1 (figures 13 and 14), the baselines of section 5.3, and the CU sharing of figure 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.collectives import Program
from t3sim.gpu.agents.compute_units import ComputeUnits, set_condition
from t3sim.gpu.engine.loop import Lockstep
from t3sim.gpu.fabric import memory
from t3sim.gpu.fabric.state import SwitchState
from t3sim.gpu.fabric.switch import make_switch
from t3sim.gpu.setup import Condition, CopyTarget
from t3sim.gpu.state import Sim
from t3sim.machine import Machine, topologies
from t3sim.machine.formats import BF16
from t3sim.machine.links import LinkSection
from t3sim.machine.topologies import Topology
from t3sim.runs import build
from t3sim.runs.exchange import COMBINE, DISPATCH
from t3sim.runs.failure import to_end
from t3sim.runs.kernel_results import IsolatedKernel, Progress
from t3sim.runs.phases import bytes_by_phase
from t3sim.runs.program_kernels import (
    EXCHANGE,
    KINDS,
    SWITCH_KINDS,
    LevelPlan,
    Places,
    combining_passes,
    exchange_passes,
    packing_passes,
    ring_program,
    uneven_passes,
)
from t3sim.runs.switch_kernels import switched_sim
from t3sim.workload.workloads import DEVICES, DispatchWorkload, ExpertsWorkload


def with_compute_units(machine: Machine, compute_units: int) -> Machine:
    """Return the machine with another number of compute units (T3 paper, section 3.2.1). Raises BadInput."""
    if compute_units < 1:
        raise BadInput(f"{compute_units} compute units cannot run a kernel: at least 1 is needed")
    content = machine.model_dump()
    content["gpu"]["compute_units"] = compute_units
    return Machine.model_validate(content)


def collective_sim(machine: Machine, size_bytes: int, devices: int, kind: str, mirrored: bool = True,
                   links: Mapping[tuple[int, int], LinkSection] = MappingProxyType({}),
                   conditions: Mapping[int, Condition] = MappingProxyType({})) -> Sim:
    """Make the state at cycle 0 of a collective on an array of `size_bytes`; arguments as for `run_collective`."""
    kinds = (*KINDS, EXCHANGE, *SWITCH_KINDS)
    if kind not in kinds:
        raise BadInput(f"collective {kind!r} is unknown: allowed are {', '.join(kinds)}")
    if devices not in DEVICES:
        raise BadInput(f"{devices!r} GPUs cannot form the ring: allowed are {DEVICES.start} to {DEVICES.stop - 1}")
    if size_bytes < 1:
        raise BadInput(f"an array of {size_bytes} bytes cannot be reduced or gathered")
    if kind in SWITCH_KINDS:
        return switched_sim(machine, size_bytes, devices, kind)
    copies = -(-size_bytes // (1 << 20)) + devices << 20
    if kind == EXCHANGE:
        if not mirrored or links or conditions:
            raise BadInput("an all-to-all alone has a representative GPU: no GPU or link can be slower than the "
                           "others")
        chunk_bytes = -(-size_bytes // devices)
        passes = exchange_passes(devices, chunk_bytes, 0, copies)
        kernel = build.copy_units(machine, build.copy_kernel(machine, passes, chunk_bytes), memory.EXCHANGE)
        return build.machine_state(machine, kernel, build.loop_network(machine), [0])
    program, first = ring_program(kind, devices)
    at = Places(-(-size_bytes // devices), 0, copies)
    ranks = [(first + device) % devices for device in range(1 if mirrored else devices)]
    plans = [LevelPlan(program, rank, at, KINDS[kind], mirrored) for rank in ranks]
    network = build.loop_network(machine) if mirrored else build.network_of(machine, topologies.ring(devices), links)
    downstream = [0] if mirrored else [[(peer - first) % devices for peer in plan.peers] for plan in plans]
    sim = build.machine_state(machine, _units(machine, plans, kind), network, downstream)
    for device, condition in conditions.items():
        set_condition(sim.kernel, device, condition)
    return sim


def program_sim(machine: Machine, size_bytes: int, kind: str, program: Program, topology: Topology) -> Sim:
    """Make the state at cycle 0 of a collective by any program; `kind`: of `program_kernels.KINDS`.

    One GPU stands for all where they are alike and none passes on what others send, else every GPU is simulated.
    """
    plans = program_plans(-(-size_bytes // program.chunks), kind, program, alike(program, topology))
    return planned_sim(machine, plans, kind, topology)


def program_plans(chunk_bytes: int, kind: str, program: Program, alone: bool) -> list[LevelPlan]:
    """Plan a collective by any program on chunks of this size; `alone`: on a representative GPU."""
    at = Places(chunk_bytes, 0, 0)
    at = at._replace(copies=-(-at.chunk(max(map(len, program.rank_chunks))) // (1 << 20)) << 20)
    return [LevelPlan(program, rank, at, KINDS[kind], alone) for rank in ([0] if alone else range(program.ranks))]


def planned_sim(machine: Machine, plans: Sequence[LevelPlan], kind: str, topology: Topology,
                links: Mapping[tuple[int, int], LinkSection] = MappingProxyType({})) -> Sim:
    """Make the state at cycle 0 of a collective that is planned, over `links` where they are not the machine's."""
    copied = [plan.copied_to for plan in plans]
    network = (build.mirrored_network(machine, topology, 0) if plans[0].mirrored
               else build.network_of(machine, topology, links, int(any(copied)),
                                     build.planes_of(machine, plans[0].program.in_switch)))
    sim = build.machine_state(machine, _units(machine, plans, kind), network, [plan.peers for plan in plans])
    return sim._replace(switch=_switch(machine, plans, copied)) if plans[0].program.in_switch else sim


def _switch(machine: Machine, plans: Sequence[LevelPlan], copied: Sequence[list[tuple[int, int]]]) -> SwitchState:
    """Make the switch around which GPUs with these plans are; `copied`: as `LevelPlan.copied_to`, of each."""
    program = plans[0].program
    return make_switch(program.ranks, program.ranks - 1 if program.adds else 0, np.array([
        plan.at.chunk(program.rank_chunks[plan.rank].index(plan.rank)) for plan in plans]), plans[0].at.chunk_bytes,
        build.switch_shape(machine, build.planes_of(machine, True)),
        groups=tuple((tuple(CopyTarget(device, offset, 0) for device, offset in one),) if one else ()
                     for one in copied))


def alike(program: Program, topology: Topology) -> bool:
    """Say whether one GPU can stand for all: they do the same, no message goes through another GPU, none is added."""
    return not program.in_switch and program.invariant_under_shift() and topology.invariant_under_shift() and all(
        node >= topology.gpus for one in program.transfers
        for _, node in topology.way(one.source, one.destination)[:-1])


def _units(machine: Machine, plans: Sequence[LevelPlan], kind: str) -> ComputeUnits:
    return build.copy_units(machine, build.planned_copy(machine, plans),
                            memory.OTHER if kind == "all-gather" else memory.EXCHANGE)


def run_collective(machine: Machine, size_bytes: int, devices: int, kind: str, mirrored: bool = True,
                   progress: Progress = lambda fraction: None,
                   links: Mapping[tuple[int, int], LinkSection] = MappingProxyType({}),
                   conditions: Mapping[int, Condition] = MappingProxyType({})) -> IsolatedKernel:
    """Simulate a collective on the machine's compute units: around a ring, an all-to-all directly, or in a switch.

    `size_bytes` is the whole array (before a reduce-scatter, after an all-gather), `kind` reduce-scatter,
    reduce-scatter-nmc, all-gather, all-to-all or one of `SWITCH_KINDS`. Mirrored: one GPU stands for all; else
    every GPU is simulated, over `links` (of source and destination) where they are not the machine's. Raises BadInput.
    """
    return run_kernel(machine, collective_sim(machine, size_bytes, devices, kind, mirrored, links, conditions),
                      kind, progress)


def run_experts(machine: Machine, workload: ExpertsWorkload, topology: Topology,
                progress: Progress = lambda fraction: None,
                links: Mapping[tuple[int, int], LinkSection] = MappingProxyType({}),
                conditions: Mapping[int, Condition] = MappingProxyType({})) -> IsolatedKernel:
    """Simulate, on every GPU, the kernel that brings tokens to their experts, or what these make to the tokens' owners.

    There it is added up. `links` and `conditions`: what is not the machine's.
    """
    ranks, row_bytes = workload.tp, workload.exchanged_elements * workload.format.bytes
    first = isinstance(workload, DispatchWorkload)
    parts = workload.between if first else workload.between.T
    received = -(-int(parts.max()) * ranks * row_bytes // (1 << 20)) + 1 << 20
    passes = (uneven_passes(parts, row_bytes, 0, received) if first else
              combining_passes(parts, row_bytes, workload.per_token, 0, received))
    kernel = build.copy_units(machine, build.copy_kernel(machine, passes, 0), memory.EXCHANGE)
    others = [[peer for peer in range(ranks) if peer != rank] for rank in range(ranks)]
    for device, condition in conditions.items():
        set_condition(kernel, device, condition)
    sim = build.machine_state(machine, kernel, build.network_of(machine, topology, links), others)
    return run_kernel(machine, sim, DISPATCH if first else COMBINE, progress)


def packing_sim(machine: Machine, workload: DispatchWorkload) -> Sim:
    """Make the state at cycle 0 of the kernel that copies a GPU's tokens to where a dispatch sends them from.

    A workgroup reads one, in 16 bits or more, and stores it, in the bits that are sent, for each of its experts.
    """
    token = workload.exchanged_elements * workload.format.bytes
    own_bytes = workload.m // workload.tp * token
    reads = max(1, BF16.bytes // workload.format.bytes)
    packed = -(-own_bytes * reads // (1 << 20)) + 1 << 20
    passes = packing_passes(own_bytes, workload.per_token, reads, 0, packed)
    copying = replace(build.copy_kernel(machine, [passes], own_bytes), workgroup_bytes=token * workload.per_token)
    return build.machine_state(machine, build.copy_units(machine, copying, memory.EXCHANGE),
                               build.loop_network(machine), [0])


def run_program(machine: Machine, size_bytes: int, kind: str, program: Program, topology: Topology,
                progress: Progress = lambda fraction: None) -> IsolatedKernel:
    """Simulate a collective by any program to its end; arguments as for `program_sim`. Raises Failure."""
    return run_kernel(machine, program_sim(machine, size_bytes, kind, program, topology), kind, progress)


def run_kernel(machine: Machine, sim: Sim, kind: str, progress: Progress) -> IsolatedKernel:
    """Simulate a collective's kernel to its end; `kind`: what a message calls it. Raises Failure."""
    run, clock = Lockstep(sim), machine.memory_clock_ghz
    ends = run.sim.kernel.state.phase_over
    to_end(run, f"isolated {kind}",
           lambda: progress(min(0.99, float(run.sim.kernel.state.phase.min()) / ends.shape[1])))
    last = np.flatnonzero(sim.kernel.work.arrivals.any(axis=0))[-1]  # pass of which something comes
    return IsolatedKernel(run.now / clock + machine.collective.kernel_launch_ns, run.now, bytes_by_phase(run.sim.mem),
                          exchange_ns=int(ends[:, last].max()) / clock)
