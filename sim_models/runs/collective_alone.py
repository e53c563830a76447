"""A collective alone, by kernels on compute units whose every access goes through the RTL of their GPU.

One GPU stands for all where they are alike; else, or if numbers are carried, every GPU is simulated with its own RTL.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

import numpy as np

from t3sim.base.at_once import processor_seconds
from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.collectives import Program
from t3sim.cosim.driver.driver import Write
from t3sim.cosim.gpu import gpu_design, model_ports
from t3sim.gpu.agents.compute_units import set_condition
from t3sim.gpu.engine.hardware import make_hardware
from t3sim.gpu.fabric.network import outgoing
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology
from t3sim.rtlsim.simulator import Design
from t3sim.runs import build
from t3sim.runs.checks import nothing_counted, queued
from t3sim.runs.collective_numbers import NumbersObserver
from t3sim.runs.failure import SimulationError
from t3sim.runs.isolated_collectives import alike, planned_sim, program_plans
from t3sim.runs.kernel_results import GpuEnd
from t3sim.runs.phases import bytes_by_phase
from t3sim.runs.program_kernels import LevelPlan, most_additions
from t3sim.runs.programmed import ProgrammedGpus
from t3sim.runs.skew import Skew
from t3sim.runs.switch_rtl import SwitchRtl

_OPEN = 0  #: range of memory that is open to peers
POLICY = "round_robin"


@dataclass(frozen=True)
class CollectiveEnd:
    """A collective that has run."""

    ns: float  #: until all has come to rest, with the launch
    cycles: int  #: simulated
    gpus: tuple[GpuEnd, ...]  #: one if it stands for all
    words: int | None  #: that were compared; None: no numbers were carried
    switch: dict[str, int] | None = None  #: what the tables of the switch's RTL counted, and the most that one held
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class PlannedCollective:
    """A collective alone, as it is simulated: on chunks of a size, `kind` of `program_kernels.KINDS`."""

    machine: Machine
    kind: str
    chunk_bytes: int
    program: Program
    topology: Topology
    skew: Skew | None = None  #: what tells GPUs apart, each with its own RTL
    seed: int | None = None  #: of numbers that are carried; None: none are

    @property
    def mirrored(self) -> bool:
        """Say whether a representative GPU is simulated."""
        return self.skew is None and self.seed is None and alike(self.program, self.topology)

    @property
    def plans(self) -> list[LevelPlan]:
        """Plan each simulated GPU's passes."""
        return program_plans(self.chunk_bytes, self.kind, self.program, self.mirrored)

    def simulate(self, progress: Callable[[float], None] = lambda fraction: None) -> CollectiveEnd:
        """Run it to its end and check it. Raises SimulationError, ToolchainError."""
        started = processor_seconds()
        with closing(ProgrammedCollective(self)) as run:
            run.run(progress)
            return replace(run.end(), host_seconds=processor_seconds() - started)


