"""Read a model by name or from Hugging Face's config.json.

The reader refuses keys that may change the shape of a layer and that it does not understand, and names them. It lists
a file's other parts (vision, prediction of more tokens) in `Transformer.left_out`.
"""

import re
from pathlib import Path
from typing import Any, NoReturn

from t3sim.base.bounded import read_json, reading
from t3sim.base.errors import choices, shown
from t3sim.workload.transformer import LARGEST, PRESETS, TODAY, Latent, Transformer, TransformerError

#: Sections of the text model in a file of several models.
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config", "lm_config", "llm_cfg", "language_model",
         "text_model")
#: Sections of MPT's and DBRX's files whose keys belong to the model's.
_SECTIONS = ("attn_config", "ffn_config")

_HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_VOCABULARY = ("vocab_size", "padded_vocab_size")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "attn_config.kv_n_heads")
_HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim")
_FEED_FORWARD = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "ffn_config.ffn_hidden_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "ffn_config.moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk", "moe_top_k",
           "top_k_experts", "num_selected_experts", "ffn_config.moe_top_k")
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size",
                 "moe_ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size")
#: Layers that have experts: those after the first layers, every n-th layer, or a list.
_FIRST_DENSE = ("first_k_dense_replace", "num_dense_layers", "moe_layer_num_skipped", "moe_layer_start_index")
_EVERY = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_frequency")
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "activation", "activation_fn", "act_fn",
               "feed_forward_proj", "ffn_config.ffn_act_fn.name")
_IS_GATED = ("is_gated_act", "use_gated_activation")
_TIE = ("tie_word_embeddings", "tie_embeddings")
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim")
#: Lists of layers' kinds, and the kinds of a Transformer; in `attn_type_list` 0 is linear attention.
_LISTS = ("layer_types", "layers_block_type", "attn_type_list")
_ATTENTIONS = ("attention", "full_attention", "sliding_attention", "chunked_attention", 1)
#: Types of which every n-th layer has no window by default (transformers 5.24).
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
#: Types all of whose layers have the window of their file.
_ALL_WINDOWED = frozenset(("mistral", "mixtral", "phi3", "phimoe", "starcoder2"))
_READ = frozenset((
    *_HIDDEN, *_LAYERS, *_HEADS, *_VOCABULARY, *_KV_HEADS, *_HEAD_DIM, *_FEED_FORWARD, *_EXPERTS, *_CHOSEN,
    *_EXPERT_WIDTH, *_SHARED, *_SHARED_WIDTH, *_FIRST_DENSE, *_EVERY, *_ACTIVATION, *_LATENT, "model_type",
    "multi_query", "multi_query_attention", "new_decoder_architecture", "intermediate_size_mlp", "expansion_ratio",
    "mlp_only_layers", "moe_layers", "moe_layer_freq", "moe_layer_end_index", "mlp_layer_types", *_IS_GATED, *_TIE,
    "torch_dtype", "dtype", "quantization_config", *_LISTS,
    "word_embed_proj_dim", "embedding_size"))

#: Types of models whose feed-forward part has 2 matrices with any activation.
_PLAIN = frozenset((
    "gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_neox_japanese", "gpt_bigcode", "starcoder2", "codegen", "opt", "bloom",
    "mpt", "falcon", "RefinedWeb", "RefinedWebModel", "phi", "nemotron", "persimmon", "arcee", "apertus", "nanochat",
    "jais2", "xglm", "biogpt", "bert", "megatron-bert", "roberta", "xlm-roberta", "camembert", "ernie", "electra"))
#: Types that have 3 matrices, although their activation may be called `gelu` or `relu`.
_GATED = frozenset((
    "llama", "mistral", "mixtral", "gemma", "gemma2", "gemma3", "gemma3_text", "vaultgemma", "grok-1", "grok", "bitnet",
    "modernbert", "modernbert-decoder", "chatglm", "qwen", "dbrx", "olmo"))
