"""`t3 overlap`: which mechanism hides a model's collectives on GPUs that are sold, why, and how wrong that may be."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from t3sim.base.errors import BadInput, printable
from t3sim.commands.flags import takes_scenario_by
from t3sim.commands.options import (
    JsonOption,
    decimal_number,
    file_name,
    natural_number,
    say_format_not_taken,
    write_results,
)

if TYPE_CHECKING:
    from rich.console import Console

    from t3sim.machine import Machine
    from t3sim.study.scenario.ranking import ExpertsToRank, LayerToRank, Ranking
    from t3sim.study.scenario.scenario import Scenario


_NOTHING_LOST_NS = 50.0  #: from here on a loss is shown, in tenths of µs


@takes_scenario_by(
    model="llama-3.3-70b (default), qwen2.5-72b, mixtral-8x22b, ..., a Transformer of `t3 end-to-end`, or a Hugging "
          "Face config.json.",
    machine="h100-sxm (default), gb200, mi300x, a100-sxm, ..., or a TOML file.",
    tp="GPUs that share each layer. Default: 8.", tokens="Tokens of a prompt. Default: 8192.",
    dtype="GEMM operands: bf16 (default), fp16, fp8 or fp4, if the machine has a rate for it. Exchanged data have "
          "16 bits.")
def overlap(
    scenario: "Scenario",
    sequence_parallel: Annotated[bool, typer.Option(
        "--sequence-parallel", help="Reduce-scatters after and all-gathers before GEMMs, not all-reduces.")] = False,
    expert_parallel: Annotated[bool, typer.Option(
        "--expert-parallel", help="Rank dispatch and combine of an MoE layer instead: --tp GPUs share the experts, "
        "and each has its part of the tokens.")] = False,
    zipf: Annotated[float, typer.Option(
        metavar="S", parser=decimal_number, help="Exponent of the experts' popularity; 0: uniform.")] = 0.0,
    seed: Annotated[int, typer.Option(
        metavar="N", parser=natural_number, help="Seed for drawing the tokens' experts.")] = 0,
    routing: Annotated[str | None, typer.Option(
        metavar="FILE.json", parser=file_name, help="Tokens of each GPU for each expert, as lists, instead of a draw.",
    )] = None,
    json: JsonOption = None,
) -> None:
    """Rank the mechanisms that hide a layer's collectives, Track & Trigger included, with the limit of each."""
    from t3sim.study.scenario.ranking import ExpertsToRank, LayerToRank

    if expert_parallel:
        if sequence_parallel:
            raise BadInput("--sequence-parallel does not go with --expert-parallel")
        experts = ExpertsToRank(scenario, zipf, seed, routing)
        _rank_experts(experts, json)
        return
    for option, value in (("--zipf", zipf), ("--seed", seed), ("--routing", routing)):
        if value:
            raise BadInput(f"{option} needs --expert-parallel")
    layer = LayerToRank(scenario, sequence_parallel)
    run_ranking(layer, json)


