"""RingMonitor against its model: rings that keep up and rings that do not, stages of every size, restarts."""

from sim_models.reference.ring_monitor import RingMonitorModel

from .bench import Bench, rounds


@rounds(20, cover=("late", "in time", "restart"))
async def random_rings(bench: Bench) -> None:
    rng, model = bench.rng, RingMonitorModel()
    stage, idle = rng.choice((0, 1, 5, 40)), rng.choice((0.001, 0.01, 0.2))
    for _ in range(bench.cut or 300):
        inputs = {"pending": int(rng.random() > idle), "started": int(rng.random() < 0.5), "stage": stage,
                  "restart": int(rng.random() < 0.002)}
        for name, value in inputs.items():
            bench.set(name, value)
        await bench.settle()
        late = bench.get("late")
        assert late == model.step(**inputs), f"cycle {bench.now}: {inputs}"
        await bench.edge()
        bench.reach("late" if late else "in time")
        bench.reach("restart", inputs["restart"])
