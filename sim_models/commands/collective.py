"""`t3 collective`: a collective on any topology, on the event level, beside its closed form."""

import time
from pathlib import Path
from typing import Annotated

import typer

from sim_models.commands.options import JsonOption, file_name, shown_size, size_range
from sim_models.errors import BadInput

_LARGEST = 256  #: GPUs; an all-to-all has their square of messages


def collective(
    kind: Annotated[str, typer.Option(
        "--collective", metavar="ar|rs|ag|a2a", help="All-reduce, reduce-scatter, all-gather, all-to-all.")] = "ar",
    sizes: Annotated[str, typer.Option(
        metavar="SIZE[:SIZE]", help="Bytes of each GPU's array: 1M:64M doubles from 1 to 64 MB.")] = "64M",
    topology: Annotated[str | None, typer.Option(
        metavar="torus:8x16|ring:8|full:8|switch:8|nodes:2x8", help="The machine's if not given; "
        "nodes:2x8 are 2 of 8 GPUs.")] = None,
    algorithm: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="hierarchical, all-rings, ring, both-rings, direct; all that are possible if not "
        "given.")] = None,
    machine: Annotated[str, typer.Option(
        "--machine", metavar="NAME|FILE",
        help="torus-128, mi210-2x4, a machine of `t3 run`, or a TOML file.")] = "torus-128",
    timeline: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="With one size and algorithm: a Perfetto timeline.")] = None,
    json: JsonOption = None,
) -> None:
    """Time a collective on a network of GPUs: events beside the closed form, and how full links are."""
    from sim_models.flow.algorithms import COLLECTIVES, algorithms, chunk_bytes
    from sim_models.flow.collective import run_program
    from sim_models.flow.scale_out import load_costs
    from sim_models.flow.timeline import LinkRates, write_timeline
    from sim_models.study.report import output_console, print_table
    from sim_models.study.results import check_json_target, write_json
    from sim_models.topologies import TopologyError, named_topology

    wanted = size_range(sizes)
    name, costs, usual = load_costs(machine)
    try:
        on = usual if topology is None else named_topology(topology)
    except TopologyError as error:
        raise BadInput(f"--{error}") from None
    if on.gpus > _LARGEST:
        raise BadInput(f"--topology {topology} has {on.gpus} GPUs: up to {_LARGEST} are simulated")
    if any(link.network for link in on.links) and costs.network_ns is None:
        raise BadInput(f"--topology {topology} joins nodes, but machine {name} has no [network]")
    possible = algorithms(kind, on)
    chosen = list(possible) if algorithm is None else list(dict.fromkeys(algorithm.split(",")))
    for one in chosen:
        if one not in possible:
            raise BadInput(f"--algorithm {one[:40]!r} is not possible for {COLLECTIVES[kind]} on {on.name}: allowed "
                           f"are {', '.join(possible)}")
    if timeline is not None and (len(wanted) > 1 or len(chosen) > 1):
        raise BadInput(f"--timeline {timeline[:40]!r} shows one run: give one size and one --algorithm of "
                       f"{', '.join(chosen)}")
    check_json_target(json)
    check_json_target(timeline, "--timeline")

    runs, started = [], time.perf_counter()
    for one in chosen:
        program = possible[one].program()
        for size in wanted:
            part = chunk_bytes(kind, program, size)
            rates = LinkRates() if timeline is not None else None
            run = run_program(program, on, lambda chunk, part=part: part, costs, watch=rates)
            if rates is not None:
                write_timeline(Path(timeline), f"{COLLECTIVES[kind]}, {one}, {shown_size(size)}", on, run, rates)
            runs.append({"algorithm": one, "size_bytes": size, "collective_ns": run.ns,
                         "closed_form_ns": possible[one].closed_form_ns(costs, size),
                         "messages": len({step[1:] for step in run.steps}), "link_bytes": run.link_bytes,
                         "busiest_link_share": run.busiest_link})
    seconds = time.perf_counter() - started
    if json is not None:
        write_json({"collective": kind, "machine": name, "topology": on.name, "nodes": on.gpus, "links": len(on.links),
                    "runs": runs, "host_seconds": seconds}, json)
    if json == "-":
        return
    console = output_console()
    print_table(f"{COLLECTIVES[kind].capitalize()} on {on.gpus} GPUs, topology {on.name}; machine {name} (µs)",
                ("algorithm", "size", "events", "closed\nform", "difference", "messages", "busiest\nlink"),
                [(run["algorithm"], shown_size(run["size_bytes"]), f"{run['collective_ns'] / 1e3:,.1f}",
                  f"{run['closed_form_ns'] / 1e3:,.1f}", f"{_difference(run):+.1%}", f"{run['messages']:,}",
                  f"{run['busiest_link_share']:.0%}") for run in runs], console)
    console.print(f"{len(on.links)} links; {seconds:.1f} s on this computer.")


def _difference(run: dict) -> float:
    return round(run["collective_ns"] / run["closed_form_ns"] - 1, 4) + 0.0  # no negative zero
