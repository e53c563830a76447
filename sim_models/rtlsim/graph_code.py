"""C++ of one graph: a struct for what it keeps, and what evaluates a cluster and lets it take new values.

A cluster has a bit in `dirty`; it is set when a source of the cluster has changed.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from t3sim.rtlsim.clusters import Cluster
from t3sim.rtlsim.expressions import Expressions, kind, local
from t3sim.rtlsim.graph import ONE, WORD, ZERO, Graph, Node, Value, node_of, uses

_GROUP = 8  #: clusters that are asked for together
_MOST_WORDS = 3  #: of bits of clusters that are written without a branch


def if_so(condition: str) -> str:
    """Write all bits if so, else none: the compiler would make a branch, which is guessed wrong too often."""
    return f"-(std::uint64_t)({condition})"


def by_word(clusters: Iterable[int]) -> dict[int, int]:
    """Return the bits of clusters, by word of bits."""
    masks: dict[int, int] = defaultdict(int)
    for i in clusters:
        masks[i // WORD] |= 1 << i % WORD
    return masks


class GraphWriter(Expressions, ABC):
    """Writes a graph's struct and functions; `s` is the struct, `holder` what has the bits of its clusters."""

    clocks: Sequence[str] = ()  #: if there is not only one

    def __init__(self, graph: Graph, clusters: list[Cluster], type_: str, holder: str, holder_type: str) -> None:
        super().__init__(graph)
        self.clusters = clusters
        self.type, self.holder, self.holder_type = type_, holder, holder_type
        self.words_of_bits = max(1, -(-len(clusters) // WORD))
        self.readers: dict[int, list[int]] = defaultdict(list)  #: node: clusters that read it from outside
        self.memory_readers: dict[int, list[int]] = defaultdict(list)
        self.ports_of: dict[int, int] = defaultdict(int)  #: register: ports that are read there, as bits
        #: In what is being written, by readers and ports that have to hear of changes: the widths of what may change.
        self._differences: dict[tuple[tuple[int, ...], int], list[int]] = {}
        self.inner: dict[int, int] = {node: i for i, cluster in enumerate(clusters) for node in cluster.nodes}
        for i, cluster in enumerate(clusters):
            sources = {u for n in cluster.nodes for u in uses(graph.nodes[n])}
            sources |= {node_of(ref) for sink in cluster.sinks for value in sink.values for ref in value if ref > ONE}
            for node in sources:
                if self.inner.get(node) != i:
                    self.readers[node].append(i)
            for memory in {graph.nodes[n].extra[0] for n in cluster.nodes if graph.nodes[n].op == "read"}:
                self.memory_readers[memory].append(i)

    @property
    def rounds(self) -> int:
        return 1 + max((cluster.round for cluster in self.clusters), default=0)

    def which(self, phase: str, round_: int, word: int) -> list[int]:
        """Return the clusters of a word that are evaluated in a round of a phase."""
        return [i for i, cluster in enumerate(self.clusters) if word * WORD <= i < (word + 1) * WORD
                and cluster.round == round_ and (phase == "settle" or cluster.in_output_cone)]

    @staticmethod
    def dirty(clusters: Iterable[int], here: int | None = None, at: str = "s") -> str:
        """Write that clusters are to be evaluated; those of the word `here` are noted in a local variable."""
        return " ".join(f"{'dirty' if word == here else f'{at}.dirty[{word}]'} |= 0x{bits:x}ull;"
                        for word, bits in by_word(clusters).items())

    def differ(self, difference: str, width: int, readers: Sequence[int], ports: int = 0) -> str:
        """Write that readers and ports have to hear of a change if a bit of the difference is set."""
        if not readers and not ports:
            return ""
        key = tuple(readers), ports
        self._differences.setdefault(key, []).append(width)
        return f"d{list(self._differences).index(key)} |= {difference};"

    def differences(self) -> Iterator[tuple[int, tuple[int, ...], int, str]]:
        """Yield the number of each variable that `differ` wrote, readers, ports, and all bits if one of it is set."""
        for i, ((readers, ports), widths) in enumerate(self._differences.items()):
            yield i, readers, ports, f"-d{i}" if max(widths) == 1 else if_so(f"d{i} != 0")

    def update(self, node: int, new: str) -> str:
        """Write a node's new value, and whether it is another."""
        width = self.graph.nodes[node].width
        difference, width = (f"s.v{node} ^ {new}", width) if width <= WORD else (f"s.v{node} != {new}", 1)
        return f"{self.differ(difference, width, self.readers[node], self.ports_of[node])} s.v{node} = {new};"

    def field(self, node: int) -> str:
        """Write where a node's value is kept."""
        return f"s.v{node}"

    def bits(self) -> Iterator[str]:
        """Write the fields that say what is to be evaluated, and what is to take new values at the edge."""
        yield f"    std::uint64_t dirty[{self.words_of_bits}], pending[{self.words_of_bits}];"

    def kept_ports(self) -> list[tuple[int, str]]:
        """Return the width and name of fields for ports."""
        return []

    def struct(self) -> Iterator[str]:
        graph = self.graph
        yield f"struct {self.type} {{"
        fields = self.kept_ports()
        for register in graph.registers:
            fields += [(graph.nodes[register.node].width, f"{letter}{register.node}") for letter in "vx"]
        fields += [(graph.nodes[node].width, f"v{node}") for node in sorted(self.inner) if self.readers[node]]
        for number, memory in enumerate(graph.memories):
            for port in range(len(memory.writes)):
                fields += [(max(1, len(memory.writes[port][1])), f"a{number}_{port}")]
                for word, width in enumerate(self.memory_words(memory.width)):
                    fields += [(width, f"d{number}_{port}_{word}"), (width, f"e{number}_{port}_{word}")]
        for width, name in sorted(fields, key=lambda field: -field[0]):
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
        """Write initial values, of what is all zeros, and what makes all dirty."""
        yield f"static void power_on({self.type}& s) {{"
        for register in self.graph.registers:
            if register.init:
                yield f"    s.v{register.node} = s.x{register.node} = {self.literal(register.init, False)};"
        for number, memory in enumerate(self.graph.memories):
            for address, content in enumerate(memory.init):
                for word, width in enumerate(self.memory_words(memory.width)):
                    if part := content >> WORD * word & (1 << width) - 1:
                        yield f"    s.m{number}_{word}[{address}] = 0x{part:x}ull;"
        yield "}"
        yield f"static void all_dirty({self.holder_type}& {self.holder}) {{"
        yield from self.all_dirty()
        yield "}"

    def all_dirty(self) -> Iterator[str]:
        for word in range(self.words_of_bits):
            count = min(WORD, len(self.clusters) - word * WORD)
            yield f"    {self.holder}.dirty[{word}] = 0x{(1 << count) - 1:x}ull;"

    def functions(self) -> Iterator[str]:
        for word in range(self.words_of_bits):
            numbers = range(word * WORD, min(len(self.clusters), (word + 1) * WORD))
            for phase, round_ in product(("settle", "show"), range(self.rounds)):
                which = self.which(phase, round_, word)
                if not which:
                    continue
                yield f"static void {phase}{round_}_{word}({self.holder_type}& {self.holder}) {{"
                yield f"    std::uint64_t dirty = {self.holder}.dirty[{word}];"
                yield from self.in_groups("dirty", which, self.cluster)
                yield f"    {self.holder}.dirty[{word}] = dirty & ~0x{sum(1 << i % WORD for i in which):x}ull;"
                yield "}"
            stateful = [i for i in numbers if any(sink.kind in ("next", "write") for sink in self.clusters[i].sinks)]
            ticking = [", const std::uint64_t ticking", " & ticking", "&= ~ticking"] if self.clocks else ["", "", "= 0"]
            yield f"static void edge{word}({self.holder_type}& {self.holder}{ticking[0]}) {{"
            yield f"    const std::uint64_t pending = {self.holder}.pending[{word}]{ticking[1]};"
            yield f"    {self.holder}.pending[{word}] {ticking[2]};"
            yield f"    std::uint64_t dirty = {self.holder}.dirty[{word}];"
            yield from self.in_groups("pending", stateful, self.take)
            yield f"    {self.holder}.dirty[{word}] = dirty;"
            yield "}"

    def in_groups(self, bits: str, numbers: Sequence[int], body: Callable[[int], Iterator[str]]) -> Iterator[str]:
        for first in range(0, WORD, _GROUP):
            group = [i for i in numbers if first <= i % WORD < first + _GROUP]
            if len(group) > 1:
                yield f"    if ({bits} & 0x{sum(1 << i % WORD for i in group):x}ull) {{"
            for i in group:
                yield f"    if ({bits} & 0x{1 << i % WORD:x}ull) {{"
                self._differences = {}
                yield from (f"        {line}" for line in self.turn(bits, i, list(body(i))))
                yield "    }"
            if len(group) > 1:
                yield "    }"

    def turn(self, _bits: str, number: int, lines: list[str]) -> Iterator[str]:
        """Write the lines, and that who reads what they have changed is to be evaluated."""
        yield from (f"std::uint64_t d{i} = 0;" for i, *_ in self.differences())
        yield from lines
        for i, readers, _, changed in self.differences():
            masks = by_word(readers)
            if len(masks) > _MOST_WORDS:
                yield f"if (d{i} != 0) {{ {self.dirty(readers, number // WORD)} }}"
                continue
            yield f"d{i} = {changed};"
            for word, bits in masks.items():
                yield f"{'dirty' if word == number // WORD else f's.dirty[{word}]'} |= d{i} & 0x{bits:x}ull;"

    def cluster(self, number: int) -> Iterator[str]:
        """Write the evaluation of a cluster."""
        graph, cluster = self.graph, self.clusters[number]
        own_nodes = set(cluster.nodes)
        sources = {u for n in cluster.nodes for u in uses(graph.nodes[n])}
        sources |= {node_of(ref) for sink in cluster.sinks for value in sink.values for ref in value if ref > ONE}
        for sink in cluster.sinks:
            if sink.kind == "next":
                sources.add(graph.registers[sink.what[0]].node)
        for node in sorted(sources - own_nodes):
            wide = local(graph.nodes[node].width)
            yield f"const {wide} v{node} = {self.field(node)};"
        for node in cluster.nodes:
            yield from self.compute(node)
            if self.readers[node]:
                yield self.update(node, f"v{node}")
        pending: list[str] = []
        for sink in cluster.sinks:
            yield from self.sink(sink, pending)
        if pending:
            yield self.pend(f"({' | '.join(pending)})", number)

    def pend(self, condition: str, number: int) -> str:
        """Write that a cluster takes new values at the edge if some are others."""
        return f"s.pending[{number // WORD}] |= {if_so(f'{condition} != 0')} & 0x{1 << number % WORD:x}ull;"

    def compute(self, number: int) -> Iterator[str]:
        node = self.graph.nodes[number]
        wide = local(node.width)
        if node.op == "read":
            memory, word = node.extra
            depth, address = self.graph.memories[memory].depth, self.word(node.args[0])
            text = f"s.m{memory}_{word}[{address}]"
            if depth < 1 << len(node.args[0]):
                text = f"{address} < {depth} ? {text} : 0"
            yield f"const {wide} v{number} = {text};"
        elif node.op == "select":
            yield from self.select(number, node, wide)
        elif node.op == "switch":
            yield from self.switch(number, node, wide)
        else:
            yield f"const {wide} v{number} = {self.node(number)};"

    def select(self, number: int, node: Node, wide: str) -> Iterator[str]:
        yield f"{wide} v{number} = {self.word(node.args[0])};"
        for start, condition, new in zip(node.extra, node.args[1::2], node.args[2::2]):
            bits = (1 << len(new)) - 1 << start
            which = f"-{self.word(condition)}" + (f" & 0x{bits:x}ull" if len(new) < node.width else "")
            yield f"v{number} ^= (v{number} ^ {self.word((ZERO,) * start + new)}) & {which};"

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
        elif sink.kind == "clear":
            register = graph.registers[sink.what[0]]
            name = f"{register.node} = {self.literal(register.init, False)};"
            yield f"if ({self.word(sink.values[0])}) s.v{register.node} = s.x{name}"
        elif sink.kind == "write":
            number, = sink.what
            for port in range(len(sink.values) // 3):
                enable, address, data = sink.values[3 * port:3 * port + 3]
                name = f"{number}_{port}"
                yield f"const bool w{name} = {self.any_of(enable)};"
                yield f"s.a{name} = {self.word(address)};"
                for word, (part, bits) in enumerate(zip(self.words(data), self.words(enable))):
                    yield f"s.d{name}_{word} = {part};"
                    yield f"s.e{name}_{word} = {bits};"
                pending.append(f"w{name}")
        else:
            yield from self.output(sink.what, sink.values[0])

    @abstractmethod
    def output(self, where: tuple[str, int], value: Value) -> Iterator[str]:
        """Write what a word of a port shows."""

    def take(self, number: int) -> Iterator[str]:
        """Write what a cluster's registers and memories do at the edge."""
        for sink in self.clusters[number].sinks:
            if sink.kind == "next":
                node = self.graph.registers[sink.what[0]].node
                yield f"{{ const auto x = s.x{node}; {self.update(node, 'x')} }}"
            elif sink.kind == "write":
                memory, = sink.what
                for port, address in enumerate(sink.values[1::3]):
                    yield from self.write(memory, port, len(address))

    def write(self, number: int, port: int, address_bits: int) -> Iterator[str]:
        memory = self.graph.memories[number]
        name = f"{number}_{port}"
        yield f"if (s.a{name} < {memory.depth}) {{" if memory.depth < 1 << address_bits else "{"
        for word, width in enumerate(self.memory_words(memory.width)):
            place = f"s.m{number}_{word}[s.a{name}]"
            yield f"    const std::uint64_t n{word} = ({place} ^ s.d{name}_{word}) & s.e{name}_{word};"
            yield f"    {self.differ(f'n{word}', width, self.memory_readers[number])} {place} ^= n{word};"
        yield "}"
