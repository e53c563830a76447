"""Arbiter against its cycle-exact model, and each limit exactly at its border."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from t3sim.rtl.arbiter import POLICIES, THRESHOLD_NONE, Policy, View
from t3sim.rtl.arbiter.arbiter import Arbiter
from t3sim.rtl.arbiter.policies import table
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.testbenches.reference import arbiter as reference
from t3sim.testbenches.reference.arbiter import ArbiterModel, Inputs
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl

CODE = {name: code for code, name in enumerate(POLICIES)}
IDLE = {"policy": 0, "threshold": THRESHOLD_NONE, "starvation_limit": 0, "drain": 0, "ring_late": 0,
        "compute_valid": 0, "communication_valid": 0, "communication_waiting": 0, "ready": 1, "occupancy": 0}


def simulate(testbench, geometry=None):
    """Runs `testbench(ctx, step, reset)`; `step(**inputs)` is one cycle and returns its outputs."""
    dut = once(Arbiter, geometry or Geometry())
    simulated = simulation(dut)

    async def run(ctx):
        async def step(**inputs):
            for name, value in {**IDLE, **inputs}.items():
                ctx.set(getattr(dut, name), value)
            seen = reference.Decision(ctx.get(dut.grant_compute), ctx.get(dut.grant_communication),
                                      ctx.get(dut.starved))
            await ctx.tick()
            return seen

        await testbench(ctx, step, simulated.reset)

    simulated.add_testbench(run)
    simulated.run()


def test_codes_are_fixed():
    """Each policy keeps its register code, because drivers contain it."""
    assert [(policy.name, policy.code) for policy in POLICIES.values()] == [
        ("round_robin", 0), ("compute_first", 1), ("mca", 2), ("ring_aware", 3)]


def test_a_table_with_a_mistake_is_refused():
    """A table of policies with a wrong entry raises an error that names it."""
    mca, turns = POLICIES["mca"], POLICIES["round_robin"]
    with pytest.raises(ValueError, match="policy 'mca' has code 2: at its place it needs 1"):
        table((turns, mca))
    with pytest.raises(ValueError, match="2 policies of 1 names"):
        table((turns, replace(turns, code=1)))
    with pytest.raises(ValueError, match="17 policies of 17 names: allowed are 16"):
        table([replace(turns, code=code, name=f"p{code}") for code in range(17)])
    with pytest.raises(ValueError, match="policy 'mca' goes by 'weather', which a policy does not see: allowed are"):
        replace(mca, goes_by=("weather",))


def views() -> Iterator[View]:
    """Everything that a policy may see, with occupancies and thresholds on both sides of each other."""
    bit = (0, 1)
    for compute, communication in ((0, 1), (1, 0), (1, 1)):
        for rest in product(bit, (0, 1, 5, 6), (0, 1, 5, THRESHOLD_NONE), bit, bit, bit):
            yield View(compute, communication, *rest)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_gives_the_reasons_and_goes_by_the_signals_that_its_record_names(policy: Policy):
    """Tried with every input that a policy may see."""
    given = {policy.decide(view)[1] for view in views()}
    assert given == set(policy.reasons) and all(reason.text for reason in given)
    moved = {name for view in views() for name in View._fields[2:]
             for other in (0, 1, 5, 6, THRESHOLD_NONE)[:2 if name not in ("occupancy", "threshold") else None]
             if policy.decide(view)[0] != policy.decide(view._replace(**{name: other}))[0]}
    assert moved == set(policy.goes_by)


@pytest.mark.parametrize("policy", [one for one in POLICIES.values() if one.in_drain], ids=lambda one: one.name)
def test_a_policy_decides_like_the_one_that_its_record_names_in_the_drain(policy: Policy):
    """Tried with every input that a policy may see."""
    other = POLICIES[policy.in_drain]
    assert all(policy.decide(view)[0] == other.decide(view)[0] for view in views() if view.drain)
    assert any(policy.decide(view)[0] != other.decide(view)[0] for view in views() if not view.drain)


@pytest.mark.parametrize("policy", [*POLICIES, "changing"])
@pytest.mark.parametrize("queue_entries, seed", [(64, 1), (127, 2), (4, 3)])
def test_random_traffic_matches_the_model(policy, queue_entries, seed):
    """Every policy, with random requests and occupancies near the threshold, cycle by cycle."""
    rng = random.Random(f"{policy} {seed}")
    geometry = Geometry(channel=ChannelGeometry(queue_entries=queue_entries))
    kinds = set()

    async def testbench(ctx, step, reset):
        model = ArbiterModel()
        config = {}
        for cycle in range(1500):
            if cycle % 50 == 0:
                config = {
                    "policy": rng.randrange(len(POLICIES)) if policy == "changing" else CODE[policy],
                    "threshold": rng.choice((0, 1, 3, 5, 15, THRESHOLD_NONE)),
                    "starvation_limit": rng.choice((0, 1, 2, 7, 30)),
                    "drain": int(rng.random() < 0.2),
                }
                busy, talk, go = (rng.choice((0.1, 0.5, 0.95)) for _ in range(3))
                idle = rng.choice((0, 0.5, 1))
            near = config["threshold"] + rng.randrange(-2, 3)
            waiting = int(rng.random() < talk)
            inputs = {
                **config,
                "ring_late": int(rng.random() < idle),
                "compute_valid": int(rng.random() < busy),
                "communication_waiting": waiting,
                "communication_valid": int(waiting and rng.random() < 0.8),
                "ready": int(rng.random() < go),
                "occupancy": min(max(near if rng.random() < 0.7 else rng.randrange(128), 0), queue_entries + 1),
            }
            seen = await step(**inputs)
            if rng.random() < 0.005:
                ctx.set(reset, 1)
                await step(**inputs)
                ctx.set(reset, 0)
                expected = model.step(Inputs(**inputs))
                model = ArbiterModel()
            else:
                expected = model.step(Inputs(**inputs))
            assert seen == expected, f"cycle {cycle}: {inputs}"
            kinds.add(seen)

    simulate(testbench, geometry)
    assert {kind[:2] for kind in kinds} == {(0, 0), (0, 1), (1, 0)}
    assert {kind.starved for kind in kinds} == {0, 1}


@pytest.mark.parametrize("limit", [1, 2, 20, 300])
@pytest.mark.parametrize("held_by", ["compute", "threshold"])
def test_starvation_exactly_at_the_limit(limit, held_by):
    """Limits from 1 up: communication is granted in the limit's cycle and not before."""
    async def testbench(ctx, step, reset):
        wait = {"policy": CODE["mca"], "starvation_limit": limit, "communication_valid": 1, "communication_waiting": 1,
                "compute_valid": int(held_by == "compute"), "threshold": 5, "occupancy": 5}
        for _ in range(3):  # and again after each grant
            for cycle in range(limit):
                assert not (await step(**wait)).grant_communication, f"too early: cycle {cycle}"
            assert await step(**wait) == (0, 1, 1), "not at the limit"

    simulate(testbench)


