"""C++ of a design: what is dirty in a cycle is evaluated, in the top and in the instances in it.

A cycle loads the inputs, evaluates what is dirty, lets registers and memories with a new value take it at the edge, and
evaluates what outputs of the top show of that; the rest waits for the next cycle's inputs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from t3sim.rtlsim.clusters import Cluster, Sink, Views, clusters_of, sinks_of
from t3sim.rtlsim.expressions import mask
from t3sim.rtlsim.graph import ONE, WORD, Graphs, Value, bit_of, node_of
from t3sim.rtlsim.graph_code import GraphWriter, by_word, if_so
from t3sim.rtlsim.part_code import PartWriter
from t3sim.rtlsim.port_map import RESET, PortMap

CHECKSUM_MULTIPLIER = 6364136223846793005
_BLOCK_WORDS = 8  #: of inputs that are compared together
_REST_CYCLES, _RESET_PERIOD_CYCLES = 32, 512  #: of the self test

#: Of the functions: a library for C has its own, and these are local there.
LINKAGE = '#define T3_API extern "C" __attribute__((visibility("default")))'

_HEAD = """\
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace {

typedef unsigned __int128 wide_t;
typedef __int128 signed_wide_t;
struct Route { std::uint16_t word; std::uint64_t clusters; };

template <int words>
inline bool same(const std::uint64_t* one, const std::uint64_t* other) {
    typedef std::uint64_t two_t __attribute__((vector_size(16), aligned(8), may_alias));
    two_t different = {};
    for (int word = 0; word + 1 < words; word += 2)
        different |= *reinterpret_cast<const two_t*>(one + word) ^ *reinterpret_cast<const two_t*>(other + word);
    if constexpr (words % 2) different[0] |= one[words - 1] ^ other[words - 1];
    return (different[0] | different[1]) == 0;
}

// More than 128 bits.
template <unsigned words>
struct Big {
    std::uint64_t word[words];

    std::uint64_t at(std::uint64_t n) const { return n < words ? word[n] : 0; }
    std::uint64_t get(unsigned first, unsigned width) const {
        const unsigned by = first % 64;
        const std::uint64_t bits = at(first / 64) >> by | (by ? at(first / 64 + 1) << (64 - by) : 0);
        return width < 64 ? bits & ((std::uint64_t{1} << width) - 1) : bits;
    }
    Big cut(unsigned width) const {
        Big cut = *this;
        if (width % 64) cut.word[words - 1] &= (std::uint64_t{1} << width % 64) - 1;
        return cut;
    }
    Big operator~() const { Big to; for (unsigned n = 0; n < words; ++n) to.word[n] = ~word[n]; return to; }
    Big operator-() const { return ~*this + Big{{1}}; }
    Big operator-(const Big& other) const { return *this + -other; }
    Big operator+(const Big& other) const {
        Big sum;
        wide_t carry = 0;
        for (unsigned n = 0; n < words; ++n) {
            carry += (wide_t)word[n] + other.word[n];
            sum.word[n] = (std::uint64_t)carry;
            carry >>= 64;
        }
        return sum;
    }
    Big operator<<(std::uint64_t by) const {
        Big to;
        for (unsigned n = 0; n < words; ++n) {
            const std::uint64_t from = n - by / 64;
            to.word[n] = by / 64 > n ? 0 : word[from] << by % 64;
            if (by / 64 < n && by % 64) to.word[n] |= word[from - 1] >> (64 - by % 64);
        }
        return to;
    }
    Big operator>>(std::uint64_t by) const {
        Big to;
        for (unsigned n = 0; n < words; ++n)
            to.word[n] = at(n + by / 64) >> by % 64 | (by % 64 ? at(n + by / 64 + 1) << (64 - by % 64) : 0);
        return to;
    }
    auto operator<=>(const Big& other) const {
        unsigned n = words - 1;
        while (n && word[n] == other.word[n]) n -= 1;
        return word[n] <=> other.word[n];
    }
    bool operator==(const Big& other) const = default;
};

template <int bits>
inline std::uint64_t part(const std::uint64_t (&value)[(bits + 63) / 64], std::uint64_t at) {
    const std::uint64_t word = at / 64;
    const unsigned by = at % 64;
    auto get = [&](std::uint64_t n) { return n < (bits + 63) / 64 ? value[n] : 0; };
    return by ? get(word) >> by | get(word + 1) << (64 - by) : get(word);
}

"""

_TAIL = """\
struct Simulation {{
    Top top;
    Simulation(std::uint64_t* in, std::uint64_t* out) {{ reset(in, out); }}
    void reset(std::uint64_t* in, std::uint64_t* out) {{
        std::memset(static_cast<void*>(&top), 0, sizeof top);
        std::memset(in, 0, {input_words} * sizeof *in);
        top.in = in, top.out = out;
        start(top);
        settle_all();
        show(top);
    }}
    void settle_all() {{
        if (top.all) wake_all(top);
        settle(top);
    }}
    void step(const std::uint64_t* from) {{
        load(top, from);
        settle_all();
        edge(top);
        if (top.all) wake_all(top);
        show(top);
    }}
}};

}}  // namespace

