"""Figures 4 and 19: the paper's models as operators on its MI210 nodes, with the attention unfused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from t3sim.analytic.end_to_end import layer as layers
from t3sim.analytic.end_to_end.layer import UNFUSED, Implementation
from t3sim.analytic.end_to_end.operations import all_reduce_ns
from t3sim.analytic.end_to_end.training import sliced_gemms
from t3sim.analytic.end_to_end.uncertainty import ranges, samples
from t3sim.analytic.gemm import OPERAND_BYTES
from t3sim.base import plots
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import CLUSTER
from t3sim.papers.figure import TECHNIQUE_TITLES, Figure, Findings, Results, Scope, Table
from t3sim.papers.layers import key_of, runs_of, tasks_of
from t3sim.papers.paper import geomean_and_max
from t3sim.study.results import RunResult
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
    def communication_share(self) -> float:
        return self.all_reduce_ns * len(self.sliced_ns) / self.total_ns

    @property
    def sliced_share(self) -> float:
        """Share of the sub-layers that T3 makes faster."""
        return (sum(self.sliced_ns.values()) + self.all_reduce_ns * len(self.sliced_ns)) / self.total_ns

    def speedup(self, by_sublayer: dict[str, float]) -> float:
        """Return the speedup of the whole if each sub-layer gets its own."""
        saved_ns = sum((gemm + self.all_reduce_ns) * (1 - 1 / by_sublayer[name])
                       for name, gemm in self.sliced_ns.items())
        return self.total_ns / (self.total_ns - saved_ns)


def mi210() -> Machine:
    """Return the cluster of the paper's measurements."""
    return load_machine("mi210", CLUSTER)


def layer_iteration(cluster: Machine, model: str, tp: int, tokens: int, sequence: int, phase: str,
                    kernels: Implementation = UNFUSED) -> LayerIteration:
    """Return one layer's training iteration or prompt."""
    shape, batch = PRESETS[model], tokens // sequence
    backward = layers.backward(cluster, shape, kernels, batch, sequence, layers.Split(tp))
    forward = layers.forward(cluster, shape, kernels, batch, sequence, layers.Split(tp),
                             "forward" if phase == "training" else "prompt")
    passes = [forward, backward] if phase == "training" else [forward]
    gemms_by_pass = sliced_gemms(forward, backward)
    gemms_ns = {**gemms_by_pass["forward"], **(gemms_by_pass["backward"] if phase == "training" else {})}
    reduce_ns = float(all_reduce_ns(cluster, OPERAND_BYTES * tokens * shape.hidden, tp))
    title = MODELS[model].title if model in MODELS else model
    return LayerIteration(
        model, f"{title}, TP {tp}", tp, phase,
        float(sum(layer_pass.total for layer_pass in passes)) + reduce_ns * len(gemms_ns),
        float(sum(layer_pass.attention for layer_pass in passes)), reduce_ns,
        {name: float(ns) for name, ns in gemms_ns.items()})


def paper_iterations(cluster: Machine, kernels: Implementation = UNFUSED) -> Iterator[LayerIteration]:
    """Give the models of table 2, each training and prompt."""
    for model in MODELS.values():
        for tp in model.tp_degrees:
            for phase in ("training", "prompt"):
                yield layer_iteration(cluster, model.name, tp, model.tokens, model.sequence_length, phase, kernels)


# Figure 4: how much of an iteration is communication (section 2.4).

#: "futuristic" models at TP 64: Megatron's of one trillion parameters; the paper does not describe its own.
_FUTURE = ("megatron-1t", 64, 2048, 1024)
_GROUPS = {"mega-gpt-2": "mega_gpt_2", "t-nlg": "t_nlg", "gpt-3": "large", "palm": "large", "mt-nlg": "large",
           "megatron-1t": "future"}


def _iterations(cluster: Machine, kernels) -> list[LayerIteration]:
    future = [layer_iteration(cluster, *_FUTURE, phase, kernels) for phase in ("training", "prompt")]
    return [*paper_iterations(cluster, kernels), *future]


