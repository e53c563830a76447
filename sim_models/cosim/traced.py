"""A design with inner signals as further outputs, for recording what it does: the per-GPU top, or a block alone.

The hardware is the same Verilog, untouched, inside a module that copies signals from within into registers at every
clock edge. So after a step the outputs named `trace.*` tell what happened in the cycle that the step ended, decided
with that cycle's inputs; the other outputs are those of the top. The same module serves the compiled library and
cocotb.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from amaranth.lib import data

from t3sim.rtl.arbiter import POLICY_BITS
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtl.layouts import request, trigger, update

from ..engine.library import Library
from ..engine.port_map import Port, PortMap
from .build import build, component_verilog
from .gpu import NAME

INSTANCE = "inner"  #: of the design inside the module
PREFIX = "trace."


@dataclass(frozen=True)
class Slot:
    """One inner signal in its group's words."""

    lsb: int
    width: int
    expression: str  #: Verilog


def _struct(lsb: int, layout: data.Layout, expression: str) -> Slot:
    return Slot(lsb, layout.size, expression)


Groups = dict[str, list[Slot]]  #: name of each trace output and what lies where in it


def groups(geometry: Geometry) -> Groups:
    """Return the groups of the top. The recorder (sim_models/trace/rtl_events.py) reads them at these places."""
    inside = f"{INSTANCE}."
    found = {f"channel[{c}]": _channel(geometry, f"{inside}channel_{c}") for c in range(geometry.channel.channels)}
    found |= {f"bank[{b}]": _bank(geometry, f"{inside}tracker_{b}") for b in range(geometry.tracker.banks)}
    found["merge"] = _triggers(geometry, f"{inside}merge.merged", f"{inside}to_table")
    table = rf"{inside}\table "  # a keyword, hence escaped
    level = geometry.dma.ready_commands.bit_length()
    found["table"] = [Slot(0, 1, f"({table}.w_en & {table}.w_rdy)"), Slot(8, level, f"{table}.ready_level"),
                      _struct(64, trigger(geometry), f"{table}.w_data"),
                      _struct(192, trigger(geometry), f"{table}.commands__payload")]
    found |= {f"engine[{e}]": _engine(geometry, f"{inside}engine_{e}") for e in range(geometry.dma.engines)}
    ring, count = f"{inside}ring_monitor", geometry.tracker.wg_bits + 1
    found["ring"] = [Slot(0, 1, f"{ring}.late"), Slot(64, count, f"{ring}.since_idle"),
                     Slot(128, count, f"{ring}.stage")]
    return found


def groups_of_block(block: str, geometry: Geometry) -> Groups | None:
    """Return the groups of a block on its own; None where a trace has nothing to say about it."""
    if block == "gpu_top":
        return groups(geometry)
    if block == "memory_channel":
        return {"channel[0]": _channel(geometry, INSTANCE)}
    if block == "tracker":
        return {"bank[0]": _bank(geometry, INSTANCE), "merge": _triggers(geometry, f"{INSTANCE}.triggers", "2'd2")}
    if block == "arbiter":
        return {"channel[0]": _arbiter(INSTANCE)}
    return None


def _decision(arbiter: str, surroundings: list[str]) -> list[Slot]:
    """Return the lowest bits as in `t3sim.trace.schema.CONDITIONS`; `surroundings` are those outside the arbiter."""
    own = ["drain", "compute_valid", "communication_valid", "communication_waiting", "ready", "grant_compute",
           "grant_communication", "starved", "last_communication"]
    bits = [*(f"{arbiter}.{name}" for name in own), *surroundings, f"{arbiter}.ring_late"]
    return [*(Slot(i, 1, bit) for i, bit in enumerate(bits)),
            Slot(24, 8, f"{arbiter}.occupancy"), Slot(32, 7, f"{arbiter}.threshold"),
            Slot(40, 16, f"{arbiter}.waited"), Slot(56, POLICY_BITS, f"{arbiter}.policy"),
            Slot(192, 16, f"{arbiter}.starvation_limit")]


def _channel(geometry: Geometry, at: str) -> list[Slot]:
    there = [f"{at}.{queue}_queue.output__valid" for queue in ("compute", "inbound", "dma")]
    state = [f"{at}.{name}" for name in ("access_ready", "take_dma", "dma_able", "inbound_able", "guard.ready")]
    return [*_decision(f"{at}.arbiter", [*there, *state, f"({at}.dram__valid & ~{at}.dram__ready)",
                                         f"({at}.updates__valid & {at}.updates__ready)"]),
            _struct(64, update(geometry), f"{at}.updates__payload")]


def _arbiter(at: str) -> list[Slot]:
    """Return an arbiter's group.

    Alone it does not know inbound from DMA requests: all communication counts as inbound.
    """
    there = [f"{at}.compute_valid", f"{at}.communication_waiting", "1'b0"]
    state = ["1'b1", "1'b0", "1'b0", f"{at}.communication_valid", "1'b1", f"~{at}.ready", "1'b0"]
    return [*_decision(at, there + state), Slot(64, 128, "128'd0")]  # no request to show


