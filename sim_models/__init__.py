"""Models of everything around the hardware, and the studies that use them.

From Python: `run` a `Workload` on a `Machine`; `run_collectives` on a network. See docs/python.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t3sim.base.errors import BadInput
    from t3sim.commands.api import run, run_scenario
    from t3sim.event.flow.runs import CollectiveRuns, run_collectives
    from t3sim.machine import Machine, load_machine
    from t3sim.mechanisms.result import TechniqueResult
    from t3sim.runs.exchange import Exchange, fused_with
    from t3sim.study.results import RunResult
    from t3sim.study.scenario.scenario import Scenario
    from t3sim.workload.workloads import Workload, gathered_workload, gemm_workload, transformer_workload

__all__ = ["BadInput", "CollectiveRuns", "Exchange", "Machine", "RunResult", "Scenario", "TechniqueResult",
           "Workload", "fused_with", "gathered_workload", "gemm_workload", "load_machine", "run", "run_collectives",
           "run_scenario", "transformer_workload"]

_HOMES = {"BadInput": "base.errors", "CollectiveRuns": "event.flow.runs", "Exchange": "runs.exchange",
          "Machine": "machine", "RunResult": "study.results", "Scenario": "study.scenario.scenario",
          "TechniqueResult": "mechanisms.result", "Workload": "workload.workloads",
          "fused_with": "runs.exchange", "gathered_workload": "workload.workloads",
          "gemm_workload": "workload.workloads", "load_machine": "machine", "run": "commands.api",
          "run_collectives": "event.flow.runs", "run_scenario": "commands.api",
          "transformer_workload": "workload.workloads"}


def __getattr__(name: str) -> Any:
    """Import public names when they are asked for: the command line starts without what it does not use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"t3sim.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if __name__ != "t3sim":  # `from sim_models import run`, at the root of a checkout: no module has a second name
    __path__ = []
