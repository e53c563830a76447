"""`t3 run`: one fused sub-layer on the RTL, against the sequential baseline and the ideals."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.commands.options import (
    JsonOption,
    MachineOption,
    SeedOption,
    check_plot_target,
    file_name,
    read_or_written,
    simulations_at_once,
    whole_number,
    write_plot,
)
from t3sim.errors import BadInput, choices, named_once
from t3sim.rtl.arbiter import POLICIES

if TYPE_CHECKING:
    from t3sim.workloads import Workload

#: `techniques.table.BY_DEFAULT`, written out so that `--help` need not import it.
DEFAULT_TECHNIQUES = ("sequential", "t3", "t3-mca", "t3-mca+", "ideal-overlap", "ideal-rs-nmc")
#: `exchange.FUSED_OPERATORS`, written out for the same reason.
FUSED_OPERATORS = ("gemm-rs", "gemm-ar", "gemm-ag", "gemm-a2a", "ag-gemm", "gemv-ar", "embedding-a2a")
ALONE = ("gemm", "decode", "gemv", "embedding")  #: kernels without a collective
OPERATORS = (*FUSED_OPERATORS, *ALONE)


def run(
    model: Annotated[str | None, typer.Option(
        metavar="MODEL|FILE", help="mega-gpt-2, t-nlg, gpt-3, palm or mt-nlg; t-nlg if not given; or a Hugging Face "
        "config.json, whose sub-layers are run one after the other.")] = None,
    sublayer: Annotated[str | None, typer.Option(
        metavar="SUBLAYER", help="op, fc1, fc2 or ip; if not given fc2, fc1 with --operator "
        "ag-gemm, all of a config.json.")] = None,
    tokens: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Tokens of a batch for a config.json; 8192 if not given.")] = None,
    dtype: Annotated[str | None, typer.Option(
        metavar="NAME", help="Format of every element: fp16, bf16 or fp32; fp16, or a config.json's or trace's, if not "
        "given.")] = None,
    chakra: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Instead of a model: a Chakra execution trace, JSON or protobuf (.et). "
        "Each GEMM whose output is all-reduced (or what --operator says) is run on --tp GPUs.")] = None,
    tp: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number,
        help="Tensor-parallel degree: GPUs in the ring, 2 to 64; 8 if not given.")] = None,
    gemm: Annotated[str | None, typer.Option(
        metavar="MxNxK", help="Instead of a model: a GEMM of one's own, that of one device. Needs --devices.")] = None,
    devices: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="GPUs in the ring for --gemm, 2 to 64.")] = None,
    operator: Annotated[str, typer.Option(
        metavar="NAME", help="gemm-rs: a GEMM fused with its reduce-scatter, then the all-gather; gemm-ar: fused with "
        "both, slice by slice; gemm-ag, gemm-a2a: each GPU makes the output of its part of the tokens, which all "
        "gather, or of which each gets a part; ag-gemm: a GEMM whose workgroups start when the activations have come "
        "that they need, from an all-gather (fc1, ip forward, fc2, op backward); gemv-ar: --gemm Mx1xK, a matrix times "
        "a vector, all-reduced; embedding-a2a: sums of --embedding, each to its sample's GPU; gemm, decode (at "
        "most 512 tokens), gemv, embedding: those kernels alone.",
    )] = "gemm-rs",
    level: Annotated[str, typer.Option(
        metavar="NAME", help="cycle: with RTL in the loop; event: tile by tile, --gemm on machines a100-nvlink, "
        "a100-pcie, h800-nvlink, mi210-x4, dgx-v100.")] = "cycle",
    kernel: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="A custom kernel alone, .npz; see docs/reference/kernels.md.")] = None,
    technique: Annotated[str, typer.Option(
        metavar="A,B,...", show_default=False,
        help=f"Of {', '.join(DEFAULT_TECHNIQUES)}, which are run if none is given, and others: `t3 techniques`.",
    )] = ",".join(DEFAULT_TECHNIQUES),
    comm_units: Annotated[int, typer.Option(
        metavar="N", parser=whole_number,
        help="Compute units that the communication kernels of technique decomposed have.")] = 16,
    topology: Annotated[str | None, typer.Option(
        metavar="NAME", help="Links between GPUs: ring, switch, with a link from each GPU to it, full, which "
        "divides a GPU's bandwidth among links to all others, torus:2x4, or nodes:2x4, 2 of 4 GPUs with a card each. "
        "Not given: a ring, and a switch for an all-to-all.")] = None,
    algorithm: Annotated[str | None, typer.Option(
        metavar="NAME", help="How the techniques with Track & Trigger exchange, the topology's own if not given: ring, "
        "or direct, to the owner at once (T3 paper, section 7.1), with --topology switch or full, in-switch, which "
        "adds and copies there (7.4), with --topology switch, both-rings, half of the output each way around, or "
        "hierarchical (all-rings, too, on a torus), of which the baseline does the same; on a torus and nodes every "
        "GPU is simulated.")] = None,
    sums: Annotated[str, typer.Option(
        metavar="NAME", help="arrival: terms of a sum are added as they come; fixed: refuse an --algorithm whose sums "
        "may have other bits in another run.")] = "arrival",
    signal: Annotated[str | None, typer.Option(
        metavar="NAME", help="What must be complete before it is sent on, or known to have come: wavefront, workgroup, "
        "wave-group (those that run at once) or shard (a GPU's whole chunk). The machine's DMA blocks, wavefronts of "
        "t3-table1, and a workgroup's tile of fused-wg, if not given; with --level event of flux, too.")] = None,
    flux_order: Annotated[str, typer.Option(
        metavar="NAME", help="Order of tiles in technique flux: shifted (from the next GPU's on), or same on all GPUs.",
    )] = "shifted",
    flux_transfer: Annotated[str | None, typer.Option(
        metavar="NAME", help="With --level event: push (each GPU writes its rows to the others; the default) or pull.",
    )] = None,
    flux_pieces: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number,
        help="Communication tiles that a GPU's rows are cut into with --operator ag-gemm; 1 if not given.")] = None,
    tune: Annotated[bool, typer.Option(
        "--tune", help="The best of all of Flux's choices: --flux-order, --flux-pieces, and with --level event "
        "--flux-transfer and the library's kernels.")] = False,
    embedding: Annotated[str | None, typer.Option(
        metavar="BATCHxTABLES", help="The batch of all GPUs and tables per GPU of --operator embedding and "
        "embedding-a2a.")] = None,
    locality: Annotated[str | None, typer.Option(
        metavar="NAME|FILE", help="Which rows of its table a sum has: uniform, if not given, zipf:EXPONENT, or as "
        "often as a file's weights say, one for each row.")] = None,
    slice_tasks: Annotated[int | None, typer.Option(
        "--slice", metavar="N", parser=whole_number,
        help="With --level event: tasks of a persistent kernel that are sent and signalled together.")] = None,
    no_software: Annotated[bool, typer.Option(
        "--no-software", help="With --level event: libraries and hosts take no time.")] = False,
    policy: Annotated[str | None, typer.Option(
        metavar="NAME", help=f"The arbiters' policy in technique t3: {', '.join(POLICIES)}.")] = None,
    split_k: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Parts of the GEMM's K, each of which a workgroup of its own computes: "
        "a kernel adds them up, or Track & Trigger's memory (T3 paper, section 7.7).")] = None,
    machine: MachineOption = "t3-table1",
    every_gpu: Annotated[bool, typer.Option(
        "--every-gpu", help="An RTL instance per GPU, instead of one that stands for all.")] = False,
    skew: Annotated[str | None, typer.Option(
        metavar="SPEC", help="With --every-gpu: what tells GPUs apart, late:3:20000 (GPU 3 starts 20,000 ns late), "
        "clock:1:0.9 (of GPU 1), dead:2:4 (compute units of GPU 2 that do not work), link:1-0:30 (GB/s from 1 to 0, "
        "the way of T3's ring), a comma between.")] = None,
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Draw where each technique's time goes, as SVG or PNG.")] = None,
    insist: Annotated[bool, typer.Option(
        "--insist", help="Run what would take more than a day, or more memory than there is, too.")] = False,
    jobs: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Simulations at once, or threads of one of --every-gpu; as many as "
        "cores if not given.")] = None,
    json: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Run one fused sub-layer on the RTL; without options T-NLG FC-2 at TP=8, full size."""
    from dataclasses import replace

    from t3sim.interchange.config import lacking
    from t3sim.machine import load_machine
    from t3sim.mechanisms.split_k import with_split_k
    from t3sim.study.results import check_policy, check_techniques
    from t3sim.support.output import check_json_target, write_json

    if level == "event":
        from t3sim.commands.event_level import Asked, run_event_level

        for option, value in (("--model", model), ("--sublayer", sublayer), ("--tokens", tokens), ("--chakra", chakra),
                              ("--tp", tp), ("--kernel", kernel),
                              ("--policy", policy), ("--skew", skew), ("--plot", plot),
                              ("--every-gpu", every_gpu or None), ("--seed", seed or None), ("--jobs", jobs),
                              ("--locality", locality), ("--split-k", split_k), ("--dtype", dtype),
                              ("--topology", None if topology == "ring" else topology),
                              ("--algorithm", None if algorithm == "ring" else algorithm),
                              ("--sums", sums if sums != "arrival" else None)):
            if value is not None:
                raise BadInput(f"{option if value is True else f'{option} {value}'} does not go with --level event")
        run_event_level(Asked(
            operator, gemm, devices,
            None if technique == ",".join(DEFAULT_TECHNIQUES) else
            named_once("--technique", (name.strip() for name in technique.split(","))),
            machine, comm_units, flux_order, flux_transfer, flux_pieces, tune, not no_software, embedding, slice_tasks,
            signal), json)
        return
    if level != "cycle":
        raise BadInput(f"--level {level!r} is unknown: allowed are cycle, event")
    for option, value in (("--flux-transfer", flux_transfer), ("--no-software", no_software or None),
                          ("--slice", slice_tasks)):
        if value is not None:
            raise BadInput(f"{option if value is True else f'{option} {value}'} needs --level event")
    if operator not in OPERATORS:
        raise BadInput(f"--operator {operator!r} is unknown: allowed are {choices(operator, OPERATORS)}")
    for option, value in (("--embedding", embedding), ("--locality", locality)):
        if value is not None and not operator.startswith("embedding"):
            raise BadInput(f"{option} {value[:40]} is for --operator embedding and embedding-a2a")
    if kernel is not None or operator in ALONE:
        given = {"--model": model, "--sublayer": sublayer, "--tokens": tokens, "--chakra": chakra, "--tp": tp,
                 "--devices": devices, "--policy": policy, "--every-gpu": every_gpu or None, "--skew": skew,
                 "--plot": plot, "--jobs": jobs, "--signal": signal,
                 "--topology": None if topology == "ring" else topology,
                 "--algorithm": None if algorithm == "ring" else algorithm,
                 "--sums": sums if sums != "arrival" else None,
                 "--technique": None if technique == ",".join(DEFAULT_TECHNIQUES) else technique}
        if others := [f"{option} {value}" for option, value in given.items() if value is not None]:
            raise BadInput(f"{others[0].removesuffix(' True')} does not go with a kernel alone")
        if kernel is not None and (operator != "gemm-rs" or gemm is not None):
            raise BadInput(f"--kernel {kernel} is an operator of its own: neither --operator nor --gemm goes with it")
        if kernel is not None and split_k is not None:
            raise BadInput(f"--split-k {split_k} does not go with --kernel {kernel}, which says what its parts are")
        _run_alone(kernel, None if kernel else _small_workload(operator, gemm, None, embedding, locality, seed),
                   machine, split_k, insist, json)
        return
    if operator in ("gemv-ar", "embedding-a2a"):
        for option, value in (("--model", model), ("--sublayer", sublayer), ("--tp", tp), ("--tokens", tokens),
                              ("--chakra", chakra)):
            if value is not None:
                raise BadInput(f"{option} {str(value)[:40]} does not go with --operator {operator}")
        found = [(_small_workload(operator, gemm, devices, embedding, locality, seed), 1)]
    else:
        found = asked_workloads(model, sublayer, tp, gemm, devices, chakra, tokens, operator)
    if (model or "").endswith(".json") and dtype is None and (words := lacking(model)):
        print(f"t3: {words}", file=sys.stderr)
    workloads = [one if dtype is None else replace(one, dtype=dtype) for one, _ in found]
    if plot is not None and len(workloads) > 1:
        raise BadInput(f"--plot {plot[:40]} is of one sub-layer, and here are {len(workloads)}")
    names = tuple(name.strip() for name in technique.split(","))
    check_techniques(names)
    check_policy(policy, names)
    jobs = simulations_at_once(jobs)
    if skew is not None and not every_gpu:
        raise BadInput(f"--skew {skew} needs --every-gpu: one GPU that stands for all is like the others")
    if skew == "":
        raise BadInput("--skew '' is empty: late:GPU:NS, clock:GPU:SHARE, dead:GPU:UNITS or "
                       "link:FROM-TO:GB/S, for example late:3:20000")
    check_json_target(json)
    check_plot_target(plot)
    described = with_split_k(load_machine(machine), split_k)

    from t3sim.mechanisms.decomposed import COMMUNICATION_UNITS, units_left
    from t3sim.mechanisms.exchange import fused_with
    from t3sim.mechanisms.flux import FluxOptions, tuned
    from t3sim.runs.operators import with_its_kernel
    from t3sim.runs.skew import Skew
    from t3sim.study.estimate import check, estimate
    from t3sim.study.report import output_console, print_run, print_together, progress_bar
    from t3sim.study.techniques import kernels_of, run_sublayer
    from t3sim.techniques.choices import Choices
    from t3sim.techniques.track_trigger import FUSIONS

    for option, value, default, needed in (("--comm-units", comm_units, COMMUNICATION_UNITS, "decomposed"),
                                           ("--flux-order", flux_order, FluxOptions().order, "flux"),
                                           ("--flux-pieces", flux_pieces, None, "flux"),
                                           ("--tune", tune, False, "flux")):
        if value != default and needed not in names:
            raise BadInput(f"{option if value is True else f'{option} {value}'} is for technique {needed}, which "
                           f"--technique {technique} does not name")
    exchange = fused_with(operator, topology, algorithm, signal)
    workloads = [with_its_kernel(described, one, one.tp if exchange.of_parts else 1) for one in workloads]
    if flux_pieces is not None and not exchange.before:
        raise BadInput(f"--flux-pieces {flux_pieces} cuts what an all-gather brings: it needs --operator ag-gemm")
    if tune and (flux_pieces is not None or flux_order != FluxOptions().order):
        raise BadInput("--tune chooses itself: neither --flux-order nor --flux-pieces goes with it")
    for one in workloads:
        exchange.check_sums(sums, one.tp, described.gpu.k_parts)
    fused = (*FUSIONS, "fused-wg")
    for option, value in (("--signal", signal), ("--algorithm", None if algorithm == "ring" else algorithm)):
        if value and not exchange.of_parts and not set(fused) & set(names):
            raise BadInput(f"{option} {value} is for {', '.join(fused)}, of which --technique {technique} names none")
    chosen = [Choices(policy, exchange,
                      Skew.of(skew or "", one.tp) if every_gpu else None, comm_units,
                      tuned(exchange.before, one.m // one.tp) if tune else (FluxOptions(
                          flux_order, 1 if flux_pieces is None else flux_pieces),))
              for one in workloads]
    for choice, one in zip(chosen, workloads):
        if choice.skew is not None:
            choice.skew.check(choice.exchange.links(one.tp), described)
    machines = [choice.exchange.hardware(described, one) for choice, one in zip(chosen, workloads)]
    if "decomposed" in names:
        units_left(described.gpu.compute_units, comm_units)
    for choice, one, hardware in zip(chosen, workloads, machines):
        expected = estimate(hardware, one, [kernel for name in names for kernel in kernels_of(name, choice)],
                            jobs=jobs)
        if not insist:
            check(expected, one)
        which = f"{one.title}: " if len(workloads) > 1 else ""
        print(f"t3: {which}estimated: {expected}", file=sys.stderr, flush=True)
    results = []
    for choice, one, hardware in zip(chosen, workloads, machines):
        with progress_bar(names) as progress:
            results.append(run_sublayer(one, hardware, names, progress, seed, choice, jobs))
        if json != "-":
            with read_or_written(json, plot):
                print_run(results[-1], output_console())
    of_file = chakra is not None or (model or "").endswith(".json")
    times = [count for _, count in found]
    if of_file and json != "-":
        with read_or_written(json, plot):
            print_together(results, times, output_console())
    if json is not None:
        write_json({"sublayers": [{"times": count, **result.to_json()} for count, result in zip(times, results)]}
                   if of_file else results[0].to_json(), json)
    if plot is not None:
        write_plot(plot, results[0].plot)


