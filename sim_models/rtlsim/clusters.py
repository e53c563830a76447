"""Which words of a graph are evaluated together: when one of a cluster's sources has changed, all of it is.

A cluster that is large does what nobody asked for; many small ones cost a look at each. They are merged as long as that
costs less by an estimate of how often a source changes.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from t3sim.rtlsim.graph import STATE, ZERO, Graph, Graphs, Value, node_of, uses

#: The share of cycles in which a source changes, and what a cluster costs besides its words, most of it for branches
#: that are guessed wrong: of the top, which rests for the most part, and of instances.
_TOP, _PART = (0.05, 30.0), (0.12, 20.0)
_OUTPUT_COST = 4.0  #: of comparing a word with what it was
_MOST_READERS = 80  #: of a source whose clusters are looked at for merging


class Sink(NamedTuple):
    """End of a computation: a register's next value, writes of a memory, a port of its own or of an instance."""

    kind: str  #: `next`, `clear`, `write`, `output`, `input`
    what: tuple
    values: tuple[Value, ...]
    clock: int | None = None  #: of registers and memories


@dataclass
class Cluster:
    nodes: list[int] = field(default_factory=list)  #: in the order of evaluation
    sinks: list[Sink] = field(default_factory=list)
    in_output_cone: bool = False  #: whether outputs of the top depend on it
    round: int = 0
    clock: int | None = None  #: of its registers and memories


@dataclass
class View:
    """Knowledge of a graph's items from the graphs around it; an item is a node, or, after all nodes, a sink."""

    output_cone: set[int]  #: on which outputs of the top depend without a register between
    rounds: dict[int, int]  #: in which of a cycle's rounds, each of the top first, all that an item reads is known


def sinks_of(graph: Graph, design: Graphs | None) -> list[Sink]:
    """List the sinks; `design` for the top."""
    sinks = [Sink("next", (number,), (register.next,), register.clock)
             for number, register in enumerate(graph.registers)]
    sinks += [Sink("clear", (number,), ((register.clear,),)) for number, register in enumerate(graph.registers)
              if register.clear != ZERO]
    sinks += [Sink("write", (number,), tuple(value for write in memory.writes for value in write), memory.clock)
              for number, memory in enumerate(graph.memories) if memory.writes]
    sinks += [Sink("output", where, (value,)) for where, value in graph.outputs.items()]
    if design is not None:
        sinks += [Sink("input", (number, *where), (value,)) for number, instance in enumerate(design.instances)
                  for where, value in instance.inputs.items()]
    return sinks


def sink_nodes(sink: Sink) -> list[int]:
    return list(dict.fromkeys(node_of(ref) for value in sink.values for ref in value if ref > 1))


def clusters_of(graph: Graph, sinks: list[Sink], view: "View", part: bool = False) -> list[Cluster]:
    """Cut a graph into clusters, in an order in which each comes after those that it reads."""
    return _Clusters(graph, sinks, view, part).clusters


