"""T3: the GEMM and its collective fused on the RTL, under one of its arbiters' policies; then the all-gather."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from t3sim.base.custom import is_custom
from t3sim.base.line import LINE_BYTES
from t3sim.mechanisms import losses
from t3sim.mechanisms.parts import gemm_alone, loss_ns, slow_levels, slowing, summed
from t3sim.mechanisms.result import TechniqueResult
from t3sim.mechanisms.staging import staging_pays
from t3sim.mechanisms.technique import Technique
from t3sim.rtl.arbiter import POLICIES
from t3sim.runs.exchange import IN_SWITCH, REDUCED, Exchange
from t3sim.runs.kernel_results import FusedResult, HardwareReport, IsolatedKernel, KernelResult, Progress
from t3sim.runs.kernels import ALL_GATHER, PACKED, Kernel, Work, made_by, phases_of
from t3sim.runs.phases import PACKING, bytes_by_phase, named
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    from t3sim.gpu.state import Sim
    from t3sim.runs.fused import FusedRun


@dataclass(frozen=True)
class FusedGemm(Kernel):
    """The GEMM fused with its reduce-scatter, or another collective, on the RTL."""

    policy: str  #: the arbiters'
    staged: bool = False  #: a reduce-scatter's first chunk goes through local memory where that pays (`staging_pays`)
    exchange: Exchange = REDUCED
    skew: Skew | None = None  #: differences between GPUs, each with its own RTL; None: a representative GPU

    needs_rtl, uses_depth, result_type = True, True, FusedResult

    @property
    def name(self) -> str:
        with_what = "" if self.exchange == REDUCED else f"-{self.exchange.name}"
        gpus = "" if self.skew is None else f"-{self.skew.name}"
        return f"fused-{self.policy}{'-staged' if self.staged else ''}{with_what}{gpus}".replace(":", "-")

    @property
    def every_gpu(self) -> bool:
        return self.skew is not None

    def work(self, workload: Workload) -> Work:
        moved = workload.activation_bytes if self.exchange.before else workload.output_bytes
        return Work(made_by(workload, self.exchange), moved, len(self.exchange.hides))

    def prepare(self, plan: Plan) -> Plan:
        """Complete the plan. Machine and workload have the format of sums in memory, which may differ from the links'.

        Errors as of `Kernel.prepare`.
        """
        sums = self.exchange.sums
        machine, workload = sums.seen_from_memory(plan.machine, plan.workload), sums.of(plan.workload)
        staged = self.staged and staging_pays(machine, workload)
        plan = Plan(machine, workload, plan.seed, self.exchange, stage_first_chunk=staged)
        if self.skew is not None:
            plan = replace(
                plan, start_cycles=self.skew.start_cycles(machine, workload.tp),
                links={pair: sums.carrying(workload, link) for pair, link in self.skew.links(machine).items()},
                conditions=self.skew.conditions(machine))
        plan = plan.fused()
        plan.spaces()
        return plan

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> FusedResult:
        return _fused(self, plan, progress, window_cycles, threads)


@dataclass(frozen=True)
class GatherAfter(Kernel):
    """The all-gather that follows a fused kernel, through the RTL's arbiters.

    The producer has ended, so policies that differ only while it runs have one kernel (`after`). Chunks are cut as if
    the output had no tiles, unless it has so few tiles that some chunks are empty.
    """

    policy: str
    by_switch: bool = False  #: which copies a chunk that enters it once; else around a ring

    needs_rtl, uses_depth, result_type = True, False, IsolatedKernel

    @classmethod
    def after(cls, fusion: FusedGemm, by_switch: bool = False) -> "GatherAfter":
        return cls(POLICIES[fusion.policy].in_drain or fusion.policy, by_switch)

    @property
    def name(self) -> str:
        return f"gather-{self.policy}{'-by-switch' if self.by_switch else ''}"

    def work(self, workload: Workload) -> Work:
        return Work(moved_bytes=workload.output_bytes)

    def run(self, plan: Plan, progress: Progress, window_cycles: int = 0, threads: int = 1) -> IsolatedKernel:
        from t3sim.runs.fused import fused_run
        from t3sim.runs.isolated_collectives import run_collective

        schedule = plan.schedule
        if not schedule.is_symmetric():  # the largest chunk decides each step, and nothing is left to arbitrate
            largest = schedule.largest_chunk * plan.workload.format.bytes
            result = run_collective(plan.machine, largest * plan.workload.tp, plan.workload.tp, ALL_GATHER.kind,
                                    progress=progress)
            return IsolatedKernel(result.ns, result.simulated_cycles, result.dram)
        with closing(fused_run(self.policy, plan)) as fused:
            cycles = fused.all_gather(progress, self.by_switch)
            return IsolatedKernel(cycles / plan.machine.memory_clock_ghz, cycles, bytes_by_phase(fused.sim.mem))


def _fused(kernel: FusedGemm, plan: Plan, progress: Progress, window_cycles: int, threads: int) -> FusedResult:
    from t3sim.gpu.agents.units.state import settle
    from t3sim.gpu.fabric.network import outgoing
    from t3sim.runs.fused import fused_run
    from t3sim.runs.isolated_kernels import TrafficRecord, batch_cycles

    recorder = TrafficRecord(window_cycles) if window_cycles else None
    with closing(fused_run(kernel.policy, plan, kernel.skew is not None)) as run:
        run.threads = threads

        def after_batch(fraction: float) -> None:
            if recorder:
                recorder.look(run.now, run.sim.mem.dram_bytes[0])
            progress(fraction)

        run.run(after_batch, batch_cycles(recorder))
        units = run.sim.kernel.state
        last = int(np.argmax(units.finish_time))  # for whom the others wait
        settle(units, last, run.now)
        threshold, occupancy = run.chosen_threshold(last)
        hardware = HardwareReport(
            rtl_counters=run.counters(last), chosen_threshold=threshold, producer_mean_occupancy=occupancy,
            slices=run.schedule.policy.slices, staged_first_chunk=plan.stage_first_chunk,
            largest_wg_offset=run.schedule.slack_of(run.spaces[last].device),
            window_blocked_cycles=int(run.sim.control.blocked_cycles[last]),
            last_tile_cycle=int(run.sim.control.rs_end[last]),
            window_heads=int(run.sim.network.sent_heads[outgoing(run.sim.network, last)].sum()),
            switch_sum_bytes=int(run.sim.switch.most_held.max()) * LINE_BYTES if run.sim.switch.parts else None)
        return FusedResult(
            gemm_cycles=int(units.finish_time[last]),
            # What the cache still holds of an output is written back beside what comes next, as of a GEMM alone.
            cycles=int(units.finish_time[last]) if kernel.exchange.before else run.now,
            rs_start=_first_packet(run.sim, last),
            dram=named(bytes_by_phase(run.sim.mem, last), phases_of(kernel.exchange)),
            unit_cycles=tuple(units.accounted[last].tolist()), waited=tuple(run.sim.mem.waited[last].tolist()),
            units=units.state.shape[1], hardware=hardware,
            gpus=_gpus(run) if len(run.backends) > 1 else (),
            traffic=recorder.finish(run.now, run.sim.mem.dram_bytes[0]) if recorder else None)


def _first_packet(sim: "Sim", device: int) -> int:
    """Return the cycle of a device's first packet; if it sends none, that of the first of all, 0 without any."""
    first = sim.control.rs_start
    return int(first[device]) if first[device] >= 0 else int(min(first[first >= 0], default=0))


