"""Constants fitted to rows, machines without a source's rows, and errors of rows near a question."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from t3sim.analytic.end_to_end.mapping import FULL, NONE, Mapping
from t3sim.analytic.end_to_end.training import TrainingJob
from t3sim.analytic.validation import nearby
from t3sim.analytic.validation.answers import answer_on
from t3sim.analytic.validation.comparison import compare
from t3sim.analytic.validation.fit import (
    answer_without_source,
    constant,
    constants_by_rows,
    fit,
    source_of,
    with_constants,
    without_source,
)
from t3sim.analytic.validation.machines import MACHINES, loaded
from t3sim.analytic.validation.nearby import error_near, range_of_rows
from t3sim.analytic.validation.readers import own_rows
from t3sim.analytic.validation.requests import Beside, Collective, GemmRequest, Measured, Training
from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.workload.transformer import PRESETS

H100 = loaded("h100-sxm")
SIZES = [1 << shift for shift in range(12, 30)]


@pytest.mark.parametrize("truth", [
    {"rings.call_ns": 20_000.0, "rings.simple.efficiency": 0.7}, {"rings.call_ns": 60_000.0},
    {"rings.simple.efficiency": 0.95, "rings.call_ns": 60_000.0}])
def test_a_fit_finds_the_constants_that_made_its_rows(truth):
    asks = [Collective("all_reduce", 8, 1, size, "NCCL, cuMem off") for size in SIZES]
    machine, noise = with_constants(H100, truth), np.random.default_rng(0).normal(0, 0.02, len(asks))
    rows = [(ask, answer_on(ask, machine) * exp(off), H100) for ask, off in zip(asks, noise)]
    rows[3] = (rows[3][0], 4 * rows[3][1], H100)  # one far off hardly moves it
    found = fit({key: constant(H100, key) for key in truth}, rows)
    assert found == {key: pytest.approx(value, rel=0.05) for key, value in truth.items()}


def test_a_fit_leaves_out_constants_that_rows_do_not_determine():
    ask = GemmRequest(8192, 8192, 8192)
    start = {"sustained.bf16": 0.5, "rings.call_ns": 1e4}
    assert set(fit(start, [(ask, 1.4e6, H100)])) == {"sustained.bf16"}
    assert fit(start, []) == {} == fit({"rings.call_ns": 1e4}, [(ask, 1.4e6, H100)])
    fast = fit({"sustained.bf16": 0.8}, [(ask, 1e5, H100)])
    assert fast["sustained.bf16"] <= 1.0, "no GEMM is faster than the peak"


def test_a_prior_weighs_as_a_row():
    ask = GemmRequest(8192, 8192, 8192)
    measured = answer_on(ask, with_constants(H100, {"sustained.bf16": 0.6}))
    free, = fit({"sustained.bf16": 0.64}, [(ask, measured, H100)]).values()
    held, = fit({"sustained.bf16": 0.64}, [(ask, measured, H100)], frozenset({"sustained.bf16"})).values()
    assert free == pytest.approx(0.6, rel=0.005) and held == pytest.approx((0.6 * 0.64) ** 0.5, rel=0.01)


def test_a_source_is_a_repository_or_who_published():
    assert source_of("pytorch/pytorch PR#143160") == source_of("pytorch/pytorch#1") == "pytorch/pytorch"
    assert source_of("Azure/AI-benchmarking-guide@8fd0c6e ND_H100_v5_results.md (MIT)") == "Azure/AI-benchmarking-guide"
    assert source_of("measure_kernels.py, 2026-11-26, PyTorch 2.11.0+cu130") == "measure_kernels.py"
    assert source_of("vTrain") == "vTrain"


def test_a_machine_without_a_source_has_nothing_of_it():
    """Its constants are the same whatever that source's rows say."""
    for (owner, key), one in constants_by_rows().items():
        for source in one.sources:
            machine, kept = without_source(source, owner)
            if key in kept:
                assert constant(machine, key) == constant(loaded(owner), key)
    machine, kept = without_source("Azure/AI-benchmarking-guide", "h100-sxm")
    assert not kept and machine.rings.thread_call_ns == 4200.0 != H100.rings.thread_call_ns, "another host's"
    assert machine.rings.call_ns == H100.rings.call_ns, "one thread calls for all GPUs in Azure's program"
    assert machine.rings.in_switch_base_ns < 0.6 * H100.rings.in_switch_base_ns, "NCCL's 25 us"
    child, _ = without_source("microsoft/tokenweave", "h200-sxm")
    assert child.sharing.steady_share == 0.90 != loaded("h200-sxm").sharing.steady_share, "what it inherits, too"
    own, _ = without_source("NVIDIA/nccl", "gb200")
    assert own.direct == loaded("gb200").direct.model_copy(update={
        key: getattr(H100.direct, key) for key in ("base_ns", "phase_ns", "efficiency")})
    kept_own, _ = without_source("microsoft/tokenweave", "gb200")
    assert kept_own.rings == loaded("gb200").rings, "what it does not inherit"
    others, _ = without_source("Vidur", "h100-sxm")
    assert others.rings.call_ns > 25_000, "a framework's calls on H200s"
    assert without_source("nobody", "h100-sxm") == (H100, frozenset())


