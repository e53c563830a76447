"""C++ of a design: what is dirty in a cycle is evaluated, in the top and in the instances in it.

A cycle loads the inputs, evaluates what is dirty, lets registers and memories with a new value take it at the edge, and
evaluates what outputs of the top show of that; the rest waits for the next cycle's inputs.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..engine.port_map import RESET, PortMap
from .clusters import Cluster, Sink, Views, clusters_of, sinks_of
from .expressions import mask
from .graph import ONE, WORD, Design, Value, bit_of, node_of
from .graph_code import GraphWriter

CHECKSUM_MULTIPLIER = 6364136223846793005
_BLOCK_WORDS = 8  #: of inputs that are compared together
_REST_CYCLES, _RESET_PERIOD_CYCLES = 32, 512  #: of the self test

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
inline std::uint64_t part(const std::uint64_t (&value)[(bits + 63) / 64], std::uint64_t at, std::uint64_t outside) {
    constexpr unsigned words = (bits + 63) / 64;
    const std::uint64_t word = at / 64;
    const unsigned by = at % 64;
    auto get = [&](std::uint64_t n) {
        if (n >= words) return outside;
        return bits % 64 && n == words - 1 ? value[n] | outside << bits % 64 : value[n];
    };
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

#define T3_API extern "C" __attribute__((visibility("default")))

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



def design_code(design: Design, ports: PortMap) -> str:
    """Write the C++ of a design with these ports."""
    sinks = {id(graph): sinks_of(graph, None) for graph in design.graphs} | {
        id(design.top): sinks_of(design.top, design)}
    views = Views(design, sinks)
    wires = _wires(design, sinks[id(design.top)])
    parts: dict[int, GraphWriter] = {}
    for number, graph in enumerate(design.graphs):
        key = id(graph)
        parts[key] = GraphWriter(graph, clusters_of(graph, sinks[key], views.of[key], True), number)
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
        # Names are told apart by the type of their argument.
        lines += writer.power_on()
        lines += writer.functions()
    lines += top.load()
    for writer in parts.values():
        lines += top.routes(writer)
    lines += top.cycle()
    pin = ports.inputs.get(RESET)
    reset = f"in[0][{pin.offset}] = cycle % {_RESET_PERIOD_CYCLES} == {_RESET_PERIOD_CYCLES - 1};" if pin else ""
    lines.append(_TAIL.format(
        input_words=ports.input_words, output_words=ports.output_words, multiplier=CHECKSUM_MULTIPLIER,
        rest_cycles=_REST_CYCLES, rare_reset=reset))
    return "\n".join(lines)


def _wires(design: Design, sinks: Sequence[Sink]) -> set[Sink]:
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
    alike = defaultdict(set)
    for number, one in enumerate(design.instances):
        alike[id(one.graph)].add(tuple(sorted(nodes[node_of(sink.values[0][0])].extra[1:] for sink in outputs[number])))
    return inputs | {sink for number, found in outputs.items() for sink in found
                     if len(alike[id(design.instances[number].graph)]) == 1}


class TopWriter(GraphWriter):
    def __init__(self, design: Design, clusters: list[Cluster], parts: dict[int, "GraphWriter"],
                 ports: PortMap, wires: set[Sink], circular: bool) -> None:
        self._circular = circular
        self._design = design
        self._handed: dict[int, list[Sink]] = defaultdict(list)  #: input's node: what it is handed on to
        self._shown_by: dict[int, list[Sink]] = defaultdict(list)  #: instance: ports that it drives
        nodes = design.top.nodes
        for sink in sorted(wires, key=lambda one: (one.kind, nodes[node_of(one.values[0][0])].extra, one.what)):
            node = node_of(sink.values[0][0])
            if sink.kind == "input":
                self._handed[node].append(sink)
            else:
                self._shown_by[design.top.nodes[node].extra[0]].append(sink)
        self._parts = parts  #: by identity of the graph
        self.port_map = ports
        #: of instances: which of their struct
        seen: dict[int, int] = defaultdict(int)
        self.place: list[tuple[GraphWriter, int]] = []
        for one in design.instances:
            writer = parts[id(one.graph)]
            self.place.append((writer, seen[id(one.graph)]))
            seen[id(one.graph)] += 1
        self.count = {parts[key].number: count for key, count in seen.items()}
        super().__init__(design.top, clusters, None)

    def output_of(self, instance: int, port: str, word: int) -> str:
        writer, n = self.place[instance]
        node = writer.direct.get((port, word))
        name = f"s.o{writer.ports[port, word]}" if node is None else f"s.v{node}"
        return f"s.part{writer.number}[{n}].{name.removeprefix('s.')}"

    def more_fields(self) -> Iterator[str]:
        for writer in self._parts.values():
            yield f"    {writer.type} part{writer.number}[{self.count[writer.number]}];"
            yield f"    std::uint64_t busy{writer.number}[{-(-self.count[writer.number] // WORD)}];"
            for name in ("moved", "shown"):
                yield f"    std::uint64_t {name}{writer.number}[{-(-self.count[writer.number] // WORD)}];"
        yield f"    std::uint64_t input[{self.port_map.input_words + 1}];"
        yield "    std::uint64_t *in, *out;"
        yield "    bool all;"

    def output(self, where: tuple[str, int], value: Value) -> Iterator[str]:
        port = next(p for p in self.port_map.outputs.values() if p.verilog == where[0])
        yield f"s.out[{port.offset + where[1]}] = {self.word(value)};"

    def give(self, where: tuple, value: Value) -> Iterator[str]:
        instance, port, word = where
        writer, n = self.place[instance]
        name = f"s.part{writer.number}[{n}].v{writer.graph.inputs[port, word]}"
        yield f"if (const std::uint64_t i = {self.word(value)}; {name} != i) {{ {' '.join(self.hand(where, 'i'))} }}"

    def hand(self, where: tuple, new: str) -> Iterator[str]:
        """Write that an instance's input is another."""
        instance, port, word = where
        writer, n = self.place[instance]
        node = writer.graph.inputs[port, word]
        yield f"s.part{writer.number}[{n}].v{node} = {new};"
        yield writer.dirty(writer.readers[node]).replace("s.dirty", f"s.part{writer.number}[{n}].dirty")
        yield f"s.busy{writer.number}[{n // WORD}] |= 0x{1 << n % WORD:x}ull;"

    def shown_ports(self, writer: GraphWriter) -> Iterator[str]:
        """Write the ports of the top that are an instance's: all of those that may have changed."""
        places = [i for i, (one, _) in enumerate(self.place) if one is writer]
        fields = [self._design.top.nodes[node_of(sink.values[0][0])].extra[1:] for sink in self._shown_by[places[0]]]
        if not fields:
            return
        names = {port.verilog: port.offset for port in self.port_map.outputs.values()}
        table = [str(names[sink.what[0]] + sink.what[1]) for i in places for sink in self._shown_by[i]]
        yield f"    {{ static const std::uint16_t place[][{len(fields)}] = {{"
        for at in range(0, len(table), len(fields)):
            yield f"        {{{', '.join(table[at:at + len(fields)])}}},"
        yield "    };"
        for word in range(-(-self.count[writer.number] // WORD)):
            yield f"    for (std::uint64_t left = s.shown{writer.number}[{word}]; left != 0; left &= left - 1) {{"
            yield f"        const unsigned n = {word * WORD} + __builtin_ctzll(left);"
            for i, (port, part) in enumerate(fields):
                node = writer.direct.get((port, part))
                name = f"s.o{writer.ports[port, part]}" if node is None else f"s.v{node}"
                yield f"        s.out[place[n][{i}]] = s.part{writer.number}[n].{name.removeprefix('s.')};"
            yield "    }"
            yield f"    s.shown{writer.number}[{word}] = 0;"
        yield "    }"

    def input_word(self, port: str, word: int) -> int:
        return next(p.offset for p in self.port_map.inputs.values() if p.verilog == port) + word

    def load(self) -> Iterator[str]:
        """Write the loading of ports that are not what they were."""
        words = {self.input_word(*where): node for where, node in self.graph.inputs.items()}
        total = self.port_map.input_words
        yield "static void load(Top& s, const std::uint64_t* const in) {"
        for first in range(0, total, _BLOCK_WORDS):
            block = [word for word in range(first, min(total, first + _BLOCK_WORDS)) if word in words]
            if not block:
                continue
            count = min(total, first + _BLOCK_WORDS) - first
            yield f"    if (!same<{count}>(in + {first}, s.input + {first})) {{"
            for word in block:
                width = self.graph.nodes[words[word]].width
                value = f"in[{word}]" + (f" & {mask(width)}" if width < WORD else "")
                yield f"        if (const std::uint64_t i = {value}; s.input[{word}] != i) {{"
                yield f"            s.input[{word}] = i; {self.changed(words[word])}"
                for sink in self._handed[words[word]]:
                    yield from (f"            {line}" for line in self.hand(sink.what, "i"))
                yield "        }"
            yield "    }"
        yield "}"

    def routes(self, writer: GraphWriter) -> Iterator[str]:
        """Write which clusters of the top read an instance's outputs."""
        outs: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, node in enumerate(self.graph.nodes):
            if node.op == "out" and self.place[node.extra[0]][0] is writer:
                outs[self.place[node.extra[0]][1], writer.ports[node.extra[1:]]] += self.readers[number]
        entries, starts = [], []
        for n in range(self.count[writer.number]):
            for port in range(len(writer.ports)):
                starts.append(len(entries))
                masks: dict[int, int] = defaultdict(int)
                for i in outs.get((n, port), ()):
                    masks[i // WORD] |= 1 << i % WORD
                entries += [f"{{{word}, 0x{bits:x}ull}}" for word, bits in masks.items()]
        starts.append(len(entries))
        name = f"{writer.number}"
        yield f"static const Route routes{name}[] = {{{', '.join(entries or ['{0, 0}'])}}};"
        yield f"static const std::uint32_t starts{name}[] = {{{', '.join(map(str, starts))}}};"
        ports = len(writer.ports)
        yield f"""\
static inline void tell{name}(Top& s, {writer.type}& one, unsigned n) {{
    for (std::uint64_t left = one.changed; left != 0; left &= left - 1) {{
        const unsigned port = n * {ports} + __builtin_ctzll(left);
        for (unsigned i = starts{name}[port]; i < starts{name}[port + 1]; ++i)
            s.dirty[routes{name}[i].word] |= routes{name}[i].clusters;
    }}
    one.changed = 0;
}}"""

    @staticmethod
    def masks(writer: GraphWriter, phase: str, round_: int) -> list[tuple[int, str]]:
        found = []
        for word in range(writer.words_of_bits):
            bits = sum(1 << i % WORD for i in writer.which(phase, round_, word))
            if bits:
                found.append((word, f"0x{bits:x}ull"))
        return found

    def visit(self, writer: GraphWriter, phase: str, round_: int, masks: list[tuple[int, str]]) -> Iterator[str]:
        """Write the evaluation of the instances that have something to do."""
        for word in range(-(-self.count[writer.number] // WORD)):
            yield f"    s.shown{writer.number}[{word}] |= s.busy{writer.number}[{word}];"
            yield f"    for (std::uint64_t left = s.busy{writer.number}[{word}]; left != 0; left &= left - 1) {{"
            yield f"        const unsigned n = {word * WORD} + __builtin_ctzll(left);"
            yield f"        {writer.type}& one = s.part{writer.number}[n];"
            for w, bits in masks:
                yield f"        if (one.dirty[{w}] & {bits}) {phase}{round_}_{w}(one);"
            if phase == "settle" and round_ == writer.rounds - 1:
                pend = " | ".join(f"one.pending[{w}]" for w in range(writer.words_of_bits))
                yield f"        if ({pend}) s.moved{writer.number}[{word}] |= left & -left;"
                dirty = " | ".join(f"one.dirty[{w}]" for w in range(writer.words_of_bits))
                yield f"        if (({dirty}) == 0) s.busy{writer.number}[{word}] ^= left & -left;"
            yield f"        if (one.changed) tell{writer.number}(s, one, n);"
            yield "    }"

    def again(self, phase: str, rounds: int) -> Iterator[str]:
        """Write whether anything is left: instances of a graph read each other's outputs, in whatever order."""
        def masks(writer: GraphWriter) -> list[str]:
            return [f"dirty[{word}] & {bits}" for round_ in range(rounds)
                    for word, bits in self.masks(writer, phase, round_)]

        yield f"static bool {phase}_again(const Top& s) {{"
        yield f"    std::uint64_t left = {' | '.join(f'(s.{one})' for one in masks(self)) or '0'};"
        for writer in self._parts.values():
            if one := masks(writer):
                dirty = " | ".join(f"(one.{bits})" for bits in one)
                yield f"    for (const auto& one : s.part{writer.number}) left |= {dirty};"
        yield "    return left != 0;"
        yield "}"

    def cycle(self) -> Iterator[str]:
        rounds = max(writer.rounds for writer in (self, *self._parts.values()))
        for phase in ("settle", "show"):
            if self._circular:
                yield from self.again(phase, rounds)
            yield f"static void {phase}(Top& s) {{"
            if self._circular:
                yield "    do {"
            for round_ in range(rounds):
                for word, bits in self.masks(self, phase, round_):
                    yield f"    if (s.dirty[{word}] & {bits}) {phase}{round_}_{word}(s);"
                for writer in self._parts.values():
                    masks = self.masks(writer, phase, round_)
                    if masks:
                        yield from self.visit(writer, phase, round_, masks)
            if self._circular:
                yield f"    }} while ({phase}_again(s));"
            for writer in self._parts.values():
                yield from self.shown_ports(writer)
            yield "}"
        yield "static void edge(Top& s) {"
        for word in range(self.words_of_bits):
            yield f"    if (s.pending[{word}]) edge{word}(s);"
        for writer in self._parts.values():
            for word in range(-(-self.count[writer.number] // WORD)):
                yield f"    {{ std::uint64_t left = s.moved{writer.number}[{word}];"
                yield f"    s.moved{writer.number}[{word}] = 0;"
                yield f"    s.shown{writer.number}[{word}] |= left;"
                yield "    for (; left != 0; left &= left - 1) {"
                yield f"        const unsigned n = {word * WORD} + __builtin_ctzll(left);"
                yield f"        {writer.type}& one = s.part{writer.number}[n];"
                for w in range(writer.words_of_bits):
                    yield f"        if (one.pending[{w}]) edge{w}(one);"
                dirty = " | ".join(f"one.dirty[{w}]" for w in range(writer.words_of_bits))
                yield f"        if ({dirty}) s.busy{writer.number}[{word}] |= left & -left;"
                yield f"        if (one.changed) tell{writer.number}(s, one, n);"
                yield "    } }"
        yield "}"
        yield "static void wake_all(Top& s) {"
        yield "    all_dirty(s);"
        for writer in self._parts.values():
            count = self.count[writer.number]
            yield f"    for (auto& one : s.part{writer.number}) all_dirty(one);"
            for word in range(-(-count // WORD)):
                yield f"    s.busy{writer.number}[{word}] = 0x{(1 << min(WORD, count - word * WORD)) - 1:x}ull;"
        yield "}"
        yield "static void start(Top& s) {"
        yield "    power_on(s);"
        for writer in self._parts.values():
            yield f"    for (auto& one : s.part{writer.number}) power_on(one);"
        yield "    wake_all(s);"
        yield "}"
        busy = [f"__builtin_popcountll(s.busy{writer.number}[{word}])" for writer in self._parts.values()
                for word in range(-(-self.count[writer.number] // WORD))]
        asleep = " - ".join([str(sum(self.count.values())), *busy])
        yield f"static int asleep([[maybe_unused]] const Top& s) {{ return {asleep}; }}"
