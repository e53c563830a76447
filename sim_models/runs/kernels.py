"""The kernels that every technique is made of, simulated one at a time.

They are a GEMM or a collective alone on the GPU, a GEMM fused with its reduce-scatter on the RTL, or the all-gather
after it, through the same RTL.

Sizes in bytes. What comes out depends on machine, workload, kernel and seed only.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from t3sim.base.at_once import processor_seconds
from t3sim.base.compiled.jit import compile_times
from t3sim.gpu.agents.compute_units import set_condition
from t3sim.gpu.agents.side_by_side import WithCopies
from t3sim.gpu.agents.units.state import settle
from t3sim.gpu.engine.loop import BATCH_CYCLES, Lockstep
from t3sim.gpu.engine.state import Sim
from t3sim.machine import Machine
from t3sim.runs import build
from t3sim.runs.beside_copies import Copies, with_copies
from t3sim.runs.exchange import Exchange
from t3sim.runs.failure import to_end
from t3sim.runs.isolated_collectives import packing_sim, run_collective, run_experts, run_program
from t3sim.runs.operators import busiest
from t3sim.runs.overlapped import OverlappedKernels
from t3sim.runs.phases import PACKING, PURPOSES, Moved, bytes_by_phase, named
from t3sim.runs.plan import Plan
from t3sim.runs.program_kernels import EXCHANGE, KINDS
from t3sim.runs.skew import Skew
from t3sim.runs.switch_kernels import ALL_REDUCE as SWITCHED_ALL_REDUCE
from t3sim.workload.operators.kernel_table import KernelTable
from t3sim.workload.workloads import DispatchWorkload, ExpertsWorkload, Workload

Progress = Callable[[float], None]

_MOST_WINDOWS = 8192


@dataclass(frozen=True)
class Traffic:
    """DRAM bytes of one GPU over time: [window][purpose], purposes as in `PURPOSES`."""

    window_cycles: int
    windows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class IsolatedKernel:
    """A kernel alone on the whole GPU."""

    ns: float  #: launch included
    simulated_cycles: int
    dram: dict[str, Moved]  #: by phase
    unit_cycles: tuple[int, ...] = ()  #: of a GEMM: per state, all units
    waited: tuple[int, ...] = ()  #: of a GEMM: requests served while its reads waited, per purpose
    start_ns: float = 0.0  #: of a GEMM: how much later than others its GPU starts
    exchange_ns: float = 0.0  #: of a collective: the steps in which data are sent
    traffic: Traffic | None = None
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class HardwareReport:
    """Counters of the RTL, and choices of hardware and driver, of the GPU for which the others wait."""

    rtl_counters: dict[str, int]  #: by their registers' names
    chosen_threshold: int  #: lines, `NO_THRESHOLD` for none
    producer_mean_occupancy: float  #: of the DRAM queue under the GEMM alone, lines
    slices: int  #: of the GEMM's inputs, for its cache
    staged_first_chunk: bool
    largest_wg_offset: int
    window_blocked_cycles: int
    last_tile_cycle: int
    window_heads: int  #: packets with its head
    switch_sum_bytes: int | None = None  #: most at a port of a switch that adds

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FusedResult:
    """A GEMM and a collective fused on the RTL; memory cycles."""

    gemm_cycles: int  #: until the last workgroup has finished
    cycles: int  #: until the last tile is where it belongs
    rs_start: int  #: cycle of the first packet
    dram: dict[str, Moved]  #: by phase
    unit_cycles: tuple[int, ...]
    waited: tuple[int, ...]
    units: int  #: workgroups that the GPU runs at once
    hardware: HardwareReport
    traffic: Traffic | None = None
    gpus: tuple[dict[str, int | float], ...] = ()  #: as in `TechniqueResult`
    host_seconds: float = field(default=0.0, compare=False)


KernelResult = IsolatedKernel | FusedResult | OverlappedKernels


def phases_of(exchange: Exchange) -> tuple[str, str, str | None]:
    """Name what memory counts in a kernel that hides an exchange; after a reduce-scatter comes an all-gather."""
    return "gemm", exchange.collective, "ag" if exchange.collective == "rs" else None


class TrafficRecord:
    """A record of bytes by purpose in windows of time: the differences of the totals at the windows' ends.

    It is bounded: when full, neighbours are joined and windows twice as long.
    """

    def __init__(self, window_cycles: int) -> None:
        self.window_cycles = window_cycles
        self._ends = [0]
        self._totals = [np.zeros(len(PURPOSES), np.int64)]

    def look(self, now: int, totals: np.ndarray) -> None:
        """Note the totals at the end of a window, or of the run; `totals` int64[purpose]."""
        if now >= self._ends[-1] + self.window_cycles:
            self._append(now, totals)

    def finish(self, now: int, totals: np.ndarray) -> Traffic:
        if now > self._ends[-1]:
            self._append(now, totals)
        return Traffic(self.window_cycles, tuple(map(tuple, np.diff(self._totals, axis=0).tolist())))

    def _append(self, now: int, totals: np.ndarray) -> None:
        self._ends.append(now)
        self._totals.append(totals.copy())
        if len(self._ends) > _MOST_WINDOWS:
            self._ends, self._totals = self._ends[::2], self._totals[::2]
            self.window_cycles *= 2


class Work(NamedTuple):
    """Work of a kernel on one GPU, of which the longer part takes its time."""

    gemm: Workload | None = None
    moved_bytes: int = 0  #: of the array that goes around a ring
    rounds: int = 1  #: how often it does


@runtime_checkable
class Kernel(Protocol):
    """Simulation to ask for: a frozen dataclass of what tells one kernel from another. A new one is one class."""

    needs_rtl: bool
    uses_depth: bool  #: whether its result depends on the GEMM's depth; else the output's size decides alone
    result_type: type[KernelResult]

    @property
    def name(self) -> str:
        """The name for people and for files; nothing is read from it."""

    @property
    def every_gpu(self) -> bool:
        """Say whether it simulates every GPU; else one stands for all."""
        return False

    def work(self, workload: Workload) -> Work:
        """Say what it does, for an estimate of its time."""
        return Work(workload)

    def prepare(self, plan: Plan) -> Plan:
        """Return the plan as this kernel needs it, with its schedule, before anything is built or simulated.

        Only machine, workload and seed of `plan` count. Raises BadInput, ScheduleError, TilingError and DriverError for
        what this hardware cannot do.
        """
        return plan

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> KernelResult:
        """Simulate it to its end. Raises SimulationError, ToolchainError, and what machine and tiling refuse.

        `plan`: as `prepare` returned it. `window_cycles`: of recorded traffic (a GEMM's or a fused kernel's), 0: none.
        `threads`: at most, of a fused kernel on all GPUs.
        """


@dataclass(frozen=True)
class GemmAlone(Kernel):
    """The GEMM alone on the whole GPU."""

    skew: Skew | None = None  #: of several GPUs, of which the last to end counts

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return "gemm" if self.skew is None else f"gemm-{self.skew.name}"

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        return run_gemm(plan, progress, window_cycles, self.skew)


@dataclass(frozen=True)
class GemmPart(Kernel):
    """The GEMM of one GPU's tokens, where each makes a part of the output, alone on the whole GPU."""

    skew: Skew | None = None  #: as of `GemmAlone`

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return "gemm-part" if self.skew is None else f"gemm-part-{self.skew.name}"

    def work(self, workload: Workload) -> Work:
        return Work(part_of(workload))

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        return run_gemm(replace(plan, workload=part_of(plan.workload)), progress, window_cycles, self.skew)


