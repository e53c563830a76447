"""Results by closed forms instead of simulation: what figures, runner and report are tested with."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from t3sim.analytic.rings import ring_time_ns
from t3sim.base.errors import Failure
from t3sim.gpu.setup import ACCOUNTS
from t3sim.mechanisms.track_trigger import FusedGemm, GatherAfter
from t3sim.papers.dma.trigger import TriggerTask, TriggerTimes
from t3sim.papers.event_level import CollectiveTime, EventCollectiveTask
from t3sim.papers.flux.operators import OverlapTask, OverlapTimes
from t3sim.papers.fused.dlrm import PassTask
from t3sim.papers.fused.dlrm_pass import PassTimes
from t3sim.papers.table_hbm import HbmResult, HbmTask
from t3sim.papers.today.chains import ChainTask, Queued
from t3sim.runs import kernels
from t3sim.runs.kernel_results import FusedResult, HardwareReport, IsolatedKernel, KernelResult, Traffic
from t3sim.runs.kernels import phases_of
from t3sim.runs.phases import PHASES, PURPOSES, Moved, by_stream, named
from t3sim.study.tasks.estimate import gemm_ns, ring_ns
from t3sim.study.tasks.task import KernelTask
from t3sim.testbenches.hbm_replay.validation import GROUPS, MicroRow, Outcome, ValidationRow

SLOWDOWN = {"round_robin": 1.1, "mca": 1.02, "ring_aware": 1.01}


def _dram(**chunks: float) -> dict[str, Moved]:
    return {phase: Moved(*(int(chunks.get(f"{phase}_{way}", 0)) for way in Moved._fields)) for phase in PHASES}


def _traffic(task: KernelTask, cycles: int, dram: dict[str, Moved]) -> Traffic | None:
    if not task.window_cycles:
        return None
    count = max(1, cycles // task.window_cycles)
    each = tuple(total // count for total in by_stream(dram).values())
    return Traffic(task.window_cycles, (each,) * count)


def _as_one_of_a_ring(kernel: kernels.Kernel) -> kernels.Kernel:
    if isinstance(kernel, kernels.CollectiveAlone):
        return replace(kernel, exchange=None)
    if isinstance(kernel, kernels.ExpertsAlone):  # as if all tokens went everywhere
        return kernels.ALL_TO_ALL
    return kernels.ALL_GATHER if isinstance(kernel, GatherAfter) else kernel


def fake_kernel(task: KernelTask) -> KernelResult:
    """Times of the rate law and the link-bound ring, traffic in chunks (one GEMM read of the output's size)."""
    workload, n = task.workload, task.workload.tp
    chunk = workload.output_bytes // n
    g, r = round(gemm_ns(task.machine, workload)), round(ring_ns(task.machine, workload))
    units = task.machine.gpu.compute_units
    busy = tuple(g * units if name == "compute" else 0 for name in ACCOUNTS)
    waited = (0,) * len(PURPOSES)
    if isinstance(task.kernel, FusedGemm):
        gemm = round(g * SLOWDOWN[task.kernel.policy])
        gathers = task.kernel.exchange.collective == "ar"
        if task.kernel.exchange.before:
            r = round(ring_time_ns(task.machine, workload.activation_bytes, n))
        end = max(gemm, r * (1 + gathers) // (1 + (task.kernel.exchange.algorithm == "both-rings")))
        if task.kernel.exchange.algorithm == "in-switch":
            end = max(gemm, round(task.kernel.exchange.link_bytes(workload) / task.machine.link.bandwidth_gb_per_s))
        dram = _dram(gemm_read=n * chunk / 2, gemm_write=(n - 1) * chunk, rs_read=(n - 2) * chunk,
                     rs_write=(n - 1) * chunk)
        return FusedResult(gemm, end, 100, named(dram, phases_of(task.kernel.exchange)), busy, waited, units,
                           HardwareReport({"triggers": 1}, chosen_threshold=30, producer_mean_occupancy=12.5, slices=1,
                                          staged_first_chunk=task.kernel.staged, largest_wg_offset=1,
                                          window_blocked_cycles=0, last_tile_cycle=r, window_heads=0,
                                          switch_sum_bytes=1 << 20),
                           _traffic(task, end, dram), host_seconds=2.0)
    if isinstance(task.kernel, kernels.BesideCopies):
        copied = task.kernel.copies
        g = round(1.2 * g)
        dram = _dram(gemm_read=n * chunk, gemm_write=n * chunk, rs_read=copied.read * g, rs_write=copied.write * g)
        return IsolatedKernel(float(g), g, dram, busy, waited, traffic=_traffic(task, g, dram), host_seconds=1.0)
    dram = {
        kernels.GEMM: _dram(gemm_read=n * chunk, gemm_write=n * chunk),
        kernels.REDUCE_SCATTER: _dram(rs_read=(2 * n - 1) * chunk, rs_write=n * chunk),
        kernels.REDUCE_SCATTER_NMC: _dram(rs_read=(n - 1) * chunk, rs_write=(n - 1) * chunk),
        kernels.ALL_GATHER: _dram(ag_read=(n - 1) * chunk, ag_write=(n - 1) * chunk),
        kernels.PACKED: _dram(),
        kernels.ALL_TO_ALL: _dram(rs_read=(n - 1) * chunk / n, rs_write=(n - 1) * chunk / n),
        kernels.SWITCH_ALL_REDUCE: _dram(rs_read=n * chunk, rs_write=n * chunk),
        kernels.GATHER_INPUT: _dram(ag_read=(n - 1) * chunk, ag_write=(n - 1) * chunk),
    }[_as_one_of_a_ring(task.kernel)]
    if isinstance(task.kernel, kernels.CollectiveAlone) and task.kernel.exchange:  # both ways around
        r //= 2
    cycles = {kernels.GEMM: g, kernels.REDUCE_SCATTER: round(r * (1 + 0.47 / (n - 1))),
              kernels.GATHER_INPUT: round(ring_time_ns(task.machine, workload.activation_bytes, n))}.get(task.kernel, r)
    return IsolatedKernel(float(cycles), cycles, dram, busy, waited, exchange_ns=float(r),
                          traffic=_traffic(task, cycles, dram),
                          host_seconds=1.0)


def fake_hbm(task: HbmTask) -> HbmResult:
    """One workload of each group: ours ends 1 % after DRAMsim3, our FR-FCFS 5 %."""
    theirs, ours, policy = (Outcome(cycles, 50.0, 300, 3, speed) for cycles, speed in
                            ((10_000, None), (10_100, 8e6), (10_500, 9e6)))
    rows = tuple(ValidationRow(name, task.config, False, kind, group, 1000, False, ours, policy, theirs,
                               {"FRFCFS-q32": replace(theirs, cycles=10_400)})
                 for name, kind, group in zip(("seq_rd", "load_10", "gemm"), ("seq", "load", "gemm"), GROUPS))
    return HbmResult(rows, (MicroRow("act", task.config, 4, True, True, True),), host_seconds=3.0)


def fake_pass(task: PassTask) -> PassTimes:
    """An embedding and its all-to-all, one after the other, or the one behind the other."""
    length = 1e6 * task.model.tables_per_gpu
    start = 0.2 * length if task.graph.fused else length
    return PassTimes(start + length, (("pooling", 0.0, length), ("all-to-all forward", start, start + length)))


def fake_collective(task: EventCollectiveTask) -> CollectiveTime:
    return CollectiveTime(1.01 * task.closed_form_ns(), 0.9)


def fake_overlap(task: OverlapTask) -> OverlapTimes:
    """Half of the communication is hidden by Flux, none by the decomposition."""
    gemm, collective = 1e3 * task.m, 5e2 * task.m
    hidden = {"sequential": 0.0, "flux": 0.5, "decomposed": 0.0}
    return OverlapTimes(gemm, collective, {name: gemm + collective * (1 - share) for name, share in hidden.items()},
                        hidden, dict.fromkeys(hidden, "kernel 128x128"))


def fake_trigger(task: TriggerTask) -> TriggerTimes:
    """The RTL's cycles without a GEMM beside them."""
    size = task.tile_m * task.tile_n * 2 // 8 * task.tiles_per_block
    return TriggerTimes(64, size, (6, 6.0), (11, 11.0), (14, 14.0), (22, 22.0))


def fake_chain(task: ChainTask) -> Queued:
    """A flight of a microsecond and the link, and a poll and a signal of each chunk where commands have them."""
    chunks, commanded = 12, task.initiator != "tracker"
    exchange_ns = 1e3 * (1 + commanded) + task.tile_bytes * task.per_peer / 100
    return Queued(exchange_ns, exchange_ns + 500, exchange_ns * commanded, chunks * (1 + 2 * commanded), chunks,
                  chunks * commanded, chunks * commanded, chunks * task.tile_bytes // 64)


_FAKES = {ChainTask: fake_chain, HbmTask: fake_hbm, PassTask: fake_pass, EventCollectiveTask: fake_collective,
          TriggerTask: fake_trigger, OverlapTask: fake_overlap}


def fake_results(tasks) -> dict:
    return {task: _FAKES.get(type(task), fake_kernel)(task) for task in tasks}


@dataclass(frozen=True)
class FakeTask:
    """Stands for a kernel task: takes its time, then gives a result that depends on its name, fails or dies."""

    name: str
    seconds: float = 1.0
    requires: tuple = ()
    fails: str = ""
    sleep: float = 0.0
    keeps: str = ""  #: a file that is there while it runs
    waits_for: str = ""  #: a file
    description: dict = field(default_factory=dict, hash=False, compare=False)
    needs_rtl = False
    result_type = IsolatedKernel

    @property
    def key(self) -> str:
        return f"fake-{self.name}"

    @property
    def label(self) -> str:
        return f"task {self.name}"

    def run(self, progress) -> IsolatedKernel:
        progress(0.5)
        while self.waits_for and not Path(self.waits_for).exists():
            time.sleep(0.01)
        try:
            if self.keeps:
                Path(self.keeps).touch()
            time.sleep(self.sleep)
        finally:
            if self.keeps:
                Path(self.keeps).unlink()
        if self.fails == "die":
            import os
            os._exit(9)
        if self.fails == "bug":
            raise ZeroDivisionError("in the model")
        if self.fails:
            raise Failure(self.fails)
        return IsolatedKernel(float(sum(self.name.encode())), 1, {"gemm": Moved(1)}, (1,), (2,),
                              host_seconds=time.time())
