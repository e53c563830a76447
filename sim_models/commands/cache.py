"""`t3 cache`: what is kept to make the next start fast, and how to be rid of it."""

from typing import Annotated

import typer

from t3sim.commands.options import JsonOption, write_results

#: First words of the entries' names.
_KINDS = {"library": "RTL, compiled", "code": "C++ of a component", "verilog": "Verilog of a component",
          "runtime": "Verilator's run-time library",
          "loops": "loops of the models, compiled", "cocotb": "simulations for cocotb (Verilator)",
          "icarus": "simulations for cocotb (Icarus)", "mutants": "mutants of a netlist",
          "mistakes": "mistakes in a source", "results": "results of kernels",
          "imports": "lists of the sources that run", "lists": "lists and errors of the package",
          "netlist": "netlists of standard cells", "ecp5": "netlists of an FPGA"}


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every entry that is not being built.")] = False,
    json: JsonOption = None,
) -> None:
    """Show the contents of the user's cache folder, or empty it.

    $T3_CACHE selects another folder. Above $T3_CACHE_GB, the least recently used entries are removed.
    """
    import time

    from t3sim.base.cache import entries, evict, limit_bytes
    from t3sim.base.console import output_console, print_table
    from t3sim.base.user_cache import cache_folder

    folder, limit = cache_folder(), limit_bytes()
    removed = evict(folder, 0, in_use_seconds=-float("inf")) if clear else []
    entries_left = entries(folder)
    content = {"folder": str(folder), "limit_bytes": limit, "removed": [entry.path.name for entry in removed],
               "entries": [{"name": entry.path.name, "bytes": entry.size_bytes, "used": entry.used}
                           for entry in entries_left]}
    if not write_results(content, json):
        return
    if clear:
        print(f"removed {len(removed)} entries, {sum(entry.size_bytes for entry in removed) / 1e6:,.1f} MB")
    rows = []
    for kind in dict.fromkeys([*_KINDS, *(entry.kind for entry in entries_left)]):
        if of_kind := [entry for entry in entries_left if entry.kind == kind]:
            last = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(entry.used for entry in of_kind)))
            rows.append((_KINDS.get(kind, kind), f"{len(of_kind):,}",
                         f"{sum(entry.size_bytes for entry in of_kind) / 1e6:,.1f}", last))
    total = sum(entry.size_bytes for entry in entries_left)
    print(f"{folder}: {total / 1e6:,.1f} MB (limit {limit / 1e6:,.0f} MB)")
    if rows:
        print_table("", ("contents", "entries", "MB", "last used"), rows, output_console())