def _small_workload(operator: str, gemm: str | None, devices: int | None, embedding: str | None,
                    locality: str | None, seed: int) -> "Workload":
    """Return what the operators that `--gemm` or `--embedding` describe compute; alone without `devices`.

    Raises BadInput.
    """
    from t3sim import workloads

    if devices is None and operator not in ALONE:
        raise BadInput(f"--operator {operator} needs --devices N")
    if operator.startswith("embedding"):
        if embedding is None or gemm is not None:
            raise BadInput(f"--operator {operator} needs --embedding BATCHxTABLES, and no --gemm")
        return workloads.embedding_workload(embedding, devices or 2, "uniform" if locality is None else locality, seed,
                                            alone=devices is None)
    if gemm is None:
        raise BadInput(f"--operator {operator} needs --gemm {'Mx1xK' if operator.startswith('gemv') else 'MxNxK'}")
    make = {"gemm": workloads.gemm_workload, "decode": workloads.decode_workload}
    return make.get(operator, workloads.gemv_workload)(gemm, devices or 2)  # K is that of one device


def _run_alone(kernel: str | None, workload: "Workload | None", machine: str, split_k: int | None, insist: bool,
               json: str | None) -> None:
    """Run a kernel alone on one GPU: of a file, or what makes a workload's output."""
    from t3sim.interchange.kernel_file import load_kernel
    from t3sim.machine import load_machine
    from t3sim.mechanisms.split_k import with_split_k
    from t3sim.operators.kernel_table import KernelError
    from t3sim.study.results import KernelRun
    from t3sim.support.output import check_json_target, collect_versions, write_json

    table = load_kernel(Path(kernel)) if kernel is not None else None
    check_json_target(json)
    described = with_split_k(load_machine(machine), split_k)

    from t3sim.runs import kernels
    from t3sim.runs.operators import with_its_kernel
    from t3sim.study.estimate import check, estimate
    from t3sim.study.gemm_rate import gemm_rate
    from t3sim.study.report import output_console, print_kernel, progress_bar

    if workload is not None:
        workload = with_its_kernel(described, workload)
    if workload is not None and not insist:
        check(estimate(described, workload, [kernels.GEMM]), workload)
    name = f"{workload.kind} {workload.size}" if workload is not None else Path(kernel).name
    with progress_bar([name]) as progress:
        try:
            found = (kernels.simulate(kernels.GEMM, described, workload, lambda fraction: progress(name, fraction))
                     if table is None else
                     kernels.run_table(table, described, lambda fraction: progress(name, fraction)))
        except KernelError as error:
            raise KernelError(f"{kernel}: {error}" if kernel is not None else f"{error}") from None
        progress(name, 1.0)
    result = KernelRun(name, described.name, found.ns, found.simulated_cycles,
                       {stream: count for stream, count in found.dram.items() if count}, found.host_seconds,
                       collect_versions(), gemm_rate(described, workload, found.ns, sum(found.dram.values()))
                       if workload is not None else None)
    if json is not None:
        write_json(result.to_json(), json)
    if json != "-":
        print_kernel(result, output_console())


