"""Standard-cell libraries in the Liberty format: areas, pin loads, and tables of delay and energy.

PyPI's reader of the format is GPL and brings a computer algebra system; what is needed here is little.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from t3sim.bounded import read_bounded, reading
from t3sim.errors import BadInput, shown

from .functions import truth_table

_LARGEST = 1e9  #: of any number of a library
_DEEPEST = 32  #: groups within groups
_NAME = re.compile(r"[\w.\[\]-]{1,200}", re.ASCII)

_TOKEN = re.compile(r'/\*.*?(?:\*/|\Z)|\\\n|\s+|"([^"]*)"|([\w.+\-\[\]!*&|^\']+)|([(){}:;,])', re.DOTALL)


@dataclass
class Group:
    """A group of a Liberty file: `name (arguments) { attribute : value; attribute (values); ... }`."""

    name: str
    arguments: list[str]
    attributes: dict[str, list[str]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    def all(self, name: str) -> Iterator["Group"]:
        return (group for group in self.groups if group.name == name)

    def get(self, name: str, default: str = "") -> str:
        return self.attributes.get(name, [default])[0]

    def numbers(self, name: str) -> list[float]:
        """Return the numbers in every value of an attribute, in order: `values ("1, 2", "3, 4")`."""
        return [float(number) for value in self.attributes.get(name, ())
                for number in re.split(r"[\s,\\]+", value) if number]


def parse(text: str) -> Group:
    """Return the outermost group of a Liberty text. Raises ValueError."""
    tokens = [(found[1] if found[1] is not None else found[2], found[3]) for found in _TOKEN.finditer(text)
              if found.lastindex]
    tokens.append((None, "end"))
    place = 0

    def statements(group: Group, depth: int) -> None:
        nonlocal place
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        while tokens[place][1] not in ("}", "end"):
            name, mark = tokens[place]
            place += 1
            if mark == ";":
                continue
            if name is None:
                raise ValueError(f"{mark!r} where a name belongs")
            mark = tokens[place][1]
            place += 1
            values = []
            if mark == ":":
                while tokens[place][0] is not None:
                    values.append(tokens[place][0])
                    place += 1
                group.attributes[name] = [" ".join(values)]
                continue
            if mark != "(":
                raise ValueError(f"{name!r} is followed by neither : nor (")
            while tokens[place][1] != ")":
                if tokens[place][0] is not None:
                    values.append(tokens[place][0])
                elif tokens[place][1] == "end":
                    raise ValueError("the text ends inside a group")
                place += 1
            place += 1
            if tokens[place][1] != "{":
                group.attributes[name] = values
                continue
            place += 1
            inner = Group(name, values)
            group.groups.append(inner)
            statements(inner, depth + 1)
            if tokens[place][1] == "end":
                raise ValueError("the text ends inside a group")
            place += 1

    outermost = Group("", [])
    statements(outermost, 0)
    if len(outermost.groups) != 1 or outermost.groups[0].name != "library":
        raise ValueError("there is no library in it")
    return outermost.groups[0]


@dataclass(frozen=True)
class Table:
    """A delay or a transition time over output load and input transition; bilinear, and linear beyond its edges."""

    loads: tuple[float, ...]  #: pF
    slews: tuple[float, ...]  #: ns
    values: tuple[tuple[float, ...], ...]  #: ns; a row per load

    def at(self, load: float, slew: float) -> float:
        i, u = _locate(self.loads, load)
        j, v = _locate(self.slews, slew)
        row, following = self.values[i], self.values[min(i + 1, len(self.values) - 1)]
        k = min(j + 1, len(row) - 1)
        low = row[j] + v * (row[k] - row[j])
        return low + u * (following[j] + v * (following[k] - following[j]) - low)


def _locate(axis: tuple[float, ...], value: float) -> tuple[int, float]:
    if len(axis) == 1:
        return 0, 0.0
    index = min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
    return index, (value - axis[index]) / (axis[index + 1] - axis[index])


@dataclass(frozen=True)
class Arc:
    """The way from one input pin to one output pin; delays and transitions of the output's rise and fall."""

    source: str
    inverting: bool | None  #: None: either edge of the input may cause either edge of the output
    rise: Table
    fall: Table
    rise_slew: Table
    fall_slew: Table


