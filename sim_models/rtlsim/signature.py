"""Ports of a component's signature: names, directions, and where they are in words."""

from collections.abc import Sequence
from typing import NamedTuple

from amaranth.hdl import Format, Signal, Value
from amaranth.hdl._ast import Slice
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

from t3sim.rtlsim.port_map import FALLING, RESET, Field, Port, PortMap, words_for

CLOCK = "clk"


class PortError(ValueError):
    """The Verilog's ports are not those of the component's signature."""


def signature_ports(component: wiring.Component) -> dict[str, tuple[Value, PortDirection]]:
    """Return the ports by name: `compute[3].payload` is `compute__3__payload`; members without bits have none."""
    ports = {}
    for path, member, value in component.signature.flatten(component):
        if len(Value.cast(value)):
            direction = PortDirection.Input if member.flow == wiring.In else PortDirection.Output
            ports["__".join(map(str, path))] = (Value.cast(value), direction)
    return ports


class DeclaredPort(NamedTuple):
    """A port as it was declared in Python."""

    side: str  #: `input` or `output`
    path: str  #: `compute[3].payload`
    verilog: str
    signal: Signal


def declared_ports_of(component: wiring.Component) -> list[DeclaredPort]:
    pins = [(path, member, Value.cast(value)) for path, member, value in component.signature.flatten(component)]
    return [DeclaredPort("input" if member.flow == wiring.In else "output", path_name(path), signal.name, signal)
            for path, member, signal in pins if len(signal)]


def port_map(pins: list[DeclaredPort], name: str, declared: dict[tuple[str, str], int],
             clocks: Sequence[str] = ()) -> PortMap:
    """Lay the ports out in words and check them against those that the module has: direction and name, bits.

    `clocks` are inputs that are clocks, if it is not `clk` alone.
    """
    declared = dict(declared)
    clock_inputs = {clock.removesuffix(FALLING) for clock in clocks}
    for port in clock_inputs:
        declared.pop(("input", port), None)
    clock = CLOCK if declared.pop(("input", CLOCK), None) else None
    resets = [port for side, port in declared if side == "input" and (port == RESET or port.endswith(f"_{RESET}"))]
    sides: dict[str, dict[str, Port]] = {"input": {}, "output": {}}
    offsets = {"input": 0, "output": 0}

    def add(side: str, path: str, verilog_name: str, width: int, fields: dict[str, Field]) -> None:
        sides[side][path] = Port(path, verilog_name, width, offsets[side], fields)
        offsets[side] += words_for(width)

    for side, path, verilog, signal in pins:
        if verilog in clock_inputs or verilog == clock:
            continue
        if declared.pop((side, verilog), None) != len(signal):
            raise PortError(f"{name}: {side} {path} is not {verilog} with {len(signal)} bits in its module")
        add(side, path, verilog, len(signal), signal_fields(signal))
    for reset in resets:
        if declared.pop(("input", reset), None):
            add("input", reset, reset, 1, {})
    if declared:
        raise PortError(f"{name}: the module has ports that the signature lacks: {sorted(declared)}")
    return PortMap(name, sides["input"], sides["output"], clock, clocks=tuple(clocks))


def path_name(path: tuple[str | int, ...]) -> str:
    """Write a path as a name: `("compute", 3, "payload")` is `compute[3].payload`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def signal_fields(signal: Signal) -> dict[str, Field]:
    """Return every named field of a signal's layout, nested ones both whole and by leaf; empty for a plain value."""
    fields: dict[str, Field] = {}

    def add(form, prefix: str) -> None:
        inner = form._fields.items() if isinstance(form, Format.Struct) else (
            enumerate(form._fields) if isinstance(form, Format.Array) else ())
        for key, part in inner:
            name = f"{prefix}[{key}]" if str(key).isdigit() else f"{prefix}.{key}".lstrip(".")
            value = part._chunks[0][0] if isinstance(part, Format) else part._value
            lsb, width = 0, len(value)
            while value is not signal:
                value, lsb = (value.value, lsb + value.start) if isinstance(value, Slice) else (value.operands[0], lsb)
            fields[name] = Field(lsb, width)
            add(part, name)

    add(signal._format, "")
    return fields
