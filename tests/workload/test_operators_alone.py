"""GEMVs, pooling of embeddings and GEMMs of few tokens alone: what they read, how long, how many workgroups at once."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.base.errors import BadInput
from t3sim.machine import Machine, load_machine
from t3sim.runs import build
from t3sim.runs.isolated_kernels import run_table
from t3sim.runs.kernel_results import IsolatedKernel
from t3sim.runs.kernels import GEMM, simulate
from t3sim.runs.operators import make_operator, make_tiling, resident
from t3sim.runs.phases import by_stream
from t3sim.workload.operators.kernel_table import Resources
from t3sim.workload.workloads import Workload, decode_workload, embedding_workload, gemm_workload, gemv_workload
from tests.support.variants import variant

pytestmark = pytest.mark.builds_loops


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine()


def peak(machine: Machine) -> float:
    return machine.dram.peak_bytes_per_cycle * machine.dram.channels * machine.memory_clock_ghz


def alone(machine: Machine, workload: Workload) -> IsolatedKernel:
    return simulate(GEMM, machine, workload)


@pytest.mark.parametrize("workload", [
    gemv_workload("4096x1x2048", 2), gemv_workload("1000x1x3000", 2), decode_workload("1x4096x1024", 2),
    decode_workload("16x4096x1024", 2), decode_workload("200x1024x512", 2)], ids=str)
def test_each_byte_is_read_once_and_no_faster_than_memory_gives_it(machine, workload):
    found = alone(machine, workload)
    least = workload.input_bytes
    # A vector that is not a whole line, and rows whose pitch is.
    padding = workload.k * 2 % 128 and workload.m * 128
    assert least <= found.dram["gemm"].read <= 1.01 * least + padding + 4096
    assert found.dram["gemm"].write >= workload.output_bytes
    assert found.ns >= (least + workload.output_bytes) / peak(machine)
    if least > 1 << 24:
        assert found.ns < 1.5 * least / peak(machine), "much of the memory's rate is reached"


def test_few_tokens_take_less_time_with_a_kernel_of_their_size(machine):
    own, whole = (alone(machine, make("16x4096x1024", 2)) for make in (decode_workload, gemm_workload))
    assert own.ns < 0.6 * whole.ns
    assert own.dram["gemm"].read == pytest.approx(whole.dram["gemm"].read, rel=0.02)


def test_rows_that_are_named_again_come_from_the_cache(machine):
    """A skewed choice names few rows often; of an even one hardly any is named again while it is there."""
    reads, times = [], []
    for locality in ("uniform", "zipf:0.8", "zipf:1.2"):
        workload = embedding_workload("128x32", 2, locality, alone=True)
        found = alone(machine, workload)
        table = make_operator(machine, workload, make_tiling(machine, workload))
        different = len(np.unique(table.rows_named())) * 1024 + workload.m * workload.k * 8
        assert different <= found.dram["gemm"].read <= workload.input_bytes * 1.01
        assert found.dram["gemm"].write >= workload.output_bytes
        assert found.ns >= (found.dram["gemm"].read) / peak(machine)
        reads.append(found.dram["gemm"].read)
        times.append(found.ns)
    assert reads[0] > 0.9 * workload.input_bytes
    assert reads[0] > 1.2 * reads[1] > 1.2 * 1.2 * reads[2] and times[0] > times[1] > times[2]


def test_a_file_says_how_often_each_row_is_named(machine, tmp_path):
    """One per line or with commas; only rows with a weight are named, and heavy ones as much more often."""
    file = tmp_path / "hot.csv"
    file.write_text("# counted\n0, 3\n1\n" + "0\n" * 5, encoding="utf-8")
    workload = embedding_workload("128x32", 2, str(file), alone=True)
    assert workload.rows == 8 and "hot.csv" in workload.shape and workload.weights().tolist() == [0, 3, 1, *[0.0] * 5]
    table = make_operator(machine, workload, make_tiling(machine, workload))
    named = np.bincount(table.rows_named().ravel() % 8, minlength=8) / (workload.m * workload.k)
    assert named == pytest.approx([0, 0.75, 0.25, 0, 0, 0, 0, 0], abs=0.01) and named[[0, 3, 7]].sum() == 0
    found = alone(machine, workload)
    assert found.dram["gemm"].read < 0.1 * workload.input_bytes, "64 rows stay in the cache"
    zipf = embedding_workload("128x32", 2, "zipf:1.2", alone=True)
    file.write_text(",".join(map(str, zipf.weights())), encoding="utf-8")
    own = embedding_workload("128x32", 2, str(file), alone=True)
    drawn = [make_operator(machine, one, make_tiling(machine, one)).rows_named() for one in (zipf, own)]
    assert (drawn[0] == drawn[1]).all(), "the same weights draw the same rows"


@pytest.mark.parametrize("content, words", [
    (b"1\n-2\n", "line 2: '-2' is not a weight: a number from 0 to 1e30 is allowed"),
    (b"1, many\n", "line 1: 'many' is not a weight"), (b"nan", "line 1: 'nan' is not a weight"),
    (b"# nothing\n", "has 0 weights: allowed are 1 to 1,048,576"), (b"0\n0", "names no row: all weights are 0"),
    (b"\xff\xfe\x00", "cannot be read: it is no text")])
def test_a_file_of_weights_that_is_none_is_one_line(content, words, tmp_path, error_of):
    file = tmp_path / "w.csv"
    file.write_bytes(content)
    assert words in error_of("run", "--operator", "embedding", "--embedding", "8x8", "--locality", str(file))


def test_registers_and_lds_say_how_many_workgroups_are_resident(machine):
    """64 wavefronts, 512 registers on each of four units in eights, 128 KB."""
    for registers, lds_bytes, expected in ((32, 0, 8), (33, 0, 6), (56, 0, 4), (64, 0, 4), (72, 0, 3), (128, 0, 2),
                                           (32, 40_000, 3), (32, 131_072, 1), (256, 0, 1)):
        assert resident(machine, Resources(8, registers, lds_bytes)) == expected, (registers, lds_bytes)
    assert resident(machine, Resources()) == machine.gpu.workgroups_per_cu
    for resources in (Resources(8, 257), Resources(8, 8, 131_073), Resources(65, 8), Resources(8, 600)):
        with pytest.raises(BadInput, match="is more than a compute unit of machine t3-table1 holds"):
            resident(machine, resources)


def test_a_kernel_with_more_registers_has_fewer_workgroups_and_takes_longer(machine):
    """One unit's workgroups hide each other's waits; with 256 registers there is nothing beside a workgroup."""
    one = variant(machine, gpu={"compute_units": 4})
    workload = gemv_workload("1024x1x2048", 2)
    table = make_operator(one, workload, make_tiling(one, workload)).work(0)
    times = [run_table(replace(table, registers=registers), one).ns for registers in (32, 128, 256)]
    assert times[2] > 1.5 * times[1] > 1.5 * times[0]
    many = build.table_sim(one, replace(table, registers=128)).kernel
    assert many.shape == (1, 4 * 2)


def test_operators_alone_from_the_command_line(machine, json_of):
    for arguments, workload in (
            (["--operator", "gemv", "--gemm", "1024x1x512"], gemv_workload("1024x1x512", 2)),
            (["--operator", "decode", "--gemm", "8x1024x512"], decode_workload("8x1024x512", 2)),
            (["--operator", "embedding", "--embedding", "16x8", "--locality", "zipf:1", "--seed", "3"],
             embedding_workload("16x8", 2, "zipf:1", 3, alone=True))):
        printed = json_of("run", *arguments)
        found = alone(machine, workload)
        assert printed["kernel_ns"] == found.ns > 0
        assert printed["dram_bytes"] == {name: count for name, count in by_stream(found.dram).items() if count}


@pytest.mark.parametrize("arguments, words", [
    (["--operator", "gemv", "--gemm", "8x2x8"], "a GEMV multiplies by a vector: --gemm 8x1x8"),
    (["--operator", "gemv"], "--operator gemv needs --gemm Mx1xK"),
    (["--operator", "decode", "--gemm", "513x8x8"], "512 tokens are decoded at once at most"),
    (["--operator", "embedding"], "--operator embedding needs --embedding BATCHxTABLES"),
    (["--operator", "embedding", "--embedding", "8"], "--embedding '8' is not BATCHxTABLES"),
    (["--operator", "embedding", "--embedding", "7x7"], "49 bags are not a multiple of the 8"),
    (["--operator", "embedding", "--embedding", "8x8", "--locality", "zipf:-1"], "--locality 'zipf:-1' is unknown"),
    (["--operator", "embedding", "--embedding", "8x8", "--gemm", "8x8x8"], "and no --gemm"),
    (["--operator", "embedding", "--embedding", "1048576x16"], "GB: machine t3-table1 has"),
    (["--operator", "gemm", "--gemm", "8x8x8", "--locality", "uniform"], "--locality uniform is for --operator"),
    (["--embedding", "8x8"], "--embedding 8x8 is for --operator embedding"),
])
def test_what_cannot_be_is_one_line(arguments, words, error_of):
    assert words in error_of("run", *arguments)
