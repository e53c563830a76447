"""Compile a component into a shared library, cached on disk, that evaluates what has changed."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from amaranth.lib import wiring

from t3sim.cosim import clusters, design_code, expressions, graph, graph_code, hierarchy, part_code, port_map, verilog
from t3sim.cosim import shown as shown_module
from t3sim.cosim.cache import cached, digest
from t3sim.cosim.design_code import design_code as code_of
from t3sim.cosim.graph import design_of
from t3sim.cosim.library import Library
from t3sim.cosim.port_map import PortMap
from t3sim.cosim.shown import Groups, with_shown
from t3sim.cosim.toolchain import ToolchainError, compiler_command, run_all
from t3sim.rtl.arbiter import INSTALLED

_SHARED_OBJECT = "library.so"
#: More optimization takes twice as long, for a twentieth fewer instructions and more wrong guesses of branches.
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-shared")
_SELF_TEST_CYCLES = 2000
_SELF_TEST_SECONDS = 100


def build_component(factory: Callable[[], wiring.Component], name: str, parameters: object = None,
                    shown: Groups | None = None) -> Library:
    """Compile a fresh component from `factory`; `name` becomes its module's. Raises ToolchainError, UnsupportedDesign.

    `shown` are inner signals that become outputs.

    With `parameters` what it is elaborated to is cached, which saves seconds. They must be all that the component
    depends on besides the sources in `rtl`, and have a complete repr, as a frozen dataclass has: the geometry. With
    policies of other distributions nothing is cached: it is not known which sources they import.
    """
    command, identity = compiler_command()
    text, ports = component_code(factory, name, parameters, shown)
    key = "library-" + digest(text, ports.to_json(), *identity, *FLAGS)

    def make(folder: Path) -> None:
        (folder / "ports.json").write_text(ports.to_json())
        (folder / "design.cpp").write_text(text)
        run_all([[*command, *FLAGS, "design.cpp", "-o", _SHARED_OBJECT]], folder)
        if not _passes_self_test(folder / _SHARED_OBJECT):
            raise ToolchainError(f"{name}: what {' '.join(command)} compiled is wrong: evaluating what has changed "
                                 "differs from evaluating all.")

    return Library(cached(key, make) / _SHARED_OBJECT, ports)


def component_code(factory: Callable[[], wiring.Component], name: str, parameters: object = None,
                   shown: Groups | None = None) -> tuple[str, PortMap]:
    """Write the C++ of a fresh component, and lay out its ports. For the arguments see `build_component`."""
    shown = shown or {}

    def write() -> tuple[str, PortMap]:
        component = factory()
        design = design_of(component, name, shown)
        ports = with_shown(verilog.port_map(component, name, design.ports), shown)
        return code_of(design, ports), ports

    def make(folder: Path) -> None:
        text, ports = write()
        (folder / "design.cpp").write_text(text)
        (folder / "ports.json").write_text(ports.to_json())

    if parameters is None or INSTALLED:
        return write()
    entry = cached("code-" + digest(name, repr(parameters), repr(shown), *_sources()), make)
    return (entry / "design.cpp").read_text(), PortMap.load(entry / "ports.json")


@cache
def _sources() -> tuple[str, ...]:
    """Return all that the code depends on besides the component's parameters."""
    generator = (clusters, design_code, expressions, graph, graph_code, hierarchy, part_code, port_map, shown_module,
                 verilog)
    return (importlib.metadata.version("amaranth"),
            *verilog.rtl_sources(), *(Path(module.__file__).read_text() for module in generator))


def _passes_self_test(shared_object: Path) -> bool:
    """Test the library in a process of its own: the loader would take the next library of that name for this one."""
    program = ("import ctypes, sys\n"
               "sys.exit(ctypes.CDLL(sys.argv[1]).t3_self_test(ctypes.c_int64(int(sys.argv[2]))) != 0)")
    command = [sys.executable, "-c", program, str(shared_object), str(_SELF_TEST_CYCLES)]
    try:
        return subprocess.run(command, check=False, timeout=_SELF_TEST_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"The compiled design hangs: its self test took over {_SELF_TEST_SECONDS} s.") from None
