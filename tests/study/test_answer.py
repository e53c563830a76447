"""What a run's report says at its end: which kernel a GEMM has, how fast it is and why, what the best technique is."""

from dataclasses import replace

import pytest

from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.runs.exchange import fused_with
from t3sim.runs.operators import with_its_kernel
from t3sim.runs.phases import Moved
from t3sim.study.gemm_rate import gemm_rate
from t3sim.study.report import answer
from t3sim.study.results import RunResult, TechniqueResult
from t3sim.workload.workloads import DecodeWorkload, Workload, gemm_workload, paper_workloads

pytestmark = pytest.mark.builds_loops

MACHINE = load_machine()


@pytest.mark.parametrize("shape, few", [
    ("16x8192x3584", True), ("64x8192x3584", True), ("128x8192x3584", True), ("512x2048x1024", True),
    ("256x8192x3584", False), ("512x8192x3584", False), ("513x2048x1024", False)])
def test_few_tokens_have_the_kernel_whose_fullest_unit_does_less(shape, few):
    found = with_its_kernel(MACHINE, gemm_workload(shape, 8))
    assert isinstance(found, DecodeWorkload) == few and found.size == shape
    assert with_its_kernel(MACHINE, found) is found


def test_full_size_layers_and_machines_that_do_not_say_keep_their_kernel(machine=MACHINE):
    assert all(with_its_kernel(machine, one) is one for one in paper_workloads())
    small = gemm_workload("64x8192x3584", 8)
    assert with_its_kernel(machine.model_copy(update={"occupancy": None}), small) is small
    assert type(with_its_kernel(machine, gemm_workload("1024x2048x1024", 8), parts=8)) is DecodeWorkload
    small_lds = load_machine("mi300x-t3")
    assert type(with_its_kernel(small_lds, gemm_workload("64x1024x8192", 2))) is DecodeWorkload
    assert type(with_its_kernel(small_lds, gemm_workload("128x1024x8192", 2))) is Workload, "no unit holds the other"


@pytest.mark.parametrize("shape, dram_bytes, slower, words", [
    ("8192x4256x2128", 380e6, 1.06, "the matrix units, which reach 86%"),
    ("256x8192x3584", 64e6, 1.06, "its tiles, 64 for 80 compute units: the fullest does 1.2 times an even share"),
    ("8192x4256x2128", 1700e6, 1.06, "DRAM (1,024 GB/s)"),
    ("8192x4256x2128", 380e6, 3.0, "latency, of loads and of starts, which nothing hides; then by the matrix units")])
def test_what_limits_a_gemm(shape, dram_bytes, slower, words):
    workload = gemm_workload(shape, 8)
    ns = slower * max(workload.flop / MACHINE.gpu.peak_flop_per_ns / MACHINE.gpu.matrix_efficiency, dram_bytes / 1024)
    rate = gemm_rate(MACHINE, workload, ns, dram_bytes)
    assert rate.limited_by.startswith(words)
    assert rate.share == pytest.approx(workload.flop / ns / MACHINE.gpu.peak_flop_per_ns)
    assert f"of 114.7 TFLOP/s ({rate.share:.0%} of peak), in tiles of 128 x 256; limited by {words}" in rate.words


def test_ports_that_are_too_slow_are_named():
    """As of a machine that is extended to a faster GPU in its matrix units alone."""
    fast = MACHINE.model_copy(update={"gpu": MACHINE.gpu.model_copy(update={"matrix_flop_per_cycle_per_cu": 8192})})
    rate = gemm_rate(fast, gemm_workload("8192x8192x8192", 8), 4.5e6, 2e9)
    assert rate.limited_by == "the compute units' ports (44.8 B/ns each)" and rate.share < 0.3


