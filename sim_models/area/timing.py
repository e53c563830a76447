"""Static timing of mapped netlists: the longest path between registers, by the library's own delay tables.

Without a layout wires cost nothing, and clock and reset are ideal; a block's other ports are taken for registers of its
neighbours. Rising and falling edges are followed apart, transition times with them.
"""

import math
from collections import deque
from dataclasses import dataclass
from functools import cached_property

from t3sim.area.liberty import Cell
from t3sim.area.synthesis import CLOCK_GATE, Netlist
from t3sim.rtlsim.port_map import RESET

#: Reading a memory takes this many gate delays for each doubling of its words: decoder, word line, bit line, sense
#: amplifier. Amrutur and Horowitz (Speed and power scaling of SRAMs, JSSC 35(2), 2000) find 1.2 per doubling of a
#: large one's size; small ones have relatively more around them.
MEMORY_GATE_DELAYS_PER_DOUBLING = 2

CLOCK = "clk"  #: the port that drives a clock tree
RISE, FALL = 0, 1


@dataclass(frozen=True)
class Path:
    """The longest path, from where to where."""

    start: str
    end: str
    gates: tuple[str, ...]  #: types of the cells on the way
    in_parts: bool = False  #: all of these are in modules that the netlist instantiates

    @property
    def levels(self) -> int:
        return len(self.gates)


class Timing:
    """The longest paths of a netlist, in ns of the library; `parts` are the netlists of the modules that it holds."""

    logic_ns: float  #: from a register's output (or memory's, or input) to the next register's input
    path: Path  #: of logic_ns

    def __init__(self, top: Netlist, parts: dict[str, Netlist] | None = None) -> None:
        self._graph = NetGraph(top, parts or {})
        self.logic_ns, self.path = _Walk(self._graph, registers=False).longest()

    @cached_property
    def period_ns(self) -> float:
        """The longest path with flip-flops' delays and set-up time, and the access time of memories that are read."""
        return _Walk(self._graph, registers=True).longest()[0]


@dataclass
class _Gate:
    type: str
    inputs: dict[str, int]
    outputs: dict[str, int]
    cell: Cell | None  #: None: a memory read without a clock
    delay_ns: float = 0.0  #: of such a read
    in_part: bool = False


def _rank(label: str) -> tuple[bool, int]:
    """Rank a net's names; the least is shown: the source's before the generator's, a short one before a long one."""
    return "$" in label, len(label)


