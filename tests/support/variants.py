"""Machines, kernels and observers that the models' tests share."""

from t3sim.gpu.engine.end import DONE
from t3sim.gpu.engine.loop import Lockstep
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.state import Sim
from t3sim.machine import Machine
from t3sim.runs import build
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import Workload, gemm_workload


def variant(machine: Machine, **sections: dict) -> Machine:
    """The machine with some keys changed: `variant(machine, gpu={"compute_units": 4})`."""
    changed = machine.model_dump()
    for section, keys in sections.items():
        assert keys.keys() <= changed[section].keys()
        changed[section] |= keys
    return Machine.model_validate(changed)


def small_machine(machine: Machine) -> Machine:
    """Hardware that compiles in seconds: 4 channels, and a Tracker of 16 sets in 2 banks."""
    return variant(machine, channels={"count": 4, "guard_buckets": 16}, dram={"channels": 4},
                   tracker={"sets": 16, "banks": 2})


def run_kernel(machine: Machine, workload: Workload | str, devices: int = 4) -> tuple[Sim, int]:
    """A GEMM without RTL, to its end; (state, cycles)."""
    if isinstance(workload, str):
        workload = gemm_workload(workload, devices)
    run = Lockstep(build.make_sim(Plan(machine, workload)))
    assert run.advance(10_000_000) == DONE
    return run.sim, run.now


class Watches(Observer):
    """Looks at every cycle by the methods of a named tuple."""

    def __init__(self, state: tuple) -> None:
        self.state = state

    def before(self, now, end):
        return self.state, end
