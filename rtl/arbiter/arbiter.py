"""The memory channel's arbiter: applies a policy and keeps the state that policies share."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.arbiter.policies import POLICIES, POLICY_BITS
from t3sim.rtl.arbiter.policy import OVERTAKEN_AT, THRESHOLD_BITS, View
from t3sim.rtl.geometry import Geometry

STARVATION_BITS = 16


class Arbiter(wiring.Component):
    """Grants one of two streams per cycle (T3 paper, section 4.5).

    1. The starvation counter counts cycles since the last grant to communication, or since reset, even while no request
       waits, and stops at the limit. `starved` is 1 while it is at the limit: with limit t and a grant in cycle 0, a
       request may be refused up to cycle t and has priority from cycle t + 1 on. Each policy's record says whether it
       uses `starved`.
    2. Communication is late while the ring is, or while compute has overtaken it in this channel. That state begins
       after `overtaken_at` compute grants in cycles in which communication could be taken, without a grant to it in
       between, and ends when no communication waits. It covers waits in the channel and other kernels' requests, which
       the ring monitor does not see.

    Parameters
    ----------
    overtaken_at : int
        Compute requests.

    Members
    -------
    policy : In(POLICY_BITS)
        Code of a policy in `POLICIES`; an unused code acts as 0.
    threshold : In(7)
        Entries of the DRAM queue, 127: none.
    starvation_limit : In(16)
        Cycles; 0: never starved.
    drain : In(1)
        The producer kernel has ended.
    ring_late : In(1)
        The ring is behind the GEMM.
    compute_valid, communication_valid : In(1)
        A request of this stream could be taken, apart from `ready`.
    communication_waiting : In(1)
        A communication request waits, even if it is blocked.
    ready : In(1)
        The output can take a request. No grant without it.
    occupancy : In(occupancy_bits + 1)
        Entries of the DRAM queue in use, including the request on its way there.
    grant_compute, grant_communication : Out(1)
        At most one; the request moves in this cycle.
    """

    def __init__(self, geometry: Geometry, *, overtaken_at: int = OVERTAKEN_AT) -> None:
        self.overtaken_at = overtaken_at
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
        last_communication = Signal(init=1)  # so compute has the first turn
        elapsed = Signal(STARVATION_BITS)
        below_limit = Signal()
        m.d.comb += [below_limit.eq(elapsed < self.starvation_limit),
                     self.starved.eq((self.starvation_limit != 0) & ~below_limit)]

        overtakes = Signal(range(self.overtaken_at + 1))
        overtaken = Signal()
        late = Signal()
        m.d.comb += [overtaken.eq(overtakes == self.overtaken_at), late.eq(self.ring_late | overtaken)]
        with m.If(~self.communication_waiting | (self.grant_communication & ~overtaken)):
            m.d.sync += overtakes.eq(0)
        with m.Elif(self.grant_compute & self.communication_valid & ~overtaken):
            m.d.sync += overtakes.eq(overtakes + 1)

        compute = Signal()
        communication = Signal()
        m.d.comb += [
            compute.eq(self.compute_valid & self.ready),
            communication.eq(self.communication_valid & self.ready),
        ]
        view = View(compute, communication, last_communication, self.occupancy, self.threshold, late,
                    self.starved, self.drain)
        grants = []
        for policy in POLICIES.values():
            decided = Signal(2, name=policy.name)
            m.d.comb += [bit.eq(granted) for bit, granted in zip(decided, policy.grants(view), strict=True)]
            grants.append(decided)
        grant = grants[0]
        for code, candidate in enumerate(grants[1:], start=1):
            grant = Mux(self.policy == code, candidate, grant)
        m.d.comb += [
            self.grant_compute.eq(grant[0]),
            self.grant_communication.eq(grant[1]),
        ]

        with m.If(self.grant_communication):
            m.d.sync += [last_communication.eq(1), elapsed.eq(0)]
        with m.Else():
            with m.If(self.grant_compute):
                m.d.sync += last_communication.eq(0)
            with m.If(below_limit):
                m.d.sync += elapsed.eq(elapsed + 1)
        return m
