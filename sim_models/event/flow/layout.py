"""Collectives on a topology as the arrays of the loop, for representative GPUs only.

A representative GPU's message stands for a message of each GPU that it represents. A representative link therefore
carries a message once for each link of the message's route that it represents, and so does a memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

import numpy as np

from t3sim.analytic.costs import KernelCosts
from t3sim.collectives import Program
from t3sim.event.flow.loop import FREE, FlowState
from t3sim.machine.topologies import Alike, Topology

_ENTRIES = 4096  #: flows' resources for which there is room at first

#: From a message's source and destination to its other resources besides links and memories: (name, GPU) to weight.
Also = Callable[[int, int], Mapping[tuple[str, int], float]]


def nothing_else(source: int, destination: int) -> Mapping[tuple[str, int], float]:
    return {}


@dataclass(frozen=True)
class Play:
    """A collective of a run."""

    program: Program
    chunk_bytes: Callable[[int], float]
    near_memory: bool = False  #: memory adds arriving data
    also: Also = nothing_else


class Ways:
    """Links on the routes between GPUs, mapped under the symmetry of the route's source."""

    def __init__(self, topology: Topology, alike: Alike) -> None:
        self.topology, self.alike = topology, alike
        self._known: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
        #: Of each representative GPU and a destination of a route through it: what `hop` returns.
        self.hops: dict[tuple[int, int], tuple[list[tuple[int, int]], tuple[int, int]]] = {}

    def links(self, source: int, destination: int) -> dict[tuple[int, int], int]:
        """Return how often a representative GPU's route uses each representative link."""
        path, pair = [], (source, destination)
        while pair not in self._known:
            if pair[0] == pair[1]:
                self._known[pair] = {}
                break
            self.hops[pair] = self.hop(*pair)
            path.append(pair)
            pair = self.hops[pair][1]
        for pair in reversed(path):
            hops, next_pair = self.hops[pair]
            uses = dict(self._known[next_pair])
            for hop in hops:
                uses[hop] = uses.get(hop, 0) + 1
            self._known[pair] = uses
        return self._known[source, destination]

    def hop(self, source: int, destination: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
        """Return the representative links to the route's next GPU, and the rest of the route, mapped to that GPU."""
        hops, node = [], source
        while not hops or node >= self.topology.gpus:
            next_node = self.topology.next_hop(node, destination)
            reference = node if node < self.topology.gpus else next_node
            hops.append((self.topology.seen(self.alike, reference, node),
                         self.topology.seen(self.alike, reference, next_node)))
            node = next_node
        return hops, (self.alike.home(node), self.alike.seen(node, destination))


@dataclass
class Layout:
    """The arrays of plays that share a topology's links and its GPUs' memories."""

    plays: Sequence[Play]
    topology: Topology
    costs: KernelCosts
    also: Mapping[str, float] = field(default_factory=dict)  #: further resources of each GPU, bytes per ns

    def __post_init__(self) -> None:
        self.alike = self.plays[0].program.alike or Alike.none(self.topology.gpus)
        self.resources: dict[tuple, int] = {}
        self._capacity: list[float] = []
        self._ways = Ways(self.topology, self.alike)
        self._uses: list[dict[int, float]] = []
        self._latency: list[float] = []
        self.pairs: list[tuple[int, int]] = []  #: source and destination of each kind of message
        play_arrays = [self._lay(number, play) for number, play in enumerate(self.plays)]
        #: Of each play: the transfers that wait for nothing.
        self.first = [one["first"] for one in play_arrays]
        self.chunk = np.concatenate([one["chunk"] for one in play_arrays])
        self.gpus = np.concatenate([one["gpus"] for one in play_arrays])
        self.state = self._state(play_arrays)

    def _resource(self, name: tuple, capacity: float) -> int:
        if name not in self.resources:
            self.resources[name] = len(self._capacity)
            self._capacity.append(capacity)
        return self.resources[name]

    def _memory(self, gpu: int) -> int:
        return self._resource(("memory", gpu), self.costs.memory_bytes_per_ns)

    def _message(self, play: Play, source: int, destination: int, forwards: bool, copied: bool) -> int:
        """Add a kind of message, and return its number; a message that `forwards` reads twice at its source.

        Messages that a switch merges share a message's resources: messages to one GPU, or if `copied` from one GPU.
        """
        home, uses, latency_ns = self.alike.home, {}, 0.0
        shared_weight = 1 / (play.program.ranks - 1) if play.program.in_switch else 1.0
        up_weight, down_weight = (shared_weight, 1.0) if copied else (1.0, shared_weight)
        for name, times in ((self._memory(source), 2.0 if forwards else up_weight),
                            (self._memory(home(destination)), down_weight),
                            *((self._resource((resource_name, home(gpu)), self.also[resource_name]), times)
                              for (resource_name, gpu), times in play.also(source, destination).items())):
            uses[name] = uses.get(name, 0.0) + times
        for hop, times in self._ways.links(source, destination).items():
            link = self.topology.link_of[hop]
            share = up_weight if hop[0] == source else down_weight if hop[1] == destination else 1.0
            uses[self._resource(("link", *hop), self.costs.rate(link) * self.topology.share)] = times * share
            latency_ns += times * self.costs.latency_ns(link, self.topology)
        self._uses.append(uses)
        self._latency.append(latency_ns)
        self.pairs.append((source, destination))
        return len(self._uses) - 1

    def _addition(self, gpu: int, parts: int) -> int:
        """Add the pass that adds a GPU's arrived parts. Return its kind."""
        self._uses.append({self._memory(gpu): 2.0 + parts})
        self._latency.append(self.costs.last_writes_ns)
        self.pairs.append((gpu, gpu))
        return len(self._uses) - 1

    def _lay(self, number: int, play: Play) -> dict[str, np.ndarray]:
        """Return a play's transfers, the sets of transfers for which others wait, and its last additions."""
        table, alike = play.program.table, self.alike
        forwards = (table.waits >= 0) & table.adds & (not play.near_memory)
        copied = ~table.adds & play.program.in_switch
        source, seen_destination = alike.home(table.source), alike.seen(table.source, table.destination)
        kinds, kind_of = np.unique(((source * self.topology.gpus + seen_destination) * 2 + forwards) * 2 + copied,
                                   return_inverse=True)
        numbers = np.array([self._message(play, *divmod(kind // 4, self.topology.gpus), bool(kind & 2), bool(kind & 1))
                            for kind in kinds.tolist()], np.int64)
        additions = {} if play.near_memory else play.program.last_additions
        parts = np.array(list(map(len, additions.values())), np.int64)
        addition = np.full(len(table), -1)
        addition[np.fromiter(chain.from_iterable(additions.values()), np.int64)] = np.repeat(
            np.arange(len(parts)), parts)
        homes = [int(alike.home(rank)) for rank, _ in additions]
        passes = {key: self._addition(*key) for key in dict.fromkeys(zip(homes, parts.tolist()))}
        chunks, chunk_of = np.unique(table.chunk, return_inverse=True)
        sizes = np.array([play.chunk_bytes(chunk) for chunk in chunks.tolist()], float)
        missing = np.diff(table.first)
        return {
            "first": np.flatnonzero(table.waits < 0), "gpus": np.column_stack([table.source, table.destination]),
            "chunk": table.chunk, "kind": numbers[kind_of], "size": sizes[chunk_of], "addition": addition,
            "waits": table.waits, "missing": missing, "member": table.members,
            "of": np.repeat(np.arange(len(missing)), missing), "play": np.full(len(table), number),
            "pass_play": np.full(len(additions), number), "parts": parts,
            "pass_kind": np.array([passes[key] for key in zip(homes, parts.tolist())], np.int64),
            "pass_size": np.array([play.chunk_bytes(chunk) for _, chunk in additions], float)}

    def _state(self, play_arrays: list[dict[str, np.ndarray]]) -> FlowState:
        """Join the arrays of concurrent plays."""
        def joined(name: str, numbered_by: str | None = None) -> np.ndarray:
            """Join the plays' arrays; numbers are offset by the earlier plays' lengths of `numbered_by`, -1 stays."""
            offset = 0
            arrays = []
            for one in play_arrays:
                arrays.append(np.where(one[name] < 0, -1, one[name] + offset) if numbered_by else one[name])
                offset += len(one[numbered_by]) if numbered_by else 0
            return np.concatenate(arrays)

        first, before = [], 0
        for one in play_arrays:
            first.append(one["first"] + before)
            before += len(one["kind"])
        self.first = first
        kind, waits, member, of = joined("kind"), joined("waits", "missing"), joined("member", "kind"), joined(
            "of", "missing")
        missing, parts = joined("missing"), joined("parts")
        by_set, by_member = np.argsort(waits, kind="stable"), np.argsort(member, kind="stable")
        transfers, movers, kinds, resources = len(kind), len(kind) + len(parts), len(self._uses), len(self._capacity)

        def whole(count: int, value: int = 0) -> np.ndarray:
            return np.full(count, value, np.int64)

        free = np.arange(1, _ENTRIES + 1)
        free[-1] = -1
        pending = 2 * movers + 64
        number = whole(16)
        number[FREE] = 0
        return FlowState(
            number=number, time=np.array([0.0, self.costs.step_ns, self.costs.last_writes_ns]),
            kind=kind, size=joined("size"), addition=joined("addition", "parts"),
            counts_first=np.searchsorted(member[by_member], np.arange(transfers + 1)), counts=of[by_member],
            next=whole(transfers, -1), play=np.concatenate([joined("play"), joined("pass_play")]),
            unfinished=np.array([len(one["kind"]) + len(one["parts"]) for one in play_arrays], np.int64),
            missing=missing, frees_first=np.searchsorted(waits[by_set], np.arange(len(missing) + 1)), frees=by_set,
            uses_first=np.array([0, *accumulate(map(len, self._uses))], np.int64),
            uses=np.array([name for uses in self._uses for name in uses], np.int64),
            weight=np.array([times for uses in self._uses for times in uses.values()], float),
            latency=np.array(self._latency, float), newest=whole(kinds, -1), cause=whole(kinds, -1),
            parts=parts, mover_kind=np.concatenate([whole(transfers), joined("pass_kind")]),
            bytes=np.concatenate([np.zeros(transfers), joined("pass_size")]), left=np.zeros(movers),
            rate=np.zeros(movers), since=np.zeros(movers), round=whole(movers, -1), entries=whole(movers, -1),
            mark=whole(movers), first=whole(transfers, -1), last=whole(transfers, -1), started=np.zeros(transfers),
            ended=np.zeros(transfers), order=whole(transfers), component_flows=whole(movers),
            capacity=np.array(self._capacity, float), flows=whole(resources, -1), load=np.zeros(resources),
            room=np.zeros(resources), settled_load=np.zeros(resources), taken=np.zeros(resources),
            seen=whole(resources), is_dirty=whole(resources), dirty=whole(resources),
            component_resources=whole(resources),
            entry_flow=whole(_ENTRIES), entry_resource=whole(_ENTRIES), entry_weight=np.zeros(_ENTRIES), of_flow=free,
            after=whole(_ENTRIES), before=whole(_ENTRIES), due=np.zeros(pending), what=whole(pending),
            mover=whole(pending), tag=whole(pending))
