"""A collective over sizes and algorithms on a network: what `t3 collective` and `run_collectives` give."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t3sim.analytic.closed_forms import chunk_bytes, closed_form_ns
from t3sim.analytic.costs import KernelCosts, load_costs
from t3sim.base.errors import BadInput, shown
from t3sim.collectives import CollectiveError, Program
from t3sim.collectives.algorithms import COLLECTIVES, Algorithm, algorithms
from t3sim.collectives.msccl import read_msccl
from t3sim.collectives.mscclpp import read_mscclpp
from t3sim.machine.topologies import Alike, Topology, TopologyError, named_topology

if TYPE_CHECKING:
    import pandas

    from t3sim.event.flow.collective import CollectiveFlow

MOST_TRANSFERS = 4_000_000  #: that are simulated: of all GPUs, or of those that stand for all


@dataclass(frozen=True)
class TimedCollective:
    """One algorithm at one size (bytes of each GPU's array)."""

    algorithm: str
    size_bytes: int
    collective_ns: float
    closed_form_ns: float | None  #: None for a plan of somebody's own
    messages: int  #: of all GPUs
    simulated: int  #: GPUs, each of which stands for as many others
    link_bytes: float
    busiest_link_share: float  #: of the time


@dataclass(frozen=True)
class CollectiveRuns:
    """A collective on a network, timed with each algorithm at each size."""

    collective: str  #: of `COLLECTIVES`
    machine: str
    topology: str
    nodes: int  #: GPUs
    links: int
    runs: tuple[TimedCollective, ...]
    host_seconds: float = field(default=0.0, compare=False)

    def __repr__(self) -> str:
        algorithms = ", ".join(dict.fromkeys(run.algorithm for run in self.runs))
        return (f"<CollectiveRuns {self.collective} on {self.topology}, {self.nodes} GPUs of {self.machine}: "
                f"{len(self.runs)} runs by {algorithms}>")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a row per algorithm and size."""
        import pandas

        shared = {name: getattr(self, name) for name in ("collective", "machine", "topology", "nodes")}
        return pandas.DataFrame([shared | asdict(run) for run in self.runs])


@dataclass(frozen=True)
class Request:
    """A collective on a network with what its kernels cost, checked."""

    collective: str
    machine: str
    on: Topology
    costs: KernelCosts
    chosen: tuple[Algorithm, ...]
    planned: bool = False  #: by a plan of somebody's own, which has no closed form
    every: bool = False  #: each GPU is simulated; otherwise as few as can stand for all

    def program(self, algorithm: Algorithm) -> Program:
        """Return what is simulated. Raises BadInput if it is too much."""
        from t3sim.event.flow.folding import folded

        if self.planned:
            return algorithm.program()
        program = folded(algorithm.program, self.on)
        alike = program.alike or Alike.none(self.on.gpus)
        transfers = len(program.transfers) * (alike.copies if self.every else 1)
        if transfers > MOST_TRANSFERS:
            raise BadInput(f"algorithm {algorithm.name} has {transfers:,} transfers of "
                           f"{self.on.gpus if self.every else len(alike.representatives):,} GPUs to simulate: up to "
                           f"{MOST_TRANSFERS:,} are possible")
        return algorithm.program() if self.every else program

    def run(self, sizes: Sequence[int],
            watch: Callable[[str, int], Any] = lambda algorithm, size: None,
            done: Callable[[str, int, "CollectiveFlow"], None] = lambda algorithm, size, run: None) -> CollectiveRuns:
        """Run every algorithm at every size; `watch` makes what takes the links' rates, `done` takes the messages."""
        from t3sim.event.flow.collective import run_program

        start_s, runs = time.perf_counter(), []
        for one in self.chosen:
            program = self.program(one)
            for size in sizes:
                part_bytes = chunk_bytes(self.collective, program, size)
                run = run_program(program, self.on, lambda chunk, part_bytes=part_bytes: part_bytes, self.costs,
                                  watch=watch(one.name, size))
                done(one.name, size, run)
                closed_ns = None if self.planned else closed_form_ns(
                    self.collective, self.on, one.name, self.costs, size)
                runs.append(TimedCollective(one.name, size, run.ns, closed_ns, run.messages, run.simulated,
                                            run.link_bytes, run.busiest_link))
        return CollectiveRuns(self.collective, self.machine, self.on.name, self.on.gpus, len(self.on.links),
                              tuple(runs), time.perf_counter() - start_s)


def request(collective: str | None, machine: str = "torus-128", topology: str | None = None,
            algorithm_names: Sequence[str] | None = None, plan: Path | None = None, every: bool = False) -> Request:
    """Return what is to be run: a collective's algorithms on a topology, or a plan. Raises BadInput.

    If not given, the topology is the machine's own and the algorithms are all possible ones. `plan` is a file of
    MSCCL's XML or MSCCL++'s JSON, which says itself what it is. `every`: each GPU is simulated.
    """
    if plan is not None and (collective is not None or algorithm_names is not None):
        raise BadInput(f"plan = {shown(str(plan))} defines its own transfers: neither a collective nor an "
                       "algorithm goes with it")
    name, costs, usual = load_costs(machine)
    try:
        on = usual if topology is None else named_topology(topology)
    except TopologyError as error:
        raise BadInput(*error.args) from None
    if any(link.network for link in on.links) and costs.network_ns is None:
        raise BadInput(f"topology {topology or on.name} joins nodes, but machine {name} has no [network]")
    if plan is not None:
        kind, one = _planned(plan, on)
        return Request(kind, name, on, costs, (one,), planned=True, every=True)
    collective = "ar" if collective is None else collective
    possible = algorithms(collective, on)
    chosen = tuple(dict.fromkeys(possible if algorithm_names is None else algorithm_names))
    for one in chosen:
        if one not in possible:
            raise BadInput(f"algorithm = {one[:40]!r} is not possible for {COLLECTIVES[collective]} on {on.name}: "
                           f"allowed are {', '.join(possible)}")
    return Request(collective, name, on, costs, tuple(possible[one] for one in chosen), every=every)


def _planned(plan: Path, on: Topology) -> tuple[str, Algorithm]:
    try:
        kind, program = (read_mscclpp if plan.suffix == ".json" else read_msccl)(plan)
    except CollectiveError as error:
        raise BadInput(f"plan = {error}") from None
    except OSError as error:
        raise BadInput(f"plan = {shown(str(plan))} cannot be read: {error.strerror}") from None
    if program.ranks != on.gpus:
        raise BadInput(f"plan = {shown(str(plan))} is for {program.ranks} GPUs: topology {on.name} has {on.gpus}")
    return kind, Algorithm(plan.stem, lambda alike: program)


def run_collectives(collective: str | None, sizes: Sequence[int], machine: str = "torus-128",
                    topology: str | None = None, algorithm_names: Sequence[str] | None = None,
                    plan: Path | None = None, every: bool = False) -> CollectiveRuns:
    """Time a collective (`ar`, `rs`, `ag`, `a2a`) of kernels on compute units on the event level.

    `sizes`: bytes of each GPU's array; `machine`: as for `t3 collective`; `topology`: `torus:8x16`, `nodes:2x8`, ...;
    `algorithm_names`: all that are possible if None; `plan`: MSCCL's XML or MSCCL++'s JSON instead of collective and
    algorithms; `every`: each GPU is simulated, not only those that stand for all. Raises `BadInput` for what cannot be
    run.
    """
    return request(collective, machine, topology, algorithm_names, plan, every).run(sizes)
