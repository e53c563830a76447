"""A prompt through a Transformer that is split over the GPUs of a node: kernel by kernel, with what overlaps.

An RMSNorm with its residual runs alone, or in one kernel with its all-reduce (TokenWeave, arXiv 2505.11329).
"""

from dataclasses import dataclass

from t3sim.analytic.end_to_end.layer import gemm_shapes
from t3sim.analytic.end_to_end.operations import fused_attention_ns
from t3sim.analytic.gemm import library_kernel
from t3sim.analytic.libraries.collectives import BLOCKS, in_switch_ns, library_collective, symmetric_ns
from t3sim.machine import Machine
from t3sim.workload.transformer import TODAY, Transformer

#: Passes over what a layer's small kernels move: rotation of queries and keys, and the gate.
_SMALL_PASSES = 3
#: Passes over the tokens: hidden states and residual in, both out.
_PASSES = 4
#: Of a norm besides its bytes: two kernels' worth of start and drain, as an event around it measures.
_STARTS = 2


@dataclass(frozen=True)
class PromptLayer:
    """Time of one layer on one GPU, ns, by kind."""

    gemms: float
    attention: float
    norms: float
    others: float
    all_reduce: float  #: of both

    @property
    def without(self) -> float:
        return self.gemms + self.attention + self.norms + self.others


def model_of(name: str) -> Transformer | None:
    """Return the Transformer for a source's name of a model; None if it is not known."""
    lower_name = name.lower().replace("_", "-")
    return next((one for known, one in TODAY.items() if lower_name.startswith(known)), None)


def layer(machine: Machine, model: Transformer, tokens: int, gpus: int) -> PromptLayer:
    """Return the time of a layer, its all-reduces by kernels over symmetric memory."""
    launch_ns = machine.kernels.launch_ns
    gemms_ns = sum(count * library_kernel(machine, m, n, k).ns / machine.sharing.steady_share + launch_ns
                   for m, n, k, count in gemm_shapes(model, tokens, gpus).values())
    attention_ns = fused_attention_ns(machine, model.heads / gpus * model.seen_share(tokens), tokens,
                                      sum(model.head_widths))
    widened_columns = 2 * model.active_feed_forward
    moved_bytes = 2.0 * tokens * (model.heads_width + model.more_kv_width(gpus) + widened_columns) / gpus
    others_ns = 3 * launch_ns + _SMALL_PASSES * moved_bytes / machine.memory_bytes_per_ns
    if model.experts > 1:  # tokens are sorted by their experts, and weighted sums taken
        others_ns += (4 * launch_ns + 6 * 2.0 * tokens * model.experts_per_token * model.hidden
                      / machine.memory_bytes_per_ns)
    reduced_bytes = 2.0 * tokens * model.hidden
    return PromptLayer(gemms_ns, attention_ns, 2 * norm_ns(machine, tokens, model.hidden), others_ns,
                       2 * symmetric_ns(machine, "all_reduce", gpus, reduced_bytes))


def prompt_ns(machine: Machine, model: Transformer, tokens: int, gpus: int, way: str = "baseline") -> float:
    """Return the time of a prompt: `baseline`, `without` all-reduces, or as `tokenweave` overlaps it.

    TokenWeave cuts the tokens in two, of which one half's all-reduce with its norm, in one kernel of a few units, runs
    beside the other half's GEMMs; the norm of a GPU's own tokens alone is left.
    """
    return sum(count * _layer_ns(machine, one, tokens, gpus, way) for one, count in model.kinds)


def _layer_ns(machine: Machine, model: Transformer, tokens: int, gpus: int, way: str) -> float:
    whole_layer = layer(machine, model, tokens, gpus)
    if way == "without":
        return whole_layer.without
    if way == "baseline" or machine.in_switch is None:
        return whole_layer.without + whole_layer.all_reduce
    half_layer = layer(machine, model, tokens // 2, gpus)
    # Queries of the second half look back at both: attention is not less than of the whole.
    compute_ns = half_layer.gemms + whole_layer.attention / 2 + half_layer.others
    all_reduces_ns = 2 * in_switch_ns(machine, "all_reduce", gpus, 2.0 * (tokens // 2) * model.hidden)
    compute_ns += min(all_reduces_ns, compute_ns) * BLOCKS / machine.gpu.compute_units  # all-reduces hold units
    return 2 * max(compute_ns, all_reduces_ns + 2 * machine.wires.latency_ns)


def norm_ns(machine: Machine, tokens: float, hidden: int) -> float:
    """Return the time of an RMSNorm of tokens of 16 bits."""
    return _STARTS * machine.kernels.launch_ns + _PASSES * 2.0 * tokens * hidden / machine.memory_bytes_per_ns


def part_ns(machine: Machine, gpus: int, tokens: int, hidden: int, part: str) -> float:
    """Return the time of a part, or of both in one kernel or in turn. Raises KeyError."""
    size = 2.0 * tokens * hidden

    def switch(kind: str) -> float:
        return in_switch_ns(machine, kind, gpus, size)

    times_ns = {
        "norm": lambda: norm_ns(machine, tokens, hidden),
        "partial norm": lambda: norm_ns(machine, tokens / gpus, hidden),
        "nccl": lambda: library_collective(machine, "all_reduce", gpus, size, algorithm="cuMem off, calls queued").ns,
        "multimem": lambda: switch("all_reduce"),
        "reduce-scatter": lambda: switch("reduce_scatter"), "all-gather": lambda: switch("all_gather"),
        # The norm of a GPU's own tokens lies between its loads and stores in the switch, which go on meanwhile.
        "fused": lambda: switch("all_reduce") + machine.wires.latency_ns,
        # Every GPU norms all tokens, after a barrier of the same kernel.
        "simple fusion": lambda: (switch("all_reduce") + norm_ns(machine, tokens, hidden) + machine.in_switch.barrier_ns
                                  - machine.kernels.launch_ns),
        "in turn": lambda: switch("all_reduce") + norm_ns(machine, tokens, hidden)}
    return times_ns[part]()
