"""The arbiter, under each of its policies, and how long ring-aware arbitration lets communication wait."""

from types import ModuleType

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from t3sim.rtl.arbiter import OVERTAKEN_AT, POLICIES
from t3sim.rtl.arbiter.arbiter import STARVATION_BITS
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies
from t3sim.testbenches.geometries import GEOMETRIES

#: Opportunities (cycles in which communication could go) that a policy may still give to compute once communication
#: last went the starvation limit ago, or since the producer has ended. None: it may wait for ever. A policy that is
#: not named here must give none.
PASSED_OVER = {
    "round_robin": 1,  # it alternates, whatever the limit
    "compute_first": None,  # the paper's "insufficient" alternative
    "ring_aware": None,  # no limit; `passed_by_stages` and `overtaken` say what bounds its waits
}
EMPTY = "is granted when compute has no request"
DRAINS = "goes in the drain"
TURN = "is granted at the second opportunity while the ring is late"
STAGES = "while a command waits, at most two stages of workgroups and one more request are granted first"
OVERTAKEN = "at most so many requests of any kernel are granted first"
CATCHES_UP = "is granted at every second opportunity from then on, until none waits"
_FEW = 4
_REQUESTS_BITS = 2  #: of what a workgroup asks a channel for; no state of the hardware depends on it


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
        # Cycles since communication last went, and how often since then compute went when communication could have.
        elapsed = Signal(STARVATION_BITS + 1)
        passed, passed_in_drain = Signal(2), Signal(2)
        spec.assume(implies(a.communication_valid, a.communication_waiting))
        opportunity = a.communication_valid & a.ready
        starved = (limit != 0) & (elapsed >= limit)
        with m.If(a.grant_communication):
            m.d.sync += [elapsed.eq(0), passed.eq(0), passed_in_drain.eq(0)]
        with m.Else():
            m.d.sync += elapsed.eq(elapsed + ~elapsed[-1])
            m.d.sync += passed.eq(passed + (starved & opportunity & ~passed.all()))
            m.d.sync += passed_in_drain.eq(passed_in_drain + (a.drain & opportunity & ~passed_in_drain.all()))
        spec.claim("goes at the limit", implies(
            starved & opportunity & (passed == passed_over), a.grant_communication))
        spec.claim("goes in the drain", implies(
            a.drain & opportunity & (passed_in_drain == passed_over), a.grant_communication))

        counter, last = spec.inside("elapsed"), spec.inside("last_communication")
        spec.invariant(counter == Mux(elapsed < limit, elapsed, limit))
        spec.invariant((passed <= passed_over) & (passed_in_drain <= passed_over))
        if passed_over:  # it went past, so the last grant was compute's
            spec.invariant(implies((passed != 0) | (passed_in_drain != 0), ~last))
    return specify


class _LateRing(wiring.Component):
    """A ring monitor and the arbiter of one of its channels, wired as in `GpuTop`."""

    def __init__(self, package: ModuleType, geometry: Geometry) -> None:
        super().__init__({})
        self.monitor = package.blocks.BLOCKS["ring_monitor"](geometry)
        self.arbiter = package.blocks.BLOCKS["arbiter"](geometry)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.monitor, m.submodules.arbiter = self.monitor, self.arbiter
        m.d.comb += self.arbiter.ring_late.eq(self.monitor.late)
        return m


def passed_by_stages(spec: Spec, geometry: Geometry) -> None:
    """Claim how many compute requests go before the oldest communication request, under ring-aware arbitration.

    `may` is what running workgroups may still ask this channel for: at its start a workgroup adds `each`, a grant takes
    one away, and a workgroup may leave some. `passed` and `started` count while it waits and a command, too; `turns`,
    of those that passed it, while the ring is late.

    Assumed: at most a stage of workgroups runs, and none asks for more than `each`.
    """
    m, monitor, a = spec.m, spec.design.monitor, spec.design.arbiter
    each, stage = spec.any_constant(_REQUESTS_BITS), spec.any_constant(geometry.tracker.wg_bits)
    driven = {"stage": stage, "policy": POLICIES["ring_aware"].code, "ring_late": monitor.late}
    for block in (monitor, a):
        for name, member in block.signature.members.items():
            if member.flow == In and name != "ring_late":
                port = getattr(block, name)
                spec.connect(port, driven.get(name, spec.any_sequence(Value.cast(port).shape())))
    may, passed, started = (Signal(geometry.tracker.wg_bits + _REQUESTS_BITS + 3, name=name)
                            for name in ("may", "passed", "started"))
    turns = Signal(2)
    spec.assume(implies(a.compute_valid, may != 0) & implies(a.communication_valid, a.communication_waiting))
    left, after = spec.any_sequence(len(may)), may - a.grant_compute + Mux(monitor.started, each, 0)
    spec.assume((left <= after) & (after - left <= each * stage))
    m.d.sync += may.eq(after - left)

    goes_first = a.communication_valid & a.grant_compute
    with m.If(a.communication_waiting & ~a.grant_communication):
        m.d.sync += turns.eq(Mux(monitor.late, turns + (goes_first & ~turns.all()), 0))
        with m.If(monitor.pending & ~monitor.restart):
            m.d.sync += [started.eq(started + (monitor.started & ~started.all())),
                         passed.eq(passed + (goes_first & ~passed.all()))]
        with m.Else():
            m.d.sync += [started.eq(0), passed.eq(0)]
    with m.Else():
        m.d.sync += [started.eq(0), passed.eq(0), turns.eq(0)]
    opportunity = a.communication_valid & a.ready
    spec.claim(EMPTY, implies(opportunity & ~a.compute_valid, a.grant_communication))
    spec.claim(DRAINS, implies(opportunity & a.drain, a.grant_communication))
    spec.claim(TURN, implies(opportunity & monitor.late & (turns != 0), a.grant_communication))
    spec.claim(STAGES, passed <= each * (2 * stage + 1) + 1)

    since, last = spec.inside("since_idle", monitor), spec.inside("last_communication", a)
    spec.invariant((may <= each * stage) & (turns <= 1))
    spec.invariant(implies(turns != 0, ~last))
    spec.invariant(since.all() | (started <= since))
    spec.invariant(implies(~monitor.late, since <= stage + 1))
    spec.invariant(started.all() | (passed + may <= each * (stage + started)))
    spec.invariant(passed <= each * (2 * stage + 1) + turns)


