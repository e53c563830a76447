"""`t3 kernel`: a kernel alone on one GPU of the cycle level, or beside copies of a stated rate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.commands.options import JsonOption, MachineOption, SeedOption, file_name, whole_number
from t3sim.errors import BadInput, choices

if TYPE_CHECKING:
    from t3sim.operators.kernel_table import KernelTable
    from t3sim.workloads import Workload

_GEMMS = {"gemm": "MxNxK", "decode": "MxNxK", "gemv": "Mx1xK"}
_KERNELS = (*_GEMMS, "embedding")


def kernel(
    what: Annotated[str, typer.Argument(
        metavar="NAME|FILE.npz", parser=file_name, help="gemm, decode (at most 512 tokens), gemv, embedding; or a "
        "custom kernel, docs/reference/kernels.md.")],
    gemm: Annotated[str | None, typer.Option(
        metavar="MxNxK", help="Of gemm and decode; Mx1xK of gemv.")] = None,
    embedding: Annotated[str | None, typer.Option(
        metavar="BATCHxTABLES", help="Of embedding.")] = None,
    locality: Annotated[str | None, typer.Option(
        metavar="NAME|FILE", help="Which rows of its table a sum has: uniform, if not given, zipf:EXPONENT, or as "
        "often as a file's weights say.")] = None,
    copies: Annotated[str | None, typer.Option(
        metavar="RATE", help="Copies by engines beside it, until it ends: this many GB/s are read and written, or "
        "with read:RATE or write:RATE one of both. The event level's answer stands beside it.")] = None,
    split_k: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Parts of a GEMM's K, which another kernel adds up.")] = None,
    machine: MachineOption = "t3-table1",
    insist: Annotated[bool, typer.Option(
        "--insist", help="Run what would take more than a day, or more memory than there is, too.")] = False,
    json: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Run a kernel alone on a GPU, cycle by cycle; with --copies also beside copies that share its memory."""
    from t3sim.interchange.kernel_file import load_kernel
    from t3sim.machine import load_machine
    from t3sim.mechanisms.split_k import with_split_k
    from t3sim.support.output import check_json_target, collect_versions, write_json

    given = {"--gemm": gemm, "--embedding": embedding, "--locality": locality, "--split-k": split_k}
    table = workload = None
    if what in _KERNELS:
        workload = _workload(what, given, seed)
    elif what.endswith(".npz"):
        _refuse(what, given, ())
        table = load_kernel(Path(what))
    else:
        raise BadInput(f"kernel {what[:40]!r} is unknown: allowed are {choices(what, _KERNELS)}, and files that end "
                       "in .npz")
    check_json_target(json)

    from t3sim.libraries.contention import slowed_by_copies
    from t3sim.operators.kernel_table import KernelError
    from t3sim.runs.beside_copies import Copies
    from t3sim.runs.kernels import GEMM, BesideCopies
    from t3sim.runs.operators import with_its_kernel
    from t3sim.study.estimate import check, estimate
    from t3sim.study.gemm_rate import gemm_rate
    from t3sim.study.report import output_console, print_kernel, progress_bar
    from t3sim.study.results import BesideRun, KernelRun

    rate = None if copies is None else Copies.of(copies)
    described = with_split_k(load_machine(machine), split_k)
    asked = (GEMM,) if rate is None else (GEMM, BesideCopies(rate))
    if workload is not None:
        workload = with_its_kernel(described, workload)
        if not insist:
            check(estimate(described, workload, asked), workload)
    name = Path(what).name if workload is None else f"{workload.kind} {workload.size}"
    names = [name, "beside copies"][:len(asked)]
    with progress_bar(names) as progress:
        try:
            found = [_run(one, described, workload, table, lambda fraction, title=title: progress(title, fraction))
                     for title, one in zip(names, asked)]
        except KernelError as error:
            raise KernelError(f"{what}: {error}" if table is not None else f"{error}") from None
        for title in names:
            progress(title, 1.0)
    alone, moved = found[0], sum(found[0].dram.values())
    beside = None if rate is None else BesideRun(
        rate.read, rate.write, found[1].ns, found[1].ns / alone.ns,
        slowed_by_copies(described, alone.ns, moved, rate.read, rate.write), _served(found[1].dram))
    result = KernelRun(name, described.name, alone.ns, alone.simulated_cycles, _served(alone.dram),
                       sum(one.host_seconds for one in found), collect_versions(),
                       None if workload is None else gemm_rate(described, workload, alone.ns, moved), beside)
    if json is not None:
        write_json(result.to_json(), json)
    if json != "-":
        print_kernel(result, output_console())


def _served(dram: dict[str, int]) -> dict[str, int]:
    return {stream: count for stream, count in dram.items() if count}


def _run(one, machine, workload: "Workload | None", table: "KernelTable | None", progress):
    """Run a kernel of `runs.kernels` for a workload, or a table."""
    from t3sim.runs.kernels import run_table, simulate

    if table is None:
        return simulate(one, machine, workload, progress)
    return run_table(table, machine, progress, getattr(one, "copies", None))


def _refuse(what: str, given: dict, allowed: tuple[str, ...]) -> None:
    """Raise BadInput for options that do not go with a kernel."""
    for option, value in given.items():
        if value is not None and option not in allowed:
            raise BadInput(f"{option} {str(value)[:40]} does not go with {what[:40]!r}")


def _workload(what: str, given: dict, seed: int) -> "Workload":
    """Return what a kernel computes. Raises BadInput."""
    from t3sim import workloads

    needed, form = ("--gemm", _GEMMS[what]) if what in _GEMMS else ("--embedding", "BATCHxTABLES")
    _refuse(what, given, (needed, "--split-k") if what in _GEMMS else (needed, "--locality"))
    if given[needed] is None:
        raise BadInput(f"kernel {what!r} needs {needed} {form}")
    if what == "embedding":
        locality = "uniform" if given["--locality"] is None else given["--locality"]
        return workloads.embedding_workload(given[needed], 2, locality, seed, alone=True)
    make = {"gemm": workloads.gemm_workload, "decode": workloads.decode_workload, "gemv": workloads.gemv_workload}
    return make[what](given[needed], 2)
