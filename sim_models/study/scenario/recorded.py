"""Which run a scenario's trace is of."""

from dataclasses import replace

from t3sim.base.errors import BadInput
from t3sim.mechanisms.track_trigger import FUSIONS
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.kinds import kind_of
from t3sim.study.scenario.request import check_policy, layer_request
from t3sim.study.scenario.scenario import Scenario, T3Section, setting
from t3sim.trace.setup import Setup


def recorded(scenario: Scenario, bug: str | None = None) -> Setup | CollectiveRequest:
    """Return what a trace of a scenario is of: a collective alone, or a run under one technique with Track & Trigger.

    That is t3-mca if none is named. `bug`: of `trace.bugs`. Raises BadInput.
    """
    kind = kind_of(scenario)
    if kind == "collective":
        if bug is not None:
            collective = setting("layer.collective", scenario.layer.collective)
            raise BadInput(f"{collective} runs without Track & Trigger, which has bug {bug}")
        return CollectiveRequest(scenario)
    names = scenario.techniques or ("t3-mca",)
    for name in names:
        if name not in FUSIONS:
            raise BadInput(f"techniques = {name!r} is unknown to a trace: allowed are {', '.join(FUSIONS)}")
    if len(names) > 1:
        raise BadInput(f"{setting('techniques', names)}: a trace records one technique")
    if kind != "layer":
        raise BadInput("a trace records the cycle level: a kernel with its collective, or a collective alone")
    policy = scenario.t3.policy  # of whichever technique is traced
    check_policy(policy)
    request = layer_request(scenario.model_copy(update={"techniques": names, "t3": T3Section()}), policy)
    if len(request.plans) > 1:
        raise BadInput(f"a trace records one sub-layer, but {len(request.plans)} are given: name one")
    plan, = request.plans
    sums = plan.exchange.sums
    plan = replace(plan, machine=sums.seen_from_memory(plan.machine, plan.workload), workload=sums.of(plan.workload))
    return Setup(plan, names[0], bug, policy)
