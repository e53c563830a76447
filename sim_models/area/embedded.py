"""A small standard-cell library of the project's own, so that area and timing need nothing to be installed.

Delays follow the method of logical effort (Sutherland, Sproull, Harris, Logical Effort: Designing Fast CMOS Circuits,
1999): a stage takes tau (g h + p), with g and p counted from transistor widths, holes half as mobile as electrons. A
cell is one stage or some in a row. Areas are counted on a line of diffusion (Weste and Harris, CMOS VLSI Design,
section 1.5): one contacted pitch for each pair of transistors, and one that separates the cell from the next. tau is
that of 180 nm, where OSU018 is, for the same rule of thumb as in `node`: five of it are an inverter that drives four.
Nothing in here is fitted to a library.
"""

from dataclasses import dataclass

from t3sim.area.liberty import Library, load_library_text
from t3sim.area.node import FO4_PS_PER_UM

NAME = "embedded"

TAU_NS = FO4_PS_PER_UM * 0.18 / 5 / 1000
UNIT_PF = 0.005  #: input of the smallest inverter; delays know its multiples only
_LOADS = (0.0, 100.0)  #: in units; delays are linear in between and beyond


@dataclass(frozen=True)
class Pin:
    """An input of a cell."""

    name: str
    effort: float  #: its load in units of an inverter's: g, of the smallest drive
    earlier_tau: float  #: tau spent before the last stage
    sense: str  #: unateness of the output


@dataclass(frozen=True)
class Gate:
    """A combinational cell: what its last stage gives to the delay, and its inputs."""

    name: str
    pairs: int  #: of transistors, at the smallest drive
    function: str
    parasitic: float  #: p of the last stage
    pins: tuple[Pin, ...]
    drive: float = 1.0  #: of the last stage

    @property
    def area(self) -> float:
        """Area in contacted pitches."""
        return self.pairs + 1


def _simple(name: str, pairs: int, function: str, parasitic: float, efforts: dict[str, float]) -> list[Gate]:
    """Make an inverting gate of one stage at several drives.

    Twice the width is twice the pairs and half the delay per load.
    """
    return [Gate(f"{name}X{drive}", drive * pairs, function, parasitic,
                 tuple(Pin(pin, drive * effort, 0.0, "negative_unate") for pin, effort in efforts.items()), drive)
            for drive in ((1, 2, 4, 8) if name == "INV" else (1, 2))]


def _buffered(name: str, pairs: int, function: str, first: float, effort: float, pins: str) -> list[Gate]:
    """Make a gate with an inverter after it, of drive 2: the gate, of parasitic `first`, drives twice the unit."""
    return [Gate(f"{name}X2", pairs + 2, function, 1.0,
                 tuple(Pin(pin, effort, first + 2, "positive_unate") for pin in pins), 2)]


#: g and p of the book's tables 1.1 and 1.2, and counted in the same way for those that it leaves out.
GATES = [
    *_simple("INV", 1, "(!A)", 1, {"A": 1}),
    *_simple("NAND2", 2, "(!(A B))", 2, dict.fromkeys("AB", 4 / 3)),
    *_simple("NAND3", 3, "(!(A B C))", 3, dict.fromkeys("ABC", 5 / 3)),
    *_simple("NAND4", 4, "(!(A B C D))", 4, dict.fromkeys("ABCD", 2)),
    *_simple("NOR2", 2, "(!(A+B))", 2, dict.fromkeys("AB", 5 / 3)),
    *_simple("NOR3", 3, "(!(A+B+C))", 3, dict.fromkeys("ABC", 7 / 3)),
    *_simple("AOI21", 3, "(!((A B)+C))", 7 / 3, {"A": 2, "B": 2, "C": 5 / 3}),
    *_simple("AOI22", 4, "(!((A B)+(C D)))", 4, dict.fromkeys("ABCD", 2)),
    *_simple("OAI21", 3, "(!((A+B) C))", 8 / 3, {"A": 2, "B": 2, "C": 4 / 3}),
    *_simple("OAI22", 4, "(!((A+B) (C+D)))", 4, dict.fromkeys("ABCD", 2)),
    *_buffered("BUF", 1, "A", 1, 1, "A"),
    *_buffered("AND2", 2, "(A B)", 2, 4 / 3, "AB"),
    *_buffered("OR2", 2, "(A+B)", 2, 5 / 3, "AB"),
    # An and-or-invert gate of both inputs and of their complements, which an inverter each makes: 1 + 2 before.
    Gate("XOR2X1", 6, "((A (!B))+((!A) B))", 4, tuple(Pin(pin, 3, 3, "non_unate") for pin in "AB")),
    Gate("XNOR2X1", 6, "((A B)+((!A) (!B)))", 4, tuple(Pin(pin, 3, 3, "non_unate") for pin in "AB")),
    # Two clocked inverters on one wire, and the inverter of the select input.
    Gate("MUX2X1", 5, "(!((S A)+((!S) B)))", 4, (Pin("A", 2, 0, "negative_unate"), Pin("B", 2, 0, "negative_unate"),
                                                 Pin("S", 3, 3, "non_unate"))),
]

