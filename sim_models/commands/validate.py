"""`t3 validate`: published measurements beside what the models answer."""

from typing import Annotated, Any

import typer

from t3sim.base.errors import BadInput, choices
from t3sim.commands.options import JsonOption, check_plot, file_name, folder_name, write_plot, write_results

_WORST = 10  #: rows shown


def validate(
    machine: Annotated[str | None, typer.Argument(
        metavar="[MACHINE]", help="Only this machine's rows, and ranges of what it has none of; with --log the machine "
        "whose log it is.")] = None,
    rows: Annotated[str | None, typer.Option(
        metavar="FILE.csv", parser=file_name, help="Your rows instead of those that come with it: any CSV with the "
        "columns of a file of sim_models/analytic/measured.")] = None,
    log: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="The text that nccl-tests or rccl-tests printed.")] = None,
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Draw measured times and ours: .svg or .png.")] = None,
    out: Annotated[str | None, typer.Option(
        metavar="DIR", parser=folder_name, help="Write validation.md there, with plots of all curves as SVG.")] = None,
    json: JsonOption = None,
) -> None:
    """Set measurements beside what the models answer: errors by machine and quantity, signs, worst rows."""
    from t3sim.analytic.validation.comparison import compare
    from t3sim.analytic.validation.log import read_log
    from t3sim.analytic.validation.machines import MACHINES, constants
    from t3sim.analytic.validation.nearby import ranges_without_rows
    from t3sim.analytic.validation.readers import own_rows, read_text, text_of
    from t3sim.base.console import output_console, print_table
    from t3sim.commands.ranges import print_ranges
    from t3sim.machine import load_machine
    from t3sim.machine.levels import COMMERCIAL
    from t3sim.machine.loader import preset

    if machine is not None and (machine := preset(machine)) not in MACHINES and (rows or log):
        raise BadInput(f"machine {machine[:60]!r} has no measured rows: allowed are {choices(machine, MACHINES)}")
    check_plot(plot)
    read = []
    if rows is not None:
        read += read_text(text_of(rows, "--rows"), rows)
    if log is not None:
        read += read_log(text_of(log, "--log"), log, machine)
    comparison = compare(read if rows or log else own_rows(), machine)
    ranges = {} if machine is None or rows or log else ranges_without_rows(load_machine(machine, COMMERCIAL))
    for_people = write_results(comparison.to_json() | ({"ranges": ranges} if ranges else {}), json)
    if plot is not None:
        from t3sim.analytic.validation.plots import draw_all

        write_plot(plot, lambda: draw_all(comparison.rows))
    if out is not None:
        from pathlib import Path

        from t3sim.analytic.validation.page import write_page

        write_page(Path(out), comparison)
    if not for_people:
        return
    console = output_console()
    if ranges:
        print_ranges(ranges, console, f"No row of {machine}: ranges of the nearest machines that have rows")
    if not comparison.rows and not comparison.ratios and not comparison.left_out:
        return
    for title, by in (("quantity", "quantity"), ("machine", "machine")):
        print_table(f"Ours beside measured, by {title}; each row's source gave no constant",
                    (title, "rows", "mean\nerror", "worst", "signs\nright", "source\nkept", "error with\nall rows",
                     "points\nmean", "points\nworst"),
                    [_summary_row(name, one) for name, one in comparison.grouped(by).items()], console)
    console.print("Source kept: rows without which a constant has no value; they count under `all rows` alone. Points: "
                  "percentage points between slowdowns or shares, of all rows.")
    unseen = [one for one in comparison.rows if one.error_without_source is not None]
    if worst := sorted(unseen, key=lambda one: -abs(one.error_without_source))[:_WORST]:
        print_table("Worst rows (µs)", ("machine", "scenario", "measured", "ours", "error"),
                    [(one.machine, one.row.scenario, f"{one.row.ns / 1e3:,.1f}", f"{one.without_source_ns / 1e3:,.1f}",
                      f"{one.error_without_source:+.0%}") for one in worst], console)
    if wrong := [one for one in comparison.ratios if one.right_without_source is False]:
        print_table("Signs that are wrong", ("machine", "scenario", "measured\nratio", "ours"),
                    [(one.machine, one.row.scenario, f"{one.row.measured:.2f}", f"{one.without_source:.2f}")
                     for one in wrong], console)
    if single := [(names, key) for (names, key), count in constants(
            (one.row, one.machine) for one in comparison.rows).items() if count == 1]:
        print_table("Constants that come from a single row", ("machines", "constant"), single, console)
    if comparison.left_out:
        print_table("Rows that no model here expresses", ("rows", "reason"),
                    [(f"{len(some)}", reason) for reason, some in sorted(comparison.left_out.items())], console)


def _summary_row(name: str, one: dict[str, Any]) -> tuple[str, ...]:
    from t3sim.base.console import NOTHING

    def percent(value: float | None) -> str:
        return NOTHING if value is None else f"{100 * value:.1f} %"

    def points(key: str) -> str:
        return f"{one[key]:.1f}" if key in one else NOTHING

    unseen = one["without_source"]
    signs = f"{unseen['signs_right']} of {unseen['signs']}" if unseen["signs"] else NOTHING
    return (name, f"{unseen['rows']}", percent(unseen["mean_abs_error"]), percent(unseen["worst"]), signs,
            f"{unseen['kept']}", percent(one["mean_abs_error"]), points("mean_abs_points"), points("worst_points"))
