"""Figures on process nodes: an estimate, with its formulas.

A NAND2 is three contacted poly pitches wide and 7.5 metal pitches high, an SRAM bit is two poly pitches by ten fin
pitches, as in the ASAP7 kit (Clark et al., ASAP7: a 7-nm finFET predictive process design kit, Microelectronics
Journal 53, 2016). `PUBLISHED` has what this gives beside published cells and densities. What is around the bits of a
macro, `sram` says.

Delay: an inverter that drives four takes 500 ps per micrometre of gate length in the slow corner (Ho, Mai, Horowitz,
The future of wires, Proc. IEEE 89(4), 2001). What wires, clock tree and rows add is measured on layouts in 180 nm
(docs/results/area-routed.json): within a block a wire's capacitance shrinks with the cells, as a
gate's input does, for its capacitance per length stays (the same paper). Wires between blocks come on top.
"""

from dataclasses import dataclass

FO4_PS_PER_UM = 500
CYCLE_OVER_GATES = 1.1  #: with wires and clock tree: the median of the layouts
AREA_OVER_GATES = 1.33  #: with rows that are not full and clock tree: the same


@dataclass(frozen=True)
class ProcessNode:
    """A process node."""

    name: str
    nand2_um2: float  #: its cell alone
    bit_cell_um2: float  #: of an SRAM with one port
    gate_length_um: float
    volts: float

    @property
    def gate_um2(self) -> float:
        """Area of a NAND2, with its share of what else is in the rows."""
        return self.nand2_um2 * AREA_OVER_GATES

    @property
    def gate_delay_ps(self) -> float:
        return FO4_PS_PER_UM * self.gate_length_um

    def clock_ghz(self, period: float) -> float | None:
        """Return the clock for a cycle of `period` gate delays."""
        return 1e3 / self._cycle_ps(period) if period else None

    def cycle_ns(self, period: float) -> float:
        """Return how long a cycle of `period` gate delays is."""
        return round(self._cycle_ps(period) / 1e3, 4)

    def _cycle_ps(self, period: float) -> float:
        return period * self.gate_delay_ps * CYCLE_OVER_GATES


def _nand2(poly_um: float, height_um: float) -> float:
    return 3 * poly_um * height_um


def _bit(poly_um: float, fin_um: float, fins: int = 10) -> float:
    return 2 * poly_um * fins * fin_um


#: Of ASAP7: drawn gate 21 nm, 0.7 V.
ASAP7 = ProcessNode("7 nm (ASAP7)", _nand2(0.054, 7.5 * 0.036), _bit(0.054, 0.027), 0.021, 0.7)

#: By the name that a user gives. 180: OSU018's NAND2; the bit that TSMC gives its process. 12: pitches of 16FF, which
#: 12FFN has, too (WikiChip, 16 nm lithography process). 5: N5's estimated pitches (WikiChip, TSMC details 5 nm), its
#: larger cell (Yeap et al., IEDM 2019); 15 % faster than 7 nm, as TSMC says, which is a gate of 18 nm here.
NODES = {
    "180": ProcessNode("180 nm (OSU018)", 24.0, 4.65, 0.18, 1.8),
    "12": ProcessNode("12 nm (TSMC 16FF, 12FFN)", _nand2(0.090, 7.5 * 0.064), _bit(0.090, 0.048), 0.034, 0.75),
    "7": ASAP7,
    "5": ProcessNode("5 nm (TSMC N5)", _nand2(0.048, 7.5 * 0.030), 0.025, 0.018, 0.7),
}


@dataclass(frozen=True)
class Published:
    """A figure of a process or a macro that no model was made from, and the model's."""

    subject: str
    quantity: str
    published: float
    model: float

    @property
    def error(self) -> float:
        return self.model / self.published - 1


def _density(poly_um: float, height_um: float) -> float:
    return 4 / _nand2(poly_um, height_um)  # transistors


#: Bits of eight fin pitches are the dense ones. Intel: Natarajan et al., IEDM 2014; Auth et al., IEDM 2017; density of
#: both: M. Bohr, 2017. TSMC: WikiChip, as above.
PUBLISHED = (
    Published("14 nm (Intel)", "µm² of a bit", 0.0588, _bit(0.070, 0.042)),
    Published("10 nm (Intel)", "µm² of a bit", 0.0367, _bit(0.054, 0.034)),
    Published("10 nm (Intel)", "µm² of a dense bit", 0.0312, _bit(0.054, 0.034, 8)),
    Published("16 nm (TSMC 16FF)", "µm² of a dense bit", 0.074, _bit(0.090, 0.048, 8)),
    Published("7 nm (TSMC N7)", "µm² of a dense bit", 0.027, _bit(0.057, 0.030, 8)),
    Published("14 nm (Intel)", "million transistors per mm²", 37.5, _density(0.070, 0.399)),
    Published("10 nm (Intel)", "million transistors per mm²", 100.8, _density(0.054, 0.272)),
    Published("7 nm (TSMC N7)", "million transistors per mm²", 91.2, _density(0.057, 0.240)),
)
