"""Signals from a wavefront's tile to a whole chunk: the same numbers, bit for bit, by as many triggers as there are."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.rtl.geometry import Geometry, TrackerGeometry
from t3sim.rtl.registers import register_map
from t3sim.runs import signals
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import Variation, run_data_mode
from t3sim.runs.exchange import fused_with
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.signals import SIGNALS, tracked_tiling
from t3sim.testbenches.soak import machine
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import gemm_workload, transformer_workload

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

BLOCK = (32_767, 4_095)  #: bytes and columns that a DMA command moves


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("shape, devices, order, staged", [
    ("256x256x64", 4, "hidden", False), ("300x400x64", 3, "tokens", True), ("33x517x40", 4, "hidden", False),
    ("300x400x64", 3, "shorter", False)])
def test_every_element_equals_numpy(signal, shape, devices, order, staged, seed):
    workload = gemm_workload(shape, devices)
    described = signals.hardware(machine("ring_small", gpu={"workgroup_order": order, "cluster": 2}), signal)
    options = dict(seed=seed, hold_back=0.1, link_jitter_cycles=200, signal=signal, stage_first_chunk=staged,
                      start_cycles=late_starts(devices, 1000, seed))
    result = run_data_mode(Plan(described, workload, **options), Policy("mca"), Variation(overtaking_reads=True))
    schedule = Plan(described, workload, **options).schedule
    assert result.elements == workload.m * workload.n
    assert result.triggers == sum(map(schedule.tracked_wf_tiles, range(devices)))
    if signal == "shard" and shape == "256x256x64":
        assert result.triggers == devices * (devices - 1), "one for each chunk that is added to"


@pytest.mark.parametrize("along_n, abreast", [(False, 1), (True, 1), (True, 2), (False, 3)])
@pytest.mark.parametrize("n, m", [(1024, 2048), (4096, 4096), (4000, 3000), (100, 60), (128, 8192)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_tile_of_many_is_a_rectangle_of_workgroups_that_follow_each_other(along_n, abreast, n, m, ranks):
    made = Tiling(n, m, 128, 256, 8, along_n=along_n, abreast=abreast)
    for signal, most in (("wave-group", 80), ("shard", max(1, made.tiles // ranks))):
        tracked = tracked_tiling(made, signal, ranks, 80, (1 << 20, 1 << 20))
        of = tracked.holding(made)
        assert np.bincount(of, minlength=tracked.tiles).min() >= 1 and np.bincount(of).max() <= most
        assert (np.diff(of) >= 0).all(), "workgroups keep their order"
        assert tracked.wavefronts == 1 and tracked.output_bytes == made.output_bytes
    for signal in (None, "wavefront", "workgroup"):
        assert tracked_tiling(made, signal, ranks, 80, BLOCK) is made
    assert (made.holding(made) == np.arange(made.tiles)).all()


def test_what_no_dma_command_moves_is_refused_and_a_wave_group_is_cut():
    made = Tiling(128, 1 << 16, 128, 256, 8)  # a row of 256 tiles
    assert tracked_tiling(made, "wave-group", 2, 80, BLOCK).tile_n == 15 * 256
    with pytest.raises(BadInput, match="exchange.signal = shard: a chunk of 128 x 32768 elements is more than a DMA "
                                       "command moves, 32767 bytes of 4095 columns"):
        tracked_tiling(made, "shard", 2, 80, BLOCK)


def test_chunks_of_a_full_size_layer_stay_what_they_are():
    """T-NLG FC-2 at TP 8: 136 workgroups of 4256 x 1024 elements a chunk, whoever is told of what."""
    described, workload = load_machine(), transformer_workload()
    for signal, tiles, most in (("workgroup", 1088, 1), ("wave-group", 16, 68), ("shard", 8, 136)):
        fitted = fused_with("gemm-rs", signal=signal).hardware(described, workload)
        schedule = Plan(fitted, workload, signal=signal).schedule
        assert schedule.tiling.tiles == tiles and schedule.policy.slices == 1
        assert schedule.largest_chunk == Plan(described, workload).schedule.largest_chunk
        assert fitted.dma.tiles_per_block == (8 if signal == "workgroup" else 1)
        assert 1088 // tiles == most


@pytest.mark.parametrize("count_bits, wf_bits, bits", [
    (16, 3, (13, 10)), (23, 6, (13, 10)), (24, 3, (14, 11)), (32, 3, (15, 12)), (32, 6, (14, 11))])
def test_a_block_is_as_large_as_its_register_has_room_for(count_bits, wf_bits, bits):
    geometry = replace(Geometry(), tracker=replace(TrackerGeometry(), count_bits=count_bits, wf_bits=wf_bits))
    assert geometry.block_bits == bits
    fields = register_map(geometry)["BLOCK_SHAPE"].fields
    assert [field.width for field in fields[:2]] == list(bits) and fields[-1].lsb + fields[-1].width <= 32


@pytest.mark.parametrize("more, message", [
    (["--signal", "warp"], "--signal 'warp' is unknown: allowed are wavefront, workgroup, wave-group, shard"),
    (["--signal", "shard", "--technique", "sequential"], "--signal shard is for t3, t3-mca, t3-mca+"),
    (["--signal", "shard", "--operator", "gemm-ar"], "it needs --operator gemm-rs and --algorithm ring"),
    (["--signal", "shard", "--algorithm", "direct", "--topology", "switch"], "it needs --operator gemm-rs"),
    (["--signal", "shard", "--operator", "gemm", "--gemm", "64x64x64"], "--signal shard does not go with a kernel")])
def test_signals_that_cannot_be_are_refused_in_a_line(more, message, error_of):
    assert message in error_of("run", *more)
