"""The arbiter, under each of its policies."""

from amaranth.hdl import Mux, Signal

from t3sim.rtl.arbiter import POLICIES
from t3sim.rtl.arbiter.arbiter import STARVATION_BITS

from .broken import Broken
from .property import Property
from .spec import Spec, implies

#: Opportunities (cycles in which communication could go) that a policy may still give to compute after communication
#: has waited for the starvation limit, or since the producer has ended. None: it may wait for ever. A policy that is
#: not named here must give none.
PASSED_OVER = {
    "round_robin": 1,  # it alternates, whatever the limit
    "compute_first": None,  # the paper's "insufficient" alternative
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


#: For policies that listen to `starved` and `drain`.
_LISTENING = (
    Broken("the waiting time stands still", "goes at the limit", "arbiter/arbiter.py",
           "waited.eq(waited + 1)", "waited.eq(waited)"),
    Broken("the policy does not see the drain", "goes in the drain", "arbiter/arbiter.py",
           "self.starved, self.drain", "self.starved, 0"),
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
    return found