""" + LINKAGE + """

T3_API void* t3_new(std::uint64_t* in, std::uint64_t* out) {{ return new Simulation(in, out); }}
T3_API void t3_free(void* handle) {{ delete static_cast<Simulation*>(handle); }}
T3_API void t3_reset(void* handle) {{
    Simulation& one = *static_cast<Simulation*>(handle);
    const bool all = one.top.all;
    one.reset(one.top.in, one.top.out);
    one.top.all = all;
}}
T3_API int t3_asleep(void* handle) {{ return asleep(static_cast<Simulation*>(handle)->top); }}
T3_API void t3_evaluate_all(void* handle, int all) {{ static_cast<Simulation*>(handle)->top.all = all != 0; }}
T3_API void t3_step(void* handle) {{
    Simulation& one = *static_cast<Simulation*>(handle);
    one.step(one.top.in);
}}
T3_API void t3_eval(void* handle) {{
    Simulation& one = *static_cast<Simulation*>(handle);
    load(one.top, one.top.in);
    one.settle_all();
    show(one.top);
}}
T3_API std::uint64_t t3_run(void* handle, const std::uint64_t* stimulus, std::uint64_t* outputs, std::int64_t cycles) {{
    Simulation& one = *static_cast<Simulation*>(handle);
    std::uint64_t checksum = 0;
    for (std::int64_t cycle = 0; cycle < cycles; ++cycle, stimulus += {input_words}) {{
        one.step(stimulus);
        if (outputs) std::memcpy(outputs + cycle * {output_words}, one.top.out, {output_words} * sizeof *outputs);
        std::uint64_t sum = 0;
        for (std::size_t word = 0; word < {output_words}; ++word) sum += one.top.out[word] * (2 * word + 1);
        checksum = checksum * {multiplier}ULL + sum;
    }}
    if (cycles > 0) std::memcpy(one.top.in, stimulus - {input_words}, {input_words} * sizeof *stimulus);
    return checksum;
}}
// Random inputs, which change in every cycle or rest for a while, on an instance and on one of which all is evaluated.
// Gives the number of cycles that differ.
T3_API std::int64_t t3_self_test(std::int64_t cycles) {{
    static std::uint64_t in[2][{input_words} + 1], out[2][{output_words} + 1];
    Simulation quick(in[0], out[0]), full(in[1], out[1]);
    full.top.all = true;
    std::uint64_t random = 0x9e3779b97f4a7c15ULL;
    std::int64_t different = 0;
    for (std::int64_t cycle = 0; cycle < cycles; ++cycle) {{
        const int part = cycle / {rest_cycles} % 4;
        const std::size_t changed = part == 0 ? {input_words} : cycle % {rest_cycles} == {rest_cycles} / 2;
        for (std::size_t word = 0; word < {input_words}; ++word) {{
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            if (word < changed) in[0][part == 0 ? word : random % {input_words}] = random;
            else if (part == 2 && cycle % {rest_cycles} == 0) in[0][word] = 0;
        }}
        {rare_reset}
        if (cycle % 2) {{ load(quick.top, in[0]); quick.settle_all(); show(quick.top); }}
        quick.step(in[0]);
        full.step(in[0]);
        different += std::memcmp(out[0], out[1], sizeof out[0]) != 0;
    }}
    return different;
}}
"""


_TICK = """\
T3_API void t3_tick(void* handle, std::uint64_t clocks) {
    Simulation& one = *static_cast<Simulation*>(handle);
    load(one.top, one.top.in);
    one.settle_all();
    edge(one.top, clocks);
    if (one.top.all) wake_all(one.top);
    show(one.top);
}
"""

_MEMORY = """\
T3_API void t3_memory(void* handle, int which, std::uint64_t address, std::uint64_t* word, int write) {
    memory(static_cast<Simulation*>(handle)->top, which, address, word, write);
}
"""


def design_code(design: Graphs, ports: PortMap) -> str:
    """Write the C++ of a design with these ports."""
    sinks = {id(graph): sinks_of(graph, None) for graph in design.graphs} | {
        id(design.top): sinks_of(design.top, design)}
    views = Views(design, sinks)
    wires = _wires(design, sinks[id(design.top)])
    parts: dict[int, PartWriter] = {}
    instances = Counter(id(instance.graph) for instance in design.instances)
    for number, graph in enumerate(design.graphs):
        key = id(graph)
        parts[key] = PartWriter(graph, clusters_of(graph, sinks[key], views.of[key], True), number, instances[key])
    key = id(design.top)
    clusters = clusters_of(design.top, sinks[key], views.of[key])
    for cluster in clusters:
        cluster.sinks = [sink for sink in cluster.sinks if sink not in wires]
    clusters = [cluster for cluster in clusters if cluster.nodes or cluster.sinks]
    top = TopWriter(design, clusters, parts, ports, wires, views.circular)
    lines = [_HEAD]
    for writer in (*parts.values(), top):
        lines += writer.struct()
    for writer in (*parts.values(), top):
        # Names differ by the type of their argument.
        lines += writer.power_on()
        lines += writer.functions()
    lines += top.load()
    for writer in parts.values():
        lines += top.tell(writer)
    lines += top.cycle()
    if ports.memories:
        lines += top.memories()
    pin = ports.inputs.get(RESET)
    reset = f"in[0][{pin.offset}] = cycle % {_RESET_PERIOD_CYCLES} == {_RESET_PERIOD_CYCLES - 1};" if pin else ""
    lines.append(_TAIL.format(
        input_words=ports.input_words, output_words=ports.output_words, multiplier=CHECKSUM_MULTIPLIER,
        rest_cycles=_REST_CYCLES, rare_reset=reset))
    if ports.memories:
        lines.append(_MEMORY)
    if ports.clocks:
        lines.append(_TICK)
    return "\n".join(lines)


def _wires(design: Graphs, sinks: Sequence[Sink]) -> set[Sink]:
    """Return the sinks of the top that only hand on a port to an instance, or an instance's to a port."""
    nodes = design.top.nodes
    inputs, outputs = set(), defaultdict(list)
    for sink in sinks:
        value = sink.values[0]
        if sink.kind not in ("input", "output") or not value or value[0] <= ONE:
            continue
        node = nodes[node_of(value[0])]
        if bit_of(value[0]) == 0 and value == tuple(value[0] + i for i in range(node.width)):
            if sink.kind == "input" and node.op == "in":
                inputs.add(sink)
            elif sink.kind == "output" and node.op == "out":
                outputs[node.extra[0]].append(sink)
    # All instances of a graph alike, or none of them.
    wirings = defaultdict(set)
    for number, instance in enumerate(design.instances):
        ports = sorted(nodes[node_of(sink.values[0][0])].extra[1:] for sink in outputs[number])
        wirings[id(instance.graph)].add(tuple(ports))
    return inputs | {sink for number, instance_sinks in outputs.items() for sink in instance_sinks
                     if len(wirings[id(design.instances[number].graph)]) == 1}


