"""The arbiter, under each of its policies."""

from amaranth.hdl import Mux, Signal

from t3sim.rtl.arbiter import POLICIES
from t3sim.rtl.arbiter.arbiter import STARVATION_BITS
from t3sim.rtl.geometry import Geometry

from .broken import Broken
from .property import Property, Search
from .spec import Spec, implies

#: Opportunities (cycles in which communication could go) that a policy may still give to compute after communication
#: has waited for the starvation limit, or since the producer has ended. None: it may wait for ever. A policy that is
#: not named here must give none.
PASSED_OVER = {
    "round_robin": 1,  # it alternates, whatever the limit
    "compute_first": None,  # the paper's "insufficient" alternative
    "debt": None,  # its bound is another one: `bursts`
}


def grants(spec: Spec, _) -> None:
    """Claim the grants under every value of the policy register, which may change in every cycle."""
    a = spec.design
    spec.claim("at most one grant", ~(a.grant_compute & a.grant_communication))
    spec.claim("no grant to an empty queue", implies(a.grant_compute, a.compute_valid))
    spec.claim("no grant to an empty queue", implies(a.grant_communication, a.communication_valid))
    spec.claim("no grant when the output is full", implies(a.grant_compute | a.grant_communication, a.ready))
    spec.claim("drain empties communication", implies(
        a.drain & a.communication_valid & ~a.compute_valid & a.ready, a.grant_communication))


def waiting(code: int, passed_over: int):
    """Claim bounds on waiting under policy number `code`."""
    def specify(spec: Spec, _) -> None:
        m, a = spec.m, spec.design
        limit = spec.any_constant(STARVATION_BITS)
        spec.connect(a.policy, code)
        spec.connect(a.starvation_limit, limit)
        # The oldest request that waits: since when, and how often compute went past it when it could have gone.
        waited = Signal(STARVATION_BITS + 1)
        passed, passed_in_drain = Signal(2), Signal(2)
        spec.assume(implies(a.communication_valid, a.communication_waiting))
        opportunity = a.communication_valid & a.ready
        starved = (limit != 0) & (waited >= limit)
        with m.If(a.grant_communication):
            m.d.sync += [waited.eq(0), passed.eq(0), passed_in_drain.eq(0)]
        with m.Else():
            m.d.sync += waited.eq(waited + (a.communication_waiting & ~waited[-1]))
            m.d.sync += passed.eq(passed + (starved & opportunity & ~passed.all()))
            m.d.sync += passed_in_drain.eq(passed_in_drain + (a.drain & opportunity & ~passed_in_drain.all()))
        spec.claim("goes at the limit", implies(
            starved & opportunity & (passed == passed_over), a.grant_communication))
        spec.claim("goes in the drain", implies(
            a.drain & opportunity & (passed_in_drain == passed_over), a.grant_communication))

        counter, last = spec.inside("waited"), spec.inside("last_communication")
        spec.invariant(counter == Mux(waited[-1], 2**len(counter) - 1, waited))
        spec.invariant((passed <= passed_over) & (passed_in_drain <= passed_over))
        if passed_over:  # it went past, so the last grant was compute's
            spec.invariant(implies((passed != 0) | (passed_in_drain != 0), ~last))
    return specify


def bursts(spec: Spec, geometry: Geometry) -> None:
    """Claim bounds on waiting under `debt`: it goes at the first opportunity after a burst's starvation limits."""
    m, a, code = spec.m, spec.design, POLICIES["debt"].code
    burst = geometry.channel.burst
    limit = spec.any_constant(STARVATION_BITS)
    spec.connect(a.policy, code)
    spec.connect(a.starvation_limit, limit)
    spec.assume(limit != 0)
    spec.assume(implies(a.communication_valid, a.communication_waiting))
    # The oldest request that waits: since how many limits, and how many cycles more.
    limits, cycles = Signal(range(burst + 1)), Signal(STARVATION_BITS)
    with m.If(a.grant_communication):
        m.d.sync += [limits.eq(0), cycles.eq(0)]
    with m.Elif(a.communication_waiting):
        with m.If(cycles == limit - 1):
            m.d.sync += [cycles.eq(0), limits.eq(limits + (limits != burst))]
        with m.Else():
            m.d.sync += cycles.eq(cycles + 1)
    opportunity = a.communication_valid & a.ready
    spec.claim("goes when a burst is owed", implies(opportunity & (limits == burst), a.grant_communication))
    spec.claim("goes in the drain", implies(opportunity & a.drain, a.grant_communication))

    debt, period, owed = spec.inside("debt"), spec.inside("period"), spec.inside("owed")
    spec.invariant(implies(debt >= burst, owed))
    spec.invariant((period != 0) & (period <= limit) & (cycles < limit))
    # The debt's own period has ended as often as the limit has passed, once more if it began earlier.
    spec.invariant((debt >= burst) | (debt >= limits + (period <= cycles)))


#: For policies that listen to `starved` and `drain`.
_LISTENING = (
    Broken("the waiting time stands still", "goes at the limit", "arbiter/arbiter.py",
           "waited.eq(waited + 1)", "waited.eq(waited)"),
    Broken("the policy is not told of the drain", "goes in the drain", "arbiter/arbiter.py",
           "owed, self.drain", "owed, 0"),
)

#: For the one that goes by `owed`.
_OWING = (
    Broken("the debt stands still", "goes when a burst is owed", "arbiter/arbiter.py",
           "waits.eq(debt + (grows & ~debt.all()))", "waits.eq(debt)"),
    Broken("a burst is owed a request too late", "goes when a burst is owed", "arbiter/arbiter.py",
           "return (debt >= burst)", "return (debt > burst)"),
    Broken("the policy is not told of the drain", "goes in the drain", "arbiter/arbiter.py",
           "owed, self.drain", "owed, 0"),
)

#: For policies that take turns.
_ALTERNATING = tuple(
    Broken("the turn stays with compute", claim, "arbiter/arbiter.py", "last_communication.eq(0)",
           "last_communication.eq(1)") for claim in ("goes at the limit", "goes in the drain"))


def properties() -> list[Property]:
    found = [Property(
        "grants", "arbiter", "at most one grant, never to an empty queue or into a full one; drain empties",
        grants,
        (Broken("MCA grants compute beside a starved communication", "at most one grant", "arbiter/mca.py",
                "view.compute_valid & ~communication", "view.compute_valid"),
         Broken("round robin takes its turn without a request", "no grant to an empty queue",
                "arbiter/round_robin.py", "view.communication_valid & ~(", "~("),
         Broken("policies do not see a full output", "no grant when the output is full", "arbiter/arbiter.py",
                "self.compute_valid & self.ready", "self.compute_valid"),
         Broken("MCA's threshold counts in the drain", "drain empties communication", "arbiter/mca.py",
                "view.starved | view.drain |", "view.starved |")),
        quick=True)]
    for code, name in enumerate(POLICIES):
        bound = PASSED_OVER.get(name, 0)
        if bound is None:
            continue
        found.append(Property(
            f"waiting, {name}", "arbiter",
            f"communication goes at opportunity {bound + 1} after the starvation limit, and of the drain",
            waiting(code, bound), _ALTERNATING if bound else _LISTENING, quick=True))
    found.append(Property(
        "waiting, debt", "arbiter",
        "communication goes at the first opportunity after as many starvation limits as a burst has requests, and of "
        "the drain", bursts, _OWING, quick=True,
        searches=(Search("small"), Search("default", depth=40))))  # a burst's limits of one cycle each, and the reset
    return found
