"""`t3 calibrate`: a machine file from its owner's measurements."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.base.errors import BadInput, choices
from t3sim.commands.options import JsonOption, check_target, file_name, write_results

_WORST = 5  #: rows shown


def calibrate(
    out: Annotated[str, typer.Option(
        metavar="FILE.toml", parser=file_name, help="Machine file to write, for --machine of other commands.")],
    machine: Annotated[str, typer.Option(
        metavar="NAME", help="Starting point of the fit: a machine of `t3 overlap`.")] = "h100-sxm",
    log: Annotated[list[str] | None, typer.Option(
        metavar="FILE", parser=file_name, help="Output of nccl-tests or rccl-tests; may be "
        "repeated.")] = None,
    rows: Annotated[list[str] | None, typer.Option(
        metavar="FILE.csv", parser=file_name, help="A table of scripts/measure_kernels.py, or any CSV with the columns "
        "of a file of sim_models/analytic/measured; may be repeated.")] = None,
    json: JsonOption = None,
) -> None:
    """Fit a machine's constants to your own measurements, and report the error on rows held out of the fit."""
    from t3sim.analytic.validation.calibration import calibrate as fit_machine
    from t3sim.analytic.validation.fit import constant
    from t3sim.analytic.validation.log import read_log
    from t3sim.analytic.validation.readers import read_text, text_of
    from t3sim.analytic.validation.requests import Slowdown
    from t3sim.base.console import NOTHING, output_console, print_table
    from t3sim.base.output import write_whole
    from t3sim.machine import load_machine
    from t3sim.machine.files import preset
    from t3sim.machine.levels import COMMERCIAL
    from t3sim.machine.load import machines_of

    if Path(out).suffix != ".toml":
        raise BadInput(f"--out {out[:60]!r}: the name must end in .toml")
    check_target("--out", out)
    if (machine := preset(machine)) not in (allowed := machines_of(COMMERCIAL)):
        raise BadInput(f"--machine {machine[:60]!r} is unknown: allowed are {choices(machine, allowed)}")
    start = load_machine(machine, COMMERCIAL)
    read = [row for file in log or () for row in read_log(text_of(file, "--log"), file, machine)]
    read += [row for file in rows or () for row in read_text(text_of(file, "--rows"), file)]
    if not read:
        raise BadInput("no measurements: give --log FILE or --rows FILE.csv")
    result = fit_machine(start, read)
    files = [Path(file).name for file in (*(log or ()), *(rows or ()))]
    write_whole(Path(out), result.to_toml(Path(out).stem, files))
    content = {"machine": start.name, "values": result.values, "undetermined": list(result.undetermined),
               "errors": [vars(quantity) for quantity in result.errors], "left_out": result.left_out,
               "contention": result.contention}
    if not write_results(content, json):
        return
    console = output_console()

    def percent(value: float | None) -> str:
        return NOTHING if value is None else f"{value:.1%}"

    print_table(f"Constants of {start.name} that your rows determine", ("constant", "before", "now"),
                [(key, f"{constant(start, key):,.4g}", f"{value:,.4g}")
                 for key, value in sorted(result.values.items())], console)
    console.print(f"{len(result.undetermined)} other constants keep their values because no row depends on them "
                  "enough.")
    console.print(f"Contention: {result.contention}.")
    print_table("Mean error of your rows", ("quantity", "rows", "before", "held out\nof the fit", "worst\nheld out"),
                [(quantity.quantity, f"{quantity.rows}", percent(quantity.before), percent(quantity.held_out),
                  percent(quantity.worst)) for quantity in result.errors], console)
    print_table("Rows with the largest remaining error", ("scenario", "measured", "error"),
                [(row.scenario, f"{row.ns:.2f} times the time alone" if isinstance(row.ask, Slowdown) else
                  f"{row.ns / 1e3:,.1f} µs", f"{error:+.0%}")
                 for row, error in result.misses[:_WORST]], console)
    if result.left_out:
        print_table("Unused rows", ("rows", "reason"),
                    [(f"{count}", reason) for reason, count in result.left_out.items()], console)
    console.print(f"Next: t3 overlap --machine {out}", markup=False, soft_wrap=True)
