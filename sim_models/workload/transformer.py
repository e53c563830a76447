"""Transformers: the hyperparameters that shape their time and memory, and presets; `model_file` reads a config.json."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from t3sim.base.errors import BadInput

LARGEST = 1 << 24  #: of a hyperparameter


class TransformerError(BadInput):
    """A model that is unknown or impossible. The message names the key, its value and the allowed values."""


#: Sub-layer of the gradient of an attention GEMM's inputs, by the GEMM's name in `Transformer.projections`.
INPUTS = {"qkv": "ip", "q_b": "ip-q", "kv_b": "ip-kv"}


@dataclass(frozen=True)
class Latent:
    """Attention with keys and values from one narrow vector per token (DeepSeek-V2, arXiv 2405.04434, 2.1)."""

    query_rank: int  #: columns between the queries' 2 GEMMs; 0: one GEMM, from the hidden vector
    kv_rank: int  #: columns of the vector from which keys and values are computed; a cache keeps it
    plain: int  #: columns of a head's query and key without position
    rotated: int  #: columns with position, whose key all heads share
    value: int  #: columns of a head's value


@dataclass(frozen=True)
class Transformer:
    """A decoder-only or encoder-only Transformer of equal layers, except for some without experts."""

    name: str
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    kv_heads: int = 0  #: heads of keys and values; 0: as many as heads
    head_width: int = 0  #: columns of a head; 0: all heads together are as wide as the hidden vector
    gated: bool = False  #: the feed-forward part has a third matrix (SwiGLU)
    experts: int = 1  #: feed-forward networks per layer
    experts_per_token: int = 1
    shared_experts: int = 0  #: additional feed-forward networks per layer for every token
    shared_feed_forward: int = 0  #: their width; 0: an expert's
    dense_layers: int = 0  #: layers that have one feed-forward network instead of experts
    dense_feed_forward: int = 0  #: its width
    latent: Latent | None = None
    window: int = 0  #: last tokens that attention sees in some layers; 0: all in all layers
    windowed_layers: int = 0  #: layers with this window
    tied: bool = True  #: logits are products with the embedding, not with a matrix of their own
    #: Of weights and activations, as a config.json calls it: `bfloat16`, `fp8`; empty if the file has none.
    dtype: str = ""
    left_out: tuple[str, ...] = field(default=(), compare=False)  #: parts of its file that are not modelled, for output

    def __post_init__(self) -> None:
        for key in ("hidden", "layers", "heads", "feed_forward", "vocabulary", "experts", "experts_per_token"):
            value = getattr(self, key)
            if type(value) is not int or not 1 <= value <= LARGEST:
                raise TransformerError(f"{self.name}: {key} = {str(value)[:40]} is not possible: 1 to {LARGEST}")
        if self.latent is None and not self.head_width and self.hidden % self.heads:
            raise TransformerError(f"{self.name}: heads = {self.heads} must divide hidden = {self.hidden}")
        if self.kv_heads and self.heads % self.kv_heads:
            raise TransformerError(f"{self.name}: kv_heads = {self.kv_heads} must divide heads = {self.heads}")
        if self.dense_layers >= self.layers:
            raise TransformerError(f"{self.name}: dense_layers = {self.dense_layers} must be fewer than "
                                   f"layers = {self.layers}")
        if not 0 <= self.windowed_layers <= self.layers or self.windowed_layers and not 1 <= self.window <= LARGEST:
            raise TransformerError(f"{self.name}: windowed_layers = {str(self.windowed_layers)[:40]} with window = "
                                   f"{str(self.window)[:40]} is not possible: 0 to layers = {self.layers}, "
                                   f"1 to {LARGEST}")
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

    def seen_tokens(self, context: float) -> float:
        """Return the tokens whose keys and values a new token reads, in the mean over the layers."""
        return context - self.windowed_layers / self.layers * max(0, context - self.window)

    def seen_share(self, length: float) -> float:
        """Return the share of a prompt's causal scores that windows leave, in the mean over the layers."""
        return 1 - self.windowed_layers / self.layers * max(0.0, 1 - self.window / length) ** 2

    @property
    def cached_width(self) -> int:
        """Cached numbers per token and layer for decoding."""
        return 2 * self.kv_width if self.latent is None else self.latent.kv_rank + self.latent.rotated

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Columns and depth of the attention's GEMMs: `op` is split by depth, `*_a` is not split, others by columns."""
        if self.latent is None:
            return {"qkv": (self.heads_width, self.hidden), "op": (self.hidden, self.heads * self.head_widths[1])}
        latent, (query, value) = self.latent, self.head_widths
        queries = {"q_a": (latent.query_rank, self.hidden)} if latent.query_rank else {}
        return queries | {"q_b": (self.heads * query, latent.query_rank or self.hidden),
                          "kv_a": (latent.kv_rank + latent.rotated, self.hidden),
                          "kv_b": (self.heads * (latent.plain + value), latent.kv_rank),
                          "op": (self.hidden, self.heads * value)}

    def not_shared_by(self, tp: int) -> str:
        """Say why GPUs cannot share the attention's heads evenly; empty if they can."""
        kv_heads = self.kv_heads or self.heads
        if self.heads % tp:
            return f"does not divide the {self.heads} heads of {self.name}"
        if kv_heads % tp and tp % kv_heads:
            return f"neither divides the {kv_heads} heads of keys and values of {self.name} nor is a multiple of them"
        return ""

    def more_kv_width(self, tp):
        """Return the columns of duplicated keys and values of all GPUs together.

        If tensor parallelism exceeds the heads of keys and values, several GPUs have the same head.
        """
        return 2 * self.kv_width * (np.maximum(1, tp // (self.kv_heads or self.heads)) - 1) * (self.latent is None)

    def attention_gemms(self, tokens, tp) -> dict[str, tuple]:
        """Return (m, n, k, count) of each GEMM of one GPU's attention; arrays are possible."""
        return {name: (tokens, n if name == "op" or name.endswith("_a") else
                       -(-(n + self.more_kv_width(tp)) // tp), -(-k // tp) if name == "op" else k, 1)
                for name, (n, k) in self.projections.items()}

    @property
    def reduced(self) -> dict[str, tuple[int, int]]:
        """Columns and undivided depth of the GEMMs whose outputs tensor parallelism reduces (T3 paper, section 2.4).

        Forward `op` and `fc2`, backward the inputs' gradients: `fc1`, and `ip` or, with latents, `ip-q` and `ip-kv`.
        """
        wide = {"fc1": (self.hidden, self.feed_forward * (2 if self.gated else 1)),
                "fc2": (self.hidden, self.feed_forward)}
        inputs = {INPUTS[name]: (k, n) for name, (n, k) in self.projections.items() if name in INPUTS}
        return {"op": self.projections["op"]} | wide | inputs

    @property
    def kinds(self) -> tuple[tuple["Transformer", int], ...]:
        """Transformers of equal layers that make up this one, each with its number of layers."""
        if not self.dense_layers:
            return ((self, self.layers),)
        dense = replace(self, experts=1, experts_per_token=1, shared_experts=0, shared_feed_forward=0,
                        feed_forward=self.dense_feed_forward, dense_layers=0, dense_feed_forward=0)
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
        """Weights of a layer's attention that tensor parallelism does not split."""
        return sum(n * k for name, (n, k) in self.projections.items() if name.endswith("_a"))

    @property
    def shared_width(self) -> int:
        """Columns of the shared experts of a layer."""
        return self.shared_experts * (self.shared_feed_forward or self.feed_forward)

    def _feed_forward_weights(self, width: float) -> float:
        return (3 if self.gated else 2) * self.hidden * width

    @property
    def routed_weights(self) -> float:
        """Weights of a layer's routed experts, on average over the layers."""
        return self._feed_forward_weights(self._mean(lambda one: one.experts * one.feed_forward * (one.experts > 1)))

    @property
    def common_weights(self) -> float:
        """Weights of a layer's feed-forward networks for all tokens, on average over the layers."""
        return self._feed_forward_weights(self._mean(
            lambda one: one.shared_width + (one.experts == 1) * one.feed_forward))

    @property
    def active_feed_forward(self) -> float:
        """Columns of a token's feed-forward networks in a layer, on average over the layers."""
        return self._mean(lambda one: one.experts_per_token * one.feed_forward + one.shared_width)

    @property
    def active_weights(self) -> float:
        """Weights that a token uses in a layer, on average over the layers."""
        return self.attention_weights + self._feed_forward_weights(self.active_feed_forward)

    @property
    def layer_weights(self) -> float:
        """Weights of a layer, on average over the layers."""
        return self.attention_weights + self.routed_weights + self.common_weights + 13 * self.hidden  # biases, norms

    @property
    def weights(self) -> float:
        """All parameters: layers, embedding, and the matrix of the logits unless it is the embedding."""
        return self.layers * self.layer_weights + self.vocabulary * self.hidden * (1 if self.tied else 2)

    def __str__(self) -> str:
        """Describe the model: parameters, layers, their widths, and parts of its file that are left out."""
        active_weights = self.layers * self.active_weights + self.vocabulary * self.hidden * (1 if self.tied else 2)
        kv = "latent keys and values" if self.latent else f"{self.kv_heads or self.heads} of keys and values"
        matrices = f"{3 if self.gated else 2} matrices"
        parts = [f"{self.name}: {self.weights / 1e9:,.4g} billion parameters" + (
                     f" ({active_weights / 1e9:,.4g} of them for a token)" if self.experts > 1 else ""),
                 f"{self.layers} layers" + (f", {self.dense_layers} of them without experts" * (self.dense_layers > 0)),
                 f"{self.hidden} hidden, {self.heads} heads, {kv}",
                 f"{matrices} of {self.feed_forward}" if self.experts == 1 else
                 f"{self.experts_per_token} of {self.experts} experts with {matrices} of {self.feed_forward}"]
        if self.windowed_layers:
            parts.append(f"attention to {self.window} tokens in {self.windowed_layers} layers")
        if self.shared_experts:
            parts.append(f"shared ones of {self.shared_width}")
        parts.append("logits by the embedding" if self.tied else "a matrix of logits")
        return "; ".join(parts) + (f"; left out: {', '.join(self.left_out)}" if self.left_out else "")


def _gpt(name: str, hidden: int, layers: int, heads: int, vocabulary: int = 51200) -> Transformer:
    return Transformer(name, hidden, layers, heads, 4 * hidden, vocabulary)


#: The models of the papers. Heads and vocabularies, which T3's table 2 omits, are from the cited models.
PRESETS = {model.name: model for model in (
    _gpt("mega-gpt-2", 3072, 74, 32), _gpt("t-nlg", 4256, 78, 28), _gpt("gpt-3", 12288, 96, 96),
    _gpt("palm", 18432, 118, 48, 256000), _gpt("mt-nlg", 20480, 105, 128),
    _gpt("megatron-22b", 6144, 48, 64), _gpt("megatron-145b", 12288, 80, 96), _gpt("megatron-175b", 12288, 96, 96),
    _gpt("megatron-310b", 16384, 96, 128), _gpt("megatron-530b", 20480, 105, 128),
    _gpt("megatron-1t", 25600, 128, 160),
)}

def _today(name: str, hidden: int, layers: int, heads: int, feed_forward: int, vocabulary: int,
           **others: Any) -> Transformer:
    return Transformer(name, hidden, layers, heads, feed_forward, vocabulary, gated=True, tied=False, dtype="bfloat16",
                       **others)


#: Current models, from their config.json files on Hugging Face. DeepSeek's weights are in fp8 there.
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
