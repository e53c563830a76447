"""Memory of one GPU in training: weights, gradients, optimizer states and activations. Bytes.

Activations are those that wait for the backward pass (Korthikanti et al., arXiv 2205.05198, section 4; Rajbhandari et
al., ZeRO, arXiv 1910.02054).
"""

import numpy as np

from t3sim.analytic.end_to_end.layer import Implementation
from t3sim.analytic.end_to_end.mapping import FULL, NONE, SELECTIVE, Mapping
from t3sim.workload.transformer import Transformer

#: Mixed precision with Adam: 16-bit weight, 32-bit gradient; 32-bit weight and two moments.
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 4, 12


def weights_per_gpu(model: Transformer, mapping: Mapping):
    """Return the parameters of the fullest GPU: its share of the layers, and the embedding of the first stage."""
    split_weights = (model.attention_weights - model.whole_weights + model.common_weights
                     + model.routed_weights / mapping.ep + model.more_kv_width(mapping.tp) * model.hidden)
    layer = split_weights / mapping.tp + model.whole_weights + 13 * model.hidden
    tables = 1 if model.tied else np.where(mapping.pp == 1, 2, 1)  # the matrix of the logits is on the last stage
    return model.layers / mapping.pp * layer + tables * model.vocabulary * model.hidden / mapping.tp


def state_bytes(model: Transformer, mapping: Mapping):
    """Return the bytes of weights, gradients and optimizer; ZeRO's stage 1 shards the optimizer, 2 gradients, 3 all."""
    shards = [np.where(mapping.zero >= stage, mapping.dp, 1) for stage in (3, 2, 1)]
    weight_bytes = WEIGHT_BYTES / shards[0] + GRADIENT_BYTES / shards[1] + OPTIMIZER_BYTES / shards[2]
    return weights_per_gpu(model, mapping) * weight_bytes


def activation_bytes(model: Transformer, kernels: Implementation, mapping: Mapping, length: int, micro_batches):
    """Return the activations of the first stage, which holds up to `pp` micro-batches (1F1B).

    Interleaved schedules hold the activations of (pp - 1)/interleave more stages.
    """
    t, b = mapping.tp, mapping.micro
    unit = b * length * model.hidden
    replicated = np.where(mapping.sp, t, 1)
    wide = model.active_feed_forward / (4 * model.hidden)
    values = model.projections["op"][1]  # of all heads
    attention = (8 * values if model.latent is None else 2 * (model.heads_width + values)) / model.hidden
    linear = 10 / replicated + (attention + 16 * wide * (1.5 if model.gated else 1)) / t
    writes_scores = any(kernel.tensor == "scores" for kernel in kernels.kernels)
    scores = 5 * model.heads * length / model.hidden / (t if kernels.heads_split else 1) if writes_scores else 0.0
    kept_values = np.select([mapping.recompute == NONE, mapping.recompute == SELECTIVE, mapping.recompute == FULL],
                            [linear + scores, linear, 2 / replicated])
    layers = model.layers / mapping.pp
    in_flight = np.minimum(micro_batches, mapping.pp)
    interleaving = np.where(mapping.interleave > 1, 1 + (mapping.pp - 1) / (mapping.pp * mapping.interleave), 1)
    one_layer = np.where(mapping.recompute == FULL, (linear + scores) * unit, 0)  # while it is computed again
    logits = np.where(mapping.pp == 1, 4 * b * length * model.vocabulary / t, 0)  # 32-bit; the last stage's otherwise
    return kept_values * unit * layers * in_flight * interleaving + one_layer + logits


def memory_bytes(model: Transformer, kernels: Implementation, mapping: Mapping, length: int, micro_batches):
    """Return the memory of the first pipeline stage."""
    return state_bytes(model, mapping) + activation_bytes(model, kernels, mapping, length, micro_batches)
