"""The unfused GEMM: traffic by closed forms, time between the bounds of its parts."""

import math
from dataclasses import replace

import pytest

from t3sim.gpu.agents.units.state import settle
from t3sim.gpu.setup import STATES
from t3sim.machine import load_machine
from t3sim.runs.operators import gemm_operator, make_tiling
from t3sim.runs.phases import PURPOSES
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import run_kernel, variant

pytestmark = pytest.mark.builds_loops


@pytest.fixture(scope="module")
def machine():
    return load_machine()


def gemm_run(machine, shape):
    sim, now = run_kernel(machine, shape)
    total = dict(zip(PURPOSES, (int(n) for n in sim.mem.total_bytes[0])))
    return sim, now, total.pop("gemm_read"), total.pop("gemm_write"), sum(total.values())


def lines(count: int, line: int = 128) -> int:
    """Bytes of whole cache lines."""
    return -(-count // line) * line


def compulsory(w) -> int:
    """Bytes of the operands' lines, each once. C[M, N] and the activations lie by rows, the weights either way."""
    weights = w.n * lines(w.k * 2) if w.weights_transposed else w.k * lines(w.n * 2)
    return weights + w.m * lines(w.k * 2)


def stages(machine, workload) -> int:
    gpu = machine.gpu
    tiles = -(-workload.n // gpu.tile_m) * -(-workload.m // gpu.tile_n)
    return -(-tiles // (gpu.compute_units * gpu.workgroups_per_cu))


def compute_time(machine, workload) -> float:
    """Return the ns that the matrix units need if they never wait."""
    gpu = machine.gpu
    flop = 2 * gpu.tile_m * gpu.tile_n * gpu.workgroups_per_cu * workload.k
    rate = gpu.matrix_flop_per_cycle_per_cu * gpu.matrix_efficiency * gpu.clock_ghz
    return stages(machine, workload) * flop / rate * machine.memory_clock_ghz


@pytest.mark.parametrize("shape", [
    "2048x1024x512",  # even
    "2048x1024x100",  # a short last step
    "1000x500x96",  # ragged tiles
    "100x1100x64",  # a single, partial tile row
    "770x1025x70",  # a tile row of one element, lines of C that two rows share
])
@pytest.mark.parametrize("sublayer", ["fc2", "fc1"])
def test_traffic_is_compulsory_when_everything_fits(machine, shape, sublayer):
    """Each line of the operands is read once, each line of C written once; C itself is never read."""
    w = replace(gemm_workload(shape, 4), sublayer=sublayer)
    _, _, read, written, other = gemm_run(machine, w)
    assert read == compulsory(w)
    assert written == lines(lines(w.n * 2, 64) * w.m)
    if w.n % 64 == 0:
        assert written == w.m * w.n * 2
    assert other == 0


@pytest.mark.parametrize("shape, size", [("2048x1024x256", 1 << 18), ("1100x1920x192", 1 << 18)])
def test_a_small_cache_reads_again_but_writes_once(machine, shape, size):
    w = gemm_workload(shape, 4)
    small = variant(machine, llc={"size_bytes": size})
    sim, _, read, written, other = gemm_run(small, shape)
    assert written == w.m * w.n * 2 and other == 0
    tiles = -(-w.m // 256) * -(-w.n // 128)
    assert 1.5 * compulsory(w) < read <= tiles * w.k * 2 * (128 + 256), "no more than without any cache"
    assert read == 128 * sim.llc.misses[0]


@pytest.mark.parametrize("shape", ["2048x1024x512", "1000x500x96"])
def test_time_is_above_every_bound(machine, shape):
    w = gemm_workload(shape, 4)
    sim, now, read, written, _ = gemm_run(machine, shape)
    kernel = int(sim.kernel.state.finish_time[0])
    assert compute_time(machine, w) <= kernel <= now
    peak = machine.dram.channels * machine.dram.column_bytes
    assert now >= (read + written) / peak
    # Never more than one after the other: each load exposed, all traffic at half the peak.
    exposed = stages(machine, w) * math.ceil(w.k / machine.gpu.block_k) * 1000
    assert now <= compute_time(machine, w) + exposed + 2 * (read + written) / peak + 2000


def test_a_memory_that_keeps_up_leaves_the_compute_time(machine):
    """Slow matrix units instead of an ideal memory: loads hide behind computation but for the first of each tile."""
    slow = variant(machine, gpu={"matrix_efficiency": 0.1})
    shape = "4096x1280x512"  # two whole stages
    sim, *_ = gemm_run(slow, shape)
    wanted = compute_time(slow, gemm_workload(shape, 4))
    kernel = int(sim.kernel.state.finish_time[0])
    gpu = slow.gpu
    first_block = (128 + 256) * gpu.block_k * 2 / gpu.cu_bytes_per_ns
    tile = 128 * 256 * 2 / gpu.cu_bytes_per_ns
    around = 2 * (gpu.prologue_ns + first_block + gpu.epilogue_ns + tile)
    assert wanted + around < kernel < wanted + around + 2 * 2500

    for key in ("prologue_ns", "epilogue_ns"):
        longer = variant(slow, gpu={key: getattr(slow.gpu, key) + 5000.0})
        sim, *_ = gemm_run(longer, shape)
        assert int(sim.kernel.state.finish_time[0]) == pytest.approx(kernel + 2 * 5000, rel=0.002)


def test_a_single_buffered_workgroup_loads_or_computes_and_two_hide_each_others_loads(machine):
    """Per block of K, in a unit: the sum of both, the larger one with two buffers, or with two workgroups in turn."""
    slow = variant(machine, gpu={"matrix_efficiency": 0.2, "cu_bytes_per_ns": 8.0, "prologue_ns": 0.0,
                                 "epilogue_ns": 0.0})
    gpu, k = slow.gpu, 2048
    load = (gpu.tile_m + gpu.tile_n) * gpu.block_k * 2 / gpu.cu_bytes_per_ns
    compute = 2 * gpu.tile_m * gpu.tile_n * gpu.block_k / (
        gpu.matrix_flop_per_cycle_per_cu * gpu.matrix_efficiency * gpu.clock_ghz)
    assert compute > 1.2 * load > 1000, "nothing else counts"
    blocks, tile = k // gpu.block_k, gpu.tile_m * gpu.tile_n * 2 / gpu.cu_bytes_per_ns
    for buffers, places, shape, per_block in (
            (2, 1, f"256x128x{k}", compute), (1, 1, f"256x128x{k}", load + compute),
            (1, 2, f"{256 * gpu.compute_units}x256x{k}", 2 * compute)):
        chosen = variant(slow, gpu={"load_buffers": buffers, "workgroups_per_cu": places})
        sim, *_ = gemm_run(chosen, shape)
        inside = int(sim.kernel.state.finish_time[0]) - places * tile - load
        assert inside == pytest.approx(blocks * per_block, rel=0.08), (buffers, places)


def test_the_caches_bandwidth_is_kept(machine):
    w = gemm_workload("1024x1024x256", 4)
    narrow = variant(machine, llc={"bandwidth_bytes_per_ns": 300.0})
    sim, *_ = gemm_run(narrow, "1024x1024x256")
    looked_up = 32 * w.k * 2 * (128 + 256) + w.m * w.n * 2  # blocks of A and B per tile; the output
    assert looked_up / 300 <= sim.kernel.state.finish_time[0] <= 1.1 * looked_up / 300 + 3000


def test_slices_share_the_caches_bandwidth_and_hold_what_is_behind_a_miss(machine):
    """All loads go through them; memory serves the same, which takes longer in order, and more so from short queues."""
    shape = "1024x1024x256"
    w, llc = gemm_workload(shape, 4), {"bandwidth_bytes_per_ns": 300.0, "slices": 64}
    loaded = 32 * w.k * 2 * (128 + 256)
    sim, *_ = gemm_run(variant(machine, llc=llc), shape)
    assert loaded / 300 <= sim.kernel.state.finish_time[0]
    assert not sim.llc.slices.count.any() and sim.llc.slices.waiting[0] == 0
    times = {}
    for slices, entries in ((0, 64), (32, 64), (32, 1)):
        sim, *_ = gemm_run(variant(machine, llc={"slices": slices, "slice_queue_loads": entries}), shape)
        times[slices, entries] = int(sim.kernel.state.finish_time[0])
        assert sim.mem.total_bytes[0, 0] == w.k * 2 * (w.m + w.n), "each operand is read once"
    assert times[0, 64] < times[32, 64] < times[32, 1], times


def test_a_cache_slower_than_a_column_per_cycle(machine):
    gemm_run(variant(machine, llc={"bandwidth_bytes_per_ns": 96.0}), "512x512x64")


def test_the_ports_bandwidth_is_kept(machine):
    w = gemm_workload("1024x1024x256", 4)
    narrow = variant(machine, gpu={"cu_bytes_per_ns": 4.0})
    sim, *_ = gemm_run(narrow, "1024x1024x256")
    through_one = (2 * (128 + 256) * w.k + 128 * 256 * 2) / 4
    assert through_one <= sim.kernel.state.finish_time[0] <= 1.1 * through_one + 1000


@pytest.mark.parametrize("shape", ["2048x1024x256", "300x200x64"])
def test_every_cycle_of_every_unit_is_accounted_for(machine, shape):
    sim, now, *_ = gemm_run(machine, shape)
    settle(sim.kernel.state, 0, now)
    spent = dict(zip(STATES, (int(n) for n in sim.kernel.state.accounted[0])))
    assert sum(spent.values()) == now * machine.gpu.compute_units
    w = gemm_workload(shape, 4)
    tiles = -(-w.m // 256) * -(-w.n // 128)
    computing = tiles * (compute_time(machine, w) / stages(machine, w) + machine.gpu.epilogue_ns)
    assert spent["compute"] == pytest.approx(computing, rel=0.01)
    assert spent["load"] > 0 and spent["store_memory"] > 0
    assert spent["blocked"] == spent["store_link"] == 0, "an unfused kernel has neither window nor link"
    assert sim.kernel.state.finished[0] == tiles


@pytest.mark.parametrize(("order", "shape"), [("hidden", "512x768x128"), ("tokens", "600x640x128"),
                                              ("hidden", "300x900x128"), ("shorter", "600x640x128"),
                                              ("shorter", "600x768x128")])
def test_a_cluster_loads_what_its_workgroups_have_in_common_once(machine, order, shape):
    """Each a share, which together are the whole; a pair whose tiles have nothing in common loads as without."""
    workload = gemm_workload(shape, 4)
    alone, pairs = (variant(machine, gpu={"workgroup_order": order, "cluster": size}) for size in (1, 2))
    tiling = make_tiling(alone, workload)
    whole, shared = (gemm_operator(one, workload, tiling).work(0).loads.reshape(tiling.tiles, -1)
                     for one in (alone, pairs))
    places = {0: tiling.first_row, 1: tiling.first_column}
    for operand, place in places.items():
        for tile in range(0, tiling.tiles - 1, 2):
            before, after = whole[tile, operand], shared[tile:tile + 2, operand]
            if place[tile] != place[tile + 1]:
                assert after[0] == before and after[1] == whole[tile + 1, operand]
                continue
            assert after["rows"].sum() == before["rows"] and abs(int(after["rows"][0]) - int(after["rows"][1])) <= 1
            assert after["base"][0] == before["base"]
            assert after["base"][1] == before["base"] + after["rows"][0] * before["pitch"]
    if tiling.tiles % 2:
        assert (shared[-1] == whole[-1]).all()


def test_a_cluster_asks_the_cache_for_less(machine):
    """With a cache of half the bandwidth that a GEMM asks for, pairs take less time."""
    slow = {"bandwidth_bytes_per_ns": 700.0}
    alone, pairs = (gemm_run(variant(machine, llc=slow, gpu={"cluster": size}), "2048x1024x512")[1] for size in (1, 2))
    assert pairs < 0.85 * alone
