"""From counts of a run to energy: what each net's change, each clock edge and each access of a memory takes.

A net that changes charges or discharges the pins that it drives and its wire: half of C V^2; the cell that drives it
takes the library's internal energy beside. Each cycle in which a clock is let through, the clock pins of its flip-flops
go up and down, and so does their share of the clock tree.

Figures are for a `ProcessNode`. Capacitance shrinks with the side of a NAND2, for its value per length of gate and wire
stays (see `node`), and energy with the square of the voltage. From OSU018 (180 nm, 1.8 V) to 7 nm that is 1/155. Beside
it ASAP7's own Liberty files (github.com/The-OpenROAD-Project/asap7sc7p5t_28, RVT, TT, 0.7 V) give 1/165 for an input of
NAND2xp5, 1/85 for one of NAND2x1, and 1/151 for a flip-flop's clock.

Wires: docs/results/area-routed.json has their capacitance in thirteen layouts. It is 0.13 of the pins' in the median,
and at most 0.22, in one of 1,723 cells. It rises with the number of cells, in a growth that would make that 0.40 at
20,000, the largest part of the top. Wires between blocks are not in it.

Clock tree: in the same layouts there are 0.34 buffers and gates for each flip-flop, in the median.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from t3sim.area.energy.circuit import ONE, ZERO, Lowered, PortAccess
from t3sim.area.energy.replay import NetState
from t3sim.area.liberty import Cell, Library
from t3sim.area.node import ProcessNode
from t3sim.area.sram import ASAP7_READ_PJ, Sram
from t3sim.area.synthesis import CLOCK_GATE
from t3sim.base.errors import BadInput


@dataclass(frozen=True)
class Range:
    """A figure with its bounds."""

    low: float
    typical: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.typical + other.typical, self.high + other.high)

    def __mul__(self, other: "Range | float") -> "Range":
        factor = other if isinstance(other, Range) else Range(other, other, other)
        return Range(self.low * factor.low, self.typical * factor.typical, self.high * factor.high)

    def __truediv__(self, divisor: float) -> "Range":
        return self * (1 / divisor)

    def to_json(self) -> dict[str, float]:
        return {name: float(f"{value:.4g}") for name, value in vars(self).items()}


NOTHING = Range(0.0, 0.0, 0.0)
WIRES_OVER_PINS = Range(0.13, 0.22, 0.40)
SHRINK_ERROR = Range(155 / 165, 1.0, 155 / 85)
TREE_PER_FLIP_FLOP = 0.34
#: Leakage of a cell in 7 nm over that in OSU018, at 25 C: of NAND2xp5 and of a flip-flop, in the files above.
LEAKAGE_GROWTH = Range(1.3, 1.4, 1.5)

GATES, PORTS, FLIP_FLOPS, CLOCK, MEMORIES, LEAKAGE = CLASSES = (
    "gates", "inputs", "flip-flops", "clock", "memories", "leakage")


def check_library(library: Library) -> None:
    """Refuse a library that says nothing of energy."""
    if not library.volts or not any(library.flip_flop.energies.values()):
        raise BadInput(f"library {library.source} has no voltage or no internal_power, by which energy is known: "
                       "osu018 (`make library`) has both")


def shrink(library: Library, node: ProcessNode) -> float:
    """Return the energy at a node over that in the library."""
    return sqrt(node.nand2_um2 / library.nand2.area) * (node.volts / library.volts) ** 2


@dataclass(frozen=True)
class NetEnergies:
    """Energy of a change of each net, in pJ of the library."""

    pins: np.ndarray  #: of the pins that it drives
    internal: np.ndarray  #: of the cells that it drives, and of the one that drives it
    classes: np.ndarray  #: place in `CLASSES`


def net_energies(lowered: Lowered) -> NetEnergies:
    """Price the nets of a netlist."""
    library = lowered.netlist.library
    slew, half_square = library.gate_delay[1], library.volts ** 2 / 2
    load, internal = np.zeros(lowered.count), np.zeros(lowered.count)
    classes = np.full(lowered.count, CLASSES.index(PORTS))
    drivers = []
    for cell in lowered.netlist.module["cells"].values():
        kind = library.cells.get(cell["type"])
        if cell["type"] == CLOCK_GATE:  # a flip-flop stands for its latch
            load[lowered.net(cell["connections"]["enable"][0])] += library.flip_flop.loads[library.flip_flop.data]
        for pin, bits in cell["connections"].items() if kind else ():
            net = lowered.net(bits[0])
            if pin in kind.functions:
                drivers.append((kind, pin, net))
                classes[net] = CLASSES.index(FLIP_FLOPS if kind.clock else GATES)
            elif pin != kind.clock:
                load[net] += kind.loads[pin]
                internal[net] += _mean(kind, pin, 0.0, slew)
    for kind, pin, net in drivers:
        internal[net] += _mean(kind, pin, load[net] * (1 + WIRES_OVER_PINS.typical), slew)
    for net in (ZERO, ONE):
        load[net] = internal[net] = 0.0
    return NetEnergies(load * half_square, internal, classes)


def _mean(cell: Cell, pin: str, load: float, slew: float) -> float:
    """Return a pin's mean over rise, fall and, of an output, the inputs that may have caused it."""
    energies = cell.energies.get(pin, ())
    return sum(energy.mean_pj(load, slew) for energy in energies) / len(energies) if energies else 0.0


