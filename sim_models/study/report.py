"""Results as tables for people. Numbers are never cut off."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from t3sim.base.console import NOTHING, ReportTable, report_table, words_of_key
from t3sim.base.errors import printable
from t3sim.base.line import LINE_BYTES
from t3sim.collectives.schedule import FIXED_TERMS
from t3sim.mechanisms.result import BASELINE, DRAM_STREAMS, TechniqueResult
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.runs.exchange import REDUCED
from t3sim.runs.phases import Moved
from t3sim.study.bounds import who_waits
from t3sim.study.results import BenchResult, CollectiveRun, KernelRun, RunResult

_IDEAL = "ideal-"  #: techniques that are arithmetic on times of others
_NOTABLE = 0.0005  #: share beyond all that is hidden, from which on it is worth a sentence


def answer(result: RunResult) -> list[str]:
    """Say how fast the GEMM alone is, why a technique is faster than that, and which technique is the fastest."""
    base, producer = result.baseline, result.workload.producer
    if base is None:
        return ["No speedup without the baseline: add sequential to the techniques."]
    lines = []
    if rate := result.gemm_rate:
        lines.append(f"The {producer} alone: {rate.words}.")
    efficiency = result.overlap_efficiency
    if shares_above_one := {name: share for name, share in efficiency.items() if share > 1 + _NOTABLE}:
        name = max(shares_above_one, key=shares_above_one.__getitem__)
        largest_gain = min(result.techniques[name].loss_ns.items(), key=lambda item: item[1])
        lines.append(
            f"An overlap efficiency above 100% is possible: with Track & Trigger the {producer} itself takes less "
            f"time than alone, because its output bypasses the cache and most of it goes to other GPUs. The largest "
            f"gain of {name} is \"{largest_gain[0].replace('_', ' ')}\", {-largest_gain[1] / 1e3:,.1f} µs.")
    candidates = {name: technique for name, technique in result.techniques.items()
                  if name != base.name and not name.startswith(_IDEAL)}
    if not candidates:
        return lines
    name, best = min(candidates.items(), key=lambda item: item[1].total_ns)
    hidden_text = f"; it hides {efficiency[name]:.1%} of the {' and the '.join(result.exchange.hides)}" if (
        0 < efficiency.get(name, 0) <= 1 + _NOTABLE) else ""
    verb = "takes" if len(candidates) == 1 else "is the fastest:"
    lines.append(f"{name} {verb} {best.total_ns / 1e3:,.1f} µs, {result.speedup[name]:.3f} times as fast as "
                 f"{base.name} ({base.total_ns / 1e3:,.1f}){hidden_text}.")
    return lines


def _threshold(entries: int) -> str:
    """Write a threshold as people say it."""
    return "none" if entries == NO_THRESHOLD else str(entries)


def print_run(result: RunResult, console: Console) -> None:
    """Print what bounds one `t3 run`, its traffic, losses and simulation speed; at the end its times: the answer."""
    workload = result.workload

    def show(table: ReportTable) -> None:
        console.print(table.of(workload.producer))

    console.print(Text.assemble((printable(workload.title), "bold"), f": {workload.shape}, "
                  f"{workload.dtype}, {workload.tp} GPUs; machine {result.machine.name}; seed {result.seed}"
                  + (f"; every GPU, {result.skew}" if result.skew is not None else
                     f"; every GPU, as {result.exchange.unlike}" if any(
                         technique.gpus for technique in result.techniques.values()) else "")
                  + (f"; {result.exchange.operator}" if result.exchange.operator != REDUCED.operator else "")
                  + (f"; {result.exchange.algorithm}" if result.exchange.algorithm != REDUCED.algorithm else "")
                  + (f"; topology {result.exchange.topology}" if result.exchange.topology != REDUCED.topology else "")
                  + (f"; {result.exchange.sums.words(workload)}" if result.exchange.sums.name else "")
                  + (f"; t3 under the policy {result.policy}" if result.policy else "")))
    console.print()
    gemm_alone = result.gemm_rate
    rates = ("GEMM\nTFLOP/s", "of\npeak") if gemm_alone else ()

    def rate_of(name: str) -> tuple[str, ...]:
        if gemm_alone is None:
            return ()
        slower = result.baseline.gemm_ns / result.techniques[name].gemm_ns
        return f"{gemm_alone.tflop_per_s * slower:,.1f}", f"{gemm_alone.share * slower:.0%}"

    if bounds := result.bounds:
        headings = ("GEMM\nalone", "link\nbusy", "DRAM\nat peak", *rates, "limited by")
        show(report_table("Limits", "technique", headings, (
            (name, f"{bound.gemm:.0%}", f"{bound.link:.0%}", f"{bound.dram:.0%}", *rate_of(name), bound.words)
            for name, bound in bounds.items())))
    if (terms := result.terms_by_arrival) > FIXED_TERMS and any(
            technique.rtl_in_loop for technique in result.techniques.values()):
        console.print(f"Sums of Track & Trigger have up to {terms} terms, added in order of arrival, so their last "
                      "bits may differ from run to run.")
        console.print()
    for name, technique in result.techniques.items():
        if technique.gpus:
            show(_gpus(name, technique.gpus))
            console.print(who_waits(technique.gpus, technique.total_ns, workload.producer))
            console.print()
    show(_traffic(result))
    if any(technique.loss_ns for technique in result.techniques.values()):
        show(_losses(result))
    for name, technique in result.techniques.items():
        if len(technique.tried) > 1:
            show(report_table(f"Choices of {name} (µs)", "order of tiles", ("communication\ntiles", "kernels"),
                              ((choice.options["order"], f"{choice.options['pieces']}", _microseconds(choice.ns))
                               for choice in technique.tried)))
    if any(technique.hardware for technique in result.techniques.values()):
        show(_hardware(result))
    if numbers := result.numbers:
        error_text = "" if numbers.error is None else (
            f"; the sums differ from float64 by {numbers.error:.3%} (root mean square)")
        console.print(f"{numbers.technique} on {workload.tp} GPUs with numbers: {numbers.compared:,} elements equal "
                      f"numpy's bit for bit{error_text}.")
        console.print()
    console.print(_speed(result))
    show(_times(result))
    for line in answer(result):
        console.print(line)


def print_together(results: Sequence[RunResult], times: Sequence[int], console: Console) -> None:
    """Print the sub-layers of a model or a trace, each as often as it is there."""
    names = list(results[0].techniques)
    totals = {name: sum(count * result.techniques[name].total_ns for count, result in zip(times, results))
              for name in names}
    rows = [(workload.title, f"{workload.m}x{workload.n}x{workload.k}", f"{count:,}",
             *(_microseconds(result.techniques[name].total_ns) for name in names))
            for count, result in zip(times, results) for workload in (result.workload,)]
    console.print(report_table("Whole file: each sub-layer times its count (µs)", "sub-layer",
                               ("MxNxK", "times", *names), rows,
                               ("all", "", f"{sum(times):,}", *(_microseconds(totals[name]) for name in names))))
    if BASELINE in totals:
        speedups = (f"{name} {totals[BASELINE] / ns:.3f}" for name, ns in totals.items())
        console.print(f"Speedup of all: {', '.join(speedups)}")


def _microseconds(ns: float) -> str:
    return f"{ns / 1e3:z,.1f}"


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"


def _initials(phase: str) -> str:
    return "".join("2" if word == "to" else word[0].upper() for word in phase.split("-"))


def _times(result: RunResult) -> Table:
    speedup, efficiency = result.speedup, result.overlap_efficiency
    phases = dict.fromkeys(phase for technique in result.techniques.values() for phase in technique.phases_ns)
    headings = (_initials(phase) if "-" in phase else words_of_key(phase) for phase in phases)
    return report_table("Time (µs)", "technique", (*headings, "total", "speedup", "overlap\nefficiency"), (
        (name, *(_microseconds(technique.phases_ns[phase]) if phase in technique.phases_ns else NOTHING
                 for phase in phases),
         _microseconds(technique.total_ns),
         f"{speedup[name]:.3f}" if name in speedup else NOTHING,
         f"{efficiency[name]:z.1%}" if name in efficiency else NOTHING)
        for name, technique in result.techniques.items()))


def _gpus(technique: str, gpus: Sequence[Mapping[str, float]]) -> Table:
    """Show which GPU the others wait for: where each GPU's time ends."""
    times = ("start_ns", "gemm_end_ns", "first_packet_ns", "last_tile_ns", "window_held_ns")
    return report_table(f"Each GPU under {technique} (µs)", "GPU", (
        "starts", "GEMM\nends", "first\npacket", "last tile\nhere", "held by\nwindow", "busiest\nlink to", "busy"), (
        (str(number), *(_microseconds(gpu[name]) for name in times), str(gpu["link_to"]), f"{gpu['link_busy']:.0%}")
        for number, gpu in enumerate(gpus)))