def run_ranking(layer: "LayerToRank", json: str | None) -> None:
    """Compute a ranking, and write it down."""
    from t3sim.analytic.end_to_end.layer import gemms_said
    from t3sim.analytic.libraries.mechanisms import GATES, TRIGGERED
    from t3sim.analytic.validation.nearby import measured_name
    from t3sim.base.console import NOTHING, output_console, print_table

    result = layer.run()
    ranked, wrong, node, transformer = result.ranking, result.expected_error, result.machine, result.model
    tp, tokens, width, rows_of = result.tp, result.tokens, result.width, measured_name(node)
    for_people = write_results(result.to_json(), json)
    if layer.is_default_width:
        say_format_not_taken(transformer)
    if not for_people:
        return
    console = output_console()
    console.print(printable(str(transformer)), markup=False)
    timed = [f"{gemms_said({name: (*one.shape, 1)})} {'after its' if one.before else 'and its'} "
             f"{one.kind.replace('_', '-')}" for name, one in result.gemms.items()]
    console.print(f"Timed GEMMs of one GPU (M x N x K): {', '.join(timed)}; the layer's other GEMMs have no "
                  "collective.\n", markup=False)
    in_turn = next(one for one in ranked if one.mechanism == "in-turn").ns
    print_table(f"GEMMs with their collectives of a layer of {transformer.name}, {tokens:,} tokens, {width}, on {tp} "
                f"GPUs of {node.name}",
                ("mechanism", "µs", "range if\nunchecked", "time saved\nvs in-turn", "limited by", "units\nheld",
                 "MB in\nmemory"),
                [(one.mechanism, f"{one.ns / 1e3:,.1f}",
                  NOTHING if (span := result.range_ns(one)) is None else "{:,.0f} to {:,.0f}".format(
                      *(ns / 1e3 for ns in span)),
                  f"{1 - one.ns / in_turn:+.1%}", one.bound, f"{one.units}",
                  f"{one.memory_bytes / 1e6:,.0f}") for one in ranked], console)
    if any(one.mechanism in TRIGGERED for one in ranked):
        console.print(f"Track & Trigger takes {GATES:,} gates per GPU.")
    if any(one.mechanism == "fused-norm" for one in ranked):
        console.print("fused-norm: the time of the RMSNorm kernel that the others still need is subtracted. MB in "
                      "memory: traffic of the collectives.")
    if any(one.collective().ns == node.rings.call_ns for one in result.gemms.values()):
        console.print(f"The host's call limits an in-turn collective: {node.rings.call_ns / 1e3:.1f} µs here "
                      "([rings] call_ns of a machine). Hosts of the measured rows take 15 to 45 µs.", markup=False)
    _print_losses(result, console)
    _print_checked(result.checked, result.ranges, result.machine, console)
    console.print("Track & Trigger does not exist as a chip, so no measurement checks its line." if wrong is None else
                  f"Error on all {wrong['rows']} measured rows of {rows_of}: {wrong['mean_abs_error']:.1%} on "
                  f"average, {wrong['worst']:.1%} at worst (t3 validate {rows_of}). Track & Trigger does not exist "
                  "as a chip, so no measurement checks its line.")


def _print_losses(result: "Ranking", console: "Console") -> None:
    """Print where Track & Trigger's time goes in each sub-layer, on which hardware, and the RTL's time."""
    from t3sim.analytic.libraries.mechanisms import TRIGGERED
    from t3sim.analytic.libraries.triggered import trigger_limits
    from t3sim.base.console import NOTHING, print_table, words_of_key

    lines = {(name, run.mechanism): (run.sublayers_ns[name], run.losses_ns[name]) for name in result.gemms
             for run in result.ranking if run.mechanism in TRIGGERED}
    causes = [cause for cause in dict.fromkeys(cause for _, losses in lines.values() for cause in losses)
              if cause == "window_blocked" and result.hardware is not None
              or any(abs(losses.get(cause, 0.0)) >= _NOTHING_LOST_NS for _, losses in lines.values())]
    print_table("Track & Trigger by sub-layer (µs): the GEMM alone, and time that is not hidden, by cause",
                ("sub-layer", "GEMM", *(words_of_key(cause).replace(" ", "\n") for cause in causes), "all", "RTL"),
                [(f"{name}, {mechanism}", f"{result.gemms[name].gemm_ns / 1e3:,.1f}",
                  *(f"{losses[cause] / 1e3:z,.1f}" if cause in losses else NOTHING for cause in causes),
                  f"{ns / 1e3:,.1f}", f"{kept / 1e3:,.1f}" if (
                      kept := result.rtl_ns.get(name, {}).get(mechanism)) else NOTHING)
                 for (name, mechanism), (ns, losses) in lines.items()], console)
    if (hardware := result.hardware) is None:
        console.print(f"{result.machine.name} names no machine of the cycle level (cycle_machine), so Tracker and DMA "
                      "sizes do not limit Track & Trigger here, and no RTL result is kept.\n")
        return
    tracker, dma, gpu = hardware.tracker, hardware.dma, hardware.gpu
    console.print(f"Its hardware is {hardware.name}'s: a Tracker of {tracker.sets} sets x {tracker.ways} ways and "
                  f"{dma.ready_commands:,} commands hold {trigger_limits(hardware).window:,.0f} workgroups; the "
                  f"compute units hold {gpu.compute_units * gpu.workgroups_per_cu}. {dma.engines} engines, "
                  f"{dma.egress_lanes} lanes (change: --set machine.tracker.sets=N).")
    not_kept = [plan for name, plan in result.gemms.items() if not plan.before and name not in result.rtl_ns]
    if not_kept:
        console.print(f"{NOTHING} under RTL: no result is kept for this hardware. t3 run --gemm "
                      f"{'x'.join(map(str, not_kept[0].shape))} --devices {result.tp} --technique t3,t3-mca+ with the "
                      "same machine simulates the RTL and keeps it.")
    console.print()


