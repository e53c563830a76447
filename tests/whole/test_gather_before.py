"""An all-gather before a GEMM: the activations come by Track & Trigger, and no workgroup reads them before."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from t3sim.collectives import ring
from t3sim.collectives.schedule.schedule import Rows
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import Variation, data_run, run_data_mode
from t3sim.runs.exchange import Exchange, fused_with
from t3sim.runs.failure import SimulationError
from t3sim.runs.gather_before import gather_tiling, groups_of, tiling_for
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.soak import machine
from t3sim.workload.operators.kernel_table import ASKS_WINDOW
from t3sim.workload.operators.tiling import TilingError
from t3sim.workload.workloads import gemm_workload
from tests.support.unheld import check_unheld_reads

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

EXCHANGE = fused_with("ag-gemm")
TABLE = {"dma": {"ready_groups": 32}}  #: the same for all, so that the RTL is built once
SLOW_LINK = {"link": {"bandwidth_gb_per_s": 3.0, "latency_ns": 400.0}}
FAST_LINK = {"link": {"bandwidth_gb_per_s": 400.0, "latency_ns": 20.0}}
BLOCKS = {"dma": TABLE["dma"] | {"tiles_per_block": 4}}


#: For all ways that are not a ring.
PEERS = {"dma": {"ready_groups": 32, "peers": 3, "copies": 3, "regions": 64, "routes": 64}}


def setup(shape: str, devices: int, changes: dict, dtype: str = "fp16", exchange: Exchange = EXCHANGE):
    workload = gemm_workload(shape, devices, dtype)
    return exchange.hardware(machine("ring_small", **(TABLE | changes)), workload), workload


@pytest.mark.parametrize("shape, devices, changes, dtype", [
    ("256x192x256", 2, {}, "fp16"), ("200x300x270", 3, BLOCKS, "fp16"), ("200x300x270", 4, {}, "bf16"),
    ("200x90x150", 3, SLOW_LINK, "fp32"), ("100x64x32", 4, FAST_LINK, "fp16"), ("520x192x512", 8, FAST_LINK, "fp16"),
])
@pytest.mark.parametrize("policy", ["mca", "round_robin"])
def test_every_gpu_has_all_activations_and_reads_none_too_early(shape, devices, changes, dtype, policy, seed):
    """Bit for bit; 2 to 8 GPUs, late starts, late links, random handshakes."""
    described, workload = setup(shape, devices, changes, dtype)
    plan = replace(Plan(described, workload, seed, exchange=EXCHANGE).fused(), hold_back=0.1, link_jitter_cycles=200,
                      start_cycles=late_starts(devices, 1000, seed))
    result = run_data_mode(plan, Policy(policy), Variation(overtaking_reads=True))
    per_line = 64 // workload.format.bytes
    assert result.elements == workload.m * workload.k and not result.columns_added
    assert result.packets >= workload.m * (workload.k // per_line) * (devices - 1)
    tiles = tiling_for(described, workload).wf_tiles.sum()
    assert result.triggers == tiles * devices, "a GPU's own tiles, and all that come"


WAYS = [("full", "direct", 4), ("switch", "direct", 3), ("switch", "in-switch", 4), ("ring", "both-rings", 4),
        ("torus:2x2", "hierarchical", 4), ("nodes:2x2", "hierarchical", 4)]


@pytest.mark.parametrize("topology, algorithm, devices", WAYS)
@pytest.mark.parametrize("shape, changes", [("512x192x4096", PEERS), ("520x300x270", PEERS | SLOW_LINK)])
def test_activations_come_from_several_gpus_at_once(topology, algorithm, devices, shape, changes, seed):
    """Bit for bit, by all ways but one ring; groups come from all of them in turn."""
    exchange = fused_with("ag-gemm", topology, algorithm)
    described, workload = setup(shape, devices, changes, exchange=exchange)
    plan = replace(Plan(described, workload, seed, exchange=exchange).fused(), hold_back=0.1, link_jitter_cycles=200,
                      start_cycles=late_starts(devices, 1000, seed))
    run, ledger = data_run(plan, Policy("mca"), Variation(overtaking_reads=True))
    try:
        groups = groups_of(run.spaces[0])
        rows = run.schedule.rows(0)
        senders = [share.role.fed_by for share in run.schedule.shares(0)]
        of_group = {int(row.id) // run.tiling.tile_rows: senders[row.share] for row in map(Rows._make, zip(*rows))}
        neighbours = [{source.gpu for source in of_group[number]} for number in groups.in_turn]
        field = run.backends[0].ports.port("asks.payload").fields["group"]
        asked = run.sim.hardware.asks[0] >> field.lsb & (1 << field.width) - 1
        assert plan.slices > 1 and all(neighbours) and asked.tolist() == groups.in_turn.tolist()
        assert any(one != other for one, other in pairwise(neighbours[:4]))
        run.run()
        assert ledger.result().triggers == run.tiling.wf_tiles.sum() * devices
    finally:
        run.close()


def test_workgroups_that_do_not_wait_read_what_has_not_come():
    """Loads that do not wait for the ready table precede their rows' arrival, and the check of loads sees it."""
    described, workload = setup("256x192x256", 2, SLOW_LINK)
    run, _ = data_run(Plan(described, workload, exchange=EXCHANGE).fused(), Policy("mca"))
    check_unheld_reads(run)


