"""The plan of a run: machine, workload, the techniques' choices, and how a kernel's collective is scheduled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from t3sim.collectives.schedule import Ids, Limits, Schedule, ScheduleError, ScheduleOptions, Shuffle, sliced_schedule
from t3sim.cosim.driver.driver import Driver
from t3sim.gpu.setup import Condition
from t3sim.machine import Machine, topologies
from t3sim.machine.links import LinkSection
from t3sim.runs.address_space import AddressSpace, map_output
from t3sim.runs.dispatch_before import dispatch_tiling
from t3sim.runs.exchange import COMBINE, IN_SWITCH, MOST_REGIONS, REDUCED, Exchange
from t3sim.runs.gather_before import tiling_for
from t3sim.runs.operators import Addresses, make_operator, make_tiling, placement_of, workgroups_at_once
from t3sim.runs.signals import tracked_tiling
from t3sim.runs.skew import Skew
from t3sim.runs.sums import region_sum
from t3sim.workload.operators.operator import Operator
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import DispatchWorkload, ExpertsWorkload, Workload

if TYPE_CHECKING:
    from t3sim.collectives import Program


@dataclass
class Policy:
    """Arbitration settings (T3 paper, section 4.5)."""

    name: str = "round_robin"
    threshold: str | int | None = "auto"  #: "auto", a number, or None: communication is never held back

    @classmethod
    def of(cls, name: str, machine: Machine) -> "Policy":
        """Return policy `name` with the machine's threshold."""
        threshold = machine.arbiter.threshold
        return cls(name, None if threshold == "none" else threshold)


_BASE_SKEW = 1 << 20  #: outputs of neighbours lie at different addresses, so that address offsets are exercised


