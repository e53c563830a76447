"""One training iteration: compute, communication, bubbles and update, each with a name, that add up to its time.

The structure is AMPeD's equation 1 (with the physical form of equation 8); operators are timed by kernel instead of by
one efficiency. All fields of a mapping may be arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from t3sim.analytic.end_to_end import layer as layers
from t3sim.analytic.end_to_end.layer import MEGATRON, Implementation, LayerTimes
from t3sim.analytic.end_to_end.mapping import FULL, SELECTIVE, Mapping
from t3sim.analytic.end_to_end.memory import GRADIENT_BYTES, memory_bytes, weights_per_gpu
from t3sim.analytic.end_to_end.operations import all_reduce_ns, exchange_ns, gemm_ns, move_ns, send_ns
from t3sim.analytic.gemm import OPERAND_BYTES, ceil_div
from t3sim.machine import Machine
from t3sim.workload.transformer import INPUTS, Transformer

#: Keys of `Iteration.breakdown_ns`, in the order of the tables.
PARTS = ("gemm", "attention", "elementwise", "recompute", "host", "head", "tp", "ep", "pp", "bubble", "dp", "update",
         "other")

#: Time of a GEMM and its all-reduce under a technique, ns: (name of the sub-layer, GEMM alone, all-reduce) -> both.
Overlap = Callable[[str, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class TrainingJob:
    """A model in training, its batch per iteration, and its kernels."""

    model: Transformer
    sequence: int
    global_batch: int  #: sequences
    kernels: Implementation = MEGATRON
    width: str = "bf16"  #: of the operands of GEMMs with weights


@dataclass(frozen=True, kw_only=True)
class Result:
    """Time, memory and energy per mapping; arrays if the mapping's fields are."""

    breakdown_ns: dict[str, np.ndarray]  #: parts that add up to `iteration_ns`
    memory_bytes: np.ndarray  #: of one GPU
    flop: np.ndarray  #: executed by all GPUs, recomputation included
    gpus: np.ndarray
    energy_joules: np.ndarray

    @property
    def iteration_ns(self):
        """Time of one training iteration, prompt or decoded token."""
        return sum(self.breakdown_ns.values())

    @property
    def tflops_per_gpu(self):
        """FLOP executed per second and GPU, recomputation included, as the Megatron papers count them."""
        return self.flop / self.gpus / self.iteration_ns / 1e3


@dataclass(frozen=True, kw_only=True)
class Iteration(Result):
    """One training iteration; keys of `breakdown_ns` are `PARTS`."""

    model_flop: np.ndarray  #: without recomputation


def train(cluster: Machine, job: TrainingJob, mapping: Mapping, overlap: Overlap | None = None) -> Iteration:
    """Return one iteration's time, memory and energy.

    `overlap` replaces the time of a GEMM and the all-reduce after it by a technique's; the saving is subtracted from
    the part `tp`.
    """
    gpu, model, m = cluster.accelerator, job.model, mapping
    steps = job.global_batch // (m.dp * m.micro)
    split = layers.Split(m.tp, m.sp, m.ep)
    forward = layers.forward(cluster, model, job.kernels, m.micro, job.sequence, split, width=job.width)
    backward = layers.backward(cluster, model, job.kernels, m.micro, job.sequence, split, job.width)
    reduced_bytes = OPERAND_BYTES * m.micro * job.sequence * model.hidden
    tp = _tensor_parallel_ns(cluster, model, reduced_bytes, m, forward, backward, overlap)
    ep = experts_ns(cluster, model, reduced_bytes, m)
    recompute_ns = np.select([m.recompute == FULL, m.recompute == SELECTIVE],
                             [forward.total + tp["forward"] + ep, forward.attention], 0.0)
    per_layer = {
        "gemm": forward.gemm + backward.gemm, "attention": forward.attention + backward.attention,
        "elementwise": forward.elementwise + backward.elementwise, "recompute": recompute_ns,
        "tp": tp["forward"] + tp["backward"], "ep": 2 * ep,
    }
    gpu_ns = sum(per_layer.values())
    launches = forward.kernels + backward.kernels + np.where(m.recompute == FULL, forward.kernels, 0)
    per_layer["host"] = np.maximum(0.0, launches * gpu.host_ns_per_kernel - gpu_ns)
    share = model.layers / m.pp
    stage = {name: ns * share for name, ns in per_layer.items()}
    stage_ns = sum(stage.values())
    head = _head_ns(cluster, job, m, reduced_bytes)
    message_ns = send_ns(cluster, reduced_bytes / m.tp, m.tp * m.dp)
    parts = {name: ns * steps for name, ns in stage.items()}
    parts |= {
        "head": steps * head,
        "bubble": (m.pp - 1) / m.interleave * stage_ns,
        "pp": np.where(m.pp > 1, 2 * message_ns * (steps + m.pp - 1) * m.interleave, 0.0),
        "dp": _gradients_ns(cluster, model, m),
        "update": _update_ns(cluster, model, m),
        "other": np.full(np.shape(m.tp), cluster.iteration_ns),
    }
    parts = {name: np.asarray(parts[name], float) + np.zeros(np.shape(m.tp)) for name in PARTS}
    flop, model_flop = _flop(job, m)
    total_ns = sum(parts.values())
    idle_ns = parts["bubble"] + parts["pp"] + parts["dp"] + parts["tp"] + parts["ep"] + parts["host"]
    energy = m.gpus * ((total_ns - idle_ns) * gpu.busy_watts + idle_ns * gpu.idle_watts) * 1e-9
    memory = memory_bytes(model, job.kernels, m, job.sequence, steps)
    return Iteration(breakdown_ns=parts, memory_bytes=memory, flop=flop, model_flop=model_flop, gpus=m.gpus,
                     energy_joules=energy)


