"""Collectives that the random campaign draws: by every algorithm, over all links, that Track & Trigger can do."""

from dataclasses import dataclass
from functools import cache, cached_property

from t3sim.collectives import Program
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.collectives.schedule import Schedule, ScheduleError
from t3sim.machine.topologies import Topology, named_topology
from t3sim.runs import exchange
from t3sim.workload.operators.tiling import Tiling

#: GPUs and their links, as `t3 collective --topology` names them. One run of the campaign takes seconds with so few.
TOPOLOGIES = ("ring:2", "ring:3", "ring:4", "ring:8", "full:2", "full:3", "full:4", "full:8", "switch:3", "switch:4",
              "torus:2x2", "torus:2x3", "torus:2x4", "nodes:2x2", "nodes:2x3")


@dataclass(frozen=True)
class Exchange:
    """A collective by an algorithm over links; names are those of `t3 collective`."""

    collective: str
    algorithm: str
    over: str  #: one of TOPOLOGIES
    before: bool = False  #: it brings the activations before the GEMM, instead of taking the output

    def topology(self, gpus: int = 0) -> Topology:
        """Return the links, for a `Plan`; the name says how many GPUs there are."""
        return named_topology(self.over)

    def program(self, ranks: int = 0) -> Program:
        """Return who sends which chunk to whom, for a `Plan`."""
        on = self.topology()
        if self.algorithm == exchange.IN_SWITCH:
            return exchange.Exchange(self.collective, self.algorithm, on.name).program(on.gpus)
        return algorithms(self.collective, on)[self.algorithm].program()

    @cached_property
    def peers(self) -> int:
        """Count the others that a GPU sends to or receives from, of the GPU with most."""
        schedule = self._schedule
        return max(len(others(gpu)) for others in (schedule.peers, schedule.feeders)
                   for gpu in range(schedule.gpus))

    @cached_property
    def copies(self) -> int:
        """Count the others that a tile goes to, of the tile with most."""
        return max(len(role.routes) for roles in self._schedule.roles for role in roles)

    @property
    def possible(self) -> bool:
        """Say whether links cannot wait for each other in a circle."""
        try:
            return self._schedule is not None
        except ScheduleError:
            return False

    @cached_property
    def _schedule(self) -> Schedule:
        """Schedule it for an output of a tile for each chunk."""
        program = self.program()
        return Schedule(Tiling(32, 8 * program.chunks, 32, 8, 1), program, self.topology())

    def __str__(self) -> str:
        return f"{self.collective} {self.algorithm} over {self.over}{' before the GEMM' * self.before}"


@cache
def exchanges() -> tuple[Exchange, ...]:
    """List all that are possible."""
    every = (Exchange(collective, algorithm, over) for over in TOPOLOGIES for collective in COLLECTIVES
             for algorithm in algorithms(collective, named_topology(over)))
    before = (Exchange("ag", "ring", f"ring:{gpus}", before=True) for gpus in (2, 3, 4, 8))
    switched = (Exchange(collective, exchange.IN_SWITCH, over) for over in TOPOLOGIES if over.startswith("switch:")
                for collective in ("rs", "ag", "ar"))
    return (*(one for one in every if one.possible), *switched, *before)
