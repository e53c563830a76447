"""Collectives by DMA engines: a host fills queues and rings doorbells, engines copy, and signals mark the end."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import simpy

from t3sim.analytic.fair import fair_rates
from t3sim.event.flow.commands import POSSIBLE, Command, Queue, plan
from t3sim.machine import Machine

#: Initiators of the copies: commands and doorbells of the host, or of a kernel on each GPU; a flag that engines poll,
#: with commands already in the queues ("prelaunch"); a Tracker that has counted the last write to the source.
INITIATORS = ("host", "gpu", "poll", "tracker")


#: Phases of an offload, in their order (paper, figure 5).
PHASES = ("control", "schedule", "copy", "sync")
#: Bytes of a flow that rounding may leave.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class DmaRun:
    """A collective, or a single copy, by DMA engines."""

    ns: float
    phases_ns: dict[str, float]  #: of the engine that ends last; they add up to `ns`
    commands: int
    engines: int
    syncs: int
    read_bytes: float  #: at all sources
    link_bytes: float
    spans: tuple[tuple[int, str, float, float], ...] = field(repr=False)  #: queue, phase, start, end


@dataclass(frozen=True)
class _Costs:
    """Times that an initiator adds to the copies themselves, ns."""

    command: float  #: for each command and signal of a queue
    start: float  #: for each queue
    schedule: float  #: until an engine has its command
    copy: float  #: before a copy's bytes
    sync: float
    observe: float  #: for each signal
    each_gpu: bool  #: each GPU starts its own queues, concurrently with others


def _costs(node: Machine, initiator: str) -> _Costs:
    host, gpu, engine, tracker = node.host, node.gpu, node.engine, node.tracker
    return {
        "host": _Costs(host.command_ns, host.doorbell_ns, engine.fetch_ns, engine.copy_ns, engine.sync_ns,
                       host.observe_ns, False),
        "gpu": _Costs(gpu.command_ns, gpu.doorbell_ns, engine.fetch_ns, engine.copy_ns, engine.sync_ns,
                      gpu.observe_ns, True),
        "poll": _Costs(0, host.trigger_ns, engine.poll_ns, engine.copy_ns, engine.sync_ns, host.observe_ns, False),
        # The destination's Tracker counts arrivals, so there is no signal.
        "tracker": _Costs(0, 0, tracker.trigger_ns, tracker.copy_ns, 0, 0, True)}[initiator]


@cache
def run_collective(node: Machine, collective: str, variant: str, size_bytes: float, initiator: str = "host") -> DmaRun:
    """Run a collective in which each pair of GPUs exchanges `size_bytes`/gpus. Raises `BadInput`.

    An all-reduce is a reduce-scatter, followed in the same queues by an all-gather, whose copies wait for signals from
    all peers.
    """
    first, *then = plan(collective, variant, node.gpus)
    return run_queues(node, first.queues, size_bytes / node.gpus, initiator, first.adds,
                      then[0].queues if then else None)


def run_queues(node: Machine, queues: list[Queue], chunk_bytes: float, initiator: str = "host",
               adds: bool = False, then: list[Queue] | None = None) -> DmaRun:
    """Run queues of commands, each of a chunk. With `adds`, memory adds arriving data.

    `then`: the next queues of the same engines, which start when all data for their GPU has arrived.
    """
    env = simpy.Environment()
    fabric = Fabric(env, _capacity(node, queues))
    costs = _costs(node, initiator)
    spans: list[tuple[int, str, float, float]] = []
    read_bytes = 0.0
    gpu_complete = [env.event() for _ in range(node.gpus)]  # all has arrived there
    missing_copies = [sum(to == gpu for queue in queues for command in queue.commands for to in command.destinations)
                      for gpu in range(node.gpus)]

    def start(numbers: list[int]):
        signals = simpy.Store(env)
        for number in numbers:
            queue = queues[number]
            count = len(queue.commands) + 1 + (len(then[number].commands) + 1 if then else 0)
            if wait := costs.start + count * costs.command:
                yield env.timeout(wait)
            spans.append((number, "control", 0.0, env.now))
            env.process(engine(number, queue, signals))
        for _ in numbers:
            yield signals.get()
            yield env.timeout(costs.observe)

    def engine(number: int, queue: Queue, signals: simpy.Store):
        yield from work(number, queue, costs.schedule, adds)
        if then:
            for to in (to for command in queue.commands for to in command.destinations):
                missing_copies[to] -= 1
                if not missing_copies[to]:
                    gpu_complete[to].succeed()
            yield gpu_complete[queue.gpu]
            yield from work(number, then[number], node.tracker.trigger_ns if initiator == "tracker" else
                            node.engine.poll_ns, False)
        yield signals.put(number)

    def work(number: int, queue: Queue, schedule_ns: float, adds: bool):
        start = env.now
        yield env.timeout(schedule_ns)
        spans.append((number, "schedule", start, env.now))
        start, flows = env.now, []
        for place, command in enumerate(queue.commands):
            if command.in_order:
                yield env.all_of(flows)
            if place:
                yield env.timeout(node.engine.next_copy_ns)
            flows.append(env.process(copy(number, command, adds)))
        yield env.all_of(flows)
        spans.append((number, "copy", start, env.now))
        start = env.now
        yield env.timeout(costs.sync)
        spans.append((number, "sync", start, env.now))

    def copy(number: int, command: Command, adds: bool):
        nonlocal read_bytes
        yield env.timeout(costs.copy)
        uses = {("memory", command.source): 1.0, ("engine", number): float(len(command.destinations))}
        read_bytes += chunk_bytes * (2 if command.swap else 1)
        for to in command.destinations:
            uses["link", command.source, to] = 1.0
            uses["memory", to] = 2.0 if adds else 1.0  # an addition in memory accesses a column twice
        if command.swap:
            to = command.destinations[0]
            uses |= {("link", to, command.source): 1.0, ("engine", number): 2.0, ("memory", command.source): 2.0,
                     ("memory", to): 2.0}
        yield fabric.move(chunk_bytes, uses)

    queues_by_gpu = [[number for number, queue in enumerate(queues) if queue.gpu == gpu] for gpu in range(node.gpus)]
    for numbers in queues_by_gpu if costs.each_gpu else [list(range(len(queues)))]:
        env.process(start(numbers))
    env.run()
    end_ns = float(env.now)
    return DmaRun(
        end_ns, _phases(spans, end_ns), commands=sum(len(queue.commands) for queue in (*queues, *(then or ()))),
        engines=len(queues), syncs=len(queues) + len(then or ()), read_bytes=read_bytes, spans=tuple(spans),
        link_bytes=sum(size for name, size in fabric.moved.items() if name[0] == "link"))


def _capacity(node: Machine, queues: list[Queue]) -> dict[tuple, float]:
    link = node.link.bandwidth_gb_per_s * node.link.push_efficiency
    capacity: dict[tuple, float] = {("link", a, b): link for a in range(node.gpus) for b in range(node.gpus)
                                    if a != b}
    capacity |= {("memory", gpu): node.memory.bandwidth_gb_per_s for gpu in range(node.gpus)}
    return capacity | {("engine", number): node.engine.bandwidth_gb_per_s for number in range(len(queues))}


def _phases(spans, end: float) -> dict[str, float]:
    """Return the durations of the phases of the queue that ends last; later waits of the host are part of sync."""
    last_queue = max((span for span in spans if span[1] == "sync"), key=lambda span: span[3])[0]
    phases = {name: float(sum(stop - start for number, phase, start, stop in spans
                              if (number, phase) == (last_queue, name)))
              for name in PHASES}
    phases["sync"] += end - sum(phases.values())
    return phases


def copied_then_added_ns(node: Machine, collective: str, size_bytes: float) -> float:
    """Return the time of a reduce-scatter or all-reduce as libraries build it without addition in memory.

    Copies fill separate buffers. The host observes their end and launches a kernel that reads all parts and writes
    their sum; after its end, an all-reduce starts the copies of an all-gather. Each uses its fastest variant.
    """
    copies_ns, gather_ns = (min(run_collective(node, name, variant, size_bytes).ns for variant in POSSIBLE[collective])
                            for name in ("a2a", "ag"))
    addition_ns = (node.host.command_ns + node.host.doorbell_ns + node.stream.launch_ns + node.stream.signal_ns
                   + node.host.observe_ns + (node.gpus + 1) * size_bytes / node.gpus / node.memory.bandwidth_gb_per_s)
    return copies_ns + addition_ns + (gather_ns if collective == "ar" else 0.0)


class Fabric:
    """Bandwidths that flows share fairly.

    Rates change only when a flow starts or ends; all flows that start or end at one moment are handled together.
    `moved` has the bytes that each resource has carried.
    """

    def __init__(self, env: simpy.Environment, bytes_per_ns: Mapping[Hashable, float]) -> None:
        self.env = env
        self._index = {name: place for place, name in enumerate(bytes_per_ns)}
        self._capacity = np.array(list(bytes_per_ns.values()), float)
        self.moved = dict.fromkeys(bytes_per_ns, 0.0)
        self._done: list[simpy.Event] = []  # of each flow under way
        self._left, self._rates = np.empty(0), np.empty(0)  # bytes, bytes per ns
        # One entry per flow and resource, with its weight.
        self._flow, self._resource, self._weight = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        self._new: list[tuple[float, Mapping[Hashable, float], simpy.Event]] = []
        self._since, self._round = 0.0, 0
        self._changing = False

    def move(self, size_bytes: float, uses: Mapping[Hashable, float]) -> simpy.Event:
        """Start a flow and return the event of its end. `uses`: resource, and bytes of it per byte of the flow."""
        done = self.env.event()
        for name, weight in uses.items():
            self.moved[name] += weight * size_bytes
        if size_bytes <= 0:
            return done.succeed()
        self._new.append((float(size_bytes), uses, done))
        self._change()
        return done

    def _change(self) -> None:
        """Schedule one computation of rates for all changes of this moment."""
        if not self._changing:
            self._changing = True
            self.env.process(self._settle())

    def _settle(self):
        yield self.env.timeout(0)
        self._changing = False
        self._account()
        self._round += 1
        self._admit()
        if flows := len(self._done):
            self._rates = fair_rates(self._capacity, self._flow, self._resource, self._weight, flows)
            self.env.process(self._finish(float(np.min(self._left / self._rates)), self._round))

    def _admit(self) -> None:
        """Add the flows that started at this moment to the active flows."""
        if not self._new:
            return
        first, sizes = len(self._done), [size for size, _, _ in self._new]
        self._left = np.concatenate([self._left, sizes])
        self._rates = np.concatenate([self._rates, np.zeros(len(sizes))])
        self._flow = np.concatenate([self._flow, np.repeat(np.arange(first, first + len(sizes)),
                                                           [len(uses) for _, uses, _ in self._new])])
        self._resource = np.concatenate([self._resource, np.array(
            [self._index[name] for _, uses, _ in self._new for name in uses], np.int64)])
        self._weight = np.concatenate([self._weight, np.array(
            [weight for _, uses, _ in self._new for weight in uses.values()], float)])
        self._done += [done for _, _, done in self._new]
        self._new = []

    def _finish(self, wait: float, round_: int):
        start_ns = self.env.now
        yield self.env.timeout(wait)
        if round_ != self._round:
            return  # rates have changed since
        self._account()
        # Flows that would end within rounding of now end together.
        is_ended = self._left <= _ROUNDING + 1e-9 * self._rates * wait
        if self.env.now == start_ns:  # so late that the clock does not tell so short a wait
            is_ended |= self._left <= (1 + 1e-9) * self._rates * wait
        is_active = ~is_ended
        for flow in np.flatnonzero(is_ended):
            self._done[flow].succeed()
        self._done = [self._done[flow] for flow in np.flatnonzero(is_active)]
        new_index = np.cumsum(is_active) - 1  # of a flow that stays, from now on
        active_entries = is_active[self._flow]
        self._flow = new_index[self._flow[active_entries]]
        self._resource, self._weight = self._resource[active_entries], self._weight[active_entries]
        self._left, self._rates = self._left[is_active], self._rates[is_active]
        self._change()

    def _account(self) -> None:
        elapsed, self._since = self.env.now - self._since, self.env.now
        with np.errstate(invalid="ignore"):  # a flow over nothing is infinitely fast
            self._left = np.maximum(self._left - self._rates * elapsed, 0.0) if elapsed else self._left