def _gpus(run: "FusedRun") -> tuple[dict[str, float], ...]:
    """Return the times of each GPU, and the utilization of its busiest link."""
    from t3sim.gpu.fabric.network import outgoing

    sim, clock = run.sim, run.machine.memory_clock_ghz
    control, network, units = sim.control, sim.network, sim.kernel.state
    rows = []
    for d in range(len(control.start)):
        ports = outgoing(network, d)
        fullest = int(ports[np.argmax(network.busy_cycles[ports])])
        cycles = {"start_ns": control.start[d], "gemm_end_ns": units.finish_time[d],
                  "first_packet_ns": max(0, control.rs_start[d]), "last_tile_ns": control.rs_end[d],
                  "window_held_ns": control.blocked_cycles[d]}
        rows.append({name: float(count) / clock for name, count in cycles.items()} | {
                     "link_to": int(network.target[fullest]),
                     "link_busy": float(network.busy_cycles[fullest]) / run.now})
    return tuple(rows)


#: How each fuses a GEMM and its collective.
FUSIONS = {"t3": FusedGemm("round_robin"), "t3-mca": FusedGemm("mca"),
           "t3-mca+": FusedGemm("ring_aware", staged=True)}


def policy_of(name: str, policy: str | None) -> str:
    """Return the arbiters' policy in a technique; `policy`: what technique t3 takes instead of its own."""
    return policy if policy is not None and name == "t3" else FUSIONS[name].policy


