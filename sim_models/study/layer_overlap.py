"""Layer times of a technique, from the cycle level.

What a GEMM and its all-reduce take, relative to one after the other, is measured on the same sub-layer with the RTL in
the loop.
"""

from collections.abc import Callable, Iterable

from t3sim.analytic.end_to_end.mapping import Mapping
from t3sim.analytic.end_to_end.training import Overlap, TrainingJob
from t3sim.base.errors import BadInput
from t3sim.machine import Machine, load_machine
from t3sim.mechanisms.result import BASELINE
from t3sim.runs.plan import Plan
from t3sim.study.techniques import run_sublayer
from t3sim.workload.workloads import Workload


def sublayer_workload(job: TrainingJob, mapping: Mapping, name: str) -> Workload:
    """Return the GEMM of one GPU in sub-layer `name`. Raises `WorkloadError`."""
    columns, depth = job.model.reduced[name]
    return Workload(job.model.name, name, mapping.tp, mapping.micro * job.sequence, columns, depth // mapping.tp)


def measured_overlap(cluster: Machine, job: TrainingJob, mapping: Mapping, technique: str, seed: int = 0,
                     progress: Callable[[str, float], None] = lambda name, fraction: None,
                     sublayers: Iterable[str] | None = None) -> tuple[Overlap, dict[str, float]]:
    """Simulate the sub-layers under `technique` and return its `Overlap`, and the speedup of each sub-layer.

    Raises `BadInput` if the cluster has no machine of the cycle level, and what the simulation raises.
    """
    if cluster.cycle_machine is None:
        raise BadInput(f"technique = {technique} needs a machine that the cycle level knows: {cluster.name} names "
                       "none (cycle_machine); only sequential is possible")
    if mapping.tp < 2:
        raise BadInput(f"technique = {technique} needs tp of at least 2: with tp={mapping.tp} nothing is reduced")
    machine = load_machine(cluster.cycle_machine)
    speedups = {}
    for name in sublayers or job.model.reduced:
        result = run_sublayer(Plan(machine, sublayer_workload(job, mapping, name), seed), (BASELINE, technique),
                              lambda step, fraction, name=name: progress(f"{name} {step}", fraction))
        speedups[name] = result.speedup[technique]
    return speedup_overlap(speedups), speedups


def speedup_overlap(speedups: dict[str, float]) -> Overlap:
    """Return the `Overlap` that divides the time of both by the sub-layer's speedup."""
    return lambda name, gemm_ns, all_reduce_ns: (gemm_ns + all_reduce_ns) / speedups[name]
