"""Components of `rtl`, compiled; what one is elaborated to is kept by its parameters."""

import contextlib
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from amaranth.lib import wiring

from t3sim.base.cache import cached, digest
from t3sim.cosim.verilog import rtl_sources
from t3sim.rtl.arbiter import INSTALLED
from t3sim.rtlsim.build import compile_text, component_text, generator_sources
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.shown import Groups
from t3sim.rtlsim.simulator import Design
from t3sim.rtlsim.toolchain import ToolchainError, run_all

_CALL = "import pickle, sys; call, arguments = pickle.load(open(sys.argv[1], 'rb')); call(*arguments)"


def build_component(factory: Callable[[], wiring.Component], name: str, parameters: object = None,
                    inner: Groups | None = None) -> Design:
    """Compile a fresh component from `factory`; `name` becomes its module's. Raises ToolchainError, UnsupportedDesign.

    `inner` are inner signals that become outputs.

    With `parameters` what it is elaborated to is cached, which saves seconds. They must be all that the component
    depends on besides the sources in `rtl`, and have a complete repr, as a frozen dataclass has: the geometry. With
    policies of other distributions nothing is cached: it is not known which sources they import.
    """
    return compile_text(*component_code(factory, name, parameters, inner))


def component_code(factory: Callable[[], wiring.Component], name: str, parameters: object = None,
                   inner: Groups | None = None) -> tuple[str, PortMap]:
    """Write the C++ of a fresh component, and lay out its ports. For the arguments see `build_component`."""
    groups = inner or {}
    if parameters is None or INSTALLED:
        return component_text(factory(), name, groups)

    def make(folder: Path) -> None:
        if threading.current_thread() is threading.main_thread() or not _in_own_process(factory, name, groups, folder):
            write_code(factory, name, groups, folder)

    key = digest(name, repr(parameters), repr(groups), *rtl_sources(), *generator_sources())
    entry = cached(f"code-{key}", make)
    return (entry / "design.cpp").read_text(), PortMap.load(entry / "ports.json")


def write_code(factory: Callable[[], wiring.Component], name: str, groups: Groups, folder: Path) -> None:
    """Write what `component_text` gives into `folder`."""
    text, ports = component_text(factory(), name, groups)
    (folder / "design.cpp").write_text(text)
    (folder / "ports.json").write_text(ports.to_json())


def _in_own_process(factory: Callable[[], wiring.Component], name: str, groups: Groups, folder: Path) -> bool:
    """Do `write_code` beside this process, whose other threads compile loops in Python; return whether it was done.

    It takes 10 seconds of Python, in which each would slow the other down in one interpreter.
    """
    request = folder / "request.pickle"
    with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError, ToolchainError):
        request.write_bytes(pickle.dumps((write_code, (factory, name, groups, folder))))
        run_all([[sys.executable, "-P", "-c", _CALL, request]], folder)
        request.unlink()
        return True
    return False
