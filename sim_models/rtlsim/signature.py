"""Ports of a component's signature: names, directions, and where they are in words."""

from amaranth.hdl import Format, Signal, Value
from amaranth.hdl._ast import Slice
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

from t3sim.rtlsim.port_map import RESET, Field, Port, PortMap, words_for

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
        add(side, path_name(path), signal.name, len(signal), signal_fields(signal))
    if reset:
        add("input", RESET, RESET, 1, {})
    if declared:
        raise PortError(f"{name}: the module has ports that the signature lacks: {sorted(declared)}")
    return PortMap(name, sides["input"], sides["output"], clock)


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
