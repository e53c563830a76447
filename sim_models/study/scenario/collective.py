"""A scenario whose layer is a collective alone: by which algorithm, over which links, and what is simulated for it."""

from collections.abc import Callable
from functools import cached_property, partial

from t3sim.analytic.closed_forms import chunk_bytes
from t3sim.analytic.costs import kernel_costs
from t3sim.base.custom import is_custom
from t3sim.base.errors import BadInput, choices
from t3sim.base.output import collect_versions
from t3sim.collectives.algorithms import COLLECTIVES, Algorithm, algorithms
from t3sim.event.flow.collective import run_program as run_event_level
from t3sim.machine.topologies import Topology, named_topology
from t3sim.runs.build import card_of, switch_shape
from t3sim.runs.collective_alone import POLICY, CollectiveEnd, PlannedCollective, held_bytes
from t3sim.runs.collective_numbers import BYTES_PER_WORD, WORD_BYTES
from t3sim.runs.exchange import (
    IN_SWITCH,
    Exchange,
    check_topology,
    counting_parts,
    custom_program,
    kept_together,
    own_algorithm,
    own_topology,
)
from t3sim.runs.isolated_collectives import program_plans
from t3sim.runs.kernel_results import GpuEnd
from t3sim.runs.program_kernels import LevelPlan
from t3sim.runs.skew import Skew
from t3sim.study.results import CollectiveRun
from t3sim.study.scenario.kinds import check_keys
from t3sim.study.scenario.request import check_limits, check_skew, machine_of
from t3sim.study.scenario.scenario import Scenario, setting
from t3sim.study.tasks.collective import CollectiveTask
from t3sim.study.tasks.estimate import BASE_BYTES, FUSED_CYCLES_PER_SECOND, Estimate
from t3sim.study.tasks.store import Results
from t3sim.trace.setup import CollectiveSetup

MOST_GPUS = 32
_GPU_BYTES = 100_000_000  #: of this computer, that a simulated GPU with its RTL takes at most


