"""A collective on the event level: the cycle level's program and topology, with transfers as flows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from t3sim.analytic.costs import KernelCosts
from t3sim.collectives import Program
from t3sim.event.flow.layout import Layout, Play
from t3sim.event.flow.loop import ARRIVED, CHANGED, ENDED, FREE, FULL, NOW, PENDING, WATCH, FlowState, begin, run
from t3sim.machine.topologies import Topology

#: A transfer as it happened: chunk, source, destination, start, end (ns).
Step = tuple[int, int, int, float, float]


@dataclass(frozen=True)
class CollectiveFlow:
    """Times in ns, from the launch of the kernel."""

    ns: float
    link_bytes: float
    memory_bytes: float  #: of all GPUs
    busiest_link: float  #: its bytes over the time, as a share of its full rate
    messages: int  #: of all GPUs
    simulated: int  #: representative GPUs
    _network: "FlowNetwork" = field(repr=False, compare=False)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The transfers of simulated GPUs, in the order of their arrival."""
        return self._network.steps()


def run_program(program: Program, topology: Topology, chunk_bytes: Callable[[int], float], costs: KernelCosts,
                near_memory: bool = False, watch: Callable[[float, np.ndarray], None] | None = None) -> CollectiveFlow:
    """Run a collective alone.

    A copy reads its chunk and writes it at its destination. For an addition, a kernel reads the arrived chunk and its
    own, and writes the sum to the next GPU; with `near_memory`, memory adds arriving data. The last addition at an
    owner is a separate pass of 2 reads and a write. Chunks that wait for the same arrival and have the same destination
    are one message. `watch` gets the rates of the links, in the topology's order, whenever they change.
    """
    network = FlowNetwork(Layout([Play(program, chunk_bytes, near_memory)], topology, costs))
    network.watch = watch
    network.run()
    ns, copies = network.now + costs.launch_ns + costs.step_ns, network.layout.alike.copies
    moved_bytes = network.moved()
    link_bytes = {name: size for name, size in moved_bytes.items() if name[0] == "link"}
    return CollectiveFlow(
        ns, copies * sum(link_bytes.values()),
        copies * sum(size for name, size in moved_bytes.items() if name[0] == "memory"),
        max((size / (network.capacity(name) * ns) for name, size in link_bytes.items()), default=0.0),
        copies * network.messages, len(network.layout.alike.representatives), network)


class FlowNetwork:
    """A topology's links and its nodes' memories, shared by one or several concurrent collectives."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.state = layout, layout.state
        self.watch: Callable[[float, np.ndarray], None] | None = None

    @property
    def now(self) -> float:
        return float(self.state.time[NOW])

    @property
    def unfinished(self) -> int:
        """Transfers and last additions that have not ended."""
        return int(self.state.unfinished.sum())

    def run(self) -> None:
        """Start all collectives and run until they have ended."""
        for play in range(len(self.layout.plays)):
            self.begin(play, 0.0)
        while self.unfinished:
            if not self.advance(np.inf):
                raise RuntimeError(f"{self.unfinished} transfers wait for each other")

    def begin(self, play: int, now: float) -> None:
        """Start a collective."""
        begin(self.state, self.layout.first[play], now)

    def advance(self, until: float) -> bool:
        """Run until a collective has ended, and return True; or until a time, or until nothing is pending."""
        self.state.number[WATCH] = self.watch is not None
        while True:
            reason = run(self.state, until)
            if reason == FULL:
                self.state = _with_more_entries(self.state)
            elif reason == CHANGED:
                self.watch(self.now, self._link_rates())
            else:
                return reason == ENDED

    @property
    def due(self) -> float | None:
        """The time until which nothing happens, at least; None if nothing is pending."""
        return float(self.state.due[0]) if self.state.number[PENDING] else None

    def has_ended(self, play: int) -> bool:
        return not self.state.unfinished[play]

    def capacity(self, name: tuple) -> float:
        """Return bytes per ns of a resource."""
        return float(self.state.capacity[self.layout.resources[name]])

    def moved(self) -> dict[tuple, float]:
        """Return the bytes that each resource has carried."""
        state = self.state
        movers = np.concatenate([state.order[:state.number[ARRIVED]], np.arange(len(state.kind), len(state.bytes))])
        size = np.bincount(state.mover_kind[movers], state.bytes[movers], len(self.layout.pairs))
        kind = np.repeat(np.arange(len(size)), np.diff(state.uses_first))
        resource_bytes = np.bincount(state.uses, state.weight * size[kind], len(state.capacity))
        return {name: float(resource_bytes[index]) for name, index in self.layout.resources.items()}

    @property
    def messages(self) -> int:
        """Number of messages; transfers between two GPUs with the same start and end count as one."""
        state, arrivals = self.state, self.state.order[:self.state.number[ARRIVED]]
        pairs = np.array(self.layout.pairs, np.int64).reshape(-1, 2)
        pair = np.unique(pairs @ (self.layout.topology.gpus, 1), return_inverse=True)[1][state.mover_kind[arrivals]]
        order = np.lexsort([pair, state.started[arrivals], state.ended[arrivals]])
        differ = [np.diff(one[order]) != 0 for one in (pair, state.started[arrivals], state.ended[arrivals])]
        return int(np.any(differ, axis=0).sum()) + 1 if len(arrivals) else 0

    def steps(self) -> tuple[Step, ...]:
        """Return the transfers as they arrived."""
        state, layout, steps = self.state, self.layout, []
        for message in state.order[:state.number[ARRIVED]].tolist():
            transfer = int(state.first[message])
            while transfer >= 0:
                source, destination = layout.gpus[transfer].tolist()
                steps.append((int(layout.chunk[transfer]), source, destination, float(state.started[message]),
                              float(state.ended[message])))
                transfer = int(state.next[transfer])
        return tuple(steps)

    def _link_rates(self) -> np.ndarray:
        """Return the bytes per ns of the topology's links."""
        state, layout = self.state, self.layout
        rates, uses = np.zeros(len(state.capacity)), np.diff(state.uses_first)
        for flow in np.flatnonzero(state.entries >= 0):
            first = state.uses_first[state.mover_kind[flow]]
            kind_uses = slice(first, first + uses[state.mover_kind[flow]])
            rates[state.uses[kind_uses]] += state.weight[kind_uses] * state.rate[flow]
        indices = [layout.resources.get(("link", *link[:2]), -1) for link in layout.topology.links]
        return np.append(rates, 0.0)[indices]


def _with_more_entries(state: FlowState) -> FlowState:
    """Return the state with room for twice as many entries."""
    size = len(state.of_flow)
    larger = {name: np.concatenate([getattr(state, name), np.zeros_like(getattr(state, name))])
              for name in ("entry_flow", "entry_resource", "entry_weight", "of_flow", "after", "before")}
    larger["of_flow"][size:] = np.arange(size + 1, 2 * size + 1)
    larger["of_flow"][-1] = state.number[FREE]
    state.number[FREE] = size
    return state._replace(**larger)
