"""Collectives and GEMMs as libraries run them: against laws and limits that do not come from the rows."""

import pytest

from t3sim.analytic.gemm import GemmKernel, Shape, library_gemm_ns, library_kernel, width_of
from t3sim.analytic.libraries.collectives import NoSuchWay, in_switch_ns, library_collective, transfer_ns, ways
from t3sim.analytic.libraries.contention import memory_paces, shares
from t3sim.analytic.rings import ring_gb_per_s
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.machine.load import machines_of

H100, V100, MB = load_machine("h100-sxm", COMMERCIAL), load_machine("dgx-v100", COMMERCIAL), 1 << 20
MACHINES = [load_machine(name, COMMERCIAL) for name in machines_of(COMMERCIAL)]


@pytest.mark.parametrize(("gpus", "links"), [(2, 1), (4, 4), (8, 6)])
def test_rings_of_a_cube_mesh_use_the_links_that_its_gpus_have(gpus, links):
    assert ring_gb_per_s(V100, gpus) == 25 * links


def test_sums_in_the_switch_follow_their_law_from_one_share_of_headers():
    """12.7 us + size / 273.7 GB/s within 1.8 % from 1 to 512 MB, and what was measured of its halves."""
    for size in (MB << shift for shift in range(10)):
        assert in_switch_ns(H100, "all_reduce", 8, size) == pytest.approx(12700 + size / 273.7, rel=0.018)
    assert 512 * MB / transfer_ns(H100, "reduce_scatter", 8, 512 * MB) == pytest.approx(361.5, rel=0.02)
    assert 512 * MB / transfer_ns(H100, "all_gather", 8, 512 * MB) == pytest.approx(371.9, rel=0.02)


def test_few_thread_blocks_limit_sums_in_the_switch_and_many_do_not():
    rates = [512 * MB / transfer_ns(H100, "all_reduce", 8, 512 * MB, blocks) for blocks in (1, 2, 4, 8, 128)]
    assert rates == sorted(rates) and rates[1] == pytest.approx(2 * rates[0], rel=1e-3) and rates[3] == rates[4]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
def test_no_collective_is_faster_than_the_wires_and_larger_ones_never_take_less(machine):
    for gpus in {2, 4, machine.gpus if machine.gpus < 9 else 8}:
        for kind, passes in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
            times = [library_collective(machine, kind, gpus, 1 << shift).ns for shift in range(10, 34)]
            assert times == sorted(times)
            wires = ring_gb_per_s(machine, gpus) * (passes if machine.in_switch else 1)
            assert times[-1] >= passes * (gpus - 1) / gpus * (1 << 33) / wires


def test_libraries_take_flags_for_small_messages_and_whole_chunks_for_large_ones():
    chosen = [library_collective(H100, "all_reduce", 8, size, library="NCCL, cuMem off").algorithm
              for size in (4096, 512 * MB)]
    assert [name.split(", ")[1] for name in chosen] == ["LL", "Simple"]
    assert library_collective(H100, "all_reduce", 8, 512 * MB, library="NCCL").algorithm == "in-switch"


def test_a_library_does_what_its_setup_allows_whatever_its_name():
    def ns(words: str, size: int) -> float:
        return library_collective(H100, "all_reduce", 8, size, library=words).ns

    assert ns("torch/NCCL 2.27.7", 4096) == ns("NCCL", 4096) == ns("NCCL 2.30", 4096) == H100.rings.call_ns
    assert ns("torch/NCCL 2.27.7", 512 * MB) == ns("NCCL", 512 * MB) < ns("NCCL, cuMem off", 512 * MB)
    queued, graph = (ns(f"NCCL, {words}", 4096) for words in ("calls queued", "CUDA graph"))
    assert queued - graph == pytest.approx(H100.rings.launch_ns) and queued < H100.rings.call_ns
    assert ns("NCCL, registered windows, CUDA graph", 4096) < graph
    threads = [ns(f"NCCL, {gpus} GPUs per thread", 4096) for gpus in (1, 8, 16)]
    assert threads == [queued, 8 * H100.rings.thread_call_ns, 16 * H100.rings.thread_call_ns], "GPU after GPU"
    assert ns("NCCL, 8 GPUs per thread", 512 * MB) == ns("NCCL, calls queued", 512 * MB), "the host is ahead"
    assert ns("NCCL, registered windows", 4096) == H100.rings.call_ns, "the host does not call faster"


def test_one_shot_is_for_small_messages():
    small, large = (ways(H100, "all_reduce", 8, size) for size in (4096, 64 * MB))
    assert small["one-shot"] < small["two-shot"] and large["two-shot"] < large["one-shot"]


@pytest.mark.parametrize(("gpus", "nodes", "kind", "words"), [
    (1, 1, "all_reduce", "up to 8 GPUs"), (16, 1, "all_reduce", "up to 8 GPUs"), (9, 2, "all_reduce", "up to 8 GPUs"),
    (8, 1, "scan", "collective 'scan' of a library has no model"), (16, 2, "all_to_all", "no model")])
