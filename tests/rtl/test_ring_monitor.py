"""Ring monitor against its model, and its border."""

import random

import pytest

from t3sim.rtl.arbiter.ring_monitor import RingMonitor
from t3sim.rtl.geometry import Geometry, TrackerGeometry
from t3sim.testbenches.reference.ring_monitor import RingMonitorModel
from tests.support.stream_bench import once, simulation

pytestmark = pytest.mark.builds_rtl


def simulate(testbench):
    """Runs `testbench(step, reset)`; `step` is one cycle and returns `late`; `reset(level)`."""
    dut = once(RingMonitor, Geometry(tracker=TrackerGeometry(wg_bits=9)))
    simulated = simulation(dut)

    async def run(ctx):
        async def step(pending=1, started=0, stage=8, restart=0):
            for name, value in (("pending", pending), ("started", started), ("stage", stage), ("restart", restart)):
                ctx.set(getattr(dut, name), value)
            late = ctx.get(dut.late)
            await ctx.tick()
            return late

        await testbench(step, lambda level: ctx.set(simulated.reset, level))

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize("idle", [0.002, 0.02, 0.3])
def test_random_rings_match_the_model(idle):
    """The ring is late while commands wait and more than a stage of workgroups has started since none did."""
    rng, seen = random.Random(idle), set()

    async def testbench(step, reset):
        model = RingMonitorModel()
        for cycle in range(3000):
            if cycle % 400 == 0:
                stage, often = rng.choice((0, 1, 3, 10)), rng.choice((0.1, 0.9))
            inputs = {"pending": int(rng.random() > idle), "started": int(rng.random() < often), "stage": stage,
                      "restart": int(rng.random() < 0.001)}
            restart = rng.random() < 0.001
            reset(restart)
            late = await step(**inputs)
            assert late == model.step(**inputs), f"cycle {cycle}"
            seen.add(late)
            if restart:
                model = RingMonitorModel()

    simulate(testbench)
    assert seen == {0, 1}


@pytest.mark.parametrize("stage", [0, 1, 8, 1022])
@pytest.mark.parametrize("end", ["pending", "restart"])
def test_late_from_one_workgroup_more_than_a_stage(stage, end):
    """Not late at exactly one stage."""
    async def testbench(step, reset):
        for _ in range(2):
            for _ in range(stage):
                await step(started=1, stage=stage)
                assert not await step(stage=stage)
            await step(started=1, stage=stage)
            assert [await step(stage=stage) for _ in range(3)] == [0, 1, 1]
            assert await step(**{"stage": stage, end: int(end == "restart")})
            assert [await step(stage=stage) for _ in range(3)] == [1, 0, 0]

    simulate(testbench)


def test_the_count_does_not_wrap_around():
    """More workgroups than it can count: still late."""
    async def testbench(step, reset):
        assert [await step(started=1) for _ in range(2100)] == [0] * 10 + [1] * 2090

    simulate(testbench)
