"""A collective alone, by kernels on compute units whose every access goes through the RTL of their GPU.

One GPU stands for all where they are alike; else, or if numbers are carried, every GPU is simulated with its own RTL.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from ..agents.compute_units import set_condition
from ..collectives import Program
from ..cosim.gpu import compiled_gpu, gpu_library, model_ports
from ..driver.driver import Write
from ..engine.end import IDLE_LIMIT, STUCK
from ..engine.hardware import make_hardware
from ..errors import BadInput
from ..fabric.network import outgoing
from ..machine import Machine
from ..mechanisms.program_kernels import LevelPlan, most_additions
from ..topologies import Topology
from . import build
from .checks import nothing_counted
from .collective_numbers import NumbersObserver
from .failure import SimulationError
from .isolated_collectives import alike, planned_sim, program_plans
from .phases import bytes_by_phase
from .programmed import ProgrammedGpus
from .skew import Skew

_OPEN = 0  #: range of memory that is open to peers
_POLICY = "round_robin"


class GpuEnd(NamedTuple):
    """End of a GPU's work."""

    end_ns: float  #: of its kernel, with the launch, from the launch on the first GPU
    read_bytes: int  #: by DRAM
    written_bytes: int
    sent_bytes: int  #: over the link that was busy longest
    link_to: int  #: node where it leads
    link_busy: float  #: share of the time without the launch


class CollectiveEnd(NamedTuple):
    """A collective that has run."""

    ns: float  #: until all has come to rest, with the launch
    cycles: int  #: simulated
    gpus: tuple[GpuEnd, ...]  #: one if it stands for all
    words: int | None  #: that were compared; None: no numbers were carried


class ProgrammedCollective(ProgrammedGpus):
    """The GPUs of a collective alone, programmed through their buses, at cycle 0."""

    def __init__(self, machine: Machine, kind: str, chunk_bytes: int, program: Program, topology: Topology,
                 skew: Skew | None = None, seed: int | None = None) -> None:
        """Take a collective on chunks of this size; `kind`: of `program_kernels.KINDS`.

        `skew`: what tells GPUs apart, None: nothing; `seed`: of numbers that are carried, None: none are. Raises
        BadInput, ToolchainError.
        """
        alone = skew is None and seed is None and alike(program, topology)
        self.machine, self.plans = machine, program_plans(chunk_bytes, kind, program, alone)
        self._limit = held_bytes(machine, self.plans)
        with ExitStack() as held:
            geometry = machine.geometry()
            library = gpu_library(geometry)
            backends = [held.enter_context(compiled_gpu(library)) for _ in self.plans]
            for backend in backends:
                backend.reset()
            hardware, _ = make_hardware(backends, model_ports(library.ports, geometry),
                                        np.zeros((len(backends), 0), np.int64))
            skew = skew or Skew()
            sim = planned_sim(machine, self.plans, kind, topology, skew.links(machine))._replace(hardware=hardware)
            for device, condition in skew.conditions(machine).items():
                set_condition(sim.kernel, device, condition)
            sim.control.start[:] = skew.start_cycles(machine, len(self.plans))
            super().__init__(sim, geometry, backends, range(len(self.plans)))
            self.reset()
            self.restart(self._settings)
            held.pop_all()
        self.numbers = None if seed is None else NumbersObserver(self.plans, seed)
        if self.numbers:
            self.observers.append(self.numbers)

    def _settings(self, place: int) -> list[Write]:
        driver = self.drivers[place]
        return (driver.policy(_POLICY) + driver.open_memory(_OPEN, base=0, limit=self._limit)
                + driver.plain_arrivals([_OPEN]))

    def run(self, progress: Callable[[float], None] = lambda fraction: None) -> CollectiveEnd:
        """Run it to its end and check it. Raises SimulationError."""
        before, state = [self.counters(d) for d in range(len(self.backends))], self.sim.kernel.state

        def after_batch() -> None:
            self.raise_errors()
            progress(min(0.99, float(state.phase.min()) / state.phase_over.shape[1]))
        if self.to_end(after_batch) == STUCK:
            raise SimulationError(f"the collective did not move for {IDLE_LIMIT} cycles")
        nothing_counted(self, before)
        for observer in self.observers:
            observer.check()
        launch, clock = self.machine.collective.kernel_launch_ns, self.machine.memory_clock_ghz
        return CollectiveEnd(self.now / clock + launch, self.now, tuple(map(self._end, range(len(self.plans)))),
                             self.numbers.words if self.numbers else None)

    def _end(self, device: int) -> GpuEnd:
        sim, clock = self.sim, self.machine.memory_clock_ghz
        moved, ports = bytes_by_phase(sim.mem, device).values(), outgoing(sim.network, device)
        fullest = int(ports[np.argmax(sim.network.busy_cycles[ports])])
        return GpuEnd(
            float(sim.kernel.state.phase_over[device].max()) / clock + self.machine.collective.kernel_launch_ns,
            sum(phase.read for phase in moved), sum(phase.write for phase in moved),
            int(sim.network.sent_bytes[fullest]), int(sim.network.target[fullest]),
            float(sim.network.busy_cycles[fullest]) / self.now)


def held_bytes(machine: Machine, plans: list[LevelPlan]) -> int:
    """Return the bytes of memory that a GPU's chunks, and what comes to be added, reach to. Raises BadInput."""
    program, there = plans[0].program, build.memory_bytes(machine)
    end = plans[0].at.received(max(map(len, program.held)) * most_additions(program))
    if end > there:
        raise BadInput(f"a GPU would hold {end:,} bytes, chunks and what comes to be added: machine {machine.name!r} "
                       f"has {there:,}")
    return end
