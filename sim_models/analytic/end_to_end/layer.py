"""One Transformer layer on one GPU: its kernels, forward and backward, by what they compute and what they move.

GEMMs are counted by their shapes, everything else by the kernels of an implementation and the bytes that they move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from t3sim.analytic.end_to_end.operations import fused_attention_ns, gemm_ns, move_ns
from t3sim.analytic.gemm import OPERAND_BYTES, ceil_div
from t3sim.machine import Machine
from t3sim.workload.transformer import Transformer


@dataclass(frozen=True)
class LayerKernel:
    """A kernel besides the GEMMs.

    `passes` count how often it reads or writes its tensor; a dropout's mask has half of an element's bytes.
    """

    name: str
    tensor: str  #: "tokens" x hidden, replicated by tensor parallelism; "widened" by the feed-forward part; "heads":
    #: queries, keys and values; "scores": the attention matrices of all heads; "routed": a token for each expert of it
    forward: float  #: passes in training
    backward: float
    prompt: float | None = None  #: passes in inference, if not `forward`: there is no dropout

    def passes(self, direction: str) -> float:
        if direction == "prompt" and self.prompt is not None:
            return self.prompt
        return self.backward if direction == "backward" else self.forward


@dataclass(frozen=True)
class Implementation:
    """Kernels of a layer: which element-wise steps are fused with which."""

    title: str
    kernels: tuple[LayerKernel, ...]
    heads_split: bool = True  #: whether tensor parallelism splits the heads of the attention
    score_repeats: float = 2.0  #: GEMMs of the scores in the backward pass, relative to the forward pass

    @property
    def attention_fused(self) -> bool:
        """Say whether attention is one kernel, which never writes the scores."""
        return all(kernel.tensor != "scores" for kernel in self.kernels)


_AROUND = (
    LayerKernel("norm", "tokens", 2, 3), LayerKernel("norm", "tokens", 2, 3),
    LayerKernel("bias gradient", "tokens", 0, 1), LayerKernel("bias gradient", "tokens", 0, 1),
    LayerKernel("bias and GeLU", "widened", 2, 3), LayerKernel("bias gradient", "widened", 0, 1),
    LayerKernel("transpose of the heads", "heads", 2, 2), LayerKernel("bias gradient", "heads", 0, 1))
_FUSED_RESIDUAL = (LayerKernel("bias, dropout, residual", "tokens", 3.5, 2.5, prompt=3),) * 2

#: Megatron-LM (arXiv 2104.04473, section 4.2).
MEGATRON = Implementation("fused as in Megatron-LM", (
    *_AROUND, *_FUSED_RESIDUAL, LayerKernel("scale, mask, softmax", "scores", 2, 3),
    LayerKernel("dropout", "scores", 2.5, 2.5, prompt=0)))

#: Attention in one kernel that never writes the scores, and computes them again in the backward pass.
FLASH = Implementation("fused attention", (*_AROUND, *_FUSED_RESIDUAL), score_repeats=2.5)

#: BERT of MLPerf training v1.1 in PyTorch, without its optional fused attention (mlcommons/training_results_v1.1):
#: every step is a kernel of its own, and T3's projection to many GPUs does not split the attention (T3 paper, section
#: 6.3: "non-sliced attention operations").
UNFUSED = Implementation("every step a kernel of its own", (
    *_AROUND, *(LayerKernel("dropout", "tokens", 2.5, 2.5, prompt=0), LayerKernel("residual", "tokens", 3, 3)) * 2,
    LayerKernel("scale", "scores", 2, 2), LayerKernel("mask", "scores", 2, 0), LayerKernel("softmax", "scores", 2, 3),
    LayerKernel("dropout", "scores", 2.5, 2.5, prompt=0)), heads_split=False)

IMPLEMENTATIONS = {"megatron": MEGATRON, "flash": FLASH, "unfused": UNFUSED}

#: Where a layer has experts: tokens are sorted by them, and weighted sums are taken of what comes back.
_ROUTING = (LayerKernel("sort of the tokens, weighted sums", "routed", 1.5, 1.5),) * 4


@dataclass(frozen=True)
class LayerTimes:
    """Time of one micro-batch in one layer on one GPU, ns, by kind of kernel; `kernels` that the host launches."""

    gemms: dict[str, np.ndarray]  #: by name
    attention: np.ndarray  #: scores, softmax and their product with the values
    elementwise: np.ndarray
    kernels: float

    @property
    def gemm(self):
        return sum(self.gemms.values())

    @property
    def total(self):
        return self.gemm + self.attention + self.elementwise


class Split(NamedTuple):
    """Split of a layer over GPUs; arrays are possible."""

    tp: Any = 1  #: GPUs that share each matrix
    sp: Any = 0  #: 1 where sequence parallelism splits what tensor parallelism replicates
    ep: Any = 1  #: GPUs that share the experts


def gemm_shapes(model: Transformer, tokens, tp, ep=1) -> dict[str, tuple]:
    """Return (m, n, k, count) of each forward GEMM of one GPU.

    Tokens are spread evenly over experts, of which `ep` GPUs share all: `fc1` and `fc2` have a GEMM for each expert of
    this GPU that has a token, with its tokens. Networks that all tokens pass besides are `shared1` and `shared2`.
    """
    fc1_columns = ceil_div(model.feed_forward * (2 if model.gated else 1), tp)
    fc1, fc2 = (fc1_columns, model.hidden), (model.hidden, ceil_div(model.feed_forward, tp))
    routed_tokens = tokens * model.experts_per_token
    count = np.minimum(np.maximum(1, model.experts // ep), routed_tokens)
    shapes = model.attention_gemms(tokens, tp) | {
        "fc1": (ceil_div(routed_tokens, count), *fc1, count), "fc2": (ceil_div(routed_tokens, count), *fc2, count)}
    if model.shared_experts:
        width = model.shared_width // model.shared_experts
        columns = ceil_div(width * (2 if model.gated else 1), tp)
        shapes |= {"shared1": (tokens, columns, model.hidden, model.shared_experts),
                   "shared2": (tokens, model.hidden, ceil_div(width, tp), model.shared_experts)}
    return shapes


def gemms_said(shapes: dict[str, tuple]) -> str:
    """Return GEMMs for people: `op 8,192 x 4,096 x 512, fc1 2,048 x 3,584 x 4,096 (8 times)`."""
    return ", ".join(f"{name} {m:,} x {n:,} x {k:,}" + (f" ({count:,} times)" if count > 1 else "")
                     for name, (m, n, k, count) in shapes.items())


def forward(cluster: Machine, model: Transformer, kernels: Implementation, sequences, length, split: Split,
            direction: str = "forward", width: str = "bf16") -> LayerTimes:
    """Return the forward pass of `sequences` of `length` tokens; `direction` "prompt" leaves the dropouts out.

    `width`: of the operands of the GEMMs with weights.
    """
    if model.dense_layers:
        return _mean_layer(model, lambda one: forward(cluster, one, kernels, sequences, length, split, direction,
                                                      width))
    shapes = gemm_shapes(model, sequences * length, split.tp, split.ep)
    gemms = {name: gemm_ns(cluster, *shape, width) for name, shape in shapes.items()}
    scores = _score_gemms_ns(cluster, model, kernels, sequences, length, split.tp)
    return _with_kernels(cluster, model, kernels, direction, gemms, scores, 2,
                         _sizes(model, kernels, sequences, length, split))


def backward(cluster: Machine, model: Transformer, kernels: Implementation, sequences, length, split: Split,
             width: str = "bf16") -> LayerTimes:
    """Return the backward pass: two GEMMs for each forward one, for its input's and its weights' gradient."""
    if model.dense_layers:
        return _mean_layer(model, lambda one: backward(cluster, one, kernels, sequences, length, split, width))
    gemms = {}
    for name, (m, n, k, count) in gemm_shapes(model, sequences * length, split.tp, split.ep).items():
        gemms[name] = gemm_ns(cluster, m, k, n, count, width) + gemm_ns(cluster, n, k, m, count, width)
    scores = kernels.score_repeats * _score_gemms_ns(cluster, model, kernels, sequences, length, split.tp)
    return _with_kernels(cluster, model, kernels, "backward", gemms, scores, 4,
                         _sizes(model, kernels, sequences, length, split))


def _mean_layer(model: Transformer, layer_times: Callable[[Transformer], LayerTimes]) -> LayerTimes:
    """Return the mean over layers of several kinds."""
    kinds = [(layer_times(one), count / model.layers) for one, count in model.kinds]
    gemms = {name: sum(share * times.gemms.get(name, 0.0) for times, share in kinds)
             for name in dict.fromkeys(name for times, _ in kinds for name in times.gemms)}
    attention, elementwise, kernels = (sum(share * getattr(times, name) for times, share in kinds)
                                       for name in ("attention", "elementwise", "kernels"))
    return LayerTimes(gemms, attention, elementwise, kernels)


def _heads(model, kernels, tp):
    """Return the heads of one GPU."""
    return ceil_div(model.heads, tp) if kernels.heads_split else model.heads


def _score_gemms_ns(cluster, model, kernels, sequences, length, tp):
    """Return the time of queries times keys, and scores times values, of this GPU's heads."""
    head_count, (query, value) = sequences * _heads(model, kernels, tp), model.head_widths
    if kernels.attention_fused and cluster.intra is None:
        return fused_attention_ns(cluster, head_count * model.seen_share(length), length, query + value)
    share = model.seen_share(length) if kernels.attention_fused else 1.0  # others compute all scores, and mask some
    return share * (gemm_ns(cluster, length, length, query, head_count)
                    + gemm_ns(cluster, length, value, length, head_count))