#: Master and slave, each a clocked inverter, an inverter and a clocked one that holds; two inverters for the clock:
#: 2 x (2 + 1 + 2) + 2 pairs, less one that the slave's output inverter saves. The edge goes through both clock
#: inverters, which drive four gates, the slave's clocked inverter, which drives two, and the output inverter; the data
#: must have passed the master's clocked inverter and its inverter, which drive two each.
FLIP_FLOP_PAIRS = 11
CLOCK_TO_OUTPUT_TAU = (1 + 4) + (1 + 4) + (2 + 2)
SETUP_TAU = (2 + 2) + (1 + 2)
FLIP_FLOP_DATA_EFFORT, FLIP_FLOP_CLOCK_EFFORT = 2, 1


def liberty_text() -> str:
    """Write the library in the Liberty format."""
    cells = "".join(_combinational(gate) for gate in GATES)
    return f"""library ({NAME}) {{
  delay_model : table_lookup;
  time_unit : "1ns";
  capacitive_load_unit (1, pf);
  lu_table_template (delay) {{
    variable_1 : total_output_net_capacitance;
    variable_2 : input_net_transition;
    index_1 ("{_row(load * UNIT_PF for load in _LOADS)}"); index_2 ("0, 1");
  }}
  lu_table_template (constraint) {{
    variable_1 : related_pin_transition;
    variable_2 : constrained_pin_transition;
    index_1 ("0, 1"); index_2 ("0, 1");
  }}
{cells}{_flip_flop()}}}
"""


def embedded_library() -> Library:
    """Give the library; its area unit is a contacted pitch of a row."""
    return load_library_text(liberty_text(), NAME)


def _row(values) -> str:
    return ", ".join(f"{value:.7g}" for value in values)


def _timing(pin: str, earlier_tau: float, parasitic: float, drive: float, kind: str) -> str:
    def table(name: str, tau: list[float]) -> str:
        rows = ", ".join(f'"{_row([TAU_NS * delay] * 2)}"' for delay in tau)  # whatever the input's transition time
        return (f'        {name} (delay) {{ index_1 ("{_row(load * UNIT_PF for load in _LOADS)}"); index_2 ("0, 1"); '
                f"values ({rows}); }}\n")

    last = [parasitic + load / drive for load in _LOADS]
    tables = "".join(table(f"cell_{edge}", [earlier_tau + delay for delay in last]) + table(f"{edge}_transition", last)
                     for edge in ("rise", "fall"))
    return f'      timing () {{\n        related_pin : "{pin}"; {kind};\n{tables}      }}\n'


def _input(name: str, effort: float, attributes: str = "") -> str:
    return f"    pin ({name}) {{ direction : input; capacitance : {effort * UNIT_PF:.7g};{attributes} }}\n"


def _combinational(gate: Gate) -> str:
    inputs = "".join(_input(pin.name, pin.effort) for pin in gate.pins)
    arcs = "".join(_timing(pin.name, pin.earlier_tau, gate.parasitic, gate.drive, f"timing_sense : {pin.sense}")
                   for pin in gate.pins)
    return (f"  cell ({gate.name}) {{\n    area : {gate.area:g};\n{inputs}"
            f'    pin (Y) {{\n      direction : output; function : "{gate.function}";\n{arcs}    }}\n  }}\n')


def _flip_flop() -> str:
    setup = f'"{_row([TAU_NS * SETUP_TAU] * 2)}"'
    constraint = "".join(f' {edge}_constraint (constraint) {{ index_1 ("0, 1"); index_2 ("0, 1"); '
                         f"values ({setup}, {setup}); }}" for edge in ("rise", "fall"))
    data = _input("D", FLIP_FLOP_DATA_EFFORT,
                  f' timing () {{ related_pin : "CLK"; timing_type : setup_rising;{constraint} }}')
    return (f"  cell (DFFX1) {{\n    area : {FLIP_FLOP_PAIRS + 1};\n"
            '    ff (IQ, IQN) { next_state : "D"; clocked_on : "CLK"; }\n'
            f'{data}{_input("CLK", FLIP_FLOP_CLOCK_EFFORT, " clock : true;")}'
            '    pin (Q) {\n      direction : output; function : "IQ";\n'
            f'{_timing("CLK", CLOCK_TO_OUTPUT_TAU, 1, 1, "timing_type : rising_edge")}    }}\n  }}\n')
