"""A component as graphs of words: what is simulated.

Amaranth's netlist says what each bit of each cell is. Here cells become nodes of up to 64 bits (more where numbers are
added, shifted or multiplied), cut where a register or a signal is assigned in parts. Modules that exist often and are
large stay graphs of their own, with instances; all others are part of the graph that instantiates them.
"""

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial, reduce
from typing import NamedTuple

from amaranth.hdl import Elaboratable, _ast, _nir
from amaranth.hdl._ir import Design
from amaranth.lib import wiring

from t3sim.base.errors import Failure
from t3sim.rtlsim.hierarchy import Elaborated, elaborate, elaborate_flat
from t3sim.rtlsim.port_map import FALLING, Field, InnerMemory
from t3sim.rtlsim.shown import Groups, Slot, output_name
from t3sim.rtlsim.signature import CLOCK, DeclaredPort, declared_ports_of, signal_fields

WORD = 64
_BITS = 16  # of a reference: which bit of a node
_MOST_PARTS = 8  # a cell is cut where it is assigned in parts, but not into more than these and its words
_FEWEST_CASES = 4
_KEPT_CELLS, _KEPT_INSTANCES = 800, 4  # modules with fewer, all instances together, are part of their parent
_INNER = "inner signals"  #: further outputs of instances
_UP_TO_128_BITS = ("*", "s//", "s%", "u//", "u%", "s>>", "s<", "s>", "s<=", "s>=")
ONE = 1
ZERO = 0

Ref = int  #: a bit of a node, or ZERO or ONE
Value = tuple[Ref, ...]  #: lowest bit first


class UnsupportedDesign(Failure):
    """The design has something that is not simulated, as a product of more than 128 bits."""

    @classmethod
    def at(cls, cell: _nir.Cell, module: str, what: str) -> "UnsupportedDesign":
        """Name the file and line of a construct."""
        file, line = cell.src_loc or ("a file that Amaranth does not name", 0)
        return cls(f"{file}:{line}: {module}: {what}")


class _FalseCycle(Exception):
    """Cells, as wholes, depend on each other in a cycle; their bits do not. The first is where it was met."""

    def __init__(self, cells: list[tuple[str, int]]) -> None:
        super().__init__()
        self.cells = cells


def bit(node: int, number: int) -> Ref:
    return node << _BITS | number


def node_of(ref: Ref) -> int:
    """Return the node, 0 for constants."""
    return ref >> _BITS


def bit_of(ref: Ref) -> int:
    return ref & (1 << _BITS) - 1


class Node(NamedTuple):
    """One word. `op` is an operator of Amaranth's netlist or one of these.

    `in`: a port's word (extra: port, word). `reg`: a register (extra: its number). `read`: a memory at args[0] (extra:
    memory, word). `out`: a port's word of an instance (extra: instance, port, word). `match`: whether args[0] is one
    of the patterns in extra (mask, value). `case`: args[0] and args[1] is the number in extra. `select`: args[0],
    replaced, in order, from bit extra[i] on by args[2 + 2i] if args[1 + 2i]. `part`: the bits of args[0] from
    args[1] * stride on (extra: stride, first bit). `switch`: args[0], or args[3 + i] if args[1] and args[2] is
    extra[i].
    """

    op: str
    width: int
    args: tuple[Value, ...] = ()
    extra: object = None


STATE = {"in", "reg", "out"}


@dataclass
class WordMemory:
    """A memory: words of `width` bits."""

    width: int
    depth: int
    init: tuple[int, ...]
    writes: list[tuple[Value, Value, Value]] = field(default_factory=list)  #: enable by bit, address, data
    clock: int = 0  #: of its writes


@dataclass
class Register:
    node: int
    init: int
    next: Value = ()
    clock: int = 0
    clear: Ref = ZERO  #: an asynchronous reset


@dataclass
class Graph:
    """Words of one module, and what they depend on in a cycle."""

    name: str
    nodes: list[Node] = field(default_factory=lambda: [Node("constant", 2)])
    registers: list[Register] = field(default_factory=list)
    memories: list[WordMemory] = field(default_factory=list)
    inputs: dict[tuple[str, int], int] = field(default_factory=dict)  #: port, word: node
    outputs: dict[tuple[str, int], Value] = field(default_factory=dict)  #: port, word


@dataclass
class Instance:
    graph: Graph
    inputs: dict[tuple[str, int], Value] = field(default_factory=dict)  #: of the graph's: what drives them


