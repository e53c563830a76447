"""A collective alone as a unit of work, shared by all commands that need the same one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from t3sim.base.cache import digest
from t3sim.machine.topologies import Topology, TopologyError
from t3sim.runs.collective_alone import CollectiveEnd, PlannedCollective
from t3sim.study.tasks.sources import source_digest
from t3sim.study.tasks.task import BuildTask, described

_SOURCES = "t3sim.runs.collective_alone"  #: the module that its result comes from


@dataclass(frozen=True, eq=False)
class CollectiveTask:
    """One collective alone. Two that depend on the same are equal, whatever their algorithms and links are called."""

    collective: PlannedCollective
    label: str

    needs_rtl = True
    result_type = CollectiveEnd
    result_module = _SOURCES
    seconds = 10.0  #: a guess, alike for all: which is the longest is not known before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectiveTask) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def description(self) -> dict[str, Any]:
        collective = self.collective
        return {"collective": collective.kind, "chunk_bytes": collective.chunk_bytes,
                "program": digest(repr(collective.program)), "links": digest(repr(_links(collective.topology))),
                "mirrored": collective.mirrored, "skew": repr(collective.skew), "seed": collective.seed,
                "machine": collective.machine.model_dump(mode="json", exclude={"name"})}

    @cached_property
    def key(self) -> str:
        collective = self.collective
        return (f"collective-{collective.chunk_bytes}-{collective.program.ranks}-"
                f"{digest(described(self), source_digest(_SOURCES, rtl=True))}")

    @property
    def requires(self) -> tuple[BuildTask, ...]:
        return (BuildTask(self.collective.machine.geometry()),)

    def run(self, progress: Callable[[float], None]) -> CollectiveEnd:
        return self.collective.simulate(progress)


def _links(topology: Topology) -> tuple:
    """Return all that a simulation sees of a topology: its links, and which comes next on each way."""
    def next_hop(node: int, gpu: int) -> int | None:
        try:
            return topology.next_hop(node, gpu)
        except TopologyError:
            return None
    return (topology.gpus, topology.nodes, topology.links, topology.share, tuple(
        next_hop(node, gpu) for node in range(topology.nodes) for gpu in range(topology.gpus)))
