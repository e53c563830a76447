"""Machines and kernels that the models' tests share."""

from sim_models import lockstep, simulation
from sim_models.machine import Machine
from sim_models.workloads import Workload, gemm_workload


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


def run_kernel(machine: Machine, workload: Workload | str, devices: int = 4, **kernel) -> tuple[lockstep.Sim, int]:
    """One kernel without RTL, to its end; (state, cycles). `kernel`: phase."""
    if isinstance(workload, str):
        workload = gemm_workload(workload, devices)
    sim = simulation.make_sim(machine, workload, **kernel)
    now, state = lockstep.baseline(sim, 0, 10_000_000)
    assert state == lockstep.DONE
    return sim, now
