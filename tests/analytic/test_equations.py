"""The closed form against what can be computed by hand, and its own consistency over random mappings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t3sim.analytic.end_to_end import layer as layers
from t3sim.analytic.end_to_end.inference import decode, prompt
from t3sim.analytic.end_to_end.mapping import FULL, NONE, SELECTIVE, Mapping, check_mapping, every_mapping
from t3sim.analytic.end_to_end.memory import activation_bytes, state_bytes, weights_per_gpu
from t3sim.analytic.end_to_end.training import PARTS, TrainingJob, train
from t3sim.analytic.gemm import accelerator_gemm_ns, accelerator_move_ns
from t3sim.analytic.rings import group_all_reduce_ns, ring_pass_ns, tier_all_reduce_ns, tier_send_ns
from t3sim.machine import load_machine
from t3sim.machine.levels import CLUSTER
from t3sim.workload.transformer import PRESETS, Transformer

#: A DGX A100 in closed form: tiers of 8 GPUs and between nodes, one tile, one efficiency.
A100 = load_machine({
    "name": "a100-in-closed-form", "gpus_per_node": 8, "iteration_ns": 2e6,
    "accelerator": {
        "peak_tflop_per_s": 312.0, "cores": 108, "tile_m": 128, "tile_n": 128, "matrix_efficiency": 0.8,
        "tile_overhead_k": 64.0, "memory_gb": 80.0, "memory_gb_per_s": 2039.0, "memory_efficiency": 0.7,
        "kernel_ns": 2000.0, "host_ns_per_kernel": 64000.0, "busy_watts": 400.0, "idle_watts": 120.0},
    "intra": {"bandwidth_gb_per_s": 300.0, "efficiency": 0.74, "step_ns": 7400.0},
    "inter": {"bandwidth_gb_per_s": 25.0, "efficiency": 0.8, "step_ns": 20000.0},
    "uncertainty": {"matrix_efficiency": 0.05, "memory_efficiency": 0.1, "network_efficiency": 0.1,
                    "host_ns_per_kernel": 0.2}}, CLUSTER)


def test_a_gemm_runs_in_whole_waves():
    gpu = A100.accelerator
    tile = 2 * gpu.tile_m * gpu.tile_n * (4096 + gpu.tile_overhead_k) / (
        gpu.peak_tflop_per_s * 1e3 * gpu.matrix_efficiency / gpu.cores)
    one_wave = accelerator_gemm_ns(gpu, gpu.tile_m * 12, gpu.tile_n * 9, 4096)  # 108 tiles on 108 cores
    assert one_wave == pytest.approx(tile + gpu.kernel_ns)
    two_waves = accelerator_gemm_ns(gpu, gpu.tile_m * 12 + 1, gpu.tile_n * 9, 4096)
    assert two_waves == pytest.approx(2 * tile + gpu.kernel_ns)


def test_a_gemm_with_one_row_is_bound_by_its_weights():
    gpu = A100.accelerator
    assert accelerator_gemm_ns(gpu, 1, 12288, 12288) == pytest.approx(
        accelerator_move_ns(gpu, 2 * (12288 * 12288 + 2 * 12288)))


def test_the_gemm_law_of_the_t3_machine():
    """98.7 TFLOP/s x K/(K + 180) was derived from the paper's ideal speedups; the machine file gives the parts."""
    gpu = load_machine("t3-table1", CLUSTER).accelerator
    sustained = gpu.peak_tflop_per_s * gpu.matrix_efficiency
    assert sustained == pytest.approx(98.7, rel=0.01)
    assert 100 < gpu.tile_overhead_k < 200


def test_collectives_on_one_ring():
    net = A100.intra
    size, ranks = 1e9, 8
    wire = size / ranks / (net.bandwidth_gb_per_s * net.efficiency)
    assert ring_pass_ns(ranks, net.step_ns, size, net.bytes_per_ns) == pytest.approx(7 * (net.step_ns + wire))
    assert tier_all_reduce_ns(net, size, ranks) == 2 * ring_pass_ns(ranks, net.step_ns, size, net.bytes_per_ns)
    assert tier_all_reduce_ns(net, size, 1) == 0


def test_a_group_across_nodes_reduces_within_them_first():
    within = group_all_reduce_ns(A100, 1e9, 8, 1)
    assert within == tier_all_reduce_ns(A100.intra, 1e9, 8)
    assert group_all_reduce_ns(A100, 1e9, 32, 1) == pytest.approx(within + tier_all_reduce_ns(A100.inter, 1e9 / 8, 4))
    assert group_all_reduce_ns(A100, 1e9, 4, 8) == pytest.approx(tier_all_reduce_ns(A100.inter, 1e9, 4))
    assert tier_send_ns(A100, 1e9, 1) < tier_send_ns(A100, 1e9, 8)


def test_weights_of_known_models():
    for name, billions in (("megatron-22b", 22), ("gpt-3", 175), ("megatron-530b", 529.6), ("megatron-1t", 1008)):
        assert PRESETS[name].weights / 1e9 == pytest.approx(billions, rel=0.02)


