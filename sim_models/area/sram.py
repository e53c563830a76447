"""An SRAM macro: area, access time and energy by its words, bits and ports, at a node.

A macro is an array of bit cells with an edge of a fixed number of rows, sense amplifiers and write drivers, and an edge
of a fixed number of columns for each port, the decoder with its drivers. Four columns share what is at the end of a
bit. ASAP7's macros (github.com/The-OpenROAD-Project/asap7_sram_0p0, LEF) are 2.7 um larger in one direction than their
rows and 8.64 um in the other than their columns: 25 rows, 32 columns.

A cell with a read port of its own takes 13 fin pitches rather than 10, for the two transistors in series stand on a
diffusion more.

Energy: what IHP's 130 nm macros take for a read and for a write at 1.2 V
(github.com/IHP-GmbH/IHP-Open-PDK, sg13g2_sram, Liberty), which is so much per access and so much per bit at each number
of rows. At a node it shrinks as a wire of the array does, whose capacitance per length stays, times the voltage
squared.

Access time: that of `timing`, two gate delays for each doubling of the words.

None of the published macros in `PUBLISHED` went into the edges; `t3 area` prints them beside the model.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from t3sim.area.node import ASAP7, ProcessNode, Published
from t3sim.area.timing import MEMORY_GATE_DELAYS_PER_DOUBLING

COLUMNS_PER_BIT = 4
MOST_ROWS, MOST_BITS = 256, 128  #: of an array; what has more is several
EDGE_ROWS, EDGE_COLUMNS = 25, 32  #: around the cells; the columns for each port
READ_CELL = 13 / 10  #: area of a cell with a write and a read port, in cells with one port for both

#: Of IHP's macros, by rows: pJ of a read, and of each of its bits; of a write, and of each of its bits.
ENERGIES_PJ = {16: (1.6747, 0.5840, 2.4266, 0.7511), 64: (2.3780, 0.7384, 3.4628, 0.9371),
               128: (3.1229, 1.0277, 4.6169, 1.1781), 256: (4.7060, 1.3613, 6.9170, 1.6250)}
ASAP7_READ_PJ = 1.82  #: of ASAP7's macro of 1,024 x 64
IHP_CELL_UM2, IHP_TWO_PORT_CELL_UM2, IHP_VOLTS = 1.13375 * 2.81, 1.29375 * 4.42, 1.2


@dataclass(frozen=True)
class Sram:
    """A memory of macros; read ports beyond the first are copies."""

    words: int
    width: int  #: bits
    read_ports: int = 1
    write_ports: int = 1

    def __post_init__(self) -> None:
        if self.write_ports != 1 or self.read_ports < 1:
            raise ValueError(f"{self}: allowed are one write port and at least one read port")

    @property
    def arrays(self) -> int:
        """Arrays that share the words; one of them is accessed."""
        return math.ceil(self.words / (COLUMNS_PER_BIT * MOST_ROWS))

    @property
    def slices(self) -> int:
        """Arrays that share the bits; all of them are accessed."""
        return math.ceil(self.width / MOST_BITS)

    @property
    def rows(self) -> int:
        """Rows of an array."""
        return math.ceil(self.words / (self.arrays * COLUMNS_PER_BIT))

    @property
    def bits(self) -> int:
        """Bits of a word in an array."""
        return math.ceil(self.width / self.slices)

    def um2(self, node: ProcessNode) -> float:
        return self.read_ports * self.arrays * self.slices * macro_um2(
            self.rows, self.bits, 2, READ_CELL * node.bit_cell_um2)

    def efficiency(self, node: ProcessNode) -> float:
        """Return the bit cells' share of the area."""
        return self.read_ports * self.words * self.width * READ_CELL * node.bit_cell_um2 / self.um2(node)

    def access_ps(self, node: ProcessNode) -> float:
        return MEMORY_GATE_DELAYS_PER_DOUBLING * math.log2(max(2, self.words)) * node.gate_delay_ps

    def read_pj(self, node: ProcessNode) -> float:
        """Return the energy of a read of one port."""
        return self._energy_pj(0, node)

    def write_pj(self, node: ProcessNode) -> float:
        """Return the energy of a write, of all copies."""
        return self.read_ports * self._energy_pj(2, node)

    def _energy_pj(self, column: int, node: ProcessNode) -> float:
        access, bit = (_between(self.rows, column + offset) for offset in (0, 1))
        shrink = math.sqrt(node.bit_cell_um2 / IHP_CELL_UM2) * (node.volts / IHP_VOLTS) ** 2
        return self.slices * (access + self.bits * bit) * shrink


def macro_um2(rows: int, bits: int, ports: int, cell_um2: float) -> float:
    """Return the area of one array with its edges."""
    return (rows + EDGE_ROWS) * (bits * COLUMNS_PER_BIT + ports * EDGE_COLUMNS) * cell_um2


def _between(rows: int, column: int) -> float:
    """Return a figure of `ENERGIES_PJ` for any rows, on the line through the two next to them."""
    row_counts = list(ENERGIES_PJ)
    upper = min(max(1, bisect_left(row_counts, rows)), len(row_counts) - 1)
    few, many = row_counts[upper - 1], row_counts[upper]
    low, high = ENERGIES_PJ[few][column], ENERGIES_PJ[many][column]
    return low + (rows - few) * (high - low) / (many - few)


def _areas(kind: str, ports: int, cell_um2: float, um2_by_size: dict[tuple[int, int], float]) -> list[Published]:
    return [Published(f"{words} x {width}, {kind}, 130 nm (IHP)", "µm²", um2,
                      macro_um2(words // COLUMNS_PER_BIT, width, ports, cell_um2))
            for (words, width), um2 in um2_by_size.items()]


_IHP = ProcessNode("130 nm (IHP)", 0.0, IHP_CELL_UM2, 0.13, IHP_VOLTS)
_45_NM = ProcessNode("45 nm", 0.0, 0.346, 0.035, 0.9)  #: the cell of Mistry et al., IEDM 2007

#: ASAP7's energies are the same in every file, and so of one size, that of its bus names. Cache: M. Horowitz,
#: Computing's energy problem, ISSCC 2014.
PUBLISHED = (
    *_areas("one port", 1, IHP_CELL_UM2, {(64, 64): 50489.1, (256, 16): 28127.1, (256, 64): 93180.5,
                                          (512, 32): 79719.9, (1024, 64): 263946.1}),
    *_areas("two ports", 2, IHP_TWO_PORT_CELL_UM2, {(64, 32): 52620.9, (256, 8): 38147.5, (256, 32): 96266.6,
                                                    (512, 16): 88481.6, (1024, 32): 264167.3}),
    Published("1024 x 64, 7 nm (ASAP7)", "pJ a read", ASAP7_READ_PJ, Sram(1024, 64).read_pj(ASAP7)),
    Published("1024 x 64, cache, 45 nm", "pJ a read", 10.0, Sram(1024, 64).read_pj(_45_NM)),
    Published("256 x 32, 7 nm (ASAP7)", "ps", 92.0, Sram(256, 32).access_ps(ASAP7)),
    Published("256 x 80, 7 nm (ASAP7)", "ps", 151.1, Sram(256, 80).access_ps(ASAP7)),
    Published("1024 x 80, 7 nm (ASAP7)", "ps", 167.1, Sram(1024, 80).access_ps(ASAP7)),
    Published("256 x 32, 130 nm (IHP)", "ps", 3043.3, Sram(256, 32).access_ps(_IHP)),
)
