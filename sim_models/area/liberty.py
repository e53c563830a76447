"""Standard-cell libraries in the Liberty format: areas, pin loads and delay tables.

PyPI's reader of the format is GPL and brings a computer algebra system; what is needed here is little.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from t3sim.bounded import TooLarge, read_bounded
from t3sim.errors import BadInput

_LARGEST_FILE = 1 << 30  #: bytes; foundries' libraries are long

_TOKEN = re.compile(r'/\*.*?\*/|\\\n|\s+|"([^"]*)"|([\w.+\-\[\]!*&|^\']+)|([(){}:;,])', re.DOTALL)


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

    def statements(group: Group) -> None:
        nonlocal place
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
            statements(inner)
            if tokens[place][1] == "end":
                raise ValueError("the text ends inside a group")
            place += 1

    outermost = Group("", [])
    statements(outermost)
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
class Cell:
    name: str
    area: float
    loads: dict[str, float]  #: input pin: pF
    arcs: dict[str, tuple[Arc, ...]]  #: output pin: from every input that it depends on, or from the clock
    functions: dict[str, str]  #: output pin: its function, as written
    clock: str | None  #: pin of a flip-flop
    setup_ns: float  #: of a flip-flop, at the middle of its table


@dataclass(frozen=True)
class Library:
    name: str
    source: str  #: where it is from, for messages
    text: str  #: in the Liberty format
    cells: dict[str, Cell]

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


def truth_table(function: str, pins: tuple[str, ...]) -> tuple[bool, ...] | None:
    """Return a pin's function for every input, counted in binary with the first pin lowest; None if of another kind."""
    text = function.replace("*", "&").replace("+", "|")
    text = re.sub(r"\s*([&|^])\s*|(?<=[(!])\s+|\s+(?=\))", r"\1", text.strip())
    text = re.sub(r"\s+", "&", text).replace("!", "~")  # what is left of the spaces means and
    if not re.fullmatch(r"[\w()&|^~]+", text) or not set(re.findall(r"\w+", text)) <= {*pins, "0", "1"}:
        return None
    return tuple(bool(eval(text, {"__builtins__": {}}, {pin: row >> i & 1 for i, pin in enumerate(pins)}) & 1)
                 for row in range(2 ** len(pins)))


def load_library(path: Path) -> Library:
    """Read a Liberty file. Raises BadInput."""
    try:
        return load_library_text(read_bounded(path, _LARGEST_FILE).decode(errors="replace"), str(path))
    except TooLarge as error:
        raise BadInput(f"library {str(path)!r} is not a Liberty file: {error}") from None
    except OSError as error:
        raise BadInput(f"library {str(path)!r} cannot be read: {error.strerror}") from None


def load_library_text(text: str, source: str) -> Library:
    """Parse the text of a Liberty file; `source` is what messages call it. Raises BadInput."""
    try:
        library = parse(text)
        slews_first = {template.arguments[0]: template.get("variable_1").startswith("input_net")
                       for template in library.all("lu_table_template")}
        cells = [_cell(group, slews_first) for group in library.all("cell")]
        name = library.arguments[0]
    except (ValueError, KeyError, IndexError) as error:
        raise BadInput(f"{source} is not a Liberty file that can be read: {error}") from None
    except RecursionError:
        raise BadInput(f"{source} is not a Liberty file that can be read: nested too deeply") from None
    return Library(name, source, text, {cell.name: cell for cell in cells})


def _table(timing: Group, name: str, slews_first: dict[str, bool]) -> Table | None:
    for group in timing.all(name):
        first, second = group.numbers("index_1") or [0.0], group.numbers("index_2") or [0.0]
        numbers = group.numbers("values")
        rows = [tuple(numbers[i:i + len(second)]) for i in range(0, len(numbers), len(second))]
        if slews_first.get(group.arguments[0], False):
            first, second, rows = second, first, list(zip(*rows))
        return Table(tuple(first), tuple(second), tuple(rows))
    return None


def _cell(group: Group, slews_first: dict[str, bool]) -> Cell:
    loads, arcs, functions = {}, {}, {}
    setup = 0.0
    clock = next((flip_flop.get("clocked_on").strip("() ") for flip_flop in group.all("ff")), None)
    for pin in group.all("pin"):
        name = pin.arguments[0]
        if pin.get("direction") == "input":
            loads[name] = float(pin.get("capacitance", "0"))
            for timing in pin.all("timing"):
                if timing.get("timing_type").startswith("setup"):
                    for edge in ("rise_constraint", "fall_constraint"):
                        table = _table(timing, edge, {})
                        if table:
                            middle = table.values[len(table.values) // 2]
                            setup = max(setup, middle[len(middle) // 2])
            continue
        functions[name] = pin.get("function")
        found = []
        for timing in pin.all("timing"):
            tables = [_table(timing, edge, slews_first)
                      for edge in ("cell_rise", "cell_fall", "rise_transition", "fall_transition")]
            if None in tables or timing.get("timing_type") in ("three_state_disable", "clear", "preset"):
                continue
            sense = timing.get("timing_sense")
            found.append(Arc(timing.get("related_pin"), {"positive_unate": False, "negative_unate": True}.get(sense),
                             *tables))
        if found:
            arcs[name] = tuple(found)
    latch = any(True for _ in group.all("latch"))
    return Cell(group.arguments[0], float(group.get("area", "0")), loads, {} if latch else arcs, functions,
                clock if clock and not clock.startswith("!") else None, setup)
