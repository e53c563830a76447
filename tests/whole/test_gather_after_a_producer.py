"""A GEMM and its all-gather, all-reduce or all-to-all, on Track & Trigger alone.

Every GPU has what it must, bit for bit.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest

from t3sim.collectives import Program, direct, ring
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.all_to_all import all_to_all
from t3sim.collectives.schedule import Action, Ids, Limits, Shuffle
from t3sim.gpu.fabric.network import outgoing
from t3sim.machine.topologies import Link, Topology, fully_connected, switch
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import DMA_READ, Products, Variation, data_run, run_data_mode
from t3sim.runs.phases import PURPOSES
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import machine
from t3sim.workload.workloads import gemm_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

SLOW_LINK = {"link": {"bandwidth_gb_per_s": 3.0, "latency_ns": 400.0}}
FAST_LINK = {"link": {"bandwidth_gb_per_s": 400.0, "latency_ns": 20.0}}
BLOCKS = {"dma": {"tiles_per_block": 4}}


def ring_all_reduce(ranks: int) -> Program:
    return all_reduce(ring.reduce_scatter(ranks), ring.all_gather(ranks))


def direct_all_reduce(ranks: int) -> Program:
    return all_reduce(direct.reduce_scatter(ranks), direct.all_gather(ranks))


def options(collective, devices: int, seed: int, **changes) -> dict:
    return dict(seed=seed, hold_back=0.1, link_jitter_cycles=200, collective=collective,
                start_cycles=late_starts(devices, 1000, seed), **changes)


RINGS = [
    ("ring_small", "200x300x70", 2, {}),
    ("ring_small", "200x300x70", 3, BLOCKS),
    ("ring_small", "200x300x70", 4, {}),
    ("ring_tiny", "67x90x32", 3, SLOW_LINK),
    ("ring_tiny", "128x64x8", 4, FAST_LINK),
]


@pytest.mark.parametrize("name, shape, devices, changes", RINGS)
@pytest.mark.parametrize("limits, ids", [(Limits.SHIFT, Ids.TOUCHED), (Limits.EXACT, Ids.TOUCHED),
                                         (Limits.EXACT, Ids.TRACKED)])
@pytest.mark.parametrize("staged", [False, True])
def test_an_all_gather_after_its_producer(name, shape, devices, changes, limits, ids, staged, seed):
    """Each GPU stores and sends its own chunk; arriving chunks are kept and sent on."""
    workload = gemm_workload(shape, devices)
    result = run_data_mode(Plan(machine(name, **changes), workload, **options(
        ring.all_gather, devices, seed, limits=limits, ids=ids, stage_first_chunk=staged)), Policy("mca"),
                           Variation(overtaking_reads=True))
    lines = result.elements // 32
    assert result.elements == workload.m * workload.n and result.packets >= lines * (devices - 1)
    if not staged:
        assert not result.columns_added, "nothing is added to anything"


@pytest.mark.parametrize(("devices", "topology", "collective"), [
    (3, switch, direct.all_gather), (4, fully_connected, direct.all_gather), (2, fully_connected, direct_all_reduce),
    (3, fully_connected, direct_all_reduce), (4, switch, direct_all_reduce)])
@pytest.mark.parametrize("ids", [Ids.TOUCHED, Ids.TRACKED])
def test_a_tile_goes_to_all_others_at_once(devices, topology, collective, ids, seed):
    """2 to 4 GPUs, switch and full mesh, any order: a sum is read once, an own tile not at all."""
    described = machine("ring_small", dma={"peers": devices - 1, "copies": devices - 1})
    workload = gemm_workload("256x192x40", devices)
    run, _ = data_run(Plan(described, workload, **options(
        collective, devices, seed, limits=Limits.EXACT, ids=ids, topology=topology, slices=2,
        shuffle=Shuffle(2, seed))), Policy("mca"), Variation(overtaking_reads=True))
    try:
        run.run()
        read, output = run.sim.mem.total_bytes[:, PURPOSES.index("rs_read")].sum(), 256 * 192 * 2
        assert read == (output if collective is direct_all_reduce else 0)
        reduced = devices - 1 if collective is direct_all_reduce else 0
        assert run.sim.network.injected.sum() * 64 >= output * (devices - 1 + reduced)
        assert run.sim.network.arrived.sum() == run.sim.network.injected.sum()
    finally:
        run.close()


@pytest.mark.parametrize("links", [switch, lambda gpus: Topology("other order", gpus, tuple(
    Link(gpu, (gpu - 1) % gpus) for gpu in reversed(range(gpus))))], ids=["switch", "links in another order"])
def test_own_tiles_leave_by_the_port_that_leads_where_they_go(links, seed):
    """Its number need not be the GPU's: around a switch it is not, nor where links are listed otherwise."""
    workload = gemm_workload("96x48x24", 3)
    run, _ = data_run(Plan(machine("ring_tiny", **SLOW_LINK), workload, **options(
        ring.all_gather, 3, seed, topology=links)), Policy("mca"))
    try:
        assert any(outgoing(run.sim.network, gpu)[0] != gpu for gpu in range(3))
        run.run()
    finally:
        run.close()


