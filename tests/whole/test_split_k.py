"""Split-K (T3 paper, section 7.7): several workgroups make a tile, and the Tracker waits for all of them."""

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.collectives import direct, ring
from t3sim.collectives.schedule import Action, Limits, roles_of
from t3sim.machine.topologies import switch
from t3sim.mechanisms.table import check_split_k
from t3sim.runs.address_space import fused_work, map_output
from t3sim.runs.data_mode import data_run, reduction, run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.failure import SimulationError
from t3sim.runs.kernels import GEMM, simulate
from t3sim.runs.operators import make_operator, make_tiling
from t3sim.runs.plan import Plan
from t3sim.runs.split_k import parts_added, with_split_k
from t3sim.testbenches.soak import machine
from t3sim.workload.operators.kernel_table import KernelError
from t3sim.workload.operators.operator import output_stores
from t3sim.workload.operators.tiling import TilingError
from t3sim.workload.workloads import gemm_workload, gemv_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]


def split(name: str, parts: int, **changes: dict):
    return machine(name, **{**changes, "gpu": {"k_parts": parts, "block_k": 16, **changes.get("gpu", {})}})


@pytest.mark.parametrize("parts, k", [(1, 100), (2, 100), (3, 100), (7, 100), (4, 64)])
def test_parts_cover_k_in_whole_steps_that_differ_by_one_at_most(parts, k):
    described, workload = split("ring_small", parts), gemm_workload(f"70x130x{k}", 2)
    tiling = make_tiling(described, workload)
    work = make_operator(described, workload, tiling, 0).work(0)
    assert len(work.groups) == tiling.tiles * parts
    whole = make_operator(split("ring_small", 1), workload, tiling, 0).work(0)
    for tile in range(tiling.tiles):
        read, turns = [], []
        for group in work.groups[tile * parts:(tile + 1) * parts]:
            steps = work.steps[group["first_step"]:group["first_step"] + group["steps"]]
            turns.append(int(steps["repeats"][:-1].sum()))
            for step in steps[:-1]:
                b = work.loads[step["first_load"] + 1]
                read += [(b["base"] + turn * b["step_stride"], b["bytes"]) for turn in range(step["repeats"])]
            assert steps["stores"][-1] == tiling.wf_tiles[tile]
        assert max(turns) - min(turns) <= 1 and sum(turns) == -(-k // 16)
        assert sum(size for _, size in read) == k * 2 and (np.diff([at for at, _ in read]) == 32).all()
    loops, alone = (table.steps[table.steps["loads"] > 0] for table in (work, whole))
    assert np.isclose((loops["repeats"] * loops["compute_cycles"]).sum(),
                      (alone["repeats"] * alone["compute_cycles"]).sum())


def test_what_a_tile_waits_for():
    """Each workgroup updates every element, here and there; DMA sends a sum once (docs/reference/kernels.md)."""
    alone, three = (roles_of(ring.reduce_scatter(4), parts=parts) for parts in (1, 3))
    assert [[role.updates for role in own] for own in three] == [[0, 6, 4, 4]] * 4
    assert [[role.updates for role in own] for own in alone] == [[0, 2, 2, 2]] * 4
    assert [role.updates for role in roles_of(ring.reduce_scatter(4), staged=True, parts=3)[0]] == [3, 4, 4, 4]
    assert [role.updates for role in roles_of(direct.reduce_scatter(3), parts=2)[1]] == [0, 0, 6]


@pytest.mark.parametrize("name, shape, devices, parts, changes", [
    ("ring_small", "200x300x70", 3, 2, {}),
    ("ring_small", "256x256x64", 4, 3, {"link": {"bandwidth_gb_per_s": 3.0, "latency_ns": 400.0}}),
    ("ring_tiny", "41x33x64", 8, 2, {"dma": {"tiles_per_block": 2}}),
    ("ring_wide", "200x300x64", 2, 4, {}),
])
def test_every_bit_with_k_in_parts(name, shape, devices, parts, changes):
    """Local and remote partial tiles of all workgroups are added in the order in which they came, checked in numpy."""
    described, workload = split(name, parts, **changes), gemm_workload(shape, devices)
    options = dict(seed=5, hold_back=0.1, link_jitter_cycles=100)
    result = run_data_mode(Plan(described, workload, **options))
    alone = run_data_mode(Plan(split(name, 1, **changes), workload, **options))
    assert result.triggers == alone.triggers, "a tile is complete once, whatever the number of its workgroups"
    assert result.packets > alone.packets and result.columns_added > alone.columns_added


def test_a_direct_exchange_with_k_in_parts():
    described, workload = split("peers_small", 2), gemm_workload("200x300x70", 3)
    run_data_mode(Plan(described, workload, seed=2, limits=Limits.EXACT, collective=direct.reduce_scatter,
                       topology=switch))


def test_a_staged_first_chunk_with_k_in_parts():
    run_data_mode(Plan(split("ring_small", 2), gemm_workload("200x300x70", 3), stage_first_chunk=True))


def test_a_part_counted_twice_in_place_of_another_is_found():
    """The order of addition is by workgroup: exchanging the products of two parts leaves other bits."""
    run, ledger = data_run(Plan(split("ring_small", 3), gemm_workload("100x130x96", 2), seed=1))
    try:
        made = ledger.products.product.copy()
        ledger.data.product[1] = ledger.data.product[0]
        with pytest.raises(SimulationError, match="numpy's reduction in the schedule's order gives"):
            run.run()
        assert (reduction(run.schedule, made)[0] == ledger.products.memory).all()
    finally:
        run.close()


def test_a_kernel_and_a_schedule_must_have_as_many_parts():
    """A kernel of two workgroups a tile is refused on a schedule of one, whose tiles would fire too early."""
    described, workload = split("ring_small", 2), gemm_workload("200x300x70", 3)
    assert {role.updates for role in Plan(described, workload).schedule.roles[0]} == {0, 3, 4}
    work = make_operator(described, workload, make_tiling(described, workload), 0).work(0)
    schedule = Plan(split("ring_small", 1), workload).schedule
    space = map_output(schedule, 0, [0] * 3, described.geometry(), 1)
    with pytest.raises(KernelError, match="by a group of one workgroup; here are"):
        fused_work(work, space, make_tiling(described, workload))


def test_the_baseline_stores_parts_in_a_workspace_and_adds_them():
    described, workload = split("ring_small", 3), gemm_workload("200x300x70", 2)
    tiling = make_tiling(described, workload)
    work = make_operator(described, workload, tiling, 1 << 20).work(0)
    both = parts_added(work, tiling, 1 << 20, 1 << 24, 500.0)
    assert len(both.arrivals) == 2 and both.phase_launch_cycles == 500.0
    split_stores, sums = both.stores[:len(work.stores)], both.stores[len(work.stores):]
    where = {(one["base"] + row * one["pitch"]) for one in split_stores for row in range(one["rows"])}
    assert len(where) == 3 * tiling.tile_rows * tiling.n, "no part overwrites another"
    assert (sums == output_stores(tiling, 1 << 20)).all()
    loads = both.loads[len(work.loads):]
    read = {(one["base"] + row * one["pitch"]) for one in loads for row in range(one["rows"])}
    assert read == where and min(where) == 1 << 24


def test_few_tiles_with_a_deep_k_are_faster_in_parts():
    """Two tiles on eight units: four parts use them all. Each part is written, and its lines are read once more."""
    workload = gemm_workload("32x128x4096", 2)
    alone, parts = (simulate(GEMM, split("ring_small", count, gpu={"compute_units": 8}), workload)
                    for count in (1, 4))
    assert parts.ns < 0.6 * alone.ns
    assert parts.dram["gemm"].write == 5 * alone.dram["gemm"].write


def test_what_does_not_go_with_it_is_refused():
    described = with_split_k(machine("ring_small"), 4)
    for operator, topology, algorithm in (("ag-gemm", "ring", "ring"), ("gemm-ag", "ring", "ring"),
                                          ("gemm-a2a", "switch", "direct"), ("gemm-rs", "switch", "in-switch")):
        with pytest.raises(BadInput, match=r"layer.split_k = 4 is for layer.operator = gemm-rs and gemm-ar"):
            check_split_k(described, fused_with(operator, topology, algorithm), ("t3",))
    with pytest.raises(BadInput, match="layer.split_k = 4 does not go with exchange.signal = shard"):
        check_split_k(described, fused_with("gemm-rs", signal="shard"), ("t3",))
    for technique in ("decomposed", "flux", "in-switch"):
        with pytest.raises(BadInput, match=f"layer.split_k = 4 does not go with technique {technique}"):
            check_split_k(described, fused_with("gemm-rs"), ("t3", technique))
    check_split_k(described, fused_with("gemm-ar"), ("sequential", "t3"))
    with pytest.raises(BadInput, match=r"layer.split_k = 65 is not possible: 1 to 64"):
        with_split_k(described, 65)
    deep = gemm_workload("64x64x100", 2)
    with pytest.raises(TilingError, match=r"k_parts = 5 \(layer.split_k\) is not possible: K = 100 has 4 steps of 32"):
        make_operator(machine("ring_small", gpu={"k_parts": 5, "block_k": 32}), deep, make_tiling(described, deep))
    vector = gemv_workload("256x1x512", 2)
    with pytest.raises(BadInput, match="cuts a GEMM's K"):
        make_operator(described, vector, make_tiling(described, vector))


@pytest.mark.parametrize("options, line", [
    (["--gemm", "512x512x512", "--devices", "2", "--split-k", "0"], "--split-k 0 is not possible: 1 to 64"),
    (["--level", "event", "--split-k", "2"], "--split-k 2 does not go with --level event"),
    (["--gemm", "512x512x512", "--devices", "2", "--split-k", "2", "--technique", "decomposed"],
     "--split-k 2 does not go with technique decomposed"),
])
def test_the_command_refuses_in_one_line(options, line, error_of):
    assert line in error_of("run", *options)


def test_counters_grow_with_the_parts():
    """A ring's tile gets 2 S updates where the peer's workgroups store it: as many bytes must be counted."""
    described, workload = with_split_k(machine("ring_small"), 64), gemm_workload("256x256x4096", 4)
    hardware = fused_with("gemm-rs").hardware(described, workload)
    tile_bytes = described.gpu.wavefront_tile_bytes
    assert (128 * tile_bytes) >> hardware.tracker.count_bits == 0
    assert hardware.tracker.count_bits > (128 * tile_bytes).bit_length() > described.tracker.count_bits
    schedule = Plan(hardware, workload).schedule
    assert max(role.updates for own in schedule.roles for role in own if Action.STORE in role.actions) == 128