def _print_checked(checked: "dict[str, dict[str, Any] | None]", ranges: "dict[str, dict[str, Any] | None]",
                   machine: "Machine", console: "Console") -> None:
    """Print how wrong measured rows near these sizes are, ranges of what has none, and the owner's rows."""
    from t3sim.base.console import print_table
    from t3sim.commands.ranges import print_ranges

    near = {name: error for name, error in checked.items() if error is not None}
    if near:
        print_table("Measured rows within a factor of 2 of this; errors without constants from their own source",
                    ("rows of", "rows", "mean\nerror", "worst", "source\nkept"),
                    [(name, f"{error['rows']}", f"{error['mean_abs_error']:.1%}", f"{error['worst']:.1%}",
                      f"{error['kept']}") for name, error in near.items()], console)
    if ranges:
        print_ranges(ranges, machine, console)
    if machine.measured and machine.measured.held_out:
        print_table(f"Your rows of {machine.name}, held out of t3 calibrate's fit",
                    ("quantity", "rows", "mean\nerror", "worst"),
                    [(error.quantity, f"{error.rows}", f"{error.mean_error:.1%}", f"{error.worst:.1%}")
                     for error in machine.measured.held_out], console)


def _rank_experts(layer: "ExpertsToRank", json: str | None) -> None:
    from t3sim.analytic.end_to_end.layer import gemms_said
    from t3sim.analytic.libraries.mechanisms import GATES
    from t3sim.base.console import output_console, print_table

    result = layer.run()
    for_people = write_results(result.to_json(), json)
    if layer.is_default_width:
        say_format_not_taken(result.model)
    if not for_people:
        return
    console, routing, model = output_console(), result.routing, result.model
    console.print(printable(str(model)), markup=False)
    console.print(f"Timed GEMMs of one GPU (M x N x K), its experts' tokens as M: "
                  f"{gemms_said(result.gemms)}\n", markup=False)
    in_turn = next(one for one in result.ranking if one.mechanism == "in-turn").ns
    print_table(f"Dispatch, GEMMs and combine of {model.experts} experts of {model.name}, {routing.tokens:,} tokens, "
                f"{result.width}, on {routing.gpus} GPUs of {result.machine.name}",
                ("mechanism", "µs", "time saved\nvs in-turn", "to the first\nGEMM's end", "after\nthat", "units\nheld",
                 "gates"),
                [(one.mechanism, f"{one.ns / 1e3:,.1f}", f"{1 - one.ns / in_turn:+.1%}", f"{one.first_ns / 1e3:,.1f}",
                  f"{one.second_ns / 1e3:,.1f}", f"{one.units}", f"{GATES:,}" if one.mechanism == "t3" else "0")
                 for one in result.ranking], console)
    console.print(f"The GPU with the most tokens has {routing.imbalance:.2f} times the mean; {routing.used} of "
                  f"{model.experts} experts have tokens. No measured row checks experts' GEMMs.")
    _print_checked(result.checked, result.ranges, result.machine, console)