class TopWriter(GraphWriter):
    """Writes the top, which has the sets of instances, and a cycle of all of it."""

    def __init__(self, design: Graphs, clusters: list[Cluster], parts: dict[int, PartWriter],
                 ports: PortMap, wires: set[Sink], circular: bool) -> None:
        self._circular = circular
        self._handed: dict[int, list[Sink]] = defaultdict(list)  #: input's node: what it is handed on to
        nodes = design.top.nodes
        self._offsets = {port.verilog: port.offset for port in ports.outputs.values()}
        #: Ports of the top that are an instance's: by instance and port, the word of the outputs.
        self._output_words: dict[tuple[int, tuple[str, int]], list[int]] = defaultdict(list)
        for sink in sorted(wires, key=lambda wire: (wire.kind, nodes[node_of(wire.values[0][0])].extra, wire.what)):
            node = node_of(sink.values[0][0])
            if sink.kind == "input":
                self._handed[node].append(sink)
            else:
                instance, *port = nodes[node].extra
                self._output_words[instance, tuple(port)].append(self._offsets[sink.what[0]] + sink.what[1])
        self._parts = list(parts.values())
        self.port_map = ports
        self.clocks = ports.clocks
        #: of instances: which of their graph's
        counts: dict[int, int] = defaultdict(int)
        self.place: list[tuple[PartWriter, int]] = []
        for instance in design.instances:
            self.place.append((parts[id(instance.graph)], counts[id(instance.graph)]))
            counts[id(instance.graph)] += 1
        super().__init__(design.top, clusters, "Top", "s", "Top")

    @staticmethod
    def _at(writer: PartWriter, n: int) -> tuple[str, int]:
        """Return the set of an instance, and which of the set's it is."""
        return f"s.set{writer.number}[{n // WORD}]", n % WORD

    def field(self, node: int) -> str:
        source = self.graph.nodes[node]
        if source.op == "out":
            instance, *port = source.extra
            writer, n = self.place[instance]
            at, index = self._at(writer, n)
            return f"{at}.one[{index}].{writer.port_field(tuple(port))}"
        if source.op == "in":
            return f"s.input[{self.input_word(*source.extra)}]"
        return super().field(node)

    def more_fields(self) -> Iterator[str]:
        yield from self.bits()
        for writer in self._parts:
            yield f"    {writer.holder_type} set{writer.number}[{len(writer.sets)}];"
        yield f"    std::uint64_t input[{self.port_map.input_words + 1}];"
        yield "    std::uint64_t *in, *out;"
        yield "    bool all;"

    def output(self, where: tuple[str, int], value: Value) -> Iterator[str]:
        yield f"s.out[{self._offsets[where[0]] + where[1]}] = {self.word(value)};"

    def sink(self, sink: Sink, pending: list[str]) -> Iterator[str]:
        if sink.kind == "input":
            yield from self._give(sink.what, sink.values[0])
        else:
            yield from super().sink(sink, pending)

    def _give(self, where: tuple, value: Value) -> Iterator[str]:
        """Write what an input of an instance gets."""
        instance, port, word = where
        writer, n = self.place[instance]
        at, index = self._at(writer, n)
        name = f"{at}.one[{index}].v{writer.graph.inputs[port, word]}"
        yield f"if (const std::uint64_t i = {self.word(value)}; {name} != i) {{ {' '.join(self.hand(where, 'i'))} }}"

    def hand(self, where: tuple, new: str) -> Iterator[str]:
        """Write that an instance's input is another."""
        instance, port, word = where
        writer, n = self.place[instance]
        yield from writer.input(*self._at(writer, n), writer.graph.inputs[port, word], new)

    def input_word(self, port: str, word: int) -> int:
        return next(p.offset for p in self.port_map.inputs.values() if p.verilog == port) + word

    def load(self) -> Iterator[str]:
        """Write the loading of ports that are not what they were."""
        words = {self.input_word(*where): node for where, node in self.graph.inputs.items()}
        word_count = self.port_map.input_words
        yield "static void load(Top& s, const std::uint64_t* const in) {"
        for first in range(0, word_count, _BLOCK_WORDS):
            block = [word for word in range(first, min(word_count, first + _BLOCK_WORDS)) if word in words]
            if not block:
                continue
            count = min(word_count, first + _BLOCK_WORDS) - first
            yield f"    if (!same<{count}>(in + {first}, s.input + {first})) {{"
            for word in block:
                width = self.graph.nodes[words[word]].width
                value = f"in[{word}]" + (f" & {mask(width)}" if width < WORD else "")
                yield f"        if (const std::uint64_t i = {value}; s.input[{word}] != i) {{"
                yield f"            s.input[{word}] = i; {self.dirty(self.readers[words[word]])}"
                for sink in self._handed[words[word]]:
                    yield from (f"            {line}" for line in self.hand(sink.what, "i"))
                yield "        }"
            yield "    }"
        yield "}"

    def memories(self) -> Iterator[str]:
        """Write how words of memories are read and written from outside."""
        yield "static void memory(Top& s, int which, std::uint64_t address, std::uint64_t* word, bool write) {"
        yield "    switch (which) {"
        for number in sorted(memory.number for memory in self.port_map.memories.values()):
            words = range(len(self.memory_words(self.graph.memories[number].width)))
            yield f"    case {number}:"
            yield "        if (write) {"
            yield from (f"            s.m{number}_{n}[address] = word[{n}];" for n in words)
            yield f"            {self.dirty(self.memory_readers[number])}"
            yield "        }"
            yield from (f"        word[{n}] = s.m{number}_{n}[address];" for n in words)
            yield "        break;"
        yield "    }"
        yield "}"

    def tell(self, writer: PartWriter) -> Iterator[str]:
        """Write what follows from changes of instances' outputs, in the top and at its ports."""
        readers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, node in enumerate(self.graph.nodes):
            if node.op == "out" and self.place[node.extra[0]][0] is writer:
                readers[self.place[node.extra[0]][1], writer.ports[node.extra[1:]]] += self.readers[number]
        instances = [i for i, (owner, _) in enumerate(self.place) if owner is writer]
        yield f"static void tell{writer.number}(Top& s, {writer.holder_type}& all, [[maybe_unused]] unsigned first) {{"
        yield "    const std::uint64_t changed = all.changed;"
        yield "    all.changed = 0;"
        for where, port in writer.ports.items():
            clusters = [sorted(set(readers[n, port])) for n in range(writer.instances)]
            places = [self._output_words[i, where] for i in instances]
            if not any(clusters) and not any(places):
                continue
            yield f"    if (changed & 0x{1 << port:x}ull) {{"
            if all(each == clusters[0] for each in clusters):
                yield f"        {self.dirty(clusters[0])}"
                clusters = [[]] * len(clusters)
            if any(clusters) or any(places):
                yield from (f"        {line}" for line in self._tell_each(writer, where, clusters, places))
            yield f"        all.changed_in[{port}] = 0;"
            yield "    }"
        yield "}"

    def _tell_each(self, writer: PartWriter, where: tuple[str, int], clusters: list[list[int]],
                   places: list[list[int]]) -> Iterator[str]:
        """Write a loop over the instances whose port has changed."""
        routes = [list(by_word(numbers).items()) for numbers in clusters]
        route_count = max(map(len, routes))
        if route_count:
            table = ", ".join(f"{{{word}, 0x{bits:x}ull}}" for route in routes
                              for word, bits in [*route, *[(0, 0)] * (route_count - len(route))])
            yield f"static const Route routes[] = {{{table}}};"
        port_count = len(places[0])
        if port_count:
            table = ", ".join(str(word) for words in places for word in words)
            yield f"static const std::uint16_t place[] = {{{table}}};"
        yield f"for (std::uint64_t left = all.changed_in[{writer.ports[where]}]; left != 0; left &= left - 1) {{"
        yield "    const unsigned one = __builtin_ctzll(left), n = first + one;"
        for i in range(port_count):
            yield f"    s.out[place[n * {port_count} + {i}]] = all.one[one].{writer.port_field(where)};"
        for i in range(route_count):
            route = f"routes[n * {route_count} + {i}]"
            yield f"    s.dirty[{route}.word] |= {route}.clusters;"
        yield "}"

    @staticmethod
    def masks(writer: GraphWriter, phase: str, round_: int) -> list[tuple[int, str]]:
        """Return the words of bits, and their masks, of what is evaluated in a round of a phase."""
        which = (i for word in range(writer.words_of_bits) for i in writer.which(phase, round_, word))
        return [(word, f"0x{bits:x}ull") for word, bits in by_word(which).items()]

    def _each_set(self, writer: PartWriter) -> Iterator[tuple[str, int]]:
        """Yield each set and the number of its first instance."""
        for i in range(len(writer.sets)):
            yield f"s.set{writer.number}[{i}]", i * WORD

    def again(self, phase: str, rounds: int) -> Iterator[str]:
        """Write whether anything is left: instances of a graph read each other's outputs, in whatever order."""
        def remaining(writer: GraphWriter, at: str) -> list[str]:
            return [f"({at}.dirty[{word}] & {bits})" for round_ in range(rounds)
                    for word, bits in self.masks(writer, phase, round_)]

        conditions = remaining(self, "s")
        for writer in self._parts:
            for at, _ in self._each_set(writer):
                conditions += remaining(writer, at)
        yield f"static bool {phase}_again(const Top& s) {{ return ({' | '.join(conditions) or '0'}) != 0; }}"

    def cycle(self) -> Iterator[str]:
        rounds = max(writer.rounds for writer in (self, *self._parts))
        for phase in ("settle", "show"):
            if self._circular:
                yield from self.again(phase, rounds)
            yield f"static void {phase}(Top& s) {{"
            if self._circular:
                yield "    do {"
            for round_ in range(rounds):
                for word, bits in self.masks(self, phase, round_):
                    yield f"    if (s.dirty[{word}] & {bits}) {phase}{round_}_{word}(s);"
                for writer in self._parts:
                    masks = self.masks(writer, phase, round_)
                    for at, first in self._each_set(writer) if masks else ():
                        for word, bits in masks:
                            yield f"    if ({at}.dirty[{word}] & {bits}) {phase}{round_}_{word}({at});"
                        yield f"    if ({at}.changed) tell{writer.number}(s, {at}, {first});"
            if self._circular:
                yield f"    }} while ({phase}_again(s));"
            yield "}"
        yield f"static void edge(Top& s{', const std::uint64_t clocks = ~0ull' if self.clocks else ''}) {{"
        for word in range(self.words_of_bits):
            if not self.clocks:
                yield f"    if (s.pending[{word}]) edge{word}(s);"
                continue
            masks = [by_word(i for i, cluster in enumerate(self.clusters) if cluster.clock == clock).get(word, 0)
                     for clock in range(len(self.clocks))]
            ticking = " | ".join(f"{if_so(f'clocks >> {n} & 1')} & 0x{bits:x}ull" for n, bits in enumerate(masks))
            yield f"    if (const std::uint64_t now = {ticking}; s.pending[{word}] & now) edge{word}(s, now);"
        for writer in self._parts:
            for at, first in self._each_set(writer):
                for word in range(writer.words_of_bits):
                    yield f"    if ({at}.pending[{word}]) edge{word}({at});"
                yield f"    if ({at}.changed) tell{writer.number}(s, {at}, {first});"
        yield "}"
        yield "static void wake_all(Top& s) {"
        yield "    all_dirty(s);"
        for writer in self._parts:
            yield f"    for (auto& set : s.set{writer.number}) all_dirty(set);"
        yield "}"
        yield "static void start(Top& s) {"
        yield "    power_on(s);"
        for writer in self._parts:
            for (at, _), count in zip(self._each_set(writer), writer.sets):
                yield f"    {at}.instances = 0x{(1 << count) - 1:x}ull;"
                yield f"    for (auto& one : {at}.one) power_on(one);"
        yield "    wake_all(s);"
        yield "}"
        yield "static int asleep([[maybe_unused]] const Top& s) {"
        yield "    int asleep = 0;"
        for writer in self._parts:
            yield f"    for (const auto& set : s.set{writer.number}) {{"
            yield "        std::uint64_t awake = 0;"
            yield "        for (const std::uint64_t need : set.need) awake |= need;"
            yield "        asleep += __builtin_popcountll(set.instances & ~awake);"
            yield "    }"
        yield "    return asleep;"
        yield "}"
