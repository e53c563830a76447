"""`t3 explain`: why a tile fired or did not, why an arbiter granted what it did."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.flags import in_options
from t3sim.commands.options import JsonOption, natural_number, recording_name, trace_folder, write_results


def explain(
    folder: Annotated[Path, typer.Argument(
        metavar="DIR|FILE", parser=recording_name,
        help="Folder that `t3 trace` wrote, or a recording of a library of `t3 export --record`.")],
    wg: Annotated[int | None, typer.Option(
        metavar="W", parser=natural_number, help="Workgroup of the tile, or of a collective alone.")] = None,
    wf: Annotated[int | None, typer.Option(metavar="F", parser=natural_number, help="Wavefront of the tile.")] = None,
    channel: Annotated[int | None, typer.Option(
        metavar="C", parser=natural_number, help="Memory channel, instead of a tile; needs --cycle.")] = None,
    cycle: Annotated[int | None, typer.Option(
        metavar="T", parser=natural_number, help="Memory cycle of the decision.")] = None,
    device: Annotated[int, typer.Option(
        "--gpu", "--device", metavar="D", parser=natural_number, help="GPU of a --every-gpu trace.")] = 0,
    json: JsonOption = None,
) -> None:
    """Explain a tile's life, a collective's workgroup or a channel's decision; without options, the whole run."""
    from t3sim.trace.explain_channel import explain_channel
    from t3sim.trace.explain_passes import explain_piece
    from t3sim.trace.explain_run import explain_run
    from t3sim.trace.explain_tile import explain_tile
    from t3sim.trace.store import Trace

    tile, decision = (wg is not None or wf is not None), (channel is not None or cycle is not None)
    if tile and decision:
        raise BadInput("--wg and --wf explain a tile, --channel and --cycle a decision: give one pair")
    if decision and (channel is None or cycle is None):
        raise BadInput("explaining a decision needs both --channel and --cycle")
    recorded = Trace.load(trace_folder(folder))
    if tile and recorded.passes:
        if wf is not None or wg is None:
            raise BadInput(f"{folder} is a trace of a collective alone: --wg W names a piece, and --wf does not apply")
        answer = explain_piece(recorded, wg, device)
    elif tile:
        if wg is None or wf is None:
            raise BadInput("explaining a tile needs both --wg and --wf")
        answer = explain_tile(recorded, wg, wf, device)
    elif decision:
        answer = explain_channel(recorded, channel, cycle, device)
    else:
        answer = explain_run(recorded)
    if not write_results(answer.to_json(), json):
        return

    from rich.table import Table

    from t3sim.base.console import output_console, print_gpus

    console = output_console()
    console.print(answer.subject, style="bold", highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column()
    for when, text in answer.steps:
        table.add_row(f"{when:,}" if when is not None else "", text)
    if answer.steps:
        console.print(table, highlight=False)
    for line in answer.verdict:
        console.print(line, style="bold", highlight=False)
    if answer.gpus:
        print_gpus(answer.gpus, console)
    for line in map(in_options, answer.caveats):
        console.print(line, style="dim", highlight=False)