def _traffic(result: RunResult) -> Table:
    technique_streams = (stream for technique in result.techniques.values() for stream in technique.streams_bytes)
    streams = dict.fromkeys((*DRAM_STREAMS, *technique_streams))
    amounts = {name: [technique.streams_bytes.get(stream, 0) for stream in streams]
               for name, technique in result.techniques.items()}
    headings = (words_of_key(stream).replace(" ", "\n") for stream in streams)
    return report_table("DRAM traffic per GPU (MB)", "technique", (*headings, "total"), (
        (name, *map(_megabytes, (*parts, sum(parts)))) for name, parts in amounts.items()))


def _losses(result: RunResult) -> Table:
    """Show causes as rows and techniques as columns, in the order in which causes first appear."""
    all_losses = [technique.loss_ns for technique in result.techniques.values()]
    causes = dict.fromkeys(cause for losses in all_losses for cause in losses)
    return report_table(
        "Time that is not hidden (µs)", "cause",
        (name.replace("-", "-\n", 1) if len(name) > 8 else name for name in result.techniques),
        ((words_of_key(cause), *(_microseconds(losses[cause]) if cause in losses else NOTHING for losses in all_losses))
         for cause in causes),
        ("sum", *(_microseconds(sum(losses.values())) for losses in all_losses)))


