"""A GEMM and its reduce-scatter that overlap as kernels on compute units, without Track & Trigger: one GPU for all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.gpu.agents.compute_units import make_units
from t3sim.gpu.agents.side_by_side import SideBySide
from t3sim.gpu.agents.units.state import UnitState, settle
from t3sim.gpu.engine.loop import Lockstep
from t3sim.gpu.engine.state import Sim
from t3sim.gpu.fabric import memory
from t3sim.gpu.fabric.network import Network
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology
from t3sim.mechanisms.decomposed import split_gemm, units_left
from t3sim.mechanisms.flux import FluxOptions, Owners, peers_of, storing_kernel
from t3sim.mechanisms.flux_gather import Arrivals, pushed_rows, waiting_gemm
from t3sim.mechanisms.fused_wg import FusedOptions, sending_kernel
from t3sim.runs import build
from t3sim.runs.failure import to_end
from t3sim.runs.operators import make_operator, resident
from t3sim.runs.phases import Moved, bytes_by_phase
from t3sim.runs.program_kernels import ring_plan
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import GemvWorkload, Workload


@dataclass(frozen=True)
class OverlappedKernels:
    """A GEMM and the kernels of its reduce-scatter on one GPU; memory cycles from the GEMM's first workgroup."""

    gemm_cycles: int  #: until the last workgroup has finished
    cycles: int  #: until the last sum is stored
    collective_start: int  #: cycle of its first kernel's first workgroup
    launch_cycles: int  #: while units wait for a launch, between GEMMs or before the reduction
    dram: dict[str, Moved]  #: by phase
    unit_cycles: tuple[int, ...]  #: of the GEMM's places: per state, all of them
    waited: tuple[int, ...]  #: requests served while the GEMM's reads waited, per purpose
    places: int  #: workgroups of the GEMM that run at once
    simulated_cycles: int
    collective_end: int = 0  #: of one before the GEMM: when all copies are in the link's buffer
    reduction_cycles: int = 0  #: of a kernel that adds what came, after all of it has come
    host_seconds: float = field(default=0.0, compare=False)


def decomposed_sim(machine: Machine, workload: Workload, communication_units: int) -> Sim:
    """Make the state at cycle 0 of a GEMM that is split into one for each chunk of a ring reduce-scatter.

    The reduce-scatter's kernels have `communication_units` of the compute units. Raises BadInput.
    """
    left = units_left(machine.gpu.compute_units, communication_units)
    tiling = build.make_tiling(machine, workload)
    at = build.Addresses.of(workload, tiling)
    launch_cycles = machine.collective.kernel_launch_ns * machine.memory_clock_ghz
    plan = ring_plan("reduce-scatter", workload.tp, workload.output_bytes, at.c, at.copies)
    gemm = build.gemm_operator(machine, workload, tiling)
    split = split_gemm(gemm, plan.order, launch_cycles)
    scatter = build.planned_copy(machine, [plan])
    rates = build.unit_rates(machine, resident(machine, gemm.resources))._replace(units=left)
    own = build.unit_rates(machine, machine.collective.workgroups_per_cu)._replace(units=communication_units)
    pair = SideBySide(
        make_units(rates, [split], memory.COMPUTE),
        make_units(own, [scatter.work(0)], memory.EXCHANGE, released=True),
        after=np.arange(1, workload.tp + 1), launch_cycles=round(launch_cycles))
    return build.machine_state(machine, pair, build.loop_network(machine), [0])


