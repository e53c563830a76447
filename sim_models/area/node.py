"""Figures on a modern node: an estimate, with its formulas.

The node is 7 nm as the ASAP7 kit has it (Clark et al., ASAP7: a 7-nm finFET predictive process design kit,
Microelectronics Journal 53, 2016): contacted poly pitch 54 nm, metal pitch 36 nm, cells of 7.5 tracks, fin pitch 27 nm,
drawn gate 21 nm, 0.7 V. A NAND2 is three poly pitches wide; an SRAM bit is two by ten fin pitches. What is around the
bits of a macro, `sram` says.

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
class Node:
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
        return 1e3 / (period * self.gate_delay_ps * CYCLE_OVER_GATES) if period else None

    def cycle_ns(self, period: float) -> float:
        """Return how long a cycle of `period` gate delays is."""
        return round(period * self.gate_delay_ps * CYCLE_OVER_GATES / 1e3, 4)


_POLY_PITCH_UM, _METAL_PITCH_UM, _FIN_PITCH_UM = 0.054, 0.036, 0.027

ASAP7 = Node("7 nm (ASAP7)", 3 * _POLY_PITCH_UM * 7.5 * _METAL_PITCH_UM, 2 * _POLY_PITCH_UM * 10 * _FIN_PITCH_UM,
             0.021, 0.7)
