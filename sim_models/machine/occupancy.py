"""Limits of how many wavefronts a compute unit holds at once."""

from math import ceil
from typing import Annotated

from t3sim.machine.section import Section, within


class Wavefronts(Section):
    """Places for wavefronts, and the registers that they share."""

    wavefronts_per_cu: Annotated[int, within(1, 1024)]
    registers_per_lane: Annotated[int, within(1, 1 << 20)]  #: of all wavefronts on a SIMD unit together
    simd_units: Annotated[int, within(1, 64)]
    register_step: Annotated[int, within(1, 1 << 16)]  #: registers are given out in so many
    plain_registers: Annotated[int, within(1, 1 << 16)]  #: of a kernel that pools embeddings
    loads_at_once: Annotated[int, within(1, 1 << 16)]  #: of a wavefront, while it adds up rows

    def held(self, registers: int) -> int:
        """Return how many wavefronts with this many registers a compute unit holds."""
        each = ceil(registers / self.register_step) * self.register_step
        return min(self.wavefronts_per_cu, self.registers_per_lane // each * self.simd_units)
