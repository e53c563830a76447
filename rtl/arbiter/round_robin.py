"""Round-robin with fall-back: the arbitration of "T3" without MCA."""

from amaranth.hdl import Module

from .policy import Policy


class RoundRobin(Policy):
    """The streams alternate; if one is empty the other goes (T3 paper, section 4.5).

    Members
    -------
    Those of `Policy`. Occupancy, threshold, starvation and drain have no influence.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [
            self.grant_compute.eq(self.compute_valid & (self.last_communication | ~self.communication_valid)),
            self.grant_communication.eq(self.communication_valid & ~(self.last_communication & self.compute_valid)),
        ]
        return m
