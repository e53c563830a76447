"""The study of sums: its ways of adding against arithmetic by hand, and laws that errors follow."""

from fractions import Fraction

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.papers.figure import paper_setup
from t3sim.papers.sums import GPUS, WAYS, activations, error, evaluate, gradients, in_fixed_point


@pytest.fixture(scope="module")
def findings():
    return evaluate(paper_setup(load_machine()), {})


def errors_of(findings, numbers: str) -> dict[str, list[float]]:
    return {case["way"]: case["error_percent"] for case in findings.cases if case["numbers"] == numbers}


@pytest.mark.parametrize("draw", [gradients, activations])
def test_a_fixed_point_rounds_parts_and_no_sum(draw):
    parts = draw(np.random.default_rng(3), 8)[:, :4, :8]
    unit = Fraction(2) ** (int(np.floor(np.log2(np.abs(parts).max()))) - 24)
    by_hand = [[float(sum(round(Fraction(parts[gpu, row, column]) / unit) for gpu in range(8)) * unit)
                for column in range(8)] for row in range(4)]
    assert in_fixed_point(parts).tolist() == by_hand == in_fixed_point(parts[::-1]).tolist()


def test_an_addition_in_bf16_loses_what_is_less_than_half_a_unit():
    """1 and 64 parts of 2**-8, half a unit each: the sum is even and stays; fp32 has all of them."""
    parts = np.concatenate([np.ones((1, 1, 1)), np.full((64, 1, 1), 2.0**-8)])
    assert WAYS["ring-bf16"].total(parts)[0, 0] == 1
    assert WAYS["array-fp32"].total(parts)[0, 0] == WAYS["wire-fp32"].total(parts)[0, 0] == 1.25
    chance = np.tile(parts, (1, 1, 4096))
    assert np.isclose(WAYS["stochastic-bf16"].total(chance).mean(), 1.25, atol=0.005)


def test_an_error_is_a_share_of_the_sum_column_by_column():
    parts = np.ones((2, 4, 2)) * [1, 1000]
    assert error(parts.sum(axis=0), parts) == 0
    assert np.isclose(error(parts.sum(axis=0) * [1.01, 1], parts), 1 / np.sqrt(2))


@pytest.mark.long
@pytest.mark.parametrize("numbers", ["gradients", "activations"])
def test_errors_grow_only_where_sums_are_rounded_often(findings, numbers):
    errors = errors_of(findings, numbers)
    first, last = GPUS.index(16), GPUS.index(64)
    for way in ("ring-bf16", "stochastic-bf16"):
        assert 1.6 < errors[way][last] / errors[way][first] < 2.2, "the square root of four"
    for way in ("array-fp32", "wire-fp32", "mx-e4m3", "mx-e5m2", "fixed"):
        assert errors[way][last] < 1.1 * errors[way][0]
    assert errors["wire-fp32"][last] < errors["array-fp32"][last] < errors["mx-e4m3"][last] < errors["mx-e5m2"][last]


@pytest.mark.long
def test_only_what_rounds_by_arrival_depends_on_it(findings):
    moved = {case["way"]: case["moved_percent"] for case in findings.cases if case["numbers"] == "gradients"}
    assert moved["direct-bf16"][0] == 0 < moved["direct-bf16"][1]  # two parts commute
    assert moved["array-fp32"][-1] > 0 and not any(moved["fixed"]) and not any(moved["ring-bf16"])
