"""Layers of today on every level: one GEMM and one all-reduce, and Track & Trigger as the RTL has it."""

from dataclasses import replace
from pathlib import Path

import pytest

from t3sim.analytic.libraries.mechanisms import OverlapPlan
from t3sim.machine import load_machine
from t3sim.machine.levels import ITERATIONS
from t3sim.papers.today.levels import CYCLE_MACHINE, LAYERS, TECHNIQUES, times_ns
from t3sim.runs.plan import Plan
from t3sim.study.results import RunResult
from t3sim.study.scenario.ranking import rtl_ns
from t3sim.study.tasks.store import KeptResults
from t3sim.study.techniques import run_sublayer

H100 = load_machine("h100-sxm", ITERATIONS)
ROOT = Path(__file__).parents[2]


class _NoTime:
    """A technique on the cycle level, which is not asked for here."""

    gemm_ns = total_ns = float("nan")


class _NoRun:
    baseline = _NoTime()
    techniques = dict.fromkeys(TECHNIQUES, _NoTime())


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.title)
def test_levels_without_cycles_have_one_gemm_and_one_all_reduce(layer):
    times = times_ns(layer, _NoRun())  # type: ignore[arg-type]
    gemm, all_reduce, in_turn = times["GEMM"], times["all-reduce"], times["in turn"]
    assert 0.85 < gemm["event"] / gemm["library"] < 1.15
    assert all_reduce["end to end"] == all_reduce["library"]
    launch_ns, steady = H100.kernels.launch_ns, H100.sharing.steady_share
    assert gemm["end to end"] == pytest.approx((gemm["library"] - launch_ns) / steady + launch_ns)
    assert 0.8 < in_turn["event"] / in_turn["library"] < 1.25


def test_overlap_prints_the_times_of_the_report():
    report = ROOT / "docs" / "reports" / "today" / "tables" / "levels-track-trigger-on-the-rtl-s.csv"
    kept = ROOT / "sim_models" / "study" / "scenario" / "track_trigger_rtl.csv"
    assert kept.read_text(encoding="utf-8") == report.read_text(encoding="utf-8")
    layer = next(layer for layer in LAYERS if layer.title == "llama-3.1-405b fc2, 2,048 tokens")
    plan = OverlapPlan(H100, "gemm+ar", 8, layer.shape, hardware=load_machine(CYCLE_MACHINE))
    assert set(rtl_ns(plan)) == {"t3", "t3-mca+"}
    assert rtl_ns(replace(plan, gpus=4)) == rtl_ns(replace(plan, hardware=None)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.model == "llama-3.1-8b" and layer.tokens == 2048],
                         ids=lambda layer: layer.title)
def test_track_and_trigger_is_on_the_rtl_what_the_closed_form_says(layer):
    machine = load_machine(CYCLE_MACHINE)
    run = run_sublayer(Plan(machine, layer.workload), TECHNIQUES, store=KeptResults())
    assert isinstance(run, RunResult)
    times = times_ns(layer, run)
    for quantity in ("T3", "T3-MCA+"):
        assert 0.85 < times[quantity]["library"] / times[quantity]["cycle"] < 1.15
    own_ns = rtl_ns(OverlapPlan(H100, "gemm+ar", 8, layer.shape, hardware=machine))  # not rounded, as a report's are
    assert own_ns == {name: run.techniques[name].total_ns for name in ("t3", "t3-mca+")}
