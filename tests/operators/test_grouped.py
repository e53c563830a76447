"""A grouped GEMM: each tile has its expert's weights and its own tokens, and padding is neither loaded nor stored."""

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.runs.operators import Addresses, busiest, make_operator, make_tiling, placement_of
from t3sim.workloads import experts_workload

MACHINE = load_machine()


@pytest.mark.parametrize("shape, experts, zipf", [("1024x256x96", "16x2", 0.8), ("32x128x64", "64x1", 4.0)])
def test_bytes_are_those_of_tokens_and_of_a_tile_s_weights(shape, experts, zipf):
    workload = experts_workload(shape, 4, experts, zipf, 1)
    tiling, placement = make_tiling(MACHINE, workload), placement_of(MACHINE, workload)
    operator, at = make_operator(MACHINE, workload, tiling), Addresses.of(workload, tiling)
    size, heaviest = workload.format.bytes, []
    for device, groups in enumerate(workload.routing.groups):
        table, made = operator.work(device), placement.made[device]
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
