"""Tokens that go to experts: how they are cut, where they lie, and that no GPU waits for another for ever."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.collectives.schedule import Action, ScheduleError
from t3sim.collectives.schedule.schedule import NO_ID
from t3sim.cosim.driver.driver import Driver
from t3sim.machine import load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.runs.build import consumers_of
from t3sim.runs.dispatch_before import dispatch_tiling
from t3sim.runs.exchange import MOST_REGIONS, fused_with
from t3sim.runs.gather_before import groups_of, rows_sent
from t3sim.runs.plan import Plan
from t3sim.workload.operators.tiling import TilingError
from t3sim.workload.workloads import DispatchWorkload, experts_workload

EXCHANGE = fused_with("moe-dispatch")
#: Tokens, experts, exponent, GPUs: even ones, uneven ones, a GPU without any, all experts for each token, features cut.
CASES = [("1024x256x64", "16x2", 0.0, 4), ("768x128x512", "8x3", 1.2, 4), ("64x128x64", "64x1", 4.0, 4),
         ("96x100x64", "4x4", 0.5, 2), ("512x128x4096", "16x2", 0.8, 8)]


def setting(shape: str, experts: str, zipf: float, gpus: int):
    workload = experts_workload(shape, gpus, experts, zipf, 1, first=True)
    assert isinstance(workload, DispatchWorkload)
    return EXCHANGE.hardware(load_machine(), workload), workload


def planned(machine, workload) -> Plan:
    return Plan(machine, workload, exchange=EXCHANGE).fused()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_pair_sends_its_tokens_and_each_expert_s_lie_next_to_each_other(case):
    machine, workload = setting(*case)
    gpus, counts = workload.tp, workload.routing.counts.copy()
    tiling = dispatch_tiling(machine, workload, MOST_REGIONS)
    starts, widths = (np.array(one).reshape(-1, gpus, gpus) for one in (tiling.starts, tiling.widths))
    np.testing.assert_array_equal(widths.sum(axis=0), workload.between)
    assert tiling.n == counts.sum() and (tiling.column_of_tiles >= 0).all()
    ends = np.cumsum(counts.sum(axis=0))
    for turn, source, to in zip(*np.nonzero(widths)):
        first, width = starts[turn, source, to], widths[turn, source, to]
        expert = np.searchsorted(ends, first, side="right")
        assert first + width <= ends[expert], "a tile is of one expert"
        assert expert // (workload.experts // gpus) == to
        counts[source, expert] -= width
        if source != to:  # what comes later lies behind
            later = starts[turn + 1:, :, to][widths[turn + 1:, :, to] > 0]
            of_others = np.isin(later, starts[turn + 1:, np.arange(gpus) != to, to])
            assert (later[of_others & (later < ends[expert])] > first).all()
    assert not counts.any()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_gpus_have_as_many_ids_and_what_is_sent_has_a_smaller_one(case):
    machine, workload = setting(*case)
    plan, gpus = planned(machine, workload), workload.tp
    schedule = plan.schedule
    assert schedule.is_causal() and not schedule.is_symmetric()
    places = 2 * (gpus - 1) * schedule.tiling.tile_rows
    assert schedule.slack < places, "a slice"
    for device in range(gpus):
        rows, requests = schedule.rows(device), schedule.requests(device)
        ids = rows.id[rows.id != NO_ID]
        np.testing.assert_array_equal(np.sort(ids), np.arange(schedule.policy.slices * places))
        np.testing.assert_array_equal(requests.id[requests.opens != 0], np.sort(ids))
        assert requests.starts.sum() == len(rows_sent(plan.spaces(device)[0]))
        kept = rows.contributes & (rows.actions & Action.SEND_DMA == 0)
        assert (rows.id[kept] == NO_ID).all() and (rows.to_gpu[kept] == -1).all()
        assert not np.isin(np.flatnonzero(kept), requests.row).any(), "nobody asks for what stays"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_workgroup_waits_for_the_last_of_its_tokens(case):
    machine, workload = setting(*case)
    plan = planned(machine, workload)
    schedule = plan.schedule
    for space in plan.spaces(None):
        consumers, groups = consumers_of(machine, workload, space.device), groups_of(space)
        turn, needs = consumers.in_turn(space)
        assert (np.diff(needs) >= 0).all()
        assert consumers.outputs.columns.sum() == (-(-workload.n // machine.gpu.tile_m)) * (
            workload.tokens_of[space.device].sum())
        come = np.array([groups.turn[place] - groups.ready for place in schedule.tiling.column_of_tiles])
        for workgroup, need in list(zip(turn, needs))[::7]:
            first = consumers.first_input + consumers.outputs.first_column[workgroup]
            assert need == max(0, come[first:first + consumers.outputs.columns[workgroup]].max() + 1)


def test_a_window_holds_slices_between_eight_quarters_of_an_h100():
    quarter = fraction_of(load_machine("h100-t3"), 4)
    machine = quarter.model_copy(update={"dma": quarter.dma.model_copy(update={"ready_commands": 512})})
    few, many = (experts_workload("3584x1024x1024", gpus, "32x4", first=True) for gpus in (4, 8))
    assert EXCHANGE.hardware(machine, few).dma.ready_commands == machine.dma.ready_commands == 512
    able = EXCHANGE.hardware(machine, many)
    plan = planned(able, many)
    schedule = plan.schedule
    assert able.dma.ready_commands == 4096 and schedule.slack == 13
    largest = Driver(able.geometry()).largest_window(8, schedule.waits_for(0))
    assert 4 * 14 <= largest <= able.tracker.sets, "four slices, whose tiles the Tracker has room for"
    plan.spaces(None)
    unable = able.model_copy(update={"dma": able.dma.model_copy(update={"ready_commands": 512})})
    with pytest.raises(ScheduleError, match="up to 13 ids ahead .* a dispatch window of more than 9 is needed"):
        replace(plan, machine=unable).spaces(None)


def test_what_the_hardware_cannot_count_is_refused():
    with pytest.raises(BadInput, match=r"32 GPUs: a slice of 496 tiles at each needs a queue of 123008 DMA "
                                       r"commands: \[dma\] ready_commands is at most 65535"):
        setting("2048x128x16384", "32x2", 0.0, 32)
    with pytest.raises(BadInput, match=r"M=1048576: the ready table counts 4096 groups of up to 64 tokens, and the "
                                       r"GPU with the most has places for \d+"):
        setting("1048576x128x64", "8x2", 0.0, 4)
    with pytest.raises(TilingError, match="K=65537 cannot be cut into a power of two"):
        setting("64x128x65537", "8x2", 0.0, 4)
