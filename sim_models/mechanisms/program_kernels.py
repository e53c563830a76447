"""Kernels on compute units for any collective, level by level: the baseline.

In a level every device sends the chunks that the schedule has it send then, side by side; the next one begins when all
of this level has come. A reduce-scatter without near-memory compute reads its own part and what came for it, and adds
what came last in a pass of its own; with it, what arrives is added in memory (T3 paper, figures 3 and 10, for rings).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..collectives import Op, Program, ring
from ..line import LINE_BYTES, lines_of
from ..operators.copy import Pass
from ..operators.kernel_table import Route

#: The baseline's kernels: whether memory adds what arrives.
KINDS = {"reduce-scatter": False, "reduce-scatter-nmc": True, "all-gather": False}
EXCHANGE = "all-to-all"


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

    @cached_property
    def peers(self) -> list[int]:
        """Devices to which it sends, as its stores number them."""
        return sorted({one.destination for one in self.program.transfers if one.source == self.rank})

    @property
    def order(self) -> list[int]:
        """Chunks in the order in which it sends them; those that it adds up at last stay, after them."""
        return [self.program.transfers[index].chunk for level in self._sends for index in level] + self._sums

    def passes(self) -> list[Pass]:
        """List its passes. Raises ValueError if a level has none, for which others would wait in vain."""
        program, found, came = self.program, [], 0
        comes = [level for one, level in zip(program.transfers, program.levels) if one.destination == self.rank]
        for level, sends in enumerate(self._sends):
            came += comes.count(level)
            if not sends:
                raise ValueError(f"rank {self.rank} sends nothing in level {level}")
            found += [self._send(index, came * self.at.lines, beside=number > 0) for number, index in enumerate(sends)]
        last = [] if self.in_memory else self._sums
        return found + [self._add(chunk, beside=number > 0) for number, chunk in enumerate(last)]

    @property
    def _sends(self) -> list[list[int]]:
        """The transfers (indices) that it sends in each level, the nearest destination first."""
        found: list[list[int]] = [[] for _ in range(max(self.program.levels) + 1)]
        for index, one in enumerate(self.program.transfers):
            if one.source == self.rank:
                found[self.program.levels[index]].append(index)
        for level in found:
            level.sort(key=lambda index: (self.program.transfers[index].destination - self.rank) % self.program.ranks)
        return found

    @property
    def _sums(self) -> list[int]:
        return [chunk for rank, chunk in self.program.last_additions if rank == self.rank]

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

    @cached_property
    def _most(self) -> int:
        """Parts of a chunk that arrive at one rank at most."""
        return max(map(len, self.program.arrivals.values()))

    def _renamed(self, chunk: int, step: int) -> int:
        ranks = self.program.ranks
        return chunk // ranks * ranks + (chunk + step) % ranks


def ring_program(kind: str, ranks: int) -> tuple[Program, int]:
    """Return the baseline's ring, in which rank r sends to r + 1, and the rank that begins with chunk 0."""
    return (ring.all_gather(ranks, step=1), 0) if kind == "all-gather" else (ring.reduce_scatter(ranks, step=1), 1)


def ring_plan(kind: str, ranks: int, size_bytes: int, data: int, copies: int) -> LevelPlan:
    """Plan the baseline's ring on an array of `size_bytes` for one GPU that stands for all; `kind`: of `KINDS`."""
    program, rank = ring_program(kind, ranks)
    return LevelPlan(program, rank, Places(-(-size_bytes // ranks), data, copies), KINDS[kind], mirrored=True)


def exchange_passes(ranks: int, chunk_bytes: int, data: int, received: int) -> list[list[Pass]]:
    """List the passes of a direct all-to-all on one GPU that stands for all: what each peer gets, one after the other.

    The kernel ends when as much has come. `data`, `received`: addresses of the chunks that leave, and that come.
    """
    lines = lines_of(chunk_bytes)
    pitch, peers = lines * LINE_BYTES, ranks - 1
    return [[Pass((data + peer * pitch,), received + peer * pitch, Route.PEER,
                  arrivals=peers * lines if peer == peers - 1 else 0) for peer in range(peers)]]