def test_asks_that_need_a_tile_more_than_there_are_are_never_answered():
    """The run ends with `nothing moved` and the groups of inputs that have not arrived."""
    described, workload = setup("256x192x256", 2, {})
    run, _ = data_run(Plan(described, workload, exchange=EXCHANGE).fused(), Policy("mca"))
    try:
        run.sim.hardware.asks[:] += 1 << run.backends[0].ports.port("asks.payload").fields["tiles"].lsb
        with pytest.raises(SimulationError, match="nothing moved for .* 0 of 4 groups of inputs have come,"):
            run.run()
    finally:
        run.close()


def test_the_order_of_workgroups_is_that_of_their_inputs():
    described, workload = setup("512x192x256", 4, {})
    run, _ = data_run(Plan(described, workload, exchange=EXCHANGE).fused(), Policy("mca"))
    try:
        for device, space in enumerate(run.spaces):
            _, order, own = groups_of(space)
            first = np.argsort(order)  # columns of tiles in the order in which they come
            chunk = len(order) // 4
            expected = [(device + hop) % 4 for hop in range(4)]  # the ring sends to the GPU below
            assert own == chunk and (first // chunk).reshape(4, chunk)[:, 0].tolist() == expected
        needs = run.sim.kernel.work.needs.reshape(4, -1)
        assert (np.diff(needs, axis=1) >= 0).all() and (needs == needs[0]).all()
        assert (needs[0] == ASKS_WINDOW).sum() == own * run.tiling.tile_rows
        assert needs.max() == run.sim.hardware.asks.shape[1] == len(order) - own
    finally:
        run.close()


@pytest.mark.parametrize("tokens, features, ranks, tile_n, expected", [
    (8192, 4256, 8, 256, (544, 256, 8)), (8192, 4256, 16, 256, (544, 256, 8)), (2048, 18432, 32, 256, (288, 64, 64)),
    (2048, 12288, 32, 256, (192, 64, 64)), (1000, 100, 4, 256, (128, 256, 1)), (1000, 4096, 3, 256, (128, 256, 32)),
])
def test_groups_have_a_power_of_two_of_tiles(tokens, features, ranks, tile_n, expected):
    tiling = gather_tiling(tokens, features, ranks, tile_n, 8, 2, most_ids=64)
    assert (tiling.tile_m, tiling.tile_n, tiling.tile_rows) == expected
    edges = tiling.cut(ranks)
    assert (edges % tiling.tile_rows == 0).all() and (np.diff(edges) > 0).all()
    assert tiling.pitch_bytes % 256 == 0 and tiling.pitch_bytes >= features * 2


def test_what_cannot_be_gathered_is_refused():
    with pytest.raises(TilingError, match=r"K=\d+ cannot be cut into a power of two of equal parts of whole lines"):
        gather_tiling(1024, next(k for k in range(9 * 2048, 10**6) if not _possible(k)), 4, 256, 8, 2, most_ids=64)


def _possible(features: int) -> bool:
    try:
        return bool(gather_tiling(1024, features, 4, 256, 8, 2, most_ids=64))
    except TilingError:
        return False


def test_a_schedule_of_what_is_there_is_staged():
    plan = Plan(machine("ring_small"), gemm_workload("64x64x64", 2), exchange=EXCHANGE).fused()
    assert plan.gathers and not Plan.gathers
    assert EXCHANGE.program(4).transfers == ring.all_gather(4).transfers
