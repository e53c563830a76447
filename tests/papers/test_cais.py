"""CAIS's comparisons: what its own numbers imply, and which of its baselines change places with the links."""

from functools import cache

import pytest

from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.cais import CAIS, CAIS_MODELS, cais, implied_times, sub_layer, sub_layers

MACHINE = load_machine("cais-8x4", COMMERCIAL)


@cache
def comparison() -> dict:
    return cais()


def test_means_of_tp_and_sp_give_the_times_of_tensor_and_gemms():
    """A tensor's transfer of 0.8 and GEMMs of 0.5: 0.5 + 9/8 x 0.8 and 0.5 + 2 x 0.8."""
    times = implied_times(MACHINE, {"TP-NVLS": 1.4, "SP-NVLS": 2.1})
    assert (times["tensor"], times["gemms"], times["communication"]) == pytest.approx((0.8, 0.5, 3.2))
    faster = implied_times(MACHINE, {"TP-NVLS": 1.2, "SP-NVLS": 1.9})  # shorter GEMMs beside the same tensor
    assert faster["gemm_tflops"] == pytest.approx(times["gemm_tflops"] * 0.5 / 0.3)


def test_sub_layers_are_a_sum_a_norm_and_the_next_gemm():
    assert sub_layers(2048, 8192) == ((2048, 8192), (8192, 6144), (8192, 2048), (6144, 8192))
    for tokens, hidden, ffn in CAIS_MODELS.values():
        times = [sub_layer(MACHINE, tokens, hidden, *shape) for shape in sub_layers(hidden, ffn)]
        assert all(name in CAIS or name == "CAIS" for layer in times for name in layer)
        for layer in times:
            assert layer["CAIS"] <= min(layer.values()) and layer["TP-NVLS"] < layer["SP-NVLS"]
            assert layer["FuseLib-NVLS"] < layer["CoCoNet-NVLS"] < layer["TP-NVLS"]


@pytest.mark.long
def test_with_the_ratio_of_the_paper_the_ways_by_the_switch_are_in_its_order():
    ratio, switch_ways = comparison()["at_ratio"], [name for name in CAIS if name.endswith("-NVLS")]
    assert ratio["communication"] == pytest.approx(1.6)
    assert sorted(switch_ways, key=ratio["over"].__getitem__) == switch_ways
    assert all(abs(ratio["over"][name] / CAIS[name][2] - 1) < 0.1 for name in switch_ways)
    assert comparison()["here"]["pairs_in_order"] < ratio["pairs_in_order"] < ratio["pairs"]


@pytest.mark.long
def test_what_the_switch_does_not_help_has_its_places_at_a_lower_rate():
    slower, theirs = comparison()["without_switch"], comparison()["theirs"]
    assert slower["over"]["T3"] / slower["over"]["T3-NVLS"] == pytest.approx(theirs["T3"] / theirs["T3-NVLS"], rel=1e-3)
    assert 0.5 < slower["share"] < 1 and slower["communication"] == pytest.approx(1.6)
    last = sorted(slower["over"], key=slower["over"].__getitem__)[-3:]
    assert last == ["SP-NVLS", "FuseLib", "CoCoNet"] and len(slower["out_of_order"]) == 1
