"""`t3 collective`: a collective on any topology, on the event level, beside its closed form."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import JsonOption, file_name, shown_size, size_range, write_results


def collective(
    kind: Annotated[str | None, typer.Option(
        "--collective", metavar="ar|rs|ag|a2a",
        help="All-reduce, reduce-scatter, all-gather, all-to-all. Default: ar.")] = None,
    sizes: Annotated[str, typer.Option(
        metavar="SIZE[:SIZE]", help="Bytes of each GPU's array: 1M:64M doubles from 1 to 64 MB.")] = "64M",
    topology: Annotated[str | None, typer.Option(
        metavar="torus:8x16|ring:8|full:8|switch:8|nodes:2x8", help="Default: the machine's. "
        "nodes:2x8 means 2 nodes of 8 GPUs.")] = None,
    algorithm: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="hierarchical, all-rings, ring, both-rings, direct. Default: all possible "
        "ones.")] = None,
    machine: Annotated[str, typer.Option(
        "--machine", metavar="NAME|FILE",
        help="torus-128, mi210-2x4, a machine of `t3 run`, or a TOML file.")] = "torus-128",
    plan: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name,
        help="A plan in MSCCL's XML or MSCCL++'s JSON, instead of --collective and --algorithm.")] = None,
    write_plan: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Write the schedule as MSCCL's XML; needs one algorithm.")] = None,
    every_gpu: Annotated[bool, typer.Option(
        "--every-gpu", help="Simulate each GPU, not one representative GPU per group.")] = False,
    timeline: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name,
        help="Write a Perfetto timeline of each GPU; needs one size and algorithm.")] = None,
    json: JsonOption = None,
) -> None:
    """Time a collective on a network of GPUs, compare it with the closed form, and show link utilization."""
    from t3sim.base.console import output_console, print_table
    from t3sim.base.output import write_whole
    from t3sim.collectives.algorithms import COLLECTIVES
    from t3sim.collectives.msccl import msccl_text
    from t3sim.event.flow.runs import request

    sizes_bytes = size_range(sizes)
    flow = request(kind, machine, topology, None if algorithm is None else algorithm.split(","),
                   None if plan is None else Path(plan), every_gpu or timeline is not None or write_plan is not None)
    names = ", ".join(one.name for one in flow.chosen)
    if write_plan is not None and len(flow.chosen) > 1:
        raise BadInput(f"--write-plan {write_plan[:40]!r} holds one algorithm: give --algorithm, one of {names}")
    if timeline is not None and (len(sizes_bytes) > 1 or len(flow.chosen) > 1):
        raise BadInput(f"--timeline {timeline[:40]!r} shows one run: give one size and one --algorithm of "
                       f"{names}")

    if timeline is None:
        result = flow.run(sizes_bytes)
    else:
        from t3sim.event.flow.timeline import LinkRates, write_timeline

        rates = LinkRates()
        result = flow.run(sizes_bytes, lambda algorithm, size: rates, lambda algorithm, size, run: write_timeline(
            Path(timeline), f"{COLLECTIVES[flow.collective]}, {algorithm}, {shown_size(size)}", flow.on, run, rates))
    if write_plan is not None:
        (one,) = flow.chosen
        write_whole(Path(write_plan), msccl_text(flow.collective, one.program(), one.name))
    if not write_results(result.to_json(), json):
        return
    console = output_console()
    print_table(f"{COLLECTIVES[result.collective].capitalize()} on {result.nodes} GPUs, topology {result.topology}; "
                f"machine {result.machine} (µs)",
                ("algorithm", "size", "events", "closed\nform", "difference", "messages", "GPUs\nsimulated",
                 "busiest\nlink"),
                [(run.algorithm, shown_size(run.size_bytes), f"{run.collective_ns / 1e3:,.1f}",
                  *_closed(run), f"{run.messages:,}", f"{run.simulated:,}",
                  f"{run.busiest_link_share:.0%}") for run in result.runs], console)
    console.print(f"{result.links} links; {result.host_seconds:.1f} s on this computer.")


def _closed(run) -> tuple[str, str]:
    from t3sim.base.console import NOTHING

    if run.closed_form_ns is None:
        return NOTHING, NOTHING
    difference = round(run.collective_ns / run.closed_form_ns - 1, 4) + 0.0  # no negative zero
    return f"{run.closed_form_ns / 1e3:,.1f}", f"{difference:+.1%}"
