"""A point that is a scenario: its kernels are simulated once, however many points and figures need them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from t3sim.base.cache import digest
from t3sim.base.cores import cores
from t3sim.base.custom import GROUPS
from t3sim.base.errors import BadInput, shown
from t3sim.runs.kernels import Kernel
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.dispatch import request_of, run
from t3sim.study.scenario.event import EventLevel
from t3sim.study.scenario.files import scenario_of
from t3sim.study.scenario.kernel import KernelAlone
from t3sim.study.scenario.ranking import LayerToRank
from t3sim.study.scenario.request import LayerRequest
from t3sim.study.scenario.scenario import Scenario
from t3sim.study.scenario.short_names import keys_of
from t3sim.study.sweeps.point import MACHINE_KEY, Scalar, WholeAnswer, digest_of_files, flat
from t3sim.study.tasks import estimate
from t3sim.study.tasks.sources import source_digest
from t3sim.study.tasks.task import BuildTask, KernelTask, Task, WarmUpTask
from t3sim.study.techniques import run_result

_INSIST = "insist"  #: a setting that says to run what takes days, too
_FILES = ("kernel", "locality")  #: keys of a layer that may name one


class ScenarioPoint:
    """A point of a study of `t3 run`; with `allow_code` it may name functions that no installed part has."""

    def __init__(self, values: dict[str, Scalar], allow_code: bool = False) -> None:
        self.values = values
        insist = values.get(_INSIST, False)
        if not isinstance(insist, bool):
            raise BadInput(f"{_INSIST} = {shown(insist)}: true or false is allowed")
        changes = keys_of({name: value for name, value in values.items() if name != _INSIST})
        # The machine that others change comes first.
        machine_change = {MACHINE_KEY: changes.pop(MACHINE_KEY)} if MACHINE_KEY in changes else {}
        self.scenario = scenario_of({}, machine_change | changes, code=GROUPS if allow_code else ())
        self._request = request_of(self.scenario)
        if not insist:
            self._check_time()

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        if isinstance(self._request, LayerRequest):
            return tuple(task for tasks in self._kernels for task in tasks.values())
        if isinstance(self._request, CollectiveRequest):
            return (self._request.task,)
        return (ScenarioTask(self.scenario),)

    @cached_property
    def _kernels(self) -> list[dict[Kernel, KernelTask]]:
        """The simulations of each sub-layer."""
        return ([self._request.tasks(plan) for plan in self._request.plans]
                if isinstance(self._request, LayerRequest) else [])

    def answer(self, results: Mapping[str, Any]) -> dict[str, Scalar | None]:
        """Make up the answer of `t3 run`."""
        request = self._request
        if isinstance(request, CollectiveRequest):
            return flat(request.result(results[self.tasks[0].key]).to_json())
        if not isinstance(request, LayerRequest):
            return results[self.tasks[0].key].values
        sublayer_results = [run_result(plan, request.techniques,
                                       {kernel: results[task.key] for kernel, task in tasks.items()})
                            for plan, tasks in zip(request.plans, self._kernels)]
        return flat(request.answer(sublayer_results).to_json())

    def _check_time(self) -> None:
        """Refuse what takes more than a day, or more memory than this host has. Raises BadInput."""
        request = self._request
        try:
            if isinstance(request, LayerRequest):
                for plan in request.plans:
                    estimate.check(estimate.estimate(plan.machine, plan.workload, request.tasks(plan), jobs=cores()),
                                   plan.workload)
            elif isinstance(request, CollectiveRequest):
                estimate.check(request.estimate(), request)
            elif isinstance(request, KernelAlone) and (request_estimate := request.estimate()) and request.workload:
                estimate.check(request_estimate, request.workload)
        except BadInput as error:
            raise BadInput(f"{error}; {_INSIST} = true runs it anyway") from None

    def warm_up(self) -> WarmUpTask | None:
        """Return the task that compiles what kernels of the cycle level need."""
        if isinstance(self._request, EventLevel | LayerToRank):
            return None
        machine = self._request.plans[0].machine if isinstance(self._request, LayerRequest) else self._request.machine
        return WarmUpTask(machine, any(task.needs_rtl for task in self.tasks))


@dataclass(frozen=True, eq=False)
class ScenarioTask:
    """Task of a scenario that is run whole: a kernel alone, the event level, or a ranking."""

    scenario: Scenario

    result_type = WholeAnswer
    requires: tuple[BuildTask, ...] = ()
    needs_rtl = False
    seconds = 10.0  #: a guess, alike for all: which is the longest is not known before

    @cached_property
    def key(self) -> str:
        layer = self.scenario.layer
        request = request_of(self.scenario)
        machine = request.node if isinstance(request, EventLevel) else request.machine
        files = {name: digest_of_files(Path(value)) for name in _FILES
                 if (value := getattr(layer, name)) is not None and Path(value).exists()}
        state = json.dumps({**self.description, "machine": machine.model_dump(mode="json"), "files": files},
                           sort_keys=True)
        return f"{self.scenario.level}-{digest(state, source_digest('t3sim.study.scenario.dispatch'))}"

    @property
    def label(self) -> str:
        return ", ".join(str(value) for value in self.description.values())

    @property
    def description(self) -> dict[str, Any]:
        return {key: str(value) for key, value in self.scenario.changes().items()}

    def run(self, progress: Callable[[float], None]) -> WholeAnswer:
        """Run it. Raises BadInput for what the machine has not."""
        return WholeAnswer(flat(run(self.scenario).to_json()))
