"""Standard-cell libraries in the Liberty format: areas, pin loads, and tables of delay and energy, in ns and pF.

A file in other units, or written in a way that mappers read differently, is written anew before it is mapped to. PyPI's
reader of the format is GPL and brings a computer algebra system.
"""

import gzip
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path

from t3sim.area.functions import truth_table
from t3sim.base.bounded import LARGEST_FILE, TooLarge, read_bounded, reading
from t3sim.base.errors import BadInput, shown

_LARGEST = 1e9  #: of any number of a library
_DEEPEST = 32  #: groups within groups
_NAME = re.compile(r"[\w.\[\]-]{1,200}", re.ASCII)

_TEMPLATES = ("lu_table_template", "power_lut_template")
_POWERS = ("rise_power", "fall_power", "power")
_DELAYS = ("cell_rise", "cell_fall", "rise_transition", "fall_transition", "rise_constraint", "fall_constraint")
#: Attributes that are written with parentheses.
_LISTS = ("index_1", "index_2", "index_3", "values", "capacitive_load_unit")
_SPACE = re.compile(r"[\s,\\]+")
_UNIT = re.compile(r"(\d{0,6}(?:\.\d{0,9})?)([munpf]?)([sfwv])", re.IGNORECASE)
_PREFIXES = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}

_TOKEN = re.compile(r'/\*.*?(?:\*/|\Z)|\\\n|\s+|"([^"]*)"|([\w.+\-\[\]!*&|^\']+)|([(){}:;,])', re.DOTALL)


@dataclass
class Group:
    """A group of a Liberty file: `name (arguments) { attribute : value; attribute (values); ... }`."""

    name: str
    arguments: list[str]
    attributes: dict[str, list[str]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)
    lacks_semicolon: bool = False  #: of the library: a value in it ends with its line rather than a semicolon

    def all(self, name: str) -> Iterator["Group"]:
        return (group for group in self.groups if group.name == name)

    def get(self, name: str, default: str = "") -> str:
        return self.attributes.get(name, [default])[0]

    def numbers(self, name: str) -> list[float]:
        """Return the numbers in every value of an attribute, in order: `values ("1, 2", "3, 4")`."""
        return [float(number) for value in self.attributes.get(name, ())
                for number in _SPACE.split(value) if number]


def parse(text: str) -> Group:
    """Return the outermost group of a Liberty text. Raises ValueError."""
    tokens: list[tuple[str | None, str, int, bool]] = []  # name, mark, line, whether the first on it
    line, first = 1, True
    for match in _TOKEN.finditer(text):
        if match.lastindex:
            tokens.append((match[1] if match[1] is not None else match[2], match[3] or "", line, first))
            first = False
        elif match[0] != "\\\n":  # which goes on with the line
            first = first or "\n" in match[0]
        line += match[0].count("\n")
    tokens.append((None, "end", line, True))
    position, lacks_semicolon = 0, False

    def statements(group: Group, depth: int) -> None:
        nonlocal position, lacks_semicolon
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        while tokens[position][1] not in ("}", "end"):
            name, mark, line, _ = tokens[position]
            position += 1
            if mark == ";":
                continue
            if name is None:
                raise ValueError(f"line {line}: {mark!r} where a name belongs")
            mark = tokens[position][1]
            position += 1
            values = []
            if mark == ":":
                while tokens[position][0] is not None and not (values and tokens[position][3]):
                    values.append(tokens[position][0])
                    position += 1
                lacks_semicolon = lacks_semicolon or tokens[position][1] != ";"
                group.attributes[name] = [" ".join(values)]
                continue
            if mark != "(":
                raise ValueError(f"line {line}: {shown(name)} is followed by neither : nor (")
            while tokens[position][1] != ")":
                if tokens[position][0] is not None:
                    values.append(tokens[position][0])
                elif tokens[position][1] != ",":
                    raise ValueError(f"line {line}: {shown(name)} ( has no )")
                position += 1
            position += 1
            if tokens[position][1] != "{":
                group.attributes[name] = values
                continue
            position += 1
            inner = Group(name, values)
            group.groups.append(inner)
            statements(inner, depth + 1)
            if tokens[position][1] == "end":
                raise ValueError(f"line {line}: {shown(name)} {{ has no }}")
            position += 1

    outermost = Group("", [])
    statements(outermost, 0)
    if len(outermost.groups) != 1 or outermost.groups[0].name != "library":
        raise ValueError("it contains no library")
    outermost.groups[0].lacks_semicolon = lacks_semicolon
    return outermost.groups[0]


@dataclass(frozen=True)
class TimingTable:
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
    rise: TimingTable
    fall: TimingTable
    rise_slew: TimingTable
    fall_slew: TimingTable


@dataclass(frozen=True)
class PinEnergy:
    """Energy that a cell takes by itself when one of its pins rises or falls; of an output without its load."""

    rise: TimingTable  #: pJ
    fall: TimingTable

    def mean_pj(self, load: float, slew: float) -> float:
        return (self.rise.at(load, slew) + self.fall.at(load, slew)) / 2


