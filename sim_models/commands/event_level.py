"""`t3 run --level event`: an operator and its collective tile by tile, without RTL, on GPUs that are sold."""

from typing import TYPE_CHECKING

from t3sim.commands.flags import print_notes
from t3sim.commands.options import write_results

if TYPE_CHECKING:
    from t3sim.machine import Machine
    from t3sim.mechanisms.event_runs import OverlapRun
    from t3sim.mechanisms.fused_wg.event import PersistentRun
    from t3sim.study.results import FileRun
    from t3sim.study.scenario.event import EventLevel, GemmRun


def run_event_level(request: "EventLevel", json: str | None) -> None:
    """Run and print, or write as JSON. Raises BadInput."""
    from t3sim.mechanisms.fused_wg.event import PersistentRun
    from t3sim.study.results import FileRun
    from t3sim.study.scenario.event import GemmRun

    print_notes(request.notes)
    result = request.run()
    if not write_results(result.to_json(), json):
        return
    if isinstance(result, GemmRun):
        _print_gemm(result)
    elif isinstance(result, PersistentRun):
        _print_persistent(result)
    elif isinstance(result, FileRun):
        _print_file(result, request.node)
    else:
        _print_overlap(result, request.node)


def _print_gemm(result: "GemmRun") -> None:
    from t3sim.base.console import output_console, print_table

    print_table(f"GEMM {result.shape} alone, {result.machine}", ("quantity", "value"), [
        ("time", f"{result.kernel_ns / 1e3:,.1f} µs"),
        ("time of a call that the host waits for", f"{result.call_ns / 1e3:,.1f} µs"),
        ("rate", f"{result.tflop_per_s:,.1f} TFLOP/s"),
        ("share of peak", f"{result.tflop_per_s / result.peak_tflop_per_s:.0%}"),
        ("kernel", result.kernel), ("tiles", f"{result.tiles:,}"), ("rounds", str(result.rounds))], output_console())


def _print_persistent(run: "PersistentRun") -> None:
    from t3sim.base.console import NOTHING, output_console, print_table

    console = output_console()
    print_table(f"{run.operator}, {run.shape}, {run.gpus} GPUs; machine {run.machine}; event level (µs)",
                ("technique", "total", "computed after", "shorter by"),
                [(name, f"{one.total_ns / 1e3:,.1f}",
                  NOTHING if one.computed_ns is None else f"{one.computed_ns / 1e3:,.1f}", f"{one.shorter:.1%}")
                 for name, one in run.techniques.items()], console)
    _print_losses("Losses: time beyond one kernel that sends nothing (µs)", run.techniques, console)


def _print_file(result: "FileRun", node: "Machine") -> None:
    """Print a model's sub-layers, then all of them, each as often as the model has it."""
    from t3sim.base.console import output_console, print_table

    for _, run in result.sublayers:
        _print_overlap(run, node)
    names = list(result.sublayers[0][1].techniques)
    rows = [(run.sublayer, f"{run.m}x{run.n}x{run.k}", f"{times:,}",
             *(f"{run.techniques[name].total_ns / 1e3:,.1f}" for name in names)) for times, run in result.sublayers]
    sums = (sum(times * run.techniques[name].total_ns for times, run in result.sublayers) for name in names)
    print_table("Whole model: each sub-layer times its count (µs)", ("sub-layer", "MxNxK", "times", *names), rows,
                output_console(), ("all", "", "", *(f"{ns / 1e3:,.1f}" for ns in sums)))


def _print_overlap(run: "OverlapRun", node: "Machine") -> None:
    from t3sim.base.console import NOTHING, output_console, print_table
    from t3sim.mechanisms.decomposed.event import TOO_GOOD

    console = output_console()
    of = f"{run.sublayer}: " if run.sublayer else ""
    print_table(f"{of}{run.operator}, {run.m} x {run.n} x {run.k} per GPU, {run.gpus} GPUs; machine {run.machine}; "
                "event level (µs)",
                ("technique", "total", "speedup", "operator", "ECT", "overlap\nefficiency", "chosen"),
                [(name, f"{one.total_ns / 1e3:,.1f}", f"{one.speedup:.3f}", f"{one.operator_ns / 1e3:,.1f}",
                  f"{one.ect_ns / 1e3:,.1f}",
                  f"{one.overlap_efficiency:.1%}", ", ".join(f"{key} {value}" for key, value in one.choice.items())
                  or NOTHING) for name, one in run.techniques.items()], console)
    _print_losses("Losses: time beyond the GEMM alone (µs)", run.techniques, console)
    console.print(f"GEMM alone {run.gemm_ns / 1e3:,.1f} µs ({run.gemm_kernel}), collective alone "
                  f"{run.collective_ns / 1e3:,.1f} µs." + (
                      " The total includes the all-gather after the reduce-scatter, as on the cycle level; the "
                      "operator does not." if run.operator == "gemm-rs" else ""))
    rate, peak = node.gpu.tflop_per_s(2 * run.m * run.n * run.k, run.gemm_ns)
    console.print(f"The GEMM alone: {rate:,.1f} of {peak:,.1f} TFLOP/s ({rate / peak:.0%} of peak).")
    if "decomposed" in run.techniques and (points := TOO_GOOD.get(run.machine)):
        console.print(f"decomposed is optimistic here: on the mean of Flux's figures 11 to 13 it hides {points} points "
                      "more of the communication than TransformerEngine does (docs/why/other-papers.md).")


def _print_losses(title: str, techniques, console) -> None:
    from t3sim.base.console import NOTHING, print_table

    causes = list(dict.fromkeys(cause for one in techniques.values() for cause in one.loss_ns))
    print_table(title, ("cause", *techniques), [
        (cause, *(f"{one.loss_ns[cause] / 1e3:,.1f}" if cause in one.loss_ns else NOTHING
                  for one in techniques.values())) for cause in causes], console)