@dataclass(frozen=True)
class Plan:
    """Machine, layer and choices of a run. Vary it with `dataclasses.replace`.

    Each kernel sets the fields from `stage_first_chunk` on for itself. `fused` sets those that its collective needs.
    """

    machine: Machine = field(repr=False)  #: with the hardware that the exchange needs (`Exchange.hardware`)
    workload: Workload
    seed: int = 0
    exchange: Exchange = REDUCED  #: the collective that techniques hide, and its links
    policy: str | None = None  #: arbitration policy of technique t3, None: round robin
    skew: Skew | None = None  #: differences between GPUs, each with its own RTL; None: a representative GPU
    options: Mapping[str, Any] = field(default_factory=dict)  #: of techniques that have some, by their names
    stage_first_chunk: bool = False  #: into local memory and on by DMA, so that no store waits for the link
    hold_back: float = 0.0  #: probability that a handshake is held back for a cycle (random tests)
    link_jitter_cycles: int = 0  #: largest extra link delay (random tests)
    #: Links that differ from the machine's, by (source, destination).
    links: Mapping[tuple[int, int], LinkSection] = field(default_factory=dict)
    start_cycles: tuple[int, ...] = ()  #: of each simulated GPU, before which no workgroup starts; empty: all at once
    #: Of GPUs whose compute units differ from the machine's.
    conditions: Mapping[int, Condition] = field(default_factory=dict)
    ids: Ids = Ids.TOUCHED
    limits: Limits = Limits.SHIFT
    shuffle: Shuffle | None = None
    slices: int = 1  #: of the output, at least
    signal: str | None = None  #: of `signals.SIGNALS`; the machine has the hardware for it
    gathers: bool = False  #: the collective brings the activations before the GEMM, instead of taking the output
    mirrored: bool = True  #: of a collective alone: a representative GPU is simulated
    gpu: int | None = None  #: whose kernel runs alone; None: that of the GPU with the most workgroups
    #: Makes the operator that stores a tiling's output from an address on; unused with `gathers`, which is for GEMMs.
    operator: Callable[[Machine, Workload, Tiling, int], Operator] = field(default=make_operator, repr=False)
    #: Functions of the number of ranks, and of nodes.
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
                            ScheduleOptions(slices, ids=self.ids, limits=self.limits, shuffle=self.shuffle,
                                            present=True))
        if isinstance(workload, ExpertsWorkload):
            return self._placed_schedule(machine, workload)
        base_tiling, at_once = make_tiling(machine, workload), workgroups_at_once(machine, workload)
        byte_bits, column_bits = geometry.block_bits
        most = (1 << byte_bits) - 1, (1 << column_bits) - 1
        tracked = tracked_tiling(base_tiling, self.signal, gpus, at_once, most)
        schedule = Schedule(tracked, self.collective(gpus), self.topology(gpus), ScheduleOptions(
            self.slices, self.stage_first_chunk, self.ids, self.limits, self.shuffle, gpu.k_parts))
        window = Driver(geometry).largest_window(min(geometry.tracker.ways, gpu.wavefronts_per_workgroup),
                                                 max(map(schedule.waits_for, range(schedule.gpus))))
        return sliced_schedule(schedule, window, -(-at_once * tracked.tiles // (base_tiling.tiles * gpu.k_parts)))

    def fused(self) -> "Plan":
        """Return the plan whose schedule fuses the GEMM with `exchange`, which the other fields of a kernel follow."""
        exchange, machine, workload = self.exchange, self.machine, self.workload
        if exchange.reduces:
            return replace(self, signal=exchange.signal)
        plan = replace(self, collective=exchange.program, topology=exchange.links, limits=Limits.EXACT)
        if exchange.collective == COMBINE:
            return plan  # its placement says the rest
        if exchange.before:
            plan = replace(plan, ids=Ids.TRACKED, gathers=True)
            if exchange.algorithm == "ring" or exchange.of_experts:
                return plan
            # Groups of activations come from all others in turn, as they do come, not GPU by GPU: a slice for each
            # group of a GPU's own.
            return plan._most_slices(plan.schedule.tiling.tile_columns // plan.schedule.program.chunks)
        if exchange.algorithm in ("direct", IN_SWITCH) or exchange.by_levels:
            # Tiles of all owners in turn, one of each after the other: every owner's Tracker then holds few tiles of
            # which parts are missing, and stores go over all links at any time. Only an owner's tiles need places in
            # its window.
            chunks = exchange.program(workload.tp).chunks
            return replace(plan, ids=Ids.TRACKED, slices=max(1, make_tiling(machine, workload).tiles // chunks))
        if exchange.of_parts:  # the fewest slices: a GPU's own tiles leave as they are made, and need no places
            return replace(plan, ids=Ids.TRACKED)
        # The first slices are gathered while later ones are made: as many as the GPU has stages of workgroups.
        at_once = machine.gpu.compute_units * machine.gpu.workgroups_per_cu
        return plan._most_slices(-(-make_tiling(machine, workload).tiles // at_once))

    def _most_slices(self, most: int) -> "Plan":
        """Cut the output into the most slices of which the hardware can run a schedule."""
        for slices in range(most, 1, -1):
            plan = replace(self, slices=slices)
            schedule = plan.schedule
            try:
                map_output(schedule, 0, [0] * self.workload.tp, self.machine.geometry(),
                           self.machine.dma.tiles_per_block)
            except ScheduleError:
                continue
            return plan
        return self

    def spaces(self, gpu: int | None = 0) -> list[AddressSpace]:
        """Map the output of one GPU, or of all (None). Raises ScheduleError for what the hardware cannot do."""
        machine, workload, schedule = self.machine, self.workload, self.schedule
        at = Addresses.of(workload, make_tiling(machine, workload))
        first = at.copies if self.gathers else at.c
        bases = [first + (other * _BASE_SKEW if gpu is None else 0) for other in range(workload.tp)]
        return [map_output(schedule, one, bases, machine.geometry(), machine.dma.tiles_per_block, region_sum(workload))
                for one in (range(workload.tp) if gpu is None else [gpu])]

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
        policy = ScheduleOptions(tiling.tile_rows if tiling.along_n else 1, ids=Ids.TRACKED, limits=Limits.EXACT,
                                 parts=workload.per_token)
        return Schedule(tiling, self.collective(workload.tp), self.topology(workload.tp), policy, placement)
