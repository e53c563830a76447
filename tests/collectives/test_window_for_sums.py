"""Dispatch windows around a switch whose tables must never be full."""

import pytest

from t3sim.collectives import in_switch
from t3sim.collectives.schedule import Ids, Limits, ScheduleError
from t3sim.collectives.schedule.sums import window_for_sums
from t3sim.machine import load_machine
from t3sim.machine.topologies import switch
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import gemm_workload

LARGEST = 1 << 14
TILE_BYTES = 128 * 256 * 2  #: in columns of four lines


def schedule():
    return Plan(load_machine(), gemm_workload("4096x4096x64", 4), collective=in_switch.reduce_scatter,
                topology=switch, limits=Limits.EXACT, ids=Ids.TRACKED, slices=8).schedule


@pytest.mark.parametrize("tiles", [24, 100])
@pytest.mark.parametrize("planes", [2, 4])
def test_switches_side_by_side_hold_as_much_as_one_of_their_size(tiles, planes):
    """The lines of each column take turns, so that all have as many of a tile."""
    made = schedule()
    window = window_for_sums(made, LARGEST, tiles * TILE_BYTES)
    assert window_for_sums(made, LARGEST, tiles * TILE_BYTES // planes, planes) == window < LARGEST


def test_a_column_of_fewer_lines_than_switches_may_lie_at_half_of_them():
    made = schedule()
    assert (window_for_sums(made, LARGEST, 24 * TILE_BYTES // 4, planes=8)
            == window_for_sums(made, LARGEST, 24 * TILE_BYTES))
    with pytest.raises(ScheduleError, match=f"do not hold the {TILE_BYTES // 4} of one tile"):
        window_for_sums(made, LARGEST, TILE_BYTES // 8, planes=8)