class NetGraph:
    """Nets and gates of a netlist and of those that it instantiates."""

    def __init__(self, top: Netlist, parts: dict[str, Netlist]) -> None:
        self.library = top.library
        self.gates: list[_Gate] = []
        self.registers: list[_Gate] = []  #: flip-flops
        self.memory_reads: list[tuple[int, float]] = []  #: net that a clocked read drives, access time
        self.ends: dict[int, str] = {}  #: nets that a memory or an output takes: by name
        self._parts = parts
        self._names: dict[int, str] = {}
        self._joined_to: dict[int, int] = {}
        self._count = 0
        nets: dict[int, int] = {}  #: by a bit of the top
        self._place(top, nets, "")
        self.inputs = [self.net(nets[bit]) for name, port in top.module["ports"].items()
                       if port["direction"] == "input" and name != RESET for bit in port["bits"] if bit in nets]
        for name, port in top.module["ports"].items():
            if port["direction"] == "output":
                self.ends |= {nets[bit]: f"output {name}" for bit in port["bits"] if bit in nets}
        self.outputs = {self.net(nets[bit]) for port in top.module["ports"].values() if port["direction"] == "output"
                        for bit in port["bits"] if bit in nets}
        self.ends = {self.net(net): name for net, name in self.ends.items()}

    def net(self, number: int) -> int:
        while number in self._joined_to:
            number = self._joined_to[number]
        return number

    def name(self, number: int) -> str:
        return self._names.get(number, "?")

    def _place(self, netlist: Netlist, nets: dict[int, int], prefix: str) -> None:
        def net_of(bit: int | str) -> int:
            """Return the net of a connection; constants are nets that nobody drives."""
            if bit not in nets or isinstance(bit, str):
                self._count += 1
                if isinstance(bit, str):
                    return self._count
                nets[bit] = self._count
            return nets[bit]

        for name, entry in netlist.module["netnames"].items():
            if not entry.get("hide_name"):
                for index, bit in enumerate(entry["bits"]):
                    if isinstance(bit, int):
                        label = prefix + name + (f"[{index}]" if len(entry["bits"]) > 1 else "")
                        number = net_of(bit)
                        if number not in self._names or _rank(label) < _rank(self._names[number]):
                            self._names[number] = label
        for name, cell in netlist.module["cells"].items():
            pins = cell["connections"]
            if cell["type"] == "$mem_v2":
                self._memory(name, cell, net_of, prefix)
            elif cell["type"] == CLOCK_GATE:
                self.ends[net_of(pins["enable"][0])] = f"clock gate {prefix}{name}"
            elif cell["type"] in self._parts:
                part = self._parts[cell["type"]]
                inner: dict[int, int] = {}
                for port, bits in pins.items():
                    for outside, inside in zip(bits, part.module["ports"][port]["bits"]):
                        if isinstance(inside, int):
                            if inside in inner:
                                self._join(inner[inside], net_of(outside))
                            else:
                                inner[inside] = net_of(outside)
                self._place(part, inner, f"{prefix}{name}.")
            elif cell["type"] in self.library.cells:
                library_cell = self.library.cells[cell["type"]]
                gate = _Gate(cell["type"], {pin: net_of(pins[pin][0]) for pin in library_cell.loads if pin in pins},
                             {pin: net_of(pins[pin][0]) for pin in library_cell.arcs if pins.get(pin)}, library_cell,
                             in_part=bool(prefix))
                (self.registers if library_cell.clock else self.gates).append(gate)

    def _join(self, first: int, second: int) -> None:
        first, second = self.net(first), self.net(second)
        if first != second:
            self._joined_to[second] = first

    def _memory(self, name: str, cell: dict, net_of, prefix: str) -> None:
        pins, value = cell["connections"], cell["parameters"]
        words, ports, width, address_bits = (int(value[key], 2) for key in ("SIZE", "RD_PORTS", "WIDTH", "ABITS"))
        access = MEMORY_GATE_DELAYS_PER_DOUBLING * math.log2(max(2, words)) * self.library.gate_delay[0]
        label = f"memory {prefix}{name}"
        for pin in ("WR_EN", "WR_ADDR", "WR_DATA"):
            self.ends |= {net_of(bit): label for bit in pins[pin] if isinstance(bit, int)}
        clocked = value["RD_CLK_ENABLE"][::-1]
        for port in range(ports):
            address = pins["RD_ADDR"][port * address_bits:(port + 1) * address_bits]
            data = pins["RD_DATA"][port * width:(port + 1) * width]
            outputs = {str(i): net_of(bit) for i, bit in enumerate(data) if isinstance(bit, int)}
            if clocked[port] == "1":
                self.ends |= {net_of(bit): label for bit in (*address, pins["RD_EN"][port]) if isinstance(bit, int)}
                self.memory_reads += [(net, access) for net in outputs.values()]
            else:
                inputs = {str(i): net_of(bit) for i, bit in enumerate(address) if isinstance(bit, int)}
                self.gates.append(_Gate("memory read", inputs, outputs, None, access, in_part=bool(prefix)))