def test_megatron_s_flop_count():
    """Source: arXiv 2104.04473, section 5.1: 96 B s l h^2 (1 + s/6h + V/16lh), recomputation included."""
    model = PRESETS["megatron-145b"]
    result = train(A100, TrainingJob(model, 2048, 2304), Mapping(8, 8, 24, recompute=FULL))
    h, layers_, v, s = model.hidden, model.layers, model.vocabulary, 2048
    assert result.flop == pytest.approx(96 * 2304 * s * layers_ * h * h * (1 + s / (6 * h) + v / (16 * layers_ * h)))
    assert result.model_flop == pytest.approx(72 * 2304 * s * layers_ * h * h * (
        1 + s / (6 * h) + v / (12 * layers_ * h)))


def test_activations_are_those_of_the_paper():
    """Source: arXiv 2205.05198, table 2, bytes per layer in units of s b h, here without a single stage's logits."""
    model, s, t = PRESETS["megatron-530b"], 2048, 8
    unit = s * model.hidden * model.layers / 35 * 35
    five = 5 * model.heads * s / model.hidden
    for mapping, expected in ((Mapping(t, 35), 10 + 24 / t + five / t), (Mapping(t, 35, sp=1), (34 + five) / t),
                              (Mapping(t, 35, recompute=SELECTIVE), 10 + 24 / t),
                              (Mapping(t, 35, sp=1, recompute=SELECTIVE), 34 / t)):
        assert activation_bytes(model, layers.MEGATRON, mapping, s, 280) == pytest.approx(expected * unit)


def test_zero_shards_what_it_says():
    model = PRESETS["megatron-22b"]
    plain = [float(state_bytes(model, Mapping(dp=8, zero=stage))) for stage in range(4)]
    per_weight = [bytes_ / weights_per_gpu(model, Mapping(dp=8)) for bytes_ in plain]
    assert per_weight == pytest.approx([18, 6 + 12 / 8, 2 + 16 / 8, 18 / 8])


def test_a_bubble_is_its_share_of_the_stages():
    model = replace(PRESETS["megatron-22b"], vocabulary=1)
    result = train(A100, TrainingJob(model, 2048, 48), Mapping(8, 8))
    stage = sum(float(result.breakdown_ns[name]) for name in (
        "gemm", "attention", "elementwise", "recompute", "host", "tp", "ep"))
    assert result.breakdown_ns["bubble"] == pytest.approx(stage / 48 * 7)
    interleaved = train(A100, TrainingJob(model, 2048, 48), Mapping(8, 8, interleave=6))
    assert interleaved.breakdown_ns["bubble"] == pytest.approx(stage / 48 * 7 / 6)


def test_full_recomputation_repeats_the_forward_pass():
    job = TrainingJob(PRESETS["megatron-175b"], 2048, 64)
    none, full = (train(A100, job, Mapping(8, 8, recompute=how)) for how in (NONE, FULL))
    ahead = layers.forward(A100, job.model, job.kernels, 1, 2048, layers.Split(8))
    again = ahead.total + float(none.breakdown_ns["tp"]) / 2 / 64 / 12
    assert full.breakdown_ns["recompute"] == pytest.approx(64 * 12 * again)
    assert full.memory_bytes < none.memory_bytes


def test_a_gpu_that_waits_for_its_host():
    """A layer takes at least as long as the host needs to launch its kernels."""
    small = Transformer("small", 128, 4, 2, 512, 1000)
    result = train(A100, TrainingJob(small, 64, 1), Mapping())
    ahead = layers.forward(A100, small, layers.MEGATRON, 1, 64, layers.Split(1))
    back = layers.backward(A100, small, layers.MEGATRON, 1, 64, layers.Split(1))
    launches = ahead.kernels + back.kernels
    layer_parts = sum(float(result.breakdown_ns[name]) for name in ("gemm", "attention", "elementwise", "host"))
    assert layer_parts == pytest.approx(4 * launches * A100.accelerator.host_ns_per_kernel)


def test_fused_attention_never_writes_the_scores():
    args = (A100, PRESETS["gpt-3"])
    plain, flash = (layers.forward(*args, kernels, 1, 8192, layers.Split(8)).attention
                    for kernels in (layers.MEGATRON, layers.FLASH))
    assert flash < plain
    assert activation_bytes(PRESETS["gpt-3"], layers.FLASH, Mapping(8), 8192, 1) < activation_bytes(
        PRESETS["gpt-3"], layers.MEGATRON, Mapping(8), 8192, 1)


@settings(max_examples=60, deadline=None)
@given(gpus=st.sampled_from([1, 2, 8, 12, 64, 256]), batch=st.sampled_from([1, 6, 64, 96, 256]),
       experts=st.sampled_from([1, 8]), data=st.data())
