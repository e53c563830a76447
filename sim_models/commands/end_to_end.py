"""`t3 end-to-end`: a training iteration, prompt or decoding step of a Transformer on a cluster, in closed form."""

from collections.abc import Collection
from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import (
    JsonOption,
    SeedOption,
    check_plot,
    decimal_number,
    file_name,
    say_format_not_taken,
    whole_number,
    write_plot,
    write_results,
)

_TOP = 10


def end_to_end(
    model: Annotated[str, typer.Option(
        metavar="NAME|FILE", help="A Transformer by name (megatron-145b, llama-3.1-405b, ...), or a Hugging Face "
                                  "config.json.")],
    gpus: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="Number of GPUs.")],
    sequence: Annotated[int, typer.Option(
        metavar="S", parser=whole_number, help="Tokens per sequence; for decode, tokens in the context.")] = 2048,
    global_batch: Annotated[int, typer.Option(
        metavar="B", parser=whole_number, help="Sequences per iteration.")] = 512,
    machine: Annotated[str, typer.Option(
        metavar="NAME|FILE", help="a100-sxm, h100-sxm, gb200, mi300x, mi210, t3-table1, ..., or a TOML file.",
    )] = "a100-sxm",
    mapping: Annotated[str | None, typer.Option(
        metavar="tp=8,pp=4,...", help="Also dp, micro, interleave, sp, zero, ep. Default: the fastest that fits.",
    )] = None,
    recompute: Annotated[str | None, typer.Option(
        metavar="full|selective|none", help="Recomputation in the backward pass. Default: none.")] = None,
    phase: Annotated[str, typer.Option(metavar="training|prompt|decode", help="Phase to time.")] = "training",
    technique: Annotated[str, typer.Option(
        metavar="NAME", help="Overlap of GEMM and all-reduce: sequential, or a technique of `t3 run`, which "
        "simulates the layers on the machine's cycle level.")] = "sequential",
    kernels: Annotated[str | None, typer.Option(
        metavar="megatron|flash|unfused", help="Set of fused kernels. Default: flash on GPUs with a library model, "
        "otherwise megatron.")] = None,
    dtype: Annotated[str | None, typer.Option(
        metavar="NAME", help="Operands of GEMMs with weights: bf16 (default), fp16, fp8 or fp4, if the machine has "
        "a rate for it.")] = None,
    search: Annotated[bool, typer.Option("--search", help="Rank all mappings that fit.")] = False,
    tokens: Annotated[float, typer.Option(
        metavar="N", parser=decimal_number, show_default="3e11", help="Tokens of the whole training.")] = 3e11,
    ignore_memory: Annotated[bool, typer.Option(
        "--ignore-memory", help="Time a mapping even if it does not fit into memory.")] = False,
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="With --search: plot the mappings' time, memory and energy, SVG or PNG.",
    )] = None,
    json: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Estimate time, memory and energy of a training iteration or an inference, with breakdown and range."""
    from t3sim.analytic.end_to_end.layer import IMPLEMENTATIONS
    from t3sim.analytic.end_to_end.mapping import RECOMPUTE, check_mapping, parse_mapping
    from t3sim.analytic.end_to_end.training import TrainingJob
    from t3sim.analytic.gemm import width_of
    from t3sim.base.console import output_console, progress_bar
    from t3sim.study.end_to_end import PHASES, estimate, load_cluster
    from t3sim.workload.model_file import load_transformer

    width = "bf16" if dtype is None else dtype
    for option, value, allowed in (("--phase", phase, PHASES), ("--technique", technique, _techniques(technique)),
                                   ("--kernels", "flash" if kernels is None else kernels, IMPLEMENTATIONS),
                                   ("--dtype", width, ("bf16", "fp16", "fp8", "fp4")),
                                   ("--recompute", "none" if recompute is None else recompute, RECOMPUTE)):
        if value not in allowed:
            raise BadInput(f"{option} {value[:40]!r} is unknown: allowed are {', '.join(allowed)}")
    for option, value, highest in (("--gpus", gpus, 1 << 20), ("--sequence", sequence, 1 << 24),
                                   ("--global-batch", global_batch, 1 << 24)):
        if not 1 <= value <= highest:
            raise BadInput(f"{option} {value} is not possible: 1 to {highest}")
    if not 1 <= tokens <= 1e18:
        raise BadInput(f"--tokens {tokens:g} is not possible: 1 to 1e18")
    for option, given in (("--mapping", mapping is not None), ("--phase", phase != "training"),
                          ("--technique", technique != "sequential"), ("--recompute", recompute is not None)):
        if search and given:
            raise BadInput(f"{option} does not go with --search, which tries all mappings of a training")
    if plot is not None and not search:
        raise BadInput(f"--plot {plot[:40]!r} goes with --search only")
    check_plot(plot)
    described, cluster = load_transformer(model), load_cluster(machine)
    used_kernels = IMPLEMENTATIONS[kernels or ("flash" if cluster.intra is None else "megatron")]
    job = TrainingJob(described, sequence, global_batch, used_kernels, width_of(width))
    if dtype is None:
        say_format_not_taken(described)

    from t3sim.analytic.end_to_end.search import search as search_mappings
    from t3sim.commands import end_to_end_report as show

    if search:
        ranking = search_mappings(cluster, job, gpus)
        if plot is not None:
            write_plot(plot, lambda: show.draw_ranking(ranking, cluster, job))
        if write_results(show.ranking_json(ranking, cluster, job, gpus), json):
            show.print_ranking(ranking, cluster, job, gpus, _TOP, output_console())
        return
    if mapping is None and phase == "training" and recompute is None:
        used_mapping = search_mappings(cluster, job, gpus).mappings.at(0)
    elif mapping is None:
        raise BadInput("--phase and --recompute need a --mapping, for example tp=8,pp=4,dp=2,micro=1")
    else:
        used_mapping = parse_mapping(mapping, recompute or "none")
    check_mapping(used_mapping, described, gpus, global_batch, used_kernels.heads_split)
    with progress_bar(() if technique == "sequential" else (technique,)) as progress:
        result = estimate(cluster, job, used_mapping, phase, technique, seed, not ignore_memory, progress)
    days = {"training_days": result.training_days(tokens)} if phase == "training" else {}
    if write_results(result.to_json() | days, json):
        show.print_estimate(result, tokens, output_console())


def _techniques(technique: str) -> Collection[str]:
    """Return the techniques that are allowed; of the default, which simulates nothing, only itself."""
    if technique == "sequential":
        return (technique,)
    from t3sim.mechanisms.table import TECHNIQUES

    return TECHNIQUES
