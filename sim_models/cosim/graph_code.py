"""C++ of one graph: a struct for what it keeps, and functions for what a cycle changes in it.

A cluster has a bit in the struct's `dirty`; it is set when a source of the cluster has changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from .clusters import Cluster
from .expressions import Expressions, kind, local
from .graph import ONE, WORD, ZERO, Graph, Node, Value, bit_of, node_of, uses

_GROUP = 8  #: clusters that are asked for together


class GraphWriter(Expressions):
    """Writes a graph's struct and functions."""

    def __init__(self, graph: Graph, clusters: list[Cluster], number: int | None) -> None:
        super().__init__(graph)
        self.clusters = clusters
        self.number = number  #: of the struct; None: the top
        self.type = "Top" if number is None else f"Part{number}"
        self.words_of_bits = max(1, -(-len(clusters) // WORD))
        self.ports = {where: i for i, where in enumerate(graph.outputs)}
        self.readers: dict[int, list[int]] = defaultdict(list)  #: node: clusters that read it from outside
        self.memory_readers: dict[int, list[int]] = defaultdict(list)
        self.inner: dict[int, int] = {node: i for i, cluster in enumerate(clusters) for node in cluster.nodes}
        for i, cluster in enumerate(clusters):
            used = {u for n in cluster.nodes for u in uses(graph.nodes[n])}
            used |= {node_of(ref) for sink in cluster.sinks for value in sink.values for ref in value if ref > ONE}
            for node in used:
                if self.inner.get(node) != i:
                    self.readers[node].append(i)
            for memory in {graph.nodes[n].extra[0] for n in cluster.nodes if graph.nodes[n].op == "read"}:
                self.memory_readers[memory].append(i)
        #: Outputs that are one whole node of state are read where they are.
        self.direct: dict[tuple[str, int], int] = {}
        for where, value in graph.outputs.items():
            node = node_of(value[0]) if value and value[0] > ONE else 0
            if node and graph.nodes[node].op == "reg" and value == tuple(
                    value[0] + i for i in range(graph.nodes[node].width)) and bit_of(value[0]) == 0:
                self.direct[where] = node
        if number is None:
            self.direct = {}
        self.direct_of: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for where, node in self.direct.items():
            self.direct_of[node].append(where)

    @property
    def rounds(self) -> int:
        return 1 + max((cluster.round for cluster in self.clusters), default=0)

    def which(self, phase: str, round_: int, word: int) -> list[int]:
        """Return the clusters of a word that are evaluated in a round of a phase."""
        return [i for i, cluster in enumerate(self.clusters) if word * WORD <= i < (word + 1) * WORD
                and cluster.round == round_ and (phase == "settle" or cluster.shown)]

    def dirty(self, clusters: Iterable[int], here: int | None = None) -> str:
        """Write that clusters are to be evaluated; those of the word `here` are noted in a local variable."""
        masks: dict[int, int] = defaultdict(int)
        for i in clusters:
            masks[i // WORD] |= 1 << i % WORD
        return " ".join(f"{'dirty' if word == here else f's.dirty[{word}]'} |= 0x{bits:x}ull;"
                        for word, bits in masks.items())

    def changed(self, node: int, here: int | None = None) -> str:
        """Write what follows from a change of a node."""
        text = self.dirty(self.readers[node], here)
        ports = sum(1 << self.ports[where] for where in self.direct_of[node])
        return text + (f" s.changed |= 0x{ports:x}ull;" if ports else "")

    def update(self, node: int, new: str, here: int) -> str:
        """Write a node's new value, and that its readers are to be evaluated if it is another."""
        words = {i // WORD for i in self.readers[node]}
        ports = sum(1 << self.ports[where] for where in self.direct_of[node])
        if words == {here} or len(words) + bool(ports) == 1:
            bits = sum(1 << i % WORD for i in self.readers[node])
            name = "dirty" if words == {here} else f"s.dirty[{words.pop()}]" if words else "s.changed"
            if name == "s.changed":
                bits = ports
            text = f"{name} |= s.v{node} != {new} ? 0x{bits:x}ull : 0;"
            if name != "s.changed" and ports:
                text += f" s.changed |= s.v{node} != {new} ? 0x{ports:x}ull : 0;"
            return f"{text} s.v{node} = {new};"
        return f"if (s.v{node} != {new}) {{ s.v{node} = {new}; {self.changed(node, here)} }}"

    def field(self, node: int) -> str:
        found = self.graph.nodes[node]
        if found.op == "out":
            return self.output_of(*found.extra)
        if found.op == "in" and self.number is None:
            return f"s.input[{self.input_word(*found.extra)}]"
        return f"s.v{node}"

    def output_of(self, instance: int, port: str, word: int) -> str:
        raise AssertionError

    def input_word(self, port: str, word: int) -> int:
        raise AssertionError

    def struct(self) -> Iterator[str]:
        graph = self.graph
        yield f"struct {self.type} {{"
        yield f"    std::uint64_t dirty[{self.words_of_bits}], pending[{self.words_of_bits}];"
        if self.number is not None:
            yield "    std::uint64_t changed;"
        fields = [(graph.nodes[node].width, f"v{node}") for node in graph.inputs.values() if self.number is not None]
        for register in graph.registers:
            fields += [(graph.nodes[register.node].width, f"{letter}{register.node}") for letter in "vx"]
        fields += [(graph.nodes[node].width, f"v{node}") for node in sorted(self.inner) if self.readers[node]]
        fields += [(len(value), f"o{self.ports[where]}") for where, value in graph.outputs.items()
                   if where not in self.direct]
        for number, memory in enumerate(graph.memories):
            for port in range(len(memory.writes)):
                fields += [(max(1, len(memory.writes[port][1])), f"a{number}_{port}")]
                for word, width in enumerate(self.memory_words(memory.width)):
                    fields += [(width, f"d{number}_{port}_{word}"), (width, f"e{number}_{port}_{word}")]
        for width, name in sorted(fields, key=lambda one: -one[0]):
            yield f"    {kind(width)} {name};"
        for number, memory in enumerate(graph.memories):
            for word, width in enumerate(self.memory_words(memory.width)):
                yield f"    {kind(width)} m{number}_{word}[{memory.depth}];"
        yield from self.more_fields()
        yield "};"

    def more_fields(self) -> Iterator[str]:
        yield from ()

    @staticmethod
    def memory_words(width: int) -> list[int]:
        return [min(WORD, width - at) for at in range(0, width, WORD)]

    def power_on(self) -> Iterator[str]:
        """Write initial values; all is dirty."""
        yield f"static void power_on({self.type}& s) {{"
        yield "    std::memset(&s, 0, sizeof s);" if self.number is not None else ""
        for register in self.graph.registers:
            if register.init:
                yield f"    s.v{register.node} = s.x{register.node} = {self.literal(register.init, False)};"
        for number, memory in enumerate(self.graph.memories):
            for address, content in enumerate(memory.init):
                for word, width in enumerate(self.memory_words(memory.width)):
                    if part := content >> WORD * word & (1 << width) - 1:
                        yield f"    s.m{number}_{word}[{address}] = 0x{part:x}ull;"
        yield from self.all_dirty()
        yield "}"
        yield f"[[maybe_unused]] static void all_dirty({self.type}& s) {{"
        yield from self.all_dirty()
        yield "}"

    def all_dirty(self) -> Iterator[str]:
        for word in range(self.words_of_bits):
            count = min(WORD, len(self.clusters) - word * WORD)
            yield f"    s.dirty[{word}] = 0x{(1 << count) - 1:x}ull;"

    def functions(self) -> Iterator[str]:
        for word in range(self.words_of_bits):
            numbers = range(word * WORD, min(len(self.clusters), (word + 1) * WORD))
            for phase, round_ in product(("settle", "show"), range(self.rounds)):
                which = self.which(phase, round_, word)
                if not which:
                    continue
                yield f"static void {phase}{round_}_{word}({self.type}& s) {{"
                yield f"    std::uint64_t dirty = s.dirty[{word}];"
                yield from self.in_groups("dirty", which, self.cluster)
                yield f"    s.dirty[{word}] = dirty & ~0x{sum(1 << i % WORD for i in which):x}ull;"
                yield "}"
            stateful = [i for i in numbers if any(sink.kind in ("next", "write") for sink in self.clusters[i].sinks)]
            yield f"static void edge{word}({self.type}& s) {{"
            yield f"    const std::uint64_t pending = s.pending[{word}];"
            yield f"    s.pending[{word}] = 0;"
            yield f"    std::uint64_t dirty = s.dirty[{word}];"
            yield from self.in_groups("pending", stateful, self.take)
            yield f"    s.dirty[{word}] = dirty;"
            yield "}"

    def in_groups(self, bits: str, numbers: Sequence[int], body: Callable[[int], Iterator[str]]) -> Iterator[str]:
        for first in range(0, WORD, _GROUP):
            group = [i for i in numbers if first <= i % WORD < first + _GROUP]
            if len(group) > 1:
                yield f"    if ({bits} & 0x{sum(1 << i % WORD for i in group):x}ull) {{"
            for i in group:
                yield f"    if ({bits} & 0x{1 << i % WORD:x}ull) {{"
                yield from (f"        {line}" for line in body(i))
                yield "    }"
            if len(group) > 1:
                yield "    }"

    def cluster(self, number: int) -> Iterator[str]:
        graph, cluster = self.graph, self.clusters[number]
        inside = set(cluster.nodes)
        used = {u for n in cluster.nodes for u in uses(graph.nodes[n])}
        used |= {node_of(ref) for sink in cluster.sinks for value in sink.values for ref in value if ref > ONE}
        for sink in cluster.sinks:
            if sink.kind == "next":
                used.add(graph.registers[sink.what[0]].node)
        for node in sorted(used - inside):
            wide = local(graph.nodes[node].width)
            yield f"const {wide} v{node} = {self.field(node)};"
        for node in cluster.nodes:
            yield from self.compute(node)
            if self.readers[node]:
                yield self.update(node, f"v{node}", number // WORD)
        pending: list[str] = []
        for sink in cluster.sinks:
            yield from self.sink(sink, pending)
        if pending:
            yield f"if ({' | '.join(pending)}) s.pending[{number // WORD}] |= 0x{1 << number % WORD:x}ull;"

    def compute(self, number: int) -> Iterator[str]:
        node = self.graph.nodes[number]
        wide = local(node.width)
        if node.op == "read":
            memory, word = node.extra
            depth, address = self.graph.memories[memory].depth, self.word(node.args[0])
            read = f"s.m{memory}_{word}[{address}]"
            if depth < 1 << len(node.args[0]):
                read = f"{address} < {depth} ? {read} : 0"
            yield f"const {wide} v{number} = {read};"
        elif node.op == "select":
            yield from self.select(number, node, wide)
        elif node.op == "switch":
            yield from self.switch(number, node, wide)
        else:
            yield f"const {wide} v{number} = {self.node(number)};"

    def select(self, number: int, node: Node, wide: str) -> Iterator[str]:
        choices = list(zip(node.extra, node.args[1::2], node.args[2::2]))
        whole = all(start == 0 and len(new) == node.width for start, _, new in choices)
        if whole:
            text = self.word(node.args[0])
            for _, condition, new in choices:
                text = f"({self.word(condition)} ? {self.word(new)} : {text})"
            yield f"const {wide} v{number} = {text};"
            return
        yield f"{wide} v{number} = {self.word(node.args[0])};"
        for start, condition, new in choices:
            bits = (1 << len(new)) - 1 << start
            kept = (1 << node.width) - 1 & ~bits
            shifted = self.word((ZERO,) * start + new)
            value = f"(v{number} & 0x{kept:x}ull) | {shifted}" if kept else shifted
            yield f"v{number} = {self.word(condition)} ? {value} : v{number};"

    def switch(self, number: int, node: Node, wide: str) -> Iterator[str]:
        default, enable, value, *cases = node.args
        yield f"{wide} v{number} = {self.word(default)};"
        if enable != (ONE,):
            yield f"if ({self.word(enable)})"
        yield f"switch ({self.word(value)}) {{"
        for case, new in zip(node.extra, cases):
            yield f"case 0x{case:x}: v{number} = {self.word(new)}; break;"
        yield "default: break; }"

    def sink(self, sink, pending: list[str]) -> Iterator[str]:
        graph = self.graph
        if sink.kind == "next":
            register = graph.registers[sink.what[0]]
            yield f"const std::uint64_t x{register.node} = {self.word(sink.values[0])};"
            yield f"s.x{register.node} = x{register.node};"
            pending.append(f"(x{register.node} ^ v{register.node})")
        elif sink.kind == "write":
            number, = sink.what
            for port in range(len(sink.values) // 3):
                enable, address, data = sink.values[3 * port:3 * port + 3]
                name = f"{number}_{port}"
                any_enable = "1" if ONE in enable else self.any_of(tuple(ref for ref in enable if ref != ZERO))
                yield f"const bool w{name} = {any_enable};"
                yield f"s.a{name} = {self.word(address)};"
                for word, (part, bits) in enumerate(zip(self.words(data), self.words(enable))):
                    yield f"s.d{name}_{word} = {part};"
                    yield f"s.e{name}_{word} = {bits};"
                pending.append(f"w{name}")
        elif sink.kind == "output":
            yield from self.output(sink.what, sink.values[0])
        else:
            yield from self.give(sink.what, sink.values[0])

    def output(self, where: tuple[str, int], value: Value) -> Iterator[str]:
        if where not in self.direct:
            port = self.ports[where]
            yield f"{{ const std::uint64_t o = {self.word(value)};"
            yield f"if (s.o{port} != o) {{ s.o{port} = o; s.changed |= 0x{1 << port:x}ull; }} }}"

    def give(self, where: tuple, value: Value) -> Iterator[str]:
        raise AssertionError

    def take(self, number: int) -> Iterator[str]:
        """Write what a cluster's registers and memories do at the edge."""
        for sink in self.clusters[number].sinks:
            if sink.kind == "next":
                node = self.graph.registers[sink.what[0]].node
                yield f"{{ const auto x = s.x{node}; {self.update(node, 'x', number // WORD)} }}"
            elif sink.kind == "write":
                memory, = sink.what
                for port, address in enumerate(sink.values[1::3]):
                    yield from self.write(memory, port, len(address), number // WORD)

    def write(self, number: int, port: int, address_bits: int, here: int) -> Iterator[str]:
        memory = self.graph.memories[number]
        name, words = f"{number}_{port}", range(len(self.memory_words(memory.width)))
        room = f" && s.a{name} < {memory.depth}" if memory.depth < 1 << address_bits else ""
        yield f"if (({' | '.join(f's.e{name}_{word}' for word in words)}) != 0{room}) {{"
        for word in words:
            place = f"s.m{number}_{word}[s.a{name}]"
            yield f"    const auto n{word} = ({place} & ~s.e{name}_{word}) | (s.d{name}_{word} & s.e{name}_{word});"
            dirty = self.dirty(self.memory_readers[number], here)
            yield f"    if ({place} != n{word}) {{ {place} = n{word}; {dirty} }}"
        yield "}"