class _Clusters:
    def __init__(self, graph: Graph, sinks: list[Sink], view: View, part: bool) -> None:
        self._changes, self._cluster_cost = _PART if part else _TOP
        self._graph, self._sinks = graph, sinks
        nodes = graph.nodes
        self._count = len(nodes)
        reads: dict[int, list[int]] = {}  #: item: nodes; an item is a node or, from len(nodes) on, a sink
        for number, node in enumerate(nodes):
            if number and node.op not in STATE:
                reads[number] = uses(node)
        for number, sink in enumerate(sinks):
            reads[self._count + number] = sink_nodes(sink)
        self._reads = reads
        self._quiet = {node for (port, _), node in graph.inputs.items() if port == "rst"}
        order = self._topological()
        self._place = {item: place for place, item in enumerate(order)}
        self._weight = {item: self._cost(item) for item in reads}

        readers = defaultdict(list)
        for item, sources in reads.items():
            for node in sources:
                readers[node].append(item)
        key = {item: (view.rounds[item], item in view.output_cone) for item in reads}
        self._owner: dict[int, int] = {}
        for item in reversed(order):
            owners = {self._owner[reader] for reader in readers[item]}
            self._owner[item] = item
            if len(owners) == 1 and key[owner := owners.pop()] == key[item]:
                self._owner[item] = owner
        self._members = defaultdict(list)
        for item in order:
            self._members[self._owner[item]].append(item)
        self._key = {cluster: key[cluster] for cluster in self._members}
        self._clock = {cluster: next((sinks[item - self._count].clock for item in items if item >= self._count), None)
                       for cluster, items in self._members.items()}
        self._merge()
        self.clusters = self._finished()

    def _topological(self) -> list[int]:
        order, visited_items = [], set()
        for start in self._reads:
            stack = [(start, iter(self._reads[start]))]
            if start in visited_items:
                continue
            visited_items.add(start)
            while stack:
                item, rest = stack[-1]
                for node in rest:
                    if node in self._reads and node not in visited_items:
                        visited_items.add(node)
                        stack.append((node, iter(self._reads[node])))
                        break
                else:
                    order.append(item)
                    stack.pop()
        return order

    def _cost(self, item: int) -> float:
        values = self._sinks[item - self._count].values if item >= self._count else self._graph.nodes[item].args
        runs = sum(1 + sum(ref != before + 1 for before, ref in zip(value, value[1:])) for value in values if value)
        return 1 + 1.2 * runs

    def _merge(self) -> None:
        """Merge pairs, the best first, until none is better together."""
        reads, members = self._reads, self._members
        self._sources: dict[int, set[int]] = {}  #: cluster: nodes that it reads from outside
        self._size: dict[int, float] = {}
        users = defaultdict(set)  #: node: clusters that read it from outside
        for cluster, items in members.items():
            inside = set(items)
            self._sources[cluster] = {node for item in items for node in reads[item]} - inside
            self._size[cluster] = sum(self._weight[item] for item in items)
            for node in self._sources[cluster]:
                users[node].add(cluster)
        self._users = users
        self._version = defaultdict(int)
        heap: list = []
        for cluster in list(members):
            self._propose(heap, cluster)
        while heap:
            _, cluster, other, versions = heapq.heappop(heap)
            if cluster not in members or other not in members:
                continue
            if versions != (self._version[cluster], self._version[other]):
                continue
            if self._two_clocks(cluster, other) or self._path(cluster, other) or self._path(other, cluster):
                continue
            self._join(cluster, other)
            self._propose(heap, cluster)

    def _activity(self, sources: set[int]) -> float:
        return 1 - (1 - self._changes) ** len(sources - self._quiet)

    def _expense(self, size: float, sources: set[int]) -> float:
        return self._activity(sources) * (size + self._cluster_cost)

    def _propose(self, heap: list, cluster: int) -> None:
        neighbours = set()
        for node in self._sources[cluster]:
            if node in self._owner:
                neighbours.add(self._owner[node])
            if len(self._users[node]) <= _MOST_READERS:
                neighbours |= self._users[node]
        for item in self._members[cluster]:
            neighbours |= self._users.get(item, set())
        neighbours.discard(cluster)
        sources = self._sources[cluster]
        for other in neighbours:
            if self._key[other] != self._key[cluster] or self._two_clocks(cluster, other):
                continue
            other_sources = self._sources[other]
            inner = ({node for node in other_sources if self._owner.get(node) == cluster}
                     | {node for node in sources if self._owner.get(node) == other})
            together = (sources | other_sources) - inner
            spared = sum(self._activity(other_sources if self._owner[node] == other else sources)
                         for node in inner if self._users[node] <= {cluster, other})
            gain = (self._expense(self._size[cluster], sources) + self._expense(self._size[other], other_sources)
                    + spared * _OUTPUT_COST
                    - self._expense(self._size[cluster] + self._size[other], together))
            if gain > 0:
                heapq.heappush(heap, (-gain, cluster, other, (self._version[cluster], self._version[other])))

    def _two_clocks(self, cluster: int, other: int) -> bool:
        return None not in (clocks := {self._clock[cluster], self._clock[other]}) and len(clocks) == 2

    def _path(self, start: int, end: int) -> bool:
        """Return whether one cluster is read by another through a third."""
        visited_clusters = {start}
        stack = [start]
        while stack:
            cluster = stack.pop()
            for item in self._members[cluster]:
                for user in self._users.get(item, ()):
                    if user == end:
                        if cluster != start:
                            return True
                    elif user not in visited_clusters:
                        visited_clusters.add(user)
                        stack.append(user)
        return False

    def _join(self, cluster: int, other: int) -> None:
        items = self._members.pop(other)
        self._members[cluster] += items
        if self._clock[cluster] is None:
            self._clock[cluster] = self._clock[other]
        for item in items:
            self._owner[item] = cluster
        for node in self._sources.pop(other):
            self._users[node].discard(other)
            self._users[node].add(cluster)
            self._sources[cluster].add(node)
        for node in [node for node in self._sources[cluster] if self._owner.get(node) == cluster]:
            self._sources[cluster].discard(node)
            self._users[node].discard(cluster)
        self._size[cluster] += self._size.pop(other)
        self._version[cluster] += 1

    def _finished(self) -> list[Cluster]:
        order, visited_clusters = [], set()

        def visit(cluster: int) -> None:
            stack = [(cluster, iter(sorted(self._sources[cluster])))]
            visited_clusters.add(cluster)
            while stack:
                item, rest = stack[-1]
                for node in rest:
                    owner = self._owner.get(node)
                    if owner is not None and owner not in visited_clusters:
                        visited_clusters.add(owner)
                        stack.append((owner, iter(sorted(self._sources[owner]))))
                        break
                else:
                    order.append(item)
                    stack.pop()

        for cluster in sorted(self._members, key=self._key.__getitem__):
            if cluster not in visited_clusters:
                visit(cluster)
        clusters = []
        for cluster in order:
            items = sorted(self._members[cluster], key=self._place.__getitem__)
            clusters.append(Cluster([item for item in items if item < self._count],
                                    [self._sinks[item - self._count] for item in items if item >= self._count],
                                    self._key[cluster][1], self._key[cluster][0], self._clock[cluster]))
        return clusters


