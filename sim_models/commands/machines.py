"""`t3 machines`: the machines of the package by what simulates them, with the commands that do."""

from t3sim.commands.options import JsonOption


def machines(json: JsonOption = None) -> None:
    """List the machines that come with the package, by level, and which command runs each."""
    from t3sim.machine.levels import LEVELS
    from t3sim.machine.loader import origin
    from t3sim.study.report import output_console
    from t3sim.support.output import check_json_target, write_json

    check_json_target(json)
    found = {level.called: {"command": level.command, "machines": {name: origin(name) for name in level.presets()}}
             for level in LEVELS}
    if json is not None:
        write_json(found, json)
    if json == "-":
        return
    console = output_console()
    for called, of_level in found.items():
        console.print(f"{called[0].upper()}{called[1:]}: {of_level['command']} --machine NAME", style="bold")
        for name, what in of_level["machines"].items():
            console.print(f"  {name:<16} {what}", soft_wrap=True)
        console.print()
