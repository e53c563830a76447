"""Components of `rtl`, compiled; what one is elaborated to is kept by its parameters."""

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
    def write() -> tuple[str, PortMap]:
        return component_text(factory(), name, inner or {})

    def make(folder: Path) -> None:
        text, ports = write()
        (folder / "design.cpp").write_text(text)
        (folder / "ports.json").write_text(ports.to_json())

    if parameters is None or INSTALLED:
        return write()
    key = digest(name, repr(parameters), repr(inner or {}), *rtl_sources(), *generator_sources())
    entry = cached(f"code-{key}", make)
    return (entry / "design.cpp").read_text(), PortMap.load(entry / "ports.json")