class Views:
    """Looks at all graphs together; of a graph's instances at all at once. `sinks` are by a graph's identity."""

    def __init__(self, design: Graphs, sinks: dict[int, list[Sink]]) -> None:
        self._design, self._sinks = design, sinks
        self._graphs = {id(graph): graph for graph in (design.top, *design.graphs)}
        top = id(design.top)
        self._top = top
        self._givers = defaultdict(list)  #: graph, input: sinks of the top
        for number, sink in enumerate(sinks[top]):
            if sink.kind == "input":
                graph = id(design.instances[sink.what[0]].graph)
                self._givers[graph, sink.what[1:]].append((top, len(design.top.nodes) + number))
        self._outputs = {(key, sink.what): (key, len(graph.nodes) + number) for key, graph in self._graphs.items()
                         for number, sink in enumerate(sinks[key]) if sink.kind == "output"}
        self._dependencies: dict[tuple[int, int], list[tuple[int, int]]] = {}
        items = [(key, item) for key, graph in self._graphs.items()
                 for item in range(1, len(graph.nodes) + len(sinks[key]))]
        self._rounds: dict[tuple[int, int], int] = {}
        self.circular = False  #: instances of a graph read what others show in the same cycle
        self._find_rounds(items)
        output_cone = set()
        worklist = [(top, len(design.top.nodes) + number) for number, sink in enumerate(sinks[top])
                    if sink.kind == "output"]
        while worklist:
            item = worklist.pop()
            if item not in output_cone:
                output_cone.add(item)
                worklist += self.dependencies(item)
        self.of = {key: View({item for graph, item in output_cone if graph == key},
                                {item: round_ for (graph, item), round_ in self._rounds.items() if graph == key})
                      for key in self._graphs}  #: by a graph's identity

    def dependencies(self, where: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the items on which an item depends without a register between."""
        items = self._dependencies.get(where)
        if items is None:
            key, item = where
            graph = self._graphs[key]
            if item >= len(graph.nodes):
                items = [(key, node) for node in sink_nodes(self._sinks[key][item - len(graph.nodes)])]
            else:
                node = graph.nodes[item]
                if node.op == "out":
                    instance, *output = node.extra
                    items = [self._outputs[id(self._design.instances[instance].graph), tuple(output)]]
                elif node.op == "in":
                    items = self._givers[key, node.extra]
                else:
                    items = [(key, source) for source in uses(node)]
            self._dependencies[where] = items
        return items

    def _find_rounds(self, items: list[tuple[int, int]]) -> None:
        rounds, open_ = self._rounds, set()
        for start in items:
            stack = [(start, iter(self.dependencies(start)))] if start not in rounds and start not in open_ else []
            open_.update(item for item, _ in stack)
            while stack:
                item, rest = stack[-1]
                for other in rest:
                    if other not in rounds:
                        if other in open_:
                            self.circular = True
                            continue
                        open_.add(other)
                        stack.append((other, iter(self.dependencies(other))))
                        break
                else:
                    rounds[item] = max((rounds.get(source, 0) + (source[0] != self._top == item[0])
                                        for source in self.dependencies(item)), default=0)
                    stack.pop()
