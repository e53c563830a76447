"""`t3 dma`: collectives by DMA engines beside kernels on compute units, over sizes."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import (
    JsonOption,
    check_estimate,
    file_name,
    shown_size,
    size_range,
    whole_number,
    write_results,
)

if TYPE_CHECKING:
    from t3sim.machine import Machine
    from t3sim.runs.queued import ProducerWaves
    from t3sim.study.tasks.estimate import Estimate

#: Of each run, for `--json`.
_REPORTED = ("ns", "phases_ns", "commands", "engines", "syncs", "read_bytes", "link_bytes")

#: Of this computer, measured at 256 KB to 16 MB: for the process, and for each byte of each GPU's array.
_BASE_BYTES, _BYTES_PER_BYTE = 430_000_000, 7

#: What a variant is called by what starts it.
_TITLES = {"host": "", "gpu": "gpu-", "poll": "prelaunch-", "tracker": "tracker-"}


def dma(
    collective: Annotated[str, typer.Option(
        metavar="ag|a2a|rs|ar", help="All-gather, all-to-all, reduce-scatter, all-reduce; sums are added in memory. "
        "Cycle level: also ag-ring, rs-ring, ar-ring.")] = "ag",
    sizes: Annotated[str, typer.Option(
        metavar="SIZE[:SIZE]", help="Bytes of the whole array: 1K:1G doubles from 1 KB to 1 GB.")] = "1K:1G",
    variant: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="pcpy, bcst (ag), swap (a2a), b2b; prelaunch adds a prelaunched form of each. "
        "Cycle level: b2b, bcst (ag, ar), swap (a2a).")] = None,
    machine: Annotated[str | None, typer.Option(
        "--machine", metavar="NAME|FILE", parser=file_name, help="mi300x (default), mi355x, or a TOML file. "
        "Cycle level: a machine of that level with times of host and GPU commands; default t3-table1.")] = None,
    initiator: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="What starts the copies: host (default), gpu (a kernel), poll (prelaunched), "
        "tracker. Cycle level: also chain, which polls flags that the producer sets.")] = None,
    level: Annotated[str, typer.Option(
        metavar="event|cycle",
        help="cycle simulates the command queue's RTL in every GPU and checks every bit.")] = "event",
    gpus: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Cycle level: number of GPUs. Default: 4.")] = None,
    wave: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Cycle level, chain: blocks that each flag releases. Default: as few "
        "as the flags allow.")] = None,
    reverse: Annotated[bool, typer.Option(
        "--reverse", help="Cycle level: store waves last to first, with the commands still first to last.")] = False,
    insist: Annotated[bool, typer.Option(
        "--insist", help="Cycle level: run even if it is estimated to take over a day or more memory than there is.",
    )] = False,
    json: JsonOption = None,
) -> None:
    """Time DMA collectives: phases, commands, engines and traffic on the event level, or the RTL on the cycle level."""
    if level not in ("event", "cycle"):
        raise BadInput(f"--level {level[:40]!r} is unknown: allowed are event, cycle")
    if level == "cycle":
        from t3sim.runs.queued import ProducerWaves

        _on_the_cycle_level(collective, sizes, variant, "t3-table1" if machine is None else machine, initiator,
                            4 if gpus is None else gpus, json, ProducerWaves(wave, reverse), insist)
        return
    for option, value in (("--gpus", gpus), ("--wave", wave), ("--reverse", reverse or None),
                          ("--insist", insist or None)):
        if value is not None:
            raise BadInput(f"{option} is for the cycle level: add --level cycle")
    from t3sim.analytic.rings import kernel_collective_ns
    from t3sim.base.console import output_console, print_table
    from t3sim.event.flow.commands import COLLECTIVES, POSSIBLE
    from t3sim.event.flow.dma import INITIATORS, PHASES, copied_then_added_ns, run_collective
    from t3sim.machine import load_machine
    from t3sim.machine.levels import ENGINES

    if collective not in COLLECTIVES:
        raise BadInput(f"--collective {collective[:40]!r} is unknown: allowed are {', '.join(COLLECTIVES)}")
    sizes_bytes = size_range(sizes)
    names = [name.strip() for name in variant.split(",")] if variant is not None else [*POSSIBLE[collective],
                                                                                       "prelaunch"]
    for name in names:
        if name not in (*POSSIBLE[collective], "prelaunch"):
            raise BadInput(f"--variant {name[:40]!r} is not possible for {collective}: allowed are "
                           f"{', '.join(POSSIBLE[collective])}, prelaunch")
    variants = list(dict.fromkeys(name for name in names if name != "prelaunch")) or list(POSSIBLE[collective])
    started = ["host", *(["poll"] if "prelaunch" in names else [])]
    if initiator is not None:
        started = list(dict.fromkeys(name.strip() for name in initiator.split(",")))
        for name in started:
            if name not in INITIATORS:
                raise BadInput(f"--initiator {name[:40]!r} is unknown: allowed are {', '.join(INITIATORS)}")
        if variant is not None and "prelaunch" in names:
            raise BadInput("--variant prelaunch and --initiator poll mean the same: give only one of them")
    node = load_machine("mi300x" if machine is None else machine, ENGINES)

    runs: dict[str, dict[int, object]] = {}
    for name in variants:
        for start in started:
            runs[_TITLES[start] + name] = {
                size: run_collective(node, collective, name, size, start) for size in sizes_bytes}
    kernel = {size: kernel_collective_ns(node, size, 2 if collective == "ar" else 1) for size in sizes_bytes}
    reduces = collective in ("rs", "ar")
    added = {size: copied_then_added_ns(node, collective, size) for size in sizes_bytes} if reduces else {}
    others = {"kernels": kernel, **({"copies, then a\nkernel adds": added} if added else {})}
    details = {title: {size: {name: getattr(run, name) for name in _REPORTED} for size, run in by_size.items()}
               for title, by_size in runs.items()}
    content = {"collective": collective, "machine": node.described(ENGINES), "kernel_ns": kernel,
               **({"copied_then_added_ns": added} if added else {}), "variants": details}
    if not write_results(content, json):
        return
    console = output_console()
    rows = []
    for size in sizes_bytes:
        times = {title: by_size[size].ns for title, by_size in runs.items()}
        best = min(times, key=times.get)
        rows.append((shown_size(size), *(f"{ns / 1e3:,.1f}" for ns in (*(by_size[size] for by_size in others.values()),
                                                                       *times.values())), best))
    print_table(f"{COLLECTIVES[collective].capitalize()} on {node.gpus} GPUs of {node.name} (µs)",
                ("size", *others, *(title.replace("-", "-\n") for title in runs), "fastest\nby DMA"), rows, console)
    first, last = sizes_bytes[0], sizes_bytes[-1]
    print_table("Commands, and phases of the engine that ends last (µs)",
                ("variant", "commands", "engines", "syncs", *(f"{phase}\n{shown_size(size)}"
                                                              for size in (first, last) for phase in PHASES)),
                [(title, f"{by_size[first].commands}", f"{by_size[first].engines}", f"{by_size[first].syncs}",
                  *(f"{by_size[size].phases_ns[phase] / 1e3:,.1f}" for size in (first, last) for phase in PHASES))
                 for title, by_size in runs.items()], console)


def _estimate(machine: "Machine", gpus: int, moved: Sequence[int]) -> "Estimate":
    """Estimate runs in which so much of an array is moved, each by its link, and the RTL of all GPUs is stepped."""
    from t3sim.analytic.rings import ring_time_ns
    from t3sim.study.tasks.estimate import FUSED_CYCLES_PER_SECOND, Estimate

    cycles = sum(ring_time_ns(machine, size, gpus) for size in moved) * machine.memory_clock_ghz
    return Estimate(cycles, gpus * cycles / FUSED_CYCLES_PER_SECOND,
                    _BASE_BYTES + gpus * max(moved) * _BYTES_PER_BYTE)


def _on_the_cycle_level(collective: str, sizes: str, variant: str | None, machine: str, initiator: str | None,
                        gpus: int, json: str | None, waves: "ProducerWaves", insist: bool) -> None:
    from t3sim.base.console import output_console, print_table
    from t3sim.machine import load_machine
    from t3sim.machine.levels import QUEUE
    from t3sim.runs.copies import COLLECTIVES, VARIANTS
    from t3sim.runs.queued import BY_TRACKER, INITIATORS, check_asked, run_queued

    sizes_bytes = size_range(sizes)
    variants = [name.strip() for name in variant.split(",")] if variant is not None else [
        name for name, of in VARIANTS.items() if collective in of] or ["b2b"]
    started = [name.strip() for name in initiator.split(",")] if initiator is not None else list(INITIATORS)
    # Title, initiator and variant of each run.
    variants_run = [(name if variant_name == "b2b" else f"{name}-{variant_name}", name, variant_name)
                    for variant_name in dict.fromkeys(variants) for name in dict.fromkeys(started)]
    if variant is None or initiator is None:
        variants_run = [(called, name, variant_name) for called, name, variant_name in variants_run
                        if name != "tracker" or collective in BY_TRACKER.get(variant_name, ())] or variants_run
    chip = load_machine(machine, QUEUE)
    for _, name, variant_name in variants_run:
        for size in sizes_bytes:
            check_asked(chip, collective, gpus, size, name, variant_name, waves)
    phases = 2 if collective.startswith("ar") else 1
    cost = _estimate(chip, gpus, [phases * size for size in sizes_bytes for _ in variants_run])
    check_estimate(cost, SimpleNamespace(kind=f"{COLLECTIVES[collective]} by engines",
                                             size=f"{shown_size(sizes_bytes[-1])} on {gpus} GPUs"), insist)
    print(f"t3: estimated: {cost}", file=sys.stderr, flush=True)
    runs = {size: {called: run_queued(chip, collective, gpus, size, name, variant=variant_name, waves=waves)
                   for called, name, variant_name in variants_run} for size in sizes_bytes}
    content = {"collective": collective, "level": "cycle", "gpus": gpus, "machine": chip.name,
               "initiators": {"host": chip.described(QUEUE)["host"],
                              "gpu": chip.gpu.model_dump(include={"command_ns", "doorbell_ns"})},
               "runs": {size: {name: asdict(run) for name, run in by_name.items()} for size, by_name in runs.items()}}
    if not write_results(content, json):
        return
    console = output_console()
    print_table(f"{COLLECTIVES[collective].capitalize()} on {gpus} GPUs with the RTL of {chip.name} (µs from the last "
                "store of the source to the last copied line in memory); every bit checked",
                ("size", *(called.replace("-", "-\n") for called, _, _ in variants_run)),
                [(shown_size(size), *(f"{run.exchange_ns / 1e3:,.2f}" for run in by_name.values()))
                 for size, by_name in runs.items()], console)
    first = runs[sizes_bytes[0]]
    print_table(f"Commands for {shown_size(sizes_bytes[0])}, all GPUs",
                ("started by", "commands", "copies", "polls", "signals", "lines read"),
                [(name, *(f"{value:,}" for value in (run.commands, run.copies, run.polls, run.signals, run.lines)))
                 for name, run in first.items()], console)
