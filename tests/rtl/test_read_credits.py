"""Credits of DMA reads against two numbers."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from t3sim.rtl.read_credits import ReadCredits
from t3sim.testbenches.geometries import GEOMETRIES

pytestmark = pytest.mark.builds_rtl

SEVERAL = GEOMETRIES["several"]
SIZES = {name: (replace(SEVERAL, dma=replace(SEVERAL.dma, **sizes))) for name, sizes in {
    "several": {}, "one lane": {"egress_lanes": 1}, "few lines": {"outstanding_lines": 8},
    "4,096 lines": {"outstanding_lines": 4096, "engines": 8, "egress_lanes": 4}}.items()}


@pytest.mark.parametrize("name", SIZES)
def test_random_reads(name):
    """Engines ask when they may; data come late, on any lanes, often more than were asked for, and leave again."""
    dma, rng = SIZES[name].dma, random.Random(name)
    dut, reset = ReadCredits(SIZES[name]), Signal()
    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-9)
    seen = {"stray": 0, "full": 0, "forgotten": 0}

    async def run(ctx):
        recent = asked = inside = allow = 0
        for cycle in range(6000):
            slow = cycle // 1500 % 2
            now = rng.randint(0, dma.engines) if allow else 0
            came = [rng.random() < (0.05 if slow else 0.6) and inside + lane < 4 * dma.egress_lanes
                    for lane in range(dma.egress_lanes)]
            forget = not recent and not now and rng.random() < 0.01
            hold = rng.random() < 0.05
            taken, strays = 0, []
            for here in came:
                strays.append(asked <= taken)
                taken += here and not strays[-1]
            room = 4 * dma.egress_lanes - inside - taken
            repeated = [rng.random() < 0.2 and lane < room for lane in range(dma.egress_lanes)]
            gone = rng.randint(0, min(inside, dma.egress_lanes))
            ctx.set(dut.issued, now)
            for port, bits in (("came", came), ("repeated", repeated)):
                ctx.set(getattr(dut, port), sum(bit << lane for lane, bit in enumerate(bits)))
            for port, value in (("gone", gone), ("hold", hold), ("forget", forget)):
                ctx.set(getattr(dut, port), value)
            assert ctx.get(dut.unasked) == sum(bit << lane for lane, bit in enumerate(strays))
            assert ctx.get(dut.waits) == bool(asked or inside or recent)
            assert ctx.get(dut.allow) == allow
            await ctx.tick()
            allow = not hold and asked + inside + recent + 2 * dma.engines <= dma.outstanding_lines
            seen["stray"] += any(map(bool.__and__, came, strays))
            seen["full"] += not hold and not allow
            seen["forgotten"] += forget and asked > 0
            asked = 0 if forget else asked + recent - taken
            inside += taken + sum(repeated) - gone
            recent = now
            assert 0 <= asked <= dma.outstanding_lines
            if rng.random() < 0.001:
                ctx.set(reset, 1)
                for port in ("issued", "came", "repeated", "gone"):
                    ctx.set(getattr(dut, port), 0)
                await ctx.tick()
                ctx.set(reset, 0)
                recent = asked = inside = allow = 0

    simulator.add_testbench(run)
    simulator.run()
    assert all(seen.values()), seen