def test_what_no_library_has_is_named(gpus, nodes, kind, words):
    with pytest.raises(NoSuchWay, match=words):
        library_collective(H100, kind, gpus, MB, nodes)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name)
def test_no_gemm_is_faster_than_peak_or_memory(machine):
    for m, n, k in ((1, 64, 8192), (64, 12288, 12288), (4096, 4096, 4096), (130, 8192, 64), (8192, 64, 64)):
        ns = library_gemm_ns(machine, m, n, k)
        assert ns >= 2e-3 * m * n * k / machine.peak.bf16
        assert ns >= 2 * (m * k + n * k + m * n) / machine.memory.bandwidth_gb_per_s


def test_a_gemm_takes_rounds_of_tiles_and_knows_what_binds_it():
    few, many = library_kernel(H100, 64, 12288, 12288), library_kernel(H100, 8192, 8192, 8192)
    assert few.memory_ns > few.rounds() * few.tile_ns and many.memory_ns < many.rounds() * many.tile_ns
    assert library_gemm_ns(H100, 8192, 8192, 8192, "fp8") < 0.6 * library_gemm_ns(H100, 8192, 8192, 8192)
    half = library_kernel(H100, 8192, 8192, 8192, units=66).ns / library_kernel(H100, 8192, 8192, 8192).ns
    assert half == pytest.approx(2, rel=0.05)


def kernel(tiles, cluster=2, dealt_rounds=2):
    return GemmKernel(Shape(256, 128, 64), (256, 128), 1, tiles, 132, tile_ns=100.0, cluster=cluster,
                      dealt_rounds=dealt_rounds, lone=0.8)


def test_a_cluster_whose_units_are_held_does_its_tiles_when_the_others_have_ended():
    """Tiles of up to two rounds are dealt out before: all of them then wait. Of more rounds the first one is."""
    assert [kernel(256).rounds(held) for held in (0, 1, 4, 8, 60)] == [2, 2, 3.6, 3.6, 3.6]  # 66 clusters, 64 needed
    assert [kernel(512).rounds(held) for held in (0, 1, 4)] == [4, 4.8, 5.8]
    assert kernel(256).ns_beside(4) == 360


def test_kernels_whose_workgroups_start_one_by_one_lose_the_units_that_are_held():
    assert [kernel(264, cluster=1, dealt_rounds=0).rounds(held) for held in (0, 1, 44, 131, 500)] == [2, 3, 3, 264, 264]


@pytest.mark.parametrize("tiles", [1, 64, 130, 256, 300, 5000])
@pytest.mark.parametrize(("cluster", "dealt_rounds"), [(1, 0), (2, 0), (2, 2)])
def test_more_held_units_never_make_a_gemm_faster(tiles, cluster, dealt_rounds):
    rounds = [kernel(tiles, cluster, dealt_rounds).rounds(held) for held in range(132)]
    assert rounds == sorted(rounds)


@pytest.mark.parametrize("asks", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("copied", [0.0, 0.05, 0.6, 2.0])
@pytest.mark.parametrize("units", [0, 8, 64])
def test_memory_gives_no_more_than_it_has(asks, copied, units):
    rate = H100.memory_bytes_per_ns
    kernel_pace, copies_pace = memory_paces(H100, asks * rate, copied * rate, units)
    others = 132 - units
    share = others / (others + max(1, units))  # engines count as a unit
    assert (copies_pace > 0 or not copied) and copies_pace <= 1
    assert share <= kernel_pace / min(1, asks) <= 1 / min(1, asks)
    assert asks * kernel_pace + copied * copies_pace <= 1 + 1e-12
    if asks + copied <= 1:
        assert (kernel_pace, copies_pace) == (1, 1)


@pytest.mark.parametrize(("words", "width"), [("fp8, 128-wide scales", "fp8"), ("FP16", "bf16"), ("nvfp4", "fp4"),
                                              ("int8", None), ("", "bf16")])
def test_widths_by_the_words_of_sources(words, width):
    assert width_of(words) == width


def test_memory_serves_streams_in_turn():
    """A stream that asks for less than its turn gets all of it; the others share the rest."""
    assert shares(1000.0, 300.0, 200.0) == (300.0, 200.0)
    assert shares(1000.0, 900.0, 100.0, 100.0) == pytest.approx((800.0, 100.0, 100.0))
    assert shares(900.0, 900.0, 400.0, 400.0) == pytest.approx((300.0, 300.0, 300.0))


def test_a_split_gemm_waits_for_the_kernel_that_adds_its_parts():
    """Its sums start after the launch of another kernel, so that a GEMM is split only where that pays."""
    machine = load_machine("mi308x", COMMERCIAL)
    few, many = library_kernel(machine, 32, 384, 7168), library_kernel(machine, 8192, 8192, 8192)
    assert few.split > 1 and few.sum_ns > machine.kernels.next_ns + machine.kernels.tile_ns
    assert many.split == 1 and many.sum_ns == 0
    slow = machine.model_copy(update={"kernels": machine.kernels.model_copy(update={"next_ns": 1e6})})
    assert library_kernel(slow, 32, 384, 7168).split == 1
