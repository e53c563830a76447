"""Collectives on tori, switches and nodes of 8 to 128 GPUs: the event level held to closed forms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from t3sim.analytic.closed_forms import chunk_bytes, closed_form_ns
from t3sim.analytic.costs import network_costs
from t3sim.collectives.algorithms import COLLECTIVES, Algorithm, algorithms
from t3sim.event.flow.collective import run_program
from t3sim.machine import load_machine
from t3sim.machine.levels import NETWORK
from t3sim.machine.topologies import named_topology
from t3sim.papers.figure import Figure, Findings, ModelTask, Results, Scope, Table
from t3sim.papers.paper import Target

#: Machine and topology.
_NETWORKS = (("torus-128", "torus:4x4"), ("torus-128", "torus:8x8"), ("torus-128", "torus:8x16"),
             ("torus-128", "switch:16"), ("mi210-2x4", "nodes:2x4"), ("mi210-2x4", "nodes:4x8"))
_SIZES_MB = (1, 192)


@dataclass(frozen=True)
class CollectiveTime:
    """Time of a collective, ns."""

    ns: float
    busiest_link: float  #: share of the time
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class EventCollectiveTask(ModelTask):
    """A collective alone on the event level."""

    machine: str
    topology: str
    collective: str
    algorithm: str
    size_mb: int

    kind = "collective"
    source = "t3sim.event.flow.runs"
    result_type = CollectiveTime

    @property
    def seconds(self) -> float:
        return (named_topology(self.topology).gpus / 45) ** 3

    @property
    def label(self) -> str:
        return f"{COLLECTIVES[self.collective]}, {self.algorithm}, {self.topology}, {self.size_mb} MB"

    @property
    def description(self) -> dict[str, Any]:
        return {"machine": load_machine(self.machine, NETWORK).model_dump(), "topology": self.topology,
                "collective": self.collective, "algorithm": self.algorithm, "size_mb": self.size_mb}

    @property
    def _algorithm(self) -> Algorithm:
        return algorithms(self.collective, named_topology(self.topology))[self.algorithm]

    def closed_form_ns(self) -> float:
        """Return what the links alone take."""
        return closed_form_ns(self.collective, named_topology(self.topology), self.algorithm,
                              network_costs(load_machine(self.machine, NETWORK)), self.size_mb * 1e6)

    def run(self, progress: Callable[[float], None]) -> CollectiveTime:
        program, topology = self._algorithm.program(), named_topology(self.topology)
        part = chunk_bytes(self.collective, program, self.size_mb * 1e6)
        run = run_program(program, topology, lambda chunk: part, network_costs(load_machine(self.machine, NETWORK)))
        return CollectiveTime(run.ns, run.busiest_link)


def _tasks(setup: Scope) -> Iterator[EventCollectiveTask]:
    for machine, topology in _NETWORKS:
        for kind in ("ar", "a2a"):
            for name in algorithms(kind, named_topology(topology)):
                for size in _SIZES_MB:
                    yield EventCollectiveTask(machine, topology, kind, name, size)


def evaluate(setup: Scope, results: Results) -> Findings:
    found = [(task, results[task]) for task in _tasks(setup)]
    errors = [100 * (one.ns / task.closed_form_ns() - 1) for task, one in found]
    worst = max(map(abs, errors))
    return Findings(
        text="Collectives on tori of 16, 64 and 128 GPUs, on a switch, and on nodes with a network card per GPU take "
             f"what closed forms of their links say, within {worst:.1f} %.",
        ours={"network_error_max_percent": worst},
        targets={"network_error_max_percent": Target("events against closed form, largest", "%", None, "beyond",
                                                     at_most=3)},
        tables=[Table("Time (µs)", ("collective", "events", "closed form", "difference", "busiest link"), [
            (task.label, f"{one.ns / 1e3:,.1f}", f"{task.closed_form_ns() / 1e3:,.1f}", f"{error:+.2f} %",
             f"{100 * one.busiest_link:.0f} %") for (task, one), error in zip(found, errors)], folded=True)])


NETWORKS = Figure("networks", "Collectives on networks, events against closed forms", _tasks, evaluate, paper="fused")
