"""What decides how many wavefronts a compute unit holds at once."""

from math import ceil

from t3sim.machine.section import Count, Section


class Wavefronts(Section):
    """Places for wavefronts, and the registers that they share."""

    wavefronts_per_cu: Count
    registers_per_lane: Count  #: of all wavefronts on a SIMD unit together
    simd_units: Count
    register_step: Count  #: registers are given out in so many
    plain_registers: Count  #: of a kernel that pools embeddings
    loads_at_once: Count  #: of a wavefront, while it adds up rows

    def held(self, registers: int) -> int:
        """Return how many wavefronts with so many registers a compute unit holds."""
        each = ceil(registers / self.register_step) * self.register_step
        return min(self.wavefronts_per_cu, self.registers_per_lane // each * self.simd_units)
