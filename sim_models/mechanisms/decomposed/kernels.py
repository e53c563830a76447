"""Medium-grained overlap: a GEMM cut into one GEMM per chunk of its reduce-scatter, each a kernel of its own.

The GEMMs run one after the other in the order in which the ring sends the chunks. When one has ended, a kernel on other
compute units adds what came for its chunk and stores the sum at the neighbour; the next GEMM runs meanwhile. That a
split GEMM is slower (launches, a last wave for each, units that communication has) follows from the tables.
Sources: Flux (arXiv 2406.06858), section 2.2 and figure 3; TransformerEngine 1.x, which it compares with: a chunk's
reduce-scatter is a kernel on 16 multiprocessors (`num_sm=16` in transformer_engine/pytorch/module/base.py), and GEMMs
of a reduce-scatter do not run side by side. There the chunks are scattered by a kernel that pulls; the ring of the
baseline's kernels is taken here, so that baseline and decomposition differ in nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.mechanisms import losses
from t3sim.mechanisms.parts import only_a_reduce_scatter, overlapped, watched, watched_beside
from t3sim.mechanisms.result import TechniqueResult
from t3sim.mechanisms.technique import Technique
from t3sim.runs.kernel_results import IsolatedKernel, KernelResult, OverlappedKernels, Progress
from t3sim.runs.kernels import ALL_GATHER, GEMM, Kernel
from t3sim.runs.operators import Addresses, gemm_operator, make_tiling, resident
from t3sim.runs.plan import Plan
from t3sim.runs.program_kernels import ring_plan
from t3sim.workload.operators.gemm import Gemm, Matrix
from t3sim.workload.operators.in_turn import in_turn
from t3sim.workload.operators.kernel_table import KernelTable
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    from t3sim.gpu.state import Sim

COMMUNICATION_UNITS = 16  #: TransformerEngine's


def units_left(compute_units: int, communication_units: int) -> int:
    """Count the compute units that communication leaves to the GEMM. Raises BadInput."""
    if not 1 <= communication_units < compute_units:
        raise BadInput(f"decomposed.communication_units = {communication_units} of {compute_units} compute units is "
                       f"not possible: 1 to {compute_units - 1}")
    return compute_units - communication_units


def split_gemm(gemm: Gemm, order: Sequence[int], launch_cycles: float) -> KernelTable:
    """Build the GEMMs of as many chunks of columns (tokens) as `order` names, in that order.

    Each is launched when the one before has ended. Raises BadInput for fewer columns than chunks.
    """
    columns, chunks = gemm.tiling.n, len(order)
    if columns < chunks:
        raise BadInput(f"M = {columns} cannot be split into {chunks} GEMMs: a row each is needed")
    edges = [columns * chunk // chunks for chunk in range(chunks + 1)]
    return in_turn([_columns(gemm, edges[chunk], edges[chunk + 1]).work(0) for chunk in order], launch_cycles)


def _columns(gemm: Gemm, first: int, end: int) -> Gemm:
    """Return the GEMM of some of the columns."""
    return replace(gemm, tiling=replace(gemm.tiling, n=end - first),
                   b=Matrix(gemm.b.base + first * gemm.b.pitch, gemm.b.pitch),
                   c_base=gemm.c_base + first * gemm.tiling.pitch_bytes)


def decomposed_sim(machine: Machine, workload: Workload, communication_units: int) -> "Sim":
    """Make the state at cycle 0 of a GEMM that is split into one for each chunk of a ring reduce-scatter.

    The reduce-scatter's kernels have `communication_units` of the compute units. Raises BadInput.
    """
    from t3sim.gpu.agents.compute_units import make_units
    from t3sim.gpu.agents.side_by_side import SideBySide
    from t3sim.gpu.fabric import memory
    from t3sim.runs import build

    gemm_units = units_left(machine.gpu.compute_units, communication_units)
    tiling = make_tiling(machine, workload)
    at = Addresses.of(workload, tiling)
    launch_cycles = machine.collective.kernel_launch_ns * machine.memory_clock_ghz
    plan = ring_plan("reduce-scatter", workload.tp, workload.output_bytes, at.c, at.copies)
    gemm = gemm_operator(machine, workload, tiling)
    split = split_gemm(gemm, plan.order, launch_cycles)
    scatter = build.planned_copy(machine, [plan])
    rates = build.unit_rates(machine, resident(machine, gemm.resources))._replace(units=gemm_units)
    scatter_rates = build.unit_rates(machine, machine.collective.workgroups_per_cu)._replace(units=communication_units)
    pair = SideBySide(
        make_units(rates, [split], memory.COMPUTE),
        make_units(scatter_rates, [scatter.work(0)], memory.EXCHANGE, released=True),
        after=np.arange(1, workload.tp + 1), launch_cycles=round(launch_cycles))
    return build.machine_state(machine, pair, build.loop_network(machine), [0])


def run_decomposed(machine: Machine, workload: Workload, communication_units: int,
                   progress: Callable[[float], None] = lambda fraction: None) -> OverlappedKernels:
    """Simulate it to its end. Raises BadInput and SimulationError."""
    from t3sim.runs.overlapped import gemm_part, run_overlapped

    sim, now = run_overlapped("decomposed GEMM", decomposed_sim(machine, workload, communication_units), progress)
    gemm, scatter = sim.kernel.first, sim.kernel.second
    return OverlappedKernels(
        **gemm_part(sim, gemm.state, 0), cycles=int(scatter.state.phase_over[0, -1]),
        collective_start=int(gemm.state.phase_over[0, 0]) + sim.kernel.launch_cycles,
        launch_cycles=(workload.tp - 1) * gemm.work.phase_launch_cycles, simulated_cycles=now)


@dataclass(frozen=True)
class GemmOnFewer(Kernel):
    """The GEMM alone on the compute units that communication leaves to it."""

    communication_units: int

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return f"gemm-without-{self.communication_units}-units"

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        from t3sim.runs.isolated_collectives import with_compute_units
        from t3sim.runs.isolated_kernels import run_gemm

        units = units_left(plan.machine.gpu.compute_units, self.communication_units)
        return run_gemm(replace(plan, machine=with_compute_units(plan.machine, units)), progress, window_cycles)


@dataclass(frozen=True)
class DecomposedKernels(Kernel):
    """The GEMM split into one per chunk of a ring reduce-scatter, whose kernels run beside it on compute units."""

    communication_units: int

    needs_rtl, uses_depth, result_type = False, True, OverlappedKernels

    @property
    def name(self) -> str:
        return f"decomposed-{self.communication_units}-units"

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> OverlappedKernels:
        return run_decomposed(plan.machine, plan.workload, self.communication_units, progress)


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    units = plan.options.get("decomposed", COMMUNICATION_UNITS)
    return GEMM, GemmOnFewer(units), DecomposedKernels(units), ALL_GATHER


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    (alone, fewer, split, gather), clock_ghz = parts, plan.machine.memory_clock_ghz
    loss = losses.attribute_split(
        watched(alone, clock_ghz), watched(fewer, clock_ghz), watched_beside(split), end=split.cycles,
        units=split.places, launches=split.launch_cycles)
    return overlapped(name, split, loss, gather, clock_ghz)


DECOMPOSED = Technique(
    "decomposed",
    "a GEMM kernel per chunk, the ring's kernels next to it on some compute units; then the all-gather",
    "Flux, section 2.2", _kernels, _combine, partial(only_a_reduce_scatter, "decomposed"))
