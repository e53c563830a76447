"""Fused sub-layers for `t3 run`: estimate, progress and report."""

import sys
from typing import TYPE_CHECKING

from t3sim.base.errors import BadInput
from t3sim.commands.flags import print_notes
from t3sim.commands.options import check_estimate, read_or_written, write_plot

if TYPE_CHECKING:
    from t3sim.study.scenario.request import LayerRequest
    from t3sim.study.tasks.store import Results


def run_sublayers(request: "LayerRequest", plot: str | None, insist: bool, jobs: int, json: str | None,
                  kept: "Results | None") -> None:
    """Run the plans of a request; print, draw, or write the results as JSON. Raises BadInput."""
    from t3sim.base.console import output_console, progress_bar
    from t3sim.base.output import write_json
    from t3sim.study.report import print_run, print_together
    from t3sim.study.tasks.estimate import estimate

    several = len(request.plans) > 1
    if plot is not None and several:
        raise BadInput(f"--plot {plot[:40]} is of one sub-layer, and here are {len(request.plans)}")
    print_notes(request.notes)
    for plan in request.plans:
        missing, needed = request.missing(plan, kept), len(request.tasks(plan))
        cost = estimate(plan.machine, plan.workload, missing, jobs=jobs)
        check_estimate(cost, plan.workload, insist)
        notes = [f"{needed - len(missing)} of {needed} simulations are those of an earlier run (--fresh repeats them)"
                 ] if len(missing) < needed else []
        notes += [f"estimated: {cost}"] if missing else []
        print(f"t3: {f'{plan.workload.title}: ' if several else ''}{'; '.join(notes)}", file=sys.stderr, flush=True)
    results = []
    for plan in request.plans:
        with progress_bar(request.techniques) as progress:
            results.append(request.run_plan(plan, progress, kept, jobs))
        if json != "-":
            with read_or_written(json, plot):
                print_run(results[-1], output_console())
    if request.of_file and json != "-":
        with read_or_written(json, plot):
            print_together(results, request.times, output_console())
    if json is not None:
        write_json(request.answer(results).to_json(), json)
    if plot is not None:
        write_plot(plot, results[0].plot)
