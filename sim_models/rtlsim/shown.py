"""Inner signals of a design as further outputs.

Registers copy them at every clock edge: after a step the outputs named `trace.*` tell what happened in the cycle that
the step ended, decided with that cycle's inputs; the other outputs are the design's own. The hardware is untouched.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from t3sim.rtlsim.port_map import Field, InnerMemory, Port, PortMap

PREFIX = "trace."
_INSTANCE = "inner"  #: of the design inside the module


@dataclass(frozen=True)
class Slot:
    """An inner signal, or whether some are set, in its group's words."""

    lsb: int
    width: int
    #: A path, `channel_0.arbiter.ready`; of several whether all are set, of none 1. `~` in front of a path turns a bit
    #: around, `|` asks whether any of several bits is set.
    terms: tuple[str, ...]


def slot(lsb: int, width: int, *terms: str) -> Slot:
    return Slot(lsb, width, terms)


Groups = dict[str, list[Slot]]  #: name of each further output and what lies where in it


def output_name(group: str) -> str:
    """Name a group's output in the Verilog."""
    return (PREFIX + group).replace(".", "__").replace("[", "__").replace("]", "")


def with_shown(ports: PortMap, contents: Groups) -> PortMap:
    """Lay out the ports of a design that shows some of its inner signals."""
    if not contents:
        return ports
    outputs, offset = {}, ports.output_words
    for name, slots in contents.items():
        width = max(slot.lsb + slot.width for slot in slots)
        outputs[PREFIX + name] = Port(PREFIX + name, output_name(name), width, offset)
        offset += outputs[PREFIX + name].words
    return replace(ports, top=f"{ports.top}_traced", outputs=ports.outputs | outputs)


def with_inner(ports: PortMap, signals: dict[str, tuple[str, int, dict[str, Field]]],
               memories: dict[str, InnerMemory]) -> PortMap:
    """Lay out the ports of a design whose inner signals are outputs: by path the first of those that are the same."""
    outputs, offset = dict(ports.outputs), ports.output_words
    for path, (first, width, fields) in signals.items():
        outputs[path] = Port(path, first, width, outputs[first].offset if first in outputs else offset, fields)
        offset += outputs[path].words * (first == path)
    return replace(ports, outputs=outputs, memories=memories)


def show(text: str, ports: PortMap, contents: Groups) -> tuple[str, PortMap]:
    """Write the Verilog of a design inside a module that shows some of its inner signals, and that module's ports."""
    traced = with_shown(ports, contents)
    added = [traced.port(PREFIX + name) for name in contents]
    return "\n".join([text, *_module(traced.top, ports, added, contents.values())]) + "\n", traced


def _module(top: str, ports: PortMap, added: Iterable[Port], contents: Iterable[list[Slot]]) -> list[str]:
    def declare(direction: str, port: Port) -> str:
        return f"  {direction} [{port.width - 1}:0] {port.verilog}"
    lines = [f"module {top}(", f"  input {ports.clock},"]
    lines.append(",\n".join([*(declare("input", port) for port in ports.inputs.values()),
                             *(declare("output", port) for port in ports.outputs.values()),
                             *(declare("output reg", port) for port in added)]) + ");")
    names = [ports.clock, *(port.verilog for port in ports)]
    lines.append(f"  {ports.top} {_INSTANCE}({', '.join(f'.{name}({name})' for name in names)});")
    lines.append(f"  always @(posedge {ports.clock}) begin")
    for port, slots in zip(added, contents):
        lines.append(f"    {port.verilog} <= 0;")
        lines += [f"    {port.verilog}[{slot.lsb} +: {slot.width}] <= {' & '.join(map(_verilog, slot.terms)) or 1};"
                  for slot in slots]
    return [*lines, "  end", "endmodule"]


def _verilog(term: str) -> str:
    path = term.lstrip("~|")
    # A name may be a keyword, as `table` is.
    return term[:len(term) - len(path)] + _INSTANCE + "".join(f".\\{name} " for name in path.split("."))
