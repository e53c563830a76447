"""`t3 export`: a block as a C++ library."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.commands.options import GeometryOption, JsonOption, MachineOption, folder_name, write_results


def export(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="A block; gpu_top is the whole hardware of a GPU.")],
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", parser=folder_name, help="Folder for the files; created if missing.")] = None,
    record: Annotated[bool, typer.Option(
        "--record", help="Let the library record itself for `t3 explain` and `t3 step`; it runs slower.")] = False,
    geometry: GeometryOption = None,
    machine: MachineOption = "t3-table1",
    json: JsonOption = None,
) -> None:
    """Write a block as a C++ library for other simulators: C interface, SystemC module, CMake file, test, README."""
    from t3sim.base.errors import BadInput
    from t3sim.cosim.geometry_option import changed, parse_sizes
    from t3sim.cosim.verilog_files import known_block
    from t3sim.machine import load_machine

    if out is None:
        raise BadInput("--out DIR is needed: the folder for the files")
    known_block(block)
    sizes = changed(load_machine(machine).geometry(), parse_sizes(geometry))

    from t3sim.base.console import output_console, print_table
    from t3sim.cosim.c_library import write_library

    files, checksum = write_library(block, sizes, out, record)
    if write_results({"folder": str(out.resolve()), "block": block, "files": [*files], "checksum": checksum}, json):
        console = output_console()
        print_table(f"C++ library in {out}", ("file", "bytes"),
                    [(file, f"{len(text.encode()):,}") for file, text in files.items()], console)
        console.print(f"{block}_check prints {checksum}.")
