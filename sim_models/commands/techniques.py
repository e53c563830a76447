"""`t3 techniques`: the mechanisms of `t3 run` and `t3 overlap`, the level on which each runs, and what with."""

from types import SimpleNamespace
from typing import Any

from t3sim.commands.options import JsonOption, write_results

#: Of each level: the key and the values that JSON has for it, and how the table names it.
_LEVELS = {
    "cycle": ("techniques", ("title", "source", "by_default", "split_k", "operators", "topologies"), "cycle"),
    "event": ("event", ("title", "source", "operators"), "event"),
    "library": ("mechanisms", ("title", "source", "operators", "in_switch"), "library"),
    "experts": ("experts", ("title", "source"), "library"),
}


def techniques(json: JsonOption = None) -> None:
    """List the mechanisms of `t3 run` and `t3 overlap`, with source, level, operators and topologies."""
    from rich import box
    from rich.table import Column, Table

    from t3sim.base.cache import kept
    from t3sim.base.console import output_console

    rows = [SimpleNamespace(**row) for row in kept("techniques", _rows)]
    content = {key: {row.name: {name: getattr(row, name) for name in names} for row in rows if row.level == level}
               for level, (key, names, _) in _LEVELS.items()}
    if not write_results(content, json):
        return
    table = Table(Column("mechanism", no_wrap=True), Column("level", no_wrap=True), "description",
                  Column("source", overflow="fold"), Column("operators", overflow="fold"), "topologies",
                  box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(f"{row.name} *" if row.by_default else row.name, _LEVELS[row.level][2], row.title,
                      row.source + (" (in-switch sums)" if row.in_switch else ""), ", ".join(row.operators),
                      ", ".join(row.topologies))
    output_console().print(table)
    print("* default. Command of each level: cycle `t3 run`, event `t3 run --level event`, library `t3 overlap`\n"
          "  (experts: `t3 overlap --expert-parallel`).")


def _rows() -> list[dict[str, Any]]:
    from t3sim.mechanisms.table import every_mechanism

    return [row._asdict() for row in every_mechanism()]
