"""`t3 run`: one fused sub-layer on the RTL, against the sequential baseline and the ideals."""

from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.flags import takes_scenario
from t3sim.commands.options import (
    JsonOption,
    check_plot,
    file_name,
    simulations_at_once,
    whole_number,
)

if TYPE_CHECKING:
    from t3sim.study.scenario.scenario import Scenario


@takes_scenario
def run(
    scenario: "Scenario",
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Plot each technique's time, SVG or PNG.")] = None,
    insist: Annotated[bool, typer.Option("--insist", help="Run even if it is estimated to take days.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Simulate again instead of using kept results.")] = False,
    jobs: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Simulations at once. Default: the number of cores.")] = None,
    json: JsonOption = None,
) -> None:
    """Run one fused sub-layer on the RTL. Default: T-NLG FC-2 at TP 8, full size."""
    from t3sim.commands.event_level import run_event_level
    from t3sim.commands.kernel import run_collective_alone, run_kernel
    from t3sim.commands.overlap import run_ranking
    from t3sim.commands.sublayers import run_sublayers
    from t3sim.study.scenario.dispatch import request_of
    from t3sim.study.scenario.event import EventLevel
    from t3sim.study.scenario.kernel import KernelAlone
    from t3sim.study.scenario.ranking import LayerToRank
    from t3sim.study.scenario.request import LayerRequest
    from t3sim.study.tasks.store import KeptResults

    ready = request_of(scenario)
    if not isinstance(ready, LayerRequest):
        for option, value in (("--plot", plot), ("--jobs", jobs)):
            if value is not None:
                raise BadInput(f"{option} {value} does not go with {ready.what}")
    results = None if fresh else KeptResults()
    if isinstance(ready, LayerRequest):
        check_plot(plot)
        run_sublayers(ready, plot, insist, simulations_at_once(jobs), json, results)
    elif isinstance(ready, EventLevel):
        run_event_level(ready, json)
    elif isinstance(ready, LayerToRank):
        run_ranking(ready, json)
    elif isinstance(ready, KernelAlone):
        run_kernel(ready, insist, json, results)
    else:
        run_collective_alone(ready, insist, json, results)
