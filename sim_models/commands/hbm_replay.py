"""`t3 hbm-replay`: the DRAM model alone on a request trace."""

from typing import Annotated

import typer

from sim_models.commands.options import JsonOption
from sim_models.errors import BadInput


def hbm_replay(
    trace: Annotated[str, typer.Argument(
        metavar="TRACE", help="Lines `0xADDRESS READ|WRITE CYCLE`: byte address, operation, earliest cycle.")],
    machine: Annotated[str, typer.Option(
        "--machine", metavar="NAME|FILE", help="A machine by name, or a TOML file; its first channel is replayed.",
    )] = "hbm2-reference",
    config: Annotated[str, typer.Option(
        metavar="NAME", help="A variation of the machine's timing and address map, for example ccdwl4.")] = "base",
    json: JsonOption = None,
) -> None:
    """Replay a request trace on one DRAM channel and count what it took."""
    from pathlib import Path

    from sim_models.machine import load_machine
    from sim_models.results import check_json_target, write_json

    if not Path(trace).is_file():
        raise BadInput(f"trace {trace!r} is not a file")
    check_json_target(json)
    described = load_machine(machine)

    from sim_models.hbm.configurations import CONFIGS
    from sim_models.hbm.replay import replay
    from sim_models.hbm.trace import read_trace
    from sim_models.report import output_console, print_pairs, progress_bar

    if config not in CONFIGS:
        raise BadInput(f"--config {config!r} is unknown: allowed are {', '.join(CONFIGS)}")
    try:
        requests = read_trace(Path(trace))
    except BadInput:
        raise
    except (ValueError, OverflowError) as error:  # no text, or numbers that no address can have
        raise BadInput(f"{trace} is not a trace: {error}") from None
    with progress_bar(["replay"]) as progress:
        count = max(1, requests.lines.size)
        result = replay(requests, described.dram, config, lambda accepted: progress("replay", accepted / count))
    if json is not None:
        write_json(result.to_json(), json)
    if json != "-":
        print_pairs(f"{trace} on {described.name}, {config}", result.to_json().items(), output_console())
