"""`t3 kernel`: a kernel alone on one GPU of the cycle level, or beside copies of a stated rate."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.base.errors import BadInput, choices
from t3sim.commands.flags import print_notes, scenario_of_file
from t3sim.commands.options import (
    AllowCodeOption,
    JsonOption,
    check_estimate,
    file_name,
    natural_number,
    whole_number,
    write_results,
)
from t3sim.study.scenario.short_names import keys_of

if TYPE_CHECKING:
    from t3sim.study.scenario.collective import CollectiveRequest
    from t3sim.study.scenario.kernel import KernelAlone
    from t3sim.study.tasks.store import Results

_GEMMS = {"gemm": "MxNxK", "decode": "MxNxK", "gemv": "Mx1xK"}
_KERNELS = (*_GEMMS, "embedding")


def kernel(
    what: Annotated[str, typer.Argument(
        metavar="NAME|FILE", parser=file_name, help="gemm, decode (at most 512 tokens), gemv, embedding; a custom "
        "kernel (.npz), docs/reference/kernels.md; or a scenario (.toml).")],
    gemm: Annotated[str | None, typer.Option(
        metavar="MxNxK", help="Size of gemm and decode; Mx1xK for gemv.")] = None,
    embedding: Annotated[str | None, typer.Option(
        metavar="BATCHxTABLES", help="Size of embedding.")] = None,
    locality: Annotated[str | None, typer.Option(
        metavar="NAME|FILE", help="Rows of its table that a sum reads: uniform (default), zipf:EXPONENT, or a file "
        "of weights.")] = None,
    copies: Annotated[str | None, typer.Option(
        metavar="RATE", help="Run DMA copies during the kernel that read and write RATE GB/s; read:RATE or "
        "write:RATE for one of them. The event level's time is also shown.")] = None,
    split_k: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Parts of a GEMM's K, added up by another kernel.")] = None,
    machine: Annotated[str | None, typer.Option(
        "--machine", metavar="NAME|FILE", parser=file_name, help="A machine by name, or a TOML file.",
        show_default="t3-table1")] = None,
    insist: Annotated[bool, typer.Option(
        "--insist", help="Run even if it is estimated to take over a day or more memory than there is.")] = False,
    allow_code: AllowCodeOption = False,
    json: JsonOption = None,
    seed: Annotated[int | None, typer.Option(
        "--seed", metavar="N", parser=natural_number, help="Random seed.", show_default="0")] = None,
) -> None:
    """Run a kernel alone on a GPU, cycle by cycle; with --copies also while DMA copies share its memory."""
    from t3sim.runs.beside_copies import Copies
    from t3sim.study.scenario.kernel import KernelAlone
    from t3sim.study.tasks.store import KeptResults

    options = {"--gemm": gemm, "--embedding": embedding, "--locality": locality, "--split-k": split_k}
    if what in _KERNELS:
        needed, form = ("--gemm", _GEMMS[what]) if what in _GEMMS else ("--embedding", "BATCHxTABLES")
        _refuse(what, options, (needed, "--split-k") if what in _GEMMS else (needed, "--locality"))
        if options[needed] is None:
            raise BadInput(f"kernel {what!r} needs {needed} {form}")
    elif what.endswith(".npz"):
        _refuse(what, options, ())
    elif not what.endswith(".toml"):
        raise BadInput(f"kernel {what[:40]!r} is unknown: allowed are {choices(what, _KERNELS)}, and files that end "
                       "in .npz or .toml")
    file = what if what.endswith(".toml") else None
    settings = {} if file else {"operator" if what in _KERNELS else "kernel": what}
    settings |= {"gemm": gemm, "embedding": embedding, "locality": locality, "split-k": split_k, "machine": machine,
                 "seed": seed}
    with scenario_of_file(file, keys_of(settings), allow_code=allow_code) as scenario:
        run_kernel(KernelAlone(scenario, None if copies is None else Copies.of(copies)), insist, json, KeptResults())


def run_kernel(kernel: "KernelAlone", insist: bool, json: str | None, kept: "Results | None") -> None:
    """Run a kernel alone, and again beside copies if there are any; print, or write as JSON. Raises BadInput."""
    from t3sim.base.console import output_console, progress_bar
    from t3sim.study.report import print_kernel

    if (cost := kernel.estimate()) is not None:
        check_estimate(cost, kernel.workload, insist)
    with progress_bar(list(kernel.kernels)) as progress:
        result = kernel.run(progress, kept)
    if write_results(result.to_json(), json):
        print_kernel(result, output_console())


def run_collective_alone(alone: "CollectiveRequest", insist: bool, json: str | None, kept: "Results | None") -> None:
    """Run a collective alone; print, or write as JSON. Raises BadInput."""
    from t3sim.base.console import output_console, progress_bar
    from t3sim.study.report import print_collective

    print_notes(alone.notes)
    if kept is not None and kept.load(alone.task) is not None:
        print("t3: result of an earlier run (--fresh simulates again)", file=sys.stderr, flush=True)
    else:
        check_estimate(alone.estimate(), alone, insist)
    with progress_bar([alone.kind]) as progress:
        result = alone.run(progress, kept)
    if write_results(result.to_json(), json):
        print_collective(result, output_console())


def _refuse(source: str, options: dict, allowed: tuple[str, ...]) -> None:
    """Raise BadInput for options that do not go with a kernel."""
    for option, value in options.items():
        if value is not None and option not in allowed:
            raise BadInput(f"{option} {str(value)[:40]} does not go with {source[:40]!r}")
