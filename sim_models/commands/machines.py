"""`t3 machines`: the machines of the package by what simulates them, and what can wait where in one of them."""

from typing import Annotated

import typer

from t3sim.commands.options import JsonOption, check_json_target, file_name


def machines(
    machine: Annotated[str | None, typer.Argument(
        metavar="[NAME|FILE]", parser=file_name,
        help="A machine of the cycle level: what can wait in it at each place, in requests and bytes.")] = None,
    json: JsonOption = None,
) -> None:
    """List the machines that come with the package, by level, and which command runs each."""
    from t3sim.support.output import write_json

    check_json_target(json)
    found = _by_level() if machine is None else _capacities(machine)
    if json is not None:
        write_json(found, json)
    if json == "-":
        return
    from t3sim.study.report import output_console

    console = output_console()
    if machine is not None:
        _show_capacities(console, found)
        return
    for called, of_level in found.items():
        console.print(f"{called[0].upper()}{called[1:]}: {of_level['command']} --machine NAME", style="bold")
        needed = ", ".join(f"[{name}]" for name in of_level["sections"])
        console.print(f"  needs {needed}", markup=False, soft_wrap=True)
        for name, what in of_level["machines"].items():
            console.print(f"  {name:<16} {what}", soft_wrap=True)
        console.print()


def _by_level() -> dict:
    from t3sim.machine.levels import LEVELS
    from t3sim.machine.loader import origin

    return {level.called: {"command": level.command, "sections": level.sections,
                           "machines": {name: origin(name) for name in level.presets()}}
            for level in LEVELS}


def _capacities(machine: str) -> list[dict]:
    from t3sim.machine import load_machine
    from t3sim.runs.capacities import capacities

    return [{**one._asdict(), "size_bytes": one.size_bytes} for one in capacities(load_machine(machine))]


def _show_capacities(console, found: list[dict]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, justify in (("what can wait", "left"), ("requests", "right"), ("bytes each", "right"),
                             ("bytes", "right"), ("key", "left")):
        table.add_column(heading, justify=justify)
    for one in found:
        table.add_row(one["place"], f"{one['requests']:,}", str(one["request_bytes"]), f"{one['size_bytes']:,}",
                      one["key"] or "of the models")
    console.print(table)
