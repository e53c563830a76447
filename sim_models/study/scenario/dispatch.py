"""Request of a scenario: a sub-layer under techniques, a kernel or a collective alone, the event level, a ranking."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from t3sim.study.results import CollectiveRun, FileRun, KernelRun, RunResult
from t3sim.study.scenario.event import EventLevel, EventRun
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.kinds import kind_of
from t3sim.study.scenario.ranking import LayerToRank, Ranking
from t3sim.study.scenario.request import LayerRequest, layer_request
from t3sim.study.scenario.scenario import Scenario
from t3sim.study.tasks.store import Results

if TYPE_CHECKING:
    from t3sim.study.scenario.collective import CollectiveRequest

Answer = RunResult | FileRun | KernelRun | CollectiveRun | EventRun | Ranking


def request_of(scenario: Scenario) -> "LayerRequest | KernelAlone | CollectiveRequest | EventLevel | LayerToRank":
    """Make the request of a scenario, by its kind. Raises BadInput, before any work."""
    match kind_of(scenario):
        case "library":
            return LayerToRank(scenario)
        case "event":
            return EventLevel(scenario)
        case "collective":
            from t3sim.study.scenario.collective import CollectiveRequest

            return CollectiveRequest(scenario)
        case "kernel":
            return KernelAlone(scenario)
    return layer_request(scenario)


def run(scenario: Scenario, progress: Callable[[str, float], None] = lambda what, share: None,
        jobs: int | None = None, store: Results | None = None,
        tell: Callable[[str], object] = lambda note: None) -> Answer:
    """Run a scenario. Raises BadInput for what cannot be run, and what simulations raise.

    `progress` is called with a technique or phase and the share that is done; `jobs`: simulations at once, as many as
    cores if not given; `store`: results that need not be simulated again. `tell` is called with each note on the
    scenario, before any work.
    """
    request = request_of(scenario)
    for note in getattr(request, "notes", ()):
        tell(str(note))
    if isinstance(request, LayerRequest):
        return request.run(progress, store, jobs)
    if isinstance(request, EventLevel | LayerToRank):
        return request.run()
    return request.run(progress, store)