@dataclass(frozen=True)
class Cell:
    name: str
    area: float
    loads: dict[str, float]  #: input pin: pF
    arcs: dict[str, tuple[Arc, ...]]  #: output pin: from every input that it depends on, or from the clock
    functions: dict[str, str]  #: output pin: its function, as written
    clock: str | None  #: pin of a flip-flop that samples at its rising edge
    setup_ns: float  #: of a flip-flop, at the middle of its table
    energies: dict[str, tuple[PinEnergy, ...]] = field(default_factory=dict)  #: by pin; of an output one per input
    leakage_nw: float = 0.0
    data: str | None = None  #: pin that a flip-flop samples as it is


@dataclass(frozen=True)
class Library:
    name: str
    source: str  #: where it is from, for messages
    text: str  #: in the Liberty format
    cells: dict[str, Cell]
    volts: float = 0.0

    def _smallest(self, kind: str, *truth: bool) -> Cell:
        """Find the smallest gate with this truth table, over its inputs' values counted in binary."""
        gates = [cell for cell in self.cells.values()
                 if cell.clock is None and len(cell.arcs) == 1 and 2 ** len(cell.loads) == len(truth)
                 and all(truth_table(cell.functions[pin], tuple(cell.loads)) == truth for pin in cell.arcs)]
        if not gates:
            raise BadInput(f"library {self.source} has no {kind}")
        return min(gates, key=lambda cell: cell.area)

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
        flip_flops = [cell for cell in self.cells.values() if cell.clock and cell.data and len(cell.loads) == 2]
        if not flip_flops:
            raise BadInput(f"library {self.source} has no D flip-flop")
        return min(flip_flops, key=lambda cell: cell.area)

    @cached_property
    def gate_delay(self) -> tuple[float, float]:
        """The (delay, transition time) in ns of an inverter in a chain, each driving four: mean of rise and fall."""
        (load,) = self.inverter.loads.values()
        (arcs,) = self.inverter.arcs.values()
        slew = 0.0
        for _ in range(50):
            slew = (arcs[0].rise_slew.at(4 * load, slew) + arcs[0].fall_slew.at(4 * load, slew)) / 2
        return (arcs[0].rise.at(4 * load, slew) + arcs[0].fall.at(4 * load, slew)) / 2, slew


def load_library(path: Path | str) -> Library:
    """Read a Liberty file. Raises BadInput."""
    with reading(f"library {str(path)!r}", "a Liberty file"):
        content = read_bounded(Path(path))
        if content.startswith(b"\x1f\x8b"):
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(LARGEST_FILE + 1)
            if len(content) > LARGEST_FILE:
                raise TooLarge(f"longer than {LARGEST_FILE:,} bytes, unpacked")
        library = load_library_text(content.decode(errors="replace"), str(path))
        if not (library.nand2.area > 0 and library.flip_flop and 0 < library.gate_delay[0] <= _LARGEST):
            raise ValueError(f"a gate's area is {library.nand2.area}, its delay {library.gate_delay[0]:g} ns: both "
                             "must be above 0")
    return library


def load_library_text(text: str, source: str) -> Library:
    """Parse the text of a Liberty file; `source` is what messages call it. Raises BadInput."""
    with reading(f"library {source!r}", "a Liberty file"):
        library = parse(text)
        if _normalize(library):
            text = "".join(_liberty_lines(library, 0))
        templates = {_name_of(template): template for kind in _TEMPLATES for template in library.all(kind)}
        cells = [_cell(group, templates) for group in library.all("cell")]
        return Library(_name_of(library), source, text, {cell.name: cell for cell in cells},
                       _number(library, "nom_voltage"))


def _normalize(library: Group) -> bool:
    """Change a library to ns, pF, nW and V, to a group for each pin, and to cells that may be used.

    Say whether anything has changed that mappers read.
    """
    ns, volts = _unit(library, "time_unit", "s", "ns"), _unit(library, "voltage_unit", "V", "V")
    pf, nw = _unit(library, "capacitive_load_unit", "F", "pF"), _unit(library, "leakage_power_unit", "W", "nW")
    templates = {_name_of(template): template for kind in _TEMPLATES for template in library.all(kind)}

    def scale(group: Group, name: str, factor: float) -> None:
        if factor != 1 and name in group.attributes:
            group.attributes[name] = [
                ", ".join(f"{factor * float(number):.12g}" for number in _SPACE.split(value) if number)
                for value in group.attributes[name]]

    def walk(group: Group) -> None:
        for name in group.attributes:
            if name.endswith(("capacitance", "pin_cap")):
                scale(group, name, pf)
        scale(group, "cell_leakage_power", nw)
        scale(group, "nom_voltage", volts)
        if group.name in _POWERS + _DELAYS:
            scale(group, "values", ns if group.name in _DELAYS else pf * volts ** 2)
        template = group if group.name in _TEMPLATES else templates.get("".join(group.arguments), Group("", []))
        for axis in "123":
            variable = template.get(f"variable_{axis}")
            scale(group, f"index_{axis}", pf if "capacitance" in variable else ns if "transition" in variable else 1.0)
        for inner in group.groups:
            walk(inner)

    walk(library)
    library.attributes |= {"time_unit": ["1ns"], "capacitive_load_unit": ["1", "pf"]}
    usable = [group for group in library.groups if group.name != "cell" or group.get("dont_use").lower() != "true"]
    is_changed = library.lacks_semicolon or ns != 1 or pf != 1 or len(usable) != len(library.groups)
    library.groups = usable
    for cell in library.all("cell"):
        pins = [Group(group.name, [name], group.attributes, group.groups) if group.name == "pin" else group
                for group in cell.groups for name in (
                    _SPACE.split(" ".join(group.arguments).strip()) if group.name == "pin" else [""])]
        is_changed, cell.groups = is_changed or len(pins) != len(cell.groups), pins
    return is_changed


