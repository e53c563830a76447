"""RingMonitor against its model: rings that keep up and rings that do not, stages of every size, restarts."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.ring_monitor import RingMonitorModel


async def run(bench: Bench, cycles: int, stage: int, idle: float, starts: float, restarts: float) -> None:
    """Run with given shares of cycles in which no tile waits, a workgroup starts, a kernel starts."""
    rng, model = bench.rng, RingMonitorModel()
    for _ in range(cycles):
        inputs = {"pending": int(rng.random() >= idle), "started": int(rng.random() < starts), "stage": stage,
                  "restart": int(rng.random() < restarts)}
        for name, value in inputs.items():
            bench.set(name, value)
        await bench.settle()
        late, expected = bench.get("late"), model.step(**inputs)
        assert late == expected, f"cycle {bench.now}: expected late {expected:d}, got {late}; {inputs}"
        await bench.edge()
        bench.reach("late" if late else "in time")
        bench.reach("restart", inputs["restart"])


@rounds(20, cover=("late", "in time", "restart"))
async def random_rings(bench: Bench) -> None:
    """Start workgroups and hold commands at random, with stages from 0 up; compare with the model per cycle."""
    rng, most = bench.rng, (1 << bench["stage"].width) - 1
    await run(bench, bench.cut or 300, min(rng.choice((0, 1, 5, 40)), most - 1),
              rng.choice((0.001, 0.01, 0.2, 0.5)), 0.5, rng.choice((0.002, 0.05)))


@rounds(4)
async def as_many_workgroups_as_can_be_counted(bench: Bench) -> None:
    """Start more workgroups than can be counted.

    The count stays at its largest value, so that of stages that large no ring is late.
    """
    most = (1 << bench["stage"].width) - 1
    stage = (bench.rng.randrange(most), most - 1, most // 2, 0)[bench.number % 4]
    await run(bench, min(most, 1 << 10) + 40, stage, 0, 1, 0)
