"""Transformers: the hyperparameters that shape their time and memory, presets, and Hugging Face's config.json."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from t3sim.bounded import read_json, reading
from t3sim.errors import BadInput, Key, choices

_LARGEST = 1 << 24


class TransformerError(BadInput):
    """A model that is not known or not possible. The message names the key, its value and what is allowed."""


#: Sub-layer of the gradient of an attention GEMM's inputs, by the GEMM's name in `Transformer.projections`.
INPUTS = {"qkv": "ip", "q_b": "ip-q", "kv_b": "ip-kv"}


@dataclass(frozen=True)
class Latent:
    """Attention whose keys and values come from one narrow vector per token (DeepSeek-V2, arXiv 2405.04434, 2.1)."""

    query_rank: int  #: columns between the two GEMMs of the queries; 0: there is one, from the hidden vector
    kv_rank: int  #: columns of the vector that keys and values come from, and that a cache keeps
    plain: int  #: columns of a head's query and key without position
    rotated: int  #: columns with position, whose key all heads share
    value: int  #: columns of a head's value


@dataclass(frozen=True)
class Transformer:
    """A decoder-only or encoder-only Transformer of equal layers, but for first ones without experts."""

    name: str
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    kv_heads: int = 0  #: heads of keys and values; 0: as many as heads
    head_width: int = 0  #: columns of a head; 0: all heads are as wide as the hidden vector
    gated: bool = False  #: the feed-forward part has a third matrix (SwiGLU)
    experts: int = 1  #: feed-forward networks per layer
    experts_per_token: int = 1
    shared_experts: int = 0  #: feed-forward networks per layer, as wide as an expert, that every token passes
    dense_layers: int = 0  #: the first layers, which have one feed-forward network instead of experts
    dense_feed_forward: int = 0  #: its width
    latent: Latent | None = None
    #: Of weights and activations, as a config.json calls it: `bfloat16`, `fp8`; empty if it is silent.
    dtype: str = ""

    def __post_init__(self) -> None:
        for key in ("hidden", "layers", "heads", "feed_forward", "vocabulary", "experts", "experts_per_token"):
            value = getattr(self, key)
            if type(value) is not int or not 1 <= value <= _LARGEST:
                raise TransformerError(f"{self.name}: {key} = {str(value)[:40]} is not possible: 1 to {_LARGEST}")
        if self.latent is None and not self.head_width and self.hidden % self.heads:
            raise TransformerError(f"{self.name}: heads = {self.heads} must divide hidden = {self.hidden}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise TransformerError(f"{self.name}: kv_heads = {self.kv_heads} must divide heads = {self.heads}")
        if self.dense_layers >= self.layers:
            raise TransformerError(f"{self.name}: dense_layers = {self.dense_layers} must be fewer than "
                                   f"layers = {self.layers}")
        if self.experts_per_token > self.experts:
            raise TransformerError(f"{self.name}: experts_per_token = {self.experts_per_token} exceeds "
                                   f"experts = {self.experts}")

    @property
    def kv_width(self) -> int:
        """Columns of the keys, and of the values."""
        return self.head_widths[1] * (self.kv_heads or self.heads)

    @property
    def head_widths(self) -> tuple[int, int]:
        """Columns of a head's queries and keys, and of its values."""
        if self.latent is None:
            return (self.head_width or self.hidden // self.heads,) * 2
        return self.latent.plain + self.latent.rotated, self.latent.value

    @property
    def heads_width(self) -> int:
        """Columns of queries, keys and values of all heads."""
        query, value = self.head_widths
        return (self.heads * query + 2 * self.kv_width if self.latent is None else
                self.heads * (2 * query + value))

    @property
    def cached_width(self) -> int:
        """Numbers per token and layer that decoding keeps."""
        return 2 * self.kv_width if self.latent is None else self.latent.kv_rank + self.latent.rotated

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Columns and depth of the attention's GEMMs: `op` is split by depth, `*_a` not at all, others by columns."""
        if self.latent is None:
            return {"qkv": (self.heads_width, self.hidden), "op": (self.hidden, self.heads * self.head_widths[1])}
        one, (query, value) = self.latent, self.head_widths
        queries = {"q_a": (one.query_rank, self.hidden)} if one.query_rank else {}
        return queries | {"q_b": (self.heads * query, one.query_rank or self.hidden),
                          "kv_a": (one.kv_rank + one.rotated, self.hidden),
                          "kv_b": (self.heads * (one.plain + value), one.kv_rank),
                          "op": (self.hidden, self.heads * value)}

    def attention_gemms(self, tokens, tp) -> dict[str, tuple]:
        """Return (m, n, k, count) of each GEMM of one GPU's attention; arrays are possible."""
        return {name: (tokens, n if name == "op" or name.endswith("_a") else -(-n // tp),
                       -(-k // tp) if name == "op" else k, 1) for name, (n, k) in self.projections.items()}

    @property
    def reduced(self) -> dict[str, tuple[int, int]]:
        """Columns and depth, before it is split, of the GEMMs that tensor parallelism reduces (T3 paper, section 2.4).

        Forward `op` and `fc2`, backward the inputs' gradients: `fc1`, and `ip` or, with latents, `ip-q` and `ip-kv`.
        """
        wide = {"fc1": (self.hidden, self.feed_forward * (2 if self.gated else 1)),
                "fc2": (self.hidden, self.feed_forward)}
        inputs = {INPUTS[name]: (k, n) for name, (n, k) in self.projections.items() if name in INPUTS}
        return {"op": self.projections["op"]} | wide | inputs

    @property
    def kinds(self) -> tuple[tuple["Transformer", int], ...]:
        """Transformers of equal layers that this one is made of, with how many layers are like theirs."""
        if not self.dense_layers:
            return ((self, self.layers),)
        dense = replace(self, experts=1, experts_per_token=1, shared_experts=0, feed_forward=self.dense_feed_forward,
                        dense_layers=0, dense_feed_forward=0)
        sparse = replace(self, dense_layers=0, dense_feed_forward=0)
        return (dense, self.dense_layers), (sparse, self.layers - self.dense_layers)

    def _mean(self, of: Callable[["Transformer"], float]) -> float:
        """Return the mean over all layers."""
        return sum(of(one) * count for one, count in self.kinds) / self.layers

    @property
    def attention_weights(self) -> int:
        """Weights of a layer's attention: queries, keys, values and the projection of the output."""
        return sum(n * k for n, k in self.projections.values())

    @property
    def whole_weights(self) -> int:
        """Those of them that tensor parallelism does not split."""
        return sum(n * k for name, (n, k) in self.projections.items() if name.endswith("_a"))

    @property
    def expert_weights(self) -> int:
        """Weights of one feed-forward network."""
        return (3 if self.gated else 2) * self.hidden * self.feed_forward

    @property
    def routed_weights(self) -> float:
        """Weights of a layer's feed-forward networks among which tokens are routed, on average over the layers."""
        return self._mean(lambda one: one.experts * one.expert_weights * (one.experts > 1))

    @property
    def common_weights(self) -> float:
        """Weights of a layer's feed-forward networks that all tokens pass, on average over the layers."""
        return self._mean(lambda one: (one.shared_experts + (one.experts == 1)) * one.expert_weights)

    @property
    def active_feed_forward(self) -> float:
        """Columns of the feed-forward networks that a token passes in a layer, on average over the layers."""
        return self._mean(lambda one: (one.experts_per_token + one.shared_experts) * one.feed_forward)

    @property
    def active_weights(self) -> float:
        """Weights that a token meets in a layer, on average over the layers."""
        return self.attention_weights + (3 if self.gated else 2) * self.hidden * self.active_feed_forward

    @property
    def layer_weights(self) -> float:
        """Weights of a layer, on average over the layers."""
        return self.attention_weights + self.routed_weights + self.common_weights + 13 * self.hidden  # biases, norms

    @property
    def weights(self) -> float:
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

def _today(name: str, hidden: int, layers: int, heads: int, feed_forward: int, vocabulary: int,
           **others: Any) -> Transformer:
    return Transformer(name, hidden, layers, heads, feed_forward, vocabulary, gated=True, dtype="bfloat16", **others)


#: Models that run today, as their config.json files on Hugging Face have them. DeepSeek's weights are in fp8 there.
TODAY = {model.name: model for model in (
    _today("llama-3.1-8b", 4096, 32, 32, 14336, 128256, kv_heads=8),
    _today("llama-3.3-70b", 8192, 80, 64, 28672, 128256, kv_heads=8),
    _today("llama-3.1-405b", 16384, 126, 128, 53248, 128256, kv_heads=8),
    _today("qwen2.5-72b", 8192, 80, 64, 29568, 152064, kv_heads=8),
    _today("qwen3-32b", 5120, 64, 64, 25600, 151936, kv_heads=8, head_width=128),
    _today("qwen3-235b-a22b", 4096, 94, 64, 1536, 151936, kv_heads=4, head_width=128, experts=128,
           experts_per_token=8),
    _today("mixtral-8x7b", 4096, 32, 32, 14336, 32000, kv_heads=8, experts=8, experts_per_token=2),
    _today("mixtral-8x22b", 6144, 56, 48, 16384, 32768, kv_heads=8, experts=8, experts_per_token=2),
    _today("deepseek-v3", 7168, 61, 128, 2048, 129280, experts=256, experts_per_token=8, shared_experts=1,
           dense_layers=3, dense_feed_forward=18432, latent=Latent(1536, 512, 128, 64, 128)),
)}

#: Hugging Face's keys, and the older ones of GPT-2.
_KEYS = {"hidden": ("hidden_size", "n_embd", "d_model"), "layers": ("num_hidden_layers", "n_layer", "num_layers"),
         "heads": ("num_attention_heads", "n_head"), "vocabulary": ("vocab_size",)}

#: Mixtral's, Qwen's and DeepSeek's keys.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def load_transformer(name_or_path: str) -> Transformer:
    """Return a preset by its name, or what a Hugging Face config.json describes. Raises `TransformerError`."""
    if found := PRESETS.get(name_or_path) or TODAY.get(name_or_path):
        return found
    path, shown = Path(name_or_path), name_or_path[:60]
    if not name_or_path.endswith(".json"):
        raise TransformerError(Key("model", repr(shown)), f" is unknown: allowed are "
                               f"{choices(name_or_path, [*PRESETS, *TODAY])}, or a config.json")
    with reading(Key("model", repr(shown)), "JSON", TransformerError):
        try:
            config = read_json(path)
        except FileNotFoundError:
            raise TransformerError(Key("model", repr(shown)), ": there is no such file") from None
    if not isinstance(config, dict):
        raise TransformerError(Key("model", repr(shown)), " is not a JSON object")
    return _of_config(path.stem if path.stem != "config" else path.resolve().parent.name, shown, config)


def _of_config(name: str, shown: str, config: dict) -> Transformer:
    def number(keys: tuple[str, ...], default: int | None = None, least: int = 1) -> int:
        for key in keys:
            if config.get(key) is not None:
                value = config[key]
                if type(value) is not int or not least <= value <= _LARGEST:
                    raise TransformerError(Key("model", repr(shown)), f": {key} = {str(value)[:40]} is not "
                                           f"possible: a whole number from {least} to {_LARGEST}")
                return value
        if default is None:
            raise TransformerError(Key("model", repr(shown)), f": {keys[0]} is missing")
        return default

    shape = {field: number(keys) for field, keys in _KEYS.items()}
    latent = None
    if config.get("kv_lora_rank") is not None:
        latent = Latent(number(("q_lora_rank",), 0), number(("kv_lora_rank",)), number(("qk_nope_head_dim",)),
                        number(("qk_rope_head_dim",)), number(("v_head_dim",)))
    width = number(("head_dim",), 0) if latent is None else 0
    gated = str(config.get("hidden_act", "")) in ("silu", "swiglu", "geglu")
    experts = number(_EXPERTS, 1)
    # Of experts that have a width of their own, the other one is that of the first, dense layers.
    widths = (("moe_intermediate_size",) if experts > 1 else ()) + ("intermediate_size", "n_inner", "ffn_dim")
    dense = number(("first_k_dense_replace",), 0, 0) if experts > 1 else 0
    quantized = config.get("quantization_config")
    method = quantized.get("quant_method") if isinstance(quantized, dict) else None
    return Transformer(
        name=name or "model", gated=gated, **shape, feed_forward=number(widths, 4 * shape["hidden"]),
        kv_heads=number(("num_key_value_heads",), shape["heads"]) if latent is None else 0,
        head_width=0 if width * shape["heads"] == shape["hidden"] else width,
        experts=experts, experts_per_token=number(("num_experts_per_tok",), 1) if experts > 1 else 1,
        shared_experts=number(("n_shared_experts",), 0, 0) if experts > 1 else 0, dense_layers=dense,
        dense_feed_forward=number(("intermediate_size",)) if dense else 0, latent=latent,
        dtype=str(method or config.get("torch_dtype") or config.get("dtype") or "")[:40])
