"""Whole iterations timed by the models of libraries: the same GEMMs and collectives as on the library level."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.analytic.end_to_end.inference import decode, prompt
from t3sim.analytic.end_to_end.layer import FLASH, gemm_shapes
from t3sim.analytic.end_to_end.mapping import Mapping
from t3sim.analytic.end_to_end.operations import all_reduce_ns, exchange_ns, gemm_ns, send_ns
from t3sim.analytic.end_to_end.training import TrainingJob, train
from t3sim.analytic.gemm import grouped_kernel, library_gemm_ns
from t3sim.analytic.libraries.collectives import library_collective, symmetric_ns
from t3sim.analytic.validation.comparison import compare
from t3sim.analytic.validation.nearby import prompt_error_near
from t3sim.analytic.validation.readers import own_rows
from t3sim.base.errors import BadInput
from t3sim.study.end_to_end import estimate, load_cluster
from t3sim.workload.transformer import TODAY

H100 = load_cluster("h100-sxm")
LLAMA = TODAY["llama-3.3-70b"]


def test_gemms_are_the_library_s_on_a_hot_gpu():
    launch_ns, steady = H100.kernels.launch_ns, H100.sharing.steady_share
    for shape in ((2048, 8192, 3584), (64, 7168, 8192)):
        alone_ns = library_gemm_ns(H100, *shape)
        assert gemm_ns(H100, *shape) == pytest.approx((alone_ns - launch_ns) / steady + launch_ns)
    grouped = grouped_kernel(H100, (256,) * 8, 4096, 2048, "fp8")
    assert gemm_ns(H100, 256, 4096, 2048, 8, "fp8") == pytest.approx(grouped.ns / steady + launch_ns)


def test_arrays_are_timed_as_their_elements():
    m, k = np.array([[512, 1024], [512, 64]]), np.array([1024, 2048])
    times_ns = gemm_ns(H100, m, 4096, k)
    assert times_ns.shape == (2, 2)
    assert times_ns[1, 1] == gemm_ns(H100, 64, 4096, 2048) and times_ns[0, 0] == times_ns[1, 0]
    ranks, strides = np.array([1, 2, 8, 32]), np.array([8, 1, 1, 1])
    for operation in (all_reduce_ns, exchange_ns):
        assert list(operation(H100, 1e8, ranks, strides)) == [
            operation(H100, 1e8, rank, stride) for rank, stride in zip(ranks, strides)]
        assert operation(H100, 1e8, 1, 1) == 0


def test_collectives_are_the_library_s_choice():
    size = 2.0 * 2048 * 8192
    assert all_reduce_ns(H100, size, 8) == library_collective(
        H100, "all_reduce", 8, size, library="calls queued").ns
    assert all_reduce_ns(H100, size, 16) == library_collective(
        H100, "all_reduce", 16, size, 2, library="calls queued").ns
    assert all_reduce_ns(H100, size, 8, symmetric=True) == symmetric_ns(H100, "all_reduce", 8, size)
    assert all_reduce_ns(H100, size, 4, stride=8) > all_reduce_ns(H100, size, 4), "one GPU of each node: cards"
    assert send_ns(H100, 1e8, 8) > send_ns(H100, 1e8, 1)


def test_a_step_of_decoding_reads_the_weights_and_hardly_waits():
    result = decode(H100, TrainingJob(LLAMA, 2048, 64, FLASH), Mapping(tp=8))
    read_ns = sum(2 * n * k * count for _, n, k, count in gemm_shapes(LLAMA, 64, 8).values()) / H100.memory_bytes_per_ns
    assert LLAMA.layers * read_ns < result.breakdown_ns["gemm"] < 2 * LLAMA.layers * read_ns
    assert result.breakdown_ns["host"] == 0
    symmetric_reduce_ns = symmetric_ns(H100, "all_reduce", 8, 2.0 * 64 * LLAMA.hidden)
    assert result.breakdown_ns["tp"] == pytest.approx(2 * LLAMA.layers * symmetric_reduce_ns)


def test_measured_trainings_and_prompts_of_today_are_met():
    for name, rows, worst in (("h100-sxm", 1, 0.20), ("b200", 1, 0.12), ("gb200", 1, 0.12)):
        found = [row for row in compare(own_rows(), name).rows if row.row.quantity == "training"]
        assert len(found) == rows and max(abs(row.error) for row in found) < worst
        assert all(row.error_without_source is not None for row in found), "no constant is theirs"
    near = prompt_error_near(H100, TrainingJob(LLAMA, 4096, 1, FLASH), Mapping(tp=8))
    assert near is not None and near["rows"] >= 3 and near["worst"] < 0.17


def test_narrower_operands_are_faster_where_there_is_a_rate():
    wide = TrainingJob(LLAMA, 2048, 64, FLASH)
    times_ns = [float(train(H100, replace(wide, width=width), Mapping(tp=8, dp=8, sp=1)).iteration_ns)
                for width in ("bf16", "fp8")]
    assert 1.1 < times_ns[0] / times_ns[1] < 2
    with pytest.raises(BadInput, match=r"^h100-sxm has no rate of fp4$"):
        prompt(H100, replace(wide, width="fp4"), Mapping(tp=8))
    with pytest.raises(BadInput, match=r"^mi210 has no rate of fp8$"):
        prompt(load_cluster("mi210"), replace(wide, width="fp8"), Mapping(tp=8))


def test_the_range_of_an_estimate_has_it_inside():
    job = TrainingJob(LLAMA, 2048, 8, FLASH)
    for name in ("h100-sxm", "mi300x", "gb200"):
        found = estimate(load_cluster(name), job, Mapping(tp=8, sp=1), "prompt")
        assert found.range_ns[0] < found.iteration_ns < found.range_ns[1] < 1.3 * found.range_ns[0]
        assert found.to_json()["machine"]["name"] == name


def test_nodes_without_known_cards_are_refused():
    with pytest.raises(BadInput, match=r"^h100-sxm has no known network cards$"):
        train(H100.model_copy(update={"cards": None}), TrainingJob(LLAMA, 2048, 64, FLASH), Mapping(tp=8, dp=2, sp=1))