@pytest.mark.parametrize("pause", [{"ready": 0, "communication_valid": 1, "communication_waiting": 1},
                                   {"communication_waiting": 1}, {}], ids=["full", "guarded", "nothing waits"])
def test_every_cycle_since_communication_last_went_counts(pause):
    """Cycles without a waiting request count, so a request after a long pause has priority at once."""
    async def testbench(ctx, step, reset):
        mca = {"policy": CODE["mca"], "starvation_limit": 4, "compute_valid": 1}
        both = {**mca, "communication_valid": 1, "communication_waiting": 1}
        for cycles in (3, 4, 30):
            for cycle in range(cycles):
                assert await step(**{**mca, **pause}) == (pause.get("ready", 1), 0, cycle >= 4)
            if cycles < 4:
                assert await step(**both) == (1, 0, 0), "too early"
            assert await step(**both) == (0, 1, 1)

    simulate(testbench)


def test_limit_zero_never_starves_and_the_count_stands_still_at_a_limit():
    """Long waits: with limit 0 there is no grant, and the count does not wrap."""
    async def testbench(ctx, step, reset):
        wait = {"policy": CODE["mca"], "compute_valid": 1, "communication_valid": 1, "communication_waiting": 1}
        assert await step(**wait) == (1, 0, 0)
        await ctx.tick().repeat(65_600)
        wait.update(policy=CODE["compute_first"], starvation_limit=65535)
        assert await step(**wait) == (1, 0, 0), "none is counted without a limit"
        await ctx.tick().repeat(65_533)
        assert await step(**wait) == (1, 0, 0)
        await ctx.tick().repeat(100)
        for policy, granted in (("compute_first", 0), ("mca", 1)):
            assert await step(**{**wait, "policy": CODE[policy]}) == (1 - granted, granted, 1)

    simulate(testbench)


@pytest.mark.parametrize("threshold", [0, 1, 3, 5, 15, 126])
def test_threshold_exactly_at_its_border(threshold):
    """MCA grants communication at occupancy threshold - 1 and refuses it at the threshold."""
    async def testbench(ctx, step, reset):
        ask = {"policy": CODE["mca"], "communication_valid": 1, "threshold": threshold}
        assert (await step(**ask, occupancy=threshold)).grant_communication == 0
        if threshold:
            assert (await step(**ask, occupancy=threshold - 1)).grant_communication == 1
        assert (await step(**ask, occupancy=threshold, drain=1)).grant_communication == 1
        assert (await step(**ask, occupancy=threshold - 1 if threshold else 0, compute_valid=1)) == (1, 0, 0)

    simulate(testbench, Geometry(channel=ChannelGeometry(queue_entries=127)))


def test_without_a_threshold_any_occupancy_will_do():
    """Without a threshold MCA grants communication at every occupancy."""
    async def testbench(ctx, step, reset):
        for occupancy in (126, 127, 128):
            assert (await step(policy=CODE["mca"], communication_valid=1, threshold=THRESHOLD_NONE,
                               occupancy=occupancy)).grant_communication

    simulate(testbench, Geometry(channel=ChannelGeometry(queue_entries=127)))