def test_rows_of_a_source_that_cannot_be_left_out_have_no_error():
    flux = next(row for row in own_rows() if isinstance(row, Measured) and "flux#100" in row.source
                and row.ask.part == "fused" and row.ask.operator == "gemm+rs")
    one, = compare([flux]).rows
    assert one.without_source_ns is None is one.error_without_source and one.error is not None
    summary = compare([flux]).summary([one], [])
    assert (summary["without_source"]["rows"], summary["without_source"]["kept"]) == (0, 1)
    other, = compare([replace(flux, source="somebody else")]).rows
    assert other.without_source_ns == other.ours_ns == one.ours_ns
    nccl = Collective("all_reduce", 8, 1, 1 << 26, "NCCL")  # has nothing of Flux's constant
    assert answer_without_source(nccl, "h100-sxm", "bytedance/flux#100 (tuned)") == answer_on(nccl, H100)


def test_headline_errors_are_larger_than_those_of_rows_that_shaped_the_model():
    rows = [one for one in own_rows() if getattr(one, "quantity", "").startswith("collective")]
    for one in compare(rows).grouped("quantity").values():
        assert one["without_source"]["mean_abs_error"] > one["mean_abs_error"]
        assert one["without_source"]["mean_abs_error"] > 1.5 * one["fitted"]["mean_abs_error"]
        assert one["without_source"]["rows"] + one["without_source"]["kept"] == one["rows"]


def test_near_rows_are_of_the_library_the_number_of_gpus_and_a_size_within_two():
    ask = Collective("all_reduce", 8, 1, 64 << 20, "NCCL, cuMem off")
    near = error_near(H100, [ask])
    assert near is not None and near["rows"] >= 3 and 0 < near["mean_abs_error"] <= near["worst"] < 0.3
    assert error_near(H100, [replace(ask, gpus=2)]) is None
    assert error_near(H100, [replace(ask, size_bytes=1 << 40)]) is None
    assert error_near(H100, [replace(ask, library="custom, one-shot")]) is None
    assert error_near(H100, [replace(ask, kind="all_to_all")]) is None
    gemm = error_near(H100, [GemmRequest(8192, 8192, 8192)])
    assert gemm is not None and error_near(H100, [GemmRequest(8192, 8192, 8192, "fp4")]) is None
    assert error_near(H100, [GemmRequest(4, 370727, 370727)]) is None  # as many operations, but few tokens


def test_what_was_not_checked_has_the_range_of_its_kind_on_the_machine():
    ask = Collective("all_reduce", 8, 1, 64 << 20, "custom, one-shot")
    assert error_near(H100, [ask]) is None
    large, small = range_of_rows(H100, [ask]), range_of_rows(H100, [replace(ask, size_bytes=4096)])
    rows = [row for row in compare(own_rows(), "h100-sxm").rows if row.row.quantity == "collective from 1 MB"]
    assert large["rows"] == len(rows) > small["rows"] and 1 < large["factor"] < small["factor"]
    factors = [max(one := row.without_source_ns / row.row.ns, 1 / one) for row in rows]
    assert 0.9 <= sum(factor <= large["factor"] * (1 + 1e-9) for factor in factors) / len(factors) < 0.95
    assert large["machines"] == ["h100-sxm"]


