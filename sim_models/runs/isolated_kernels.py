"""Simulations of one kernel alone on the GPU: a GEMM, a table of a user's, the packing of tokens."""

import time
from dataclasses import replace
from operator import attrgetter

import numpy as np

from t3sim.gpu.agents.compute_units import set_condition
from t3sim.gpu.agents.side_by_side import WithCopies
from t3sim.gpu.agents.units.state import settle
from t3sim.gpu.engine.loop import BATCH_CYCLES, Lockstep
from t3sim.gpu.state import Sim
from t3sim.machine import Machine
from t3sim.runs import build
from t3sim.runs.beside_copies import Copies, with_copies
from t3sim.runs.failure import to_end
from t3sim.runs.isolated_collectives import packing_sim
from t3sim.runs.kernel_results import IsolatedKernel, Progress, Traffic
from t3sim.runs.operators import busiest
from t3sim.runs.phases import PACKING, PURPOSES, bytes_by_phase, named
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.workload.operators.kernel_table import KernelTable
from t3sim.workload.workloads import DispatchWorkload, ExpertsWorkload

_MOST_WINDOWS = 8192


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


def batch_cycles(recorder: TrafficRecord | None) -> int:
    return recorder.window_cycles if recorder else BATCH_CYCLES


def run_gemm(plan: Plan, progress: Progress, window_cycles: int = 0, skew: Skew | None = None,
             copies: Copies | None = None) -> IsolatedKernel:
    """Run the GEMM on each kind of GPU that there is; the result is that of the last one to end. Raises BadInput.

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
            ran[kind] = _alone("gemm", build.make_sim(plan_of_kind), machine, progress, window_cycles, copies)
        ends.append(replace(ran[kind], start_ns=late.get(gpu, 0.0)))
    return max(ends, key=lambda one: one.start_ns + one.ns)


def run_packing(machine: Machine, workload: DispatchWorkload, skew: Skew | None = None) -> IsolatedKernel:
    """Run the copies of tokens that a dispatch sends on each kind of GPU that there is; the slowest counts."""
    unlike = skew.conditions(machine) if skew else {}
    alike = [None] if len(unlike) < workload.tp else []
    finished = []
    for condition in dict.fromkeys([*alike, *unlike.values()]):
        sim = packing_sim(machine, workload)
        if condition is not None:
            set_condition(sim.kernel, 0, condition)
        finished.append(Lockstep(sim))
        to_end(finished[-1], "packing")
    last = max(finished, key=attrgetter("now"))
    return IsolatedKernel(
        last.now / machine.memory_clock_ghz + machine.collective.kernel_launch_ns, last.now,
        named(bytes_by_phase(last.sim.mem), (None, PACKING, None)))


def run_table(table: KernelTable, machine: Machine, progress: Progress = lambda fraction: None,
              copies: Copies | None = None) -> IsolatedKernel:
    """Run a custom kernel on the whole GPU, alone or beside copies; it receives what it sends to a neighbour.

    Raises KernelError and SimulationError.
    """
    started = time.thread_time()
    result = _alone("kernel", build.table_sim(machine, table), machine, progress, copies=copies)
    return replace(result, host_seconds=time.thread_time() - started)


def _alone(name: str, sim: Sim, machine: Machine, progress: Progress, window_cycles: int = 0,
           copies: Copies | None = None) -> IsolatedKernel:
    recorder = TrafficRecord(window_cycles) if window_cycles else None
    run, clock = Lockstep(with_copies(machine, sim, copies) if copies else sim), machine.memory_clock_ghz
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
