"""Compile a component into a shared library that evaluates what has changed."""

import importlib.metadata
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from amaranth.hdl import Elaboratable
from amaranth.hdl import _ir as hdl_design
from amaranth.lib import wiring

from t3sim.base.cache import cached, digest
from t3sim.rtlsim import clusters, expressions, graph, graph_code, hierarchy, part_code, port_map, shown, signature
from t3sim.rtlsim import design_code as design_code_module
from t3sim.rtlsim.design_code import design_code
from t3sim.rtlsim.graph import flat_graphs_of, graphs_of
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.shown import Groups, with_inner, with_shown
from t3sim.rtlsim.signature import port_map as signature_map
from t3sim.rtlsim.simulator import Design
from t3sim.rtlsim.toolchain import ToolchainError, compiler_command, run_all

_SHARED_OBJECT = "library.so"
#: More optimization takes twice as long, for a twentieth fewer instructions and more wrong guesses of branches.
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-shared")
_SELF_TEST_CYCLES = 2000
_SELF_TEST_SECONDS = 100


def component_text(component: wiring.Component, name: str, groups: Groups) -> tuple[str, PortMap]:
    """Write the C++ of a fresh component, with `groups` of inner signals as further outputs, and lay out its ports.

    `name` becomes its module's. Raises UnsupportedDesign.
    """
    design = graphs_of(component, name, groups)
    ports = with_shown(signature_map(design.pins, name, design.ports, design.clocks), groups)
    return design_code(design, ports), ports


def flat_text(top: Elaboratable | hdl_design.Design, name: str, inner: str) -> tuple[str, PortMap]:
    """Write the C++ of a design as one module, and lay out its ports. See `flat_graphs_of`."""
    design = flat_graphs_of(top, name, inner)
    ports = signature_map(design.pins, name, design.ports, design.clocks)
    ports = with_inner(ports, design.inner, design.memories)
    return design_code(design, ports), ports


def compile_text(text: str, ports: PortMap, cache_folder: Path | None = None) -> Design:
    """Compile what `component_text` has written, or take it from the cache. Raises ToolchainError."""
    command, identity = compiler_command()
    key = "library-" + digest(text, ports.to_json(), *identity, *FLAGS)

    def make(folder: Path) -> None:
        (folder / "ports.json").write_text(ports.to_json())
        (folder / "design.cpp").write_text(text)
        try:
            run_all([[*command, *FLAGS, "design.cpp", "-o", _SHARED_OBJECT]], folder)
            if not _passes_self_test(folder / _SHARED_OBJECT):
                raise ToolchainError(f"{ports.top}: what {' '.join(command)} compiled is wrong: evaluating what has "
                                     "changed differs from evaluating all.")
        except ToolchainError as error:
            source = Path(tempfile.mkdtemp(prefix="t3-")) / "design.cpp"
            source.write_text(text)
            raise ToolchainError(f"{error} The source is kept: {source}") from None

    return Design(cached(key, make, cache_folder) / _SHARED_OBJECT, ports)


@cache
def generator_sources() -> tuple[str, ...]:
    """Return all that `component_text` depends on besides the component."""
    generator = (clusters, design_code_module, expressions, graph, graph_code, hierarchy, part_code, port_map, shown,
                 signature)
    return (importlib.metadata.version("amaranth"), *(Path(module.__file__).read_text() for module in generator))


def _passes_self_test(shared_object: Path) -> bool:
    """Test the library in a process of its own: the loader would take the next library of that name for this one."""
    program = ("import ctypes, sys\n"
               "sys.exit(ctypes.CDLL(sys.argv[1]).t3_self_test(ctypes.c_int64(int(sys.argv[2]))) != 0)")
    command = [sys.executable, "-c", program, str(shared_object), str(_SELF_TEST_CYCLES)]
    try:
        return subprocess.run(command, check=False, timeout=_SELF_TEST_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"The compiled design hangs: its self test took over {_SELF_TEST_SECONDS} s.") from None