#: Types whose classes default to silu, and so to 3 matrices, if the file names no activation (transformers 5.24).
_SILU = re.compile("(qwen[23]|phi3|phimoe|cohere|glm|olmo|granite|deepseek|ernie4_5|mistral|ministral|mixtral|llama4|"
                   "gpt_oss|minimax|exaone4|smollm3|hunyuan|internlm|stablelm|seed_oss|dots1|helium|kimi).*")
#: Types whose width defaults to 4 times the hidden vector's.
_FOUR_TIMES = frozenset((
    "", "gpt2", "gpt_neo", "gptj", "gpt_bigcode", "codegen", "bloom", "falcon", "RefinedWeb", "RefinedWebModel"))
#: Types whose logits use the embedding by default (transformers 5.24). Falcon's classes have the same default, but its
#: files have a matrix for the logits.
_TIED = frozenset((
    "gpt2", "gpt_neo", "gpt_bigcode", "starcoder2", "opt", "bloom", "mpt", "gemma", "gemma2", "gemma3", "gemma3_text",
    "vaultgemma", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "smollm3", "minicpm3", "grok-1", "grok", "xglm",
    "biogpt", "bert", "megatron-bert", "roberta", "xlm-roberta", "camembert", "ernie", "electra", "modernbert",
    "modernbert-decoder", "gpt_neox_japanese"))
#: Defaults of classes on which files of these types rely.
_DEFAULTS = dict.fromkeys(("gemma3", "gemma3_text"), {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208})
#: Types with layers or parts of other kinds that no key announces.
_OTHER_TYPES = re.compile(
    r"mamba|rwkv|xlstm|jetmoe|t5|bart|whisper|qwen3_next|qwen3_5|qwen4|jamba|zamba|bamba|falcon_h1|lfm|hybrid|"
    r"recurrent|gemma3n|gemma4|mllama|albert|longcat|minimax_text|minimax$|openelm|deci|nemotron_h|nemotron-nas|kimi_"
    r"linear|deepseek_v4|diffllama|arctic|distilbert|deberta|xlnet|zaya|step3")

#: Keys that do not change the shape of a layer.
_HARMLESS = re.compile(r"""
    (?!.*((expan\w*|ffn|mlp|dim|width)_(factor|multiplier)s?|experts_per_\w*|layers?_ids?)$)(
    _.* | architectures | auto_map | transformers_version | tokenizer_(class|name) | task_specific_params | id2label
    | label2id | num_labels | use_cache | (pad|bos|eos)_.* | .*_token | .*_tokens | .*_token_index | .*_ids?
    | num_beams | num_beam_groups | num_return_sequences | top_[kp] | typical_p | min_length | do_sample | prefix
    | (encoder_)?no_repeat_ngram_size | .*_penalty | early_stopping | return_dict.* | output_.* | torchscript | seed
    | .*(pdrop|_prob|drop_rate|layerdrop|eps|epsilon|bias|_std|_range|coeff?|coefficient|loss|alpha|beta|factor|scale
         |scaling|scalar|multiplier|softcap|softcapping|soft_cap|temperature|theta|threshold|jitter|_noise|_limit
         |_clip|clip_qkv|_dtype|_batch_size)
    | init.* | .*(initializer|init_|dropout|loss_|scaling_|scale_|logit|norm|softmax|flash|attn_implementation|rope
                  |rotary|alibi|position|window|chunk_size|router).*
    | max_.* | n_ctx | seq_len.* | context_len.* | model_max_length | global_attn_every_n_layers | use_long_context
    | num_ln_in_parallel_attn | use_parallel_residual | parallel_(attn|residual) | attention_types | attention_layers
    | (attn_config|ffn_config)\.(attn_type|attn_impl|prefix_lm|attn_uses_sequence_id|model_type|ffn_type|ffn_act_fn)
    | scoring_func | score_func.* | topk_.* | n_group | num_expert_group | num_limited_groups | group_limited.*
    | moe_(group|capacity|use_.*|gate.*|implementation|aux.*|drop.*|random.*|orthogonal.*|multimodal.*|reverse.*)
    | expert_capacity | ep_size | seq_aux | use_(mla|mixed_mlp_moe|bidirectional_attention|logn_attn)
    | pretraining_tp | slow_but_exact | is_decoder | type_vocab_size | summary_.* | reorder_and_upcast_attn
    | tie_encoder_decoder
    | query_pre_attn.* | swiglu_.* | bias_dropout_fusion | mup_.* | fp32_.* | use_bfloat16 | gradient_checkpointing
    | attn_temperature_tuning | vision_feature.* | image_.* | video_.* | verbose | learned_pos_emb | emb_.* | no_bias
    | compression_ratio | embedding_fraction | dim_model_base | local_attention | layer_switch | use_parallel_.*
    | order_of_interleaved_layers | bias_activation_fusion | use_dynamic_ntk)
    """, re.VERBOSE)