@dataclass(frozen=True)
class BesideCopies(Kernel):
    """The GEMM alone on the whole GPU, beside copies of a stated rate by copy engines."""

    copies: Copies

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return f"gemm-beside-copies-{self.copies.read:g}-{self.copies.write:g}"

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        sim = with_copies(plan.machine, build.make_sim(plan), self.copies)
        return _alone("gemm", sim, plan.machine, progress, window_cycles)


@dataclass(frozen=True)
class CollectiveAlone(Kernel):
    """A collective on the GEMM's output, alone on the whole GPU: around a ring, an all-to-all directly."""

    kind: str  #: of `program_kernels.KINDS` or `switch_kernels.KINDS`, or `EXCHANGE`
    skew: Skew | None = None  #: whose links and GPUs it takes
    of_input: bool = False  #: on the activations, not on the output
    exchange: Exchange | None = None  #: whose algorithm and links it has instead, level by level

    needs_rtl, result_type = False, IsolatedKernel

    @property
    def uses_depth(self) -> bool:
        return self.of_input

    @property
    def name(self) -> str:
        what = f"{self.kind}-of-input" if self.of_input else self.kind
        parts = [what, *([self.skew.name] if self.skew else []),
                 *([self.exchange.algorithm, self.exchange.topology] if self.exchange else [])]
        return "-".join(parts).replace(" ", "-").replace(":", "-")

    @property
    def every_gpu(self) -> bool:
        return self.skew is not None

    def work(self, workload: Workload) -> Work:
        return Work(moved_bytes=workload.activation_bytes if self.of_input else workload.output_bytes)

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        ranks = plan.workload.tp
        part = part_of(plan.workload) if self.kind == EXCHANGE else plan.workload
        size = part.activation_bytes if self.of_input else part.output_bytes
        if self.exchange:
            collective = {"all-gather": "ag", EXCHANGE: "a2a"}.get(self.kind, "rs")
            program = replace(self.exchange, collective=collective).program(ranks)
            # An all-to-all has a chunk for each pair, of each GPU's array.
            whole, kind = (size * ranks, "reduce-scatter") if self.kind == EXCHANGE else (size, self.kind)
            result = run_program(plan.machine, whole, kind, program, self.exchange.links(ranks), progress)
        else:  # the ring goes the other way around: its device d is the schedule's -d
            skew = self.skew or Skew()
            links = {(-source % ranks, -target % ranks): link
                     for (source, target), link in skew.links(plan.machine).items()}
            conditions = {-gpu % ranks: condition for gpu, condition in skew.conditions(plan.machine).items()}
            result = run_collective(plan.machine, size, ranks, self.kind, plan.mirrored and self.skew is None, progress,
                                    links, conditions)
        name = {EXCHANGE: "a2a", SWITCHED_ALL_REDUCE: "ar"}.get(self.kind, "rs")
        return IsolatedKernel(result.ns, result.cycles, named(result.dram, ("gemm", name, "ag")),
                              exchange_ns=result.exchange_ns)


