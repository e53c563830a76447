"""One sub-layer under each technique of the T3 paper's section 5.3."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from . import collectives, lockstep, losses, memory, simulation
from . import gemm as gemms
from .fused import BATCH_CYCLES, FusedRun, Policy, SimulationError
from .machine import Machine
from .results import DRAM_STREAMS, RunResult, TechniqueResult, collect_versions
from .workloads import Workload

Progress = Callable[[str, float], None]

#: Arbitration of the fused techniques.
POLICIES = {"t3": "round_robin", "t3-mca": "mca"}
BUILD = "build the RTL"


@dataclass
class Kernel:
    """An isolated kernel: time, traffic, and what its compute units did."""

    ns: float
    cycles: int
    host_seconds: float
    dram: dict[str, int]
    unit_cycles: np.ndarray | None = None  #: of a GEMM: per state, all units
    waited: np.ndarray | None = None


@dataclass
class Isolated:
    """The kernels alone on the whole GPU, each simulated when it is first asked for."""

    machine: Machine
    workload: Workload
    progress: Progress
    label: str = ""
    _done: dict[str, Kernel] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Kernel:
        """`gemm`, `reduce-scatter`, `reduce-scatter-nmc` or `all-gather`."""
        if name not in self._done:
            self._done[name] = self._simulate(name)
        return self._done[name]

    def _simulate(self, name: str) -> Kernel:
        if name != "gemm":
            ran = collectives.run_collective(
                self.machine, self.workload.output_bytes, self.workload.tp, name,
                progress=lambda fraction: self.progress(self.label, fraction))
            return Kernel(ran.ns, ran.cycles, ran.host_seconds, ran.dram)
        started, clock = time.perf_counter(), self.machine.memory_clock_ghz
        tiling = simulation.make_tiling(self.machine, self.workload)
        sim = simulation.make_sim(self.machine, self.workload, tiling, phase=memory.GEMM)
        now, state = 0, lockstep.RUNNING
        while state == lockstep.RUNNING:
            now, state = lockstep.baseline(sim, now, BATCH_CYCLES)
            self.progress(self.label, min(0.99, float(sim.gemm.finished[0] / sim.shape.workgroups)))
        if state == lockstep.STUCK:
            raise SimulationError(f"the isolated gemm did not move for {lockstep.IDLE_LIMIT} cycles")
        gemms.settle(sim.gemm, 0, now)
        # Write-backs of what the cache still holds overlap with the launch of the next kernel.
        return Kernel(int(sim.gemm.finish_time[0]) / clock, now, time.perf_counter() - started, traffic(sim),
                      sim.gemm.accounted[0].copy(), sim.mem.waited[0].copy())


def traffic(sim: lockstep.Sim, device: int = 0) -> dict[str, int]:
    """Bytes at one GPU's DRAM by purpose."""
    return {name: int(count) for name, count in zip(memory.PURPOSES, sim.mem.total_bytes[device])}


def _sum(*streams: dict[str, int]) -> dict[str, int]:
    return {name: sum(one[name] for one in streams) for name in DRAM_STREAMS}


def run_sublayer(workload: Workload, machine: Machine, techniques: Sequence[str], progress: Progress,
                 seed: int = 0) -> RunResult:
    """Simulate `workload` under each technique, fused ones with RTL in the loop at every cycle.

    Raises SimulationError, ToolchainError, and what machine and tiling refuse.
    """
    simulation.make_tiling(machine, workload)  # refuse before the work
    library = None
    if any(name in POLICIES for name in techniques):
        from .cosim.gpu import gpu_library
        progress(BUILD, 0.0)
        library = gpu_library(machine.geometry())
        progress(BUILD, 1.0)
    isolated = Isolated(machine, workload, progress)
    results = {}
    for name in techniques:
        isolated.label = name
        results[name] = (_fused(name, workload, machine, isolated, library, progress, seed) if name in POLICIES
                         else _from_isolated(name, isolated))
        progress(name, 1.0)
    return RunResult(workload=workload, machine=machine, seed=seed, versions=collect_versions(), techniques=results)


def _from_isolated(name: str, isolated: Isolated) -> TechniqueResult:
    """The baseline, and the ideals (which are arithmetic on isolated times)."""
    g, a = isolated["gemm"], isolated["all-gather"]
    r = isolated["reduce-scatter-nmc" if name == "ideal-rs-nmc" else "reduce-scatter"]
    simulated = (g, r, a) if name == "sequential" else ()
    if name == "sequential":
        total = g.ns + r.ns + a.ns
        loss = {"reduce_scatter": r.ns, "all_gather": a.ns}
    else:
        total = max(g.ns, r.ns) + a.ns
        loss = {"link_tail": max(0.0, r.ns - g.ns), "all_gather": a.ns}
    return TechniqueResult(
        name=name, total_ns=total, gemm_ns=g.ns, rs_ns=r.ns, ag_ns=a.ns, dram=_sum(g.dram, r.dram, a.dram),
        mc_cycles=sum(kernel.cycles for kernel in simulated), rtl_in_loop=False,
        host_seconds=sum(kernel.host_seconds for kernel in simulated), loss_ns=loss)


def _fused(name: str, workload: Workload, machine: Machine, isolated: Isolated, library, progress: Progress,
           seed: int) -> TechniqueResult:
    """GEMM and reduce-scatter fused on the RTL, then the all-gather through the same arbiters."""
    from .cosim.gpu import compiled_gpu, model_ports
    alone = isolated["gemm"]
    started, clock = time.perf_counter(), machine.memory_clock_ghz
    with compiled_gpu(library) as backend:
        backend.reset()
        run = FusedRun(machine, workload, [backend], model_ports(library.ports, machine.geometry()),
                       Policy.of(POLICIES[name], machine),
                       options=simulation.Options(seed=seed))
        run.run(lambda fraction: progress(name, 0.7 * fraction))
        end = run.now
        gemms.settle(run.sim.gemm, 0, end)
        threshold, occupancy = run.chosen_threshold()
        counters = run.counters()
        gather = run.all_gather(lambda fraction: progress(name, 0.7 + 0.3 * fraction))
        finish = int(run.sim.gemm.finish_time[0])
        loss = losses.attribute(
            alone_cycles=alone.ns * clock, alone_units=alone.unit_cycles, alone_waited=alone.waited,
            fused_finish=finish, fused_units=run.sim.gemm.accounted[0], fused_waited=run.sim.mem.waited[0],
            end=end, gather=gather, units=run.sim.gemm.state.shape[1])
        details = {
            "rtl_counters": counters, "chosen_threshold": threshold, "producer_mean_occupancy": occupancy,
            "slices": run.tiling.slices,
            "largest_wg_offset": run.tiling.max_wg_offset(run.spaces[0].device),
            "window_blocked_cycles": int(run.sim.control.blocked_cycles[0]),
        }
        return TechniqueResult(
            name=name, total_ns=run.now / clock, gemm_ns=finish / clock,
            rs_ns=(end - max(0, int(run.sim.control.rs_start[0]))) / clock, ag_ns=gather / clock,
            dram=traffic(run.sim), mc_cycles=run.now, rtl_in_loop=True,
            host_seconds=time.perf_counter() - started, loss_ns={k: v / clock for k, v in loss.items()},
            details=details)
