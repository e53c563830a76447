"""The plan of a kernel: machine, workload, how its collective is scheduled, and what its run varies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from t3sim.collectives.schedule import Ids, Limits, Policy, Schedule, Shuffle, sliced_schedule
from t3sim.cosim.driver.driver import Driver
from t3sim.gpu.agents.units.state import Condition
from t3sim.machine import Machine, topologies
from t3sim.machine.links import Link as MachineLink
from t3sim.mechanisms.dispatch_before import dispatch_tiling
from t3sim.mechanisms.exchange import MOST_REGIONS, REDUCED
from t3sim.mechanisms.gather_before import tiling_for
from t3sim.mechanisms.signals import tracked_tiling
from t3sim.runs.operators import make_operator, make_tiling, placement_of, workgroups_at_once
from t3sim.workload.operators.operator import Operator
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import DispatchWorkload, ExpertsWorkload, Workload

if TYPE_CHECKING:
    from t3sim.collectives import Program


@dataclass(frozen=True)
class Plan:
    """What a kernel runs on. Vary it with `dataclasses.replace`."""

    machine: Machine = field(repr=False)
    workload: Workload
    seed: int = 0
    stage_first_chunk: bool = False  #: into local memory and on by DMA, so that no store waits for the link
    hold_back: float = 0.0  #: probability that a handshake is held back for a cycle (random tests)
    link_jitter_cycles: int = 0  #: largest extra link delay (random tests)
    #: Links that are not the machine's: (source, destination) and what they are like.
    links: Mapping[tuple[int, int], MachineLink] = field(default_factory=dict)
    start_cycles: tuple[int, ...] = ()  #: of each simulated GPU, before which no workgroup starts; empty: all at once
    #: Of GPUs whose compute units are not as the machine has them.
    conditions: Mapping[int, Condition] = field(default_factory=dict)
    ids: Ids = Ids.TOUCHED
    limits: Limits = Limits.SHIFT
    shuffle: Shuffle | None = None
    slices: int = 1  #: at least so many
    signal: str | None = None  #: of `signals.SIGNALS`; the machine has the hardware for it
    gathers: bool = False  #: the collective brings the activations before the GEMM, instead of taking the output
    mirrored: bool = True  #: of a collective alone: one GPU stands for all
    gpu: int | None = None  #: whose kernel runs alone; None: that of the GPU with the most workgroups
    #: What makes the output of a tiling at a byte; not asked for with `gathers`, which is for GEMMs.
    operator: Callable[[Machine, Workload, Tiling, int], Operator] = field(default=make_operator, repr=False)
    #: Of so many ranks, and of so many nodes.
    collective: Callable[[int], "Program"] = field(default=REDUCED.program, repr=False)
    topology: Callable[[int], topologies.Topology] = field(default=REDUCED.links, repr=False)

    @cached_property
    def schedule(self) -> Schedule:
        """The layer's collective, in as many slices as the machine's Tracker needs.

        Raises ScheduleError, TilingError and DriverError.
        """
        machine, workload = self.machine, self.workload
        gpu, geometry, gpus = machine.gpu, machine.geometry(), workload.tp
        if self.gathers:
            tiling, slices, program = self.inputs_tiling(), self.slices, self.collective(gpus)
            if isinstance(workload, DispatchWorkload):
                slices = tiling.tile_columns // program.chunks
            return Schedule(tiling, program, self.topology(gpus),
                            Policy(slices, ids=self.ids, limits=self.limits, shuffle=self.shuffle, present=True))
        if isinstance(workload, ExpertsWorkload):
            return self._placed_schedule(machine, workload)
        made, at_once = make_tiling(machine, workload), workgroups_at_once(machine, workload)
        byte_bits, column_bits = geometry.block_bits
        tracked = tracked_tiling(made, self.signal, gpus, at_once, ((1 << byte_bits) - 1, (1 << column_bits) - 1))
        schedule = Schedule(tracked, self.collective(gpus), self.topology(gpus), Policy(
            self.slices, self.stage_first_chunk, self.ids, self.limits, self.shuffle, gpu.k_parts))
        window = Driver(geometry).largest_window(min(geometry.tracker.ways, gpu.wavefronts_per_workgroup),
                                                 max(map(schedule.waits_for, range(schedule.devices))))
        return sliced_schedule(schedule, window, -(-at_once * tracked.tiles // (made.tiles * gpu.k_parts)))

    def inputs_tiling(self) -> Tiling:
        """Cut the activations that an exchange brings before the GEMM. Raises TilingError and DriverError."""
        if isinstance(self.workload, DispatchWorkload):
            return dispatch_tiling(self.machine, self.workload, MOST_REGIONS)
        return tiling_for(self.machine, self.workload)

    def _placed_schedule(self, machine: Machine, workload: ExpertsWorkload) -> Schedule:
        """Schedule sums whose parts come from wherever experts are: a slice if a Tracker holds all of a GPU's tiles.

        Else there is one for each row of tiles, which all workgroups make before the next one.
        """
        tiling = make_tiling(machine, workload)
        window = Driver(machine.geometry()).largest_window(min(machine.tracker.ways, tiling.wavefronts), waits_for=0)
        tiling = replace(tiling, along_n=tiling.tiles > window * workload.tp)
        placement = placement_of(machine, workload, tiling.along_n)
        policy = Policy(tiling.tile_rows if tiling.along_n else 1, ids=Ids.TRACKED, limits=Limits.EXACT,
                        parts=workload.per_token)
        return Schedule(tiling, self.collective(workload.tp), self.topology(workload.tp), policy, placement)
