"""A folder of Verilog: what is written, and that it is written whole or not at all."""

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from t3sim.base.errors import BadInput, choices
from t3sim.base.output import staged_folder
from t3sim.cosim.designs import block_names, readable_verilog
from t3sim.cosim.driver.register_map import FORMATS
from t3sim.cosim.verilog_lint import check, waiver_file
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import PortMap

#: Blocks with the configuration bus: the register map is written beside them.
WITH_REGISTERS = ("config_bus", "gpu_top")

LICENCE = "SPDX-License-Identifier: BSD-2-Clause"


def chosen_blocks(name: str) -> tuple[str, ...]:
    """Return one block, or all. Raises BadInput."""
    return block_names() if name == "all" else (known_block(name, "all"),)


def known_block(name: str, *others: str) -> str:
    """Return the name of a block; `others` would have been allowed, too. Raises BadInput."""
    if name not in block_names():
        raise BadInput(f"block {name!r} is unknown: allowed are {choices(name, (*others, *block_names()))}")
    return name


def sizes_line(geometry: Geometry) -> str:
    """Write a geometry in one line, for a comment."""
    return " ".join(f"{name}={value}" for part in asdict(geometry).values() for name, value in part.items())


def block_files(block: str, geometry: Geometry) -> dict[str, str]:
    """Return file name: text. The same on every run and machine."""
    text, ports = readable_verilog(block, geometry)
    header = f"// {LICENCE}\n// {block} of t3sim, made from rtl/ by `t3 verilog`.\n// {sizes_line(geometry)}\n\n"
    return {f"{block}.v": header + text,
            f"{block}.json": json.dumps(describe(ports, geometry), indent=1) + "\n",
            f"{block}.core": fusesoc_core(block)}


def describe(ports: PortMap, geometry: Geometry) -> dict:
    """Describe ports in the order of the block's signature, with the fields of structs; and the block's sizes."""
    def port(direction: str, found) -> dict:
        return {"name": found.verilog, "member": found.name, "direction": direction, "width": found.width,
                "fields": {name: asdict(bits) for name, bits in found.fields.items()}}

    listed = [port("input", found) for found in ports.inputs.values()]
    listed += [port("output", found) for found in ports.outputs.values()]
    if ports.clock:
        listed.append({"name": ports.clock, "member": "", "direction": "input", "width": 1, "fields": {}})
    return {"module": ports.top, "clock": ports.clock, "reset": "rst" if "rst" in ports.inputs else None,
            "parameters": asdict(geometry), "ports": listed}


def fusesoc_core(block: str) -> str:
    """Write FuseSoC's description (CAPI 2): `fusesoc --cores-root DIR run --target lint t3sim:t3:BLOCK`."""
    return f"""CAPI=2:
name: t3sim:t3:{block}:{importlib.metadata.version("t3sim")}
description: {block} of t3sim (Track and Trigger)
filesets:
  rtl:
    files: [{block}.v]
    file_type: verilogSource
  waivers:
    files: [t3.vlt]
    file_type: vlt
targets:
  default: &default
    filesets: [rtl]
    toplevel: {block}
  lint:
    <<: *default
    filesets: [waivers, rtl]
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall]
"""


def write_verilog(blocks: Sequence[str], geometry: Geometry, folder: Path, checked: bool = False,
                  progress: Callable[[str, float], None] = lambda name, fraction: None) -> dict[str, dict[str, str]]:
    """Write Verilog into `folder`, which is made if need be; files of other names in it stay. Raises BadInput.

    Gives the verdicts of the tools if `checked`. Nothing is written after an error, nor if a tool complains.
    """
    verdicts = {}
    with staged_folder(folder) as staged:
        files = {"t3.vlt": waiver_file()}
        if set(blocks) & set(WITH_REGISTERS):
            files |= {file: render(geometry) for render, file in FORMATS.values()}
        for block in blocks:
            files |= block_files(block, geometry)
        for file, text in files.items():
            (staged / file).write_text(text, encoding="utf-8")
        for block in blocks:
            if checked:
                verdicts[block] = check(block, staged)
            progress(block, 1.0)
    return verdicts
