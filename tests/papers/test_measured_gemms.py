"""GEMMs of h100-t3 and mi300x-t3 beside measured ones: rows, what counts as near, and kernels of libraries."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.figure import paper_setup
from t3sim.papers.measured_gemms import H100, MI300X, LibraryKernel
from t3sim.runs.operators import make_tiling

SETUP = paper_setup(load_machine())


def findings_with(gemms, longer: float, library: float = 1.0):
    """Findings if each kernel with its launch takes as long as measured, times this; `library`: the library's."""
    launch, results = gemms.machine.collective.kernel_launch_ns, {}
    for case in gemms.cases(SETUP):
        results |= {task: SimpleNamespace(ns=1e3 * case.row.us * times - launch)
                    for task, times in ((case.library, library), (case.task, longer))}
    return gemms.evaluate(SETUP, results)


def test_rows_are_the_h100s_in_bf16():
    cases = list(H100.cases(SETUP))
    shapes = [case.row[1:4] for case in cases]
    assert len(shapes) == len(set(shapes)) == 75 and (8192, 8192, 3584) in shapes
    assert max(case.row.us for case in cases) <= 650
    assert {task.workload.dtype for case in cases for task in (case.task, case.library)} == {"bf16"}
    assert len(H100.tasks(SETUP)) == 150


def test_rows_of_an_mi308x_are_for_as_many_units():
    cases = {case.row[1:4]: case.task for case in MI300X.cases(SETUP)}
    assert len(cases) == 6 and len(MI300X.tasks(SETUP)) == 12
    assert cases[10240, 15360, 8192].machine.gpu == load_machine("mi300x-t3").gpu
    assert cases[4096, 4096, 4096].machine.gpu.compute_units == cases[32, 384, 7168].machine.gpu.compute_units == 80
    assert cases[4096, 4096, 4096].machine.memory_cache == load_machine("mi300x-t3").memory_cache


@pytest.mark.parametrize(("shape", "tile", "tiles", "places", "depth", "parts"), [
    ((4096, 4096, 4096), (256, 128), 512, 2, 64, 1),
    ((16384, 1280, 8192), (320, 128), 512, 2, 64, 1),
    ((2048, 1280, 8192), (128, 160), 130, 1, 128, 1),
    ((2048, 7168, 8192), (128, 176), 656, 2, 64, 1),  # lies: 176 rows are no whole lines
    ((1, 1280, 8192), (64, 8), 20, 1, 512, 6),
])
def test_a_library_s_kernel_is_as_its_name_says(shape, tile, tiles, places, depth, parts):
    task = next(case.library for case in H100.cases(SETUP) if case.row[1:4] == shape)
    gpu, made = task.machine.gpu, make_tiling(task.machine, task.workload)
    assert (made.tile_m, made.tile_n) == tile == (gpu.tile_m, gpu.tile_n) and made.tiles == tiles
    assert (gpu.workgroups_per_cu, gpu.load_buffers, gpu.block_k, gpu.k_parts) == (places, 2, depth, parts)
    assert gpu.epilogue_ns == pytest.approx(H100.machine.gpu.epilogue_ns * tile[0] * tile[1] / 2 ** 15)
    assert task.workload.m * task.workload.n == shape[0] * shape[1]


@pytest.mark.parametrize(("longer", "near"), [(1.0, 100), (1.14, 100), (1.16, 0), (0.84, 0)])
def test_near_is_fifteen_percent(longer, near):
    ours = findings_with(H100, longer).ours
    assert [ours[f"h100_{name}_within"] for name in ("whole", "small", "few")] == [near] * 3
    assert [ours[f"h100_{name}_library_within"] for name in ("whole", "small", "few")] == [100] * 3
    assert ours["h100_few_mean"] == pytest.approx(100 * abs(longer - 1))
    assert findings_with(H100, 1.0, longer).ours["h100_whole_library_within"] == near


def test_each_row_has_its_errors():
    rows = findings_with(H100, 1.1, 0.9).tables[0].rows
    assert len(rows) == 75 and {(row[4], row[7]) for row in rows} == {("+10.0 %", "-10.0 %")}
    assert {row[1] for row in rows} == {"tiles for all units", "fewer tiles than units", "few tokens"}


def test_kinds_that_were_not_measured_have_no_number():
    findings = findings_with(MI300X, 1.1)
    assert findings.ours.keys() == findings.targets.keys() == {
        f"mi300x_{kind}_{number}" for kind in ("whole", "small", "few")
        for number in ("within", "mean", "library_within", "library_mean")}
    assert [row[0] for row in findings.tables[0].rows].count("MI308X") == 5
    assert findings_with(replace(MI300X, gpus={"AMD MI300X": None}), 1.1).ours.keys() == {
        f"mi300x_whole_{number}" for number in ("within", "mean", "library_within", "library_mean")}


@pytest.mark.parametrize(("name", "kernel", "lies"), [
    ("nvjet_sm90_tst_64x48_64x15_2x4_h_bz_TNT", LibraryKernel((64, 48), 64, 15, 66, 4), False),
    ("Memset (Device) + nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", LibraryKernel((192, 192), 64, 4, 6, 2), False),
    ("nvjet_tst_176x128_64x5_1x2_h_bz_TNN", LibraryKernel((176, 128), 64, 5, 12, 2), True),
    ("nvjet_sm90_tst_256x128_64x8_4x1_v_bz_splitK_TNT + cublasLt::splitKreduce_kernel",
     LibraryKernel((256, 128), 64, 8, 8, 4, 16), False),
])
def test_tile_stages_cluster_and_parts(name, kernel, lies):
    """An output of 512 tokens and 384 of hidden, 132 units."""
    named_kernel = LibraryKernel.from_name(name, 512, 384, 132)
    assert named_kernel == kernel and named_kernel.is_transposed == lies


def test_other_names_are_refused_in_one_line():
    with pytest.raises(BadInput, match="kernel 'cutlass_80_tensorop' has no tile, block, stages and cluster"):
        LibraryKernel.from_name("cutlass_80_tensorop", 512, 384, 132)


def test_stages_are_those_of_one_tile_or_of_two():
    machine = load_machine("h100-t3")
    for tiles, places, depth in ((128, 1, 128), (512, 2, 64)):
        gpu = LibraryKernel((256, 128), 64, 4, tiles, 2).on_machine(machine).gpu
        assert (gpu.workgroups_per_cu, gpu.block_k, gpu.load_buffers) == (places, depth, 2)
        assert 2 * places * (256 + 128) * depth * 2 <= machine.occupancy.lds_bytes_per_cu
        assert gpu.compute_units == machine.gpu.compute_units


def test_a_modelled_kernel_fills_the_lds_with_a_block():
    library, lds = load_machine("mi308x", COMMERCIAL), load_machine("mi300x-t3").occupancy.lds_bytes_per_cu
    whole, few = (LibraryKernel.from_model(library, lds, *shape) for shape in ((8192, 8192, 8192), (32, 1024, 7168)))
    assert (whole.tile, whole.block_k, whole.parts) == ((256, 256), 64, 1), "as the machine's own"
    assert few.tile[1] <= 32 and few.parts > 1 and 1 <= lds / (2 * sum(few.tile) * few.block_k) < 2
