"""A mapped netlist as arrays, which a compiled loop evaluates for up to 64 instances at once: a bit of a word each.

Every gate becomes operations of two inputs; only the gates' own outputs are nets whose changes count.
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.area.functions import evaluate
from t3sim.area.synthesis import CLOCK_GATE, Netlist
from t3sim.area.timing import CLOCK
from t3sim.base.errors import Failure

LANES = 64  #: instances at once
ZERO, ONE = 0, 1  #: nets of constants
AND, XOR = 0, 1
READ, WRITE, READ_AFTER_WRITE = range(3)  #: ports of memories


class Circuit(NamedTuple):
    """Arrays that the loop evaluates; a net is its place in the state's words."""

    runs: np.ndarray  # int64 [run, 3]: AND or XOR; first operation, end
    a: np.ndarray  # int64 [operation]: nets
    b: np.ndarray
    y: np.ndarray
    invert_a: np.ndarray  # int64 [operation]: 0, or all ones
    invert_b: np.ndarray
    invert_y: np.ndarray
    d: np.ndarray  # int64 [flip-flop]: nets
    q: np.ndarray
    groups: np.ndarray  # int64 [clock, 3]: first flip-flop, end, net of its enable
    ports: np.ndarray  # int64 [port of a memory, 7]: kind, memory, address at, its bits, data at, their bits, enable at
    memories: np.ndarray  # int64 [memory, 3]: words, 64-bit words of a word, place in the store
    pins: np.ndarray  # int64: nets of the memories' pins
    enables: np.ndarray  # int64 [port, 2]: enables that differ, at and how many


@dataclass(frozen=True)
class PortAccess:
    """A port of a memory."""

    memory: str
    words: int
    width: int
    kind: int

    @property
    def is_write(self) -> bool:
        return self.kind == WRITE


@dataclass(frozen=True)
class Lowered:
    """A netlist's arrays, and what they stand for."""

    netlist: Netlist
    circuit: Circuit
    nets: dict[int, int]  #: bit of the netlist: its net
    count: int  #: nets with those between a gate's operations
    clocks: tuple[str, ...]  #: of each group of flip-flops: the clock gate's name, empty for the clock itself
    accesses: tuple[PortAccess, ...]
    store: np.ndarray  #: int64: the memories' first contents, of one instance

    def net(self, bit: int | str) -> int:
        """Return the net of a connection."""
        return _constant(bit) if isinstance(bit, str) else self.nets[bit]


def _constant(bit: str) -> int:
    return ONE if bit == "1" else ZERO


@dataclass(frozen=True)
class _Term:
    """A net or its inverse; operators make operations."""

    builder: "_Builder"
    net: int
    inverted: bool = False

    def __invert__(self) -> "_Term":
        return _Term(self.builder, self.net, not self.inverted)

    def __and__(self, other: "_Term") -> "_Term":
        return self.builder.operation(AND, self, other)

    def __or__(self, other: "_Term") -> "_Term":
        return ~(~self & ~other)

    def __xor__(self, other: "_Term") -> "_Term":
        if other.net == ONE and not other.inverted:
            return ~self
        return self.builder.operation(XOR, self, other)


class _Builder:
    def __init__(self, nets: int) -> None:
        self.count = nets
        self.levels = [0] * nets
        self.operations: list[list[int]] = []  #: level, kind, a, b, y, inverted a, b, y

    def operation(self, kind: int, a: _Term, b: _Term) -> _Term:
        level = 1 + max(self.levels[a.net], self.levels[b.net])
        self.operations.append([level, kind, a.net, b.net, self.count, a.inverted, b.inverted, False])
        self.levels.append(level)
        self.count += 1
        return _Term(self, self.count - 1)

    def gate(self, function: str, inputs: dict[str, int], output: int) -> None:
        """Add a gate; what its inputs hang on was added before."""
        first = len(self.operations)
        true = _Term(self, ONE)
        result = evaluate(function, {"0": ~true, "1": true, **{pin: _Term(self, net) for pin, net in inputs.items()}},
                          true)
        if len(self.operations) == first or self.operations[-1][4] != result.net:
            result = result & true
        last = self.operations[-1]
        last[4], last[7] = output, result.inverted
        self.levels[output] = last[0]


