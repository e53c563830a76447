"""Communication-aware arbitration: "T3-MCA"."""

from amaranth.hdl import Module, Signal

from .policy import THRESHOLD_NONE, Policy


class Mca(Policy):
    """Compute first; communication while the DRAM queue is short (T3 paper, section 4.5).

    Communication goes if compute is empty and the occupancy is below the threshold. When it is starved,
    or when the producer has ended (`drain`), it goes first and the threshold does not count.

    Members
    -------
    Those of `Policy`.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        below = Signal()
        m.d.comb += [
            below.eq((self.threshold == THRESHOLD_NONE) | (self.occupancy < self.threshold)),
            self.grant_communication.eq(
                self.communication_valid & (self.starved | self.drain | (~self.compute_valid & below))),
            self.grant_compute.eq(self.compute_valid & ~self.grant_communication),
        ]
        return m
