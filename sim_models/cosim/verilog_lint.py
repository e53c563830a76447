"""Complaints of Verilator, Yosys and Icarus Verilog about a block's Verilog."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from t3sim.base.errors import Failure
from t3sim.cosim.yosys import run_yosys
from t3sim.rtlsim.toolchain import find_toolchain

#: Verilator's warnings that are silenced, each with the reason. Everything else has to be clean under -Wall.
WAIVERS = {
    "DECLFILENAME": "a file holds a block with all of its parts, so that it can be used alone",
    "UNUSEDSIGNAL": "every field of a struct is a wire of its own, for waveforms; not all are read",
    "PROCASSINIT": "a register's declaration has its power-up value, which is also its reset value",
    "INITIALDLY": "it takes effect when all processes wait, so that each sees it",
    "CASEINCOMPLETE": "what a case leaves out keeps the value assigned before it",
    "WIDTHEXPAND": "operands of different widths are extended by Verilog's own rules, which the generator counts on",
    "WIDTHTRUNC": "`!` of a vector asks whether it is zero",
}


def waiver_file() -> str:
    """Write Verilator's configuration for all blocks."""
    lines = ["`verilator_config", "// Each rule with the reason why it is off."]
    for rule, reason in WAIVERS.items():
        lines += [f"// {reason}", f"lint_off -rule {rule}"]
    return "\n".join(lines) + "\n"


def check(block: str, folder: Path) -> dict[str, str]:
    """Return tool: its verdict on `<block>.v` in the folder. Raises Failure with the first complaint."""
    tools = find_toolchain()
    name = f"{block}.v"
    _accept("Verilator", [str(tools.verilator), "--lint-only", "-Wall", "--top-module", block, "t3.vlt", name], folder,
            {**os.environ, "VERILATOR_ROOT": str(tools.verilator_root)})
    verdicts = {"verilator": "clean"}
    scratch = folder / f".{block}.check"
    scratch.mkdir()
    try:
        shutil.copy(folder / name, scratch / "design.v")
        run_yosys(f"read_verilog design.v\nhierarchy -check -top {block}\nproc\ncheck -assert\n", scratch)
    finally:
        shutil.rmtree(scratch)
    verdicts["yosys"] = "accepted"
    if shutil.which("iverilog"):
        _accept("Icarus Verilog", ["iverilog", "-g2001", "-t", "null", "-s", block, name], folder, None)
        verdicts["icarus"] = "accepted"
    else:
        verdicts["icarus"] = "not installed"
    return verdicts


def _accept(tool: str, command: list[str], folder: Path, environment: dict[str, str] | None) -> None:
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False,
                             timeout=600)
    output = (process.stderr + process.stdout).strip()
    if process.returncode or re.search("warning", output, re.IGNORECASE):
        raise Failure(f"{tool} on {command[-1]}: {(output.splitlines() or ['it failed'])[0]}")