@dataclass(frozen=True)
class PinEnergy:
    """Energy that a cell takes by itself when one of its pins rises or falls; of an output without its load."""

    rise: Table  #: pJ
    fall: Table

    def mean_pj(self, load: float, slew: float) -> float:
        return (self.rise.at(load, slew) + self.fall.at(load, slew)) / 2


@dataclass(frozen=True)
class Cell:
    name: str
    area: float
    loads: dict[str, float]  #: input pin: pF
    arcs: dict[str, tuple[Arc, ...]]  #: output pin: from every input that it depends on, or from the clock
    functions: dict[str, str]  #: output pin: its function, as written
    clock: str | None  #: pin of a flip-flop
    setup_ns: float  #: of a flip-flop, at the middle of its table
    enable: str | None = None  #: pin of a latch
    energies: dict[str, tuple[PinEnergy, ...]] = field(default_factory=dict)  #: by pin; of an output one per input
    leakage_nw: float = 0.0


@dataclass(frozen=True)
class Library:
    name: str
    source: str  #: where it is from, for messages
    text: str  #: in the Liberty format
    cells: dict[str, Cell]
    volts: float = 0.0

    def _smallest(self, what: str, *truth: bool) -> Cell:
        """Find the smallest gate with this truth table, over its inputs' values counted in binary."""
        found = [cell for cell in self.cells.values()
                 if cell.clock is None and len(cell.arcs) == 1 and 2 ** len(cell.loads) == len(truth)
                 and all(truth_table(cell.functions[pin], tuple(cell.loads)) == truth for pin in cell.arcs)]
        if not found:
            raise BadInput(f"library {self.source} has no {what}")
        return min(found, key=lambda cell: cell.area)

    @cached_property
    def nand2(self) -> Cell:
        """The gate whose area is one gate equivalent."""
        return self._smallest("NAND gate of two inputs", True, True, True, False)

    @cached_property
    def inverter(self) -> Cell:
        return self._smallest("inverter", True, False)

    @cached_property
    def flip_flop(self) -> Cell:
        """The smallest one that samples at a rising clock and has neither set nor reset."""
        found = [cell for cell in self.cells.values() if cell.clock and len(cell.loads) == 2]
        if not found:
            raise BadInput(f"library {self.source} has no D flip-flop")
        return min(found, key=lambda cell: cell.area)

    @cached_property
    def gate_delay(self) -> tuple[float, float]:
        """The (delay, transition time) in ns of an inverter in a chain, each driving four: mean of rise and fall."""
        (load,) = self.inverter.loads.values()
        (arcs,) = self.inverter.arcs.values()
        slew = 0.0
        for _ in range(50):
            slew = (arcs[0].rise_slew.at(4 * load, slew) + arcs[0].fall_slew.at(4 * load, slew)) / 2
        return (arcs[0].rise.at(4 * load, slew) + arcs[0].fall.at(4 * load, slew)) / 2, slew


def load_library(path: Path) -> Library:
    """Read a Liberty file. Raises BadInput."""
    with reading(f"library {str(path)!r}", "a Liberty file"):
        library = load_library_text(read_bounded(path).decode(errors="replace"), str(path))
        if not (library.nand2.area > 0 and library.flip_flop and 0 < library.gate_delay[0] <= _LARGEST):
            raise ValueError(f"a gate's area is {library.nand2.area}, its delay {library.gate_delay[0]:g} ns: both "
                             "must be above 0")
    return library


def load_library_text(text: str, source: str) -> Library:
    """Parse the text of a Liberty file; `source` is what messages call it. Raises BadInput."""
    with reading(f"library {source!r}", "a Liberty file"):
        library = parse(text)
        templates = {_one(template): template for kind in ("lu_table_template", "power_lut_template")
                     for template in library.all(kind)}
        cells = [_cell(group, templates) for group in library.all("cell")]
        return Library(_one(library), source, text, {cell.name: cell for cell in cells},
                       _number(library, "nom_voltage"))


