"""Models of today by name: as their files say, heads that are not as wide together as the hidden vector among them."""

import json

import pytest

from t3sim.analytic.end_to_end import layer
from t3sim.study.scenario.layers import workloads_of
from t3sim.study.scenario.scenario import Layer
from t3sim.workload.model_file import load_transformer
from t3sim.workload.transformer import TODAY

#: The numbers of Qwen/Qwen3-32B's config.json.
QWEN3 = {"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
         "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936, "hidden_act": "silu",
         "torch_dtype": "bfloat16"}
#: Billions of parameters, by the models' names or cards.
SIZES = {"llama-3.1-8b": 8, "llama-3.3-70b": 70, "llama-3.1-405b": 405, "qwen2.5-72b": 72, "qwen3-32b": 32.8,
         "qwen3-235b-a22b": 235, "mixtral-8x7b": 46.7, "mixtral-8x22b": 141, "deepseek-v3": 671}


def test_heads_of_a_width_of_their_own(tmp_path):
    (tmp_path / "qwen3-32b.json").write_text(json.dumps(QWEN3))
    model = load_transformer(str(tmp_path / "qwen3-32b.json"))
    assert model == TODAY["qwen3-32b"]
    assert model.head_widths == (128, 128) and model.kv_width == 1024
    gemms = layer.gemm_shapes(model, 4096, 8)
    assert gemms["qkv"] == (4096, (64 + 2 * 8) * 128 // 8, 5120, 1) and gemms["op"] == (4096, 5120, 64 * 128 // 8, 1)


@pytest.mark.parametrize("name", TODAY)
def test_a_model_has_as_many_weights_as_its_name_says(name):
    model = TODAY[name]
    assert SIZES[name] == pytest.approx(model.weights / 1e9, rel=0.025)


def test_a_scenario_takes_a_name_as_it_takes_the_file(tmp_path):
    (tmp_path / "qwen3-32b.json").write_text(json.dumps(QWEN3))
    named, filed = (workloads_of(Layer(model=model, tp=8, tokens=1024), 0)[0]
                    for model in ("qwen3-32b", str(tmp_path / "qwen3-32b.json")))
    assert named == filed and [one.sublayer for one, _ in named] == ["op", "fc1", "fc2", "ip"]
    assert {one.dtype for one, _ in named} == {"bf16"} and {count for _, count in named} == {64}