def test_arrays_agree_with_single_mappings_and_parts_with_the_whole(gpus, batch, experts, data):
    model = Transformer("drawn", 1024, 24, 16, 4096, 32000, kv_heads=8, gated=True, experts=experts)
    try:
        every = every_mapping(model, gpus, batch)
    except ValueError:
        return
    job = TrainingJob(model, 512, batch)
    all_of_them = train(A100, job, every)
    assert set(all_of_them.breakdown_ns) == set(PARTS)
    assert all((ns >= 0).all() for ns in all_of_them.breakdown_ns.values())
    index = data.draw(st.integers(0, len(every.tp) - 1))
    one = every.at(index)
    check_mapping(one, model, gpus, batch)
    single = train(A100, job, one)
    assert single.iteration_ns == pytest.approx(all_of_them.iteration_ns[index], rel=1e-12)
    assert single.memory_bytes == pytest.approx(all_of_them.memory_bytes[index], rel=1e-12)
    assert single.energy_joules == pytest.approx(all_of_them.energy_joules[index], rel=1e-12)


def test_nothing_is_lost_among_the_mappings():
    """Every mapping that may be is listed once: against a plain search."""
    model = Transformer("small", 64, 4, 4, 256, 100)
    listed = every_mapping(model, 8, 8, recomputations=(NONE,))
    found = {listed.at(index) for index in range(len(listed.tp))}
    assert len(found) == len(listed.tp)
    expected = set()
    for tp in range(1, 9):
        for pp in range(1, 9):
            for dp in range(1, 9):
                for micro in range(1, 9):
                    for chunks in range(1, 5):
                        for sp in (0, 1):
                            for zero in range(4):
                                one = Mapping(tp, pp, dp, micro, chunks, sp, zero)
                                if model.heads % tp or (zero and dp == 1):
                                    continue
                                try:
                                    check_mapping(one, model, 8, 8)
                                except ValueError:
                                    continue
                                expected.add(one)
    assert found == expected


def test_a_prompt_is_a_forward_pass_without_dropout():
    job = TrainingJob(PRESETS["megatron-22b"], 1024, 4)
    parts = prompt(A100, job, Mapping(8)).breakdown_ns
    ahead = layers.forward(A100, job.model, job.kernels, 4, 1024, layers.Split(8), "prompt")
    assert parts["attention"] == pytest.approx(48 * ahead.attention)
    trained = layers.forward(A100, job.model, job.kernels, 4, 1024, layers.Split(8))
    assert ahead.attention < trained.attention


def test_decoding_reads_weights_keys_and_values():
    """With one sequence it is bound by memory: at least all bytes over the bandwidth."""
    fast_host = A100.model_copy(update={"accelerator": A100.accelerator.model_copy(update={"host_ns_per_kernel": 0.0})})
    job = TrainingJob(PRESETS["megatron-22b"], 2048, 1)
    result = decode(fast_host, job, Mapping(8))
    weights = 2 * PRESETS["megatron-22b"].layers * PRESETS["megatron-22b"].layer_weights / 8
    floor = weights / (A100.accelerator.memory_gb_per_s * A100.accelerator.memory_efficiency)
    assert float(result.iteration_ns) > floor
    longer = decode(fast_host, replace(job, sequence=8192), Mapping(8))
    assert longer.breakdown_ns["attention"] > result.breakdown_ns["attention"]
    assert longer.memory_bytes > result.memory_bytes


def test_a_technique_saves_what_its_sublayers_save():
    job, mapping = TrainingJob(PRESETS["megatron-22b"], 2048, 4), Mapping(8, micro=4)
    plain = train(A100, job, mapping)
    twice = train(A100, job, mapping, lambda name, gemm, reduce: (gemm + reduce) / 2)
    ahead = layers.forward(A100, job.model, job.kernels, 4, 2048, layers.Split(8))
    back = layers.backward(A100, job.model, job.kernels, 4, 2048, layers.Split(8))
    gemms = ahead.gemms["op"] + ahead.gemms["fc2"] + back.gemms["fc1"] / 2 + back.gemms["qkv"] / 2
    reduced = float(plain.breakdown_ns["tp"])
    assert plain.iteration_ns - twice.iteration_ns == pytest.approx((48 * gemms + reduced) / 2)
    same = train(A100, job, mapping, lambda name, gemm, reduce: gemm + reduce)
    assert same.iteration_ns == pytest.approx(plain.iteration_ns)


def test_pareto_front_against_a_plain_search():
    from t3sim.analytic.end_to_end.search import pareto_front

    random = np.random.default_rng(3)
    for count in (1, 2, 30, 120):
        costs = random.integers(0, 6, (3, count)).astype(float)
        front = pareto_front(costs)
        for i in range(count):
            dominated = any((costs[:, j] <= costs[:, i]).all() and (costs[:, j] < costs[:, i]).any()
                            for j in range(count))
            assert not (front[i] and dominated)
            if not dominated:  # one of each set of equal ones is kept
                assert any(front[j] for j in range(count) if (costs[:, j] == costs[:, i]).all())
