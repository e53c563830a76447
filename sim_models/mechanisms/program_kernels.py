"""Kernels on compute units for any collective, level by level: the baseline where it is not one ring.

In a level every device sends the chunks that the schedule has it send then, side by side; the next one begins when all
of this level has come. A reduce-scatter without near-memory compute reads its own part and what came for it, and adds
what came last in a pass of its own; with it, what arrives is added in memory (T3 paper, figures 3 and 10, for rings).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..collectives import Op, Program
from ..line import LINE_BYTES, lines_of
from ..operators.copy import Pass
from ..operators.kernel_table import Route

#: The baseline's kernels: whether they are of a reduce-scatter, and whether memory adds what arrives.
KINDS = {"reduce-scatter": False, "reduce-scatter-nmc": True, "all-gather": False}


class Places(NamedTuple):
    """Where every device keeps what a collective moves."""

    chunk_bytes: int
    data: int  #: address of its chunks
    copies: int  #: address of what it receives to add

    @property
    def lines(self) -> int:
        return lines_of(self.chunk_bytes)

    def chunk(self, number: int) -> int:
        """Return the address of a chunk, which begins on a line."""
        return self.data + number * self.lines * LINE_BYTES

    def received(self, number: int) -> int:
        """Return the address of what was received as this one."""
        return self.copies + number * self.lines * LINE_BYTES


@dataclass(frozen=True)
class LevelPlan:
    """One device's passes, level by level, of a program; `mirrored`: it stands for all, and gets what it sends."""

    program: Program
    rank: int
    at: Places
    in_memory: bool  #: memory adds what arrives
    mirrored: bool

    @property
    def peers(self) -> list[int]:
        """Devices to which it sends, as its stores number them."""
        return sorted({one.destination for one in self.program.transfers if one.source == self.rank})

    def passes(self) -> list[Pass]:
        """List its passes. Raises ValueError if a level has none, for which others would wait in vain."""
        program, found, came = self.program, [], 0
        for level in range(max(program.levels) + 1):
            now = [index for index, depth in enumerate(program.levels) if depth == level]
            sends = [index for index in now if program.transfers[index].source == self.rank]
            came += sum(program.transfers[index].destination == self.rank for index in now)
            if not sends:
                raise ValueError(f"rank {self.rank} sends nothing in level {level}")
            sends.sort(key=lambda index: (program.transfers[index].destination - self.rank) % program.ranks)
            found += [self._send(index, came * self.at.lines, beside=number > 0) for number, index in enumerate(sends)]
        last = [] if self.in_memory else [key for key in program.last_additions if key[0] == self.rank]
        return found + [self._add(chunk, beside=number > 0) for number, (_, chunk) in enumerate(last)]

    def _send(self, index: int, arrivals: int, beside: bool) -> Pass:
        one = self.program.transfers[index]
        chunk, number = one.chunk, self._place(index)
        if self.mirrored:  # it gets what the rank sends that is as far away on the other side
            chunk = self._renamed(chunk, one.source - one.destination)
            number += (chunk - one.chunk) * self._most
        to = self.at.received(number) if one.op is Op.ADD and not self.in_memory else self.at.chunk(chunk)
        return Pass(self._sources(one.chunk, one.after), to, Route.PEER, one.op is Op.ADD and self.in_memory, arrivals,
                    self.peers.index(one.destination), beside)

    def _add(self, chunk: int, beside: bool) -> Pass:
        return Pass(self._sources(chunk, self.program.arrivals[self.rank, chunk]), self.at.chunk(chunk), beside=beside)

    def _sources(self, chunk: int, after: Sequence[int]) -> tuple[int, ...]:
        """Return where its own part of a chunk is, and what came for it."""
        added = () if self.in_memory else (index for index in after if self.program.transfers[index].op is Op.ADD
                                           and self.program.transfers[index].chunk == chunk)
        return self.at.chunk(chunk), *(self.at.received(self._place(index)) for index in added)

    def _place(self, index: int) -> int:
        """Return as which one a transfer is received: its chunk's, in the order in which a chunk's parts come."""
        one = self.program.transfers[index]
        return one.chunk * self._most + self.program.arrivals[one.destination, one.chunk].index(index)

    @property
    def _most(self) -> int:
        """Parts of a chunk that arrive at one rank at most."""
        return max(map(len, self.program.arrivals.values()))

    def _renamed(self, chunk: int, step: int) -> int:
        ranks = self.program.ranks
        return chunk // ranks * ranks + (chunk + step) % ranks
