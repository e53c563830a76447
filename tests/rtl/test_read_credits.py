"""Credits of DMA reads against two numbers."""

import random
from dataclasses import replace

import pytest

from t3sim.rtl.dma.read_credits import ReadCredits
from t3sim.testbenches.geometries import GEOMETRIES
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl

SEVERAL = GEOMETRIES["several"]
SIZES = {name: (replace(SEVERAL, dma=replace(SEVERAL.dma, **sizes))) for name, sizes in {
    "several": {}, "one lane": {"egress_lanes": 1}, "few lines": {"outstanding_lines": 8},
    "4,096 lines": {"outstanding_lines": 4096, "engines": 8, "egress_lanes": 8},
    "queued": {"queue_commands": 4}, "queued, few lines": {"queue_commands": 4, "outstanding_lines": 8}}.items()}


@pytest.mark.parametrize("name", SIZES)
def test_random_reads(name):
    """Engines read when they may; data return late, on any lane, often more than requested, and leave again."""
    dma, rng = SIZES[name].dma, random.Random(name)
    dut = once(ReadCredits, SIZES[name])
    simulated = simulation(dut)
    seen = {"stray": 0, "full": 0, "forgotten": 0}

    async def run(ctx):
        origins = range(len(dut.waits))
        recent, asked, inside, allow = [0 for _ in origins], [0 for _ in origins], [0 for _ in origins], 0
        for cycle in range(6000):
            slow = cycle // 1500 % 2
            started = [rng.randrange(len(origins)) for _ in range(rng.randint(0, dma.engines) if allow else 0)]
            came = [rng.randrange(len(origins)) if rng.random() < (0.05 if slow else 0.6)
                    and sum(inside) + lane < 4 * dma.egress_lanes else None for lane in range(dma.egress_lanes)]
            forget = not slow and rng.random() < 0.01
            hold = rng.random() < 0.05
            taken, strays = [0 for _ in origins], []
            for here in came:
                strays.append(here is not None and asked[here] <= taken[here])
                if here is not None and not strays[-1]:
                    taken[here] += 1
            room = 4 * dma.egress_lanes - sum(inside) - sum(taken)
            repeated = [rng.randrange(len(origins)) if rng.random() < 0.2 and lane < room else None
                        for lane in range(dma.egress_lanes)]
            gone = [rng.randint(0, min(here, dma.egress_lanes)) for here in inside]
            for origin in origins:
                ctx.set(dut.issued[origin], started.count(origin))
                for port, whose in (("came", came), ("repeated", repeated)):
                    bits = sum((here == origin) << lane for lane, here in enumerate(whose))
                    ctx.set(getattr(dut, port)[origin], bits)
                ctx.set(dut.gone[origin], gone[origin])
            ctx.set(dut.hold, hold)
            ctx.set(dut.forget, forget)
            assert ctx.get(dut.unasked) == sum(bit << lane for lane, bit in enumerate(strays))
            assert ctx.get(dut.waits) == sum(any(of) << origin for origin, of in enumerate(zip(asked, inside, recent)))
            assert ctx.get(dut.allow) == allow
            await ctx.tick()
            allow = not hold and sum(asked + inside + recent) + 2 * dma.engines <= dma.outstanding_lines
            seen["stray"] += any(strays)
            seen["full"] += not hold and not allow
            seen["forgotten"] += forget and sum(asked) > 0
            for origin in origins:
                asked[origin] = 0 if forget else asked[origin] + recent[origin] - taken[origin]
                inside[origin] += taken[origin] + repeated.count(origin) - gone[origin]
                recent[origin] = started.count(origin)
            assert min(asked) >= 0 and sum(asked) <= dma.outstanding_lines
            if rng.random() < 0.001:
                ctx.set(simulated.reset, 1)
                for port in ("issued", "came", "repeated", "gone"):
                    for one in getattr(dut, port):
                        ctx.set(one, 0)
                await ctx.tick()
                ctx.set(simulated.reset, 0)
                recent, asked, inside, allow = [0 for _ in origins], [0 for _ in origins], [0 for _ in origins], 0

    simulated.add_testbench(run)
    simulated.run()
    assert all(seen.values()), seen
