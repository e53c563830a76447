"""`t3 bench`: how fast the engines step the same RTL on the same stimulus, in one run."""

from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import JsonOption, MachineOption, SeedOption, whole_number, write_results


def bench(
    cycles: Annotated[int, typer.Option(
        metavar="N", parser=whole_number,
        help="Cycles of the stimulus; slow engines replay only its beginning.")] = 20_000,
    engine: Annotated[str, typer.Option(
        metavar="A,B,...", help="Engines to measure.")] = "lockstep,bare,full,gpus,cocotb,amaranth",
    beside: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="Simulators to compare with engine rtl: verilator, cxxrtl, amaranth.")] = None,
    machine: MachineOption = "t3-table1",
    json: JsonOption = None,
    seed: SeedOption = 0,
) -> None:
    """Measure simulated cycles per second: lockstep, a bare C++ loop (event-driven and full), cocotb, and Amaranth.

    Engine gpus compares 8 simulated GPUs with one representative GPU, on 1
    thread and on 2. These engines run only if named: event (messages per second
    of the event level), whole (a whole run at full size), first (the first run
    in an empty cache) and rtl (the RTL alone, from idle to random inputs).
    Rates are per second of one core's time, except for cocotb.
    """
    from t3sim.machine import load_machine
    from t3sim.study.results import BenchResult

    engines = tuple(dict.fromkeys(name.strip() for name in engine.split(",")))
    for name in engines:
        if name not in BenchResult.ENGINES:
            raise BadInput(f"--engine {name!r} is unknown: allowed are {', '.join(BenchResult.ENGINES)}")
    others = () if beside is None else tuple(dict.fromkeys(name.strip() for name in beside.split(",")))
    for name in others:
        if name not in BenchResult.SIMULATORS:
            raise BadInput(f"--beside {name!r} is unknown: allowed are {', '.join(BenchResult.SIMULATORS)}")
    if others and "rtl" not in engines:
        raise BadInput(f"--beside {beside} needs --engine rtl")
    if not 1_000 <= cycles <= 1_000_000_000:
        raise BadInput(f"--cycles {cycles} is not possible: 1000 to 1000000000")
    load_machine(machine)  # refuses before the work

    from t3sim.base.console import output_console, progress_bar
    from t3sim.study.engine_speed import run_bench
    from t3sim.study.report import print_bench

    with progress_bar(engines) as progress:
        result = run_bench(machine, engines, cycles, progress, seed, others)
    if write_results(result.to_json(), json):
        print_bench(result, output_console())
