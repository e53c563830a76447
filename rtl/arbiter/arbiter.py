"""The memory channel's arbiter: selects a policy and keeps the state that policies share."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..geometry import Geometry
from .compute_first import ComputeFirst
from .mca import Mca
from .policy import THRESHOLD_BITS
from .ring_aware import RingAware
from .round_robin import RoundRobin

POLICY_BITS = 2
STARVATION_BITS = 16

#: Register value = position. A new policy is a file in this folder and a line here.
POLICIES = {
    "round_robin": RoundRobin,
    "compute_first": ComputeFirst,
    "mca": Mca,
    "ring_aware": RingAware,
}


class Arbiter(wiring.Component):
    """Grants one of two streams per cycle (T3 paper, section 4.5).

    The starvation counter counts cycles in which communication waits without a grant, whatever the
    reason (compute, a full DRAM queue, the order guard); a grant clears it. `starved` rises when the count
    has reached the limit: with limit t, a request that waits since cycle 0 is refused in cycle t - 1 and
    goes first in cycle t. The count saturates at 65535. MCA and ring-aware listen to it.

    Members
    -------
    policy : In(2)
        Position in `POLICIES`.
    threshold : In(7)
        Entries of the DRAM queue, 127: none.
    starvation_limit : In(16)
        Cycles; 0: never starved.
    drain : In(1)
        The producer kernel has ended.
    ring_late : In(1)
        The ring is behind the GEMM.
    compute_valid, communication_valid : In(1)
        A request of this stream could be taken, the output aside.
    communication_waiting : In(1)
        A communication request is there, even if something holds it back.
    ready : In(1)
        The output can take a request. No grant without it.
    occupancy : In(occupancy_bits + 1)
        Entries of the DRAM queue in use, the request on its way there included.
    grant_compute, grant_communication : Out(1)
        At most one; the request moves in this cycle.
    starved : Out(1)
    """

    def __init__(self, geometry: Geometry) -> None:
        assert len(POLICIES) <= 2**POLICY_BITS
        self._geometry = geometry
        super().__init__({
            "policy": In(POLICY_BITS),
            "threshold": In(THRESHOLD_BITS),
            "starvation_limit": In(STARVATION_BITS),
            "drain": In(1),
            "ring_late": In(1),
            "compute_valid": In(1),
            "communication_valid": In(1),
            "communication_waiting": In(1),
            "ready": In(1),
            "occupancy": In(geometry.channel.occupancy_bits + 1),
            "grant_compute": Out(1),
            "grant_communication": Out(1),
            "starved": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        last_communication = Signal(init=1)  # compute has the first turn
        waited = Signal(STARVATION_BITS)
        m.d.comb += self.starved.eq((self.starvation_limit != 0) & (waited >= self.starvation_limit))

        policies = [policy(self._geometry) for policy in POLICIES.values()]
        for name, policy in zip(POLICIES, policies, strict=True):
            m.submodules[name] = policy
            m.d.comb += [
                policy.compute_valid.eq(self.compute_valid & self.ready),
                policy.communication_valid.eq(self.communication_valid & self.ready),
                policy.last_communication.eq(last_communication),
                policy.occupancy.eq(self.occupancy),
                policy.threshold.eq(self.threshold),
                policy.ring_late.eq(self.ring_late),
                policy.starved.eq(self.starved),
                policy.drain.eq(self.drain),
            ]
        grants = [policy.grant_compute | policy.grant_communication << 1 for policy in policies]
        grant = grants[0]
        for code, candidate in enumerate(grants[1:], start=1):
            grant = Mux(self.policy == code, candidate, grant)
        m.d.comb += [
            self.grant_compute.eq(grant[0]),
            self.grant_communication.eq(grant[1]),
        ]

        with m.If(self.grant_communication):
            m.d.sync += [last_communication.eq(1), waited.eq(0)]
        with m.Else():
            with m.If(self.grant_compute):
                m.d.sync += last_communication.eq(0)
            with m.If(self.communication_waiting & ~waited.all()):
                m.d.sync += waited.eq(waited + 1)
        return m