def _hardware(result: RunResult) -> Table:
    """Show what the RTL counted, read through its bus, and its traffic against the baseline's."""
    fused_techniques = {name: technique for name, technique in result.techniques.items() if technique.hardware}
    rows, holds, places = {}, "inputs" if result.exchange.before else "the window", result.machine.dram.queue_entries
    for technique in fused_techniques.values():
        counters, hardware = technique.hardware.rtl_counters, technique.hardware
        accesses = counters["updates"] + counters["coalesced"]
        values = {
            "tiles completed (triggers)": f"{counters['triggers']:,}",
            "DMA commands": f"{counters['commands']:,}",
            "ready commands waiting, at most": f"{counters['ready_high_water']:,}",
            "Tracker updates": f"{counters['updates']:,}",
            "accesses per update": f"{accesses / max(1, counters['updates']):.2f}",
            "channel-cycles that DMA reads waited for writes": f"{counters['guard_stall']:,}",
            "updates refused because a set was full": f"{counters['set_full']:,}",
            f"cycles in which {holds} held a workgroup": f"{hardware.window_blocked_cycles:,}",
            "packets with the window's head, to its senders": f"{hardware.window_heads:,}",
            f"mean DRAM queue of the GEMM alone, of {places} lines ({places * LINE_BYTES / 1024:g} KB)":
                f"{hardware.producer_mean_occupancy:.2f}",
            "chosen threshold (lines)": _threshold(hardware.chosen_threshold),
        }
        if hardware.switch_sum_bytes is not None:
            values["bytes of sums at a port of the switch, at most"] = f"{hardware.switch_sum_bytes:,}"
        if "tracker_corrected" in counters:
            values["Tracker words corrected"] = f"{counters['tracker_corrected']:,}"
        if result.baseline is not None:
            sums = words_of_key(result.exchange.collective)
            phases = {"AR": ("rs", "ag", "ar")}.get(sums, (result.exchange.collective,))
            reads = [_bytes(side, phases, "read") for side in (result.baseline, technique)]
            writes = [_bytes(side, ("gemm", *phases), "write") for side in (result.baseline, technique)]
            values[f"{sums} reads, sequential / technique"] = (f"{reads[0] / reads[1]:.3f}" if reads[1]
                                                           else "no reads")
            values[f"GEMM and {sums} writes, sequential / technique"] = (f"{writes[0] / writes[1]:.3f}" if writes[1]
                                                       else "no writes")
        for label, value in values.items():
            rows.setdefault(label, []).append(value)
    return report_table("Hardware counters", "counter", fused_techniques, (
        (label, *cells) for label, cells in rows.items()))


