"""Models' config.json files: parameter counts of public models, and keys that shape a layer and are not read."""

import json
from dataclasses import replace

import numpy as np
import pytest

from t3sim.analytic.end_to_end.inference import decode, prompt
from t3sim.analytic.end_to_end.layer import FLASH, MEGATRON, gemm_shapes
from t3sim.analytic.end_to_end.mapping import Mapping, MappingError, check_mapping
from t3sim.analytic.end_to_end.memory import weights_per_gpu
from t3sim.analytic.end_to_end.training import TrainingJob, train
from t3sim.analytic.libraries.contention import beside, collective_job, gemm_job
from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.study.end_to_end import load_cluster
from t3sim.study.scenario.layers import workloads_of
from t3sim.study.scenario.scenario import Layer
from t3sim.workload.model_file import load_transformer
from t3sim.workload.transformer import TransformerError


def shape(hidden, layers, heads, kv, wide, vocabulary, **more):
    """Return the keys that most files have."""
    return {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "intermediate_size": wide, "vocab_size": vocabulary, "hidden_act": "silu", **more}


MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
#: Billions of parameters (of the text model), and the keys of config.json at huggingface.co/NAME that give the shape.
#: Counts are those of the model cards, which Hugging Face takes from the weights.
PUBLIC = {
    "google/gemma-7b": (8.54, shape(3072, 28, 16, 16, 24576, 256000, model_type="gemma", head_dim=256,
                                    hidden_act="gelu")),
    "google/gemma-2-9b": (9.24, {**shape(3584, 42, 16, 8, 14336, 256000, model_type="gemma2", head_dim=256),
                                 "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
                                 "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256, "sliding_window": 4096}),
    "google/gemma-2-27b": (27.2, shape(4608, 46, 32, 16, 36864, 256000, model_type="gemma2", head_dim=128)),
    "google/gemma-3-4b-it": (3.88, {"model_type": "gemma3", "mm_tokens_per_image": 256, "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0}}, "vision_config": {"hidden_size": 1152}}),
    "google/gemma-3-27b-it": (27.0, {"model_type": "gemma3", "text_config": {
        "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text", "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}, "vision_config": {"hidden_size": 1}}),
    "tiiuae/falcon-7b": (7.22, {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True}),
    "tiiuae/falcon-40b": (41.8, {
        "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_kv_heads": 8, "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": True}),
    "tiiuae/falcon-40b of 2023": (41.8, {
        "model_type": "RefinedWeb", "hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8,
        "vocab_size": 65024, "alibi": False, "apply_residual_connection_post_layernorm": False}),
    "bigcode/starcoder": (15.5, {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576, "n_positions": 8192,
        "vocab_size": 49152, "multi_query": True, "activation_function": "gelu_pytorch_tanh"}),
    "ibm-granite/granite-20b-code": (20.1, {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 52, "n_head": 48, "n_inner": 24576, "n_positions": 8192,
        "vocab_size": 49152, "multi_query": True, "activation_function": "gelu_pytorch_tanh"}),
    "bigcode/starcoder2-3b": (3.03, {**shape(3072, 30, 24, 2, 12288, 49152, model_type="starcoder2"),
                                     "hidden_act": "gelu_pytorch_tanh"}),
    "Qwen/Qwen1.5-MoE-A2.7B": (14.3, shape(
        2048, 24, 16, 16, 5632, 151936, model_type="qwen2_moe", moe_intermediate_size=1408, num_experts=60,
        num_experts_per_tok=4, shared_expert_intermediate_size=5632, decoder_sparse_step=1, max_window_layers=21)),
    "Qwen/Qwen2-57B-A14B": (57.4, shape(
        3584, 28, 28, 4, 18944, 151936, model_type="qwen2_moe", moe_intermediate_size=2560, num_experts=64,
        num_experts_per_tok=8, shared_expert_intermediate_size=20480, decoder_sparse_step=1, mlp_only_layers=[])),
    "Qwen/Qwen2.5-7B": (7.62, shape(3584, 28, 28, 4, 18944, 152064, model_type="qwen2")),
    "Qwen/Qwen2.5-72B": (72.7, shape(8192, 80, 64, 8, 29568, 152064, model_type="qwen2")),
    "Qwen/Qwen3-8B": (8.19, shape(4096, 36, 32, 8, 12288, 151936, model_type="qwen3", head_dim=128)),
    "Qwen/Qwen3-30B-A3B": (30.5, shape(
        2048, 48, 32, 4, 6144, 151936, model_type="qwen3_moe", head_dim=128, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, decoder_sparse_step=1, norm_topk_prob=True)),
    "Qwen/Qwen3-235B-A22B": (235.1, shape(
        4096, 94, 64, 4, 12288, 151936, model_type="qwen3_moe", head_dim=128, moe_intermediate_size=1536,
        num_experts=128, num_experts_per_tok=8)),
    "Qwen/Qwen2-VL-7B": (7.62, shape(3584, 28, 28, 4, 18944, 152064, model_type="qwen2_vl", image_token_id=151655,
                                     vision_config={"depth": 32, "embed_dim": 1280})),
    "baidu/ERNIE-4.5-300B-A47B": (300, shape(
        8192, 54, 64, 8, 28672, 103424, model_type="ernie4_5_moe", head_dim=128, moe_num_experts=64, moe_k=8,
        moe_intermediate_size=3584, moe_layer_start_index=3, moe_layer_end_index=53, moe_layer_interval=1,
        moe_capacity=[64, 64, 64], moe_gate="topk", moe_use_aux_free=True)),
    "meta-llama/Llama-2-7b": (6.74, shape(4096, 32, 32, 32, 11008, 32000, model_type="llama", pretraining_tp=1)),
    "meta-llama/Llama-3.1-8B": (8.03, shape(4096, 32, 32, 8, 14336, 128256, model_type="llama")),
    "meta-llama/Llama-3.1-70B": (70.6, shape(8192, 80, 64, 8, 28672, 128256, model_type="llama")),
    "meta-llama/Llama-3.1-405B": (405.9, shape(16384, 126, 128, 8, 53248, 128256, model_type="llama")),
    "meta-llama/Llama-3.2-1B": (1.24, shape(2048, 16, 32, 8, 8192, 128256, model_type="llama", head_dim=64,
                                            tie_word_embeddings=True)),
    "meta-llama/Llama-4-Scout": (108, {"model_type": "llama4", "text_config": shape(
        5120, 48, 40, 8, 8192, 202048, model_type="llama4_text", head_dim=128, intermediate_size_mlp=16384,
        num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=1, attention_chunk_size=8192)}),
    "meta-llama/Llama-4-Maverick": (400, {"model_type": "llama4", "text_config": shape(
        5120, 48, 40, 8, 8192, 202048, model_type="llama4_text", head_dim=128, intermediate_size_mlp=16384,
        num_local_experts=128, num_experts_per_tok=1, interleave_moe_layer_step=2, no_rope_layers=[]),
        "vision_config": {"hidden_size": 1408}}),
    "mistralai/Mistral-7B": (7.24, shape(4096, 32, 32, 8, 14336, 32000, model_type="mistral")),
    "mistralai/Mistral-Large-2407": (122.6, shape(12288, 88, 96, 8, 28672, 32768, model_type="mistral", head_dim=128)),
    "mistralai/Mistral-Small-3.1": (23.6, {"model_type": "mistral3", "vision_feature_layer": -1, "text_config": shape(
        5120, 40, 32, 8, 32768, 131072, model_type="mistral", head_dim=128), "vision_config": {"hidden_size": 1024}}),
    "mistralai/Mixtral-8x7B": (46.7, shape(4096, 32, 32, 8, 14336, 32000, model_type="mixtral", num_local_experts=8,
                                           num_experts_per_tok=2)),
    "mistralai/Mixtral-8x22B": (140.6, shape(6144, 56, 48, 8, 16384, 32768, model_type="mixtral", num_local_experts=8,
                                             num_experts_per_tok=2)),
    "deepseek-ai/DeepSeek-V2": (235.7, shape(
        5120, 60, 128, 128, 12288, 102400, model_type="deepseek_v2", **MLA, q_lora_rank=1536, n_routed_experts=160,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1536, first_k_dense_replace=1,
        moe_layer_freq=1, n_group=8, topk_group=3)),
    "deepseek-ai/DeepSeek-V2-Lite": (15.7, shape(
        2048, 27, 16, 16, 10944, 102400, model_type="deepseek_v2", **MLA, q_lora_rank=None, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1)),
    "deepseek-ai/DeepSeek-V3": (671, shape(
        7168, 61, 128, 128, 18432, 129280, model_type="deepseek_v3", **MLA, q_lora_rank=1536, n_routed_experts=256,
        n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3,
        num_nextn_predict_layers=1, topk_method="noaux_tc", ep_size=1)),
    "moonshotai/Kimi-K2": (1026, shape(
        7168, 61, 64, 64, 18432, 163840, model_type="kimi_k2", **MLA, q_lora_rank=1536, n_routed_experts=384,
        n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=1)),
    "zai-org/GLM-4.5-Air": (106, shape(
        4096, 46, 96, 8, 10944, 151552, model_type="glm4_moe", head_dim=128, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=1408, first_k_dense_replace=1, partial_rotary_factor=0.5)),
    "zai-org/chatglm3-6b": (6.24, {
        "model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32, "kv_channels": 128,
        "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "multi_query_attention": True,
        "multi_query_group_num": 2, "add_qkv_bias": True, "post_layer_norm": True, "seq_length": 8192}),
    "MiniMaxAI/MiniMax-M2": (229, shape(
        3072, 62, 48, 8, 1536, 200064, model_type="minimax_m2", head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, attn_type_list=[1] * 62, num_mtp_modules=3, shared_intermediate_size=0)),
    "openai/gpt-oss-120b": (116.8, shape(
        2880, 36, 64, 8, 2880, 201088, model_type="gpt_oss", head_dim=64, num_local_experts=128, experts_per_token=4,
        num_experts_per_tok=4, layer_types=["sliding_attention", "full_attention"] * 18, swiglu_limit=7.0)),
    "microsoft/phi-2": (2.78, {**shape(2560, 32, 32, 32, 10240, 51200, model_type="phi"), "hidden_act": "gelu_new"}),
    "microsoft/Phi-3-mini": (3.82, shape(3072, 32, 32, 32, 8192, 32064, model_type="phi3")),
    "microsoft/Phi-3-medium": (13.96, shape(5120, 40, 40, 10, 17920, 32064, model_type="phi3")),
    "microsoft/Phi-3.5-MoE": (41.9, shape(4096, 32, 32, 8, 6400, 32064, model_type="phimoe", num_local_experts=16,
                                          num_experts_per_tok=2, input_jitter_noise=0.01)),
    "openai-community/gpt2": (0.124, {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
                                      "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024}),
    "openai-community/gpt2-xl": (1.56, {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25,
                                        "vocab_size": 50257, "activation_function": "gelu_new"}),
    "EleutherAI/gpt-neox-20b": (20.6, {**shape(6144, 44, 64, None, 24576, 50432, model_type="gpt_neox"),
                                       "hidden_act": "gelu_fast", "rotary_pct": 0.25, "use_parallel_residual": True}),
    "EleutherAI/gpt-j-6b": (6.05, {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_inner": None,
                                   "vocab_size": 50400, "rotary_dim": 64, "activation_function": "gelu_new"}),
    "facebook/opt-6.7b": (6.66, {
        "model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "ffn_dim": 16384,
        "vocab_size": 50272, "word_embed_proj_dim": 4096, "activation_function": "relu"}),
    "facebook/opt-66b": (65.7, {
        "model_type": "opt", "hidden_size": 9216, "num_hidden_layers": 64, "num_attention_heads": 72, "ffn_dim": 36864,
        "vocab_size": 50272, "word_embed_proj_dim": 9216, "activation_function": "relu"}),
    "bigscience/bloom": (176.2, {
        "model_type": "bloom", "hidden_size": 14336, "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
        "vocab_size": 250880, "offset_alibi": 100, "masked_softmax_fusion": True}),
    "mosaicml/mpt-7b": (6.65, {
        "model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4, "vocab_size": 50432,
        "attn_config": {"alibi": True, "attn_type": "multihead_attention", "clip_qkv": None}, "no_bias": True}),
    "mosaicml/mpt-30b": (29.96, {
        "model_type": "mpt", "d_model": 7168, "n_layers": 48, "n_heads": 64, "expansion_ratio": 4, "vocab_size": 50432,
        "attn_config": {"alibi": True, "attn_impl": "triton"}, "embedding_fraction": 1.0}),
    "databricks/dbrx-base": (131.6, {
        "model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352,
        "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "moe_jitter_eps": 0.01,
                       "ffn_act_fn": {"name": "silu"}, "moe_loss_weight": 0.05}}),
    "xai-org/grok-1": (314, {**shape(
        6144, 64, 48, 8, 32768, 131072, model_type="grok-1", num_experts=8, num_experts_per_tok=2,
        attn_output_multiplier=0.08838834764831845, embedding_multiplier_scale=78.38367176906169),
        "hidden_act": "gelu"}),
    "ibm-granite/granite-3.1-8b": (8.17, shape(4096, 40, 32, 8, 12800, 49155, model_type="granite",
                                               tie_word_embeddings=True, residual_multiplier=0.22)),
    "allenai/OLMo-7B-hf": (6.89, shape(4096, 32, 32, 32, 11008, 50304, model_type="olmo", clip_qkv=None)),
    "allenai/OLMo-2-13B": (13.7, shape(5120, 40, 40, 40, 13824, 100352, model_type="olmo2")),
    "allenai/OLMoE-1B-7B": (6.92, shape(2048, 16, 16, 16, 1024, 50304, model_type="olmoe", num_experts=64,
                                        num_experts_per_tok=8)),
    "01-ai/Yi-34B": (34.4, shape(7168, 60, 56, 8, 20480, 64000, model_type="llama")),
    "CohereForAI/c4ai-command-r-v01": (35.0, shape(8192, 40, 64, 64, 22528, 256000, model_type="cohere")),
    "CohereForAI/c4ai-command-r-plus": (103.8, shape(12288, 64, 96, 8, 33792, 256000, model_type="cohere",
                                                     use_qk_norm=True)),
    "CohereForAI/c4ai-command-r7b-12-2024": (8.03, shape(
        4096, 32, 32, 8, 14336, 256000, model_type="cohere2", layer_switch=4, use_gated_activation=True,
        order_of_interleaved_layers="local_attn_first", use_parallel_block=True, use_parallel_embedding=True)),
    "tencent/Hunyuan-A13B": (80.4, shape(
        4096, 32, 32, 8, 3072, 128167, model_type="hunyuan_v1_moe", head_dim=128, moe_intermediate_size=[3072] * 32,
        num_experts=64, moe_topk=[8] * 32, num_shared_expert=[1] * 32, use_mixed_mlp_moe=True, use_cla=False,
        cla_share_factor=2, moe_layer_num_skipped=0, tie_word_embeddings=True)),
    "nvidia/Minitron-8B-Base": (8.27, {**shape(4096, 32, 48, 8, 16384, 256000, model_type="nemotron", head_dim=128),
                                       "hidden_act": "relu2"}),
}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Write a file, and return its name."""
    monkeypatch.chdir(tmp_path)

    def write(config) -> str:
        (tmp_path / "one.json").write_text(json.dumps(config))
        return "one.json"

    return write


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_model_has_its_parameters(name, model):
    billions, config = PUBLIC[name]
    assert load_transformer(model(config)).weights / 1e9 == pytest.approx(billions, rel=0.01)


LLAMA = PUBLIC["meta-llama/Llama-3.1-8B"][1]
QWEN_MOE = PUBLIC["Qwen/Qwen3-30B-A3B"][1]


@pytest.mark.parametrize(("changes", "words"), [
    ({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16}, "attn_layer_period.*mamba_d_state"),
    ({"linear_num_key_heads": 16, "full_attention_interval": 4}, "linear_num_key_heads, full_attention_interval"),
    ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types"),
    ({"layer_types": ["full_attention"] * 31}, "layer_types has 31 kinds for 32 layers"),
    ({"layers_block_type": ["mamba", "attention"]}, "layers_block_type"), ({"attn_type_list": [0, 1]}, "attn_type_"),
    ({"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern"), ({"cross_attention_layers": [3, 8]}, "cross_att"),
    ({"block_configs": [{"attention": {}}], "intermediate_size": None}, "block_configs"),
    ({"num_key_value_heads": [8, 4]}, "num_key_value_heads differs"),
    ({"num_key_value_heads_per_layer": [4, 8]}, "num_key_value_heads_per_layer"),
    ({"ffn_multipliers": [0.5, 4.0]}, "ffn_multipliers"), ({"ffn_dim_multiplier": 1.3}, "ffn_dim_multiplier"),
    ({"intermediate_size": [8192, 14336]}, "intermediate_size differs"), ({"intermediate_size": None}, "missing .null"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder"), ({"num_decoder_layers": 12}, "num_decoder_layers"),
    ({"q_lora_rank": 512}, "q_lora_rank = 512 needs kv_lora_rank"), ({"v_head_dim": 64}, "v_head_dim"),
    ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input"), ({"num_kv_shared_layers": 15}, "kv_shared"),
    ({"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512 is not the hidden size"),
    ({"n_embd": 2048}, "hidden_size = 4096 and n_embd = 2048 contradict"),
    ({"moe_intermediate_size": 1024}, "no key says how many experts"), ({"use_cla": True}, "use_cla"),
    ({"model_type": "qwen3_next"}, "model_type = 'qwen3_next'"), ({"model_type": "mamba2"}, "model_type = 'mamba2'"),
    ({"model_type": "new", "hidden_act": "gelu"}, "gated"), ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
    ({"model_type": "new", "hidden_act": None}, "no activation: whether it is gated"), ({"use_glu": True}, "use_glu"),
    ({"attention_type": "multi_query"}, "attention_type"), ({"use_mqa": True}, "use_mqa"),
    ({"untie_embeddings": True}, "untie_embeddings"), ({"is_gated_act": "yes"}, "is_gated_act = 'yes' is neither")])
def test_a_key_that_shapes_a_layer_and_is_not_read_is_named(changes, words, model):
    with pytest.raises(TransformerError, match=words):
        load_transformer(model({**LLAMA, **changes}))


@pytest.mark.parametrize(("changes", "gated"), [
    ({"activation_fn": "silu"}, True), ({"act_fn": "swiglu"}, True), ({"feed_forward_proj": "gated-gelu"}, True),
    ({"hidden_act": "silu", "use_gated_activation": False}, False), ({"model_type": "qwen2"}, True),
    ({"hidden_act": "gelu", "use_gated_activation": True}, True), ({"model_type": "phi3"}, True),
    ({"model_type": "glm4"}, True), ({"model_type": "cohere2"}, True), ({"model_type": "gpt_neox"}, False)])
def test_how_files_say_that_a_feed_forward_part_has_a_third_matrix(changes, gated, model):
    assert load_transformer(model({**LLAMA, "model_type": None, "hidden_act": None, **changes})).gated is gated


@pytest.mark.parametrize("section", ["language_model", "llm_cfg", "lm_config", "text_model"])
def test_a_model_of_text_within_another(section, model):
    read = load_transformer(model({"model_type": "new", section: LLAMA, "vision_config": {"depth": 2}}))
    assert (read.layers, read.kv_heads, read.left_out) == (32, 8, ("vision_config",))


def test_embeddings_and_heads_by_other_words(model):
    untied = load_transformer(model(LLAMA)).weights
    assert untied - load_transformer(model({**LLAMA, "tie_embeddings": True})).weights == 128256 * 4096
    falcon = {**PUBLIC["tiiuae/falcon-40b"][1], "num_kv_heads": None}
    assert load_transformer(model(falcon)).kv_heads in (0, 128)  # the class takes all heads then


@pytest.mark.parametrize(("changes", "dense"), [
    ({}, 0), ({"decoder_sparse_step": 2}, 24), ({"mlp_only_layers": [0, 5]}, 2), ({"first_k_dense_replace": 3}, 3),
    ({"moe_layer_freq": 2}, 24), ({"moe_layer_freq": [0] + [1] * 47}, 1), ({"num_dense_layers": 2}, 2),
    ({"moe_layer_start_index": 1, "moe_layer_end_index": 46}, 2), ({"moe_layer_interval": 1, "moe_layers": None}, 0),
    ({"decoder_sparse_step": None, "moe_layer_interval": 4}, 36),
    ({"mlp_layer_types": ["dense"] * 4 + ["sparse"] * 44}, 4), ({"moe_layers": [1, 3, 5]}, 45)])
def test_which_layers_have_experts(changes, dense, model):
    read = load_transformer(model({**QWEN_MOE, **changes}))
    assert (read.dense_layers, read.dense_feed_forward) == (dense, 6144 * (dense > 0))
    assert [count for _, count in read.kinds] == ([dense, 48 - dense] if dense else [48])


@pytest.mark.parametrize(("changes", "words"), [
    ({"num_experts_per_tok": None}, "per_tok is missing .null"), ({"mlp_only_layers": [48]}, "mlp_only_layers"),
    ({"moe_layer_freq": [0, 1]}, "moe_layer_freq"), ({"decoder_sparse_step": 64}, "none of 48 layers"),
    ({"expert_layer_period": 2}, "expert_layer_period"), ({"zero_expert_num": 256}, "zero_expert_num"),
    ({"num_experts": [64, 64, 32]}, "num_experts differs"), ({"parallel_attn_mlp_res": True}, "parallel_attn_mlp_res")])
def test_experts_that_cannot_be_read_are_named(changes, words, model):
    with pytest.raises(TransformerError, match=words):
        load_transformer(model({**QWEN_MOE, **changes}))


def test_what_a_file_has_besides_is_said(model):
    text = str(load_transformer(model({**LLAMA, "vision_config": {"depth": 2}, "mtp_num_layers": 1, "colour": "red"})))
    assert text.endswith("left out: vision_config, mtp_num_layers = 1, unknown keys colour")


@pytest.mark.parametrize(("changes", "end"), [
    ({"sliding_window": 128}, "; left out: sliding_window = 128"), ({"sliding_window": None}, "a matrix of logits"),
    ({"attention_chunk_size": 8192}, "; left out: attention_chunk_size = 8192"),
    ({"sliding_window": 4096, "use_sliding_window": False}, "a matrix of logits")])
def test_a_window_that_attention_is_not_timed_with_is_said(changes, end, model):
    assert str(load_transformer(model({**LLAMA, **changes}))).endswith(end)


MISTRAL = {**LLAMA, "model_type": "mistral"}


@pytest.mark.parametrize(("changes", "window", "layers"), [
    ({**MISTRAL, "sliding_window": 4096}, 4096, 32), ({**MISTRAL, "sliding_window": None}, 0, 0),
    ({**LLAMA, "sliding_window": 1024, "sliding_window_pattern": 6}, 1024, 27),
    ({**LLAMA, "model_type": "gemma2", "hidden_activation": "gelu", "sliding_window": 4096}, 4096, 16),
    ({**LLAMA, "model_type": "gemma3_text", "sliding_window": 1024}, 1024, 27),
    ({**LLAMA, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16}, 128, 16),
    ({**LLAMA, "sliding_window": 512, "use_sliding_window": True, "max_window_layers": 28}, 512, 4)])
def test_layers_have_the_window_that_their_file_names(changes, window, layers, model):
    read = load_transformer(model(changes))
    assert (read.window, read.windowed_layers, read.left_out) == (window, layers, ())
    assert (f"attention to {window} tokens in {layers} layers" in str(read)) == bool(layers)


def test_a_window_caps_what_attention_reads(model):
    """Against counts of the pairs of a query and a key that it sees."""
    read = load_transformer(model({**MISTRAL, "sliding_window": 100}))
    pairs = sum(min(query, 100) for query in range(1, 1001)) / sum(range(1, 1001))
    assert read.seen_share(1000) == pytest.approx(pairs, rel=0.01)
    assert read.seen_share(80) == 1 and read.seen_tokens(80) == 80 and read.seen_tokens(1000) == 100
    half = replace(read, windowed_layers=16)
    assert half.seen_tokens(1000) == 550 and half.seen_share(1000) == pytest.approx((1 + read.seen_share(1000)) / 2)


@pytest.mark.parametrize("machine", ["h100-sxm", "mi210"])
def test_a_window_shortens_prompts_decoding_and_the_cache_and_nothing_else(machine, model):
    """A window of at least the context changes nothing; one of 1,024 reads as a context of 1,024 while decoding."""
    cluster = load_cluster(machine)
    full, wide, short = (load_transformer(model({**MISTRAL, "sliding_window": window}))
                         for window in (None, 16384, 1024))
    mapping = Mapping(8)

    def result(phase, one, context=16384):
        return phase(cluster, TrainingJob(one, context, 4, FLASH), mapping)
    for phase in (prompt, decode, train):
        assert result(phase, wide).iteration_ns == pytest.approx(result(phase, full).iteration_ns)
        parts, all_parts = result(phase, short).breakdown_ns, result(phase, full).breakdown_ns
        assert result(phase, short).flop < result(phase, full).flop
        if phase is not train:  # whose breakdown has no attention of its own
            assert parts["attention"] < all_parts["attention"] / 2
            assert all(parts[name] == all_parts[name] for name in parts if name not in ("attention", "host"))
    assert result(decode, short).iteration_ns == pytest.approx(result(decode, full, 1024).iteration_ns)
    assert result(decode, short).memory_bytes == pytest.approx(result(decode, full, 1024).memory_bytes)


def test_a_kernel_that_writes_its_scores_computes_those_that_a_window_masks(model):
    full, short = (load_transformer(model({**MISTRAL, "sliding_window": window})) for window in (None, 256))
    times = [prompt(load_cluster("mi210"), TrainingJob(one, 4096, 1, MEGATRON), Mapping(8)).iteration_ns
             for one in (full, short)]
    assert times[0] == times[1]


def test_a_shared_expert_has_its_own_width(model):
    read = load_transformer(model(PUBLIC["Qwen/Qwen2-57B-A14B"][1]))
    gemms = gemm_shapes(read, 4096, 4)
    assert gemms["shared1"] == (4096, 2 * 20480 // 4, 3584, 1) and gemms["shared2"] == (4096, 3584, 20480 // 4, 1)
    assert gemms["fc1"] == (512, 2 * 2560 // 4, 3584, 64)


def decoded_gb(tp, json_of, name="llama-3.1-8b"):
    return json_of("end-to-end", "--model", name, "--gpus", str(tp), "--mapping", f"tp={tp}", "--phase", "decode",
                   "--global-batch", "256", "--sequence", "8192", "--machine", "h100-sxm")["memory_bytes"] / 1e9


def test_gpus_beyond_the_heads_of_keys_and_values_have_copies(json_of):
    """256 x 8,192 tokens x 32 layers x 2 x 128 x 2 bytes are 34.4 GB for one head, and a share of 16 GB of weights."""
    assert decoded_gb(8, json_of) == pytest.approx(34.36 + 16.06 / 8, rel=1e-3)
    assert decoded_gb(16, json_of) == pytest.approx(35.4, abs=0.1)
    assert decoded_gb(32, json_of) == pytest.approx(34.36 + 0.5, abs=0.15)


def test_keys_and_values_of_a_gpu_are_at_least_a_head():
    read = load_transformer("llama-3.1-8b")
    assert [int(read.attention_gemms(64, tp)["qkv"][1]) for tp in (4, 8, 16, 32)] == [1536, 768, 512, 384]
    more = 2 * 1024 * 4096 * 32 / 16  # of 16 GPUs two have the same head
    plain = (read.weights - 32 * 13 * 4096) / 16 + 32 * 13 * 4096
    assert weights_per_gpu(read, Mapping(tp=16)) == pytest.approx(plain + more)
    tps = np.array([8, 16])
    assert read.attention_gemms(64, tps)["qkv"][1].tolist() == [768, 512]


@pytest.mark.parametrize(("heads", "kv", "tp"), [(28, 4, 8), (12, 4, 6), (32, 8, 64)])
def test_heads_that_gpus_cannot_share_are_refused(heads, kv, tp, model):
    read = load_transformer(model({**LLAMA, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": 128}))
    with pytest.raises(MappingError, match=f"tp={tp} (does not divide|neither divides|exceeds)"):
        check_mapping(Mapping(tp=tp), read, tp, 1)
    if tp <= heads:
        check_mapping(Mapping(tp=tp), read, tp, 1, heads_split=False)


@pytest.mark.parametrize(("arguments", "gemm"), [
    (["end-to-end", "--gpus", "8", "--mapping", "tp=8", "--phase", "prompt", "--global-batch", "1"],
     "fc1 2,048 x 3,584 x 4,096"),
    (["end-to-end", "--gpus", "8", "--search", "--global-batch", "8"], "fc1 8,192 x 7,168 x 4,096"),
    (["overlap"], "fc2 8,192 x 4,096 x 1,792 and its all-reduce"),
    (["overlap", "--expert-parallel"], "x 28,672 x 4,096")], ids=lambda one: " ".join(one[:2]))
def test_commands_say_what_the_model_is_and_which_gemms_it_has(arguments, gemm, capsys):
    name = "mixtral-8x7b" if "--expert-parallel" in arguments else "llama-3.1-8b"
    assert main([arguments[0], "--model", name, *arguments[1:]]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{name}: {'46.7' if 'mixtral' in name else '8.032'} billion parameters" in shown
    assert "32 layers" in shown and gemm in shown


def test_run_says_what_the_model_is_and_which_gemms_it_has():
    for name, words in (("t-nlg", "17.18 billion parameters"), ("llama-3.1-8b", "8.032 billion parameters")):
        _, notes = workloads_of(Layer(model=name, tp=8), 0)
        assert words in notes[0] and (name == "t-nlg" or notes[1].startswith("op (M x N x K): 8,192 x 4,096 x 512"))


def test_a_gemm_that_asks_for_all_of_memory_leaves_copies_some():
    """Qwen3-Next's experts at TP 8: fc2 of 81,920 rows is 64 deep, and its tiles ask for more than memory has."""
    machine = load_machine("h100-sxm", COMMERCIAL)
    one = gemm_job(machine, 8192 * 10, 2048, 64)
    assert one.memory_bytes <= machine.memory_bytes_per_ns * one.ns
    for mover in ("units", "engines", "near-memory"):
        copies = collective_job(machine, "reduce_scatter", 8, 2.0 * 8192 * 2048, mover)
        both = beside(machine, (8192 * 10, 2048, 64), "bf16", copies)
        assert max(one.ns, copies.ns) <= both.ns <= 1.01 * (one.ns + copies.ns) / (1 - machine.sharing.power_share)


def test_megabytes_are_a_million_bytes_and_the_error_is_that_of_all_rows(capsys, json_of):
    told = json_of("overlap", "--model", "llama-3.1-8b")
    turn = next(one for one in told["ranking"] if one["mechanism"] == "in-turn")
    assert told["gemms"]["op"] == {"operator": "gemm+ar", "shape": [8192, 4096, 512]}
    assert (told["layers"], round(told["parameters"] / 1e9, 2)) == (32, 8.03)
    summary = json_of("validate", "h100-sxm")["summary"]["without_source"]
    assert told["expected_error"] == summary | {"signs": 0, "signs_right": 0}
    assert main(["overlap", "--model", "llama-3.1-8b"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("in-turn")).split()
    assert row[-1] == f"{turn['memory_bytes'] / 1e6:,.0f}"
