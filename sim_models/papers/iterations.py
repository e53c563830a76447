"""Common parts of figures 4 and 19: the paper's models as operators on its MI210 nodes, with the attention unfused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from t3sim.analytic.end_to_end import layer as layers
from t3sim.analytic.end_to_end.layer import UNFUSED, Implementation
from t3sim.analytic.end_to_end.training import sliced_gemms
from t3sim.analytic.gemm import OPERAND_BYTES
from t3sim.analytic.rings import tier_all_reduce_ns
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import CLUSTER
from t3sim.workload.transformer import PRESETS
from t3sim.workload.workloads import MODELS

#: The attention split over the GPUs, as Megatron-LM does; T3's projection has it on each GPU.
SPLIT = replace(UNFUSED, heads_split=True)


@dataclass(frozen=True)
class LayerIteration:
    """One layer of a model on one GPU, ns: everything, and the GEMMs with their all-reduces by sub-layer."""

    model: str
    title: str
    tp: int
    phase: str  #: "training", "prompt"
    total_ns: float
    attention_ns: float
    all_reduce_ns: float  #: of one sub-layer
    sliced_ns: dict[str, float]  #: GEMM alone, by sub-layer

    @property
    def communication(self) -> float:
        return self.all_reduce_ns * len(self.sliced_ns) / self.total_ns

    @property
    def sliced(self) -> float:
        """Share of the sub-layers that T3 makes faster."""
        return (sum(self.sliced_ns.values()) + self.all_reduce_ns * len(self.sliced_ns)) / self.total_ns

    def speedup(self, by_sublayer: dict[str, float]) -> float:
        """Return the speedup of the whole if each sub-layer gets its own."""
        saved = sum((gemm + self.all_reduce_ns) * (1 - 1 / by_sublayer[name]) for name, gemm in self.sliced_ns.items())
        return self.total_ns / (self.total_ns - saved)


def mi210() -> Machine:
    """Return the cluster of the paper's measurements."""
    return load_machine("mi210", CLUSTER)


def layer_iteration(cluster: Machine, model: str, tp: int, tokens: int, sequence: int, phase: str,
                    kernels: Implementation = UNFUSED) -> LayerIteration:
    """Return one layer's training iteration or prompt."""
    shape, batch = PRESETS[model], tokens // sequence
    gpu = cluster.accelerator
    back = layers.backward(gpu, shape, kernels, batch, sequence, layers.Split(tp))
    ahead = layers.forward(gpu, shape, kernels, batch, sequence, layers.Split(tp),
                           "forward" if phase == "training" else "prompt")
    passes = [ahead, back] if phase == "training" else [ahead]
    sliced = sliced_gemms(ahead, back)
    chosen = {**sliced["forward"], **(sliced["backward"] if phase == "training" else {})}
    one = float(tier_all_reduce_ns(cluster.intra, OPERAND_BYTES * tokens * shape.hidden, tp))
    title = MODELS[model].title if model in MODELS else model
    return LayerIteration(
        model, f"{title}, TP {tp}", tp, phase, float(sum(one_pass.total for one_pass in passes)) + one * len(chosen),
        float(sum(one_pass.attention for one_pass in passes)), one, {name: float(ns) for name, ns in chosen.items()})


def paper_iterations(cluster: Machine, kernels: Implementation = UNFUSED) -> Iterator[LayerIteration]:
    """Give the models of table 2, each training and prompt."""
    for model in MODELS.values():
        for tp in model.tp_degrees:
            for phase in ("training", "prompt"):
                yield layer_iteration(cluster, model.name, tp, model.tokens, model.sequence_length, phase, kernels)