@dataclass
class Graphs:
    """The graph of the top, and the instances in it of other graphs."""

    top: Graph
    instances: list[Instance]
    ports: dict[tuple[str, str], int]  #: of the top: direction and name, bits
    inner: dict[str, tuple[str, int, dict[str, Field]]]  #: by path: the output that shows it, its bits and fields
    memories: dict[str, InnerMemory]  #: by path
    pins: list[DeclaredPort]
    clocks: list[str]  #: by the numbers of registers and memories; empty if it is `clk` alone

    @property
    def graphs(self) -> list[Graph]:
        return list({id(instance.graph): instance.graph for instance in self.instances}.values())


def graphs_of(component: wiring.Component, name: str, groups: Groups | None = None) -> Graphs:
    """Elaborate a fresh component to graphs, and show some of its inner signals. Raises UnsupportedDesign."""
    return _graphs(elaborate(component, name), groups or {}, "", declared_ports_of(component))


def flat_graphs_of(top: Elaboratable | Design, name: str, inner: str) -> Graphs:
    """Elaborate anything to one graph, and show inner signals and memories whose path matches `inner`.

    Of what is no component, outputs are the signals that its own module uses. Raises UnsupportedDesign.
    """
    pins = declared_ports_of(top) if isinstance(top, wiring.Component) else []
    return _graphs(elaborate_flat(top, name), {}, inner, pins)


def _graphs(elaborated: Elaborated, groups: Groups, inner: str, pins: list[DeclaredPort]) -> Graphs:
    fine: set[tuple[str, int]] = set()
    while True:
        try:
            graphs = _Converter(elaborated, fine, groups, inner).graphs
        except _FalseCycle as cycle:
            coarse = [cell for cell in cycle.cells if cell not in fine]
            if not coarse:
                module, index = cycle.cells[0]
                raise UnsupportedDesign.at(elaborated.netlists[module].cells[index], module,
                                           "bits of this value depend on each other") from None
            # One is often enough, and bits cost more time than words.
            fine.update(coarse[:1] if coarse[0] == cycle.cells[0] else coarse)
        else:
            graphs.pins = pins + [DeclaredPort("input", path, path, signal)
                                  for path, signal in elaborated.signals.items() if ("input", path) in graphs.ports]
            return graphs


@dataclass(eq=False)
class _Scope:
    """A module where it is: its netlist, and the cell that instantiates it in the module around it."""

    module: str
    netlist: _nir.Netlist
    graph: Graph
    parent: "_Scope | None" = None
    cell: _nir.Instance | None = None
    children: dict[int, "_Scope | int"] = field(default_factory=dict)  #: by cell: a part of this graph, or an instance
    values: dict[tuple[int, int], Value] = field(default_factory=dict)
    cuts: dict[int, list[int]] = field(default_factory=dict)
    memories: dict[int, int] = field(default_factory=dict)  #: by cell: its number in the graph
    input_bits: dict[int, tuple[str, int]] = field(default_factory=dict)


