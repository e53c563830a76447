"""Placements: each token's sum has all of its parts once, whoever makes them, and no GPU waits for another for ever."""

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.collectives.schedule import Action, ScheduleError
from t3sim.collectives.schedule.placement import NOWHERE
from t3sim.collectives.schedule.schedule import NO_GPU, Schedule
from t3sim.machine import Machine, load_machine
from t3sim.runs.exchange import fused_with
from t3sim.runs.operators import make_tiling, placement_of
from t3sim.runs.plan import Plan
from t3sim.workload.operators.tiling import TilingError
from t3sim.workload.workloads import WorkloadError, experts_workload

MACHINE = load_machine()
GPUS = 4
#: Tokens, experts, exponent: even ones, few tokens, a GPU without any, all experts for each token, several slices.
CASES = [("1024x256x64", "16x2", 0.0),
         ("512x128x64", "8x3", 1.2), ("32x128x64", "64x1", 4.0), ("96x128x64", "4x4", 0.5),
         ("4096x512x64", "8x2", 0.8)]


def with_sets(sets: int) -> Machine:
    return MACHINE.changed(tracker={"sets": sets})


def scheduled(shape: str, experts: str, zipf: float = 0.0) -> Schedule:
    """One slice if the Tracker holds it; the last case's does not."""
    workload, exchange = experts_workload(shape, GPUS, experts, zipf, 1), fused_with("moe-combine")
    machine = with_sets(8) if workload.m > 1024 else MACHINE
    found = Plan(machine, workload, exchange=exchange).fused().schedule
    assert found.policy.slices == (1 if workload.m <= 1024 else 4)
    return found


