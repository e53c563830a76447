"""Tasks: what shares a result and what does not, and traffic recorded over time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm, GatherAfter
from t3sim.papers.figure import paper_setup, variant
from t3sim.runs import build, isolated_kernels, kernels
from t3sim.runs.phases import by_stream
from t3sim.study.tasks.sources import meaning, source_files
from t3sim.study.tasks.task import kernel_task
from t3sim.workload.workloads import SUBLAYERS, Workload, gemm_workload, transformer_workload

pytestmark = pytest.mark.builds_loops

MACHINE = load_machine()
RING_SMALL = Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml"
FC2 = transformer_workload("t-nlg", "fc2", 8)
OP = transformer_workload("t-nlg", "op", 8)


def test_names_do_not_matter():
    renamed = MACHINE.model_copy(update={"name": "other"})
    assert kernel_task(kernels.GEMM, renamed, FC2) == kernel_task(kernels.GEMM, MACHINE, FC2)
    own = gemm_workload("8192x4256x2128", 8)
    assert kernel_task(kernels.GEMM, MACHINE, own).key == kernel_task(kernels.GEMM, MACHINE, FC2).key
    # as long as nothing else of a sub-layer's name enters the models
    for sublayer in SUBLAYERS:
        layer_of_model = transformer_workload("t-nlg", sublayer, 8)
        plain_layer = kernel_task(kernels.GEMM, MACHINE, layer_of_model).workload
        one, other = (build.gemm_operator(MACHINE, layer, build.make_tiling(MACHINE, layer))
                      for layer in (layer_of_model, plain_layer))
        assert one == other


def test_collectives_know_the_output_only():
    for kernel in kernels.COLLECTIVES:
        assert kernel_task(kernel, MACHINE, OP).key == kernel_task(kernel, MACHINE, FC2).key
    assert kernel_task(kernels.GEMM, MACHINE, OP).key != kernel_task(kernels.GEMM, MACHINE, FC2).key


def test_everything_that_matters_is_in_the_key():
    mca = FusedGemm("mca")
    variants = [kernel_task(kernels.GEMM, MACHINE, FC2), kernel_task(mca, MACHINE, FC2),
                kernel_task(FusedGemm("round_robin"), MACHINE, FC2),
                kernel_task(FusedGemm("mca", staged=True), MACHINE, FC2), kernel_task(mca, MACHINE, FC2, seed=1),
                kernel_task(mca, MACHINE, FC2, window_cycles=1000),
                kernel_task(kernels.GEMM, MACHINE, transformer_workload("t-nlg", "fc1", 8)),
                kernel_task(kernels.ALL_GATHER, MACHINE, FC2),
                kernel_task(kernels.ALL_GATHER, MACHINE, FC2, mirrored=False),
                kernel_task(mca, variant(MACHINE, {"arbiter.threshold": 5}), FC2),
                kernel_task(mca, MACHINE, transformer_workload("t-nlg", "fc2", 16))]
    assert len({task.key for task in variants}) == len(variants)


def test_sources_are_those_that_run():
    names = {path.name for path in source_files("t3sim.runs.kernels", rtl=True)}
    assert {"kernels.py", "loop.py", "fr_fcfs.py", "tracker.py", "build.py"} <= names
    assert not {"report.py", "campaign.py", "pipeline.py", "cli.py"} & names
    without = {path.name for path in source_files("t3sim.runs.kernels")}
    assert "loop.py" in without and "tracker.py" not in without


def test_words_for_people_change_no_result():
    code = b'"""A module."""\ndef f(a):  # adds\n    """Add one."""\n    return a + 1\n'
    assert meaning(code) == meaning(b"def f(a):\n\n    return (a + 1)\n")
    for other in (b"def f(a):\n    return a + 2\n", b"def f(b):\n    return b + 1\n",
                  b"def f(a):\n    'x'\n    'y'\n    return a + 1\n", b"def f(a):\n    return a + 1.0\n"):
        assert meaning(other) != meaning(code)


def test_long_kernels_are_known():
    assert kernel_task(FusedGemm("mca"), MACHINE, FC2).seconds > 4 * kernel_task(kernels.GEMM, MACHINE, FC2).seconds


def test_kernels_without_rtl_are_shared_by_variants_of_the_rtl():
    setup = paper_setup(MACHINE)
    for changes in ({"arbiter.threshold": 5}, {"tracker.ways": 16, "dma.tiles_per_block": 2}):
        other = variant(MACHINE, changes)
        assert setup.task(kernels.GEMM, FC2, other) == setup.task(kernels.GEMM, FC2)
        assert setup.task(FusedGemm("mca"), FC2, other) != setup.task(FusedGemm("mca"), FC2)
        assert setup.task(GatherAfter("mca"), FC2, other) != setup.task(GatherAfter("mca"), FC2)
    assert setup.task(kernels.GEMM, FC2, variant(MACHINE, {"llc.ways": 8})) != setup.task(kernels.GEMM, FC2)
    # because they come out the same
    small = load_machine(RING_SMALL)
    changed = variant(small, {"arbiter.threshold": 5, "arbiter.starvation_limit_cycles": 7, "tracker.ways": 4,
                              "tracker.sets": 64, "dma.engines": 1, "dma.tiles_per_block": 2})
    workload = Workload("custom", "gemm", 2, 256, 128, 64)
    for kernel in (kernels.GEMM, *kernels.COLLECTIVES):
        assert kernels.simulate(kernel, small, workload) == kernels.simulate(kernel, changed, workload)


def test_a_variant_is_checked():
    assert variant(MACHINE, {"gpu.compute_units": 160, "llc.ways": 8}).gpu.compute_units == 160
    with pytest.raises(ValueError):
        variant(MACHINE, {"gpu.compute_units": 0})


def test_recording_changes_nothing_and_adds_up():
    machine = load_machine(RING_SMALL)
    workload = Workload("custom", "gemm", 2, 256, 128, 64)
    plain, recorded = (kernels.simulate(kernels.GEMM, machine, workload, window_cycles=window) for window in (0, 100))
    assert plain.traffic is None
    assert plain == replace(recorded, traffic=None)
    assert tuple(np.sum(recorded.traffic.windows, axis=0)) == tuple(by_stream(plain.dram).values())
    assert len(recorded.traffic.windows) == -(-plain.simulated_cycles // 100)


def test_a_recorder_is_bounded(monkeypatch):
    monkeypatch.setattr(isolated_kernels, "_MOST_WINDOWS", 8)
    recorder = isolated_kernels.TrafficRecord(10)
    totals = np.zeros(6, np.int64)
    for now in range(10, 1000, 10):
        totals[0] += 3
        recorder.look(now, totals)
    traffic = recorder.finish(995, totals + 1)
    assert len(traffic.windows) <= 9 and traffic.window_cycles == 160
    assert np.sum(traffic.windows, axis=0).tolist() == [99 * 3 + 1, 1, 1, 1, 1, 1]
    assert traffic.windows[0][0] == 48
