"""One sub-layer under each technique of the T3 paper's section 5.3: sums and maxima of kernels' times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..machine import Machine
from ..runs import build, kernels
from ..runs.kernels import (
    ALL_GATHER,
    GEMM,
    REDUCE_SCATTER,
    REDUCE_SCATTER_NMC,
    FusedGemm,
    FusedKernel,
    GatherAfter,
    IsolatedKernel,
    Kernel,
    KernelResult,
)
from ..workloads import Workload
from . import losses
from .results import BASELINE, RunResult, TechniqueResult, collect_versions

Progress = Callable[[str, float], None]


#: The techniques that fuse GEMM and reduce-scatter, and how.
FUSIONS = {"t3": FusedGemm("round_robin"), "t3-mca": FusedGemm("mca"),
           "t3-mca+": FusedGemm("ring_aware", staged=True)}
BUILD = "build the RTL"


def fusions(policy: str | None = None) -> Mapping[str, FusedGemm]:
    """How each technique fuses; with `policy`, `t3` under that arbitration policy instead of its own."""
    return FUSIONS if policy is None else FUSIONS | {"t3": FusedGemm(policy)}


def kernels_of(technique: str, policy: str | None = None) -> tuple[Kernel, Kernel, Kernel]:
    """List the kernels that a technique's result is made of: the GEMM alone, and what scatters and gathers; `policy` as
    for `fusions`."""
    fusion = fusions(policy).get(technique)
    if fusion:
        return GEMM, fusion, GatherAfter(fusion.policy)
    return GEMM, REDUCE_SCATTER_NMC if technique == "ideal-rs-nmc" else REDUCE_SCATTER, ALL_GATHER


def technique_result(technique: str, done: Mapping[Kernel, KernelResult], clock_ghz: float,
                     policy: str | None = None) -> TechniqueResult:
    """Make up a technique from its kernels on a machine with this memory clock; `policy` as for `fusions`."""
    parts = [done[kernel] for kernel in kernels_of(technique, policy)]
    return _fused(technique, *parts, clock_ghz) if technique in FUSIONS else _in_turn(technique, *parts)


def _in_turn(name: str, gemm: IsolatedKernel, scatter: IsolatedKernel, gather: IsolatedKernel) -> TechniqueResult:
    """The baseline, and the ideals (which are arithmetic on isolated times)."""
    g, r, a = gemm.ns, scatter.ns, gather.ns
    simulated = (gemm, scatter, gather) if name == BASELINE else ()
    if name == BASELINE:
        total, loss = g + r + a, {"reduce_scatter": r, "all_gather": a}
    else:
        total, loss = max(g, r) + a, {"link_tail": max(0.0, r - g), "all_gather": a}
    return TechniqueResult(
        name=name, total_ns=total, phases_ns={"gemm": g, "reduce-scatter": r, "all-gather": a},
        streams_bytes=_summed(gemm, scatter, gather),
        mc_cycles=sum(kernel.simulated_cycles for kernel in simulated), rtl_in_loop=False,
        host_seconds=sum(kernel.host_seconds for kernel in simulated), loss_ns=loss)


def _fused(name: str, alone: IsolatedKernel, fused: FusedKernel, gather: IsolatedKernel,
           clock: float) -> TechniqueResult:
    loss = losses.attribute(
        losses.Watched(alone.ns * clock, np.array(alone.unit_cycles), np.array(alone.waited)),
        losses.Watched(fused.gemm_cycles, np.array(fused.unit_cycles), np.array(fused.waited)),
        end=fused.cycles, gather=gather.ns * clock, units=fused.units)
    return TechniqueResult(
        name=name, total_ns=fused.cycles / clock + gather.ns,
        phases_ns={"gemm": fused.gemm_cycles / clock, "reduce-scatter": (fused.cycles - fused.rs_start) / clock,
                   "all-gather": gather.ns},
        streams_bytes=_summed(fused, gather),
        mc_cycles=fused.cycles + gather.simulated_cycles, rtl_in_loop=True,
        host_seconds=fused.host_seconds + gather.host_seconds,
        loss_ns={cause: cycles / clock for cause, cycles in loss.items()}, details=fused.details)


def _summed(*parts: KernelResult) -> dict[str, int]:
    """Bytes at one GPU's DRAM by stream."""
    return {stream: sum(part.dram.get(stream, 0) for part in parts)
            for stream in dict.fromkeys(stream for part in parts for stream in part.dram)}


@dataclass
class _Simulated(Mapping):
    """Kernels of one workload, each simulated when it is first asked for."""

    machine: Machine
    workload: Workload
    progress: Progress
    seed: int
    label: str = ""  #: of the technique for which it is asked
    _done: dict[Kernel, KernelResult] = field(default_factory=dict)

    def __getitem__(self, kernel: Kernel) -> KernelResult:
        if kernel not in self._done:
            self._done[kernel] = kernels.simulate(kernel, self.machine, self.workload,
                                                  lambda fraction: self.progress(self.label, fraction), self.seed)
        return self._done[kernel]

    def __iter__(self):
        return iter(self._done)

    def __len__(self) -> int:
        return len(self._done)


def run_sublayer(workload: Workload, machine: Machine, techniques: Sequence[str], progress: Progress,
                 seed: int = 0, policy: str | None = None) -> RunResult:
    """Simulate `workload` under each technique, fused ones with RTL in the loop at every cycle.

    `policy`: the arbitration of technique `t3`, a name of `t3sim.rtl.arbiter.POLICIES`; None: its own.
    Raises SimulationError, ToolchainError, and what machine and tiling refuse.
    """
    build.make_schedule(machine, workload)  # refuse before the work
    if any(name in FUSIONS for name in techniques):
        progress(BUILD, 0.0)
        kernels.rtl_library(machine.geometry())
        progress(BUILD, 1.0)
    simulated, results = _Simulated(machine, workload, progress, seed), {}
    for name in techniques:
        simulated.label = name
        results[name] = technique_result(name, simulated, machine.memory_clock_ghz, policy)
        progress(name, 1.0)
    return RunResult(workload=workload, machine=machine, seed=seed, versions=collect_versions(), techniques=results,
                     policy=policy)