class _Converter:
    """Follows the netlists from the top's outputs: what nobody uses is never met."""

    def __init__(self, elaborated: Elaborated, fine: set[tuple[str, int]], groups: Groups, inner: str) -> None:
        self._elaborated = elaborated
        self._fine = fine
        self._shown_bits: dict[str, list[Ref]] = {}  #: by module: inner signals that its instances show
        self._shown_at: dict[tuple[str, str], range] = {}  #: by module and path: which of its bits
        self._instances: list[Instance] = []
        self._scopes: dict[str, _Scope] = {}  #: of modules that are graphs of their own
        self._where: list[tuple[_Scope, int]] = []  #: of instances: the scope and the cell
        self._pending: list = []  #: what is still to be followed
        self._busy: dict[tuple[int, int, int], tuple[str, int]] = {}  #: parts that depend on the next: their cells
        self._interned: dict[tuple[int, Node], int] = {}
        cells = {name: len(netlist.cells) for name, netlist in elaborated.netlists.items()}
        self._cells: dict[str, int] = {}
        for name in elaborated.netlists:  # children come before their parents
            self._cells[name] = cells[name] + sum(self._cells[child] for child in elaborated.instances[name].values())
        top = self._scope(elaborated.top, Graph(elaborated.top), None, None, keep=True)
        self._inner_signals: dict[str, tuple[str, int, dict[str, Field]]] = {}
        self._inner_memories: dict[str, InnerMemory] = {}
        self._first_of: dict[_nir.Value, str] = {}
        self._clocks: list[str] = []
        for cell in top.netlist.cells:
            if isinstance(cell, (_nir.SyncPrint, _nir.AsyncPrint, _nir.SyncProperty, _nir.AsyncProperty)):
                raise UnsupportedDesign.at(cell, top.module, "Print, Assert, Assume and Cover are not simulated")
        self._clock_nets = {cell.clk for cell in top.netlist.cells if hasattr(cell, "clk")}
        for port, value in top.netlist.top.ports_o.items():
            if port in elaborated.signals:
                if elaborated.open and "." not in port or fnmatchcase(port, inner):
                    self._show_now(top, port, value, elaborated.signals[port])
                continue
            for word in range(-(-len(value) // WORD)):
                top.graph.outputs[port, word] = self._value(top, value[word * WORD:(word + 1) * WORD])
        for group, slots in groups.items():
            self._show(top, output_name(group), slots)
        if inner:
            self._show_matching(top, inner)
        for module, bits in self._shown_bits.items():
            bits += [ZERO] * (-len(bits) % WORD)
            self._scopes[module].graph.outputs |= {
                (_INNER, word): tuple(bits[word * WORD:(word + 1) * WORD]) for word in range(len(bits) // WORD)}
        while self._pending:
            self._pending.pop()()
        for scope in self._scopes.values():
            if len(scope.graph.outputs) > WORD:
                raise UnsupportedDesign(f"{scope.module}: {len(scope.graph.outputs)} words of outputs and of inner "
                                        f"signals, of {WORD} at most")
        ports = {("input", port): width for port, (_, width) in top.netlist.top.ports_i.items()}
        ports |= {("output", port): len(value) for port, value in top.netlist.top.ports_o.items()
                  if port not in elaborated.signals}
        clocks = [] if self._clocks == [CLOCK] else self._clocks
        for clock in clocks:
            if (clock.removesuffix(FALLING), 0) in top.graph.inputs:
                raise UnsupportedDesign(f"{top.module}: the clock {clock} is read as data")
        self.graphs = Graphs(top.graph, self._instances, ports, self._inner_signals, self._inner_memories, [], clocks)

    def _scope(self, module: str, graph: Graph, parent: _Scope | None, cell: _nir.Instance | None, *,
               keep: bool) -> _Scope:
        netlist = self._elaborated.netlists[module]
        scope = _Scope(module, netlist, graph, parent, cell)
        for port, (start, width) in netlist.top.ports_i.items():
            for i in range(width):
                scope.input_bits[start + i] = port, i
        often = Counter(inner.type for inner in netlist.cells if isinstance(inner, _nir.Instance))
        for index, inner in enumerate(netlist.cells):
            if isinstance(inner, _nir.Instance):
                if inner.type not in self._cells:
                    raise UnsupportedDesign.at(inner, module, f"an instance of {inner.type}, which is not Amaranth")
                words = sum(-(-width // WORD) for _, width in inner.ports_o.values())
                large = (often[inner.type] >= _KEPT_INSTANCES and words <= WORD
                         and self._cells[inner.type] * often[inner.type] >= _KEPT_CELLS)
                if keep and large:
                    if inner.type not in self._scopes:
                        self._scopes[inner.type] = self._scope(inner.type, Graph(inner.type), None, None, keep=False)
                    scope.children[index] = len(self._instances)
                    self._instances.append(Instance(self._scopes[inner.type].graph))
                    self._where.append((scope, index))
                else:
                    scope.children[index] = self._scope(inner.type, graph, scope, inner, keep=keep)
        return scope

    def _show_now(self, top: _Scope, path: str, nets: _nir.Value, signal: _ast.Signal) -> None:
        """Add an output for an inner signal, one for all that are the same bits; clocks are no data."""
        if len(nets) and nets[0] not in self._clock_nets:
            first = self._first_of.setdefault(nets, path)
            if first == path:
                for word in range(-(-len(nets) // WORD)):
                    top.graph.outputs[path, word] = self._value(top, nets[word * WORD:(word + 1) * WORD])
            self._inner_signals[path] = first, len(nets), signal_fields(signal)

    def _show_matching(self, top: _Scope, pattern: str) -> None:
        """Add outputs for inner signals and keep memories; all is one netlist."""
        netlist = top.netlist
        for module in netlist.modules:
            for signal, name in module.signal_names.items():
                path = ".".join((*module.name[1:], name))
                if (fnmatchcase(path, pattern) and path not in self._inner_signals and path not in netlist.top.ports_i
                        and path not in netlist.top.ports_o):
                    self._show_now(top, path, netlist.signals[signal], signal)
        for index, cell in enumerate(netlist.cells):
            if isinstance(cell, _nir.Memory):
                path = ".".join((*netlist.modules[cell.module_idx].name[1:], cell.name))
                if fnmatchcase(path, pattern):
                    self._inner_memories[path] = InnerMemory(self._memory(top, index), cell.width, cell.depth)

    def _show(self, top: _Scope, port: str, slots: list[Slot]) -> None:
        """Add an output of the top: registers that copy inner signals."""
        bits = [ZERO] * max(slot.lsb + slot.width for slot in slots)
        for slot in slots:
            terms = [self._term(top, term) for term in slot.terms]
            value = terms[0] if len(terms) == 1 else (reduce(
                partial(self._and, top.graph), (term[0] for term in terms), ONE),)
            bits[slot.lsb:slot.lsb + slot.width] = self._resized(value, slot.width)
        for word, start in enumerate(range(0, len(bits), WORD)):
            part = tuple(bits[start:start + WORD])
            register, top.graph.outputs[port, word] = self._new_register(top.graph, len(part), 0)
            register.next = part

    def _term(self, top: _Scope, term: str) -> Value:
        value = self._inner(top, term.lstrip("~|"))
        if term.startswith("|"):
            return (self._or(top.graph, list(value)),)
        return (self._not(top.graph, value[0]),) if term.startswith("~") else value

    def _inner(self, scope: _Scope, path: str) -> Value:
        """Return a signal by its path from a scope's module, in the scope's graph."""
        module, (place, *rest) = 0, path.split(".")
        while rest:
            index = next((index for index, cell in enumerate(scope.netlist.cells) if isinstance(
                cell, _nir.Instance) and cell.module_idx == module and cell.name == place), None)
            if index is None:
                module = next((inner for inner in scope.netlist.modules[module].submodules
                               if scope.netlist.modules[inner].name[-1] == place), None)
                if module is None:
                    raise UnsupportedDesign(f"{scope.module}: there is no {place}, of which {path} is asked for")
            else:
                cell, child = scope.netlist.cells[index], scope.children[index]
                if len(rest) == 1 and rest[0] in cell.ports_i:
                    return self._value(scope, cell.ports_i[rest[0]])
                if len(rest) == 1 and rest[0] in cell.ports_o:
                    start, width = cell.ports_o[rest[0]]
                    return tuple(self._bit(scope, _nir.Net.from_cell(index, start + i)) for i in range(width))
                if not isinstance(child, _Scope):
                    return self._inner_of_instance(scope.graph, cell.type, child, ".".join(rest))
                scope, module = child, 0
            place, *rest = rest
        if module == 0 and place in scope.netlist.top.ports_i:
            start, width = scope.netlist.top.ports_i[place]
            return tuple(self._input(scope, start + i) for i in range(width))
        names = scope.netlist.modules[module].signal_names
        signal = next((signal for signal, name in names.items() if name == place), None)
        if signal is None:
            raise UnsupportedDesign(f"{scope.module}: there is no signal {place}, of {path}")
        return self._value(scope, scope.netlist.signals[signal])

    def _inner_of_instance(self, graph: Graph, module: str, instance: int, path: str) -> Value:
        """Return a signal inside an instance: bits of further outputs, the same for all instances of the module."""
        if (module, path) not in self._shown_at:
            value = self._inner(self._scopes[module], path)
            bits = self._shown_bits.setdefault(module, [])
            self._shown_at[module, path] = range(len(bits), len(bits) + len(value))
            bits += value
        return tuple(self._node(graph, Node("out", WORD, (), (instance, _INNER, i // WORD)))[i % WORD]
                     for i in self._shown_at[module, path])

    def _node(self, graph: Graph, node: Node) -> Value:
        """Return the bits of a node, which is new unless there is an equal one."""
        key = id(graph), node
        number = self._interned.get(key)
        if number is None:
            number = self._interned[key] = len(graph.nodes)
            graph.nodes.append(node)
        return tuple(bit(number, i) for i in range(node.width))

    def _value(self, scope: _Scope, value: _nir.Value) -> Value:
        return tuple(self._bit(scope, net) for net in value)

    def _bit(self, scope: _Scope, net: _nir.Net) -> Ref:
        if net in (0, 1):
            return int(net)
        index, number = net >> 16, net & 0xffff
        if index == 0:
            return self._input(scope, number)
        cuts = scope.cuts.get(index)
        if cuts is None:
            cuts = scope.cuts[index] = self._cuts(scope, index)
        part = next(i for i in reversed(range(len(cuts))) if cuts[i] <= number)
        return self._part(scope, index, cuts, part)[number - cuts[part]]

    def _input(self, scope: _Scope, number: int) -> Ref:
        port, i = scope.input_bits[number]
        if scope.parent is not None:
            return self._bit(scope.parent, scope.cell.ports_i[port][i])
        if port == "clk":
            raise UnsupportedDesign(f"{scope.module}: the clock is read as data")
        graph, word = scope.graph, i // WORD
        width = min(WORD, scope.netlist.top.ports_i[port][1] - word * WORD)
        is_input = (port, word) in graph.inputs
        node = node_of(self._node(graph, Node("in", width, (), (port, word)))[0])
        if not is_input:
            graph.inputs[port, word] = node
            for instance, (where, index) in zip(self._instances, self._where):
                if instance.graph is graph:
                    driver = where.netlist.cells[index].ports_i[port][word * WORD:word * WORD + width]
                    self._pending.append(lambda instance=instance, where=where, driver=driver:
                                         instance.inputs.__setitem__((port, word), self._value(where, driver)))
        return bit(node, i % WORD)

    def _cuts(self, scope: _Scope, index: int) -> list[int]:
        """Return where the parts of a cell begin."""
        cell = scope.netlist.cells[index]
        match cell:
            case _nir.AssignmentList():
                width = len(cell.default)
                cuts = {0, *(a.start for a in cell.assignments), *(a.start + len(a.value) for a in cell.assignments)}
            case _nir.FlipFlop():
                width, cuts = len(cell.data), {0}
                for i in range(1, width):
                    previous, net = cell.data[i - 1], cell.data[i]
                    if net.is_const != previous.is_const or not net.is_const and net.cell != previous.cell:
                        cuts.add(i)
                for i, net in enumerate(cell.data):
                    if not net.is_const and isinstance(scope.netlist.cells[net.cell], _nir.AssignmentList):
                        inner = scope.cuts[net.cell] = scope.cuts.get(net.cell) or self._cuts(scope, net.cell)
                        if net.bit in inner:
                            cuts.add(i)
            case _nir.Operator(operator="&" | "|" | "^" | "~" | "m"):
                width, cuts = cell.width, {0}
            case _nir.Operator():
                most = 2 * WORD - (cell.operator in ("s//", "s%"))
                if cell.operator in _UP_TO_128_BITS and max(map(len, cell.inputs)) > most:
                    raise UnsupportedDesign.at(cell, scope.module, f"{cell.operator} of "
                                               f"{max(map(len, cell.inputs))} bits is not simulated")
                return [0]
            case _nir.PriorityMatch():
                return list(range(len(cell.inputs)))
            case _nir.Matches():
                return [0]
            case _nir.AsyncReadPort() | _nir.SyncReadPort():
                return list(range(0, cell.width, WORD))
            case _nir.Part():
                width, cuts = cell.width, {0}
            case _nir.Instance():
                cuts = {start + i for start, width in cell.ports_o.values() for i in range(0, width, WORD)}
                return sorted(cuts)
            case _:
                raise UnsupportedDesign.at(cell, scope.module, f"{type(cell).__name__} is not simulated")
        if (scope.module, index) in self._fine:
            return list(range(width))
        cuts.discard(width)
        if len(cuts) > _MOST_PARTS:
            return list(range(0, width, WORD))
        starts = sorted(cuts)
        return [at for start, end in zip(starts, [*starts[1:], width]) for at in range(start, end, WORD)]

    def _part(self, scope: _Scope, index: int, cuts: list[int], part: int) -> Value:
        value = scope.values.get((index, part))
        if value is not None:
            return value
        key = id(scope), index, part
        if key in self._busy:
            raise _FalseCycle(list(self._busy.values())[list(self._busy).index(key):])
        self._busy[key] = scope.module, index
        cell = scope.netlist.cells[index]
        first = cuts[part]
        end = cuts[part + 1] if part + 1 < len(cuts) else None
        value = self._convert(scope, index, cell, first, end)
        scope.values[index, part] = value
        del self._busy[key]
        return value

    def _convert(self, scope: _Scope, index: int, cell: _nir.Cell, first: int, end: int | None) -> Value:
        graph = scope.graph
        match cell:
            case _nir.FlipFlop():
                end = end or len(cell.data)
                return self._register(scope, index, first, cell.data[first:end], cell.init >> first, cell)
            case _nir.AssignmentList():
                return self._assignments(scope, cell, first, end or len(cell.default))
            case _nir.Operator():
                return self._operator(scope, cell, first, end or cell.width)
            case _nir.Matches():
                return (self._matches(scope, cell),)
            case _nir.PriorityMatch():
                return (self._priority(scope, cell, first),)
            case _nir.Part():
                value, offset = (self._value(scope, part) or (ZERO,) for part in (cell.value, cell.offset))
                if cell.value_signed:  # as in the Verilog: beyond the part's width there are zeros, not sign bits
                    value += value[-1:] * (cell.width - len(value))
                return self._node(graph, Node("part", (end or cell.width) - first, (value, offset),
                                              (cell.stride, first)))
            case _nir.AsyncReadPort():
                return self._read(scope, cell.memory, self._value(scope, cell.addr), first // WORD)
            case _nir.SyncReadPort():
                return self._register(scope, index, first, cell, 0, cell)
            case _nir.Instance():
                port, start = next((port, start) for port, (start, width) in cell.ports_o.items()
                                   if start <= first < start + width)
                child = scope.children[index]
                width = min(WORD, cell.ports_o[port][1] - (first - start))
                if isinstance(child, _Scope):
                    value = child.netlist.top.ports_o[port]
                    return self._value(child, value[first - start:first - start + width])
                word = (first - start) // WORD
                inner = self._scopes[cell.type]
                if (port, word) not in inner.graph.outputs:
                    inner.graph.outputs[port, word] = ()
                    self._pending.append(lambda: inner.graph.outputs.__setitem__((port, word), self._value(
                        inner, inner.netlist.top.ports_o[port][word * WORD:(word + 1) * WORD])))
                return self._node(graph, Node("out", width, (), (child, port, word)))
        raise AssertionError(cell)

    def _clock(self, scope: _Scope, cell) -> int:
        """Return the number of a cell's clock."""
        port, _ = scope.input_bits.get(cell.clk & 0xffff if cell.clk >> 16 == 0 else -1, ("", 0))
        if not port:
            raise UnsupportedDesign.at(cell, scope.module, "a clock that the design makes itself is not simulated")
        name = port + FALLING * (cell.clk_edge == "neg")
        if len(self._elaborated.netlists) > 1 and (name != CLOCK or getattr(cell, "arst", 0) != 0):
            raise UnsupportedDesign.at(cell, scope.module, "a clock that is not clk, or an asynchronous reset")
        if name not in self._clocks:
            self._clocks.append(name)
            if {port, port + FALLING} <= set(self._clocks):
                raise UnsupportedDesign.at(cell, scope.module, f"both edges of the clock {port}")
        return self._clocks.index(name)

    def _register(self, scope: _Scope, index: int, first: int, data, init: int, cell) -> Value:
        clock, graph = self._clock(scope, cell), scope.graph
        sync_read = isinstance(cell, _nir.SyncReadPort)
        width = min(WORD, cell.width - first) if sync_read else len(data)
        register, value = self._new_register(graph, width, init & (1 << width) - 1)
        register.clock, state = clock, value
        if not sync_read and cell.arst != ZERO:
            # While the reset lasts, the register shows and keeps its initial value.
            register.clear = self._bit(scope, cell.arst)
            value = self._cleared(graph, register, state)

        def follow() -> None:
            new = self._sync_read(scope, cell, first, state) if sync_read else self._value(scope, data)
            register.next = new if register.clear == ZERO else self._cleared(graph, register, new)

        self._pending.append(follow)
        return value

    def _cleared(self, graph: Graph, register: Register, value: Value) -> Value:
        init = tuple(register.init >> i & 1 for i in range(len(value)))
        return self._node(graph, Node("select", len(value), (value, (register.clear,), init), (0,)))

    def _new_register(self, graph: Graph, width: int, init: int) -> tuple[Register, Value]:
        register = Register(len(graph.nodes), init)
        value = self._node(graph, Node("reg", width, (), len(graph.registers)))
        graph.registers.append(register)
        return register, value

    def _sync_read(self, scope: _Scope, cell: _nir.SyncReadPort, first: int, current: Value) -> Value:
        graph = scope.graph
        address = self._value(scope, cell.addr)
        value = self._read(scope, cell.memory, address, first // WORD)
        for index in cell.transparent_for:
            write = scope.netlist.cells[index]
            other = self._resized(self._value(scope, write.addr), len(address))
            same = self._node(graph, Node("==", 1, (address or (ZERO,), other or (ZERO,))))
            enable = self._value(scope, write.en[first:first + len(value)])
            data = self._value(scope, write.data[first:first + len(value)])
            merged_data = self._mux_bits(graph, enable, data, value)
            value = self._node(graph, Node("select", len(value), (value, same, merged_data), (0,)))
        enable = (self._bit(scope, cell.en),)
        if enable == (ONE,):
            return value
        return self._node(graph, Node("select", len(value), (current, enable, value), (0,)))

    @staticmethod
    def _resized(value: Value, width: int) -> Value:
        return (*value, *(ZERO,) * width)[:width]

    def _mux_bits(self, graph: Graph, enable: Value, data: Value, other: Value) -> Value:
        """Choose bit by bit; neighbours with one enable together."""
        parts, starts, i = [], [], 0
        while i < len(enable):
            j = i
            while j < len(enable) and enable[j] == enable[i]:
                j += 1
            parts += [(enable[i],), data[i:j]]
            starts.append(i)
            i = j
        if starts == [0] and parts[0] == (ONE,):
            return data
        return self._node(graph, Node("select", len(other), (other, *parts), tuple(starts)))

    def _memory(self, scope: _Scope, index: int) -> int:
        if index not in scope.memories:
            cell, graph = scope.netlist.cells[index], scope.graph
            scope.memories[index] = len(graph.memories)
            memory = WordMemory(cell.width, cell.depth, cell.init)
            graph.memories.append(memory)
            writes = [cell for cell in scope.netlist.cells
                      if isinstance(cell, _nir.SyncWritePort) and cell.memory == index]
            memory.writes = [((), (), ())] * len(writes)

            def follow() -> None:
                for port, write in enumerate(writes):
                    clock = self._clock(scope, write)
                    if port and clock != memory.clock:
                        raise UnsupportedDesign.at(write, scope.module, "a memory that two clocks write")
                    memory.clock = clock
                    enable, address, data = (self._value(scope, part) for part in (write.en, write.addr, write.data))
                    memory.writes[port] = enable, address, data

            self._pending.append(follow)
        return scope.memories[index]

    def _read(self, scope: _Scope, memory: int, address: Value, word: int) -> Value:
        number = self._memory(scope, memory)
        width = min(WORD, scope.graph.memories[number].width - word * WORD)
        return self._node(scope.graph, Node("read", width, (address,), (number, word)))

    def _operator(self, scope: _Scope, cell: _nir.Operator, first: int, end: int) -> Value:
        graph, op = scope.graph, cell.operator
        if op in ("&", "|", "^", "~"):
            args = tuple(self._value(scope, value[first:end]) for value in cell.inputs)
            if len(args) == 2 and end - first == 1 and op in "&|":
                left, right = args
                neutral = ONE if op == "&" else ZERO
                for a, b in ((left, right), (right, left)):
                    if a == (neutral,) or a == b:
                        return b
                    if a == (ONE - neutral,):
                        return a
            return self._node(graph, Node(op, end - first, args))
        if op == "m":
            condition = self._value(scope, cell.inputs[0])
            if condition[0] in (ZERO, ONE):
                return self._value(scope, cell.inputs[2 - condition[0]][first:end])
            yes, no = (self._value(scope, value[first:end]) for value in cell.inputs[1:])
            return yes if yes == no else self._node(graph, Node("select", end - first, (no, condition, yes), (0,)))
        args = tuple(self._value(scope, value) for value in cell.inputs)
        if op == "r&" and not args[0]:
            return (ONE,)
        if op in ("b", "r|"):
            args = (tuple(ref for ref in args[0] if ref != ZERO),)
            if ONE in args[0]:
                return (ONE,)
            if len(args[0]) < 2:
                return args[0] or (ZERO,)
            op = "r|"
        return self._node(graph, Node(op, cell.width, tuple(value or (ZERO,) for value in args)))

    def _matches(self, scope: _Scope, cell: _nir.Matches) -> Ref:
        value = self._value(scope, cell.value)
        patterns = tuple((int("0" + pattern.replace("0", "1").replace("-", "0"), 2),
                          int("0" + pattern.replace("-", "0"), 2)) for pattern in cell.patterns)
        if any(mask == 0 for mask, _ in patterns):
            return ONE
        if not patterns:
            return ZERO
        if len(value) == 1:
            if len(set(patterns)) == 2:
                return ONE
            if value[0] in (ZERO, ONE):
                return int(value[0] == patterns[0][1])
            return value[0] if patterns[0][1] else self._not(scope.graph, value[0])
        return self._node(scope.graph, Node("match", 1, (value,), patterns))[0]

    def _not(self, graph: Graph, ref: Ref) -> Ref:
        if ref in (ZERO, ONE):
            return ONE - ref
        node = graph.nodes[node_of(ref)]
        if node.op == "~" and node.width == 1:
            return node.args[0][0]
        return self._node(graph, Node("~", 1, ((ref,),)))[0]

    def _and(self, graph: Graph, left: Ref, right: Ref) -> Ref:
        if ZERO in (left, right):
            return ZERO
        if left == ONE or left == right:
            return right
        if right == ONE:
            return left
        return self._node(graph, Node("&", 1, ((left,), (right,))))[0]

    def _or(self, graph: Graph, refs: list[Ref]) -> Ref:
        refs = sorted({ref for ref in refs if ref != ZERO})
        if ONE in refs:
            return ONE
        if len(refs) < 2:
            return refs[0] if refs else ZERO
        return self._node(graph, Node("r|", 1, (tuple(refs),)))[0]

    def _priority(self, scope: _Scope, cell: _nir.PriorityMatch, number: int) -> Ref:
        graph = scope.graph
        enable = self._bit(scope, cell.en)
        if enable == ZERO:
            return ZERO
        inputs = [self._bit(scope, net) for net in cell.inputs[:number + 1]]
        cases = [self._number_of(graph, ref) for ref in inputs]
        last = cases[number]
        if last is not None and all(
                case is not None and case[0] == last[0] and case[1] != last[1] for case in cases[:number]):
            if len(last[0]) == 1:
                return self._and(graph, enable, inputs[number])
            return self._node(graph, Node("case", 1, ((enable,), last[0]), last[1]))[0]
        earlier_case = self._or(graph, inputs[:number])
        return self._and(graph, self._and(graph, enable, inputs[number]), self._not(graph, earlier_case))

    @staticmethod
    def _number_of(graph: Graph, ref: Ref) -> tuple[Value, int] | None:
        """Return the value and the number to which it is compared, if the bit is such a comparison."""
        if node_of(ref) == 0:
            return None
        node = graph.nodes[node_of(ref)]
        if node.op == "match" and len(node.extra) == 1:
            (mask, number), = node.extra
            if mask == (1 << len(node.args[0])) - 1:
                return node.args[0], number
        return None

    def _select(self, graph: Graph, width: int, value: Value, args: list[Value], starts: list[int]) -> Value:
        """Choose; by a number where it is one number that all conditions compare."""
        cases: dict[int, Value] = {}
        compared = None
        for (condition,), new in zip(args[::2], args[1::2]):
            node = graph.nodes[node_of(condition)]
            if node.op != "case" or compared not in (None, node.args) or len(new) != width:
                break
            compared = node.args
            cases[node.extra] = new
        else:
            if len(cases) >= _FEWEST_CASES:
                return self._node(graph, Node("switch", width, (value, *compared, *cases.values()), tuple(cases)))
        return self._node(graph, Node("select", width, (value, *args), tuple(starts)))

    def _assignments(self, scope: _Scope, cell: _nir.AssignmentList, first: int, end: int) -> Value:
        value = self._value(scope, cell.default[first:end])
        args: list[Value] = []
        starts: list[int] = []

        def flush() -> Value:
            if not starts:
                return value
            return self._select(scope.graph, end - first, value, args, starts)

        for assignment in cell.assignments:
            start, stop = max(assignment.start, first), min(assignment.start + len(assignment.value), end)
            if start >= stop:
                continue
            condition = self._bit(scope, assignment.cond)
            if condition == ZERO:
                continue
            new = self._value(scope, assignment.value[start - assignment.start:stop - assignment.start])
            if condition == ONE:
                whole = flush()
                value = whole[:start - first] + new + whole[stop - first:]
                args, starts = [], []
                continue
            args += [(condition,), new]
            starts.append(start - first)
        return flush()


def uses(node: Node) -> list[int]:
    """Return the nodes that a node reads."""
    return list(dict.fromkeys(node_of(ref) for value in node.args for ref in value if ref > ONE))