@pytest.mark.parametrize("shape, experts, zipf", CASES)
def test_each_column_has_each_of_its_parts_once_and_by_its_expert(shape, experts, zipf):
    workload = experts_workload(shape, GPUS, experts, zipf, 1)
    placement, chosen = placement_of(MACHINE, workload), workload.routing.experts_of
    made = np.zeros((workload.m, workload.per_token), int)
    for device, (columns, parts) in enumerate(zip(placement.columns, placement.parts)):
        there = columns != NOWHERE
        np.add.at(made, (columns[there], parts[there]), 1)
        of_expert = chosen[columns[there], parts[there]]
        assert (of_expert // (workload.experts // GPUS) == device).all()
        assert (np.diff(of_expert) >= 0).all(), "an expert's tokens follow one another"
        tile = np.flatnonzero(there) // placement.tilings[device].tile_n
        assert all(len(set(of_expert[tile == one])) == 1 for one in set(tile)), "a tile has one expert's weights"
    assert (made == 1).all()


@pytest.mark.parametrize("shape, experts, zipf", CASES)
def test_a_tile_waits_for_the_bytes_that_are_stored(shape, experts, zipf):
    """At each owner the columns that all workgroups have of a tile are its own, as often as its threshold says."""
    schedule = scheduled(shape, experts, zipf)
    stored = [np.zeros(schedule.rows(device).ids, int) for device in range(GPUS)]
    for device in range(GPUS):
        rows, touched = schedule.rows(device), schedule.rows_touched(device)
        row = touched[touched != NOWHERE]
        here = rows.to_gpu[row, 0] == NO_GPU
        assert ((rows.actions[row] & Action.SEND_STORES != 0) == ~here).all()
        np.add.at(stored[device], rows.id[row[here]], 1)
        for to, there in zip(rows.to_gpu[row[~here], 0], rows.to_id[row[~here], 0]):
            stored[to][there] += 1
    for device in range(GPUS):
        rows = schedule.rows(device)
        own = rows.id != -1
        assert (rows.updates[own] == schedule.placement.terms).all()
        assert (stored[device][rows.id[own]] == schedule.tiling.columns[rows.tile[own]] * rows.updates[own]).all()


@pytest.mark.parametrize("shape, experts, zipf", CASES)
@pytest.mark.parametrize("window", ["least", "all"])
def test_windows_that_hold_a_slice_never_wait_in_a_circle(shape, experts, zipf, window):
    schedule = scheduled(shape, experts, zipf)
    size = schedule.slack + 1 if window == "least" else 1 << 20
    assert play(schedule, size), "every workgroup has started"
    if window == "least" and size > 1:
        assert not play(schedule, size - 1), "and with less they wait"


def play(schedule: Schedule, window: int) -> bool:
    """Let each GPU's requests go, in their order, as far as heads allow; a tile is done when all have stored."""
    asked, touched = ([each(device) for device in range(GPUS)] for each in (schedule.requests, schedule.rows_touched))
    rows = [schedule.rows(device) for device in range(GPUS)]
    left = [schedule.tiling.columns[one.tile[one.id >= 0]] * schedule.placement.terms for one in rows]
    opened = [np.zeros(len(one), bool) for one in left]
    at, started = [0] * GPUS, [0] * GPUS
    moved = True
    while moved:
        moved = False
        heads = [next((index for index, one in enumerate(left[d]) if one or not opened[d][index]), len(left[d]))
                 for d in range(GPUS)]
        for d in range(GPUS):
            one = asked[d]
            while at[d] < len(one.row):
                index = at[d]
                if one.opens[index] and one.id[index] >= heads[d] + window or (
                        one.reaches[index] and one.there[index] >= heads[one.to_gpu[index]] + window):
                    break
                at[d], moved = index + 1, True
                opened[d][one.id[index]] |= bool(one.opens[index])
                if one.starts[index]:
                    for row in touched[d][started[d]][touched[d][started[d]] != NOWHERE]:
                        to = rows[d].to_gpu[row, 0]
                        there = (d, rows[d].id[row]) if to == NO_GPU else (to, rows[d].to_id[row, 0])
                        left[there[0]][there[1]] -= 1
                    started[d] += 1
    return all(one == len(asked[d].row) for d, one in enumerate(at)) and not any(one.any() for one in left)


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(TilingError, match="M=36: each of 4 GPUs has 9 tokens.*a multiple of 8"):
        make_tiling(MACHINE, experts_workload("36x128x64", GPUS, "8x2"))
    with pytest.raises(TilingError, match="N=192 is no multiple of 128"):
        make_tiling(MACHINE, experts_workload("64x192x64", GPUS, "8x2"))
    for shape, experts, told in (("30x128x64", "8x2", "M=30 tokens"), ("32x128x64", "6x2", "2 of 6 experts"),
                                 ("32x128x64", "8x9", "9 of 8 experts"), ("32x128x64", "8", "EXPERTSxCHOSEN")):
        with pytest.raises(WorkloadError, match=told):
            experts_workload(shape, GPUS, experts)
    counts = ((4, 4, 0, 0), (4, 0, 4, 0), (0, 4, 0, 4), (2, 2, 2, 2))
    assert experts_workload("16x128x64", GPUS, "4x2", given=counts).routing.experts_of.shape == (16, 2)
    with pytest.raises(BadInput, match="GPU 0 has 9 tokens"):
        experts_workload("16x128x64", GPUS, "4x2", given=((5, 4, 0, 0), *counts[1:3], (2, 2, 2, 1)))
    with pytest.raises(WorkloadError, match="M=32: the routing has 16"):
        experts_workload("32x128x64", GPUS, "4x2", given=counts)


def test_a_tracker_that_does_not_hold_a_slice_is_refused():
    small = with_sets(8)
    workload, exchange = experts_workload("16384x128x64", GPUS, "8x2"), fused_with("moe-combine")
    machine = exchange.hardware(small, workload)
    plan = Plan(machine, workload, exchange=exchange).fused()
    with pytest.raises(ScheduleError, match="a dispatch window of more than"):
        plan.spaces()
