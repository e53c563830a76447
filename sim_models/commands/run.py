"""`t3 run`: one fused sub-layer on the RTL, against the sequential baseline and the ideals."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.commands.flags import print_notes, takes_scenario
from t3sim.commands.options import (
    JsonOption,
    check_estimate,
    check_json_target,
    check_plot_target,
    file_name,
    read_or_written,
    simulations_at_once,
    whole_number,
    write_plot,
)
from t3sim.errors import BadInput

if TYPE_CHECKING:
    from t3sim.scenario.request import Request
    from t3sim.scenario.scenario import Scenario
    from t3sim.tasks.store import Results


@takes_scenario
def run(
    scenario: "Scenario",
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Draw each technique's time, SVG or PNG.")] = None,
    insist: Annotated[bool, typer.Option("--insist", help="Run what takes days, too.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Simulate again what is kept of earlier runs.")] = False,
    jobs: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Simulations at once; else the cores.")] = None,
    json: JsonOption = None,
) -> None:
    """Run one fused sub-layer on the RTL; without options T-NLG FC-2 at TP=8, full size."""
    from t3sim.commands.event_level import run_event_level
    from t3sim.commands.kernel import run_collective_alone, run_kernel
    from t3sim.commands.overlap import run_ranking
    from t3sim.scenario.asked import asked
    from t3sim.scenario.collective import CollectiveAlone
    from t3sim.scenario.event import EventLevel
    from t3sim.scenario.ranking import LayerToRank
    from t3sim.scenario.request import Request
    from t3sim.tasks.kept import KeptResults

    ready = asked(scenario)
    if not isinstance(ready, Request):
        for option, value in (("--plot", plot), ("--jobs", jobs)):
            if value is not None:
                raise BadInput(f"{option} {value} does not go with {ready.what}")
    check_json_target(json)
    kept = None if fresh else KeptResults()
    if isinstance(ready, Request):
        check_plot_target(plot)
        _run_sublayers(ready, plot, insist, simulations_at_once(jobs), json, kept)
    elif isinstance(ready, EventLevel):
        run_event_level(ready, json)
    elif isinstance(ready, LayerToRank):
        run_ranking(ready, json)
    elif isinstance(ready, CollectiveAlone):
        run_collective_alone(ready, insist, json, kept)
    else:
        run_kernel(ready, insist, json, kept)


def _run_sublayers(request: "Request", plot: str | None, insist: bool, jobs: int, json: str | None,
                   kept: "Results | None") -> None:
    from t3sim.study.report import output_console, print_run, print_together, progress_bar
    from t3sim.support.output import write_json

    several = len(request.sublayers) > 1
    if plot is not None and several:
        raise BadInput(f"--plot {plot[:40]} is of one sub-layer, and here are {len(request.sublayers)}")
    print_notes(request.notes)
    for one in request.sublayers:
        missing, needed = request.missing(one, kept), len(request.tasks(one))
        expected = request.estimate(one, missing, jobs)
        check_estimate(expected, one.workload, insist)
        told = [f"{needed - len(missing)} of {needed} simulations are those of an earlier run (--fresh repeats them)"
                ] if len(missing) < needed else []
        told += [f"estimated: {expected}"] if missing else []
        print(f"t3: {f'{one.workload.title}: ' if several else ''}{'; '.join(told)}", file=sys.stderr, flush=True)
    results = []
    for one in request.sublayers:
        with progress_bar(request.techniques) as progress:
            found = request.run(one, progress, jobs, kept)
            if request.scenario.layer.values:
                found = replace(found, numbers=request.numbers(one, lambda share: progress("numbers", share)))
            results.append(found)
        if json != "-":
            with read_or_written(json, plot):
                print_run(results[-1], output_console())
    if request.of_file and json != "-":
        with read_or_written(json, plot):
            print_together(results, [one.times for one in request.sublayers], output_console())
    if json is not None:
        write_json(request.whole(results).to_json(), json)
    if plot is not None:
        write_plot(plot, results[0].plot)