class ProgrammedCollective(ProgrammedGpus):
    """The GPUs of a collective alone, programmed through their buses, at cycle 0."""

    def __init__(self, collective: PlannedCollective, design: Design | None = None) -> None:
        """Take a collective, and another compiled top than the ordinary one. Raises BadInput, ToolchainError."""
        machine, self.collective, self.plans = collective.machine, collective, collective.plans
        self._limit = held_bytes(machine, self.plans)
        with ExitStack() as held:
            geometry = machine.geometry()
            design = design or gpu_design(geometry)
            backends = [held.enter_context(design.simulator()) for _ in self.plans]
            for backend in backends:
                backend.reset()
            hardware, _ = make_hardware(backends, model_ports(design.ports, geometry),
                                        np.zeros((len(backends), 0), np.int64))
            skew = collective.skew or Skew()
            sim = planned_sim(machine, self.plans, collective.kind, collective.topology, skew.links(machine))._replace(
                hardware=hardware)
            for device, condition in skew.conditions(machine).items():
                set_condition(sim.kernel, device, condition)
            sim.control.start[:] = skew.start_cycles(machine, len(self.plans))
            if collective.program.in_switch and machine.switch and machine.switch.rtl:
                self.switch = SwitchRtl(machine, machine.switch, sim)
                held.callback(self.switch.close)
                sim = sim._replace(hardware=self.switch.beside(hardware))
            super().__init__(sim, geometry, backends, range(len(self.plans)))
            self.reset()
            self.restart(self._settings)
            held.pop_all()
        self._before = [self.counters(d) for d in range(len(backends))]
        self.numbers = None if collective.seed is None else self._numbers(collective.seed)
        if self.numbers:
            self.observers.append(self.numbers)

    def _numbers(self, seed: int) -> NumbersObserver:
        columns = self.switch.columns(self.sim) if self.switch else np.zeros((0, LINE_BYTES // 8), np.int64)
        numbers = NumbersObserver(self.plans, seed, columns)
        if self.switch:
            self.sim = self.switch.with_numbers(self.sim, numbers.sent)
        return numbers

    def _settings(self, place: int) -> list[Write]:
        driver = self.drivers[place]
        return (driver.policy(POLICY) + driver.open_memory(_OPEN, base=0, limit=self._limit)
                + driver.plain_arrivals([_OPEN]))

    def check(self) -> None:
        if self.switch:
            self.switch.check(self.sim)
        nothing_counted(self, self._before)
        super().check()

    def standstill(self) -> SimulationError:
        state, phases = self.sim.kernel.state, self.sim.kernel.state.phase_over.shape[1]
        rows = [{"device": str(device), "steps over": f"{state.phase[d]} of {phases}",
                 "workgroups ended": f"{state.finished[d]} of {self.sim.kernel.work.workgroups[d]}",
                 "lines that have come": f"{self.sim.network.arrived[d]:,}",
                 "of this step": "none" if state.phase[d] == phases else
                 f"{self.sim.kernel.work.arrivals[d, state.phase[d]]:,}", **queued(self, d)}
                for d, device in enumerate(self.devices)]
        return SimulationError(f"{super().standstill()}: " + "; ".join(
            ", ".join(f"{name} {value}" for name, value in row.items()) for row in rows), rows)

    def end(self) -> CollectiveEnd:
        """Return what a run that has ended came to."""
        launch, clock = self.collective.machine.collective.kernel_launch_ns, self.collective.machine.memory_clock_ghz
        return CollectiveEnd(self.now / clock + launch, self.now, tuple(map(self._end, range(len(self.plans)))),
                             self.numbers.words if self.numbers else None,
                             self.switch.counters | {"most_held": int(self.sim.switch.most_held.max())}
                             if self.switch else None)

    def _end(self, device: int) -> GpuEnd:
        sim, clock = self.sim, self.collective.machine.memory_clock_ghz
        moved, ports = bytes_by_phase(sim.mem, device).values(), outgoing(sim.network, device)
        fullest = int(ports[np.argmax(sim.network.busy_cycles[ports])])
        return GpuEnd(
            float(sim.kernel.state.phase_over[device].max()) / clock
            + self.collective.machine.collective.kernel_launch_ns,
            sum(phase.read for phase in moved), sum(phase.write for phase in moved),
            int(sim.network.sent_bytes[fullest]), int(sim.network.target[fullest]),
            float(sim.network.busy_cycles[fullest]) / self.now)


def held_bytes(machine: Machine, plans: list[LevelPlan]) -> int:
    """Return the bytes of memory that a GPU's chunks, and what comes to be added, reach to. Raises BadInput."""
    program, there = plans[0].program, build.memory_bytes(machine)
    end = plans[0].at.received(max(map(len, program.rank_chunks)) * most_additions(program))
    if end > there:
        raise BadInput(f"a GPU would hold {end:,} bytes, chunks and what comes to be added: machine {machine.name!r} "
                       f"has {there:,}")
    return end
