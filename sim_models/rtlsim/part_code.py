"""C++ of a graph that has instances: cluster by cluster, for all instances in which it is dirty.

Up to 64 instances are a set, in which each is a bit. One look tells for all of them whether a cluster has anything to
do, and its code runs for one after the other: few branches to guess, and independent work for the processor.
"""

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
        #: Outputs that are one whole node of state are read where they are.
        self._register_ports: dict[tuple[str, int], int] = {}
        for where, value in graph.outputs.items():
            node = node_of(value[0]) if value and value[0] > ONE else 0
            if node and graph.nodes[node].op == "reg" and value == tuple(
                    value[0] + i for i in range(graph.nodes[node].width)) and bit_of(value[0]) == 0:
                self._register_ports[where] = node
                self.ports_of[node] |= 1 << self.ports[where]

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

    def turn(self, bits: str, number: int, lines: list[str]) -> Iterator[str]:
        """Write a loop over instances, and whose turn it is because of what has changed in them."""
        here, bit = number // WORD, 1 << number % WORD
        instances = f"all.{'need' if bits == 'dirty' else 'due'}[{number}]"
        due = any(line.startswith("due |= ") for line in lines)
        yield from (f"std::uint64_t c{i} = 0;" for i, *_ in self.differences())
        if due:
            yield "std::uint64_t due = 0;"
        yield f"for (std::uint64_t left = {instances}; left != 0; left &= left - 1) {{"
        yield "    [[maybe_unused]] const std::uint64_t me = left & -left;"
        yield f"    {self.type}& s = all.one[__builtin_ctzll(left)];"
        yield from (f"    std::uint64_t d{i} = 0;" for i, *_ in self.differences())
        yield from (f"    {line}" for line in lines)
        yield from (f"    c{i} |= {changed} & me;" for i, _, _, changed in self.differences())
        yield "}"
        yield f"{instances} = 0;"
        for i, readers, ports, _ in self.differences():
            for reader in readers:
                yield f"all.need[{reader}] |= c{i};"
            for word, mask in by_word(readers).items():
                yield f"{'dirty' if word == here else f'all.dirty[{word}]'} |= {if_so(f'c{i} != 0')} & 0x{mask:x}ull;"
            for port in range(len(self.ports)):
                if ports >> port & 1:
                    yield f"all.changed_in[{port}] |= c{i};"
            if ports:
                yield f"all.changed |= {if_so(f'c{i} != 0')} & 0x{ports:x}ull;"
        if due:
            yield f"all.due[{number}] |= due;"
            yield f"all.pending[{here}] |= {if_so('due != 0')} & 0x{bit:x}ull;"

    def pend(self, condition: str, number: int) -> str:
        return f"due |= {if_so(f'{condition} != 0')} & me;"

    def output(self, where: tuple[str, int], value: Value) -> Iterator[str]:
        if where not in self._register_ports:
            name = f"s.{self.port_field(where)}"
            yield (f"{{ const std::uint64_t o = {self.word(value)}; "
                   f"{self.differ(f'{name} ^ o', len(value), [], 1 << self.ports[where])} {name} = o; }}")