def overtaken(spec: Spec, _) -> None:
    """Claim how many compute requests go first under ring-aware arbitration, whatever compute units ask for.

    `passed`: since communication last went, or had nothing. `late`: it was so many, and since then some has waited.
    """
    m, a, most = spec.m, spec.design, spec.design.overtaken_at
    spec.connect(a.policy, POLICIES["ring_aware"].code)
    spec.assume(implies(a.communication_valid, a.communication_waiting))
    passed, late = Signal(range(most + 2)), Signal()
    goes_first = a.communication_valid & a.grant_compute
    with m.If(a.grant_communication | ~a.communication_waiting):
        m.d.sync += passed.eq(0)
    with m.Elif(goes_first & (passed <= most)):
        m.d.sync += passed.eq(passed + 1)
    m.d.sync += late.eq(a.communication_waiting & (late | (
        goes_first & ~a.grant_communication & (passed == most - 1))))
    spec.claim(OVERTAKEN, passed <= most)
    spec.claim(CATCHES_UP, implies(late & (passed != 0) & a.communication_valid & a.ready, a.grant_communication))

    counter, last = spec.inside("overtakes"), spec.inside("last_communication")
    spec.invariant(implies(passed != 0, ~last))
    spec.invariant(late == (counter == most))
    spec.invariant(late | (counter == passed))


def _soon(package: ModuleType, geometry: Geometry) -> wiring.Component:
    """Make an arbiter in which few requests overtake on `small`, for the search of what is broken."""
    few = {"overtaken_at": _FEW} if geometry == GEOMETRIES["small"] else {}
    return package.arbiter.arbiter.Arbiter(geometry, **few)


#: For policies that listen to `starved` and `drain`.
_LISTENING = (
    Broken("the count stands still", "goes at the limit", "arbiter/arbiter.py",
           "elapsed.eq(elapsed + 1)", "elapsed.eq(elapsed)"),
    Broken("only cycles in which a request waits count", "goes at the limit", "arbiter/arbiter.py",
           "m.If(below_limit)", "m.If(below_limit & self.communication_waiting)"),
    Broken("the policy does not see the drain", "goes in the drain", "arbiter/arbiter.py",
           "self.starved, self.drain", "self.starved, 0"),
)

#: For policies that take turns.
_ALTERNATING = tuple(
    Broken("the turn stays with compute", claim, "arbiter/arbiter.py", "last_communication.eq(0)",
           "last_communication.eq(1)") for claim in ("goes at the limit", "goes in the drain"))


def properties() -> list[Property]:
    found = [Property(
        "grants", "arbiter",
        "at most one grant per cycle, never to an empty queue or into a full one; the drain empties communication",
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
            f"communication is granted at opportunity {bound + 1} after the starvation limit or the start of the drain",
            waiting(code, bound), _ALTERNATING if bound else _LISTENING, quick=True))

    def broken(what: str, claim: str, old: str, new: str, file: str = "arbiter/ring_aware.py") -> Broken:
        return Broken(what, claim, file, old, new)

    in_time = "view.ring_late & ~view.last_communication"
    return [*found, Property(
        "passed by stages, ring_aware", "arbiter",
        "communication waits for requests of at most two stages of workgroups, and is granted when compute has none",
        passed_by_stages, (
            broken("a threshold holds communication back", EMPTY, "(first | ~view.compute_valid)",
                   "(first | (~view.compute_valid & (view.occupancy < view.threshold)))"),
            broken("the policy does not listen to the drain", DRAINS, "view.drain | ", ""),
            broken("a late ring has no turn", TURN, in_time, "0"),
            broken("a late ring has no turn", STAGES, in_time, "0"),
            broken("the turn stays with compute", TURN, "last_communication.eq(0)", "last_communication.eq(1)",
                   "arbiter/arbiter.py"),
            broken("the monitor counts no start", STAGES, "since_idle.eq(since_idle + 1)", "since_idle.eq(since_idle)",
                   "arbiter/ring_monitor.py"),
        ), geometry="least", reason="products of the default's counts were not solved in 5 minutes",
        searches=(Search("least"),), build=_LateRing, quick=True), Property(
        "overtaken, ring_aware", "arbiter",
        f"at most {OVERTAKEN_AT:,} compute requests, of any kernel, overtake communication; then the streams alternate",
        overtaken, (
            broken("what waits in the channel is not late", OVERTAKEN, "self.ring_late | overtaken", "self.ring_late",
                   "arbiter/arbiter.py"),
            broken("a grant ends the lateness", CATCHES_UP, "(self.grant_communication & ~overtaken)",
                   "self.grant_communication", "arbiter/arbiter.py"),
        ), quick=True, build=_soon, searches=(Search("small"),),
        unsearched=f"{OVERTAKEN_AT:,} requests take as many cycles; on `small` {_FEW} overtake")]