def _bytes(technique: TechniqueResult, phases: Iterable[str], direction: str) -> int:
    return sum(getattr(technique.moved.get(phase, Moved()), direction) for phase in phases)


def _speed(result: RunResult) -> Table:
    headings = "RTL in\nthe loop", "cycles", "host\nseconds", "cycles\nper second"
    return report_table("Simulation", "technique", headings, (
        (name, "yes" if technique.rtl_in_loop else "no", f"{technique.mc_cycles:,}" if technique.mc_cycles else NOTHING,
         f"{technique.host_seconds:,.1f}",
         f"{technique.cycles_per_second:,.0f}" if technique.cycles_per_second else NOTHING)
        for name, technique in result.techniques.items()))




def print_kernel(result: KernelRun, console: Console) -> None:
    """Print time and traffic of a kernel alone."""
    rows = [("time", f"{result.kernel_ns:,.1f} ns"),
            *((("rate", f"{result.gemm.tflop_per_s:,.1f} TFLOP/s"), ("share of peak", f"{result.gemm.share:.0%}"),
               ("tile", "{} x {}".format(*result.gemm.tile))) if result.gemm else ()),
            *((f"DRAM, {name.replace('gemm_', '')}", f"{count:,} bytes") for name, count in result.dram_bytes.items())]
    console.print(report_table(f"{result.kernel} alone, {result.machine}", "quantity", ("value",), rows))
    if result.gemm:
        console.print(f"Limited by {result.gemm.limited_by}.")
    if (beside := result.beside) is not None:
        console.print(report_table(f"With copies, {result.machine}", "quantity", ("value",), [
            ("copies read", f"{beside.copies_read_gb_per_s:,.1f} GB/s"),
            ("copies write", f"{beside.copies_write_gb_per_s:,.1f} GB/s"),
            ("time", f"{beside.kernel_ns:,.1f} ns"), ("relative to alone", f"{beside.slowdown:.3f}"),
            ("event level", f"{beside.event_slowdown:.3f}"),
            ("event level's error", f"{beside.error_points:+.1f} points")]))


def print_collective(result: CollectiveRun, console: Console) -> None:
    """Print a collective alone: its time, what its fullest link and DRAM did, and the event level beside it."""
    link, last = result.fullest, max(result.gpus, key=lambda gpu: gpu.end_ns)
    rows = [("time", f"{result.collective_ns:,.1f} ns"),
            ("event level", NOTHING if result.event_ns is None else f"{result.event_ns:,.1f} ns"),
            ("event level's error", NOTHING if result.event_error is None else f"{result.event_error:+.1%}"),
            ("busiest link", f"{link.link_busy:.0%} busy"), ("bytes on that link", f"{link.sent_bytes:,} bytes"),
            ("DRAM, read", f"{last.read_bytes:,} bytes"), ("DRAM, write", f"{last.written_bytes:,} bytes"),
            *([("compared", f"{result.words_compared:,} words, all equal")] if result.words_compared else [])]
    if result.switch and result.switch["begun"]:
        rows += [(label, f"{result.switch[name]:,}") for label, name in (
            ("sums in a merge table, at most", "most_held"), ("complete sums sent", "completed"),
            ("partial sums sent, table full", "evicted"), ("partial sums sent, timeout", "expired"))]
    console.print(report_table(f"{result.collective} of {result.array_bytes:,} bytes alone, {result.devices} GPUs, "
                               f"{result.algorithm} on {result.topology}; {result.machine}", "quantity", ("value",),
                               rows))
    bounds = ", ".join(f"{name} {ns:,.0f}" for name, ns in result.bounds_ns.items())
    console.print(f"Limited by {result.limited_by}; each alone would take (ns): {bounds}.")


