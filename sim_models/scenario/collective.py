"""A scenario whose layer is a collective alone: by which algorithm, over which links, and what is simulated for it."""

from collections.abc import Callable
from functools import cached_property

from t3sim.at_once import processor_seconds
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.custom import is_custom
from t3sim.errors import BadInput, choices
from t3sim.flow.closed_forms import chunk_bytes
from t3sim.flow.collective import kernel_costs
from t3sim.flow.collective import run_program as run_event_level
from t3sim.mechanisms.exchange import Exchange, check_topology, custom_program, own_algorithm, own_topology
from t3sim.runs.build import card_of
from t3sim.runs.collective_alone import ProgrammedCollective, held_bytes
from t3sim.runs.collective_numbers import BYTES_PER_WORD, WORD_BYTES
from t3sim.runs.isolated_collectives import alike, program_plans
from t3sim.runs.skew import Skew
from t3sim.scenario.request import check_level, check_skew, machine_of
from t3sim.scenario.scenario import Scenario, said
from t3sim.study.results import CollectiveGpu, CollectiveRun
from t3sim.support.output import collect_versions
from t3sim.tasks.estimate import FUSED_CYCLES_PER_SECOND, Estimate
from t3sim.topologies import Topology, named_topology

MOST_GPUS = 32
_GPU_BYTES = 100_000_000  #: of this computer, that a simulated GPU with its RTL takes at most
_BASE_BYTES = 400_000_000
_KEYS = ("layer.collective", "layer.bytes", "layer.values", "layer.devices", "exchange.topology",
         "exchange.algorithm", "gpus.every", "gpus.skew", "machine", "seed")


