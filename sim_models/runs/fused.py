"""A fused GEMM and reduce-scatter on real RTL: one instance per simulated GPU, in lockstep with the models."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np

from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.gpu.engine.switch_hardware import no_switch
from t3sim.gpu.fabric import memory
from t3sim.gpu.fabric.switch import NO_SWITCH
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.simulator import Design
from t3sim.runs import build
from t3sim.runs.checks import check, in_a_line, nothing_counted, waits
from t3sim.runs.failure import SimulationError, to_end
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.program_kernels import ring_plan
from t3sim.runs.programmed import ProgrammedRun
from t3sim.runs.switch_kernels import all_gather

_ALL_GATHER = 1  #: range of memory that is open to peers in the all-gather


class FusedRun(ProgrammedRun):
    """A fused kernel, and the all-gather that may follow."""

    def standstill(self) -> SimulationError:
        rows = waits(self)
        return SimulationError(f"{super().standstill()}: {in_a_line(rows)}", rows)

    def check(self) -> None:
        if self.switch:
            self.switch.check(self.sim)
        check(self)

    def all_gather(self, progress: Callable[[float], None] = lambda fraction: None, by_switch: bool = False) -> int:
        """Run the all-gather that follows, through the same arbiters; return its cycles.

        It goes around a ring, or a switch copies what enters it once.
        """
        before, first = [self.counters(d) for d in range(len(self.backends))], self.now
        launch = round(self.machine.collective.kernel_launch_ns * self.machine.memory_clock_ghz)
        at = build.Addresses.of(self.workload, self.tiling).c
        if by_switch:
            kernel, network, switch, self.sim.control.downstream[:] = all_gather(
                self.machine, self.workload.output_bytes, self.workload.tp, at)
        else:
            plan = ring_plan("all-gather", self.workload.tp, self.workload.output_bytes, at, 0)
            kernel = build.copy_units(self.machine, build.planned_copy(self.machine, [plan]), memory.OTHER)
            network, switch = build.loop_network(self.machine), NO_SWITCH
        self.sim.control.start[:] = first + launch
        chunk_bytes = -(-self.workload.output_bytes // self.workload.tp)
        chunk_lines = lines_of(chunk_bytes)
        for driver, master in zip(self.drivers, self.masters):
            self.write(master, driver.open_memory(
                _ALL_GATHER, base=at, limit=at + self.workload.tp * chunk_lines * LINE_BYTES))
            self.write(master, driver.plain_arrivals([_ALL_GATHER]))
        hardware = self.sim.hardware._replace(switch=no_switch())
        self.sim = self.sim._replace(kernel=kernel, network=network, switch=switch, hardware=hardware,
                                     expected_events=np.zeros_like(self.sim.expected_events))
        to_end(self, "all-gather",
               lambda: progress(min(0.99, float(kernel.state.phase[0]) / len(kernel.state.phase_over[0]))))
        self.raise_errors()
        nothing_counted(self, before)
        return self.now - first


@cache
def rtl_design(geometry: Geometry):
    """Return the compiled RTL of this geometry, built if it is not cached. Raises ToolchainError."""
    from t3sim.cosim.gpu import gpu_design
    return gpu_design(geometry)


def fused_run(policy: str, plan: Plan, every_gpu: bool = False, design: Design | None = None,
              around: Callable[[Any], Any] = lambda backend: backend) -> FusedRun:
    """Make a programmed run of the representative GPU, or of every GPU (if GPUs are not alike, or with `every_gpu`).

    `design`: another compiled top than the ordinary one; `around`: wraps each RTL instance (`t3 bench`).
    Close the run after use.
    """
    from t3sim.cosim.gpu import model_ports
    geometry = plan.machine.geometry()
    gpus = plan.workload.tp if every_gpu or not plan.schedule.is_symmetric() else 1
    design = design or rtl_design(geometry)
    with ExitStack() as held:
        backends = [around(held.enter_context(design.simulator())) for _ in range(gpus)]
        for backend in backends:
            backend.reset()
        run = FusedRun(plan, backends, model_ports(design.ports, geometry), Policy.of(policy, plan.machine),
                       mirrored=gpus == 1)
        held.pop_all()
    return run
