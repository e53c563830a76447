"""Arbitration by who is late, the GEMM or the ring: that of "T3-MCA+"."""

from amaranth.hdl import Module, Signal

from .policy import THRESHOLD_NONE, Policy


class RingAware(Policy):
    """Turns while the ring is behind the GEMM, compute first while it is not.

    Of GEMM and ring the one that is behind decides when the fused kernel ends, so it must not wait for the other.
    While the ring keeps up, everything is as under `Mca`: compute first, communication below the threshold,
    communication first when it is starved or the producer has ended. While it is behind, the streams alternate
    as under `RoundRobin`, whatever the threshold.

    Members
    -------
    Those of `Policy`.
    """

    def elaborate(self, platform) -> Module:
        m = Module()
        allowed = Signal()
        first = Signal()
        m.d.comb += [
            allowed.eq(self.ring_late | (self.threshold == THRESHOLD_NONE) | (self.occupancy < self.threshold)),
            first.eq(self.starved | self.drain | (self.ring_late & ~self.last_communication)),
            self.grant_communication.eq(self.communication_valid & (first | (~self.compute_valid & allowed))),
            self.grant_compute.eq(self.compute_valid & ~self.grant_communication),
        ]
        return m