class CollectiveAlone:
    """A collective alone; made ready, which raises BadInput, before it runs."""

    what = "a collective alone"  #: for people

    def __init__(self, scenario: Scenario) -> None:
        check_level(scenario)
        layer, given = scenario.layer, scenario.given()
        self.collective = collective = layer.collective or ""
        whole = said("layer.collective", collective)
        if collective not in COLLECTIVES:
            raise BadInput(f"layer.collective = {collective!r} is unknown: allowed are "
                           f"{choices(collective, COLLECTIVES)}")
        for key, value in given.items():
            if key not in _KEYS:
                raise BadInput(f"{said(key, value)} does not go with {whole}, which is alone")
        if layer.bytes is None:
            raise BadInput(f"{whole} needs layer.bytes = N, of each GPU's array")
        if layer.bytes < 1:
            raise BadInput(f"layer.bytes = {layer.bytes} is not possible: 1 or more")
        check_skew(scenario)
        self.machine, self.bytes, self._seed = machine_of(scenario), layer.bytes, scenario.seed
        self.topology, self.links = _links(scenario, whole)
        possible, asked = algorithms(collective, self.links), scenario.exchange.algorithm
        usual = own_algorithm(collective, self.topology) if asked is None else asked
        self.algorithm = usual if usual in possible or asked is not None else next(iter(possible))
        if self.algorithm not in possible and not is_custom(self.algorithm):
            raise BadInput(f"exchange.algorithm = {self.algorithm!r} is not possible for {whole} on {self.topology}: "
                           f"allowed are {choices(self.algorithm, possible)}")
        if any(link.network for link in self.links.links):
            card_of(self.machine)
        self._program = possible[self.algorithm].program() if self.algorithm in possible else custom_program(
            self.algorithm, collective, self.links.gpus)
        words = chunk_bytes(collective, self._program, layer.bytes) / WORD_BYTES
        self._chunk_bytes = int(-(-words // 1)) * WORD_BYTES
        self._skew = Skew.of(scenario.gpus.skew or "", self.links.gpus) if scenario.gpus.every else None
        if self._skew:
            self._skew.check(self.links, self.machine)
        self._values = layer.values
        held_bytes(self.machine, program_plans(self._chunk_bytes, self._kind, self._program, alone=True))

    @cached_property
    def _event_ns(self) -> float:
        """The event level's time."""
        part = chunk_bytes(self.collective, self._program, self.bytes)
        return run_event_level(self._program, self.links, lambda chunk: part, kernel_costs(self.machine)).ns

    @property
    def kind(self) -> str:
        """Name for people."""
        return COLLECTIVES[self.collective]

    @property
    def size(self) -> str:
        """Size for people."""
        return f"{self.bytes:,} bytes on {self.links.gpus} GPUs"

    @property
    def _kind(self) -> str:
        return "all-gather" if self.collective == "ag" else "reduce-scatter"

    def estimate(self) -> Estimate:
        """Estimate how long it takes: the event level's cycles, of one GPU or of all."""
        alone = not self._values and self._skew is None and alike(self._program, self.links)
        gpus, cycles = 1 if alone else self.links.gpus, self._event_ns * self.machine.memory_clock_ghz
        plans = program_plans(self._chunk_bytes, self._kind, self._program, alone=True)
        words = held_bytes(self.machine, plans) / WORD_BYTES if self._values else 0
        return Estimate(cycles, gpus * cycles / FUSED_CYCLES_PER_SECOND,
                        _BASE_BYTES + gpus * (_GPU_BYTES + words * BYTES_PER_WORD))

    def run(self, progress: Callable[[str, float], None]) -> CollectiveRun:
        """Simulate it. Raises SimulationError, ToolchainError."""
        started = processor_seconds()
        run = ProgrammedCollective(self.machine, self._kind, self._chunk_bytes, self._program, self.links, self._skew,
                                   self._seed if self._values else None)
        try:
            end = run.run(lambda share: progress(self.kind, share))
        finally:
            run.close()
        progress(self.kind, 1.0)
        gpus = tuple(CollectiveGpu(**one._asdict()) for one in end.gpus)
        return CollectiveRun(
            self.collective, self.algorithm, self.topology, self.machine.name, self.links.gpus, self.bytes, end.ns,
            end.cycles, gpus, self._bounds_ns(gpus, end.cycles / self.machine.memory_clock_ghz),
            None if self._skew and self._skew != Skew() else self._event_ns, end.words,
            processor_seconds() - started, collect_versions())

    def _bounds_ns(self, gpus: tuple[CollectiveGpu, ...], ns: float) -> dict[str, float]:
        """Return what each resource alone would take, with the launch."""
        costs, links = kernel_costs(self.machine), {(link.source, link.destination): link for link in self.links.links}
        steps: dict[int, float] = {}  # by level: the longest way
        for one, level in zip(self._program.transfers, self._program.levels):
            way = sum(costs.latency_ns(links[hop], self.links) for hop in self.links.way(one.source, one.destination))
            steps[level] = max(steps.get(level, 0.0), costs.step_ns + way)
        return {name: costs.launch_ns + bound for name, bound in (
            ("links", max(gpu.link_busy for gpu in gpus) * ns),
            ("memory", max(gpu.read_bytes + gpu.written_bytes for gpu in gpus) / costs.memory_bytes_per_ns),
            ("latency", sum(steps.values())))}


def _links(scenario: Scenario, whole: str) -> tuple[str, Topology]:
    """Return the links by name, and themselves. Raises BadInput, TopologyError."""
    asked, devices = scenario.exchange.topology, scenario.layer.devices
    topology = own_topology(scenario.layer.collective) if asked is None else asked
    check_topology(topology)
    if devices is None and ":" in topology and not is_custom(topology):
        devices = named_topology(topology).gpus
    if devices is None:
        raise BadInput(f"{whole} needs layer.devices = N")
    if not 2 <= devices <= MOST_GPUS:
        raise BadInput(f"{said('layer.devices', devices)} is not possible for {whole}: 2 to {MOST_GPUS}")
    return topology, Exchange(topology=topology).links(devices)
