"""Estimates and rankings for people: tables, JSON and the plot of a search."""

from typing import Any

from rich.console import Console
from rich.text import Text

from t3sim.analytic.end_to_end.layer import gemm_shapes, gemms_said
from t3sim.analytic.end_to_end.mapping import RECOMPUTE, Mapping
from t3sim.analytic.end_to_end.search import MappingRanking
from t3sim.analytic.end_to_end.training import TrainingJob
from t3sim.analytic.validation.nearby import has_own_constants
from t3sim.base.console import print_table
from t3sim.base.errors import printable
from t3sim.commands.ranges import print_ranges
from t3sim.machine import Machine
from t3sim.study.end_to_end import Checked, ClusterEstimate, checked, cluster_json, model_json, tokens_at_once

#: Parts of a breakdown, for people.
TITLES = {
    "gemm": "GEMMs", "attention": "attention", "elementwise": "element-wise kernels", "recompute": "recomputation",
    "host": "waiting for the host", "head": "logits and embedding", "tp": "tensor parallelism", "ep": "experts",
    "pp": "pipeline messages", "bubble": "pipeline bubbles", "dp": "gradients", "update": "weight update",
    "other": "everything else",
}


def print_model(job: TrainingJob, mapping: Mapping, tokens: int, console: Console) -> None:
    """Print a model, and the forward GEMMs of its layers on one GPU; `tokens`: that the GPU has at once."""
    console.print(Text(printable(str(job.model))))
    for model, count in job.model.kinds:
        shapes = gemm_shapes(model, tokens, mapping.tp, mapping.ep)
        console.print(f"GEMMs of one GPU, forward (M x N x K), {count} layers: {gemms_said(shapes)}")


def print_estimate(answer: ClusterEstimate, tokens: float, console: Console) -> None:
    """Print one estimate: where the time goes, then the totals."""
    job, result, total = answer.job, answer.result, answer.iteration_ns
    console.print(Text.assemble((printable(job.model.name), "bold"), f", {answer.phase}: {answer.mapping.gpus} GPUs, "
                  f"{answer.mapping}, {job.width}, "
                  f"recomputation {RECOMPUTE[answer.mapping.recompute]}; {job.global_batch} sequences of "
                  f"{job.sequence} tokens; machine {answer.cluster.name}; {answer.technique}; seed {answer.seed}"))
    print_model(job, answer.mapping, tokens_at_once(job, answer.mapping, answer.phase), console)
    console.print()
    rows = [(TITLES[name], f"{float(ns) / 1e6:,.2f}", f"{float(ns) / total:.1%}")
            for name, ns in result.breakdown_ns.items() if float(ns)]
    print_table("Run time by part", ("part", "ms", "share"), rows, console,
                ("sum", f"{total / 1e6:,.2f}", "100.0%"))
    low, high = answer.range_ns
    checks = answer.checked
    span = "" if checks.range_ns is None else ", not checked: {:,.2f} to {:,.2f}".format(
        *(ns / 1e6 for ns in checks.range_ns))
    totals = [("time", f"{total / 1e6:,.2f} ms{span}"),
              ("range from uncertain inputs", f"{low / 1e6:,.2f} to {high / 1e6:,.2f} ms"),
              ("TFLOP/s per GPU", f"{float(result.tflops_per_gpu):,.1f}"),
              ("memory per GPU", f"{float(result.memory_bytes) / 1e9:,.1f} GB"),
              ("energy", f"{float(result.energy_joules) / 1e3:,.2f} kJ")]
    if answer.phase == "training":
        totals.append((f"training on {tokens:.3g} tokens", f"{answer.training_days(tokens):,.1f} days"))
    totals += [(f"speedup of {name}, simulated", f"{value:.3f}") for name, value in answer.layer_speedups.items()]
    print_table("Total", ("quantity", "value"), totals, console)
    print_checked(checks, answer.phase, answer.cluster, console)


def print_checked(checks: Checked, phase: str, cluster: Machine, console: Console) -> None:
    """Print how wrong measured trainings or prompts near this one are, or the ranges of all."""
    near = checks.near
    if near is not None:
        kept = (f" Constants of this machine came from the source of {near['kept']} of these rows." if near["kept"]
                else "")
        rows = "1 row" if near["rows"] == 1 else f"{near['rows']} rows"
        console.print(f"Error on measured {phase}s of {cluster.name} within a factor of 2 of this one ({rows}): "
                      f"{near['mean_abs_error']:.1%} on average, {near['worst']:.1%} at worst.{kept}")
        return
    said = (f"Not checked: no measured {'decoding' if phase == 'decode' else phase} of {cluster.name} is within a "
            "factor of 2 of this one")
    if checks.ranges or has_own_constants(cluster):
        print_ranges({TITLES.get(name, f"{name}s"): one for name, one in checks.ranges.items()}, cluster, console, said)
    else:
        console.print(f"{said}.")


