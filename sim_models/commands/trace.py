"""`t3 trace`: run a fused kernel or a collective alone, and record what happens in it."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.base.errors import BadInput, choices
from t3sim.commands.flags import print_notes, takes_scenario
from t3sim.commands.options import JsonOption, check_estimate, folder_name, natural_number, write_results

if TYPE_CHECKING:
    from t3sim.study.scenario.scenario import Scenario

BUGS = ("threshold", "neighbour", "starvation")  #: `trace.bugs.BUGS`


_ENDS = {"window": "stopped with the window"}  #: how a run ended, where one word does not say it


@takes_scenario
def trace(
    scenario: "Scenario",
    out: Annotated[Path, typer.Option(
        "--out", metavar="DIR", parser=folder_name, help="Folder for the trace; created if missing.")],
    first: Annotated[int, typer.Option(
        "--from", metavar="CYCLE", parser=natural_number, help="First memory cycle to record.")] = 0,
    until: Annotated[int | None, typer.Option(
        "--until", metavar="CYCLE", parser=natural_number,
        help="Stop before this cycle. Default: the end of the run.")] = None,
    kind: Annotated[str | None, typer.Option(
        metavar="A,B,...", help="Kinds of event to record (see docs/debugging.md). Default: all.")] = None,
    channel: Annotated[str | None, typer.Option(
        metavar="N,A-B,...", help="Memory channels to record. Default: all.")] = None,
    wg: Annotated[str | None, typer.Option(
        metavar="N,A-B,...", help="Workgroups to record. Default: all.")] = None,
    limit: Annotated[int, typer.Option(
        metavar="N", parser=natural_number, help="Maximum number of events, 50 bytes of memory each.")] = 5_000_000,
    compare: Annotated[bool, typer.Option(
        "--compare", help="Also run without recording, check that nothing differs, and print the cost.")] = False,
    index: Annotated[bool, typer.Option(
        "--index", help="Only list interesting places of the whole run, to choose a window.")] = False,
    timeline: Annotated[bool, typer.Option(
        "--timeline", help="Also write DIR/timeline.pftrace, for ui.perfetto.dev.")] = False,
    waves: Annotated[bool, typer.Option(
        "--waves", help="Also write DIR/waves.vcd of the window, with save files for GTKWave and Surfer.")] = False,
    fst: Annotated[bool, typer.Option(
        "--fst", help="Also write the waves as DIR/waves.fst, which is much smaller. Needs --waves.")] = False,
    bug: Annotated[str | None, typer.Option(
        metavar="NAME", help=f"Plant a bug to practise on: {', '.join(BUGS)} (docs/debugging.md).")] = None,
    insist: Annotated[bool, typer.Option(
        "--insist", help="Run even if it is estimated to take over a day or more memory than there is.")] = False,
    json: JsonOption = None,
) -> None:
    """Record the events of a fused kernel or of a collective alone, for `t3 explain` and `t3 step`."""

    if bug is not None and bug not in BUGS:
        raise BadInput(f"--bug {bug!r} is unknown: allowed are {', '.join(BUGS)}")
    if compare and bug:
        raise BadInput(f"--compare does not go with --bug {bug}: the ordinary run has no bug")
    if fst and not waves:
        raise BadInput("--fst needs --waves")
    if fst:
        import pylibfst  # noqa: F401  a run does not end for want of it
    if compare and waves:
        raise BadInput("--compare does not go with --waves, which stops after every cycle")
    if index:
        for option, given in (("--kind", kind), ("--channel", channel), ("--wg", wg), ("--from", first),
                              ("--until", until), ("--waves", waves), ("--timeline", timeline)):
            if given:
                raise BadInput(f"{option} does not go with --index, which looks at the whole run")
    if limit == 0:
        raise BadInput("--limit 0 would record nothing: at least 1 is needed")

    from dataclasses import asdict, replace

    from t3sim.base.console import output_console, print_gpus, print_table, progress_bar
    from t3sim.study.scenario.collective import CollectiveRequest
    from t3sim.study.scenario.layers import workloads_of
    from t3sim.study.scenario.recorded import recorded
    from t3sim.study.scenario.request import check_limits
    from t3sim.study.tasks.estimate import estimate
    from t3sim.study.tasks.store import KeptResults
    from t3sim.trace.record import record
    from t3sim.trace.recorder import Filter
    from t3sim.trace.run_index import KINDS, places
    from t3sim.trace.schema import NAMES
    from t3sim.trace.store import Trace

    kinds = None
    if kind is not None:
        unknown = [name for name in kind.split(",") if name.strip() not in NAMES]
        if unknown:
            raise BadInput(f"--kind {unknown[0]!r} is unknown: allowed are {choices(unknown[0], NAMES)}")
        kinds = frozenset(NAMES[name.strip()] for name in kind.split(","))
    subject = recorded(scenario, bug)
    alone = subject if isinstance(subject, CollectiveRequest) else None
    setup = subject if alone is None else alone.recorded(KeptResults())
    workload = None if alone else subject.plan.workload
    cost = alone.estimate() if alone else estimate(
        subject.machine, workload, [subject.kernel], mirrored=subject.plan.skew is None)
    print_notes(alone.notes if alone else [*workloads_of(scenario.layer, scenario.seed)[1], *check_limits(
        scenario, setup.machine, {setup.kernel.policy})])
    if until is None:
        check_estimate(cost, alone or workload, insist)  # before the schedule of what is too large is made
    channels, workgroups = setup.machine.geometry().channel.channels, setup.names
    events = Filter(first, until, kinds, _numbers("--channel", channel, channels), _numbers("--wg", wg, workgroups),
                    limit)
    if index:
        events = replace(events, kinds=KINDS)
    if until is None:
        print(f"t3: estimated: {cost}", file=sys.stderr, flush=True)
    with progress_bar([setup.what]) as progress:
        result = record(setup, out, events, compare=compare, with_waves=waves,
                        progress=lambda fraction: progress(setup.what, fraction))
    if fst:
        from t3sim.rtlsim.fst import to_fst
        from t3sim.trace.store import WAVES, WAVES_FST

        to_fst(out / WAVES, out / WAVES_FST)
    if timeline:
        from t3sim.trace.timeline import write_timeline

        write_timeline(Trace.load(out))
    summary = asdict(result) | {"slowdown": result.slowdown, "slowdown_on_one_core": result.slowdown_on_one_core}
    known_places = places(Trace.load(out)) if index else []
    if index:
        summary["places"] = [place.to_json() for place in known_places]
    if write_results(summary, json):
        console = output_console()
        rate = result.cycles_recorded / result.seconds_recorded if result.seconds_recorded else 0
        ended = _ENDS.get(result.outcome, result.outcome)
        console.print(f"{out}: {result.events:,} events of {result.cycles_recorded:,} cycles, {rate:,.0f} cycles/s "
                      f"while recording; the run: {ended} at cycle {result.cycles:,}", highlight=False)
        if result.dropped:
            console.print(f"The limit of {limit:,} events was reached and {result.dropped:,} or more are missing: "
                          "record a shorter window or fewer kinds, or raise --limit", highlight=False)
        if result.slowdown is not None:
            console.print(f"Without recording, the same cycles took {result.seconds_untraced:.2f} s instead of "
                          f"{result.seconds_recorded:.2f} s and, on another core, {result.seconds_writing:.2f} s of "
                          f"writing: recording costs a factor of {result.slowdown:.2f}, on one core of "
                          f"{result.slowdown_on_one_core:.2f}. Both runs gave the same state. "
                          f"Peak memory: {result.peak_memory_mb:.0f} MB.", highlight=False)
        if index:
            print_table("Where to look", ("place", "GPU", "cycle", "lasts", "tile", "--from", "--until"), (
                (place.what, str(place.device), f"{place.cycle:,}",
                 "" if place.lasted_cycles is None else f"{place.lasted_cycles:,}", place.detail,
                 *map(str, place.window)) for place in known_places), console)
        if result.problem:
            problem = result.problem.partition(":")[0] if result.gpus else result.problem
            console.print(f"The run {result.outcome}: {problem}", highlight=False)
        if result.gpus:
            print_gpus(result.gpus)
    if result.outcome == "interrupted":
        raise KeyboardInterrupt
    if result.outcome in ("stuck", "failed"):  # recorded all the same
        raise typer.Exit(1)


def _numbers(option: str, text: str | None, size: int) -> frozenset[int] | None:
    """Read numbers below `size`: `3,8-11` is {3, 8, 9, 10, 11}."""
    if text is None:
        return None
    numbers: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not re.fullmatch(r"[0-9]+(-[0-9]+)?", part.strip()) or (dash and int(high) < int(low)):
            raise BadInput(f"{option} {part.strip()!r} is not a number or a range such as 8-11")
        if max(int(low), int(high or low)) >= size:
            raise BadInput(f"{option} {part.strip()!r} does not exist: this run has 0 to {size - 1}")
        numbers.update(range(int(low), int(high or low) + 1))
    return frozenset(numbers)