@dataclass(frozen=True)
class ExpertsAlone(Kernel):
    """The exchange of tokens before experts, or of what they make, with its sums, alone on the whole GPUs."""

    exchange: Exchange  #: whose links it has
    skew: Skew | None = None  #: whose links and GPUs it takes

    needs_rtl, result_type, every_gpu = False, IsolatedKernel, True

    @property
    def uses_depth(self) -> bool:
        return self.exchange.before

    @property
    def name(self) -> str:
        parts = [self.exchange.collective, self.exchange.topology, *([self.skew.name] if self.skew else [])]
        return "-".join(parts).replace(":", "-")

    def work(self, workload: Workload) -> Work:
        return Work(moved_bytes=experts_of(workload).sent_bytes)

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        skew = self.skew or Skew()
        result = run_experts(plan.machine, experts_of(plan.workload), self.exchange.links(plan.workload.tp), progress,
                             skew.links(plan.machine), skew.conditions(plan.machine))
        return IsolatedKernel(result.ns, result.cycles, named(result.dram, phases_of(self.exchange)),
                              exchange_ns=result.exchange_ns)


@dataclass(frozen=True)
class TokensPacked(Kernel):
    """The copies of tokens, for each of their experts, that a dispatch sends, alone on the whole GPU."""

    skew: Skew | None = None  #: of several GPUs, of which the slowest counts

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return "packing" if self.skew is None else f"packing-{self.skew.name}"

    def work(self, workload: Workload) -> Work:
        return Work()

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        workload = experts_of(plan.workload)
        if not isinstance(workload, DispatchWorkload):
            raise TypeError("tokens are packed before they are dispatched, and else not")
        unlike = self.skew.conditions(plan.machine) if self.skew else {}
        alike = [None] if len(unlike) < workload.tp else []
        finished = []
        for condition in dict.fromkeys([*alike, *unlike.values()]):
            sim = packing_sim(plan.machine, workload)
            if condition is not None:
                set_condition(sim.kernel, 0, condition)
            finished.append(Lockstep(sim))
            to_end(finished[-1], "packing")
        last = max(finished, key=attrgetter("now"))
        return IsolatedKernel(
            last.now / plan.machine.memory_clock_ghz + plan.machine.collective.kernel_launch_ns, last.now,
            named(bytes_by_phase(last.sim.mem), (None, PACKING, None)))


def experts_of(workload: Workload | None) -> ExpertsWorkload:
    if not isinstance(workload, ExpertsWorkload):
        raise TypeError("experts' tokens are dispatched and combined, and nothing else")
    return workload


GEMM, GEMM_PART, PACKED = GemmAlone(), GemmPart(), TokensPacked()
REDUCE_SCATTER, REDUCE_SCATTER_NMC, ALL_GATHER = COLLECTIVES = tuple(map(CollectiveAlone, KINDS))
GATHER_INPUT = replace(ALL_GATHER, of_input=True)
ALL_TO_ALL = CollectiveAlone(EXCHANGE)
SWITCH_ALL_REDUCE = CollectiveAlone(SWITCHED_ALL_REDUCE)