def fusion(name: str, plan: Plan) -> FusedGemm:
    """Return the kernel in which a technique fuses the GEMM and its collective."""
    exchange = plan.exchange
    if (exchange.algorithm, exchange.topology) == ("ring", "switch"):  # a ring through a switch shares no link
        exchange = replace(exchange, topology="ring")
    skew = Skew() if plan.skew is None and exchange.every_gpu else plan.skew
    staged = FUSIONS[name].staged and exchange.reduces and not is_custom(exchange.producer)
    return FusedGemm(policy_of(name, plan.policy), staged, exchange, skew)


def _kernels(name: str, plan: Plan) -> tuple[Kernel, ...]:
    gemm, fused, slow = gemm_alone(plan), fusion(name, plan), slowing(plan)
    if plan.exchange.of_experts and plan.exchange.before:
        return gemm, fused, replace(PACKED, skew=slow)
    if plan.exchange.collective != "rs":
        return gemm, fused
    if plan.exchange.by_levels:
        return gemm, fused, replace(ALL_GATHER, exchange=plan.exchange)
    gather = GatherAfter.after(fused, plan.exchange.algorithm == IN_SWITCH)
    return gemm, fused, gather if slow is None else replace(ALL_GATHER, skew=slow)


def _combine(name: str, parts: Sequence[KernelResult], plan: Plan) -> TechniqueResult:
    """Compute a technique's result from its kernels': the fused one, and an all-gather after it or a packing before."""
    exchange, clock_ghz, (alone, fused, *after) = plan.exchange, plan.machine.memory_clock_ghz, parts
    if after and not exchange.before:
        gather, = after
        return TechniqueResult(
            name=name, total_ns=fused.cycles / clock_ghz + gather.ns,
            phases_ns={"gemm": fused.gemm_cycles / clock_ghz,
                       "reduce-scatter": (fused.cycles - fused.rs_start) / clock_ghz, "all-gather": gather.ns},
            moved=summed(fused, gather), mc_cycles=fused.cycles + gather.simulated_cycles, rtl_in_loop=True,
            host_seconds=fused.host_seconds + gather.host_seconds,
            loss_ns=loss_ns(alone, fused, clock_ghz) | {"all_gather": gather.ns}, hardware=fused.hardware,
            gpus=fused.gpus)
    phase = "all-reduce" if exchange.collective == "ar" else exchange.hides[0]
    attribute = losses.attribute_gathered if exchange.before else losses.attribute
    collective_end = fused.hardware.last_tile_cycle if exchange.before else fused.cycles
    packed = dict(zip((PACKING,), (one.ns for one in after)))
    return TechniqueResult(
        name=name, total_ns=fused.cycles / clock_ghz + sum(packed.values()),
        phases_ns={"gemm": fused.gemm_cycles / clock_ghz, phase: (collective_end - fused.rs_start) / clock_ghz,
                   **packed},
        moved=summed(fused, *after), mc_cycles=fused.cycles + sum(one.simulated_cycles for one in after),
        rtl_in_loop=True, host_seconds=fused.host_seconds + sum(one.host_seconds for one in after),
        loss_ns=loss_ns(alone, fused, clock_ghz, attribute) | packed, hardware=fused.hardware, gpus=fused.gpus)


T3, T3_MCA, T3_MCA_PLUS = (
    Technique(name, title, source, partial(_kernels, name), _combine, slow_levels, by_default=True, splits_k=True)
    for name, title, source in (
        ("t3", "GEMM fused with its reduce-scatter, round-robin arbitration; then the all-gather", "T3, section 4"),
        ("t3-mca", "t3 with the communication-aware arbiter", "T3, section 4.5"),
        ("t3-mca+", "t3 with ring-aware arbitration; the first chunk through local memory if that is faster",
         "this project, beyond T3")))
