"""The instances of a GPU's hardware in a run: the ports of each, cycle by cycle, from inside the loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.area.energy.circuit import LANES, Lowered, lower
from t3sim.area.energy.replay import NetState, RecordedPorts, fresh_state, replay
from t3sim.area.liberty import Library
from t3sim.area.measure import TOP, map_parts
from t3sim.area.synthesis import Netlist
from t3sim.area.timing import CLOCK
from t3sim.base.compiled.words import words_at
from t3sim.base.errors import Failure
from t3sim.cosim.designs import block_design
from t3sim.gpu.engine.observers import Observer
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import RESET
from t3sim.rtlsim.shown import PREFIX, Groups, slot
from t3sim.rtlsim.simulator import Design

if TYPE_CHECKING:
    from t3sim.gpu.engine.hardware import Hardware
    from t3sim.gpu.state import Sim

BATCH = 2048  #: cycles of which all ports are kept at once
SAMPLED = 8  #: of them in which glitches are counted


@dataclass(frozen=True)
class _Place:
    """An instance's ports in a row: of each the first bit."""

    word: int
    bits: dict[str, int]
    words: int


@dataclass
class ModuleReplay:
    """All instances of a module, as their mapped netlist does what they did."""

    module: str
    instances: tuple[str, ...]
    lowered: Lowered
    ports: RecordedPorts
    state: NetState

    @property
    def live(self) -> int:
        return (1 << len(self.instances)) - 1 if len(self.instances) < LANES else -1

    def power_on(self, row: np.ndarray) -> None:
        """Let a cycle pass with reset, as `row` has it."""
        self._replay(self.ports._replace(checked_bits=np.zeros(0, np.int64)), row[None], 0)

    def _replay(self, ports: RecordedPorts, rows: np.ndarray, sampled_cycles: int) -> tuple[int, int]:
        circuit = self.lowered.circuit
        return replay(circuit, ports, self.state, rows, self.live, np.zeros(len(circuit.y), np.int64), sampled_cycles)

    def clear(self) -> None:
        """Count from here."""
        s = self.state
        for counts in (s.toggles, s.sampled_toggles, s.glitch_toggles, s.clocks, s.accesses, s.fresh):
            counts[:] = 0

    def take(self, rows: np.ndarray, first: int, sampled_cycles: int = 0) -> None:
        """Replay cycles, the first `sampled_cycles` with glitches. Raises Failure where the netlist differs."""
        cycle, bit = self._replay(self.ports, rows, sampled_cycles)
        if cycle >= 0:
            differs = self.state.nets[self.ports.shows[bit]] ^ self.state.expected_bits[bit]
            lane = next(lane for lane in range(len(self.instances)) if differs >> lane & 1)
            raise Failure(f"the mapped netlist of {self.instances[lane]} ({self.module}) shows another "
                          f"{self._name(bit)} than the RTL in cycle {first + cycle:,}")

    def _name(self, bit: int) -> str:
        net = self.ports.shows[bit]
        names = [f"{name}[{index}]" for name, port in self.lowered.netlist.module["ports"].items()
                 for index, port_bit in enumerate(port["bits"]) if self.lowered.net(port_bit) == net]
        return names[0] if names else f"port of its parts, bit {bit}"


class RecordedTop(NamedTuple):
    """A shown top, and how a row of its ports is taken apart."""

    design: Design
    first: int  #: word of its outputs
    words: int
    parts: list[ModuleReplay]
    places: dict[str, _Place]  #: by instance, the outermost without a name

    @property
    def reset(self) -> np.ndarray:
        """A row in which nothing but the resets is set."""
        row = np.zeros(self.words, np.int64)
        for place in self.places.values():
            if RESET in place.bits:
                word, bit = divmod(place.bits[RESET], 64)
                row[place.word + word] |= np.uint64(1 << bit).view(np.int64)
        return row

    def bits(self, rows: np.ndarray, port: str, lsb: int, width: int) -> np.ndarray:
        """Return some bits of a port of the outermost instance in each of these rows."""
        place = self.places[""]
        word, bit = divmod(place.bits[port] + lsb, 64)
        values = rows[:, place.word + word].view(np.uint64) >> np.uint64(bit)
        if bit + width > 64:
            values = values | rows[:, place.word + word + 1].view(np.uint64) << np.uint64(64 - bit)
        return values & np.uint64((1 << width) - 1)


def _ports_of(netlist: Netlist) -> dict[str, list]:
    return {name: port["bits"] for name, port in netlist.module["ports"].items() if name != CLOCK}


def recorded_top(geometry: Geometry, cells: Library, progress: Callable[[float], None]) -> RecordedTop:
    """Map the top in parts, and build one that shows the ports of each. Raises Failure."""
    glue, parts, children = map_parts(TOP, geometry, cells, progress)
    netlists = {"": glue, **{name: parts[kind] for name, kind in children.items()}}
    design = block_design(TOP, geometry, port_groups(netlists))
    first, words, places = _places(design, netlists)
    replays = []
    for kind in parts:
        names = [name for name, module in children.items() if module == kind]
        lowered = lower(parts[kind])
        for start in range(0, len(names), LANES):
            replays.append(_module_replay(kind, names[start:start + LANES], lowered, places))
    replays.append(_top_replay(glue, netlists, words, places))
    return RecordedTop(design, first, words, replays, places)