#: Words of keys that may shape a layer; such a key is refused if it is not read and its value is not empty.
_SHAPES = re.compile(r"""
    (^|_|\.)(n|num|heads?|kv|q|k|v|qkv|attn|attention|indexer|index|layers?|blocks?|types?|pattern|period|interval|freq
             |frequency|offset|step|idxs?|indices|experts?|moe|share|shared|ffn|mlp|ff|gate|gating|gated|residual|res
             |dims?|sizes?|width|hidden|inner|intermediate|embed|embedding|lora|rank|latent|ratio|expansion|expand
             |multipliers|groups?|ssm|state|conv|lru|linear|kda|cla|recurrent|cross|encoder|decoder|adapter|altup
             |laurel|ple|act|activation|glu|forward|proj|mqa|gqa|embeddings|untie)(_|\.|$)
    | mamba | rwkv | hybrid""", re.VERBOSE)
#: Keys of layers that only predict further tokens.
_MORE_TOKENS = re.compile("mtp|nextn")
_NOTHING = (None, False, 0, "", [], {})


def load_transformer(name_or_path: str) -> Transformer:
    """Return a preset by its name, or the model of a Hugging Face config.json. Raises `TransformerError`."""
    if preset := PRESETS.get(name_or_path) or TODAY.get(name_or_path):
        return preset
    path, model = Path(name_or_path), f"model = {name_or_path[:60]!r}"
    if not name_or_path.endswith(".json"):
        raise TransformerError(f"{model} is unknown: allowed are {choices(name_or_path, [*PRESETS, *TODAY])}, or a "
                               "config.json")
    with reading(model, "JSON", TransformerError):
        try:
            config = read_json(path)
        except FileNotFoundError:
            raise TransformerError(f"{model}: there is no such file") from None
    if not isinstance(config, dict):
        raise TransformerError(f"{model} is not a JSON object")
    return _Reader(model, config).transformer(path.stem if path.stem != "config" else path.resolve().parent.name)