class CollectiveRequest:
    """A collective alone; made ready, which raises BadInput, before it runs."""

    what = "a collective alone"  #: for people

    def __init__(self, scenario: Scenario) -> None:
        layer = scenario.layer
        self.collective = collective = layer.collective or ""
        layer_key = setting("layer.collective", collective)
        if collective not in COLLECTIVES:
            raise BadInput(f"layer.collective = {collective!r} is unknown: allowed are "
                           f"{choices(collective, COLLECTIVES)}")
        check_keys(scenario, "collective")
        if layer.bytes is None:
            raise BadInput(f"{layer_key} needs layer.bytes = N, of each GPU's array")
        if layer.bytes < 1:
            raise BadInput(f"layer.bytes = {layer.bytes} is not possible: 1 or more")
        check_skew(scenario)
        self.machine = machine_of(scenario)
        self.topology, self.links = _links(scenario, layer_key)
        possible, algorithm = algorithms(collective, self.links), scenario.exchange.algorithm
        if self.topology == "switch" and collective != "a2a":
            possible[IN_SWITCH] = Algorithm(IN_SWITCH, lambda alike: Exchange(collective, IN_SWITCH, "switch").program(
                self.links.gpus))
        default_algorithm = own_algorithm(collective, self.topology) if algorithm is None else algorithm
        self.algorithm = (default_algorithm if default_algorithm in possible or algorithm is not None else
                          next(iter(possible)))
        if self.algorithm not in possible and not is_custom(self.algorithm):
            raise BadInput(f"exchange.algorithm = {self.algorithm!r} is not possible for {layer_key} on "
                           f"{self.topology}: allowed are {choices(self.algorithm, possible)}")
        if any(link.network for link in self.links.links):
            card_of(self.machine)
        self._program = possible[self.algorithm].program() if self.algorithm in possible else custom_program(
            self.algorithm, collective, self.links.gpus)
        if self.algorithm == IN_SWITCH:
            self.machine = counting_parts(self.machine, self.links.gpus)
            switch_shape(self.machine)
        scenario_bytes = layer.bytes / scenario.parts
        words = chunk_bytes(collective, self._program, scenario_bytes) / WORD_BYTES
        chunk = int(-(-words // 1)) * WORD_BYTES
        fitting_machine = self.machine
        if self.algorithm == IN_SWITCH and collective != "ag":
            fitting_machine = kept_together(self.machine, self.links.gpus, chunk)
        self.bytes = chunk * self._program.chunks // (self.links.gpus if collective == "a2a" else 1)
        skew = Skew.of(scenario.gpus.skew or "", self.links.gpus) if scenario.gpus.every else None
        if skew:
            skew.check(self.links, self.machine)
        #: For people: what is run instead of what was asked for.
        self.notes = () if self.bytes == scenario_bytes else (
            f"layer.bytes = {layer.bytes} is run as {self.bytes}: chunks have whole words of {WORD_BYTES} bytes",)
        if fitting_machine is not self.machine:
            kernel, self.machine = fitting_machine.collective, fitting_machine
            self.notes += ((f"kernels have {kernel.workgroups_per_cu} workgroups at once on a unit, of "
                            f"{kernel.workgroup_bytes} bytes each, for sums to fit the switch's tables"),)
        self.notes += tuple(check_limits(scenario, self.machine, {POLICY}))
        self.planned = PlannedCollective(
            self.machine, self._kernels, chunk, self._program, self.links,
            skew, scenario.seed if layer.values else None)
        held_bytes(self.machine, self._alone)

    @property
    def _kernels(self) -> str:
        """Which kernels it is, of `program_kernels.KINDS`: what a switch adds, memory adds to the GPU's own."""
        if self.collective == "ag":
            return "all-gather"
        return "reduce-scatter-nmc" if self.algorithm == IN_SWITCH else "reduce-scatter"

    @cached_property
    def _event_ns(self) -> float:
        """The event level's time."""
        part = self.planned.chunk_bytes
        return run_event_level(self._program, self.links, lambda chunk: part, kernel_costs(self.machine),
                               self.algorithm == IN_SWITCH).ns

    @property
    def _alone(self) -> list[LevelPlan]:
        """Plan one GPU, for what it holds."""
        return program_plans(self.planned.chunk_bytes, self.planned.kind, self._program, alone=True)

    @property
    def task(self) -> CollectiveTask:
        """The simulation, as a task that others may share."""
        return CollectiveTask(self.planned, f"{self.kind} of {self.size}, {self.algorithm} on {self.topology}, "
                                            f"{self.machine.name}")

    @property
    def kind(self) -> str:
        """Name for people."""
        return COLLECTIVES[self.collective]

    @property
    def size(self) -> str:
        """Size for people."""
        return f"{self.bytes:,} bytes on {self.links.gpus} GPUs"

    def estimate(self) -> Estimate:
        """Estimate how long it takes: the event level's cycles, of one GPU or of all."""
        gpus, cycles = len(self.planned.plans), self._event_ns * self.machine.memory_clock_ghz
        words = held_bytes(self.machine, self._alone) / WORD_BYTES if self.planned.seed is not None else 0
        return Estimate(cycles, gpus * cycles / FUSED_CYCLES_PER_SECOND,
                        BASE_BYTES + gpus * (_GPU_BYTES + words * BYTES_PER_WORD))

    def recorded(self, store: Results | None = None) -> CollectiveSetup:
        """Return it as a trace records it; `store`: keeps its result, too, if it runs to its end."""
        keep = (lambda end: None) if store is None else partial(store.save, self.task)
        return CollectiveSetup(self.planned, self.kind, self.task.label, keep)

    def run(self, progress: Callable[[str, float], None], store: Results | None = None) -> CollectiveRun:
        """Simulate it, unless it is kept. Raises SimulationError, ToolchainError."""
        if store is None or (end := store.load(self.task)) is None:
            end = self.planned.simulate(lambda share: progress(self.kind, share))
            if store is not None:
                store.save(self.task, end)
        progress(self.kind, 1.0)
        return self.result(end)

    def result(self, end: CollectiveEnd) -> CollectiveRun:
        """Make up its answer."""
        skew = self.planned.skew
        return CollectiveRun(
            self.collective, self.algorithm, self.topology, self.machine.name, self.links.gpus, self.bytes, end.ns,
            end.cycles, end.gpus, self._bounds_ns(end.gpus, end.cycles / self.machine.memory_clock_ghz),
            None if skew and skew != Skew() else self._event_ns, end.words, end.host_seconds, end.switch,
            collect_versions())

    def _bounds_ns(self, gpus: tuple[GpuEnd, ...], ns: float) -> dict[str, float]:
        """Return what each resource alone would take, with the launch."""
        costs, links = kernel_costs(self.machine), {(link.source, link.destination): link for link in self.links.links}
        steps: dict[int, float] = {}  # by level: the longest way
        for transfer, level in zip(self._program.transfers, self._program.levels):
            way = sum(costs.latency_ns(links[hop], self.links)
                      for hop in self.links.way(transfer.source, transfer.destination))
            steps[level] = max(steps.get(level, 0.0), costs.step_ns + way)
        return {name: costs.launch_ns + bound for name, bound in (
            ("links", max(gpu.link_busy for gpu in gpus) * ns),
            ("memory", max(gpu.read_bytes + gpu.written_bytes for gpu in gpus) / costs.memory_bytes_per_ns),
            ("latency", sum(steps.values())))}


def _links(scenario: Scenario, layer_key: str) -> tuple[str, Topology]:
    """Return the links by name, and themselves. Raises BadInput, TopologyError."""
    topology_name, devices = scenario.exchange.topology, scenario.layer.devices
    topology = own_topology(scenario.layer.collective) if topology_name is None else topology_name
    check_topology(topology)
    if devices is None and ":" in topology and not is_custom(topology):
        devices = named_topology(topology).gpus
    if devices is None:
        raise BadInput(f"{layer_key} needs layer.devices = N")
    if not 2 <= devices <= MOST_GPUS:
        raise BadInput(f"{setting('layer.devices', devices)} is not possible for {layer_key}: 2 to {MOST_GPUS}")
    return topology, Exchange(topology=topology).links(devices)