def _tensor_parallel_ns(cluster: Machine, model: Transformer, reduced_bytes, m: Mapping, forward: LayerTimes,
                        backward: LayerTimes, overlap: Overlap | None) -> dict[str, np.ndarray]:
    """Return the time of 2 all-reduces per layer and direction; backward, latents' all-reduces are narrower.

    With sequence parallelism each is a reduce-scatter and an all-gather, of the same total time. A technique's saving
    is subtracted from the all-reduce.
    """
    times_ns = {}
    for direction, gemms in sliced_gemms(forward, backward).items():
        all_reduces_ns = {
            name: all_reduce_ns(cluster, reduced_bytes * model.reduced[name][0] / model.hidden, m.tp, 1)
            for name in gemms}
        times_ns[direction] = sum(one if overlap is None else overlap(name, gemms[name], one) - gemms[name]
                                  for name, one in all_reduces_ns.items())
    return times_ns


def sliced_gemms(forward: LayerTimes, backward: LayerTimes) -> dict[str, dict[str, np.ndarray]]:
    """Return the GEMMs whose outputs tensor parallelism reduces, by direction and name (T3 paper, section 2.4).

    OP and FC-2 forward; backward the input gradients, half of their GEMMs, of FC-1 and of the heads ("ip").
    """
    return {"forward": {name: forward.gemms[name] for name in ("op", "fc2")},
            "backward": {"fc1": backward.gemms["fc1"] / 2} | {
                name: backward.gemms[gemm] / 2 for gemm, name in INPUTS.items() if gemm in backward.gemms}}


def experts_ns(cluster: Machine, model: Transformer, reduced_bytes, m: Mapping):
    """Return the time per direction of tokens' exchanges to experts and back (AMPeD, equation 9)."""
    if model.experts == 1:
        return 0.0
    share = 1 - model.dense_layers / model.layers
    return share * 2 * exchange_ns(cluster, reduced_bytes * model.experts_per_token / m.tp, m.ep, m.tp)


def _head_ns(cluster: Machine, job: TrainingJob, m: Mapping, reduced_bytes):
    """Return the time of logits, their loss, and the embedding, per micro-batch on the last stage.

    The last stage hides the embedding of the first one.
    """
    tokens, columns = m.micro * job.sequence, ceil_div(job.model.vocabulary, m.tp)
    hidden = job.model.hidden
    logits = (gemm_ns(cluster, tokens, columns, hidden) + gemm_ns(cluster, tokens, hidden, columns)
              + gemm_ns(cluster, columns, hidden, tokens))
    loss = move_ns(cluster, 12 * OPERAND_BYTES * tokens * columns)  # 32-bit logits read and written three times
    embedding = np.where(m.pp == 1, move_ns(cluster, 6 * reduced_bytes), 0.0)
    return logits + loss + embedding + 2 * all_reduce_ns(cluster, reduced_bytes, m.tp)


def _gradients_ns(cluster: Machine, model: Transformer, m: Mapping):
    """Return the time of the all-reduce of the gradients over the replicas.

    ZeRO's scatter and gather cost the same; its third stage gathers the weights once more for the forward and once for
    the backward pass.
    """
    size = GRADIENT_BYTES * weights_per_gpu(model, m)
    return all_reduce_ns(cluster, size, m.dp, m.tp) * np.where(m.zero == 3, 1.5, 1.0)


def _update_ns(cluster: Machine, model: Transformer, m: Mapping):
    """Return the time of Adam's update: 30 bytes per weight.

    It reads and writes 32-bit weights and moments, reads gradients, writes 16-bit weights.
    """
    return move_ns(cluster, 30 * weights_per_gpu(model, m) / np.where(m.zero >= 1, m.dp, 1))


def _flop(job: TrainingJob, m: Mapping):
    """Return an iteration's FLOP with and without recomputation (arXiv 2104.04473, section 5.1, any feed-forward)."""
    model, tokens = job.model, job.global_batch * job.sequence
    share = model.seen_share(job.sequence) if job.kernels.attention_fused else 1.0
    scores = 2 * tokens * job.sequence * share * model.heads * sum(model.head_widths) * model.layers
    forward = 2 * tokens * model.active_weights * model.layers + scores
    head = 6 * tokens * model.hidden * model.vocabulary
    recomputed = np.select([m.recompute == FULL, m.recompute == SELECTIVE], [forward, scores], 0.0)
    return 3 * forward + head + recomputed, 3 * forward + head + np.zeros(np.shape(m.tp))
