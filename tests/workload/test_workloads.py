"""Shapes of table 2, against the paper's numbers, and refusals that name what is allowed."""

import math

import pytest

from t3sim.workload.workloads import (
    MODELS,
    SUBLAYERS,
    Workload,
    WorkloadError,
    gemm_workload,
    paper_workloads,
    transformer_workload,
)


@pytest.mark.parametrize(("model", "sublayer", "tp", "shape"), [
    ("t-nlg", "fc2", 8, (8192, 4256, 2128)),
    ("t-nlg", "fc1", 16, (8192, 4256, 1064)),
    ("t-nlg", "op", 8, (8192, 4256, 532)),
    ("t-nlg", "ip", 16, (8192, 4256, 798)),
    ("mega-gpt-2", "op", 16, (16384, 3072, 192)),
    ("gpt-3", "ip", 32, (2048, 12288, 1152)),
    ("palm", "fc2", 32, (2048, 18432, 2304)),
    ("mt-nlg", "op", 32, (2048, 20480, 640)),
])
def test_shape(model, sublayer, tp, shape):
    workload = transformer_workload(model, sublayer, tp)
    assert (workload.m, workload.n, workload.k) == shape


def test_default_is_the_issue_s_case():
    assert transformer_workload() == Workload("t-nlg", "fc2", 8, 8192, 4256, 2128)
    assert transformer_workload().title == "T-NLG FC-2, TP=8"


def test_table_2_has_16_small_and_12_large_cases():
    cases = list(paper_workloads())
    assert len(cases) == len(set(cases)) == 28
    assert sum(case.tp == 32 for case in cases) == 12
    for case in cases:
        multiple = {"op": 1, "fc1": 4, "fc2": 4, "ip": 3}[case.sublayer]
        assert case.k * case.tp == multiple * MODELS[case.model].hidden


def test_ideal_speedups_of_the_paper():
    """Section 6.1.1: ideal overlap reaches 50 % at most, 35 % geomean, 15 % for the smallest layer.

    The rate law in front is what those numbers imply; the shapes are what is checked.
    """
    def ideal(case):
        gemm_ns = case.flop / (98.7e3 * case.k / (case.k + 180))
        ring_ns = (case.tp - 1) * (case.output_bytes / case.tp / 75.0 + 500)
        return (gemm_ns + 2 * ring_ns) / (max(gemm_ns, ring_ns) + ring_ns)

    small = {(case.model, case.sublayer, case.tp): ideal(case) for case in paper_workloads() if case.tp < 32}
    assert max(small.values()) == pytest.approx(1.50, abs=0.005)
    assert math.prod(small.values()) ** (1 / 16) == pytest.approx(1.35, abs=0.005)
    assert small["mega-gpt-2", "op", 16] == min(small.values()) == pytest.approx(1.15, abs=0.005)


def test_names_are_case_insensitive():
    assert transformer_workload("T-NLG", "FC2", 8) == transformer_workload()


@pytest.mark.parametrize(("arguments", "words"), [
    (("gpt-5", "fc2", 8), ["'gpt-5'", *MODELS]),
    (("t-nlg", "fc3", 8), ["'fc3'", *SUBLAYERS]),
    (("t-nlg", "op", 64), ["TP=64", "K=4256", "2, 4, 7, 8,"]),
    (("t-nlg", "fc2", 1), ["TP=1 ", "2 to 64"]),
    (("t-nlg", "fc2", 0), ["TP=0 ", "2 to 64"]),
    (("t-nlg", "fc2", -8), ["TP=-8 ", "2 to 64"]),
    (("t-nlg", "fc2", 65), ["TP=65 ", "2 to 64"]),
])
def test_refuses(arguments, words):
    with pytest.raises(WorkloadError) as caught:
        transformer_workload(*arguments)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["8192x4256x2128", "8192X4256X2128", " 8192x4256x2128 "])
def test_gemm_of_ones_own(text):
    assert gemm_workload(text, 8) == Workload("custom", "gemm", 8, 8192, 4256, 2128)


@pytest.mark.parametrize("text", [
    "", "8192", "8192x4256", "8192x4256x2128x1", "8192x-4256x2128", "8192.0x4256x2128", "axbxc", "8192,4256,2128",
    "²x1x1", "12345678901x1x1"])
def test_refuses_what_is_no_shape(text):
    with pytest.raises(WorkloadError, match="MxNxK"):
        gemm_workload(text, 8)


@pytest.mark.parametrize(("text", "devices", "words"), [
    ("0x16x16", 8, "M=0"), ("16x0x16", 8, "N=0"), ("16x16x0", 8, "K=0"), ("16x16x9999999", 8, "K=9999999"),
    ("16x16x16", 1, "1 GPUs"), ("16x16x16", 65, "65 GPUs")])
def test_refuses_extents_and_devices(text, devices, words):
    with pytest.raises(WorkloadError, match=words):
        gemm_workload(text, devices)