def run_decomposed(machine: Machine, workload: Workload, communication_units: int,
                   progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end. Raises BadInput and SimulationError."""
    sim, now = _to_its_end("decomposed GEMM", decomposed_sim(machine, workload, communication_units), progress)
    gemm, scatter = sim.kernel.first, sim.kernel.second
    return OverlappedKernels(
        **_of_the_gemm(sim, gemm.state, 0), cycles=int(scatter.state.phase_over[0, -1]),
        collective_start=int(gemm.state.phase_over[0, 0]) + sim.kernel.launch_cycles,
        launch_cycles=(workload.tp - 1) * gemm.work.phase_launch_cycles, simulated_cycles=now)


def flux_sim(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology) -> Sim:
    """Make the state at cycle 0 of a GEMM whose epilogue stores at the owners, and of the reduction after it.

    It is that of one GPU that stands for all, or of all of them. Raises BadInput.
    """
    tiling = build.make_tiling(machine, workload)
    at, gemm = build.Addresses.of(workload, tiling), build.gemm_operator(machine, workload, tiling)
    owners = Owners(tiling.n, workload.tp, tiling.pitch_bytes, at.c, at.copies)
    ranks = [0] if options.mirrored else range(workload.tp)
    reductions = [build.copy_kernel(machine, [[owners.reduction(rank)]], owners.chunk_bytes(rank)) for rank in ranks]
    pair = SideBySide(
        make_units(build.unit_rates(machine, resident(machine, gemm.resources)),
                   [storing_kernel(gemm.work(0), owners, rank, options) for rank in ranks], memory.COMPUTE,
                   peer_stream=memory.EXCHANGE),
        make_units(build.unit_rates(machine, machine.collective.workgroups_per_cu),
                   [reduction.work(0) for reduction in reductions], memory.EXCHANGE, released=True),
        after=np.ones(1, np.int64), launch_cycles=round(machine.collective.kernel_launch_ns * machine.memory_clock_ghz))
    return build.machine_state(machine, pair, _network(machine, topology, options.mirrored),
                               [peers_of(rank, workload.tp) for rank in ranks])


def run_flux(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology,
             progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end; of several GPUs the last one counts. Raises BadInput and SimulationError."""
    sim, now = _to_its_end("GEMM that stores at the owners", flux_sim(machine, workload, options, topology), progress)
    ends, launch = sim.kernel.second.state.phase_over[:, 0], sim.kernel.launch_cycles
    last = int(np.argmax(ends))
    arrived = int(sim.kernel.first.state.phase_over[last, 0])
    return OverlappedKernels(
        **_of_the_gemm(sim, sim.kernel.first.state, last),
        cycles=int(ends[last]), collective_start=int(sim.control.rs_start[last]),
        launch_cycles=launch, simulated_cycles=now, reduction_cycles=int(ends[last]) - arrived - launch)


def gathering_sim(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology) -> Sim:
    """Make the state at cycle 0 of a GEMM whose workgroups wait for their tokens, and of engines that push these.

    It is that of one GPU that stands for all, or of all of them. Raises BadInput.
    """
    tiling = build.make_tiling(machine, workload)
    gemm = build.gemm_operator(machine, workload, tiling)
    rows = Owners(workload.m, workload.tp, gemm.b.pitch, gemm.b.base, 0)
    ranks = [0] if options.mirrored else range(workload.tp)
    come = [Arrivals(rows, rank, options) for rank in ranks]
    launch = round(machine.collective.kernel_launch_ns * machine.memory_clock_ghz)
    engines = make_units(build.engine_rates(machine), [pushed_rows(come, rank) for rank in ranks], memory.OTHER,
                         released=True)
    units = make_units(build.unit_rates(machine, resident(machine, gemm.resources)),
                       [waiting_gemm(gemm, one) for one in come], memory.COMPUTE)
    pair = SideBySide(
        units, engines, after=np.zeros(engines.work.arrivals.shape[1], np.int64), launch_cycles=launch)
    return build.machine_state(machine, pair, _network(machine, topology, options.mirrored),
                               [peers_of(rank, workload.tp) for rank in ranks], units.work.signals.shape[1] - 1)


def run_gathering(machine: Machine, workload: Workload, options: FluxOptions, topology: Topology,
                  progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end; of several GPUs the last one counts. Raises BadInput and SimulationError."""
    sim, now = _to_its_end("GEMM that waits for its tokens", gathering_sim(machine, workload, options, topology),
                           progress)
    gemm = sim.kernel.first.state
    last = int(np.argmax(gemm.finish_time))
    return OverlappedKernels(
        **_of_the_gemm(sim, gemm, last), cycles=int(gemm.finish_time[last]),
        collective_start=int(sim.control.rs_start[last]), launch_cycles=0, simulated_cycles=now,
        collective_end=int(sim.kernel.second.state.phase_over[last, -1]))


def sending_sim(machine: Machine, workload: Workload, topology: Topology,
                options: FusedOptions = FusedOptions()) -> Sim:
    """Make the state at cycle 0 of a persistent kernel that makes an output and stores it at its owners.

    `workload`: what a GPU makes. It is that of one GPU that stands for all, or of all of them. Raises BadInput.
    """
    tiling = build.make_tiling(machine, workload)
    at = build.Addresses.of(workload, tiling)
    work, owners = make_operator(machine, workload, tiling, at.c).work(0), owners_of(workload, tiling, at)
    ranks = [0] if options.mirrored else range(workload.tp)
    tables = [sending_kernel(work, owners, rank, machine.llc.hit_latency_ns * machine.memory_clock_ghz, options)
              for rank in ranks]
    units = make_units(build.unit_rates(machine, resident(machine, tables[0].resources)), tables, memory.COMPUTE,
                       peer_stream=memory.EXCHANGE)
    return build.machine_state(machine, units, _network(machine, topology, options.mirrored),
                               [peers_of(rank, workload.tp) for rank in ranks], len(tables[0].signals))


def owners_of(workload: Workload, tiling: Tiling, at: build.Addresses) -> Owners:
    """Return who owns which tokens of an output; of a vector, which tiles. Raises BadInput."""
    if not isinstance(workload, GemvWorkload):
        return Owners(tiling.n, workload.tp, tiling.pitch_bytes, at.c, at.copies)
    if tiling.tiles < workload.tp:
        raise BadInput(f"M = {workload.m} of a GEMV cannot be shared by {workload.tp} GPUs: {tiling.tile_m} rows each "
                       "are needed")
    return Owners(tiling.tiles, workload.tp, tiling.tile_m * tiling.element_bytes, at.c, at.copies)


def run_sending(machine: Machine, workload: Workload, topology: Topology, options: FusedOptions = FusedOptions(),
                progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate such a kernel to its end; `workload`: what a GPU makes. Raises BadInput and SimulationError.

    Of several GPUs the last one counts.
    """
    sim, now = _to_its_end("kernel that sends", sending_sim(machine, workload, topology, options), progress)
    units = sim.kernel
    ends = units.state.phase_over[:, -1]
    last = int(np.argmax(ends))
    return OverlappedKernels(
        **_of_the_gemm(sim, units.state, last), cycles=int(ends[last]),
        collective_start=int(sim.control.rs_start[last]), launch_cycles=0, simulated_cycles=now)


def _network(machine: Machine, topology: Topology, mirrored: bool) -> Network:
    """Make the links of one GPU that stands for all, or of all of them."""
    return build.mirrored_network(machine, topology, 0) if mirrored else build.network_of(machine, topology, {})


def _to_its_end(name: str, sim: Sim, progress: Callable[[float], None]) -> tuple[Sim, int]:
    """Run to the end; return the state there and the cycles."""
    run = Lockstep(sim)
    kernel = run.sim.kernel
    kernels = (kernel.first, kernel.second) if isinstance(kernel, SideBySide) else (kernel,)
    total = sum(int(one.work.workgroups.sum()) for one in kernels)
    to_end(run, name, lambda: progress(min(0.99, sum(float(one.state.finished.sum()) for one in kernels) / total)))
    return run.sim, run.now


def _of_the_gemm(sim: Sim, gemm: UnitState, device: int) -> dict[str, Any]:
    """Return what is known of a device's GEMM, and of its memory."""
    settle(gemm, device, int(gemm.finish_time[device]))
    return {"gemm_cycles": int(gemm.finish_time[device]), "dram": bytes_by_phase(sim.mem, device),
            "unit_cycles": tuple(gemm.accounted[device].tolist()), "waited": tuple(sim.mem.waited[device].tolist()),
            "places": gemm.state.shape[1]}
