"""Runs a block's cocotb testbench, `testbenches/tb_<block>.py`."""

import json
from dataclasses import asdict
from pathlib import Path

from rtl.blocks import BLOCKS
from rtl.geometry import Geometry

from .build import component_verilog
from .cocotb_run import CocotbFailure, build_simulation, run_cocotb
from .ports import PortMap


def block_verilog(block: str, geometry: Geometry) -> tuple[str, PortMap]:
    """The block's Verilog, with its name as the top module's."""
    return component_verilog(lambda: BLOCKS[block](geometry), block, (block, geometry))


def run_testbench(block: str, geometry: Geometry, folder: Path, *, design: tuple[str, PortMap] | None = None,
                  seed: int = 1, simulator: str = "verilator", waves: bool = False, testcase: str | None = None,
                  length: int = 1, timeout_s: int = 600) -> int:
    """The number of tests that passed; a failure's message has the assertion. `design`: another Verilog than the
    block's own, say a broken one. `length` multiplies the rounds of random traffic."""
    text, ports = design or block_verilog(block, geometry)
    simulation = build_simulation(text, ports, simulator, waves)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ports.json").write_text(ports.to_json())
    (folder / "run.json").write_text(json.dumps({"geometry": asdict(geometry), "length": length}))
    try:
        return run_cocotb(simulation, f"testbenches.tb_{block}", folder, seed, testcase,
                          {"T3_BENCH": str(folder.resolve())}, timeout_s)
    except CocotbFailure as failure:
        log = folder / "cocotb.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        told = [line.strip() for line in lines if "Error" in line][:4]
        raise CocotbFailure("\n".join([str(failure), *told])) from None
