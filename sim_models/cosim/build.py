"""From a component to a shared library, cached on disk."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from amaranth.lib import wiring

from .cache import cached, digest
from .library import Library
from .ports import PortMap
from .toolchain import Toolchain, find_toolchain, run_all
from .verilog import generate_verilog
from .wrapper import previous_clock, wrapper

_SHARED_OBJECT = "library.so"
_SELF_TEST_CYCLES = 2000

VERILATOR_FLAGS = ("--cc", "-O3", "-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast", "--no-assert",
                   "--no-timing", "--output-split", "5000", "--output-split-cfuncs", "500")
#: For the code that every cycle runs.
FAST_FLAGS = ("-O2",)
#: Verilator puts what runs once (initial values, first settling) into files of their own.
SLOW_FLAGS = ("-O0",)
COMMON_FLAGS = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0",
                "-DVM_TIMING=0", "-DVM_TRACE=0", "-DVL_TIME_CONTEXT", "-DNDEBUG")
_RUNTIME = ("verilated", "verilated_threads")


def build_component(factory: Callable[[], wiring.Component], name: str) -> Library:
    """Compile a fresh component from `factory`; `name` becomes the Verilog module's."""
    return build(*generate_verilog(factory(), name))


def build(text: str, ports: PortMap, fast_flags: Sequence[str] = FAST_FLAGS,
          verilator_flags: Sequence[str] = VERILATOR_FLAGS) -> Library:
    """Compile Verilog into a library, or open the cached one. Raises ToolchainError."""
    tools = find_toolchain()
    sources = [wrapper(ports, one_evaluation) for one_evaluation in (True, False)]
    key = digest(text, ports.to_json(), *sources, *tools.identity, *verilator_flags, *fast_flags, *SLOW_FLAGS,
                 *COMMON_FLAGS)

    def make(folder: Path) -> None:
        (folder / "design.v").write_text(text)
        (folder / "ports.json").write_text(ports.to_json())
        _compile(folder, ports, tools, fast_flags, verilator_flags)

    return Library(cached(key, make) / _SHARED_OBJECT, ports)


def _compile(folder: Path, ports: PortMap, tools: Toolchain, fast_flags: Sequence[str],
             verilator_flags: Sequence[str]) -> None:
    """Add the shared object and the wrapper to the Verilog in the folder."""
    runtime = _runtime(tools, fast_flags)
    work = folder / "work"
    work.mkdir()
    run_all([[tools.verilator, *verilator_flags, "--top-module", ports.top, "--Mdir", ".", "../design.v"]], work,
            {**os.environ, "VERILATOR_ROOT": str(tools.verilator_root)})
    compile_fast = [*tools.compiler, *COMMON_FLAGS, *_includes(tools), "-I.", *fast_flags, "-c"]
    compile_slow = [*tools.compiler, *COMMON_FLAGS, *_includes(tools), "-I.", *SLOW_FLAGS, "-c"]
    compile_wrapper = [*compile_fast, "../wrapper.cpp", "-o", "wrapper.o"]
    # The largest first, so that all end together.
    models = sorted(work.glob("*.cpp"), key=lambda path: path.stat().st_size, reverse=True)
    objects = [f"{path.stem}.o" for path in models]
    compile_models = [[*(compile_slow if "__Slow" in path.name else compile_fast), path.name, "-o", target]
                      for path, target in zip(models, objects)]
    link = [*tools.compiler, "-shared", "wrapper.o", *objects, *sorted(runtime.glob("*.o")), "-lpthread", "-o",
            f"../{_SHARED_OBJECT}"]

    def finish(one_evaluation: bool) -> None:
        (folder / "wrapper.cpp").write_text(wrapper(ports, one_evaluation))
        run_all([compile_wrapper], work)
        run_all([link], work)

    run_all(compile_models, work)
    one_evaluation = previous_clock(ports) in (work / f"V{ports.top}___024root.h").read_text()
    finish(one_evaluation)
    if one_evaluation and not _passes_self_test(folder / _SHARED_OBJECT):
        finish(one_evaluation=False)
    shutil.rmtree(work)


def _passes_self_test(shared_object: Path) -> bool:
    """In a process of its own: the loader would take the next library of that name for this one."""
    program = ("import ctypes, sys\n"
               "sys.exit(ctypes.CDLL(sys.argv[1]).t3_self_test(ctypes.c_int64(int(sys.argv[2]))) != 0)")
    command = [sys.executable, "-c", program, str(shared_object), str(_SELF_TEST_CYCLES)]
    return subprocess.run(command, check=False).returncode == 0


def _includes(tools: Toolchain) -> list[str]:
    return [f"-I{tools.include}", f"-I{tools.include / 'vltstd'}"]


def _runtime(tools: Toolchain, fast_flags: Sequence[str]) -> Path:
    """Folder with Verilator's run-time library as objects, the same for every design."""
    compile_fast = [*tools.compiler, *COMMON_FLAGS, *_includes(tools), *fast_flags, "-c"]

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        run_all([[*compile_fast, tools.include / f"{name}.cpp", "-o", f"../{name}.o"] for name in _RUNTIME], work)
        shutil.rmtree(work)

    return cached("runtime-" + digest(*tools.identity, *map(str, compile_fast)), make)
