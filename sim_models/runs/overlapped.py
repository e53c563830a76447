"""A GEMM and its reduce-scatter that overlap as kernels on compute units, without Track & Trigger: one GPU for all."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..agents.compute_units import make_units, settle
from ..agents.side_by_side import SideBySide
from ..collectives import ring
from ..engine.end import IDLE_LIMIT, RUNNING, STUCK
from ..engine.loop import Lockstep
from ..engine.state import Sim
from ..fabric import memory
from ..machine import Machine
from ..mechanisms import baseline
from ..mechanisms.decomposed import split_gemm, units_left
from ..workloads import Workload
from . import build
from .failure import SimulationError

BATCH_CYCLES = 200_000  #: between looks at progress


@dataclass(frozen=True)
class OverlappedKernels:
    """A GEMM and the kernels of its reduce-scatter on one GPU; memory cycles from the GEMM's first workgroup."""

    gemm_cycles: int  #: until the last workgroup has finished
    cycles: int  #: until the last sum is stored
    collective_start: int  #: cycle of its first kernel's first workgroup
    launch_cycles: int  #: between GEMMs, while units wait for a launch
    dram: dict[str, int]
    unit_cycles: tuple[int, ...]  #: of the GEMM's places: per state, all of them
    waited: tuple[int, ...]  #: requests served while the GEMM's reads waited, per purpose
    places: int  #: workgroups of the GEMM that run at once
    simulated_cycles: int
    host_seconds: float = field(default=0.0, compare=False)


def decomposed_sim(machine: Machine, workload: Workload, communication_units: int) -> Sim:
    """State at cycle 0 of a GEMM that is split into one for each chunk of a ring reduce-scatter, whose kernels have
    `communication_units` of the compute units. Raises BadInput."""
    left = units_left(machine.gpu.compute_units, communication_units)
    tiling = build.make_tiling(machine, workload)
    at = build.Addresses.of(workload, tiling)
    launch_cycles = machine.collective.kernel_launch_ns * machine.memory_clock_ghz
    steps = baseline.plan_steps(ring.reduce_scatter(workload.tp, step=1), mirrored=True)
    split = split_gemm(build.gemm_operator(machine, workload, tiling), steps.sends[0].tolist(), launch_cycles)
    scatter = build.ring_copy(machine, workload.output_bytes, steps, "reduce-scatter", at.c, at.copies)
    rates = build.unit_rates(machine, machine.gpu.workgroups_per_cu)._replace(units=left)
    own = build.unit_rates(machine, machine.collective.workgroups_per_cu)._replace(units=communication_units)
    pair = SideBySide(
        make_units(rates, [split], memory.GEMM),
        make_units(own, [scatter.work(0)], memory.REDUCE_SCATTER, released=True),
        after=np.arange(1, workload.tp + 1), launch_cycles=round(launch_cycles))
    return build.machine_state(machine, pair, build.loop_network(machine), [0])


def run_decomposed(machine: Machine, workload: Workload, communication_units: int,
                   progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end. Raises BadInput and SimulationError."""
    run = Lockstep(decomposed_sim(machine, workload, communication_units))
    gemm, scatter = run.sim.kernel.first, run.sim.kernel.second
    total = int(gemm.work.workgroups[0] + scatter.work.workgroups[0])
    while (state := run.advance(BATCH_CYCLES)) == RUNNING:
        progress(min(0.99, float(gemm.state.finished[0] + scatter.state.finished[0]) / total))
    if state == STUCK:
        raise SimulationError(f"the decomposed GEMM did not move for {IDLE_LIMIT} cycles")
    settle(gemm.state, 0, run.now)
    first_over = int(gemm.state.phase_over[0, 0])
    return OverlappedKernels(
        gemm_cycles=int(gemm.state.finish_time[0]), cycles=int(scatter.state.phase_over[0, -1]),
        collective_start=first_over + run.sim.kernel.launch_cycles,
        launch_cycles=(workload.tp - 1) * gemm.work.phase_launch_cycles,
        dram=memory.bytes_by_purpose(run.sim.mem), unit_cycles=tuple(gemm.state.accounted[0].tolist()),
        waited=tuple(run.sim.mem.waited[0].tolist()), places=gemm.state.state.shape[1], simulated_cycles=run.now)
