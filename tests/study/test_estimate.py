"""What a run will take, estimated before it: near what was measured, and what cannot end is told from what can."""

from dataclasses import replace

import pytest

from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.runs import kernels
from t3sim.runs.exchange import Exchange
from t3sim.runs.plan import Plan
from t3sim.runs.skew import Skew
from t3sim.study.tasks.estimate import LONGEST_SECONDS, Estimate, check, estimate
from t3sim.study.techniques import kernels_of
from t3sim.workload.workloads import gemm_workload, paper_workloads, transformer_workload

pytestmark = pytest.mark.builds_loops

PLAN = Plan(load_machine(), transformer_workload())
#: Memory cycles of the README's run of T-NLG FC-2 on eight GPUs.
_MEASURED = {"sequential": 3_326_144, "t3": 2_529_024, "t3-mca": 2_526_656}


@pytest.mark.parametrize("technique", _MEASURED)
def test_near_what_a_run_takes(technique):
    names = [name for name in kernels_of(technique, PLAN) if technique == "sequential" or name != kernels.GEMM]
    found = estimate(load_machine(), transformer_workload(), names)
    assert found.cycles == pytest.approx(_MEASURED[technique], rel=0.1)
    assert 1 < found.seconds < 100 and 1e8 < found.memory_bytes < 1e9


def test_every_gpu_and_an_all_reduce_take_longer():
    machine, workload = load_machine(), transformer_workload()
    (_, mirrored), (_, every_gpu), (_, gathers) = (kernels_of("t3", plan)[:2] for plan in (
        PLAN, replace(PLAN, skew=Skew()), replace(PLAN, exchange=Exchange("ar"))))
    mirrored_estimate, every_estimate = (estimate(machine, workload, [kernel]) for kernel in (mirrored, every_gpu))
    assert every_estimate.cycles == mirrored_estimate.cycles
    assert 7 < every_estimate.seconds / mirrored_estimate.seconds <= 8
    assert estimate(machine, workload, kernels_of("t3", replace(PLAN, skew=Skew()))).seconds < 8 * estimate(
        machine, workload, kernels_of("t3", PLAN)).seconds, "the GEMM alone is one GPU's all the same"
    deep, flat = workload, transformer_workload("t-nlg", "op", 8)  # the GEMM, and the links set the time
    assert estimate(machine, flat, [gathers]).cycles > 1.5 * estimate(machine, flat, [mirrored]).cycles
    assert estimate(machine, deep, [gathers]).cycles < 1.1 * estimate(machine, deep, [mirrored]).cycles


def test_every_case_of_the_paper_may_be_run():
    for workload in paper_workloads():
        check(estimate(load_machine(), workload, kernels_of("t3-mca+", PLAN)), workload)


def test_grows_with_what_is_asked():
    machine = load_machine()
    small, large = (estimate(machine, gemm_workload(shape, 8), kernels_of("t3", PLAN)) for shape in
                    ("4096x4096x1024", "16384x16384x1024"))
    assert large.cycles == pytest.approx(16 * small.cycles, rel=0.1)
    assert large.seconds > 10 * small.seconds and large.memory_bytes > small.memory_bytes
    twice = estimate(machine, gemm_workload("4096x4096x1024", 8), [*kernels_of("t3", PLAN), *kernels_of("t3", PLAN)])
    assert twice == small  # each kernel is simulated once


def test_several_at_once_take_no_longer_than_the_longest_or_the_cores():
    machine, workload = load_machine(), transformer_workload()
    all_kernels = list(dict.fromkeys(kernel for name in _MEASURED for kernel in kernels_of(name, PLAN)))
    one_job, two_jobs, many_jobs = (estimate(machine, workload, all_kernels, jobs=jobs) for jobs in (1, 2, 100))
    seconds = [estimate(machine, workload, [kernel]).seconds for kernel in all_kernels]
    assert one_job.seconds == pytest.approx(sum(seconds)) and two_jobs.seconds == pytest.approx(sum(seconds) / 2)
    assert many_jobs.seconds == max(seconds)
    assert one_job.memory_bytes < two_jobs.memory_bytes < many_jobs.memory_bytes == pytest.approx(
        one_job.memory_bytes + (len(all_kernels) - 1) * (two_jobs.memory_bytes - one_job.memory_bytes))


@pytest.mark.parametrize(("seconds", "memory_bytes"), [(2 * LONGEST_SECONDS, 1e9), (1.0, 1e18), (1e30, 1e30)])
def test_what_cannot_end_is_refused(seconds, memory_bytes):
    with pytest.raises(BadInput, match="up to a day and this host.s .* GB are allowed$"):
        check(Estimate(1e6, seconds, memory_bytes), transformer_workload())
