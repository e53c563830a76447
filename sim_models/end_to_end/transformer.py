"""Transformers: the hyperparameters that shape their time and memory, presets, and Hugging Face's config.json."""

from dataclasses import dataclass
from pathlib import Path

from t3sim.bounded import read_json, reading
from t3sim.errors import BadInput

_LARGEST = 1 << 24


class TransformerError(BadInput):
    """A model that is not known or not possible. The message names the key, its value and what is allowed."""


@dataclass(frozen=True)
class Transformer:
    """A decoder-only or encoder-only Transformer of equal layers."""

    name: str
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    kv_heads: int = 0  #: heads of keys and values; 0: as many as heads
    gated: bool = False  #: the feed-forward part has a third matrix (SwiGLU)
    experts: int = 1  #: feed-forward networks per layer
    experts_per_token: int = 1
    #: Of weights and activations, as a config.json calls it: `bfloat16`, `fp8`; empty if it is silent.
    dtype: str = ""

    def __post_init__(self) -> None:
        for key in ("hidden", "layers", "heads", "feed_forward", "vocabulary", "experts", "experts_per_token"):
            value = getattr(self, key)
            if type(value) is not int or not 1 <= value <= _LARGEST:
                raise TransformerError(f"{self.name}: {key} = {str(value)[:40]} is not possible: 1 to {_LARGEST}")
        if self.hidden % self.heads:
            raise TransformerError(f"{self.name}: heads = {self.heads} must divide hidden = {self.hidden}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise TransformerError(f"{self.name}: kv_heads = {self.kv_heads} must divide heads = {self.heads}")
        if self.experts_per_token > self.experts:
            raise TransformerError(f"{self.name}: experts_per_token = {self.experts_per_token} exceeds "
                                   f"experts = {self.experts}")

    @property
    def kv_width(self) -> int:
        """Columns of the keys, and of the values."""
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def attention_weights(self) -> int:
        """Weights of a layer's attention: queries, keys, values and the projection of the output."""
        return self.hidden * (2 * self.hidden + 2 * self.kv_width)

    @property
    def expert_weights(self) -> int:
        """Weights of one feed-forward network."""
        return (3 if self.gated else 2) * self.hidden * self.feed_forward

    @property
    def layer_weights(self) -> int:
        return self.attention_weights + self.experts * self.expert_weights + 13 * self.hidden  # biases and norms

    @property
    def weights(self) -> int:
        """All parameters, the embedding once."""
        return self.layers * self.layer_weights + self.vocabulary * self.hidden


def _gpt(name: str, hidden: int, layers: int, heads: int, vocabulary: int = 51200) -> Transformer:
    return Transformer(name, hidden, layers, heads, 4 * hidden, vocabulary)


#: The models of the papers. Heads and vocabularies that T3's table 2 leaves out are those of the cited models.
PRESETS = {model.name: model for model in (
    _gpt("mega-gpt-2", 3072, 74, 32), _gpt("t-nlg", 4256, 78, 28), _gpt("gpt-3", 12288, 96, 96),
    _gpt("palm", 18432, 118, 48, 256000), _gpt("mt-nlg", 20480, 105, 128),
    _gpt("megatron-22b", 6144, 48, 64), _gpt("megatron-145b", 12288, 80, 96), _gpt("megatron-175b", 12288, 96, 96),
    _gpt("megatron-310b", 16384, 96, 128), _gpt("megatron-530b", 20480, 105, 128),
    _gpt("megatron-1t", 25600, 128, 160),
)}

#: Hugging Face's keys, and the older ones of GPT-2.
_KEYS = {"hidden": ("hidden_size", "n_embd", "d_model"), "layers": ("num_hidden_layers", "n_layer", "num_layers"),
         "heads": ("num_attention_heads", "n_head"), "vocabulary": ("vocab_size",)}

#: Mixtral's, Qwen's and DeepSeek's keys.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def load_transformer(name_or_path: str) -> Transformer:
    """Return a preset by its name, or what a Hugging Face config.json describes. Raises `TransformerError`."""
    if name_or_path in PRESETS:
        return PRESETS[name_or_path]
    path, shown = Path(name_or_path), name_or_path[:60]
    if not name_or_path.endswith(".json"):
        raise TransformerError(f"--model {shown!r} is unknown: allowed are {', '.join(PRESETS)}, or a config.json")
    with reading(f"--model {shown!r}", "JSON", TransformerError):
        try:
            config = read_json(path)
        except FileNotFoundError:
            raise TransformerError(f"--model {shown!r}: there is no such file") from None
    if not isinstance(config, dict):
        raise TransformerError(f"--model {shown!r} is not a JSON object")
    return _of_config(path.stem if path.stem != "config" else path.resolve().parent.name, shown, config)


def _of_config(name: str, shown: str, config: dict) -> Transformer:
    def number(keys: tuple[str, ...], default: int | None = None) -> int:
        for key in keys:
            if config.get(key) is not None:
                value = config[key]
                if type(value) is not int or not 1 <= value <= _LARGEST:
                    raise TransformerError(f"--model {shown!r}: {key} = {str(value)[:40]} is not possible: "
                                           f"a whole number from 1 to {_LARGEST}")
                return value
        if default is None:
            raise TransformerError(f"--model {shown!r}: {keys[0]} is missing")
        return default

    shape = {field: number(keys) for field, keys in _KEYS.items()}
    width = number(("head_dim",), 0)
    if width and width * shape["heads"] != shape["hidden"]:
        raise TransformerError(f"--model {shown!r}: head_dim = {width} times {shape['heads']} heads is not "
                               f"{shape['hidden']}, the hidden size: such an attention is not modelled")
    gated = str(config.get("hidden_act", "")) in ("silu", "swiglu", "geglu")
    experts = number(_EXPERTS, 1)
    # Of experts that have a width of their own, the other one is that of the first, dense layers.
    widths = (("moe_intermediate_size",) if experts > 1 else ()) + ("intermediate_size", "n_inner", "ffn_dim")
    quantized = config.get("quantization_config")
    method = quantized.get("quant_method") if isinstance(quantized, dict) else None
    return Transformer(
        name=name or "model", gated=gated, **shape, feed_forward=number(widths, 4 * shape["hidden"]),
        kv_heads=number(("num_key_value_heads",), shape["heads"]),
        experts=experts, experts_per_token=number(("num_experts_per_tok",), 1) if experts > 1 else 1,
        dtype=str(method or config.get("torch_dtype") or config.get("dtype") or "")[:40])
