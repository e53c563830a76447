"""`t3 verilog`: the blocks as files for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from t3sim.commands.options import GeometryOption, JsonOption, MachineOption, folder_name, write_results


def verilog(
    block: Annotated[str, typer.Argument(metavar="[BLOCK|all]", help="A block, or all.")] = "all",
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", parser=folder_name, help="Folder for the files; created if missing.")] = None,
    geometry: GeometryOption = None,
    machine: MachineOption = "t3-table1",
    check: Annotated[bool, typer.Option("--check", help="Lint with Verilator; parse with Yosys and Icarus.")] = False,
    json: JsonOption = None,
) -> None:
    """Write Verilog, ports and parameters as JSON, a FuseSoC core, lint waivers and the register map."""
    from t3sim.base.errors import BadInput
    from t3sim.cosim.geometry_option import changed, parse_sizes
    from t3sim.cosim.verilog_files import chosen_blocks, write_verilog
    from t3sim.machine import load_machine

    if out is None:
        raise BadInput("--out DIR is needed: the folder for the files")
    blocks = chosen_blocks(block)
    sizes = changed(load_machine(machine).geometry(), parse_sizes(geometry))

    from t3sim.base.console import output_console, print_table, progress_bar

    with progress_bar(blocks) as progress:
        verdicts = write_verilog(blocks, sizes, out, check, progress)
    files = {name: f"{name}.v" for name in blocks}
    if write_results({"folder": str(out.resolve()), "files": files, "checks": verdicts}, json):
        tools = tuple(next(iter(verdicts.values()))) if check else ()
        print_table(f"Verilog in {out}", ("block", "file", *tools),
                    [(name, file, *verdicts.get(name, {}).values()) for name, file in files.items()], output_console())