def asked_workloads(model: str | None, sublayer: str | None, tp: int | None, gemm: str | None, devices: int | None,
                    chakra: str | None, tokens: int | None, operator: str) -> list[tuple["Workload", int]]:
    """Return what the options of `t3 run` describe, and how often a file has each.

    Raises BadInput for those that contradict each other.
    """
    from t3sim.workloads import behind_all_gather

    gathers = operator == "ag-gemm"
    if chakra is not None:
        if gathers:
            raise BadInput(f"--operator {operator} does not go with --chakra {chakra[:40]}: the GEMMs of a trace are "
                           "found by what follows them")
        for option, value in (("--model", model), ("--sublayer", sublayer), ("--gemm", gemm), ("--devices", devices),
                              ("--tokens", tokens)):
            if value is not None:
                raise BadInput(f"{option} {value} does not go with --chakra {chakra[:40]}: give a model or a trace")
        if tp is None:
            raise BadInput(f"--chakra {chakra[:40]} needs --tp N: a trace is of one rank")
        from t3sim.interchange.chakra import chakra_workloads

        found = chakra_workloads(chakra, tp, operator)
        for one in found:
            shape = f"{one.workload.m}x{one.workload.n}x{one.workload.k}"
            print(f"t3: found: {one.gemm}, {shape} {one.workload.dtype}, then {one.collective}; {one.count} times",
                  file=sys.stderr)
        return [(one.workload, one.count) for one in found]
    if model is not None and model.endswith(".json"):
        from t3sim.interchange.config import TOKENS, config_workloads

        for option, value in (("--gemm", gemm), ("--devices", devices)):
            if value is not None:
                raise BadInput(f"{option} {value} does not go with --model {model[:40]}: give a model or a GEMM")
        found = config_workloads(model, 8 if tp is None else tp, TOKENS if tokens is None else tokens, sublayer)
        return [(behind_all_gather(one), count) for one, count in found] if gathers else found
    if tokens is not None:
        raise BadInput(f"--tokens {tokens} is for a config.json: models of the T3 paper have their own")
    if gathers and gemm is None:
        return [(behind_all_gather(asked_workload(model, sublayer or "fc1", tp, gemm, devices)), 1)]
    return [(asked_workload(model, sublayer, tp, gemm, devices), 1)]


def asked_workload(model: str | None, sublayer: str | None, tp: int | None, gemm: str | None,
                   devices: int | None) -> "Workload":
    """Return what the options of `t3 run` describe. Raises BadInput for those that contradict each other."""
    from t3sim.workloads import gemm_workload, transformer_workload

    if gemm is not None:
        for option, value in (("--model", model), ("--sublayer", sublayer), ("--tp", tp)):
            if value is not None:
                raise BadInput(f"{option} {value} does not go with --gemm {gemm}: give a model or a GEMM, not both")
        if devices is None:
            raise BadInput(f"--gemm {gemm} needs --devices N")
        return gemm_workload(gemm, devices)
    if devices is not None:
        raise BadInput(f"--devices {devices} goes with --gemm only: for a model give --tp")
    given = {"model": model, "sublayer": sublayer, "tp": tp}
    return transformer_workload(**{name: value for name, value in given.items() if value is not None})