def test_a_gemm_alone_says_its_kernel_rate_and_limit(capsys, json_of):
    gemm = json_of("run", "--operator", "gemm", "--gemm", "64x1024x512")["gemm"]
    assert gemm["tile"] == [64, 64] and 0 < gemm["share_of_peak"] < 0.5
    assert main(["run", "--operator", "gemm", "--gemm", "64x1024x512"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("GEMM 64x1024x512") and "TFLOP/s" in text and "of peak" in text and "Limited by" in text


def _technique(name: str, total: float, phases: dict, loss: dict) -> TechniqueResult:
    return TechniqueResult(name, total, phases, {"gemm": Moved(10**9)}, 1, False, 1.0, loss)


def _run(exchange, *techniques: TechniqueResult) -> RunResult:
    return RunResult(gemm_workload("8192x8192x3584", 8), MACHINE, 0, {}, {one.name: one for one in techniques},
                     exchange=exchange)


SEQUENTIAL = _technique("sequential", 8e6, {"gemm": 5e6, "reduce-scatter": 2e6, "all-gather": 1e6},
                        {"reduce_scatter": 2e6, "all_gather": 1e6})


def test_more_than_all_hidden_has_its_reason_and_the_best_is_named():
    fused = _technique("t3", 5.6e6, {"gemm": 4.6e6, "reduce-scatter": 4e6, "all-gather": 1e6},
                       {"store_to_memory": -0.3e6, "read_stall_by_gemm_reads": -0.1e6, "all_gather": 1e6})
    ideal = _technique("ideal-overlap", 6e6, {"gemm": 5e6, "reduce-scatter": 2e6, "all-gather": 1e6},
                       {"all_gather": 1e6})
    rate, why, best = answer(_run(fused_with("gemm-rs"), SEQUENTIAL, fused, ideal))
    assert rate.startswith("The GEMM alone: 96.2 of 114.7 TFLOP/s (84% of peak)")
    assert "itself takes less time than alone" in why and 'gain of t3 is "store to memory", 300.0 µs' in why
    assert best == "t3 takes 5,600.0 µs, 1.429 times as fast as sequential (8,000.0)."
    slower = replace(fused, total_ns=6.2e6)
    assert answer(_run(fused_with("gemm-rs"), SEQUENTIAL, slower, ideal))[1:] == [
        "t3 takes 6,200.0 µs, 1.290 times as fast as sequential (8,000.0); it hides 90.0% of the reduce-scatter."]
    assert answer(_run(fused_with("gemm-rs"), slower)) == [
        "No speedup without the baseline: add sequential to the techniques."]


def test_a_plot_has_the_all_gather_that_the_table_has():
    """An all-reduce that is hidden has none after it; the bars of each technique end at its total."""
    exchange = fused_with("gemm-ar")
    fused = _technique("t3", 5.5e6, {"gemm": 5e6, "all-reduce": 4e6}, {"link_tail": 0.5e6})
    ideal = _technique("ideal-overlap", 5e6, {"gemm": 5e6, "reduce-scatter": 2e6, "all-gather": 1e6}, {})
    drawn = _run(exchange, SEQUENTIAL, fused, ideal).plot().axes[0]
    widths = {container.get_label(): [bar.get_width() for bar in container] for container in drawn.containers}
    assert widths == {"GEMM": [5e3] * 3, "collective after the GEMM": pytest.approx([2e3, 500, 0]),
                      "all-gather": [1e3, 0, 0]}


def test_a_kernel_without_matrices_has_no_rate():
    assert type(gemm_workload("8x8x8", 2)) is Workload
    assert main(["run", "--operator", "gemv", "--gemm", "1024x1x512"]) == 0


def test_machines_are_listed_by_what_runs_them(error_of, json_of):
    levels = json_of("machines")
    assert "t3-table1" in levels["the cycle level"]["machines"] and levels["the cycle level"]["command"] == "t3 run"
    assert levels["the event level of tiles"]["command"] == "t3 run --level event"
    assert all(what for level in levels.values() for what in level["machines"].values())
    assert "h200-sxm by `t3 end-to-end`" in error_of("run", "--machine", "h200")


def test_a_baseline_that_is_too_good_says_by_how_much(capsys):
    import csv
    from pathlib import Path
    from statistics import fmean

    from t3sim.mechanisms.decomposed.event import TOO_GOOD
    summary = Path(__file__).parents[2] / "docs" / "reports" / "flux" / "tables" / "summary.csv"
    with summary.open(encoding="utf-8") as lines:
        apart = {row["quantity"]: float(row["difference"] or 0) for row in csv.DictReader(lines)}
    for machine, points in TOO_GOOD.items():
        title = " ".join({"a100": "A100", "h800": "H800", "nvlink": "NVLink", "sxm": "NVLink",
                          "pcie": "PCIe"}[w]
                         for w in machine.split("-"))
        assert round(fmean([apart[f"overlap efficiency, TransformerEngine, {title}, mean"]])) == points
    assert main(["run", "--level", "event", "--operator", "gemm-rs", "--gemm", "1024x1024x1024", "--machine",
                 "a100-pcie"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "it hides 118 points more" in told and "of peak" in told