def _one(group: Group) -> str:
    """Return the name of what a group describes. Raises ValueError."""
    if len(group.arguments) != 1 or not _NAME.fullmatch(group.arguments[0]):
        raise ValueError(f"{shown(group.arguments)} is no name of a {group.name[:20]}")
    return group.arguments[0]


def _number(group: Group, name: str) -> float:
    """Return an attribute that is a number from 0, which one that is not there is. Raises ValueError."""
    number = float(group.get(name, "0"))
    if not 0 <= number <= _LARGEST:
        raise ValueError(f"{group.name[:20]} {shown(_one(group))}: {name} = {number} is not possible: 0 to "
                         f"{_LARGEST:g}")
    return number


def _table(timing: Group, name: str, templates: dict[str, Group]) -> Table | None:
    for group in timing.all(name):
        template = templates.get(_one(group), Group("", []))
        first, second = (group.numbers(index) or template.numbers(index) or [0.0] for index in ("index_1", "index_2"))
        numbers = group.numbers("values")
        rows = [tuple(numbers[i:i + len(second)]) for i in range(0, len(numbers), len(second))]
        if template.get("variable_1").startswith("input"):
            first, second, rows = second, first, list(zip(*rows))
        for axis in (first, second):
            if any(after <= before for before, after in zip(axis, axis[1:])):
                raise ValueError(f"{name}: the indices {shown(axis)} do not rise")
        if len(rows) != len(first) or any(len(row) != len(second) for row in rows) or not all(
                abs(number) <= _LARGEST for number in (*first, *second, *numbers)):
            raise ValueError(f"{name}: {len(numbers)} values do not fill {len(first)} x {len(second)} places with "
                             f"numbers up to {_LARGEST:g}")
        return Table(tuple(first), tuple(second), tuple(rows))
    return None


def _energies(pin: Group, templates: dict[str, Group]) -> tuple[PinEnergy, ...]:
    found = [[_table(group, edge, templates) for edge in ("rise_power", "fall_power")]
             for group in pin.all("internal_power")]
    return tuple(PinEnergy(*tables) for tables in found if None not in tables)


def _cell(group: Group, templates: dict[str, Group]) -> Cell:
    loads, arcs, functions, energies = {}, {}, {}, {}
    setup = 0.0
    clock = next((flip_flop.get("clocked_on").strip("() ") for flip_flop in group.all("ff")), None)
    for pin in group.all("pin"):
        name = _one(pin)
        energies[name] = _energies(pin, templates)
        if pin.get("direction") == "input":
            loads[name] = _number(pin, "capacitance")
            for timing in pin.all("timing"):
                if timing.get("timing_type").startswith("setup"):
                    for edge in ("rise_constraint", "fall_constraint"):
                        table = _table(timing, edge, templates)
                        if table:
                            middle = table.values[len(table.values) // 2]
                            setup = max(setup, middle[len(middle) // 2])
            continue
        functions[name] = pin.get("function")
        found = []
        for timing in pin.all("timing"):
            tables = [_table(timing, edge, templates)
                      for edge in ("cell_rise", "cell_fall", "rise_transition", "fall_transition")]
            if None in tables or timing.get("timing_type") in ("three_state_disable", "clear", "preset"):
                continue
            sense = timing.get("timing_sense")
            found.append(Arc(timing.get("related_pin"), {"positive_unate": False, "negative_unate": True}.get(sense),
                             *tables))
        if found:
            arcs[name] = tuple(found)
    enable = next((latch.get("enable").strip("() !") for latch in group.all("latch")), None)
    return Cell(_one(group), _number(group, "area"), loads, arcs if enable is None else {}, functions,
                clock if clock and not clock.startswith("!") else None, setup, enable, energies,
                _number(group, "cell_leakage_power"))
