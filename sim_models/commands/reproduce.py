"""`t3 reproduce`: the papers' evaluations, ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import BadInput, Failure
from t3sim.commands.options import (
    JsonOption,
    MachineOption,
    SeedOption,
    folder_name,
    simulations_at_once,
    whole_number,
    write_results,
)

_FIRST, _SECOND, _NONE = "t3-table1", "t3-accelsim", "none"


def reproduce(
    out: Annotated[Path, typer.Option(
        metavar="DIR", parser=folder_name,
        help="Folder for report.html, plots/, results.json; an interrupted run resumes there.")],
    only: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="Figures and tables to reproduce: figure16, figure18, .... Default: all.")] = None,
    paper: Annotated[str | None, typer.Option(
        metavar="t3|fused|flux|dma|amped|today|beyond|all", help="Paper to reproduce. Default: t3.")] = None,
    jobs: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Simulations at once. Default: the number of cores.")] = None,
    machine: MachineOption = _FIRST,
    beside: Annotated[str | None, typer.Option(
        metavar="NAME|none",
        help="A second machine to compare. Default: t3-accelsim with t3-table1, else none.")] = None,
    json: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Reproduce the papers' figures and tables, T3's with RTL in the loop."""
    from t3sim.machine import load_machine
    from t3sim.papers.figure import paper_setup
    from t3sim.papers.pipeline import check_out
    from t3sim.papers.registry import select_figures

    jobs = simulations_at_once(jobs)
    figures = select_figures(only, paper)
    described = load_machine(machine)
    second_name = (_SECOND if machine == _FIRST else _NONE) if beside is None else beside
    second = None if second_name == _NONE else load_machine(second_name)
    if second is not None and second.name == described.name:
        raise BadInput(f"--beside {second_name}: give a machine other than --machine {machine}, or {_NONE}")
    check_out(out)

    from t3sim.base.console import output_console
    from t3sim.papers import pipeline
    from t3sim.study.report import print_campaign
    from t3sim.study.tasks.progress import show_progress

    try:
        with show_progress() as monitor:
            campaign = pipeline.reproduce(figures, paper_setup(described, seed), out, jobs, monitor,
                                          None if second is None else paper_setup(second, seed))
    except KeyboardInterrupt:
        print(f"t3: finished results are kept: the same command with --out {out} resumes", file=sys.stderr)
        raise
    if write_results(campaign.results, json):
        print_campaign(campaign.results, out / "report.html", output_console())
    if campaign.outcome.failures:
        first = next(iter(campaign.outcome.failures.values()))
        raise Failure(f"{len(campaign.outcome.failures)} simulations failed, see {out / 'failures.log'}; "
                      f"{first.label}: {first.message}")