def print_bench(result: BenchResult, console: Console) -> None:
    """Print speeds of the engines, and how each compares with the lockstep."""
    speed, rows = result.cycles_per_second, []
    for engine in BenchResult.ENGINES:
        if engine in speed:
            ratio = f"{speed['lockstep'] / speed[engine]:,.2f}x" if "lockstep" in speed else NOTHING
            cycles = f"{result.cycles[engine]:,}" if engine in result.cycles else NOTHING
            rows.append((engine, f"{speed[engine]:,.0f}", ratio, cycles))
    if rows or not (result.event or result.rtl):
        console.print(report_table("Engine speed on the same RTL and stimulus", "engine",
                                   ("cycles\nper second", "lockstep /\nengine", "cycles\nmeasured"), rows))
    if result.event:
        console.print(report_table("Event level", "collective", (
            "GPUs", "of these\nsimulated", "messages", "of these\nsimulated", "per second\nin the loop",
            "per second\nin all", "seconds\nof a core", "versus\nclosed form"),
            [(case.what, f"{case.gpus:,}", f"{case.simulated_gpus:,}", f"{case.messages:,}",
              f"{case.simulated_messages:,}", f"{case.messages_per_second:,.0f}",
              f"{case.whole_messages_per_second:,.0f}", f"{case.seconds:.1f}",
              f"{case.over_closed_form:+.1%}") for case in result.event]))
    if result.rtl:
        stimuli = result.rtl[0].cycles_per_second
        console.print(report_table(
            "RTL of one GPU alone, cycles per second of a core", "inputs",
            ["t3sim", *(row.simulator for row in result.rtl[1:])],
            [*((what, *(f"{row.cycles_per_second[what]:,.0f}" for row in result.rtl)) for what in stimuli),
             ("core seconds to build", *(f"{row.build_seconds:,.0f}" for row in result.rtl))]))
    for engine in BenchResult.ENGINES:
        if engine not in speed and not {"gpus": result.gpus, "whole": result.whole, "first": result.first,
                                       "event": result.event, "rtl": result.rtl}.get(engine):
            console.print(f"{engine}: {result.notes.get(engine, 'not run')}")
    if result.lockstep_over_bare is not None:
        console.print(f"lockstep over bare C++ loop: {result.lockstep_over_bare:.2f}")
    if result.bare_over_full is not None:
        console.print(f"bare C++ loop over full evaluation: {result.bare_over_full:.2f}")
    if result.gpus is not None:
        gpus = result.gpus
        console.print(f"{gpus.gpus} GPUs over as many mirrored runs, a core's time: {gpus.over_mirrored:.2f}")
        console.print(f"2 threads over 1, {gpus.gpus} GPUs: {gpus.two_threads_over_one:.2f}")
    if result.whole is not None:
        whole_run = result.whole
        console.print(f"T-NLG FC-2 at TP 8, {whole_run.cycles:,} cycles of it: {whole_run.cycles_per_second:,.0f} per "
                      f"second; the RTL's inputs do not change in {whole_run.quiet_share:.0%} of them; "
                      f"{whole_run.asleep:.0f} instances are idle")
    if result.first is not None:
        first = result.first
        for label, core_seconds, seconds in (
                ("build of the RTL", first.build_core_seconds, first.build_seconds),
                ("first small run after the build", first.first_core_seconds, first.first_seconds),
                ("the same run again", first.second_core_seconds, first.second_seconds)):
            console.print(f"{label}: {core_seconds:.0f} core seconds in {seconds:.0f} s")


def print_campaign(results: Mapping[str, Any], page: Path, console: Console) -> None:
    """Print what `t3 reproduce` found beside the paper's numbers, and where the report is."""
    summary, second = results["summary"], results.get("beside", {"summary": {}})
    def cell(value: float | None, sign: str = "") -> str:
        return NOTHING if value is None else f"{value:{sign}z,.2f}"

    def second_cell(figure: str, key: str) -> str:
        entry = second["summary"].get(figure, {}).get(key)
        return "" if entry is None else cell(entry["ours"])

    entries_shown = [(figure, key, entry) for figure, entries in summary.items() for key, entry in entries.items()
                     if entry["section"]]
    has_ranges = any("range" in entry for _, _, entry in entries_shown)
    has_second = bool(second["summary"])
    rows = [(f"{figure} {entry['title']}", cell(entry["ours"]), *([second_cell(figure, key)] if has_second else []),
             *([" to ".join(map(cell, entry.get("range", ())))] if has_ranges else []),
             cell(entry["paper"]), cell(entry["difference"], "+"), entry["unit"],
             {True: "met", False: "missed", None: ""}[entry["met"]]) for figure, key, entry in entries_shown]
    if rows:
        console.print(report_table("Results and the paper's", "quantity", (
            "ours", *([second["machine"]["name"]] if has_second else []), *(["range"] if has_ranges else []),
            "paper", "difference", "unit", "target"), rows))
    console.print(f"Report: {page}", soft_wrap=True)
