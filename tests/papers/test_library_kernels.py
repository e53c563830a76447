"""What a name of cuBLAS's says of its kernel, what a model of hipBLASLt takes, and the machine that has either."""

import pytest

from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.measured_gemms import LibraryKernel


@pytest.mark.parametrize(("name", "kernel", "lies"), [
    ("nvjet_sm90_tst_64x48_64x15_2x4_h_bz_TNT", LibraryKernel((64, 48), 64, 15, 66, 4), False),
    ("Memset (Device) + nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", LibraryKernel((192, 192), 64, 4, 6, 2), False),
    ("nvjet_tst_176x128_64x5_1x2_h_bz_TNN", LibraryKernel((176, 128), 64, 5, 12, 2), True),
    ("nvjet_sm90_tst_256x128_64x8_4x1_v_bz_splitK_TNT + cublasLt::splitKreduce_kernel",
     LibraryKernel((256, 128), 64, 8, 8, 4, 16), False),
])
def test_tile_stages_cluster_and_parts(name, kernel, lies):
    """An output of 512 tokens and 384 of hidden, 132 units."""
    found = LibraryKernel.named(name, 512, 384, 132)
    assert found == kernel and found.lies == lies


def test_other_names_are_refused_in_one_line():
    with pytest.raises(BadInput, match="kernel 'cutlass_80_tensorop' has no tile, block, stages and cluster"):
        LibraryKernel.named("cutlass_80_tensorop", 512, 384, 132)


def test_stages_are_those_of_one_tile_or_of_two():
    machine = load_machine("h100-t3")
    for tiles, places, depth in ((128, 1, 128), (512, 2, 64)):
        gpu = LibraryKernel((256, 128), 64, 4, tiles, 2).on(machine).gpu
        assert (gpu.workgroups_per_cu, gpu.block_k, gpu.load_buffers) == (places, depth, 2)
        assert 2 * places * (256 + 128) * depth * 2 <= machine.occupancy.lds_bytes_per_cu
        assert gpu.compute_units == machine.gpu.compute_units


def test_a_modelled_kernel_fills_the_lds_with_a_block():
    library, lds = load_machine("mi308x", COMMERCIAL), load_machine("mi300x-t3").occupancy.lds_bytes_per_cu
    whole, few = (LibraryKernel.modelled(library, lds, *shape) for shape in ((8192, 8192, 8192), (32, 1024, 7168)))
    assert (whole.tile, whole.block_k, whole.parts) == ((256, 256), 64, 1), "as the machine's own"
    assert few.tile[1] <= 32 and few.parts > 1 and 1 <= lds / (2 * sum(few.tile) * few.block_k) < 2
