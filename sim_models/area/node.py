"""Figures on a modern node: an estimate, with its formulas.

The node is 7 nm as the ASAP7 kit has it (Clark et al., ASAP7: a 7-nm finFET predictive process design kit,
Microelectronics Journal 53, 2016): contacted poly pitch 54 nm, metal pitch 36 nm, cells of 7.5 tracks, fin pitch 27 nm,
drawn gate 21 nm. A NAND2 is three poly pitches wide; an SRAM bit is two by ten fin pitches.

Delay: an inverter that drives four takes 500 ps per micrometre of gate length in the slow corner (Ho, Mai, Horowitz,
The future of wires, Proc. IEEE 89(4), 2001). What wires, clock tree and rows add is measured on layouts in 180 nm
(docs/results/area-routed.json): within a block a wire's capacitance shrinks with the cells, as a
gate's input does, for its capacitance per length stays (the same paper). Wires between blocks come on top.
"""

from dataclasses import dataclass

POLY_PITCH_UM, CELL_HEIGHT_UM = 0.054, 7.5 * 0.036
FIN_PITCH_UM = 0.027
GATE_LENGTH_UM = 0.021
FO4_PS_PER_UM = 500
CYCLE_OVER_GATES = 1.1  #: with wires and clock tree: the median of the layouts
AREA_OVER_GATES = 1.33  #: with rows that are not full and clock tree: the same
ARRAY_EFFICIENCY = 0.4  #: bits over all of a small memory's area


@dataclass(frozen=True)
class Node:
    """A process node, of 7 nm."""

    name: str = "7 nm (ASAP7)"

    @property
    def gate_um2(self) -> float:
        """Area of a NAND2, with its share of what else is in the rows."""
        return 3 * POLY_PITCH_UM * CELL_HEIGHT_UM * AREA_OVER_GATES

    @property
    def bit_um2(self) -> float:
        return 2 * POLY_PITCH_UM * 10 * FIN_PITCH_UM / ARRAY_EFFICIENCY

    @property
    def gate_delay_ps(self) -> float:
        return FO4_PS_PER_UM * GATE_LENGTH_UM

    def area_um2(self, gate_equivalents: float, memory_bits: int) -> float:
        return gate_equivalents * self.gate_um2 + memory_bits * self.bit_um2

    def clock_ghz(self, period: float) -> float | None:
        """Return the clock for a cycle of `period` gate delays."""
        return 1e3 / (period * self.gate_delay_ps * CYCLE_OVER_GATES) if period else None

    def cycle_ns(self, period: float) -> float:
        """Return how long a cycle of `period` gate delays is."""
        return round(period * self.gate_delay_ps * CYCLE_OVER_GATES / 1e3, 4)

    def to_json(self, gate_equivalents: float, memory_bits: int, period: float) -> dict:
        clock = self.clock_ghz(period)
        return {"node": self.name, "area_um2": round(self.area_um2(gate_equivalents, memory_bits), 1),
                "cycle_ns": self.cycle_ns(period), "clock_ghz": round(clock, 3) if clock else None}
