"""Options that several commands share."""

from typing import Annotated

import typer


def whole_number(text: str | int) -> int:
    """Parser of an option; its error names the value."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def natural_number(text: str | int) -> int:
    """The same for what cannot be negative."""
    number = whole_number(text)
    if number < 0:
        raise typer.BadParameter(f"{number} is not possible: 0 or more")
    return number


JsonOption = Annotated[str | None, typer.Option(
    "--json", metavar="FILE", help="Write the results as JSON to FILE; - for standard output, and nothing else there.")]
MachineOption = Annotated[str, typer.Option(
    "--machine", metavar="NAME|FILE", help="A machine by name, or a TOML file.")]
SeedOption = Annotated[int, typer.Option(
    "--seed", metavar="N", parser=natural_number, help="Seed of whatever is random.")]
GeometryOption = Annotated[str | None, typer.Option(
    "--geometry", "-g", metavar="SIZE=N,...", help="Sizes that differ from the machine's: ways=4,channels=8.")]
