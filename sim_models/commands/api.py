"""Results of `t3 run` and `t3 collective` from Python: `from t3sim import run, gemm_workload`.

Results are frozen dataclasses with `to_frame()` and, for a run, `plot()`; bad input raises `BadInput` with one line.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t3sim.machine import Machine
from t3sim.mechanisms.table import BY_DEFAULT
from t3sim.runs.exchange import Exchange
from t3sim.study.results import RunResult
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    from t3sim.study.scenario.dispatch import Answer
    from t3sim.study.scenario.scenario import Scenario


def run_scenario(scenario: "Scenario | str",
                 progress: Callable[[str, float], None] = lambda what, share: None,
                 allow_code: bool = False) -> "Answer":
    """Run a scenario, or the TOML file that has it, like `t3 run SCENARIO`: on any level, whatever it asks for.

    `allow_code`: call functions that the file names, too. The answer has `to_json()`, which is what the command writes.
    What a command notes on standard error is a warning. Raises what `run` raises.
    """
    from t3sim.base.custom import GROUPS
    from t3sim.study.scenario.dispatch import run
    from t3sim.study.scenario.files import read_scenario, scenario_of

    if isinstance(scenario, str):
        scenario = scenario_of(read_scenario(scenario), {}, code=GROUPS if allow_code else ())
    return run(scenario, progress, tell=lambda note: warnings.warn(note, stacklevel=4))


def run(workload: Workload, machine: Machine | str = "t3-table1", techniques: Sequence[str] = BY_DEFAULT,
        policy: str | None = None, seed: int = 0, operator: str | Exchange = "gemm-rs",
        skew: str | None = None,
        progress: Callable[[str, float], None] = lambda what, share: None) -> RunResult:
    """Run one fused sub-layer under each technique, fused ones with the RTL in the loop at every memory cycle.

    `machine`: a name or a file as for `--machine`, or a description; `policy`: the arbiters' in technique `t3`;
    `skew`: simulate every GPU, with differences as for `--skew` ("": none);
    `operator`: what the GEMM is fused with, a reduce-scatter (`gemm-rs`) or an all-reduce (`gemm-ar`), or an all-gather
    of its activations before it (`ag-gemm`);
    `fused_with(operator, topology, algorithm)` says also over which links, and how;
    `progress` is called with what is under way and the share of it that is done. Raises `BadInput` for what cannot be
    run, `SimulationError` if the hardware does not do what it must, `ToolchainError` without a C++ compiler.
    """
    from t3sim.study import techniques as runs
    from t3sim.study.scenario.request import layer_request
    from t3sim.study.scenario.scenario import ExchangeSection, GpusSection, Layer, Scenario, T3Section

    exchange = operator if isinstance(operator, Exchange) else None
    request = layer_request(Scenario(
        layer=Layer(operator=operator.operator if isinstance(operator, Exchange) else operator, workload=workload),
        exchange=ExchangeSection() if exchange is None else ExchangeSection(
            topology=exchange.topology, algorithm=exchange.algorithm, signal=exchange.signal),
        machine=machine, techniques=tuple(techniques), t3=T3Section(policy=policy),
        gpus=GpusSection(every=skew is not None, skew=skew or None), seed=seed))
    for note in request.notes:
        warnings.warn(str(note), stacklevel=2)
    return runs.run_sublayer(request.plans[0], request.techniques, progress)
