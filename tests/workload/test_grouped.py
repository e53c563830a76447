"""A grouped GEMM: each tile has its expert's weights and its own tokens, and padding is neither loaded nor stored."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.runs.operators import Addresses, busiest, make_operator, make_tiling, placement_of
from t3sim.workload.operators.kernel_table import check_memory
from t3sim.workload.workloads import experts_workload

MACHINE = load_machine()


@pytest.mark.parametrize("shape, experts, zipf", [("1024x256x96", "16x2", 0.8), ("32x128x64", "64x1", 4.0)])
def test_bytes_are_those_of_tokens_and_of_a_tile_s_weights(shape, experts, zipf):
    workload = experts_workload(shape, 4, experts, zipf, 1)
    tiling, placement = make_tiling(MACHINE, workload), placement_of(MACHINE, workload)
    operator, at = make_operator(MACHINE, workload, tiling), Addresses.of(workload, tiling)
    size, heaviest = workload.format.bytes, []
    for device, groups in enumerate(workload.routing.groups):
        table, made = operator.work(device), placement.tilings[device]
        tiles = sum(-(-rows // made.tile_n) for rows in groups) * (workload.n // made.tile_m)
        heaviest.append(tiles)
        assert len(table.groups) == tiles == len(placement.workgroups(device))
        assert table.bytes_stored() == sum(groups) * workload.n * size
        loads = table.loads.reshape(made.tiles, -1, 2)
        weights, tokens = loads[:, 0, 0], loads[:, 0, 1]
        first = made.first_row == 0
        if not tiles:
            continue
        assert tokens["rows"][first].sum() == sum(groups)
        assert tokens["base"].min() >= at.b and (tokens["base"] + tokens["rows"] * at.b_pitch).max() <= at.c
        begins, ends = np.sort(tokens["base"][first]), tokens["base"][first] + tokens["rows"][first] * at.b_pitch
        np.testing.assert_array_equal(np.sort(ends)[:-1], begins[1:])
        used = np.unique(weights["base"] // (at.a_pitch * workload.n))
        assert len(used) == len(groups) and used.max() < workload.experts // 4
    assert busiest(MACHINE, workload) == int(np.argmax(heaviest))
    assert max(heaviest) > min(heaviest), "and GPUs are uneven"


@pytest.mark.parametrize("k, scales", [(512, 4), (200, 2)])
def test_scales_of_tokens_of_8_bits_are_loaded_once_before_the_loop(k, scales):
    machine = MACHINE.model_copy(update={"gpu": MACHINE.gpu.model_copy(update={"matrix_efficiency_8_bits": 0.8})})
    plain = experts_workload(f"192x256x{k}", 4, "8x2", 0.6, 1, first=True)
    workload = replace(plain, dtype="e4m3")
    tiling = make_tiling(machine, workload)
    operator, at = make_operator(machine, workload, tiling), Addresses.of(workload, tiling)
    without = replace(operator, scales_bytes=0)
    for device, groups in enumerate(workload.routing.groups):
        table, bare, made = operator.work(device), without.work(device), operator.output_parts(device)
        check_memory(table, at.copies)
        first = table.steps[table.groups["first_step"]]
        assert (first["repeats"] == 1).all() and (first["loads"] == 1).all() and not first["stores"].any()
        assert not first["compute_cycles"].any()
        block = table.loads[first["first_load"]]
        np.testing.assert_array_equal(block["bytes"], 4 * scales)
        np.testing.assert_array_equal(block["rows"], made.columns)
        np.testing.assert_array_equal(block["base"], at.b + made.first_column * at.b_pitch + k)
        assert at.b_pitch >= k + 4 * scales and sum(groups) * (workload.n // tiling.tile_m) == block["rows"].sum()
        np.testing.assert_array_equal(table.groups["steps"], bare.groups["steps"] + 1)
        for number, (group, other) in enumerate(zip(table.groups, bare.groups)):
            rest = table.steps[group["first_step"] + 1:group["first_step"] + group["steps"]]
            same = bare.steps[other["first_step"]:other["first_step"] + other["steps"]]
            assert (rest == same).all(), f"the rest of group {number} is the GEMM's"
    assert make_operator(machine, replace(plain, dtype="bf16"), tiling).scales_bytes == 0
