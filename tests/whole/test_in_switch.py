"""Collectives in a switch that adds and copies, on Track & Trigger with real numbers, and how full its memory gets."""

import numpy as np
import pytest

from t3sim.collectives import Program, in_switch
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.schedule import Ids, Limits, ScheduleError, Shuffle
from t3sim.gpu.fabric.network import outgoing
from t3sim.machine.topologies import switch
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import Variation, data_run
from t3sim.runs.phases import PURPOSES
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import machine
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

TILE_BYTES = 64 * 32 * 2  #: of peers_small


def in_switch_all_reduce(ranks: int) -> Program:
    return all_reduce(in_switch.reduce_scatter(ranks), in_switch.all_gather(ranks))


def ran(collective, devices: int, seed: int, shape: str = "256x192x40", merge_ways: int = 16,
        merge_sets: int = TILE_BYTES // 64, slices: int = 3, rtl: bool = False, planes: int = 1):
    """Every GPU with its own RTL, disturbed, late and out of order; each bit is compared with numpy's sum."""
    described = machine("peers_small", switch=dict(merge_sets=merge_sets, merge_ways=merge_ways, rtl=rtl,
                                                   planes=planes))
    options = dict(seed=seed, hold_back=0.1, link_jitter_cycles=200, collective=collective, topology=switch,
                      start_cycles=late_starts(devices, 1000, seed), limits=Limits.EXACT, ids=Ids.TRACKED,
                      shuffle=Shuffle(2, seed), slices=slices)
    run, ledger = data_run(Plan(described, gemm_workload(shape, devices), **options), Policy("mca"),
                           Variation(overtaking_reads=True))
    try:
        run.run()
        return run, ledger.result()
    finally:
        run.close()


def link_bytes(run) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that each GPU sent to the switches, and got from them."""
    network, gpus = run.sim.network, run.schedule.gpus
    up = np.array([network.sent_bytes[outgoing(network, gpu)].sum() for gpu in range(gpus)])
    return up, network.sent_bytes[outgoing(network, gpus)].reshape(gpus, -1).sum(axis=1)


@pytest.mark.parametrize(("devices", "shape"), [(2, "256x192x40"), (3, "200x300x70"), (4, "256x192x40"),
                                                (4, "200x300x70")])
@pytest.mark.parametrize("collective", [in_switch.reduce_scatter, in_switch_all_reduce, in_switch.all_gather])
def test_every_bit_is_numpy_s(devices, shape, collective, seed):
    run, result = ran(collective, devices, seed, shape)
    switched, output = run.sim.switch, result.elements * 2
    up, down = link_bytes(run)
    adds, gathers = collective is not in_switch.all_gather, collective is not in_switch.reduce_scatter
    assert up.sum() == output * (adds * (devices - 1) + gathers), "what is copied goes up once"
    assert down.sum() == output * (adds + gathers * (devices - 1)), "what is summed comes down once"
    assert not switched.held_lines.any() and not switched.sums.count.any()
    reads = run.sim.mem.total_bytes[:, PURPOSES.index("rs_read")].sum()
    assert reads == (output if adds and gathers else 0)
    assert result.columns_added * 32 >= result.elements * adds


def test_a_small_memory_is_never_full(seed):
    """The dispatch window lets in no more tiles than a port's memory holds sums of."""
    wide, _ = ran(in_switch.reduce_scatter, 4, seed, "512x512x24", slices=8)
    assert wide.sim.switch.most_held.max() > 3 * TILE_BYTES // 64
    for tiles in (4, 8):
        run, _ = ran(in_switch.reduce_scatter, 4, seed, "512x512x24", merge_ways=tiles, slices=8)
        assert TILE_BYTES // 64 < run.sim.switch.most_held.max() <= tiles * TILE_BYTES // 64


@pytest.mark.parametrize("collective", [in_switch.reduce_scatter, in_switch_all_reduce, in_switch.all_gather])
def test_the_rtl_of_the_switch_in_the_loop(collective, seed):
    """Its table holds every line: packets equal the model's, in about the same time, and every bit is right."""
    model, result = ran(collective, 3, seed, "200x300x70")
    run, _ = ran(collective, 3, seed, "200x300x70", rtl=True)
    adds, gathers = collective is not in_switch.all_gather, collective is not in_switch.reduce_scatter
    assert run.switch.counters["evicted"] == run.switch.counters["expired"] == 0
    assert run.switch.counters["completed"] == run.switch.counters["begun"] * adds
    for ours, models in zip(link_bytes(run), link_bytes(model)):
        assert ours.tolist() == models.tolist()
    assert run.now == pytest.approx(model.now, rel=0.1)
    assert link_bytes(run)[1].sum() == result.elements * 2 * (adds + 2 * gathers)


@pytest.mark.parametrize("collective", [in_switch.reduce_scatter, in_switch_all_reduce])
def test_a_full_table_of_the_rtl_costs_packets_and_no_bit(collective, seed):
    """8 lines: sums leave incomplete, memory adds them, and the Tracker counts the parts in each."""
    run, result = ran(collective, 3, seed, "200x300x70", merge_sets=4, merge_ways=2, rtl=True)
    counted = run.switch.counters
    assert counted["evicted"] > 1000 and counted["expired"] > 0 and run.sim.switch.most_held.max() == 8
    down = link_bytes(run)[1].sum() - result.elements * 4 * (collective is in_switch_all_reduce)
    assert down > 1.5 * result.elements * 2, "a sum goes down in several packets"


@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize("collective", [in_switch.reduce_scatter, in_switch_all_reduce])
def test_two_switches_take_turns_line_by_line(collective, rtl, seed):
    """Each adds its own lines, and has half of each link; every bit is compared."""
    run, result = ran(collective, 4, seed, rtl=rtl, planes=2)
    network, gathers = run.sim.network, collective is in_switch_all_reduce
    by_plane = network.sent_bytes.reshape(-1, 2)
    assert (by_plane[:, 0] == by_plane[:, 1]).all() and by_plane.min() > 0
    assert (network.bytes_per_cycle == run.machine.link.bandwidth_gb_per_s / run.machine.memory_clock_ghz / 2).all()
    assert link_bytes(run)[1].sum() == result.elements * 2 * (1 + 3 * gathers)
    if rtl:
        assert run.switch.counters["evicted"] == run.switch.counters["expired"] == 0
        assert run.switch.counters["completed"] == run.switch.counters["begun"] == result.elements * 2 // 64


def test_two_gpus_have_nothing_to_add_in_the_switch(seed):
    run, _ = ran(in_switch.reduce_scatter, 2, seed, merge_sets=4, merge_ways=2, rtl=True)
    assert run.switch.counters["begun"] == 0 and run.switch.counters["completed"] == run.switch.counters["left"]


def test_packets_that_cannot_say_how_many_parts_they_have_are_refused():
    described, workload = machine("peers_small", channels={"more_bits": 1}), gemm_workload("256x192x40", 4)
    plan = Plan(described, workload, collective=in_switch.reduce_scatter, topology=switch, limits=Limits.EXACT,
                ids=Ids.TRACKED)
    with pytest.raises(ScheduleError, match=r"up to 3 parts of a sum: \[channels\] more_bits=1 counts 2"):
        plan.spaces()


def test_a_memory_that_is_too_small_is_refused():
    words = r"\[switch\] merge_sets x merge_ways: 4096 bytes hold sums of a window of 1 ids: more than this schedule's"
    with pytest.raises(ScheduleError, match=words):
        ran(in_switch.reduce_scatter, 4, 0, merge_ways=1)
    with pytest.raises(ScheduleError, match="2048 bytes do not hold the 4096 of one tile"):
        ran(in_switch.reduce_scatter, 4, 0, shape="256x192x40", merge_ways=1, merge_sets=TILE_BYTES // 128)