def _unit(library: Group, name: str, base: str, ours: str) -> float:
    """Return a unit of a library in ours. Raises ValueError."""
    text = "".join(library.attributes.get(name, [f"1{ours}"])).replace(" ", "")
    match = _UNIT.fullmatch(text)
    if not match or match[3].lower() != base.lower() or not float(match[1]):
        raise ValueError(f"{name} = {shown(text)} is no unit: such as 1{ours}")
    return float(f"{float(match[1]) * _PREFIXES[match[2].lower()] / _PREFIXES[ours[:-1].lower()]:.9g}")


def _liberty_lines(group: Group, depth: int) -> Iterator[str]:
    """Write a library with what mappers read, in the Liberty format."""
    def quoted(value: str) -> str:
        return value if _NAME.fullmatch(value) else f'"{value}"'

    indent = "  " * depth
    yield f"{indent}{group.name} ({', '.join(map(quoted, group.arguments))}) {{\n"
    for name, values in group.attributes.items():
        if name in _LISTS:
            yield f"{indent}  {name} ({', '.join(map(quoted, values))});\n"
        elif name == "time_unit":
            yield f'{indent}  {name} : "{values[0]}";\n'
        elif len(values) == 1 and (depth or name in ("delay_model", "nom_voltage")):
            yield f"{indent}  {name} : {quoted(values[0])};\n"
    for inner in group.groups:
        if depth or inner.name in ("cell", *_TEMPLATES):
            yield from _liberty_lines(inner, depth + 1)
    yield f"{indent}}}\n"


def _name_of(group: Group) -> str:
    """Return the name of what a group describes. Raises ValueError."""
    if len(group.arguments) != 1 or not _NAME.fullmatch(group.arguments[0]):
        raise ValueError(f"{shown(group.arguments)} is no name of a {group.name[:20]}")
    return group.arguments[0]


def _number(group: Group, name: str) -> float:
    """Return an attribute that is a number from 0, which one that is not there is. Raises ValueError."""
    number = float(group.get(name, "0"))
    if not 0 <= number <= _LARGEST:
        raise ValueError(f"{group.name[:20]} {shown(_name_of(group))}: {name} = {number} is not possible: 0 to "
                         f"{_LARGEST:g}")
    return number


def _table(timing: Group, name: str, templates: dict[str, Group]) -> TimingTable | None:
    for group in timing.all(name):
        template = templates.get(_name_of(group), Group("", []))
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
        return TimingTable(tuple(first), tuple(second), tuple(rows))
    return None


def _energies(pin: Group, templates: dict[str, Group]) -> tuple[PinEnergy, ...]:
    table_pairs = [[_table(group, edge, templates) for edge in ("rise_power", "fall_power")]
                   for group in pin.all("internal_power")]
    return tuple(PinEnergy(*tables) for tables in table_pairs if None not in tables)


def _cell(group: Group, templates: dict[str, Group]) -> Cell:
    loads, arcs, functions, energies = {}, {}, {}, {}
    setup = 0.0
    for pin in group.all("pin"):
        name = _name_of(pin)
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
        pin_arcs = []
        for timing in pin.all("timing"):
            tables = [_table(timing, edge, templates)
                      for edge in ("cell_rise", "cell_fall", "rise_transition", "fall_transition")]
            if None in tables or timing.get("timing_type") in ("three_state_disable", "clear", "preset"):
                continue
            sense = timing.get("timing_sense")
            pin_arcs += [Arc(source, {"positive_unate": False, "negative_unate": True}.get(sense), *tables)
                         for source in _SPACE.split(timing.get("related_pin").strip())]
        if pin_arcs:
            arcs[name] = tuple(pin_arcs)
    def pin_of(attribute: str) -> str | None:
        """Return the pin that an attribute of the flip-flop is equal to."""
        return next((pin for register in group.all("ff") for pin in loads
                     if truth_table(register.get(attribute), (pin,)) == (False, True)), None)

    if any(group.all("latch")):  # not to be taken for a gate
        arcs = {}
    return Cell(_name_of(group), _number(group, "area"), loads, arcs, functions,
                pin_of("clocked_on"), setup, energies, _number(group, "cell_leakage_power"), pin_of("next_state"))