def test_a_machine_without_rows_has_the_range_of_the_nearest_that_have_ten():
    of = {kind: range_of_rows(loaded("b300"), [ask])["machines"] for kind, ask in {
        "large": Collective("all_reduce", 8, 1, 1 << 26), "GEMM": GemmRequest(4096, 4096, 4096)}.items()}
    assert of == {"large": ["gb200"], "GEMM": ["b300", "b200"]}, "a B200's rows are nearer than a GB200's"
    unrelated = with_constants(loaded("b300"), {}).with_lineage(())
    everywhere = range_of_rows(unrelated, [GemmRequest(4096, 4096, 4096)])
    assert everywhere["rows"] > 300 and {"mi300x", "a100-sxm"} < {*everywhere["machines"]}
    factors = [range_of_rows(loaded(name), [GemmRequest(4096, 4096, 4096)])["factor"] for name in of["GEMM"]]
    assert everywhere["factor"] >= max(factors), "the largest counts"
    assert range_of_rows(loaded("b300"), [Beside("", "", "", "", 8, "together")]) is None, "ten rows in all are needed"


@pytest.mark.parametrize(("text", "base"), [
    ('name = "mine"\n', True), ('name = "mine"\n[tracker]\nsets = 1024\n', True),
    ("[peak]\nbf16 = 1500.0\n", False), ("[rings]\ncall_ns = 2e4\n", False)])
