"""Figure 4: how much of an iteration is communication (section 2.4)."""

from t3sim.analytic.end_to_end.uncertainty import ranges, samples
from t3sim.base import plots
from t3sim.machine import Machine
from t3sim.papers.figure import Figure, Findings, Results, Scope, Table
from t3sim.papers.iterations import SPLIT, UNFUSED, LayerIteration, layer_iteration, mi210, paper_iterations

#: "futuristic" models at TP 64: Megatron's of one trillion parameters; the paper does not describe its own.
_FUTURE = ("megatron-1t", 64, 2048, 1024)
_GROUPS = {"mega-gpt-2": "mega_gpt_2", "t-nlg": "t_nlg", "gpt-3": "large", "palm": "large", "mt-nlg": "large",
           "megatron-1t": "future"}


def _iterations(cluster: Machine, kernels) -> list[LayerIteration]:
    future = [layer_iteration(cluster, *_FUTURE, phase, kernels) for phase in ("training", "prompt")]
    return [*paper_iterations(cluster, kernels), *future]


def _largest(iterations: list[LayerIteration]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for one in iterations:
        key = f"{_GROUPS[one.model]}_communication_max_percent"
        shares[key] = max(shares.get(key, 0.0), 100 * one.communication)
    return shares


def evaluate(setup: Scope, results: Results) -> Findings:
    cluster = mi210()
    iterations, split = _iterations(cluster, UNFUSED), _iterations(cluster, SPLIT)
    ours, with_split = _largest(iterations), _largest(split)
    rows = [(f"{one.title}, {one.phase}", f"{100 * one.communication:.0f} %", f"{100 * one.sliced:.0f} %",
             f"{100 * one.attention_ns / one.total_ns:.0f} %", f"{100 * other.communication:.0f} %")
            for one, other in zip(iterations, split)]
    return Findings(
        text=f"Communication takes up to {ours['mega_gpt_2_communication_max_percent']:.0f} % of an iteration of "
             f"Mega-GPT-2 and {ours['t_nlg_communication_max_percent']:.0f} % of T-NLG's, if every GPU computes the "
             "whole attention (section 6.3 says that it is not sliced, and gives it 40 to 45 % of the time). With the "
             "attention split over the GPUs the shares are "
             f"{with_split['mega_gpt_2_communication_max_percent']:.0f} and "
             f"{with_split['t_nlg_communication_max_percent']:.0f} %: the paper's four shares lie between the two.",
        ours={**ours, **{f"{key}_split_attention": value for key, value in with_split.items()}},
        ranges=ranges(_largest(_iterations(sample, UNFUSED)) for sample in samples(cluster, setup.seed)),
        tables=[Table("Shares of a layer's time", ("model", "all-reduce", "sliced GEMM and all-reduce", "attention",
                                                  "all-reduce if the attention is split"), rows)],
        plots={"figure4": lambda: _draw(iterations)})


def _draw(iterations: list[LayerIteration]):
    drawn, axes = plots.figure(3.2)
    plots.stacked_bars(axes, [*range(len(iterations))], (
        (title, colour, "", [100 * share(one) for one in iterations]) for title, colour, share in (
            ("all-reduce", plots.ORANGE, lambda one: one.communication),
            ("sliced GEMM", plots.BLUE, lambda one: one.sliced - one.communication),
            ("attention", plots.SKY, lambda one: one.attention_ns / one.total_ns),
            ("other", plots.LIGHT, lambda one: 1 - one.sliced - one.attention_ns / one.total_ns))))
    axes.set_xticks(range(len(iterations)), [f"{one.title}\n{one.phase}" for one in iterations], rotation=60,
                    ha="right", fontsize=7)
    axes.set_ylabel("share of the time (%)")
    axes.legend(loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1.16))
    return drawn


FIGURE04 = Figure("figure4", "Communication in whole iterations (figure 4)", lambda setup: (), evaluate)
