"""`t3 validate`: published measurements beside what the models answer."""

from typing import Annotated, Any

import typer

from t3sim.base.errors import BadInput, choices
from t3sim.commands.options import JsonOption, check_plot, file_name, folder_name, write_plot, write_results

_WORST = 10  #: rows shown


def validate(
    machine: Annotated[str | None, typer.Argument(
        metavar="[MACHINE]", help="Only this machine's rows, and ranges for quantities without rows; with --log, the "
        "machine of the log.")] = None,
    rows: Annotated[str | None, typer.Option(
        metavar="FILE.csv", parser=file_name, help="Your rows instead of the package's: a CSV with the columns of a "
        "file of sim_models/analytic/measured.")] = None,
    log: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Output of nccl-tests or rccl-tests.")] = None,
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Plot measured and modelled times: .svg or .png.")] = None,
    out: Annotated[str | None, typer.Option(
        metavar="DIR", parser=folder_name, help="Write validation.md to DIR, with plots of all curves as SVG.")] = None,
    json: JsonOption = None,
) -> None:
    """Compare the models with measurements: errors by machine and quantity, signs, worst rows."""
    from t3sim.analytic.validation.comparison import compare
    from t3sim.analytic.validation.log import read_log
    from t3sim.analytic.validation.machines import MACHINES, constants
    from t3sim.analytic.validation.nearby import measured_name, ranges_without_rows
    from t3sim.analytic.validation.readers import own_rows, read_text, text_of
    from t3sim.base.console import output_console, print_table
    from t3sim.commands.ranges import print_ranges
    from t3sim.machine import load_machine
    from t3sim.machine.levels import COMMERCIAL

    node = None if machine is None else load_machine(machine, COMMERCIAL)
    if node is not None and (machine := measured_name(node)) not in MACHINES and (rows or log):
        raise BadInput(f"machine {machine[:60]!r} has no measured rows: allowed are {choices(machine, MACHINES)}")
    check_plot(plot)
    read = []
    if rows is not None:
        read += read_text(text_of(rows, "--rows"), rows)
    if log is not None:
        read += read_log(text_of(log, "--log"), log, machine)
    comparison = compare(read if rows or log else own_rows(), machine)
    if read and not (comparison.rows or comparison.ratios or comparison.left_out):
        raise BadInput(f"machine {machine!r} has no row in what is given: rows are of "
                       f"{choices(machine, sorted({one.gpu for one in read}))}")
    ranges = {} if node is None or rows or log else ranges_without_rows(node)
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
        print_ranges(ranges, node, console, f"No row of {machine}: ranges from the nearest machines with rows")
    if not comparison.rows and not comparison.ratios and not comparison.left_out:
        return
    for title, by in (("quantity", "quantity"), ("machine", "machine")):
        print_table(f"Model against measurement, by {title}; errors without constants from the row's own source",
                    (title, "rows", "mean\nerror", "worst", "signs\nright", "source\nkept", "error with\nall rows",
                     "points\nmean", "points\nworst"),
                    [_summary_row(name, one) for name, one in comparison.grouped(by).items()], console)
    console.print("Source kept: rows that a constant cannot do without; only `all rows` counts them. Points: "
                  "percentage points between slowdowns or shares, over all rows.")
    unseen = [one for one in comparison.rows if one.error_without_source is not None]
    if worst := sorted(unseen, key=lambda one: -abs(one.error_without_source))[:_WORST]:
        print_table("Worst rows (µs)", ("machine", "scenario", "measured", "model", "error"),
                    [(one.machine, one.row.scenario, f"{one.row.ns / 1e3:,.1f}", f"{one.without_source_ns / 1e3:,.1f}",
                      f"{one.error_without_source:+.0%}") for one in worst], console)
    if wrong := [one for one in comparison.ratios if one.right_without_source is False]:
        print_table("Wrong signs", ("machine", "scenario", "measured\nratio", "model"),
                    [(one.machine, one.row.scenario, f"{one.row.measured:.2f}", f"{one.without_source:.2f}")
                     for one in wrong], console)
    if single := [(names, key) for (names, key), count in constants(
            (one.row, one.machine) for one in comparison.rows).items() if count == 1]:
        print_table("Constants fitted to a single row", ("machines", "constant"), single, console)
    if comparison.left_out:
        print_table("Rows that no model covers", ("rows", "reason"),
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