def _largest(iterations: list[LayerIteration]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for layer in iterations:
        key = f"{_GROUPS[layer.model]}_communication_max_percent"
        shares[key] = max(shares.get(key, 0.0), 100 * layer.communication_share)
    return shares


def evaluate_figure4(setup: Scope, results: Results) -> Findings:
    cluster = mi210()
    iterations, split_iterations = _iterations(cluster, UNFUSED), _iterations(cluster, SPLIT)
    ours, split_shares = _largest(iterations), _largest(split_iterations)
    rows = [(f"{layer.title}, {layer.phase}", f"{100 * layer.communication_share:.0f} %",
             f"{100 * layer.sliced_share:.0f} %", f"{100 * layer.attention_ns / layer.total_ns:.0f} %",
             f"{100 * split.communication_share:.0f} %")
            for layer, split in zip(iterations, split_iterations)]
    return Findings(
        text="If every GPU computes the whole attention, communication takes up to "
             f"{ours['mega_gpt_2_communication_max_percent']:.0f} % of an iteration of Mega-GPT-2 and "
             f"{ours['t_nlg_communication_max_percent']:.0f} % of T-NLG. (Section 6.3 says that the attention is not "
             "sliced and takes 40 to 45 % of the time.) If the attention is split over the GPUs, the shares are "
             f"{split_shares['mega_gpt_2_communication_max_percent']:.0f} and "
             f"{split_shares['t_nlg_communication_max_percent']:.0f} %. The paper's four shares are between the two.",
        ours={**ours, **{f"{key}_split_attention": value for key, value in split_shares.items()}},
        ranges=ranges(_largest(_iterations(sample, UNFUSED)) for sample in samples(cluster, setup.seed)),
        tables=[Table("Shares of a layer's time", ("model", "all-reduce", "sliced GEMM and all-reduce", "attention",
                                                  "all-reduce if the attention is split"), rows)],
        plots={"figure4": lambda: _draw_figure4(iterations)})


def _draw_figure4(iterations: list[LayerIteration]):
    figure, axes = plots.figure(3.2)
    plots.stacked_bars(axes, [*range(len(iterations))], (
        (title, colour, "", [100 * share(layer) for layer in iterations]) for title, colour, share in (
            ("all-reduce", plots.ORANGE, lambda layer: layer.communication_share),
            ("sliced GEMM", plots.BLUE, lambda layer: layer.sliced_share - layer.communication_share),
            ("attention", plots.SKY, lambda layer: layer.attention_ns / layer.total_ns),
            ("other", plots.LIGHT, lambda layer: 1 - layer.sliced_share - layer.attention_ns / layer.total_ns))))
    axes.set_xticks(range(len(iterations)), [f"{layer.title}\n{layer.phase}" for layer in iterations], rotation=60,
                    ha="right", fontsize=7)
    axes.set_ylabel("share of the time (%)")
    plots.legend_above(axes, 4)
    return figure


FIGURE04 = Figure("figure4", "Communication in whole iterations (figure 4)", lambda setup: (), evaluate_figure4)


# Figure 19: what faster sub-layers make of whole iterations (sections 6.3 and 6.4).

_TECHNIQUES = ("t3", "t3-mca", "t3-mca+", "ideal-overlap")


def _speedups(runs: list[RunResult], iteration: LayerIteration) -> dict[str, float] | None:
    """Return the speedup by technique; None if a sub-layer was not run."""
    layer_speedups = {run.workload.sublayer: run.speedup for run in runs
                      if (run.workload.model, run.workload.tp) == (iteration.model, iteration.tp)}
    if not set(iteration.sliced_ns) <= set(layer_speedups):
        return None
    return {name: iteration.speedup({sub: layer_speedups[sub][name] for sub in iteration.sliced_ns})
            for name in _TECHNIQUES}


def _layer_gains(cluster: Machine, runs: list[RunResult]) -> list[tuple[LayerIteration, dict[str, float]]]:
    return [(layer, speedups) for layer in paper_iterations(cluster) if (speedups := _speedups(runs, layer))]


def _gains(layers, large: set[str]) -> dict[str, float]:
    """Return percent, by phase, size of the models and technique."""
    ours = {}
    for phase in ("training", "prompt"):
        for size, group in (("", [s for layer, s in layers if layer.phase == phase and layer.model not in large]),
                            ("large_", [s for layer, s in layers if layer.phase == phase and layer.model in large])):
            for name in _TECHNIQUES if group else ():
                ours |= geomean_and_max(f"{size}{phase}_{key_of(name)}", [speedups[name] for speedups in group])
    return ours


def evaluate_figure19(setup: Scope, results: Results) -> Findings:
    runs = runs_of(setup, results, setup.layers)
    large = {workload.model for workload in setup.large}
    cluster = mi210()
    layer_gains = _layer_gains(cluster, runs)
    ours = _gains(layer_gains, large)
    return Findings(
        text="With T3-MCA, whole iterations of the smaller models gain "
             f"{ours['training_t3_mca_geomean_percent']:.1f} % in training and "
             f"{ours['prompt_t3_mca_geomean_percent']:.1f} % in the prompt phase (geometric means). Each sub-layer has "
             "its own simulated speedup; its share of the iteration is taken from figure 4.",
        ours=ours,
        ranges=ranges(_gains(_layer_gains(sample, runs), large) for sample in samples(cluster, setup.seed)),
        tables=[Table("Speedup of whole iterations", ("model", "sliced share", *(TECHNIQUE_TITLES[name] for name in
                                                                               _TECHNIQUES)), [
            (f"{layer.title}, {layer.phase}", f"{100 * layer.sliced_share:.0f} %",
             *(f"{speedups[name]:.3f}" for name in _TECHNIQUES))
            for layer, speedups in layer_gains])],
        plots={"figure19": lambda: _draw_figure19(layer_gains)})


def _draw_figure19(layer_gains):
    figure, axes = plots.figure(3.4)
    series = {name: [speedups[name] for _, speedups in layer_gains] for name in _TECHNIQUES}
    plots.grouped_bars(axes, [f"{layer.title}\n{layer.phase}" for layer, _ in layer_gains], series,
                       plots.TECHNIQUE_COLOURS, TECHNIQUE_TITLES, baseline=1.0)
    axes.tick_params(axis="x", labelrotation=60, labelsize=7)
    axes.set_ylabel("speedup of the iteration")
    plots.legend_above(axes, len(series))
    return figure


FIGURE19 = Figure("figure19", "Speedup of whole iterations (figure 19)",
                  lambda setup: tasks_of(setup, setup.layers), evaluate_figure19, per_machine=True)
