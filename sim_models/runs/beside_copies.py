"""Copies of a stated rate beside a kernel, as copy engines make them: they share its memory, and hold no unit.

Engines read blocks of this GPU's memory past the cache and send them over a link; as one GPU stands for all, what
arrives is what another one sends. Source: a copy engine moves blocks of a line a cycle, as `mechanisms.flux.gathering`.
Known simplifications: blocks lie one after the other in buffers of 32 MB; copies end after a second.
"""

import re
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from t3sim.base.errors import BadInput, shown
from t3sim.base.line import LINE_BYTES
from t3sim.base.numerals import decimal
from t3sim.gpu.setup import BLOCK_BYTES
from t3sim.machine import Machine
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, STORE, STRIDED, KernelTable, Route

if TYPE_CHECKING:
    from t3sim.gpu.state import Sim

_BUFFER_BYTES = 32 << 20
_SECOND_NS = 1e9
_MOST_GB_PER_S = 10_000
#: Of the stated rate, what is under way: as 2,048 lines are of the 75 GB/s of t3-table1's link.
_UNDER_WAY_NS = 1750


@dataclass(frozen=True)
class Copies:
    """Traffic of copy engines at a GPU's DRAM, GB/s."""

    read: float
    write: float

    @classmethod
    def of(cls, text: str) -> "Copies":
        """Read RATE, read:RATE or write:RATE. Raises BadInput."""
        match = re.fullmatch(r"(?:(read|write):)?([^:]+)", text)
        try:
            rate = decimal(match[2]) if match else 0.0
        except ValueError:
            rate = 0.0
        if match is None or not 1 <= rate <= _MOST_GB_PER_S:
            raise BadInput(f"copies = {shown(text)} is not possible: 1 to {_MOST_GB_PER_S} GB/s, which are read and "
                           "written, or read:GB/s or write:GB/s alone")
        return cls(0.0 if match[1] == "write" else rate, 0.0 if match[1] == "read" else rate)

    @property
    def rate(self) -> float:
        """The larger of both."""
        return max(self.read, self.write)

    def __str__(self) -> str:
        if self.read and self.write:
            return f"{self.rate:g} GB/s read and written"
        return f"{self.rate:g} GB/s {'read' if self.read else 'written'}"


def with_copies(machine: Machine, sim: "Sim", copies: Copies) -> "Sim":
    """Return the state at cycle 0 of a kernel alone with copies beside it. Raises BadInput."""
    from t3sim.gpu.agents.compute_units import make_units
    from t3sim.gpu.agents.side_by_side import WithCopies
    from t3sim.gpu.fabric import memory
    from t3sim.runs import build

    if sim.kernel.work.arrivals.any() or (sim.kernel.work.stores["route"] == Route.PEER).any():
        raise BadInput("copies: a kernel that sends to a neighbour cannot tell its lines from those of copies")
    clock, each_way = machine.memory_clock_ghz, (copies.read > 0) + (copies.write > 0)
    # Four times as many as move their lines in time, and a link twice as fast: the stated rate alone sets the pace.
    engines = ceil(4 * each_way * copies.rate / (LINE_BYTES * clock))
    blocks = ceil(copies.rate * _UNDER_WAY_NS / BLOCK_BYTES / engines)
    rates = build.engine_rates(machine)._replace(units=engines, places=blocks)
    table = _table(build.memory_bytes(machine), copies, BLOCK_BYTES * engines / copies.rate * clock)
    return sim._replace(
        network=build.loop_network(machine.changed(link={"bandwidth_gb_per_s": 2 * copies.rate})),
        kernel=WithCopies(sim.kernel, make_units(rates, [table], memory.OTHER)))


def _table(end: int, copies: Copies, block_cycles: float) -> KernelTable:
    """Build copies of a buffer at the `end` of memory, again and again; an engine copies a block in `block_cycles`."""
    lines = BLOCK_BYTES // LINE_BYTES
    source, target = end - 2 * _BUFFER_BYTES, end - _BUFFER_BYTES
    loads = [(source, LINE_BYTES, lines, LINE_BYTES, 0, BLOCK_BYTES, STRIDED)] if copies.read else []
    stores = [(target, LINE_BYTES, lines, LINE_BYTES, 0, BLOCK_BYTES, 0, 0, 0, Route.PEER, 0, 0, 0)
              ] if copies.write else []
    groups = [(_BUFFER_BYTES // BLOCK_BYTES, 0, 1, 0, 0, 0)] * ceil(copies.rate * _SECOND_NS / _BUFFER_BYTES)
    steps = [(1, block_cycles, 0, len(loads), 0, len(stores))]
    return KernelTable(
        *(np.array(rows, kind) for rows, kind in ((groups, GROUP), (steps, STEP), (loads, LOAD), (stores, STORE))),
        cached_loads=False, persistent=True)
