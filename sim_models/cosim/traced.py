"""The per-GPU top with its inner signals as further outputs, for recording what it does.

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

from rtl.geometry import Geometry
from rtl.gpu_top import GpuTop
from rtl.layouts import request, trigger, update

from .build import build, component_verilog
from .gpu import NAME
from .library import Library
from .ports import Port, PortMap

TRACED = f"{NAME}_traced"
PREFIX = "trace."


@dataclass(frozen=True)
class Slot:
    """One inner signal in its group's words."""

    lsb: int
    width: int
    expression: str  #: Verilog, names relative to the instance `gpu`


def _struct(lsb: int, layout: data.Layout, expression: str) -> Slot:
    return Slot(lsb, layout.size, expression)


def groups(g: Geometry) -> dict[str, list[Slot]]:
    """Name of each trace output and what lies where in it. The recorder (sim_models/trace/recorder.py) reads them at
    these places."""
    found = {}
    occupancy, count, ways = g.channel.occupancy_bits + 1, g.tracker.count_bits, g.tracker.ways
    address = g.tracker.address_bits
    for c in range(g.channel.channels):
        at, arbiter = f"gpu.channel_{c}", f"gpu.channel_{c}.arbiter"
        bits = [
            f"{arbiter}.drain", f"{arbiter}.compute_valid", f"{arbiter}.communication_valid",
            f"{arbiter}.communication_waiting", f"{arbiter}.ready", f"{arbiter}.grant_compute",
            f"{arbiter}.grant_communication", f"{arbiter}.starved", f"{arbiter}.last_communication",
            f"{at}.compute_queue.output__valid", f"{at}.inbound_queue.output__valid", f"{at}.dma_queue.output__valid",
            f"{at}.access_ready", f"{at}.take_dma", f"{at}.dma_able", f"{at}.inbound_able", f"{at}.guard.ready",
            f"({at}.dram__valid & ~{at}.dram__ready)", f"({at}.updates__valid & {at}.updates__ready)",
            f"{arbiter}.ring_late",
        ]
        found[f"channel[{c}]"] = [
            Slot(0, 2, f"{arbiter}.policy"), *(Slot(2 + i, 1, bit) for i, bit in enumerate(bits)),
            Slot(24, occupancy, f"{arbiter}.occupancy"), Slot(32, 7, f"{arbiter}.threshold"),
            Slot(40, 16, f"{arbiter}.waited"), _struct(64, update(g), f"{at}.updates__payload")]
    for b in range(g.tracker.banks):
        at = f"gpu.tracker_{b}"
        bits = ["done", "waits", "valid", "hit", "complete", "exceeds", "refused"]
        occupied = (g.tracker.sets_per_bank * ways).bit_length()
        found[f"bank[{b}]"] = [
            *(Slot(i, 1, f"{at}.{bit}") for i, bit in enumerate(bits)),
            Slot(8, occupied, f"{at}.occupied"), Slot(32, g.dma.region_bits, f"{at}.region"),
            Slot(64, count, f"{at}.count"), Slot(96, count, f"{at}.room"), Slot(128, ways, f"{at}.write"),
            Slot(192, address, f"{at}.address"), _struct(256, update(g), f"{at}.current")]
    found["merge"] = [Slot(0, 1, "gpu.merge.merged__valid"), Slot(1, 1, "gpu.merge.merged__ready"),
                      Slot(2, 1, "gpu.to_table"), _struct(64, trigger(g), "gpu.merge.merged__payload")]
    table = r"gpu.\table "  # a keyword, hence escaped
    level = g.dma.ready_commands.bit_length()
    found["table"] = [Slot(0, 1, f"({table}.w_en & {table}.w_rdy)"), Slot(8, level, f"{table}.ready_level"),
                      _struct(64, trigger(g), f"{table}.w_data"),
                      _struct(192, trigger(g), f"{table}.commands__payload")]
    for e in range(g.dma.engines):
        at = f"gpu.engine_{e}"
        ids = g.tracker.wf_bits + g.tracker.wg_bits + g.dma.region_bits
        found[f"engine[{e}]"] = [
            Slot(0, 1, f"({at}.command__valid & {at}.command__ready)"), Slot(1, 1, f"{at}.finish"),
            Slot(2, 1, f"{at}.unusable"), Slot(3, 1, f"{at}.issued"), Slot(8, ids, f"{at}.ids"),
            _struct(64, request(g), f"{at}.line")]
    return found


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
    """First words of the trace outputs, and how their structs are laid out; arguments of the recorder."""

    channel: np.ndarray
    bank: np.ndarray
    merge: int
    table: int
    engine: np.ndarray
    update: StructBits
    trigger: StructBits
    address_bits: int
    count_mask: int


def _bits(layout: data.StructLayout) -> StructBits:
    def at(name: str) -> int:
        return layout[name].offset if name in layout.members else 0
    return StructBits(*(at(name) for name in ("address", "region", "wf", "wg", "amount")),
                      layout["amount"].width if "amount" in layout.members else 0, at("source"))


def probes(ports: PortMap, g: Geometry) -> Probes:
    def word(name: str) -> int:
        return ports.port(PREFIX + name).offset

    def words(name: str, count: int) -> np.ndarray:
        return np.array([word(f"{name}[{i}]") for i in range(count)], np.int64)
    return Probes(words("channel", g.channel.channels), words("bank", g.tracker.banks), word("merge"), word("table"),
                  words("engine", g.dma.engines), _bits(update(g)), _bits(trigger(g)), g.tracker.address_bits,
                  (1 << g.tracker.count_bits) - 1)


def traced_verilog(g: Geometry) -> tuple[str, PortMap]:
    """Verilog of the top inside the module that shows its inner signals, and that module's ports."""
    text, ports = component_verilog(partial(GpuTop, g), NAME, g)
    found, offset = {}, ports.output_words
    for name, slots in groups(g).items():
        width = max(slot.lsb + slot.width for slot in slots)
        verilog = PREFIX.replace(".", "__") + name.replace("[", "__").replace("]", "")
        found[PREFIX + name] = Port(PREFIX + name, verilog, width, offset)
        offset += found[PREFIX + name].words
    traced = PortMap(TRACED, ports.inputs, ports.outputs | found, ports.clock)
    return "\n".join([text, *_module(ports, found.values(), groups(g).values())]) + "\n", traced


def _module(ports: PortMap, added: Iterable[Port], contents: Iterable[list[Slot]]) -> list[str]:
    def declare(direction: str, port: Port) -> str:
        return f"  {direction} [{port.width - 1}:0] {port.verilog}"
    lines = [f"module {TRACED}(", f"  input {ports.clock},"]
    lines.append(",\n".join([*(declare("input", port) for port in ports.inputs.values()),
                             *(declare("output", port) for port in ports.outputs.values()),
                             *(declare("output reg", port) for port in added)]) + ");")
    names = [ports.clock, *(port.verilog for port in ports)]
    lines.append(f"  {NAME} gpu({', '.join(f'.{name}({name})' for name in names)});")
    lines.append(f"  always @(posedge {ports.clock}) begin")
    for port, slots in zip(added, contents):
        lines.append(f"    {port.verilog} <= 0;")
        lines += [f"    {port.verilog}[{slot.lsb} +: {slot.width}] <= {slot.expression};" for slot in slots]
    return [*lines, "  end", "endmodule"]


def traced_gpu_library(g: Geometry) -> Library:
    """The compiled top that shows its inner signals; from the cache if its sources have not changed."""
    return build(*traced_verilog(g))

