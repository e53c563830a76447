"""PyPI's Yosys and nextpnr: WebAssembly programs that see the files of the folder they run in."""

import importlib.metadata
import importlib.util
import subprocess
from pathlib import Path

from t3sim.base import yowasp
from t3sim.base.errors import Failure
from t3sim.base.extras import install_line

SECONDS = 1800
TOOLS = ("yosys", "nextpnr-ecp5")


def version(tool: str) -> str:
    """Return the version of a tool. Raises Failure if the tool is not there."""
    if not _is_there(tool):
        raise Failure(f"{tool} is missing: {install_line(yowasp.module(tool))}")
    return importlib.metadata.version(yowasp.package(tool))


def versions() -> str:
    """Name the tools that are there and their versions, in words."""
    return ", ".join(f"{tool} {version(tool)}" for tool in TOOLS if _is_there(tool))


def _is_there(tool: str) -> bool:
    return importlib.util.find_spec(yowasp.module(tool)) is not None


class OutOfTime(Failure):
    """A tool that was ended by time."""


def run(tool: str, arguments: list[str], folder: Path, seconds: float = SECONDS) -> str:
    """Run a tool in `folder`; return its standard error and output. Raises Failure, and OutOfTime after `seconds`."""
    version(tool)
    yowasp.prepare(tool)
    try:
        process = subprocess.run([*yowasp.command(tool), *arguments], cwd=folder, capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"{tool} took over {seconds} s") from None
    output = process.stderr + process.stdout
    if process.returncode:
        lines = [line for line in output.splitlines() if line.strip()] or [f"exit code {process.returncode}"]
        raise Failure(f"{tool}: " + next((line for line in lines if line.startswith("ERROR")), lines[-1]))
    return output


def run_yosys(script: str, folder: Path, seconds: float = SECONDS) -> str:
    """Run a script of Yosys; it stays in the folder, for whoever wants to repeat it. Raises as `run` does."""
    (folder / "script.ys").write_text(script)
    return run("yosys", ["-q", "script.ys"], folder, seconds)
