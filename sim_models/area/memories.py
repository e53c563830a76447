"""The memories of a block and what each is made of, read off its ports in the hardware."""

import re
from collections import Counter
from dataclasses import dataclass

from t3sim.area.liberty import Library
from t3sim.area.node import ProcessNode
from t3sim.area.sram import Sram
from t3sim.area.synthesis import SMALL_WORDS
from t3sim.cosim.designs import memory_ports
from t3sim.rtl.geometry import Geometry

_NUMBER = re.compile(r"_\d+(?=\.|$)")
FLIP_FLOPS, MACRO, COPIES, FILE = "flip-flops", "SRAM macro", "copies of a macro", "register file"
_NANDS_PER_MULTIPLEXER = 3  #: of two inputs, the inverter of its select shared


@dataclass(frozen=True)
class MemoryUse:
    """Memories with one name, all alike, and how they are used."""

    name: str  #: in the hierarchy, without numbers of instances
    count: int
    words: int
    width: int  #: bits
    clocked_reads: int
    unclocked_reads: int
    writes: int
    write_through: int  #: clocked reads that give what is being written to the word

    @property
    def kind(self) -> str:
        """Kind of cell that it is made of.

        One clocked read and one write make an SRAM macro, several reads a copy for each; what is read without a clock
        is a register file: flip-flops, and a tree of multiplexers for each read. Below `SMALL_WORDS` words no generator
        makes a macro.
        """
        if self.words < SMALL_WORDS:
            return FLIP_FLOPS
        if self.unclocked_reads or self.writes != 1:
            return FILE
        return MACRO if self.clocked_reads == 1 else COPIES

    @property
    def bits(self) -> int:
        """Bits of all instances; none if they are flip-flops."""
        return self.count * self.words * self.width if self.kind != FLIP_FLOPS else 0

    @property
    def macro_bits(self) -> int:
        """Bits of its SRAM macros, copies included."""
        return self.bits * self.clocked_reads if self.kind in (MACRO, COPIES) else 0

    @property
    def sram(self) -> Sram | None:
        """Return one of them as macros; None if it is something else."""
        return Sram(self.words, self.width, self.clocked_reads) if self.kind in (MACRO, COPIES) else None

    def macro_um2(self, node: ProcessNode) -> float:
        """Area of all its macros."""
        return self.count * self.sram.um2(node) if self.sram else 0.0

    def gate_equivalents(self, library: Library) -> float:
        """Return what the mapped cells do not count: a register file, and what writes through around a macro."""
        flip_flop, nand = library.flip_flop.area, library.nand2.area
        multiplexer = _NANDS_PER_MULTIPLEXER * nand
        if self.kind == FILE:
            word = self.width * (flip_flop + self.unclocked_reads * multiplexer) + flip_flop + 2 * nand  # a gated clock
            return self.count * self.words * word / nand
        if self.kind in (MACRO, COPIES):
            address = (self.words - 1).bit_length()  # compared; the word is kept, and chosen
            port = (self.width + 1) * flip_flop + self.width * multiplexer + address * multiplexer
            return self.count * self.write_through * port / nand
        return 0.0


def memories_of(block: str, geometry: Geometry) -> tuple[MemoryUse, ...]:
    """Return the memories of a block and of all in it, by name."""
    counts = Counter((_NUMBER.sub("", name), *ports) for name, *ports in memory_ports(block, geometry))
    return tuple(MemoryUse(name, count, *ports) for (name, *ports), count in sorted(counts.items()))
