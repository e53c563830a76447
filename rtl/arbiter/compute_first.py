"""Strict priority for compute."""

from amaranth.hdl import Module

from .policy import Policy


class ComputeFirst(Policy):
    """Communication goes only when compute is empty: the paper's "insufficient" alternative (section 4.5).

    Members
    -------
    Those of `Policy`. Occupancy, threshold, starvation and drain have no influence.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [
            self.grant_compute.eq(self.compute_valid),
            self.grant_communication.eq(self.communication_valid & ~self.compute_valid),
        ]
        return m
