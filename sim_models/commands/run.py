"""`t3 run`: one fused sub-layer on the RTL, against the sequential baseline and the ideals."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.commands.flags import in_dashes, takes_scenario
from t3sim.commands.options import (
    JsonOption,
    check_estimate,
    check_plot_target,
    file_name,
    read_or_written,
    simulations_at_once,
    whole_number,
    write_plot,
)
from t3sim.errors import BadInput

if TYPE_CHECKING:
    from t3sim.scenario.scenario import Scenario


@takes_scenario
def run(
    scenario: "Scenario",
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Draw each technique's time, SVG or PNG.")] = None,
    insist: Annotated[bool, typer.Option("--insist", help="Run what takes days, too.")] = False,
    jobs: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Simulations at once; else the cores.")] = None,
    json: JsonOption = None,
) -> None:
    """Run one fused sub-layer on the RTL; without options T-NLG FC-2 at TP=8, full size."""
    from t3sim.scenario.layers import is_alone, is_collective
    from t3sim.support.output import check_json_target

    event, alone, collective = scenario.level == "event", is_alone(scenario.layer), is_collective(scenario.layer)
    if event or alone or collective:
        for option, value in (("--plot", plot), ("--jobs", jobs)):
            if value is not None:
                raise BadInput(f"{option} {value} does not go with " + (
                    "level = event" if event else "a collective alone" if collective else "a kernel alone"))
    jobs = simulations_at_once(jobs)
    check_json_target(json)
    if event:
        from t3sim.commands.event_level import run_event_level

        run_event_level(scenario, json)
    elif collective:
        from t3sim.commands.kernel import run_collective_alone

        run_collective_alone(scenario, insist, json)
    elif alone:
        from t3sim.commands.kernel import run_kernel

        run_kernel(scenario, insist, json)
    else:
        check_plot_target(plot)
        _run_sublayers(scenario, plot, insist, jobs, json)


def _run_sublayers(scenario: "Scenario", plot: str | None, insist: bool, jobs: int, json: str | None) -> None:
    from t3sim.scenario.request import requested
    from t3sim.study.report import output_console, print_run, print_together, progress_bar
    from t3sim.support.output import write_json

    request = requested(scenario)
    several = len(request.sublayers) > 1
    if plot is not None and several:
        raise BadInput(f"--plot {plot[:40]} is of one sub-layer, and here are {len(request.sublayers)}")
    for note in request.notes:
        print(f"t3: {in_dashes(note)}", file=sys.stderr)
    for one in request.sublayers:
        expected = request.estimate(one, jobs)
        check_estimate(expected, one.workload, insist)
        print(f"t3: {f'{one.workload.title}: ' if several else ''}estimated: {expected}", file=sys.stderr, flush=True)
    results = []
    for one in request.sublayers:
        with progress_bar(request.techniques) as progress:
            results.append(request.run(one, progress, jobs))
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