def test_a_file_has_the_errors_of_the_machine_that_it_extends_if_only_names_differ(text, base, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(f'extends = "h100-sxm"\n{text}')
    (tmp_path / "other.toml").write_text('extends = "mine.toml"\nname = "another"\n')
    gemm, decomposed = [GemmRequest(8192, 8192, 8192)], [Collective("all_reduce", 8, 1, 64 << 20, "custom, one-shot")]
    for file in ("mine.toml", "other.toml"):
        mine = load_machine(str(tmp_path / file), COMMERCIAL)
        assert error_near(mine, gemm) == (error_near(H100, gemm) if base else None)
        assert range_of_rows(mine, decomposed) == (range_of_rows(H100, decomposed) if base else None)
    asked = ["end-to-end", "--model", "llama-3.1-8b", "--gpus", "8", "--mapping", "tp=8", "--global-batch", "8"]
    for command in (["validate", str(tmp_path / "mine.toml")],
                    ["overlap", "--machine", str(tmp_path / "mine.toml"), "--model", "llama-3.1-8b"],
                    [*asked, "--phase", "prompt", "--machine", str(tmp_path / "mine.toml")]):
        assert main(command) == 0
        printed = capsys.readouterr().out
        assert ("Not checked: " in printed and "no machine with measured rows" in " ".join(printed.split())) != base
        assert "a factor of" not in printed or base
        assert "measured rows of h100-sxm" not in printed or base


def test_rows_held_out_are_of_the_machine_that_was_calibrated(tmp_path):
    held_out = '[[measured.held_out]]\nquantity = "GEMM"\nrows = 9\nmean_error = 0.05\nworst = 0.1\n'
    (tmp_path / "mine.toml").write_text(f'extends = "h100-sxm"\n[peak]\nbf16 = 900.0\n{held_out}')
    (tmp_path / "renamed.toml").write_text('extends = "mine.toml"\nname = "renamed"\n')
    (tmp_path / "other.toml").write_text('extends = "mine.toml"\n[peak]\nbf16 = 1800.0\n')
    mine, renamed, other = (load_machine(str(tmp_path / f"{name}.toml"), COMMERCIAL).measured.held_out
                            for name in ("mine", "renamed", "other"))
    assert len(mine) == 1 and renamed == mine and not other


def test_ranges_hold_where_a_machine_has_no_rows():
    """Nine of ten rows of machines are within the ranges that others give."""
    inside = rows = 0
    for kind in ("collective from 1 MB", "collective below 1 MB", "GEMM", "fused operator", "dispatch and combine"):
        for name in MACHINES:
            errors = nearby._errors(name, kind)
            near = nearby._range(loaded(name), lambda other, kind=kind, name=name: (
                () if other == name else nearby._errors(other, kind)))
            rows += len(errors)
            inside += sum(abs(error) <= log(near["factor"]) for error in errors)
    assert rows > 700 and inside / rows > 0.9


def test_commands_print_the_range_in_the_line_of_the_answer(capsys, json_of):
    answer = json_of("overlap", "--machine", "mi325x", "--model", "llama-3.1-8b", "--tokens", "1024")
    gemms, in_turn = answer["ranges"]["GEMMs alone"], answer["ranges"]["in-turn"]
    assert "mi300x" in gemms["machines"] and "gb200" in in_turn["machines"]
    for run in answer["ranking"]:
        if run["mechanism"].startswith("t3"):
            assert run["range_ns"] is None
        else:
            low, high = run["range_ns"]
            assert low * 1.1 < run["ns"] < high / 1.1
    flux, = (run for run in answer["ranking"] if run["mechanism"] == "flux")
    assert flux["range_ns"][1] == pytest.approx(flux["ns"] * answer["ranges"]["flux"]["factor"])
    asked = ["end-to-end", "--model", "llama-3.1-8b", "--gpus", "8", "--machine", "b300", "--mapping", "tp=8",
             "--global-batch", "8"]
    prompt = json_of(*asked, "--phase", "prompt")
    assert prompt["checked"] is None and {*prompt["ranges"]} == {"prompt", "gemm", "head", "tp"}
    low, high = prompt["range_ns"]
    assert high > prompt["iteration_ns"] * prompt["ranges"]["prompt"]["factor"], "its GEMMs are less sure"
    assert main([*asked, "--phase", "decode"]) == 0
    assert "ms, not checked: " in capsys.readouterr().out
    assert json_of(*asked, "--phase", "decode")["range_ns"] is not None
    ranges = json_of("validate", "b300")["ranges"]
    assert "GEMM" not in ranges and ranges["fused operator"]["machines"] == ["h100-sxm"]
    assert {"GEMM", "training"} < {*json_of("validate", "cais-8x4")["ranges"]}


def test_a_training_near_measured_ones_has_their_error_others_none():
    job, mapping = TrainingJob(PRESETS["megatron-175b"], 2048, 64), Mapping(tp=8, pp=8, recompute=FULL)
    near = error_near(loaded("a100-sxm"), [Training(job, mapping)])
    assert near is not None and near["rows"] >= 1 and near["kept"] == 0 and near["worst"] < 0.1
    for other in (replace(mapping, recompute=NONE), replace(mapping, dp=8)):
        assert error_near(loaded("a100-sxm"), [Training(job, other)]) is None
    assert error_near(loaded("a100-sxm"), [Training(replace(job, width="fp8"), mapping)]) is None
    assert error_near(H100, [Training(job, mapping)]) is None


def test_commands_say_what_was_not_checked(capsys, json_of):
    asked = ["end-to-end", "--model", "megatron-22b", "--gpus", "8", "--global-batch", "4", "--mapping", "tp=8,micro=4"]
    assert main([*asked, "--recompute", "full"]) == 0
    assert "Error on measured trainings of a100-sxm within a factor of 2 of this one (1 row)" in " ".join(
        capsys.readouterr().out.split())
    assert main([*asked, "--phase", "decode"]) == 0
    assert "Not checked: no measured decoding of a100-sxm is within a factor of 2 of this one" in " ".join(
        capsys.readouterr().out.split())
    checked = json_of("overlap", "--expert-parallel", "--model", "deepseek-v3", "--machine", "h800-sxm", "--tokens",
                      "1024")["checked"]
    assert checked["low-latency"]["rows"] == 2 and checked["two-batches"] is None
