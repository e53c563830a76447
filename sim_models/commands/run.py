"""`t3 run`: one fused sub-layer on the RTL, against the sequential baseline and the ideals."""

import sys
from typing import Annotated

import typer

from rtl.arbiter import POLICIES
from sim_models.commands.options import JsonOption, MachineOption, SeedOption, whole_number
from sim_models.errors import BadInput, choices

#: `results.TECHNIQUES`, written out so that `--help` need not import it.
DEFAULT_TECHNIQUES = ("sequential", "t3", "t3-mca", "t3-mca+", "ideal-overlap", "ideal-rs-nmc")


def run(
    model: Annotated[str | None, typer.Option(
        metavar="MODEL", help="mega-gpt-2, t-nlg, gpt-3, palm or mt-nlg; t-nlg if not given.")] = None,
    sublayer: Annotated[str | None, typer.Option(
        metavar="SUBLAYER", help="op, fc1, fc2 or ip; fc2 if not given.")] = None,
    tp: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number,
        help="Tensor-parallel degree: GPUs in the ring, 2 to 64; 8 if not given.")] = None,
    gemm: Annotated[str | None, typer.Option(
        metavar="MxNxK", help="Instead of a model: a GEMM of one's own, K per device. Needs --devices.")] = None,
    devices: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="GPUs in the ring for --gemm, 2 to 64.")] = None,
    technique: Annotated[str, typer.Option(
        metavar="A,B,...", show_default=False,
        help=f"Of {', '.join(DEFAULT_TECHNIQUES)}; all if not given.")] = ",".join(DEFAULT_TECHNIQUES),
    policy: Annotated[str | None, typer.Option(
        metavar="NAME", help=f"The arbiters' policy in technique t3: {', '.join(POLICIES)}.")] = None,
    machine: MachineOption = "t3-table1",
    insist: Annotated[bool, typer.Option(
        "--insist", help="Run what would take more than a day, or more memory than there is, too.")] = False,
    json: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Run one fused sub-layer on the RTL; without options T-NLG FC-2 at TP=8, full size."""
    from sim_models.machine import load_machine
    from sim_models.results import check_json_target, write_json

    workload = _workload(model, sublayer, tp, gemm, devices)
    names = _techniques(technique)
    check_policy(policy)
    if policy is not None and "t3" not in names:
        raise BadInput(f"--policy {policy} is for technique t3, which --technique {technique} does not name")
    check_json_target(json)
    described = load_machine(machine)

    from sim_models.estimate import check, estimate
    from sim_models.report import output_console, print_run, progress_bar
    from sim_models.techniques import kernels_of, run_sublayer

    expected = estimate(described, workload, [kernel for name in names for kernel in kernels_of(name)])
    if not insist:
        check(expected, workload)
    print(f"t3: estimated: {expected}", file=sys.stderr, flush=True)
    with progress_bar(names) as progress:
        result = run_sublayer(workload, described, names, progress, seed, policy)
    if json is not None:
        write_json(result.to_json(), json)
    if json != "-":
        print_run(result, output_console())


def check_policy(name: str | None) -> None:
    """Raise BadInput for a policy that the hardware does not have; None is the technique's own."""
    if name is not None and name not in POLICIES:
        raise BadInput(f"--policy {name!r} is unknown: allowed are {choices(name, POLICIES)}")


def _workload(model, sublayer, tp, gemm, devices):
    from sim_models.workloads import gemm_workload, transformer_workload

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


def _techniques(text):
    """Names in the order given, each once."""
    from sim_models.results import TECHNIQUES

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in TECHNIQUES:
            raise BadInput(f"--technique {name!r} is unknown: allowed are {', '.join(TECHNIQUES)}")
    return names
