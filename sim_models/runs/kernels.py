"""The kernels that every technique is made of, simulated one at a time; the simulator is imported when one runs.

They are a GEMM or a collective alone on the GPU, a GEMM fused with its reduce-scatter on the RTL, or the all-gather
after it, through the same RTL.

Sizes are in bytes. Results depend only on machine, workload, kernel and seed.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from t3sim.base.at_once import processor_seconds
from t3sim.machine import Machine
from t3sim.runs.beside_copies import Copies
from t3sim.runs.exchange import Exchange
from t3sim.runs.kernel_results import IsolatedKernel, KernelResult, Progress
from t3sim.runs.phases import named
from t3sim.runs.plan import Plan
from t3sim.runs.program_kernels import ALL_REDUCE_IN_SWITCH, EXCHANGE, KINDS
from t3sim.runs.skew import Skew
from t3sim.workload.workloads import DispatchWorkload, ExpertsWorkload, Workload


def phases_of(exchange: Exchange) -> tuple[str, str, str | None]:
    """Name the phases of a kernel that hides an exchange: the GEMM, the collective, and an all-gather after it."""
    return "gemm", exchange.collective, "ag" if exchange.collective == "rs" else None


class Work(NamedTuple):
    """Work of a kernel on one GPU, of which the longer part takes its time."""

    gemm: Workload | None = None
    moved_bytes: int = 0  #: of the array that goes around a ring
    rounds: int = 1  #: how often it does


@runtime_checkable
class Kernel(Protocol):
    """A simulation: a frozen dataclass whose fields distinguish one kernel from another. A new kernel is one class."""

    needs_rtl: bool
    uses_depth: bool  #: whether its result depends on the GEMM's depth; else the output's size decides alone
    result_type: type[KernelResult]

    @property
    def name(self) -> str:
        """The name for people and for files; nothing is read from it."""

    @property
    def every_gpu(self) -> bool:
        """Say whether it simulates every GPU; else a representative GPU."""
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
    of_part: bool = False  #: of one GPU's tokens, where each GPU computes a part of the output

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return ("gemm-part" if self.of_part else "gemm") + (f"-{self.skew.name}" if self.skew else "")

    def work(self, workload: Workload) -> Work:
        return Work(part_of(workload) if self.of_part else workload)

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        from t3sim.runs.isolated_kernels import run_gemm

        if self.of_part:
            plan = replace(plan, workload=part_of(plan.workload))
        return run_gemm(plan, progress, window_cycles, self.skew)


@dataclass(frozen=True)
class BesideCopies(Kernel):
    """The GEMM alone on the whole GPU, beside copies of a stated rate by copy engines."""

    copies: Copies

    needs_rtl, uses_depth, result_type = False, True, IsolatedKernel

    @property
    def name(self) -> str:
        return f"gemm-beside-copies-{self.copies.read:g}-{self.copies.write:g}"

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        from t3sim.runs.isolated_kernels import run_gemm

        return run_gemm(plan, progress, window_cycles, copies=self.copies)


@dataclass(frozen=True)
class CollectiveAlone(Kernel):
    """A collective on the GEMM's output, alone on the whole GPU: around a ring, an all-to-all directly."""

    kind: str  #: of `program_kernels.KINDS` or `SWITCH_KINDS`, or `EXCHANGE`
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
        from t3sim.runs.isolated_collectives import run_collective, run_program

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
        name = {EXCHANGE: "a2a", ALL_REDUCE_IN_SWITCH: "ar"}.get(self.kind, "rs")
        return replace(result, dram=named(result.dram, ("gemm", name, "ag")))


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
        from t3sim.runs.isolated_collectives import run_experts

        skew = self.skew or Skew()
        result = run_experts(plan.machine, experts_of(plan.workload), self.exchange.links(plan.workload.tp), progress,
                             skew.links(plan.machine), skew.conditions(plan.machine))
        return replace(result, dram=named(result.dram, phases_of(self.exchange)))


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
        from t3sim.runs.isolated_kernels import run_packing

        workload = experts_of(plan.workload)
        if not isinstance(workload, DispatchWorkload):
            raise TypeError("tokens are packed before they are dispatched, and else not")
        return run_packing(plan.machine, workload, self.skew)


def experts_of(workload: Workload | None) -> ExpertsWorkload:
    if not isinstance(workload, ExpertsWorkload):
        raise TypeError("experts' tokens are dispatched and combined, and nothing else")
    return workload


GEMM, GEMM_PART, PACKED = GemmAlone(), GemmAlone(of_part=True), TokensPacked()
REDUCE_SCATTER, REDUCE_SCATTER_NMC, ALL_GATHER = COLLECTIVES = tuple(map(CollectiveAlone, KINDS))
GATHER_INPUT = replace(ALL_GATHER, of_input=True)
ALL_TO_ALL = CollectiveAlone(EXCHANGE)
SWITCH_ALL_REDUCE = CollectiveAlone(ALL_REDUCE_IN_SWITCH)


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
    from t3sim.base.compiled.jit import compile_times

    started = processor_seconds()
    with compile_times() as compiling:
        result = kernel.run(plan, progress, window_cycles, threads)
    return replace(result, host_seconds=processor_seconds() - started - sum(compiling))


def part_of(workload: Workload) -> Workload:
    """Return the GEMM of the GPU that makes the largest part of the output."""
    return replace(workload, m=-(-workload.m // workload.tp))


def made_by(workload: Workload, exchange: Exchange) -> Workload:
    """Return the GEMM that a GPU computes of what an exchange moves."""
    return part_of(workload) if exchange.of_parts else workload
