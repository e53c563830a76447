"""Debian's placer and router, and the technology's files: found in the system or where `make library` put them."""

import gzip
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from t3sim.base.errors import Failure

INSTALL = "sudo apt install qflow qflow-tech-osu018, or make library in a checkout"
SECONDS = 1800  #: that a program may take
_TECH = "usr/share/qflow/tech/osu018"
_NEEDED = {  # program or file: where its package puts it
    "graywolf": "usr/bin/graywolf",
    "qrouter": "usr/lib/qrouter/qrouter.so",
    "osu018_stdcells.lef": f"{_TECH}/osu018_stdcells.lef",
    "osu018.par": f"{_TECH}/osu018.par",
}
PREFIXES = (Path("/"), Path(__file__).resolve().parents[3] / "build" / "library")

#: Starts qrouter's Tcl part without a display, which the package's own launcher does for files under /usr only.
_QROUTER = """set no_graphics_mode true
set argv {-s route.tcl}
set argc 2
source $::env(QROUTER_LIB_DIR)/qrouter.tcl
"""


@dataclass(frozen=True)
class Tools:
    prefix: Path  #: of the file system in which all are

    @property
    def lef(self) -> Path:
        return self.prefix / _NEEDED["osu018_stdcells.lef"]

    @property
    def placer_settings(self) -> Path:
        return self.prefix / _NEEDED["osu018.par"]

    @cached_property
    def versions(self) -> str:
        """Name the programs and their versions, as their packages have them."""
        names = []
        for package in ("graywolf", "qrouter", "qflow-tech-osu018"):
            files = sorted((self.prefix / "usr/share/doc" / package).glob("changelog*"))
            names.append(f"{package} {_first_version(files)}")
        return ", ".join(names)

    def place(self, folder: Path, design: str) -> None:
        """Run graywolf on `design`.cel and .par in `folder`. Raises Failure."""
        program = self.prefix / _NEEDED["graywolf"]
        self._run("placement", [str(program), "-n", design], folder, f"{design}.pl1")

    def route(self, folder: Path, result: str) -> None:
        """Run qrouter on route.tcl in `folder`. Raises Failure if it does not write `result`."""
        (folder / "start.tcl").write_text(_QROUTER)
        self._run("routing", ["tclsh", "start.tcl"], folder, result)

    def _run(self, step: str, command: list[str], folder: Path, result: str) -> None:
        libraries = [str(path) for path in sorted((self.prefix / "usr/lib").glob("*-linux-gnu"))]
        environment = os.environ | {
            "TWDIR": str(self.prefix / "usr/lib/graywolf"), "QROUTER_LIB_DIR": str(self.prefix / "usr/lib/qrouter"),
            "LD_LIBRARY_PATH": ":".join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}
        log = folder / f"{step}.log"
        try:
            with log.open("w") as output:
                done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                      stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Failure(f"{step}: {Path(command[0]).name} took over {SECONDS} s") from None
        except OSError as error:
            raise Failure(f"{step}: {command[0]} cannot be started: {error.strerror}") from None
        if not (folder / result).is_file():
            lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
            told = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "")
            raise Failure(f"{step}: {Path(command[0]).name} ended with code {done.returncode} and without {result}"
                          + (f": {told[:200]}" if told else ""))


def _first_version(files: list[Path]) -> str:
    for file in files:
        try:
            text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        except (OSError, EOFError):
            continue
        head, _, rest = text.decode(errors="replace").partition("(")
        if head and rest:
            return rest.partition(")")[0]
    return "of unknown version"


def find_tools() -> Tools:
    """Find all in one place. Raises Failure with the line that installs them."""
    missing: list[str] = []
    for prefix in PREFIXES:
        lacks = [name for name, place in _NEEDED.items() if not (prefix / place).is_file()]
        lacks += [] if shutil.which("tclsh") else ["tclsh"]
        if not lacks:
            return Tools(prefix)
        if not missing or len(lacks) < len(missing):
            missing = lacks
    raise Failure(f"place and route needs {', '.join(missing)}: {INSTALL}")
