"""Compile C++ that Verilator writes, with what all designs have in common compiled once."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from t3sim.base.cache import cached, digest
from t3sim.rtlsim.toolchain import Toolchain, run_all

_UNIT_BYTES = 300_000
_HEADERS = "headers.h"

#: For the code that every cycle runs.
FAST_FLAGS = ("-O2",)
#: Verilator puts what runs once (initial values, first settling) into files of their own.
SLOW_FLAGS = ("-Og",)  # not -O0: that could not share `precompiled_headers` with the other code
COMMON_FLAGS = ("-std=c++20", "-fPIC", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-DNDEBUG",
                "-Wno-invalid-offsetof")


def units(work: Path, name: str, files: Sequence[Path], flags: Sequence[str]) -> dict[str, tuple[int, Sequence[str]]]:
    """Write translation units that include the files; return each unit's size and flags.

    A unit costs time for the headers of the design alone, so a small design is one; a large one is several, to be
    compiled side by side.
    """
    grouped: dict[str, tuple[int, Sequence[str]]] = {}
    size = _UNIT_BYTES
    for path in files:
        if size >= _UNIT_BYTES:
            unit, size = f"{name}{len(grouped)}", 0
        size += path.stat().st_size
        grouped[unit] = (size, flags)
        with (work / f"{unit}.cpp").open("a") as source:
            source.write(f'#include "{path.name}"\n')
    return grouped


def include_flags(tools: Toolchain) -> list[str]:
    return [f"-I{tools.include}", f"-I{tools.include / 'vltstd'}"]


def precompiled_headers(tools: Toolchain, flags: Sequence[str]) -> list[str]:
    """Give the arguments of a compilation that takes Verilator's headers as they were read once for all designs.

    To be added to these flags, or to the same with -Og; without, the objects are the same but take seconds
    longer. None with Clang, which refuses them when a header is newer.
    """
    if "clang" in tools.compiler_version:
        return []
    compiler = [*tools.compiler, *flags, *include_flags(tools)]

    def make(folder: Path) -> None:
        (folder / _HEADERS).write_text('#include "verilated.h"\n')
        work = folder / "work"
        work.mkdir()
        run_all([[*compiler, "-x", "c++-header", f"../{_HEADERS}", "-o", f"../{_HEADERS}.gch"]], work)
        shutil.rmtree(work)

    return ["-include", str(cached("headers-" + digest(*tools.identity, *compiler), make) / _HEADERS)]


def runtime_objects(tools: Toolchain, flags: Sequence[str], names: Sequence[str]) -> list[Path]:
    """Compile Verilator's run-time library to objects, the same for every design."""
    compiler = [*tools.compiler, *flags, *include_flags(tools), "-c"]

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        run_all([[*compiler, tools.include / f"{name}.cpp", "-o", f"../{name}.o"] for name in names], work)
        shutil.rmtree(work)

    return sorted(cached("runtime-" + digest(*tools.identity, *compiler, *names), make).glob("*.o"))