def ranking_json(ranking: MappingRanking, cluster: Machine, job: TrainingJob, gpus: int,
                 most: int = 1000) -> dict[str, Any]:
    """Return the fastest `most` mappings and the Pareto front, as `--json` writes them."""
    indices = [i for i in range(len(ranking.pareto)) if i < most or ranking.pareto[i]]
    return {"model": model_json(job.model), "machine": cluster_json(cluster), "gpus": gpus,
            "sequence": job.sequence, "global_batch": job.global_batch, "tried": ranking.tried,
            "seconds": ranking.seconds, "fit": len(ranking.pareto), "mappings": [_entry(ranking, i) for i in indices]}


def _entry(ranking: MappingRanking, index: int) -> dict[str, Any]:
    one, results = ranking.mappings.at(index), ranking.results
    return {"mapping": str(one), "recompute": RECOMPUTE[one.recompute], "iteration_ns": results.iteration_ns[index],
            "tflops_per_gpu": results.tflops_per_gpu[index], "memory_bytes": results.memory_bytes[index],
            "energy_joules": results.energy_joules[index], "pareto": bool(ranking.pareto[index]),
            "breakdown_ns": {name: ns[index] for name, ns in results.breakdown_ns.items()}}


def print_ranking(ranking: MappingRanking, cluster: Machine, job: TrainingJob, gpus: int, most: int,
                  console: Console) -> None:
    """Print the fastest mappings; * marks those that none beats in time, memory and energy together."""
    rows = []
    for index in range(min(most, len(ranking.pareto))):
        entry = _entry(ranking, index)
        rows.append((f"{'* ' if entry['pareto'] else ''}{entry['mapping']} {entry['recompute']}",
                     f"{entry['iteration_ns'] / 1e6:,.1f}", f"{entry['tflops_per_gpu']:.1f}",
                     f"{entry['memory_bytes'] / 1e9:.1f}", f"{entry['energy_joules'] / 1e3:,.1f}"))
    console.print(Text.assemble((printable(job.model.name), "bold"), f" on {gpus} GPUs of {cluster.name}: "
                  f"{job.global_batch} sequences of "
                  f"{job.sequence} tokens"))
    fastest = ranking.mappings.at(0)
    print_model(job, fastest, tokens_at_once(job, fastest, "training"), console)
    console.print()
    print_table("Fastest mappings, with recomputation", ("mapping", "ms", "TFLOP/s\nper GPU", "memory\nGB",
                                                                  "energy\nkJ"), rows, console)
    console.print(f"{len(ranking.pareto):,} of {ranking.tried:,} mappings fit into {cluster.accelerator.memory_gb:g} "
                  f"GB; {ranking.pareto.sum()} (*) are on the Pareto front of time, memory and energy; "
                  f"{ranking.tried / ranking.seconds:,.0f} mappings per second of one core.")
    console.print("The fastest:", end=" ")
    print_checked(checked(cluster, job, fastest, "training", {
        name: ns[0] for name, ns in ranking.results.breakdown_ns.items()}), "training", cluster, console)


def draw_ranking(ranking: MappingRanking, cluster: Machine, job: TrainingJob):
    """Draw time against memory, coloured by energy, with the front."""
    from t3sim.base import plots

    drawn, axes = plots.figure(3.8)
    time_s, memory_gb = ranking.results.iteration_ns / 1e9, ranking.results.memory_bytes / 1e9
    points = axes.scatter(memory_gb, time_s, 6, ranking.results.energy_joules / 1e3, cmap="viridis", alpha=0.7,
                          linewidths=0)
    front = ranking.pareto
    axes.scatter(memory_gb[front], time_s[front], 24, facecolors="none", edgecolors=plots.RED, linewidths=1.1,
                 label="Pareto front of time, memory and energy")
    plots.log_axis(axes, "y")
    axes.set_xlabel("memory per GPU (GB)")
    axes.set_ylabel("time of an iteration (s)")
    axes.set_title(plots.plain(f"{job.model.name} on {cluster.name}: {len(front):,} mappings that fit"), loc="left")
    axes.legend(loc="upper right")
    drawn.colorbar(points, ax=axes, label="energy of an iteration (kJ)")
    return drawn
