"""A mapped netlist made ready for a layout: plain cells only, clock gates among them, and names that files may have."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from t3sim.area.synthesis import CLOCK_GATE, Netlist
from t3sim.area.timing import CLOCK
from t3sim.base.errors import Failure

#: What a clock gate is made of: a latch that is open while the clock is low, and a gate per group of flip-flops.
INVERTER, LATCH, GATE, BUFFER = "INVX1", "LATCH", "AND2X2", "CLKBUF1"
SUPPLIES = {"1": -1, "0": -2, "x": -2}  #: constant: number of the net that gives it
_WORD = re.compile(r"\W+")


@dataclass(frozen=True)
class Pin:
    """A place at the block's edge; a memory stands outside, so that its data and addresses have some, too."""

    name: str
    net: int
    output: bool


@dataclass
class Design:
    """Cells by name, each with its type and the nets of its pins; nets are numbers, as in Yosys's JSON."""

    name: str
    netlist: Netlist  #: of a module that has the same cells, for timing
    cells: dict[str, tuple[str, dict[str, int]]]
    pins: tuple[Pin, ...]
    net_names: dict[int, str]
    gated: dict[int, int] = field(default_factory=dict)  #: clock net behind a gate: net of its latched enable

    @property
    def clock(self) -> int | None:
        bits = self.netlist.module["ports"].get(CLOCK, {}).get("bits", [])
        return bits[0] if bits else None

    def net_name(self, net: int) -> str:
        return {-1: "vdd", -2: "gnd"}.get(net) or self.net_names.get(net, f"n{net}")

    def nets(self) -> dict[int, list[tuple[str, str]]]:
        """Return (cell, pin) of each net with two ends or more, the edge's and a supply's counted."""
        found: dict[int, list[tuple[str, str]]] = {}
        for name, (_, pins) in self.cells.items():
            for pin, net in pins.items():
                found.setdefault(net, []).append((name, pin))
        edge = {pin.net for pin in self.pins} | set(SUPPLIES.values())
        return {net: ends for net, ends in found.items() if len(ends) + (net in edge) > 1}

    def new_net(self) -> int:
        number = max(max(self.net_names, default=0), *(net for _, pins in self.cells.values() for net in pins.values()),
                     *(pin.net for pin in self.pins)) + 1
        self.net_names[number] = f"n{number}"
        return number

    def add(self, name: str, kind: str, pins: dict[str, int]) -> None:
        self.cells[name] = (kind, pins)
        self.netlist.module["cells"][name] = {"type": kind, "connections": {pin: [net] for pin, net in pins.items()}}

    def connect(self, cell: str, pin: str, net: int) -> None:
        self.cells[cell][1][pin] = net
        self.netlist.module["cells"][cell]["connections"][pin] = [net]


def make_design(netlist: Netlist) -> Design:
    """Name all cells anew, take clock gates apart, and give memories' nets a place at the edge. Raises Failure."""
    known = netlist.library.cells
    if missing := [name for name in (INVERTER, LATCH, GATE, BUFFER) if name not in known]:
        raise Failure(f"place and route is for OSU018: library {netlist.library.name} has no {missing[0]}")
    old = netlist.module
    module = {"ports": old["ports"], "netnames": old["netnames"], "cells": {}}
    design = Design(netlist.name, Netlist(netlist.name, module, netlist.library), {}, (), {})
    edge: dict[int, bool] = {}
    gates = []
    for name, cell in old["cells"].items():
        pins = cell["connections"]
        if cell["type"] == "$mem_v2":
            module["cells"][name] = cell
            _mark(edge, (bit for pin, bits in pins.items() if not pin.endswith("CLK") and pin != "RD_DATA"
                         for bit in bits), output=True)
            _mark(edge, pins["RD_DATA"], output=False)
        elif cell["type"] == CLOCK_GATE:
            gates.append(pins)
        elif cell["type"] in known:
            design.add(f"u{len(design.cells)}", cell["type"],
                       {pin: SUPPLIES.get(bits[0], bits[0]) for pin, bits in pins.items() if bits})
        else:
            raise Failure(f"{netlist.name}: {cell['type']} has no layout")
    for port in old["ports"].values():
        _mark(edge, port["bits"], port["direction"] == "output")
    design.net_names.update(_net_names(old["netnames"]))
    used = {net for _, pins in design.cells.values() for net in pins.values()} | {
        bit for pins in gates for bits in pins.values() for bit in bits}
    design.pins = tuple(Pin(design.net_name(net), net, output) for net, output in edge.items() if net in used)
    for number, pins in enumerate(gates):
        below, latched = design.new_net(), None
        design.add(f"gate{number}_not", INVERTER, {"A": pins["clock"][0], "Y": below})
        latched = design.new_net()
        design.add(f"gate{number}_latch", LATCH, {"CLK": below, "D": pins["enable"][0], "Q": latched})
        design.gated[pins["gated"][0]] = latched
    return design


def _mark(edge: dict[int, bool], bits: Iterable[int | str], output: bool) -> None:
    for bit in bits:
        if isinstance(bit, int):
            edge.setdefault(bit, output)


def _net_names(names: dict[str, dict]) -> dict[int, str]:
    """Give each net the shortest name that the source has for it, with letters, digits and underscores only."""
    found: dict[int, str] = {}
    for name, entry in sorted(names.items(), key=lambda item: ("$" in item[0], len(item[0]), item[0])):
        for index, bit in enumerate(entry["bits"]):
            if isinstance(bit, int) and bit not in found:
                label = _WORD.sub("_", name).strip("_") + (f"_{index}" if len(entry["bits"]) > 1 else "")
                found[bit] = f"n{bit}" if "$" in name else label
    taken: set[str] = set()
    for bit, label in found.items():
        if label in taken:
            found[bit] = f"{label}_n{bit}"
        taken.add(found[bit])
    return found