class _Reader:
    """Reader of one file's keys; its errors name the file and the key."""

    def __init__(self, model: str, config: dict[str, Any]) -> None:
        self.model, self.left_out = model, []
        while text_config := next((config[name] for name in _TEXT if isinstance(config.get(name), dict)), None):
            shared_keys = {key: config[key] for key in ("model_type", "tie_word_embeddings", "torch_dtype", "dtype",
                                                        "quantization_config") if key in config}
            self.left_out += [key for key in config if key.endswith("_config") and key not in (
                *_TEXT, "quantization_config") and config[key]]
            config = shared_keys | text_config
        self.left_out += [key for key in config if config[key] and re.fullmatch(
            "(vision|visual|audio)(_config)?", key)]
        for section in _SECTIONS:
            if isinstance(config.get(section), dict):
                config = config | {f"{section}.{key}": value for key, value in config[section].items()}
        if isinstance(act := config.get("ffn_config.ffn_act_fn"), dict):
            config = config | {"ffn_config.ffn_act_fn.name": act.get("name")}
        self.kind = str(config.get("model_type") or "")
        self.config = _DEFAULTS.get(self.kind, {}) | config

    def refuse(self, reason: str) -> NoReturn:
        raise TransformerError(f"{self.model}: {reason}")

    def lookup(self, keys: tuple[str, ...]) -> tuple[str, Any] | None:
        """Return the key, of several alternatives, that the file has, and its value.

        A list with one value per layer counts as the value if all are equal.
        """
        entry = None
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, list) and value and all(one == value[0] for one in value):
                value = value[0]
            if isinstance(value, list | dict):
                self.refuse(f"{key} differs from layer to layer, which is not read")
            if value is not None and entry is not None and entry[1] != value:
                self.refuse(f"{entry[0]} = {shown(entry[1])} and {key} = {shown(value)} contradict each other")
            if value is not None and entry is None:
                entry = key, value
        return entry

    def number(self, keys: tuple[str, ...], default: int | None = None, least: int = 1) -> int:
        if (entry := self.lookup(keys)) is None:
            if default is None:
                self.refuse(f"{keys[0]} is missing" + (" (null)" if keys[0] in self.config else ""))
            return default
        key, value = entry
        if type(value) is not int or not least <= value <= LARGEST:
            self.refuse(f"{key} = {str(value)[:40]} is not possible: a whole number from {least} to {LARGEST}")
        return value

    def check_shapes(self, hidden_size: int | None) -> None:
        """Refuse keys that may shape a layer and are not read, and types with other kinds of layers."""
        for key in _LISTS:
            layer_kinds = self.config.get(key) or []
            if not isinstance(layer_kinds, list) or any(one not in _ATTENTIONS for one in layer_kinds):
                self.refuse(f"{key} = {shown(layer_kinds)} has layers that are not read")
        unread_keys = [key for key, value in self.config.items() if key not in _READ and value not in _NOTHING
                       and key not in (*_SECTIONS, *self.left_out) and not _HARMLESS.fullmatch(key[:200])]
        self.left_out += [f"{key[:40]} = {shown(self.config[key])}" for key in unread_keys if _MORE_TOKENS.search(key)]
        unread_keys = [key for key in unread_keys if not _MORE_TOKENS.search(key)]
        if shape_keys := [key for key in unread_keys if _SHAPES.search(key[:200])]:
            self.refuse(f"{', '.join(key[:40] for key in shape_keys[:8])} may change the shape of a layer and "
                        f"{'is' if len(shape_keys) == 1 else 'are'} not read; a file without "
                        f"{'it' if len(shape_keys) == 1 else 'them'} is taken as a plain Transformer")
        if _OTHER_TYPES.search(self.kind):
            self.refuse(f"model_type = {shown(self.kind)} has layers of a kind that is not read")
        for key in ("word_embed_proj_dim", "embedding_size"):
            if self.config.get(key) not in (None, hidden_size):
                self.refuse(f"{key} = {shown(self.config[key])} is not the hidden size, {hidden_size}, and is not read")
        if unread_keys:
            self.left_out.append(f"unknown keys {', '.join(key[:40] for key in unread_keys[:8])}")

    def gated(self) -> bool:
        """Return whether the feed-forward part has a third matrix."""
        if entry := self.lookup(_IS_GATED):
            if not isinstance(entry[1], bool):
                self.refuse(f"{entry[0]} = {shown(entry[1])} is neither true nor false")
            return entry[1]
        activation = next((str(self.config[key]) for key in _ACTIVATION if self.config.get(key)), "")
        if self.kind in _PLAIN:
            return False
        if self.kind in _GATED or self.config.get("hidden_activation") or re.search(
                "silu|swish|glu|gated", activation) or not activation and _SILU.fullmatch(self.kind):
            return True
        if self.kind:
            self.refuse(f"model_type = {shown(self.kind)} with {'activation ' if activation else 'no activation'}"
                        f"{shown(activation) if activation else ''}: whether it is gated is not known: add "
                        "\"is_gated_act\": true or false")
        return False

    def kv_heads(self, heads: int) -> int:
        config = self.config
        groups = config.get("multi_query") if "multi_query" in config else config.get("multi_query_attention")
        if groups not in (None, True, False):
            self.refuse(f"multi_query = {shown(groups)} is neither true nor false")
        if config.get("multi_query") and config.get("new_decoder_architecture") is False:
            return 1  # Falcon-7B; its other keys do not matter
        if config.get("multi_query_attention") is False:
            return heads
        return self.number(_KV_HEADS, 1 if groups and not config.get("new_decoder_architecture") else heads)

    def layers_with_experts(self, layers: int) -> int:
        config, first = self.config, self.number(_FIRST_DENSE, 0, 0)
        expert_layers = set(range(first, layers))
        if config.get("moe_layer_end_index") != -1:  # ERNIE's word for the last one
            expert_layers &= set(range(self.number(("moe_layer_end_index",), layers - 1, 0) + 1))
        layer_list = config.get("moe_layers")
        if isinstance(config.get("moe_layer_freq"), list):
            flags = config["moe_layer_freq"]
            if len(flags) != layers or any(one not in (0, 1) for one in flags):
                self.refuse(f"moe_layer_freq has not a 0 or 1 for each of {layers} layers")
            expert_layers &= {index for index, flag in enumerate(flags) if flag}
        else:
            step = self.number(("moe_layer_freq",), 1)
            expert_layers &= set(range(0, layers, step))
        if layer_list is None:
            step = self.number(_EVERY, 1)
            expert_layers &= set(range(step - 1, layers, step))
        for key, included in (("moe_layers", True), ("mlp_only_layers", False)):
            indices = config.get(key)
            if indices is None:
                continue
            if not isinstance(indices, list) or any(type(one) is not int or not 0 <= one < layers for one in indices):
                self.refuse(f"{key} is no list of layers, 0 to {layers - 1}")
            expert_layers = expert_layers & set(indices) if included else expert_layers - set(indices)
        if (types := config.get("mlp_layer_types")) is not None:
            if not isinstance(types, list) or len(types) != layers or set(map(str, types)) - {"dense", "sparse"}:
                self.refuse(f"mlp_layer_types has not dense or sparse for each of {layers} layers")
            expert_layers &= {index for index, one in enumerate(types) if one == "sparse"}
        return len(expert_layers)

    def width(self, hidden: int) -> int:
        """Return the width of a dense feed-forward part."""
        config = self.config
        ratio = config.get("expansion_ratio", 4 if self.kind == "mpt" else None)
        if self.lookup(_FEED_FORWARD) is None and ratio is not None:
            if type(ratio) is not int or not 1 <= ratio <= 64:
                self.refuse(f"expansion_ratio = {shown(ratio)} is not possible: a whole number from 1 to 64")
            return ratio * hidden
        default_width = self.kind in _FOUR_TIMES and ("intermediate_size" not in config or self.kind)
        width = self.number(_FEED_FORWARD, 4 * hidden if default_width else None)
        if self.kind == "qwen":  # the first Qwen's includes gate and up
            width //= 2
        return width

    def windowed(self, layers: int) -> tuple[int, int]:
        """Return the tokens of the window that attention has in some layers, and how many have it.

        A window of layers that the file and its type do not tell is left out, and so are chunks of attention.
        """
        config, window = self.config, self.config.get("sliding_window")
        if config.get("use_sliding_window") is False:
            return 0, 0
        if config.get("attention_chunk_size"):
            self.left_out.append(f"attention_chunk_size = {shown(config['attention_chunk_size'])}")
        if not window:
            return 0, 0
        window = self.number(("sliding_window",))
        layer_kinds = next((config[key] for key in _LISTS if config.get(key)), None)
        every = self.number(("sliding_window_pattern", "_sliding_window_pattern"), _FULL_EVERY.get(self.kind, 0), 0)
        if layer_kinds is not None:
            return window, layer_kinds.count("sliding_attention")
        if every:  # every n-th layer sees all tokens
            return window, layers - layers // every
        if config.get("use_sliding_window"):
            return window, max(0, layers - self.number(("max_window_layers",), 0, 0))
        if self.kind in _ALL_WINDOWED:
            return window, layers
        self.left_out.append(f"sliding_window = {shown(window)}")
        return 0, 0

    def transformer(self, name: str) -> Transformer:
        config = self.config
        scalar_hidden = all(not isinstance(config.get(key), list | dict) for key in _HIDDEN)
        hidden_entry = self.lookup(_HIDDEN) if scalar_hidden else None
        if config.get("is_encoder_decoder"):
            self.refuse("is_encoder_decoder = true: encoders with decoders are not read")
        self.check_shapes(None if hidden_entry is None else hidden_entry[1])
        hidden, layers, heads, vocabulary = map(self.number, (_HIDDEN, _LAYERS, _HEADS, _VOCABULARY))
        for key in _LISTS:
            if config.get(key) and len(config[key]) != layers:
                self.refuse(f"{key} has {len(config[key])} kinds for {layers} layers")
        window, windowed_layers = self.windowed(layers)
        latent = None
        if config.get("kv_lora_rank") is not None:
            latent = Latent(self.number(("q_lora_rank",), 0), self.number(("kv_lora_rank",)),
                            self.number(("qk_nope_head_dim",)), self.number(("qk_rope_head_dim",)),
                            self.number(("v_head_dim",)))
        head_width = self.number(_HEAD_DIM, 0) if latent is None else 0
        if latent is None:
            head_columns = head_width or hidden // heads
            for key in ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim"):
                if config.get(key) not in (None, head_columns):
                    self.refuse(f"{key} = {shown(config[key])} needs kv_lora_rank")
        experts = max(1, self.number(_EXPERTS, 1, 0))
        for key in (*_CHOSEN, *_EXPERT_WIDTH, *_SHARED_WIDTH):
            if experts == 1 and config.get(key) not in (None, 0, 1) and not any(map(config.get, _EXPERTS)):
                self.refuse(f"{key} = {shown(config[key])}, and no key says how many experts there are")
        dense_layers = dense_width = shared_experts = shared_width = 0
        experts_per_token = 1
        if experts == 1:
            width = self.width(hidden)
        else:
            experts_per_token = self.number(_CHOSEN)
            width = self.number(_EXPERT_WIDTH, 0) or self.width(hidden)
            dense_layers = layers - self.layers_with_experts(layers)
            if dense_layers == layers:
                self.refuse(f"none of {layers} layers has the {experts} experts")
            if dense_layers:
                dense_width = self.number(("intermediate_size_mlp",), 0) or self.width(hidden)
            shared_width = self.number(_SHARED_WIDTH, 0, 0)
            llama4 = self.kind.startswith("llama4") or "interleave_moe_layer_step" in config
            shared_experts = self.number(_SHARED, int(llama4 or shared_width > 0), 0)
        tie_key, tied = self.lookup(_TIE) or ("", self.kind in _TIED or not self.kind and "n_embd" in config)
        if not isinstance(tied, bool):
            self.refuse(f"{tie_key} = {shown(tied)} is neither true nor false")
        quantized = config.get("quantization_config")
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        if quantized and not method:  # bitsandbytes' older files: {"load_in_4bit": true}
            method = "a quantized format"
        return Transformer(
            name=name or "model", hidden=hidden, layers=layers, heads=heads, feed_forward=width, vocabulary=vocabulary,
            kv_heads=self.kv_heads(heads) if latent is None else 0,
            head_width=0 if head_width * heads == hidden else head_width, gated=self.gated(), experts=experts,
            experts_per_token=experts_per_token, shared_experts=shared_experts,
            shared_feed_forward=0 if shared_width == width else shared_width, dense_layers=dense_layers,
            dense_feed_forward=dense_width, latent=latent, window=window, windowed_layers=windowed_layers, tied=tied,
            left_out=tuple(self.left_out),
            dtype=str(method or config.get("torch_dtype") or config.get("dtype") or "")[:40])