def _toggling(energies: NetEnergies, counts: np.ndarray, kind: str) -> Range:
    toggles = counts * (energies.classes == CLASSES.index(kind))
    pins, internal = float(toggles @ energies.pins), float(toggles @ energies.internal)
    return Range(*(pins * (1 + wires) + internal for wires in vars(WIRES_OVER_PINS).values()))


def glitches(energies: NetEnergies, state: NetState) -> Range:
    """Return the gates' energy with glitches over that without.

    None of them; half; or all that there are if each operation takes the same time and no gate swallows a short pulse.
    """
    settled_pj, rippling_pj = (_toggling(energies, counts, GATES).typical
                               for counts in (state.sampled_toggles, state.glitch_toggles))
    most = max(1.0, rippling_pj / settled_pj) if settled_pj else 1.0
    return Range(1.0, (1 + most) / 2, most)


def clock_energy(lowered: Lowered, state: NetState, instance_cycles: int) -> Range:
    """Price clock pins, clock gates and the clock tree, in pJ of the library.

    The tree's cells are gated like their flip-flops; or their inputs are not; or nothing of them is.
    """
    library = lowered.netlist.library
    square, slew = library.volts ** 2, library.gate_delay[1]

    def pair(cell: Cell, pin: str, output: str | None = None) -> tuple[float, float]:
        """Return what a rise and a fall take: in the pin's capacitance, and in the cell."""
        internal = 2 * _mean(cell, output or pin, 4 * cell.loads[pin], slew)
        return cell.loads[pin] * square, internal

    flip_flop, nand, inverter = library.flip_flop, library.nand2, library.inverter
    pins, internal = pair(flip_flop, flip_flop.clock or "")
    tree_pins, tree_internal = (2 * energy for energy in pair(inverter, *inverter.loads, *inverter.arcs))  # a buffer
    gate_pins, _ = pair(nand, next(iter(nand.loads)))
    gate_internal = sum(pair(cell, next(iter(cell.loads)), next(iter(cell.arcs)))[1] for cell in (nand, inverter))
    gate_output_pins = next(iter(inverter.loads.values())) * square
    edges = all_edges = always_gates = open_gates = 0
    for (first, end, _), name, count in zip(lowered.circuit.groups, lowered.clocks, state.clocks):
        edges += int(count) * int(end - first)
        all_edges += instance_cycles * int(end - first)
        if name:
            always_gates += instance_cycles
            open_gates += int(count)
    values = []
    for wires, (inputs, internals) in zip(vars(WIRES_OVER_PINS).values(), ((edges, edges), (all_edges, edges),
                                                                           (all_edges, all_edges))):
        leaves = edges * (pins * (1 + wires) + internal)
        gates = (always_gates * ((pins + gate_pins) * (1 + wires) + internal)
                 + open_gates * (gate_output_pins * (1 + wires) + gate_internal))
        tree = TREE_PER_FLIP_FLOP * (inputs * tree_pins * (1 + wires) + internals * tree_internal)
        values.append(leaves + gates + tree)
    return Range(*values)


def access_energy(access: PortAccess, node: ProcessNode) -> float:
    """Return the energy of an access of a memory, in pJ: a macro has one port for reads and one for writes."""
    macro = Sram(access.words, access.width)
    return macro.write_pj(node) if access.is_write else macro.read_pj(node)


def memory_energy(lowered: Lowered, state: NetState, node: ProcessNode) -> Range:
    """Price accesses in pJ of the node.

    Reads of what was read the cycle before may be left out by a clock gate; all happen; or each takes what the
    published macro's does.
    """
    low = typical = 0.0
    for access, count, fresh in zip(lowered.accesses, state.accesses, state.fresh):
        access_pj = access_energy(access, node)
        low += access_pj * int(count if access.is_write else fresh)
        typical += access_pj * int(count)
    error = ASAP7_READ_PJ / Sram(1024, 64).read_pj(node)
    return Range(low * min(1.0, error), typical, typical * max(1.0, error))


def price(lowered: Lowered, state: NetState, instances: int, cycles: int, node: ProcessNode, clock_ghz: float,
          ) -> dict[str, Range]:
    """Return the energy by class, in pJ at the node, of all instances in this many cycles."""
    library, energies = lowered.netlist.library, net_energies(lowered)
    scale = SHRINK_ERROR * shrink(library, node)
    leaks = sum(library.cells[kind].leakage_nw * count for kind, count in lowered.netlist.cells.items()
                if kind in library.cells)
    return {
        GATES: _toggling(energies, state.toggles, GATES) * glitches(energies, state) * scale,
        PORTS: _toggling(energies, state.toggles, PORTS) * scale,
        FLIP_FLOPS: _toggling(energies, state.toggles, FLIP_FLOPS) * scale,
        CLOCK: clock_energy(lowered, state, instances * cycles) * scale,
        MEMORIES: memory_energy(lowered, state, node),
        # 1 nW for 1 ns is 1e-6 pJ.
        LEAKAGE: LEAKAGE_GROWTH * (leaks * instances * cycles / clock_ghz * 1e-6),
    }
