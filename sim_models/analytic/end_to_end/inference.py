"""Inference: the prompt phase, one forward pass over all its tokens, and decoding, one token per sequence and step."""

import numpy as np

from t3sim.analytic.end_to_end import layer as layers
from t3sim.analytic.end_to_end.mapping import Mapping
from t3sim.analytic.end_to_end.memory import WEIGHT_BYTES, weights_per_gpu
from t3sim.analytic.end_to_end.operations import all_reduce_ns, gemm_ns, move_ns, send_ns
from t3sim.analytic.end_to_end.training import Overlap, Result, TrainingJob, experts_ns, sliced_gemms
from t3sim.analytic.gemm import OPERAND_BYTES, ceil_div
from t3sim.machine import Machine

#: Keys of the breakdown, which adds up to the time of the phase.
PARTS = ("gemm", "attention", "elementwise", "host", "head", "tp", "ep", "pp")


def prompt(cluster: Machine, job: TrainingJob, mapping: Mapping, overlap: Overlap | None = None) -> Result:
    """Return the prompt phase of `global_batch` sequences: the time until the first token.

    Replicas share the batch; pipeline stages work one after the other.
    """
    sequences = ceil_div(job.global_batch, mapping.dp)
    forward = layers.forward(cluster, job.model, job.kernels, sequences, job.sequence,
                             layers.Split(mapping.tp, mapping.sp, mapping.ep), "prompt", job.width)
    return _phase(cluster, job, mapping, forward, sequences, job.sequence, overlap)


def decode(cluster: Machine, job: TrainingJob, mapping: Mapping, overlap: Overlap | None = None) -> Result:
    """Return one step of decoding with `sequence` tokens in the context: weights, keys and values are read once.

    On the level of libraries a step is replayed as a graph, which the host launches as a whole.
    """
    sequences = ceil_div(job.global_batch, mapping.dp)
    forward = layers.forward(cluster, job.model, job.kernels, sequences, 1,
                             layers.Split(mapping.tp, mapping.sp, mapping.ep), "prompt", job.width)
    context_bytes = _cache_bytes(job, mapping, sequences)
    launches = 0 if cluster.intra is None else forward.kernels + 1
    forward = layers.LayerTimes(forward.gemms, forward.attention + move_ns(cluster, context_bytes),
                                forward.elementwise, launches)
    return _phase(cluster, job, mapping, forward, sequences, 1, overlap)


def _cache_bytes(job: TrainingJob, mapping: Mapping, sequences):
    """Return one GPU's bytes of a layer's context: at least one head; all heads share latents."""
    model, share = job.model, 1.0
    if job.kernels.heads_split and model.latent is None:
        kv_heads = model.kv_heads or model.heads
        share = ceil_div(kv_heads, mapping.tp) / kv_heads
    return OPERAND_BYTES * sequences * model.seen_tokens(job.sequence) * model.cached_width * share


def _phase(cluster: Machine, job: TrainingJob, m: Mapping, forward: layers.LayerTimes, sequences, length,
           overlap) -> Result:
    gpu, model = cluster.accelerator, job.model
    token_bytes = OPERAND_BYTES * sequences * length * model.hidden
    reduce_ns = all_reduce_ns(cluster, token_bytes, m.tp, symmetric=True)
    tp = 2 * reduce_ns
    if overlap is not None:
        tp = tp - sum(gemm + reduce_ns - overlap(name, gemm, reduce_ns)
                      for name, gemm in sliced_gemms(forward, forward)["forward"].items())
    ep = experts_ns(cluster, model, token_bytes, m)
    gpu_ns = forward.total + tp + ep
    parts = {"gemm": forward.gemm, "attention": forward.attention, "elementwise": forward.elementwise,
             "tp": tp, "ep": ep, "host": np.maximum(0.0, forward.kernels * gpu.host_ns_per_kernel - gpu_ns)}
    parts = {name: ns * model.layers for name, ns in parts.items()}
    # Logits of the last tokens only.
    parts["head"] = gemm_ns(cluster, sequences, ceil_div(model.vocabulary, m.tp), model.hidden)
    parts["pp"] = (m.pp - 1) * send_ns(cluster, token_bytes / m.tp, m.tp * m.dp)
    parts = {name: np.asarray(parts[name], float) + np.zeros(np.shape(m.tp)) for name in PARTS}
    memory = WEIGHT_BYTES * weights_per_gpu(model, m) + _cache_bytes(job, m, sequences) * model.layers / m.pp
    seen = model.seen_tokens(job.sequence) if length == 1 else model.seen_share(length) * length
    flop = job.global_batch * (length * model.layers * (2 * model.active_weights
                                                        + 2 * seen * model.heads * sum(model.head_widths))
                               + 2 * model.hidden * model.vocabulary)
    total_ns = sum(parts.values())
    idle_ns = parts["tp"] + parts["ep"] + parts["pp"] + parts["host"] + (total_ns - parts["pp"]) * (1 - 1 / m.pp)
    energy = m.gpus * ((total_ns - idle_ns) * gpu.busy_watts + idle_ns * gpu.idle_watts) * 1e-9
    return Result(breakdown_ns=parts, memory_bytes=memory, flop=flop + np.zeros(np.shape(m.tp)), gpus=m.gpus,
                  energy_joules=energy)
