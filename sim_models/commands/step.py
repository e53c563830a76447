"""`t3 step`: a trace in the terminal, cycle by cycle."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import natural_number, recording_name, trace_folder


def step(
    folder: Annotated[Path, typer.Argument(
        metavar="DIR|FILE", parser=recording_name,
        help="Folder that `t3 trace` wrote, or a recording of a library of `t3 export --record`.")],
    device: Annotated[int, typer.Option(
        "--gpu", "--device", metavar="D", parser=natural_number, help="GPU of a --every-gpu trace.")] = 0,
    cycle: Annotated[int | None, typer.Option(metavar="T", parser=natural_number, help="First cycle to show.")] = None,
    until: Annotated[str, typer.Option(
        "--break", metavar="CONDITION",
        help='Run to a condition: "set 17 full", "count of wg 37 wf 2 reaches 96".')] = "",
) -> None:
    """Step through a trace, forwards and backwards: Tracker, arbiters, queues, DMA table."""
    on_a_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_a_terminal:  # what reads a trace takes seconds to be imported
        print(f"t3: reading the trace in {folder} ...", file=sys.stderr, flush=True)
    from t3sim.trace.replay import DeviceReplay
    from t3sim.trace.store import Trace

    recorded = Trace.load(trace_folder(folder))
    replay = DeviceReplay(recorded, device)
    if until:
        stop_cycle = replay.find(until, cycle if cycle is not None else replay.first - 1)
        if stop_cycle is None:
            raise BadInput(f"--break {until!r}: the condition never holds in the recording (or not after --cycle)")
        cycle = stop_cycle
    if not on_a_terminal:
        raise BadInput("t3 step needs a terminal; `t3 explain` works without one")

    print(f"t3: {len(recorded.events):,} events of {recorded.title}", file=sys.stderr, flush=True)
    from t3sim.trace.stepper import Stepper

    Stepper(recorded, device, cycle, until).run()