class _Walk:
    """One way through a netlist; with `registers` their delays and set-up times and memories' access times count."""

    def __init__(self, graph: NetGraph, registers: bool) -> None:
        self.graph, self.registers = graph, registers
        self._net = graph.net
        self.slew = graph.library.gate_delay[1]
        # Per net: arrival and transition time of its rise and fall, and (gate, net, edge) that it came from.
        self.arrival: dict[int, list[tuple[float, float]]] = {}
        self.origin: dict[tuple[int, int], tuple[_Gate, int, int]] = {}
        self._pending_inputs: dict[int, int] = {}
        self._takers: dict[int, list[_Gate]] = {}
        self.loads = self._loads()
        self._start()

    def _loads(self) -> dict[int, float]:
        """Add up what each net drives, in pF, and note its takers."""
        graph, net = self.graph, self._net
        inverter_load = next(iter(graph.library.inverter.loads.values()))
        loads: dict[int, float] = dict.fromkeys(graph.outputs, 4 * inverter_load)
        for gate in graph.gates:
            self._pending_inputs[id(gate)] = 0
            for pin, number in gate.inputs.items():
                number = net(number)
                loads[number] = loads.get(number, 0.0) + (gate.cell.loads[pin] if gate.cell else inverter_load)
                self._takers.setdefault(number, []).append(gate)
                self._pending_inputs[id(gate)] += 1
        for gate in graph.registers:
            for pin, number in gate.inputs.items():
                loads[net(number)] = loads.get(net(number), 0.0) + gate.cell.loads[pin]
        return loads

    def _start(self) -> None:
        """Let inputs, memories and flip-flops start, with `registers` each after its own delay."""
        graph, net, slew = self.graph, self._net, self.slew
        starts = {*graph.inputs, *(net(number) for number, _ in graph.memory_reads),
                  *(net(number) for gate in graph.registers for number in gate.outputs.values())}
        gate_outputs = {net(number) for gate in graph.gates for number in gate.outputs.values()}
        constants = [number for number in self._takers if number not in starts and number not in gate_outputs]
        self._spread(constants)
        self.arrival |= {number: [(0.0, slew)] * 2 for number in starts}
        if self.registers:
            self.arrival |= {number: [(2 * graph.library.gate_delay[0], slew)] * 2 for number in graph.inputs}
            self.arrival |= {net(number): [(access, slew)] * 2 for number, access in graph.memory_reads}
            for gate in graph.registers:
                for pin, number in gate.outputs.items():
                    arc, load = gate.cell.arcs[pin][0], self.loads.get(net(number), 0.0)
                    self.arrival[net(number)] = [(arc.rise.at(load, slew), arc.rise_slew.at(load, slew)),
                                                 (arc.fall.at(load, slew), arc.fall_slew.at(load, slew))]
        self._spread([number for number in starts if number in self._takers])

    def _spread(self, numbers: list[int]) -> None:
        queue = deque(numbers)
        while queue:
            for gate in self._takers.get(queue.popleft(), ()):
                self._pending_inputs[id(gate)] -= 1
                if self._pending_inputs[id(gate)] == 0:
                    self._propagate(gate)
                    queue.extend(dict.fromkeys(self._net(number) for number in gate.outputs.values()))

    def longest(self) -> tuple[float, Path]:
        """Find the longest path to an end."""
        graph, net = self.graph, self._net
        ends = [*graph.ends.items()]
        for gate in graph.registers:
            data = graph.name(net(next(iter(gate.outputs.values()))))
            ends += [(net(number), data) for pin, number in gate.inputs.items() if pin != gate.cell.clock]
        longest, longest_end = 0.0, None
        setup = graph.library.flip_flop.setup_ns if self.registers else 0.0
        for number, name in ends:
            for edge, (time, _) in enumerate(self.arrival.get(number, ())):
                if time + setup > longest:
                    longest, longest_end = time + setup, (number, edge, name)
        if longest_end is None:
            return 0.0, Path("", "", ())
        gates = []
        number, edge, name = longest_end
        while (number, edge) in self.origin:
            gate, number, edge = self.origin[number, edge]
            gates.append(gate)
        return longest, Path(graph.name(number), name, tuple(gate.type for gate in reversed(gates)),
                             all(gate.in_part for gate in gates))

    def _propagate(self, gate: _Gate) -> None:
        """Compute the latest rise and fall of each of a gate's outputs."""
        for pin, output in gate.outputs.items():
            output = self._net(output)
            best: list[tuple[float, float] | None] = [None, None]
            for edge, time, output_slew, source in self._arrivals(gate, pin, self.loads.get(output, 0.0)):
                latest = best[edge]
                if latest is None or time > latest[0]:
                    best[edge] = (time, output_slew)
                    self.origin[output, edge] = (gate, *source)
            if any(best):
                self.arrival[output] = [edge or (0.0, self.slew) for edge in best]

    def _arrivals(self, gate: _Gate, pin: str, load: float):
        """Give (edge, time, transition time, (net and edge that cause it)) of every way through the gate to `pin`."""
        if gate.cell is None:
            for number in map(self._net, gate.inputs.values()):
                for edge, (time, _) in enumerate(self.arrival.get(number, ())):
                    yield edge, time + gate.delay_ns, self.slew, (number, edge)
            return
        for arc in gate.cell.arcs[pin]:
            if arc.source not in gate.inputs:
                continue
            number = self._net(gate.inputs[arc.source])
            for edge, (time, input_slew) in enumerate(self.arrival.get(number, ())):
                if arc.inverting is not (edge == RISE):  # the output rises
                    yield RISE, time + arc.rise.at(load, input_slew), arc.rise_slew.at(load, input_slew), (number, edge)
                if arc.inverting is not (edge == FALL):
                    yield FALL, time + arc.fall.at(load, input_slew), arc.fall_slew.at(load, input_slew), (number, edge)
