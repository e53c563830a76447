"""`t3 machines`: the machines of the package by what simulates them, and what can wait where in one of them."""

from typing import Annotated

import typer

from t3sim.commands.options import JsonOption, file_name, write_results


def machines(
    machine: Annotated[str | None, typer.Argument(
        metavar="[NAME|FILE]", parser=file_name,
        help="Show this machine's buffers and queues, in requests and bytes (cycle level).")] = None,
    json: JsonOption = None,
) -> None:
    """List the machines of the package, the commands that each serves, and the sections that each command needs."""

    from t3sim.base.cache import kept

    content = kept("machines", _by_level) if machine is None else _capacities(machine)
    if not write_results(content, json):
        return
    from t3sim.base.console import output_console

    console = output_console()
    if machine is not None:
        _show_capacities(console, content)
        return
    _show_all(content, console)


def _by_level() -> dict:
    from t3sim.machine.files import ALIASES, origin
    from t3sim.machine.levels import CYCLE, LEVELS, NETWORK
    from t3sim.machine.load import machines_of, sections

    cycle = machines_of(CYCLE)
    by_level = {}
    for level in LEVELS:
        # Each machine of the cycle level is also a ring of eight (`costs.network_costs`).
        names = sorted({*machines_of(level), *(cycle if level is NETWORK else ())})
        by_level[level.called] = {
            "command": level.command, "sections": sections(level), "machines": {name: origin(name) for name in names},
            "aliases": {alias: name for alias, name in ALIASES.items() if name in names}}
    return by_level


def _show_all(by_level: dict, console) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("machine", no_wrap=True)
    table.add_column("for t3 ...")
    table.add_column("description")
    origins = {name: what for of_level in by_level.values() for name, what in of_level["machines"].items()}
    aliases = {alias: name for of_level in by_level.values() for alias, name in of_level["aliases"].items()}
    for name, what in sorted(origins.items()):
        also = ", ".join(alias for alias, product in aliases.items() if product == name)
        table.add_row(name, ", ".join(of_level["command"].replace("t3 ", "") for of_level in by_level.values()
                                      if name in of_level["machines"]), f"{what} (also {also})" if also else what)
    console.print(table)
    console.print("\nSections that a machine needs, by command:")
    for called, of_level in by_level.items():
        needed = ", ".join(f"[{name}]" for name in of_level["sections"])
        console.print(f"  {of_level['command']} ({called}): {needed}", markup=False, soft_wrap=True)


def _capacities(machine: str) -> list[dict]:
    from t3sim.machine import load_machine
    from t3sim.runs.capacities import capacities

    return [{**one._asdict(), "size_bytes": one.size_bytes} for one in capacities(load_machine(machine))]


def _show_capacities(console, rows: list[dict]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, justify in (("buffer", "left"), ("requests", "right"), ("bytes each", "right"),
                             ("bytes", "right"), ("key", "left")):
        table.add_column(heading, justify=justify)
    for one in rows:
        table.add_row(one["place"], f"{one['requests']:,}", str(one["request_bytes"]), f"{one['size_bytes']:,}",
                      one["key"] or "fixed in the models")
    console.print(table)
