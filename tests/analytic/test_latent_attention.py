"""A model file with latent attention and dense first layers: its GEMMs, weights, cache and collectives."""

import json

import pytest

from t3sim.analytic.end_to_end import layer
from t3sim.analytic.libraries.prompts import prompt_ns
from t3sim.analytic.libraries.ranking import layer_plans
from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.workload.interchange.config import config_workloads
from t3sim.workload.model_file import load_transformer
from t3sim.workload.transformer import TransformerError

#: The numbers of deepseek-ai/DeepSeek-V3's config.json.
V3 = {"hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
      "intermediate_size": 18432, "vocab_size": 129280, "hidden_act": "silu", "torch_dtype": "bfloat16",
      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
      "first_k_dense_replace": 3, "quantization_config": {"quant_method": "fp8"}}
ATTENTION = {"q_a": (4096, 1536, 7168, 1), "q_b": (4096, 3072, 1536, 1), "kv_a": (4096, 576, 7168, 1),
             "kv_b": (4096, 4096, 512, 1), "op": (4096, 7168, 2048, 1)}  # (128 + 64, 128 + 128, 128) x 16 heads


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Write a file with changed keys, and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(**changes) -> str:
        (tmp_path / "v3.json").write_text(json.dumps({**V3, **changes}))
        return "v3.json"

    return write


def test_gemms_of_a_gpu(model):
    one = load_transformer(model())
    gemms = layer.gemm_shapes(one, 4096, 8)
    assert {name: gemms[name] for name in ATTENTION} == ATTENTION
    assert gemms["fc1"] == (128, 512, 7168, 256) and gemms["fc2"] == (128, 7168, 256, 256)
    assert gemms["shared1"] == (4096, 512, 7168, 1) and gemms["shared2"] == (4096, 7168, 256, 1)
    (dense, three), (sparse, others) = one.kinds
    assert (three, others, dense.latent) == (3, 58, one.latent)
    assert layer.gemm_shapes(dense, 4096, 8) == ATTENTION | {"fc1": (4096, 4608, 7168, 1), "fc2": (4096, 7168, 2304, 1)}
    assert layer.gemm_shapes(sparse, 4096, 8) == gemms


@pytest.mark.parametrize(("tokens", "ep", "rows", "experts"), [
    (4096, 1, 128, 256), (4096, 64, 8192, 4), (8, 1, 1, 64), (8, 64, 16, 4), (1, 1, 1, 8)])
def test_experts_get_their_tokens(model, tokens, ep, rows, experts):
    """Of 256 experts eight take each token: those of a GPU get all that ep GPUs send, and few tokens few of them."""
    shapes = layer.gemm_shapes(load_transformer(model()), tokens, 1, ep)
    assert (shapes["fc1"][0], shapes["fc1"][3]) == (shapes["fc2"][0], shapes["fc2"][3]) == (rows, experts)
    assert rows * experts == tokens * 8


def test_weights_are_those_that_its_report_names(model):
    """DeepSeek-V3, arXiv 2412.19437: 671 billion, 37 billion for a token."""
    one = load_transformer(model())
    assert one.weights == pytest.approx(671e9, rel=2e-3)
    active = one.layers * one.active_weights + one.vocabulary * one.hidden
    assert active == pytest.approx(36.6e9, rel=5e-3)
    assert one.cached_width == 576  # of 2 x 16,384 without latents


def test_queries_may_come_straight_from_the_hidden_vector(model):
    """DeepSeek-V2-Lite has no rank for queries."""
    one = load_transformer(model(q_lora_rank=None))
    assert one.projections["q_b"] == (24576, 7168) and "q_a" not in one.projections


def test_sub_layers_that_are_all_reduced(model):
    found = config_workloads(model(), tp=8, tokens=4096)
    assert [(one.sublayer, one.n, one.k, times) for one, times in found] == [
        ("op", 7168, 2048, 61), ("fc1", 7168, 4608, 3), ("fc2", 7168, 2304, 3),
        ("ip-q", 1536, 3072, 61), ("ip-kv", 512, 4096, 61)]
    [(one, _)] = config_workloads(model(), tp=8, sublayer="ip-kv")
    assert one.title == "v3 IP of keys and values, TP=8" and not one.weights_transposed
    with pytest.raises(BadInput, match="'ip' is unknown: allowed are op, fc1, fc2, ip-q, ip-kv"):
        config_workloads(model(), tp=8, sublayer="ip")
    with pytest.raises(BadInput, match="'fc1' of v3 is one of 256 experts'"):
        config_workloads(model(first_k_dense_replace=0), tp=8, sublayer="fc1")


def test_overlap_takes_each_token_once_in_the_collective(model):
    machine = load_machine("h100-sxm", COMMERCIAL)
    parts = layer_plans(machine, load_transformer(model()), 4096, 8, sequence_parallel=True)
    assert {name: (one.operator, one.shape, one.size) for name, one in parts.items()} == {
        "op": ("gemm+rs", (4096, 7168, 2048), 2 * 4096 * 7168),
        "fc2": ("gemm+rs", (9 * 4096, 7168, 256), 2 * 4096 * 7168),
        "q_b": ("ag+gemm", (4096, 3072, 1536), 2 * 4096 * 1536),
        "kv_b": ("ag+gemm", (4096, 4096, 512), 2 * 4096 * 512),
        "fc1": ("ag+gemm", (9 * 4096, 512, 7168), 2 * 4096 * 7168)}
    node = load_machine("h100-sxm", COMMERCIAL)
    assert prompt_ns(node, load_transformer(model()), 4096, 8) > prompt_ns(
        node, load_transformer(model(num_hidden_layers=60)), 4096, 8)


@pytest.mark.parametrize("phase", ["training", "prompt", "decode"])
def test_end_to_end_counts_what_the_layers_have(model, phase, json_of):
    def answer(**changes):
        return json_of("end-to-end", "--model", model(**changes), "--gpus", "512", "--global-batch", "512",
                       "--mapping", "tp=8,dp=64,ep=64,zero=3", "--phase", phase)

    v3, wide = answer(), answer(kv_lora_rank=1024)
    assert v3["model"]["latent"]["kv_rank"] == 512 and v3["breakdown_ns"]["gemm"] < wide["breakdown_ns"]["gemm"]
    assert v3["memory_bytes"] < wide["memory_bytes"]


@pytest.mark.parametrize(("changes", "words"), [
    ({"v_head_dim": None}, "v_head_dim is missing"), ({"qk_rope_head_dim": 0}, "qk_rope_head_dim = 0"),
    ({"first_k_dense_replace": 61}, "none of 61 layers has the 256 experts"),
    ({"first_k_dense_replace": -1}, "a whole number from 0"), ({"kv_lora_rank": "512"}, "kv_lora_rank = 512")])
def test_a_file_that_cannot_be_is_one_line(model, changes, words):
    with pytest.raises(TransformerError, match=words):
        load_transformer(model(**changes))
