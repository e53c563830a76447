"""What `t3 run` and `t3 collective` give, from Python: `from t3sim import run, gemm_workload`.

Results are frozen dataclasses with `to_frame()` and, for a run, `plot()`; bad input raises `BadInput` with one line.
"""

from collections.abc import Callable, Sequence

from t3sim.machine import Machine, load_machine
from t3sim.mechanisms.exchange import Exchange, fused_with
from t3sim.runs.skew import Skew
from t3sim.study.results import RunResult, check_policy, check_techniques
from t3sim.techniques.choices import Choices
from t3sim.techniques.table import BY_DEFAULT
from t3sim.workloads import Workload


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
    from t3sim.runs.operators import with_its_kernel
    from t3sim.study.techniques import run_sublayer

    check_techniques(techniques)
    check_policy(policy, techniques)
    exchange = operator if isinstance(operator, Exchange) else fused_with(operator)
    choices = Choices(policy, exchange, None if skew is None else Skew.of(skew, workload.tp))
    described = load_machine(machine) if isinstance(machine, str) else machine
    workload = with_its_kernel(described, workload, workload.tp if exchange.of_parts else 1)
    described = exchange.hardware(described, workload)
    if choices.skew is not None:
        choices.skew.check(exchange.links(workload.tp), described)
    return run_sublayer(workload, described, techniques, progress, seed, choices)