@pytest.mark.parametrize("policy", ["mca", "ring_aware"])
def test_drain_puts_communication_first(policy):
    """After the producer's end communication goes first, even above the threshold."""
    async def testbench(ctx, step, reset):
        both = {"compute_valid": 1, "communication_valid": 1, "communication_waiting": 1, "threshold": 0}
        for _ in range(4):
            assert await step(policy=CODE[policy], drain=1, **both) == (0, 1, 0)
        assert await step(policy=CODE[policy], drain=1, compute_valid=1) == (1, 0, 0)
        assert await step(policy=CODE[policy], drain=0, **both) == (1, 0, 0)

    simulate(testbench)


def test_a_late_ring_gets_every_other_turn_and_one_in_time_what_compute_leaves():
    """Ring-aware, with and without compute requests, whatever threshold and starvation limit."""
    async def testbench(ctx, step, reset):
        both = {"policy": CODE["ring_aware"], "compute_valid": 1, "communication_valid": 1, "communication_waiting": 1,
                "occupancy": 9, "threshold": 5, "starvation_limit": 1}
        assert [(await step(**both))[:2] for _ in range(3)] == [(1, 0)] * 3
        assert [(await step(**both, ring_late=1))[:2] for _ in range(4)] == [(0, 1), (1, 0)] * 2
        assert [(await step(**both))[:2] for _ in range(3)] == [(1, 0)] * 3
        alone = {**both, "compute_valid": 0}
        assert [(await step(**alone, ring_late=late))[:2] for late in (1, 1, 0)] == [(0, 1)] * 3

    simulate(testbench)


def test_what_compute_overtakes_in_the_channel_is_late_until_it_has_caught_up():
    """Checked at the exact number of grants, at one fewer, with a grant between, and with blocked requests."""
    async def testbench(ctx, step, reset):
        model = ArbiterModel()

        async def grants(cycles: int, **inputs) -> list[tuple[int, int]]:
            found = []
            for _ in range(cycles):
                asked = {**IDLE, "policy": CODE["ring_aware"], "compute_valid": 1, "communication_valid": 1,
                         "communication_waiting": 1, **inputs}
                seen = await step(**asked)
                assert seen == model.step(Inputs(**asked))
                found.append(seen[:2])
            return found

        most = reference.OVERTAKEN_AT
        assert most < 3500, "what waits beside a kernel that reads in every cycle goes in 3,500 of them"
        for held_up in ({"ready": 0}, {"communication_valid": 0}):  # not by compute
            assert (0, 1) not in await grants(100, **held_up)
        assert await grants(most - 1) == [(1, 0)] * (most - 1)
        assert await grants(1, compute_valid=0) == [(0, 1)], "a grant"
        assert await grants(most) == [(1, 0)] * most
        assert await grants(9) == [(0, 1), (1, 0)] * 4 + [(0, 1)], "late, and still so after a grant"
        assert await grants(2, communication_valid=0) == [(1, 0)] * 2
        assert await grants(2) == [(0, 1), (1, 0)], "still, as long as one waits"
        assert await grants(1, communication_valid=0, communication_waiting=0) == [(1, 0)]
        assert await grants(most) == [(1, 0)] * most, "it has caught up"
        assert await grants(2) == [(0, 1), (1, 0)]

    simulate(testbench)


@pytest.mark.parametrize("policy", ["round_robin", "mca", "ring_aware"])
def test_no_kernel_keeps_communication_waiting_for_ever(policy):
    """Another kernel requests in every cycle. Only compute-first lets communication wait, as the paper says."""
    async def testbench(ctx, step, reset):
        both = {"policy": CODE[policy], "compute_valid": 1, "communication_valid": 1, "communication_waiting": 1,
                "threshold": 5, "occupancy": 9, "starvation_limit": 64}
        waits = [0]
        for _ in range(3 * reference.OVERTAKEN_AT):
            waits = [*waits[:-1], waits[-1] + 1] if not (await step(**both)).grant_communication else [*waits, 0]
        assert len(waits) > 2 and max(waits) <= reference.OVERTAKEN_AT

    simulate(testbench)


def test_round_robin_alternates_and_falls_back():
    """With both sides the grants alternate; with one side it has every grant."""
    async def testbench(ctx, step, reset):
        both = {"compute_valid": 1, "communication_valid": 1}
        assert [(await step(**both))[:2] for _ in range(4)] == [(1, 0), (0, 1)] * 2
        assert (await step(**both, ready=0))[:2] == (0, 0)
        assert (await step(**both))[:2] == (1, 0), "a cycle without a grant is nobody's turn"
        assert [(await step(compute_valid=1))[:2] for _ in range(3)] == [(1, 0)] * 3
        assert (await step(**both))[:2] == (0, 1)

    simulate(testbench)
