"""Collectives in a switch that adds and copies, on Track & Trigger with real numbers, and how full its memory gets."""

import numpy as np
import pytest

from t3sim.collectives import Program, in_switch
from t3sim.collectives.all_reduce import all_reduce
from t3sim.fabric.network import outgoing
from t3sim.runs.build import Options, late_starts
from t3sim.runs.data_mode import Variation, data_run
from t3sim.runs.phases import PURPOSES
from t3sim.runs.policy import Policy
from t3sim.schedule import Ids, Limits, ScheduleError, Shuffle
from t3sim.testbenches.soak import machine
from t3sim.topologies import switch
from t3sim.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

TILE_BYTES = 64 * 32 * 2  #: of ring_small


def in_switch_all_reduce(ranks: int) -> Program:
    return all_reduce(in_switch.reduce_scatter(ranks), in_switch.all_gather(ranks))


def ran(collective, devices: int, seed: int, shape: str = "256x192x40", merge_ways: int = 16,
        merge_sets: int = TILE_BYTES // 64, slices: int = 3):
    """Every GPU with its own RTL, disturbed, late and out of order; each bit is compared with numpy's sum."""
    described = machine("ring_small", dma={"peers": max(1, devices - 1)},
                        switch={"merge_sets": merge_sets, "merge_ways": merge_ways})
    options = Options(seed=seed, hold_back=0.1, link_jitter_cycles=200, collective=collective, topology=switch,
                      start_cycles=late_starts(devices, 1000, seed), limits=Limits.EXACT, ids=Ids.TRACKED,
                      shuffle=Shuffle(2, seed), slices=slices)
    run, ledger = data_run(described, gemm_workload(shape, devices), Policy("mca"), options,
                           Variation(overtaking_reads=True))
    try:
        run.run()
        return run, ledger.result()
    finally:
        run.close()


def link_bytes(run) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that each GPU sent to the switch, and got from it."""
    network, gpus = run.sim.network, run.schedule.devices
    up = np.array([network.sent_bytes[outgoing(network, gpu)].sum() for gpu in range(gpus)])
    return up, network.sent_bytes[outgoing(network, gpus)]


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
    assert not switched.held.any() and not switched.sums.count.any()
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


def test_a_memory_that_is_too_small_is_refused():
    words = r"\[switch\] merge_sets x merge_ways: 4096 bytes hold sums of a window of 1 ids: more than this schedule's"
    with pytest.raises(ScheduleError, match=words):
        ran(in_switch.reduce_scatter, 4, 0, merge_ways=1)
    with pytest.raises(ScheduleError, match="2048 bytes do not hold the 4096 of one tile"):
        ran(in_switch.reduce_scatter, 4, 0, shape="256x192x40", merge_ways=1, merge_sets=TILE_BYTES // 128)