def lower(netlist: Netlist, boxes: tuple[str, ...] = ()) -> Lowered:
    """Make the arrays of a netlist; `boxes`: types of cells that are known by what is seen at their ports.

    Raises Failure for what has no model here.
    """
    module, library_cells = netlist.module, netlist.library.cells
    bits = sorted({bit for entry in (*module["ports"].values(), *module["netnames"].values()) for bit in entry["bits"]
                   if isinstance(bit, int)} | {bit for cell in module["cells"].values()
                                               for pins in cell["connections"].values() for bit in pins
                                               if isinstance(bit, int)})
    nets = {bit: index for index, bit in enumerate(bits, 2)}

    def net(bit: int | str) -> int:
        return _constant(bit) if isinstance(bit, str) else nets[bit]

    gates, flip_flops, clock_gates, memories = {}, defaultdict(list), {}, {}
    clock = next(iter(module["ports"].get(CLOCK, {"bits": ()})["bits"]), None)
    for name, cell in module["cells"].items():
        kind, pins = cell["type"], cell["connections"]
        if kind == "$mem_v2":
            memories[name] = cell
        elif kind == CLOCK_GATE:
            clock_gates[pins["gated"][0]] = name, net(pins["enable"][0])
        elif kind in boxes:
            continue
        elif kind not in library_cells:
            raise Failure(f"{netlist.name}: the function of cell {kind} is unknown")
        elif library_cells[kind].clock:
            data = [pin for pin in library_cells[kind].loads if pin != library_cells[kind].clock]
            if len(data) != 1 or len(library_cells[kind].functions) != 1:
                raise Failure(f"{netlist.name}: flip-flop {kind} needs one data pin and one output")
            output, = library_cells[kind].functions
            flip_flops[pins[library_cells[kind].clock][0]].append((net(pins[data[0]][0]), net(pins[output][0])))
        else:
            gates[name] = library_cells[kind], {pin: net(bits[0]) for pin, bits in pins.items()}
    builder = _Builder(len(nets) + 2)
    _add_gates(netlist.name, builder, gates)
    builder.operations.sort(key=lambda row: row[:2])
    table = np.array(builder.operations, np.int64).reshape(-1, 8)
    starts = [0, *(np.flatnonzero(np.any(table[1:, :2] != table[:-1, :2], axis=1)) + 1), len(table)]
    runs = [(table[start, 1], start, end) for start, end in zip(starts, starts[1:]) if end > start]
    groups, names, d, q = [], [], [], []
    for bit, members in flip_flops.items():
        if bit != clock and bit not in clock_gates:
            raise Failure(f"{netlist.name}: a flip-flop's clock is neither {CLOCK} nor a clock gate's")
        name, enable = clock_gates.get(bit, ("", ONE))
        groups.append((len(d), len(d) + len(members), enable))
        names.append(name)
        d += [data for data, _ in members]
        q += [output for _, output in members]
    memory_ports = _Memories(netlist.name, net)
    for name, cell in memories.items():
        memory_ports.add(name, cell)

    def array(rows: list, *shape: int) -> np.ndarray:
        return np.array(rows, np.int64).reshape(-1, *shape)

    circuit = Circuit(array(runs, 3), *(table[:, column].copy() for column in (2, 3, 4)),
                      *(-table[:, column] for column in (5, 6, 7)), array(d), array(q), array(groups, 3),
                      array(memory_ports.ports, 7), array(memory_ports.memories, 3), array(memory_ports.pins),
                      array(memory_ports.enables, 2))
    return Lowered(netlist, circuit, nets, builder.count, tuple(names), tuple(memory_ports.accesses),
                   np.array(memory_ports.store, np.uint64).view(np.int64))


def _add_gates(name: str, builder: _Builder, gates: dict) -> None:
    """Add gates, each after those that drive it."""
    drives = {pins[output]: gate for gate, (cell, pins) in gates.items() for output in cell.functions
              if output in pins}
    waits, takers = {}, defaultdict(list)
    for gate, (cell, pins) in gates.items():
        sources = {drives[pins[pin]] for pin in cell.loads if pins[pin] in drives}
        waits[gate] = len(sources)
        for source in sources:
            takers[source].append(gate)
    ready = deque(gate for gate, count in waits.items() if not count)
    added_count = 0
    while ready:
        gate = ready.popleft()
        added_count += 1
        cell, pins = gates[gate]
        for output, function in cell.functions.items():
            if output in pins:
                try:
                    builder.gate(function, {pin: pins[pin] for pin in cell.loads}, pins[output])
                except (ValueError, KeyError):
                    raise Failure(f"{name}: the function of cell {cell.name} is unknown") from None
        for taker in takers[gate]:
            waits[taker] -= 1
            if not waits[taker]:
                ready.append(taker)
    if added_count < len(gates):
        raise Failure(f"{name}: its gates form a loop")


class _Memories:
    """The ports of memories, and what these hold at first."""

    def __init__(self, block: str, net) -> None:
        self._block, self._net = block, net
        self.ports, self.memories, self.pins, self.enables, self.store, self.accesses = [], [], [], [], [], []

    def _pins(self, bits: list) -> int:
        start = len(self.pins)
        self.pins += map(self._net, bits)
        return start

    def add(self, name: str, cell: dict) -> None:
        parameters, pins = cell["parameters"], cell["connections"]
        size, width, address, reads, writes = (int(parameters[key], 2) for key in (
            "SIZE", "WIDTH", "ABITS", "RD_PORTS", "WR_PORTS"))
        if "0" in parameters["RD_CLK_ENABLE"][-reads:]:
            raise Failure(f"{self._block}: memory {name} is read without a clock, which has no model here")
        if any(bit != "0" for key in ("RD_SRST", "RD_ARST") for bit in pins[key]):
            raise Failure(f"{self._block}: a read port of memory {name} has a reset, which has no model here")
        transparency = int(parameters["RD_TRANSPARENCY_MASK"].replace("x", "0") or "0", 2)
        word_parts = -(-width // 64)
        self.memories.append((size, word_parts, len(self.store)))
        initial = int(parameters["INIT"].replace("x", "0") or "0", 2)
        mask = (1 << width) - 1
        for word in range(size):
            word_bits = initial >> word * width & mask
            self.store += [word_bits >> 64 * part & (1 << 64) - 1 for part in range(word_parts)]
        for kind, prefix, count in ((READ, "RD", reads), (WRITE, "WR", writes)):
            for port in range(count):
                enables = (pins["RD_EN"][port:port + 1] if kind == READ
                           else pins["WR_EN"][port * width:(port + 1) * width])
                sees_writes = kind == READ and transparency >> port * writes & (1 << writes) - 1
                port_kind = READ_AFTER_WRITE if sees_writes else kind
                self.ports.append((port_kind, len(self.memories) - 1,
                                   self._pins(pins[f"{prefix}_ADDR"][port * address:(port + 1) * address]), address,
                                   self._pins(pins[f"{prefix}_DATA"][port * width:(port + 1) * width]), width,
                                   self._pins(enables if kind == WRITE else enables * width)))
                distinct_enables = list(dict.fromkeys(enables))
                self.enables.append((self._pins(distinct_enables), len(distinct_enables)))
                self.accesses.append(PortAccess(name, size, width, port_kind))
