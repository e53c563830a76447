"""Models of everything around the hardware, and the studies that use them.

From Python: `run` a `Workload` on a `Machine`; `run_collectives` on a network. See docs/python.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t3sim.api import run, run_scenario
    from t3sim.errors import BadInput
    from t3sim.flow.runs import CollectiveRuns, run_collectives
    from t3sim.machine import Machine, load_machine
    from t3sim.mechanisms.exchange import Exchange, fused_with
    from t3sim.scenario.scenario import Scenario
    from t3sim.study.results import RunResult
    from t3sim.techniques.result import TechniqueResult
    from t3sim.workloads import Workload, gathered_workload, gemm_workload, transformer_workload

__all__ = ["BadInput", "CollectiveRuns", "Exchange", "Machine", "RunResult", "Scenario", "TechniqueResult",
           "Workload", "fused_with", "gathered_workload", "gemm_workload", "load_machine", "run", "run_collectives",
           "run_scenario", "transformer_workload"]

_HOMES = {"BadInput": "errors", "CollectiveRuns": "flow.runs", "Exchange": "mechanisms.exchange",
          "Machine": "machine", "RunResult": "study.results", "Scenario": "scenario.scenario",
          "TechniqueResult": "techniques.result", "Workload": "workloads", "fused_with": "mechanisms.exchange",
          "gathered_workload": "workloads", "gemm_workload": "workloads",
          "load_machine": "machine", "run": "api", "run_collectives": "flow.runs", "run_scenario": "api",
          "transformer_workload": "workloads"}


def __getattr__(name: str) -> Any:
    """Import public names when they are asked for: the command line starts without what it does not use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"t3sim.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if __name__ != "t3sim":  # `from sim_models import run`, at the root of a checkout: no module has a second name
    __path__ = []