@pytest.mark.parametrize("name, shape, devices, changes", RINGS)
def test_an_all_reduce_after_its_producer(name, shape, devices, changes, seed):
    """Tiles that are summed are gathered while others are still being reduced."""
    workload = gemm_workload(shape, devices)
    result = run_data_mode(Plan(machine(name, **changes), workload, **options(
        ring_all_reduce, devices, seed, limits=Limits.EXACT)), Policy("mca"), Variation(overtaking_reads=True))
    assert result.elements == workload.m * workload.n
    assert result.packets >= result.elements // 32 * 2 * (devices - 1)


@pytest.mark.parametrize("shape, devices, topology, slices", [
    ("200x300x70", 2, fully_connected, 1), ("200x300x70", 3, switch, 1), ("200x300x70", 4, fully_connected, 2),
    ("256x384x40", 4, partial(fully_connected, divided=True), 3), ("256x192x40", 4, switch, 1),
])
def test_an_all_to_all_after_its_producer(shape, devices, topology, slices, seed):
    """Experts: each GPU makes a part for each; its own is written here, the others arrive where they go."""
    workload = gemm_workload(shape, devices)
    result = run_data_mode(Plan(machine("ring_small", dma={"peers": 3, "regions": 64}), workload, **options(
        all_to_all, devices, seed, limits=Limits.EXACT, ids=Ids.TRACKED, topology=topology, slices=slices)),
                           Policy("mca"))
    assert result.elements == workload.m * workload.n and not result.columns_added
    assert result.packets >= result.elements // 32 * (devices - 1) // devices


def test_the_oracle_of_an_all_gather():
    """All memories are alike, and each element is what its owner made; a byte is read once where it is sent on."""
    schedule = Plan(machine("ring_small"), gemm_workload("200x300x70", 4), collective=ring.all_gather,
                    limits=Limits.EXACT).schedule
    found, tiling = Products.of(schedule, 70, seed=1), schedule.tiling
    assert (found.memory == found.memory[:1]).all()
    for device in range(4):
        rows = schedule.rows(device)
        for tile in rows.tile[rows.contributes]:
            m0, n0 = tiling.first_row[tile], tiling.first_column[tile]
            assert found.memory[0, n0, m0] == found.product[device, n0, m0]
            reads = found.tally[DMA_READ, :, n0, m0]
            assert reads.sum() == 2 and not reads[device], "two of the other three send it on"
        forwards = rows.actions & Action.SEND_DMA != 0
        assert (rows.actions[forwards] & Action.EVENT).all() and not rows.contributes[forwards].any()


def test_the_oracle_of_an_all_reduce():
    schedule = Plan(machine("ring_small"), gemm_workload("200x300x70", 3), collective=ring_all_reduce,
                    limits=Limits.EXACT).schedule
    found = Products.of(schedule, 70, seed=1)
    assert (found.memory == found.memory[:1]).all()
    scattered = dataclasses.replace(schedule, program=ring.reduce_scatter(3))
    alone = Products.of(scattered, 70, seed=1)
    assert (np.take_along_axis(alone.memory, np.maximum(alone.owner, 0)[None], axis=0)[0] == found.memory[0])[
        alone.owner >= 0].all()
