"""Arbiter against its cycle-exact model: every policy, near every limit, with resets in between."""

from t3sim.rtl import arbiter
from t3sim.rtl.registers import NO_THRESHOLD, POLICIES
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.arbiter import ArbiterModel, Decision, Inputs

_LISTENING = [policy.code for policy in arbiter.POLICIES.values() if policy.ends_starvation]
_LATE = [policy.code for policy in arbiter.POLICIES.values() if "ring_late" in policy.goes_by]


async def step(bench: Bench, model: ArbiterModel, inputs: dict[str, int]) -> Decision:
    """Run a cycle of both; they must decide alike."""
    for name, value in inputs.items():
        bench.set(name, value)
    await bench.settle()
    decision = Decision(*(bench.get(name) for name in Decision._fields))
    expected = model.step(Inputs(**inputs))
    assert decision == expected, f"cycle {bench.now}: expected {expected}, got {decision}; {inputs}"
    await bench.edge()
    return decision


@rounds(30, cover=("no grant", "compute", "communication", "starved"))
async def random_traffic(bench: Bench) -> None:
    """Run every policy under random requests and occupancies; compare each grant with the model."""
    rng, model, most = bench.rng, ArbiterModel(), bench.geometry.channel.queue_entries + 1
    busy, talk, go = (rng.choice((0.1, 0.5, 0.95)) for _ in range(3))
    idle = rng.choice((0, 0.5, 1))
    for cycle in range(bench.cut or 200):
        if cycle % 50 == 0:  # it may change at any time
            config = {"policy": rng.choice(list(POLICIES.values())),
                      "threshold": rng.choice((0, 1, 3, 5, 15, rng.randrange(128), NO_THRESHOLD)),
                      "starvation_limit": rng.choice((0, 1, 2, 7, 30)), "drain": int(rng.random() < 0.3)}
        near = config["threshold"] + rng.randrange(-2, 3)
        waiting = int(rng.random() < talk)
        inputs = config | {
            "compute_valid": int(rng.random() < busy), "communication_waiting": waiting,
            "ring_late": int(rng.random() < idle),
            "communication_valid": int(waiting and rng.random() < 0.8), "ready": int(rng.random() < go),
            "occupancy": min(max(near if rng.random() < 0.7 else rng.randrange(128), 0), most)}
        decision = await step(bench, model, inputs)
        bench.reach("compute", decision.grant_compute)
        bench.reach("communication", decision.grant_communication)
        bench.reach("no grant", not any(decision[:2]))
        bench.reach("starved", decision.starved)


@rounds(4)
async def compute_overtakes(bench: Bench) -> None:
    """Let compute overtake communication up to the limit; from then on they take turns until none waits."""
    rng, model, most = bench.rng, ArbiterModel(), arbiter.OVERTAKEN_AT
    usual = {"policy": rng.choice(_LATE), "threshold": NO_THRESHOLD, "starvation_limit": 0, "drain": 0, "ring_late": 0,
             "compute_valid": 1, "communication_valid": 1, "communication_waiting": 1, "ready": 1, "occupancy": 0}
    before = rng.choice((most - 1, rng.randrange(most)))
    for cycle in range(bench.cut or before + most + 400):
        inputs = dict(usual)
        if cycle == before:  # it counts anew
            inputs |= rng.choice(({"compute_valid": 0}, {"communication_valid": 0, "communication_waiting": 0}))
        elif cycle > before + most + 100:
            waiting = int(rng.random() < 0.97)
            inputs |= {"compute_valid": int(rng.random() < 0.8), "communication_waiting": waiting,
                       "communication_valid": int(waiting and rng.random() < 0.9)}
        elif cycle > before and rng.random() < 0.01:  # it does not count
            inputs |= {rng.choice(("ready", "communication_valid")): 0}
        await step(bench, model, inputs)


@rounds(9)
async def starvation_ends_exactly_at_the_limit(bench: Bench) -> None:
    """Hold communication back, by compute or by the threshold; it is granted in exactly the limit's cycle."""
    limit = (1, 2, 20, 100)[bench.number % 4] if bench.number % 9 < 8 else (1 << 16) - 1  # where the count stands
    policy = _LISTENING[bench.number // 4 % len(_LISTENING)]
    for name, value in (("policy", policy), ("starvation_limit", limit), ("compute_valid", 1),
                        ("communication_valid", 1), ("communication_waiting", 1), ("ready", 1)):
        bench.set(name, value)
    held = 3 if limit == (1 << 16) - 1 else 0  # cycles in which nothing is taken though it is starved
    for cycle in range(limit + 1 + held if held else 3 * (limit + 1)):  # and again after each grant
        if held:
            bench.set("ready", int(not limit <= cycle < limit + held))
        await bench.settle()
        expected, granted = cycle % (limit + 1 + held) == limit + held, bench.get("grant_communication")
        assert granted == expected, f"cycle {cycle}, limit {limit}: expected {expected:d}, got {granted}"
        assert bench.get("starved") == (cycle % (limit + 1 + held) >= limit), f"cycle {cycle}, limit {limit}: starved"
        await bench.edge()