def _sizes(model, kernels, sequences, length, split: Split):
    """Return the bytes of what element-wise kernels move, by tensor."""
    tokens = OPERAND_BYTES * sequences * length * model.hidden
    widening = model.active_feed_forward / model.hidden * (2 if model.gated else 1)
    return {
        "tokens": tokens / np.where(split.sp, split.tp, 1), "widened": tokens * widening / split.tp,
        "heads": tokens * (model.heads_width + model.more_kv_width(split.tp)) / model.hidden / split.tp,
        "routed": tokens * model.experts_per_token,
        "scores": OPERAND_BYTES * sequences * _heads(model, kernels, split.tp) * length * length,
    }


def _with_kernels(cluster, model, kernels, direction, gemms, score_gemms, score_kernels, sizes) -> LayerTimes:
    kernel_ns = {"scores": 0.0, "rest": 0.0}
    launches = score_kernels + len(gemms) * (2 if direction == "backward" else 1)
    for kernel in (*kernels.kernels, *(_ROUTING if model.experts > 1 else ())):
        if passes := kernel.passes(direction):
            part = "scores" if kernel.tensor == "scores" else "rest"
            kernel_ns[part] += move_ns(cluster, passes * sizes[kernel.tensor])
            launches += 1
    return LayerTimes(gemms, score_gemms + kernel_ns["scores"], kernel_ns["rest"], launches)