def module_ports(design: Design, lowered: Lowered, module: str) -> RecordedTop:
    """Take apart what a shown module alone shows."""
    first, words, places = _places(design, {"": lowered.netlist})
    return RecordedTop(design, first, words, [_module_replay(module, [""], lowered, places)], places)


def port_groups(netlists: dict[str, Netlist]) -> Groups:
    """Show all ports of instances, by name; the outermost has none."""
    groups = {}
    for number, (name, netlist) in enumerate(netlists.items()):
        slots, offset = [], 0
        for port, bits in _ports_of(netlist).items():
            slots.append(slot(offset, len(bits), f"{name}.{port}".lstrip(".")))
            offset += len(bits)
        groups[f"ports[{number}]"] = slots
    return groups


def _places(design: Design, netlists: dict[str, Netlist]) -> tuple[int, int, dict[str, _Place]]:
    ports = [port for port in design.ports.outputs.values() if port.name.startswith(PREFIX)]
    first, places = ports[0].offset, {}
    for (name, netlist), port in zip(netlists.items(), ports, strict=True):
        offset, bits = 0, {}
        for wire_port, wires in _ports_of(netlist).items():
            bits[wire_port] = offset
            offset += len(wires)
        places[name] = _Place(port.offset - first, bits, port.words)
    return first, ports[-1].offset + ports[-1].words - first, places


def _module_replay(module: str, names: list[str], lowered: Lowered, places: dict[str, _Place]) -> ModuleReplay:
    place = places[names[0]]
    drives, shows = (np.full(64 * place.words, -1, np.int64) for _ in range(2))
    for name, port in lowered.netlist.module["ports"].items():
        if name != CLOCK:
            side = drives if port["direction"] == "input" else shows
            for i, bit in enumerate(port["bits"]):
                if bit != "x":
                    side[place.bits[name] + i] = lowered.net(bit)
    ports = RecordedPorts(np.array([places[name].word for name in names], np.int64), place.words, drives, shows,
                          np.flatnonzero(shows >= 0))
    return ModuleReplay(module, tuple(names), lowered, ports, fresh_state(lowered, ports))


def _top_replay(glue: Netlist, netlists: dict[str, Netlist], words: int, places: dict[str, _Place]) -> ModuleReplay:
    """Make what is left of the top: what its parts give drives it, what they take is checked."""
    lowered = lower(glue, tuple({netlist.name for netlist in netlists.values()}))
    drives, shows = (np.full(64 * words, -1, np.int64) for _ in range(2))
    for name, netlist in netlists.items():
        wires = glue.module["cells"][name]["connections"] if name else _ports_of(glue)
        for port, bits in wires.items():
            if port == CLOCK:
                continue
            is_input = netlist.module["ports"][port]["direction"] == "input"
            side = drives if is_input == (not name) else shows
            start = 64 * places[name].word + places[name].bits[port]
            for i, bit in enumerate(bits):
                if bit != "x":
                    side[start + i] = lowered.net(bit)
    shows[np.isin(shows, drives)] = -1  # a wire from one part to another
    ports = RecordedPorts(np.zeros(1, np.int64), words, drives, shows, np.flatnonzero(shows >= 0))
    return ModuleReplay(TOP, ("the top's wiring",), lowered, ports, fresh_state(lowered, ports))


class _Rows(NamedTuple):
    """The ports of a batch of cycles, as the loop writes them."""

    rows: np.ndarray  # int64 [cycle, word]
    start: np.ndarray  # int64 [1]: the batch's first cycle
    first: int

    def before_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        pass

    def after_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        outputs, cycle = words_at(hardware.outputs[device]), now - self.start[0]
        for word in range(self.rows.shape[1]):
            self.rows[cycle, word] = outputs[self.first + word]


class ReplayObserver(Observer):
    """An observer that replays each batch of a run's cycles through the netlists; of a run of one GPU."""

    def __init__(self, top: RecordedTop) -> None:
        self._top = top
        self._state = _Rows(np.zeros((BATCH, top.words), np.int64), np.zeros(1, np.int64), top.first)
        self._end = 0
        self.cycles = 0
        for part in top.parts:
            part.power_on(top.reset)

    def before(self, now: int, end: int) -> tuple[tuple | None, int]:
        self._state.start[0] = now
        return self._state, min(end, now + BATCH)

    def after(self, now: int) -> None:
        first = int(self._state.start[0])
        self.replay(self._state.rows[:now - first], first)
        self.cycles += now - first

    def replay(self, rows: np.ndarray, first: int) -> None:
        for part in self._top.parts:
            part.take(rows, first, SAMPLED)

    def start(self) -> None:
        """Count from the next cycle on."""
        for part in self._top.parts:
            part.clear()


class StepRecorder:
    """An RTL instance as a driver steps it before a run, with the ports of each step kept."""

    def __init__(self, backend, top: RecordedTop) -> None:
        self._backend, self._top, self.rows = backend, top, []

    def __getattr__(self, name: str):
        return getattr(self._backend, name)

    def step(self, cycles: int = 1) -> None:
        for _ in range(cycles):
            self._backend.step()
            self.rows.append(self._backend.outputs[self._top.first:].view(np.int64).copy())
