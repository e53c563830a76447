"""`t3 registers`: the register map of the configuration bus."""

from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import GeometryOption, JsonOption, MachineOption, write_results


def registers(
    form: Annotated[str, typer.Option(
        "--format", metavar="markdown|html|c|systemrdl", help="Form of the output.")] = "markdown",
    geometry: GeometryOption = None,
    machine: MachineOption = "t3-table1",
    json: JsonOption = None,
) -> None:
    """Print the register map: as Markdown, an HTML page, a C header, or SystemRDL."""
    from t3sim.cosim.driver.register_map import FORMATS, to_json
    from t3sim.cosim.geometry_option import changed, parse_sizes
    from t3sim.machine import load_machine

    if form not in FORMATS:
        raise BadInput(f"--format {form!r} is unknown: allowed are {', '.join(FORMATS)}")
    sizes = changed(load_machine(machine).geometry(), parse_sizes(geometry))
    if write_results(to_json(sizes), json):
        print(FORMATS[form][0](sizes), end="")
