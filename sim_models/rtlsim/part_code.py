"""C++ of a graph that has instances: cluster by cluster, for all instances in which it is dirty.

Up to 64 instances are a set, in which each is a bit. One look tells for all of them whether a cluster has anything to
do, and its code runs for one after the other: few branches to guess, and independent work for the processor.
"""

from collections import defaultdict
from collections.abc import Iterator

from t3sim.rtlsim.clusters import Cluster
from t3sim.rtlsim.graph import ONE, WORD, Graph, Value, bit_of, node_of
from t3sim.rtlsim.graph_code import GraphWriter, by_word, if_so


class PartWriter(GraphWriter):
    """Writes the struct of an instance, of a set of them, and functions on sets.

    A set has, by cluster, the instances that `need` it evaluated, and those in which new values are `due` at the edge;
    `changed_in`, by word of a port, are those in which it has changed since the top heard of it.
    """

    def __init__(self, graph: Graph, clusters: list[Cluster], number: int, instances: int) -> None:
        super().__init__(graph, clusters, f"Part{number}", "all", f"Set{number}")
        self.number, self.instances = number, instances
        self.ports = {where: i for i, where in enumerate(graph.outputs)}
        #: By readers and ports: the variable with the instances, as bits, in which they have to hear of a change.
        self._change_variables: dict[tuple[tuple[int, ...], int], str] = {}
        self._has_due = False  #: whether what is being written lets anything be due
        #: Outputs that are one whole node of state are read where they are.
        self._register_ports: dict[tuple[str, int], int] = {}
        self._ports_of_register: dict[int, int] = defaultdict(int)
        for where, value in graph.outputs.items():
            node = node_of(value[0]) if value and value[0] > ONE else 0
            if node and graph.nodes[node].op == "reg" and value == tuple(
                    value[0] + i for i in range(graph.nodes[node].width)) and bit_of(value[0]) == 0:
                self._register_ports[where] = node
                self._ports_of_register[node] |= 1 << self.ports[where]

    def port_field(self, where: tuple[str, int]) -> str:
        """Name the field that has a port's word."""
        node = self._register_ports.get(where)
        return f"o{self.ports[where]}" if node is None else f"v{node}"

    def kept_ports(self) -> list[tuple[int, str]]:
        return [*((self.graph.nodes[node].width, f"v{node}") for node in self.graph.inputs.values()),
                *((len(value), self.port_field(where)) for where, value in self.graph.outputs.items()
                  if where not in self._register_ports)]

    def struct(self) -> Iterator[str]:
        yield from super().struct()
        yield f"struct {self.holder_type} {{"
        yield from self.bits()
        yield f"    std::uint64_t instances, changed, changed_in[{max(1, len(self.ports))}];"
        yield f"    std::uint64_t need[{max(1, len(self.clusters))}], due[{max(1, len(self.clusters))}];"
        yield f"    {self.type} one[{min(WORD, self.instances)}];"
        yield "};"

    @property
    def sets(self) -> list[int]:
        """Numbers of instances, by set."""
        return [min(WORD, self.instances - first) for first in range(0, self.instances, WORD)]

    def all_dirty(self) -> Iterator[str]:
        yield from super().all_dirty()
        yield "    for (auto& need : all.need) need = all.instances;"
        yield "    for (auto& instances : all.changed_in) instances = all.instances;"
        yield f"    all.changed = 0x{(1 << len(self.ports)) - 1:x}ull;"

    def input(self, at: str, instance: int, node: int, new: str) -> Iterator[str]:
        """Write that an instance's input is another; `at`: its set."""
        yield f"{at}.one[{instance}].v{node} = {new};"
        for reader in self.readers[node]:
            yield f"{at}.need[{reader}] |= 0x{1 << instance:x}ull;"
        yield self.dirty(self.readers[node], at=at)

    def cluster(self, number: int) -> Iterator[str]:
        yield from self._for_each("need", number, super().cluster(number))

    def take(self, number: int) -> Iterator[str]:
        yield from self._for_each("due", number, super().take(number))

    def _for_each(self, which: str, number: int, body: Iterator[str]) -> Iterator[str]:
        """Write a loop over instances, and whose turn it is because of what has changed in them."""
        self._change_variables, self._has_due = {}, False
        lines = list(body)
        here, bit = number // WORD, 1 << number % WORD
        for name in self._change_variables.values():
            yield f"std::uint64_t {name} = 0;"
        if self._has_due:
            yield "std::uint64_t due = 0;"
        yield f"for (std::uint64_t left = all.{which}[{number}]; left != 0; left &= left - 1) {{"
        yield "    [[maybe_unused]] const std::uint64_t me = left & -left;"
        yield f"    {self.type}& s = all.one[__builtin_ctzll(left)];"
        yield from (f"    {line}" for line in lines)
        yield "}"
        yield f"all.{which}[{number}] = 0;"
        for (readers, ports), name in self._change_variables.items():
            for reader in readers:
                yield f"all.need[{reader}] |= {name};"
            for word, mask in by_word(readers).items():
                yield f"{'dirty' if word == here else f'all.dirty[{word}]'} |= {if_so(f'{name} != 0')} & 0x{mask:x}ull;"
            for port in range(len(self.ports)):
                if ports >> port & 1:
                    yield f"all.changed_in[{port}] |= {name};"
            if ports:
                yield f"all.changed |= {if_so(f'{name} != 0')} & 0x{ports:x}ull;"
        if self._has_due:
            yield f"all.due[{number}] |= due;"
            yield f"all.pending[{here}] |= {if_so('due != 0')} & 0x{bit:x}ull;"

    def _note(self, condition: str, readers: list[int], ports: int = 0) -> str:
        if not readers and not ports:
            return ""
        name = self._change_variables.setdefault((tuple(readers), ports), f"c{len(self._change_variables)}")
        return f"{name} |= {if_so(condition)} & me;"

    def update(self, node: int, new: str, here: int) -> str:
        note = self._note(f"s.v{node} != {new}", self.readers[node], self._ports_of_register[node])
        return f"{note} s.v{node} = {new};"

    def pend(self, condition: str, number: int) -> str:
        self._has_due = True
        return f"due |= {if_so(f'{condition} != 0')} & me;"

    def written(self, memory: int, here: int) -> str:
        return self._note("true", self.memory_readers[memory])

    def output(self, where: tuple[str, int], value: Value) -> Iterator[str]:
        if where not in self._register_ports:
            name = f"s.{self.port_field(where)}"
            yield (f"{{ const std::uint64_t o = {self.word(value)}; "
                   f"{self._note(f'{name} != o', [], 1 << self.ports[where])} {name} = o; }}")