def simulate(kernel: Kernel, machine: Machine, workload: Workload, progress: Progress = lambda fraction: None,
             seed: int = 0, mirrored: bool = True, window_cycles: int = 0) -> KernelResult:
    """Plan one kernel and run it to its end; errors as of `Kernel.prepare` and `Kernel.run`."""
    return simulate_plan(kernel, kernel.prepare(Plan(machine, workload, seed, mirrored=mirrored)), progress,
                         window_cycles)


def simulate_plan(kernel: Kernel, plan: Plan, progress: Progress = lambda fraction: None, window_cycles: int = 0,
                  threads: int = 1) -> KernelResult:
    """Run one kernel to its end; arguments and errors as of `Kernel.run`.

    `host_seconds` is the processor time of all its threads, without what was compiled on the way, which the next start
    takes from the cache."""
    started = processor_seconds()
    with compile_times() as compiling:
        result = kernel.run(plan, progress, window_cycles, threads)
    return replace(result, host_seconds=processor_seconds() - started - sum(compiling))


def batch_cycles(recorder: TrafficRecord | None) -> int:
    return recorder.window_cycles if recorder else BATCH_CYCLES


def run_gemm(plan: Plan, progress: Progress, window_cycles: int = 0, skew: Skew | None = None) -> IsolatedKernel:
    """Run the GEMM on each kind of GPU that there is; the result is that of the last one to end.

    With experts each GPU is of its own kind, and of those that are alike the one with the most workgroups runs.
    """
    skew, ran, machine, workload = skew or Skew(), {}, plan.machine, plan.workload
    unlike, late = skew.conditions(machine), dict(skew.late_ns)
    alike = set(range(workload.tp)) - set(unlike) - set(late)
    ends = []
    for gpu in sorted({*unlike, *late, *([busiest(machine, workload, alike)] if alike else [])}):
        kind = gpu if isinstance(workload, ExpertsWorkload) else None, unlike.get(gpu)
        if kind not in ran:
            whose, condition = kind
            plan_of_kind = replace(plan, conditions={} if condition is None else {0: condition}, gpu=whose)
            ran[kind] = _alone("gemm", build.make_sim(plan_of_kind), machine, progress, window_cycles)
        ends.append(replace(ran[kind], start_ns=late.get(gpu, 0.0)))
    return max(ends, key=lambda one: one.start_ns + one.ns)


def run_table(table: KernelTable, machine: Machine, progress: Progress = lambda fraction: None,
              copies: Copies | None = None) -> IsolatedKernel:
    """Run a custom kernel on the whole GPU, alone or beside copies; it receives what it sends to a neighbour.

    Raises KernelError and SimulationError.
    """
    started, sim = time.thread_time(), build.table_sim(machine, table)
    result = _alone("kernel", sim if copies is None else with_copies(machine, sim, copies), machine,
                    progress)
    return replace(result, host_seconds=time.thread_time() - started)


def _alone(name: str, sim: Sim, machine: Machine, progress: Progress, window_cycles: int = 0) -> IsolatedKernel:
    recorder = TrafficRecord(window_cycles) if window_cycles else None
    run, clock = Lockstep(sim), machine.memory_clock_ghz
    kernel = run.sim.kernel.first if isinstance(run.sim.kernel, WithCopies) else run.sim.kernel
    units = kernel.state

    def after_batch() -> None:
        if recorder:
            recorder.look(run.now, run.sim.mem.dram_bytes[0])
        progress(min(0.99, float(units.finished[0] / kernel.work.workgroups[0])))

    to_end(run, f"isolated {name}", after_batch, batch_cycles(recorder))
    settle(units, 0, run.now)
    return IsolatedKernel(
        # Write-backs of what the cache still holds overlap with the launch of the next kernel.
        ns=int(units.finish_time[0]) / clock, simulated_cycles=run.now, dram=bytes_by_phase(run.sim.mem),
        unit_cycles=tuple(units.accounted[0].tolist()), waited=tuple(run.sim.mem.waited[0].tolist()),
        traffic=recorder.finish(run.now, run.sim.mem.dram_bytes[0]) if recorder else None)


def part_of(workload: Workload) -> Workload:
    """Return the GEMM of the GPU that makes the largest part of the output."""
    return replace(workload, m=-(-workload.m // workload.tp))


def made_by(workload: Workload, exchange: Exchange) -> Workload:
    """Return the GEMM that a GPU computes of what an exchange moves."""
    return part_of(workload) if exchange.of_parts else workload
