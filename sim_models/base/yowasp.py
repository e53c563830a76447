"""PyPI's Yosys, nextpnr and Boolector (YoWASP): WebAssembly programs, which compile themselves when first started."""

import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

import platformdirs

from t3sim.base.errors import Failure
from t3sim.base.streams import say
from t3sim.base.user_cache import make_folder, refuse_shared


def module(tool: str) -> str:
    """Name the Python module that brings `tool`: "yosys", "nextpnr-ecp5" or "boolector"."""
    return f"yowasp_{tool}".replace("-", "_")


def package(tool: str) -> str:
    """Name the package of `tool` on PyPI."""
    return f"yowasp-{tool}"


def command(tool: str) -> list[str]:
    """List the words that start `tool`; its arguments follow."""
    name = module(tool)
    return [sys.executable, "-c", f"import sys, {name}; sys.exit({name}.run_{tool.replace('-', '_')}(sys.argv[1:]))"]


@functools.cache
def prepare(tool: str) -> None:
    """Start `tool` once, so that no later start has to compile it.

    The start that compiles takes up to a minute, prints a line that whoever talks to the tool would take for an answer,
    and writes a file in place that other starts read: one process does it at a time.

    Raises
    ------
    Failure
        The tool cannot be started, or the cache of YoWASP's programs cannot be written.
    """
    folder = Path(os.environ.get("YOWASP_CACHE_DIR", platformdirs.user_cache_dir("YoWASP", appauthor=False)))
    refuse_shared(folder, f"YOWASP_CACHE_DIR={folder}")
    try:
        make_folder(folder)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Failure(f"the cache of YoWASP's programs (YOWASP_CACHE_DIR) cannot be used: {error}") from None
    if not any(folder.iterdir()):
        say("Yosys and its like, which are WebAssembly", "a minute each")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.run([*command(tool), "--version"], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, check=False)
    finally:
        os.close(lock)
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.strip()] or [f"exit code {process.returncode}"]
        raise Failure(f"{tool} does not start: {lines[-1]}")
