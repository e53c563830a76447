"""A GEMM and its reduce-scatter that overlap as kernels on compute units, without Track & Trigger: one GPU for all."""

from collections.abc import Callable
from typing import Any

from t3sim.gpu.agents.side_by_side import SideBySide
from t3sim.gpu.agents.units.state import UnitState, settle
from t3sim.gpu.engine.loop import Lockstep
from t3sim.gpu.fabric.state import Network
from t3sim.gpu.state import Sim
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology
from t3sim.runs import build
from t3sim.runs.failure import to_end
from t3sim.runs.phases import bytes_by_phase


def links_of(machine: Machine, topology: Topology, mirrored: bool) -> Network:
    """Make the links of a representative GPU, or of all of them."""
    return build.mirrored_network(machine, topology, 0) if mirrored else build.network_of(machine, topology, {})


def run_overlapped(name: str, sim: Sim, progress: Callable[[float], None]) -> tuple[Sim, int]:
    """Run to the end; return the state there and the cycles."""
    run = Lockstep(sim)
    kernel = run.sim.kernel
    kernels = (kernel.first, kernel.second) if isinstance(kernel, SideBySide) else (kernel,)
    total = sum(int(one.work.workgroups.sum()) for one in kernels)
    to_end(run, name, lambda: progress(min(0.99, sum(float(one.state.finished.sum()) for one in kernels) / total)))
    return run.sim, run.now


def gemm_part(sim: Sim, gemm: UnitState, device: int) -> dict[str, Any]:
    """Return what is known of a device's GEMM, and of its memory."""
    settle(gemm, device, int(gemm.finish_time[device]))
    return {"gemm_cycles": int(gemm.finish_time[device]), "dram": bytes_by_phase(sim.mem, device),
            "unit_cycles": tuple(gemm.accounted[device].tolist()), "waited": tuple(sim.mem.waited[device].tolist()),
            "places": gemm.state.shape[1]}
