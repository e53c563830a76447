"""When the first chunk is staged: the closed form of what a GEMM reads, and each of the three conditions."""

import dataclasses

import pytest

from t3sim.machine import load_machine
from t3sim.mechanisms.staging import gemm_read_bytes, staging_pays
from t3sim.runs import build, kernels
from t3sim.runs.operators import make_tiling
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import variant

TABLE_1, T_NLG_FC2 = load_machine(), gemm_workload("8192x4256x2128", 8)


def eighth(order: str):
    return variant(load_machine(), gpu={"compute_units": 10, "workgroup_order": order,
                                        "cluster": 2 if order == "shorter" else 1}, channels={"count": 4},
                   dram={"channels": 4}, llc={"size_bytes": 1 << 21})


@pytest.mark.builds_loops
@pytest.mark.parametrize("order, shape", [
    ("tokens", "2048x1024x2048"),  # a stage has a row of tiles and a quarter: activations, seven times
    ("hidden", "512x4096x1024"),  # a row of tiles is several stages: weights, once a row
    ("hidden", "1024x512x512"),  # weights that the cache holds
    ("shorter", "2048x1024x2048"),  # along hidden, two columns of tiles abreast: half as often as one
    ("shorter", "1024x4096x2048"),  # along tokens, two rows of tiles abreast: activations, once a pair
])
def test_reads_are_those_of_the_simulation(order, shape):
    machine, workload = eighth(order), gemm_workload(shape, 2)
    simulated = kernels.simulate(kernels.GEMM, machine, workload).dram["gemm"].read
    assert simulated == pytest.approx(gemm_read_bytes(machine, workload), rel=0.2)


def test_a_gemm_in_parts_reads_as_much():
    whole, parts = (gemm_read_bytes(variant(eighth("tokens"), gpu={"k_parts": one}),
                                    gemm_workload("2048x1024x2048", 2)) for one in (1, 2))
    assert whole == pytest.approx(parts, rel=0.2)


def test_a_gemm_that_outlasts_its_ring_is_staged():
    assert staging_pays(TABLE_1, T_NLG_FC2)
    assert not staging_pays(variant(TABLE_1, link={"bandwidth_gb_per_s": 30}), T_NLG_FC2)


@pytest.mark.parametrize("name", ["egress_buffer_bytes", "store_buffer_bytes"])
def test_a_buffer_that_holds_the_chunk_is_enough(name):
    chunk = -(-T_NLG_FC2.output_bytes // 8)
    assert staging_pays(variant(TABLE_1, link={name: chunk - 64 - chunk % 64}), T_NLG_FC2)
    assert not staging_pays(variant(TABLE_1, link={name: chunk + 64 - chunk % 64}), T_NLG_FC2)


def test_a_gemm_that_needs_dram_is_not_staged():
    assert not staging_pays(variant(TABLE_1, llc={"size_bytes": 1 << 22}, gpu={"workgroup_order": "tokens"}), T_NLG_FC2)
    slow = variant(TABLE_1, dram={"ccdwl_cycles": 16})
    assert not staging_pays(slow, T_NLG_FC2), "op-and-store that keeps its bank group four times as long"


def test_a_larger_k_gives_dram_time():
    machine = variant(TABLE_1, dram={"ccdwl_cycles": 8})
    deep = dataclasses.replace(T_NLG_FC2, k=4 * T_NLG_FC2.k)
    assert make_tiling(machine, deep) == make_tiling(machine, T_NLG_FC2)
    assert build.gemm_operator(machine, deep, make_tiling(machine, deep)).k == deep.k
    assert staging_pays(machine, deep)
