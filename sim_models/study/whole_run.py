"""Speed of the lockstep over a whole fused run at full size, and the share of the hardware that rests meanwhile."""

from collections.abc import Callable
from contextlib import closing

from t3sim.base.at_once import processor_seconds
from t3sim.machine import Machine
from t3sim.runs.fused import fused_run, rtl_design
from t3sim.runs.plan import Plan
from t3sim.study.results import WholeRun
from t3sim.workload.workloads import transformer_workload

_PERIOD_CYCLES = 100_000
_SAMPLE_CYCLES = 1000  #: at the end of each period, looked at one by one; their time does not count
_MOST_CYCLES = 1_650_000  #: of the run, which is T-NLG's FC-2 on 8 GPUs on a machine like the paper's


def measure_whole_run(machine: Machine, progress: Callable[[float], None],
                      most_cycles: int = _MOST_CYCLES) -> WholeRun:
    """Measure T-NLG FC-2 at TP 8 under round robin: speed, and in samples what rests.

    A cycle in which no input of the RTL changes is one that could at most be left out as a whole.
    """
    design, seconds, cycles, quiet_cycles, resting_instances, samples = rtl_design(machine.geometry()), 0.0, 0, 0, 0, 0
    with closing(fused_run("round_robin", Plan(machine, transformer_workload("t-nlg", "fc2", 8)))) as run:
        backend, = run.backends
        run.advance(0)  # compiles the loop
        while run.now + _PERIOD_CYCLES <= most_cycles:
            begin, start = run.now, processor_seconds()
            run.advance(_PERIOD_CYCLES - _SAMPLE_CYCLES)
            seconds, cycles = seconds + processor_seconds() - start, cycles + run.now - begin
            if run.now < begin + _PERIOD_CYCLES - _SAMPLE_CYCLES:  # it has ended
                break
            for _ in range(_SAMPLE_CYCLES):
                before = backend.inputs.copy()
                run.advance(1)
                quiet_cycles += int((backend.inputs == before).all())
                resting_instances += design.asleep(backend.handle)
            samples += _SAMPLE_CYCLES
            progress(run.now / most_cycles)
    return WholeRun(cycles, cycles / seconds, quiet_cycles / samples, resting_instances / samples)