def _bank(geometry: Geometry, at: str) -> list[Slot]:
    bits = ["done", "crowded", "valid", "hit", "complete", "exceeds", "refused", "foreign"]
    count, occupied = geometry.tracker.count_bits, (geometry.tracker.sets_per_bank * geometry.tracker.ways).bit_length()
    return [*(Slot(i, 1, f"{at}.{bit}") for i, bit in enumerate(bits)),
            Slot(8, occupied, f"{at}.occupied"), Slot(32, geometry.dma.region_bits, f"{at}.region"),
            Slot(64, count, f"{at}.count"), Slot(96, count, f"{at}.room"),
            Slot(128, geometry.tracker.ways, f"{at}.write"),
            Slot(192, geometry.tracker.address_bits, f"{at}.address"), _struct(256, update(geometry), f"{at}.current")]


def _triggers(geometry: Geometry, stream: str, where: str) -> list[Slot]:
    """Return the group of a trigger port. `where`: 0 out as an event, 1 to the DMA table, 2 not known."""
    return [Slot(0, 1, f"{stream}__valid"), Slot(1, 1, f"{stream}__ready"), Slot(2, 2, where),
            _struct(64, trigger(geometry), f"{stream}__payload")]


def _engine(geometry: Geometry, at: str) -> list[Slot]:
    ids = geometry.tracker.wf_bits + geometry.tracker.wg_bits + geometry.dma.region_bits
    return [Slot(0, 1, f"({at}.command__valid & {at}.command__ready)"), Slot(1, 1, f"{at}.finish"),
            Slot(2, 1, f"{at}.unusable"), Slot(3, 1, f"(|{at}.issued)"), Slot(8, ids, f"{at}.ids"),
            _struct(64, request(geometry), f"{at}.line")]


class StructBits(NamedTuple):
    """Lowest bit and width of the fields that updates and triggers share, and of an update's amount."""

    address: int
    region: int
    wf: int
    wg: int
    amount: int
    amount_bits: int
    source: int


class Probes(NamedTuple):
    """The places of the trace outputs, as arguments of the recorder.

    They are the outputs' first words, -1 where there is none, and how their structs are laid out.
    """

    channel: np.ndarray
    bank: np.ndarray
    merge: int
    table: int
    engine: np.ndarray
    ring: int
    update: StructBits
    trigger: StructBits
    address_bits: int
    count_mask: int


def _bits(layout: data.StructLayout) -> StructBits:
    def at(name: str) -> int:
        return layout[name].offset if name in layout.members else 0
    return StructBits(*(at(name) for name in ("address", "region", "wf", "wg", "amount")),
                      layout["amount"].width if "amount" in layout.members else 0, at("source"))


def probes(ports: PortMap, geometry: Geometry) -> Probes:
    def word(name: str) -> int:
        return ports.outputs[PREFIX + name].offset if PREFIX + name in ports.outputs else -1

    def words(name: str) -> np.ndarray:
        return np.array([port.offset for port in ports.outputs.values() if port.name.startswith(f"{PREFIX}{name}[")],
                        np.int64)
    return Probes(words("channel"), words("bank"), word("merge"), word("table"), words("engine"), word("ring"),
                  _bits(update(geometry)), _bits(trigger(geometry)), geometry.tracker.address_bits,
                  (1 << geometry.tracker.count_bits) - 1)


def show(text: str, ports: PortMap, contents: Groups) -> tuple[str, PortMap]:
    """Write the Verilog of a design inside a module that shows some of its inner signals, and that module's ports."""
    found, offset = {}, ports.output_words
    for name, slots in contents.items():
        width = max(slot.lsb + slot.width for slot in slots)
        verilog = PREFIX.replace(".", "__") + name.replace("[", "__").replace("]", "")
        found[PREFIX + name] = Port(PREFIX + name, verilog, width, offset)
        offset += found[PREFIX + name].words
    traced = PortMap(f"{ports.top}_traced", ports.inputs, ports.outputs | found, ports.clock)
    return "\n".join([text, *_module(traced.top, ports, found.values(), contents.values())]) + "\n", traced


def _module(top: str, ports: PortMap, added: Iterable[Port], contents: Iterable[list[Slot]]) -> list[str]:
    def declare(direction: str, port: Port) -> str:
        return f"  {direction} [{port.width - 1}:0] {port.verilog}"
    lines = [f"module {top}(", f"  input {ports.clock},"]
    lines.append(",\n".join([*(declare("input", port) for port in ports.inputs.values()),
                             *(declare("output", port) for port in ports.outputs.values()),
                             *(declare("output reg", port) for port in added)]) + ");")
    names = [ports.clock, *(port.verilog for port in ports)]
    lines.append(f"  {ports.top} {INSTANCE}({', '.join(f'.{name}({name})' for name in names)});")
    lines.append(f"  always @(posedge {ports.clock}) begin")
    for port, slots in zip(added, contents):
        lines.append(f"    {port.verilog} <= 0;")
        lines += [f"    {port.verilog}[{slot.lsb} +: {slot.width}] <= {slot.expression};" for slot in slots]
    return [*lines, "  end", "endmodule"]


def traced_verilog(geometry: Geometry) -> tuple[str, PortMap]:
    """Write the Verilog of the top that shows its inner signals."""
    return show(*component_verilog(partial(GpuTop, geometry), NAME, geometry), groups(geometry))


def traced_gpu_library(geometry: Geometry) -> Library:
    """Build the compiled top that shows its inner signals; from the cache if its sources have not changed."""
    return build(*traced_verilog(geometry))
