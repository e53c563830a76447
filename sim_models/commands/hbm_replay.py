"""`t3 hbm-replay`: the DRAM model alone on a request trace, or against other simulators on recorded ones."""

from typing import Annotated

import typer

from t3sim.base.errors import BadInput, choices
from t3sim.commands.options import JsonOption, file_name, write_results


def hbm_replay(
    trace: Annotated[str | None, typer.Argument(
        metavar="TRACE", parser=file_name,
        help="Lines `0xADDRESS READ|WRITE CYCLE`: byte address, operation, earliest cycle; or the "
        "name of a recorded workload, such as seq_rd.")] = None,
    machine: Annotated[str, typer.Option(
        "--machine", metavar="NAME|FILE", parser=file_name,
        help="A machine by name, or a TOML file; its first channel is replayed.",
    )] = "hbm2-reference",
    config: Annotated[str | None, typer.Option(
        metavar="NAME", help="A variation of the machine's timing and address map, for example ccdwl4; base (with "
        "--all: every one) if not given.")] = None,
    every: Annotated[bool, typer.Option(
        "--all", help="Replay every recorded workload and compare with DRAMsim3 and Ramulator 2.")] = False,
    json: JsonOption = None,
) -> None:
    """Replay a request trace on one DRAM channel; report cycles, commands and read latency."""
    from pathlib import Path

    from t3sim.machine import load_machine

    if every == (trace is not None):
        raise BadInput("give TRACE or --all" if trace is None else
                       f"TRACE {trace!r} and --all do not go together")
    recorded_name = trace is not None and not Path(trace).is_file()
    if recorded_name:
        from t3sim.testbenches.hbm_replay import recorded

        if trace not in recorded.workloads("hbm3"):
            raise BadInput(f"trace {trace!r} is neither a file nor one of the recorded workloads "
                           f"{choices(trace, recorded.workloads('hbm3'))}")
    described = load_machine(machine)

    from t3sim.base.console import output_console, print_pairs, progress_bar
    from t3sim.testbenches.hbm_replay.configurations import CONFIGS

    if config is not None and config not in CONFIGS:
        raise BadInput(f"--config {config!r} is unknown: allowed are {', '.join(CONFIGS)}")

    if every:
        from t3sim.testbenches.hbm_replay.report import print_validation
        from t3sim.testbenches.hbm_replay.validation import validate, validate_micro, verdicts

        configs = None if config is None else [config]
        with progress_bar(["replay"]) as progress:
            rows = validate(described.dram, configs, progress=lambda share: progress("replay", share))
        micro = validate_micro(described.dram, configs)
        results = verdicts(rows, micro)
        content = {"rows": [row.to_json() for row in rows], "micro": [row.to_json() for row in micro],
                   "verdicts": [one.to_json() for one in results]}
        if write_results(content, json):
            print_validation(rows, micro, results, output_console())
        return

    from t3sim.testbenches.hbm_replay.trace import read_trace

    config = config or "base"
    try:
        requests = recorded.trace(trace, config) if recorded_name else read_trace(
            Path(trace), described.dram.request_bytes, described.dram.channel_bytes)
    except BadInput:
        raise
    except (ValueError, OverflowError) as error:  # no text, or numbers that no address can have
        raise BadInput(f"{trace} is not a trace: {error}") from None
    from t3sim.testbenches.hbm_replay.replay import replay

    with progress_bar(["replay"]) as progress:
        count = max(1, requests.lines.size)
        result = replay(requests, described.dram, config, lambda accepted: progress("replay", accepted / count))
    if write_results(result.to_json(), json):
        print_pairs(f"{trace} on {described.name}, {config}", result.to_json().items(), output_console())
