"""Kernels on compute units for any collective, level by level: the baseline.

In a level every device sends the chunks that the schedule has it send then, side by side; the next one begins when all
of this level has come. A reduce-scatter without near-memory compute reads its own part and what came for it, and adds
what came last in a pass of its own; with it, what arrives is added in memory (T3 paper, figures 3 and 10, for rings).
A sum that is sent on complete, as in an all-reduce, is added up once, by the pass that first sends it and keeps it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.collectives import Op, Program, Transfer, ring
from t3sim.workload.operators.copy import Pass
from t3sim.workload.operators.kernel_table import Route

#: The baseline's kernels: whether memory adds what arrives.
KINDS = {"reduce-scatter": False, "reduce-scatter-nmc": True, "all-gather": False}
#: Those around a switch that adds and copies.
SWITCH_KINDS = ALL_REDUCE_IN_SWITCH, ALL_GATHER_BY_SWITCH = "all-reduce in the switch", "all-gather by the switch"
EXCHANGE = "all-to-all"


class Places(NamedTuple):
    """Places of what a collective moves, on every device: the chunks that it ever has, by their place among them."""

    chunk_bytes: int
    data: int  #: address of its chunks
    copies: int  #: address of what it receives to add

    @property
    def lines(self) -> int:
        return lines_of(self.chunk_bytes)

    def chunk(self, place: int) -> int:
        """Return the address of a chunk, which begins on a line."""
        return self.data + place * self.lines * LINE_BYTES

    def received(self, place: int) -> int:
        """Return the address of what was received as this one."""
        return self.copies + place * self.lines * LINE_BYTES


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
        """Devices to which it sends, as its stores number them; what a switch copies goes to a group, after them."""
        return sorted({self._goes_to(one) for one in self.program.transfers if one.source == self.rank})

    @property
    def copied_to(self) -> list[tuple[int, int]]:
        """List the devices to which a switch copies its chunk, with what to add to the address of the first of them."""
        targets = [(one.destination, self._chunk(one.destination, one.chunk)) for one in self.program.transfers
                   if one.source == self.rank and self._goes_to(one) == self.program.ranks]
        return [(device, address - targets[0][1]) for device, address in targets]

    def _goes_to(self, transfer: Transfer) -> int:
        return self.program.ranks if self.program.in_switch and transfer.op is Op.COPY else transfer.destination

    @property
    def order(self) -> list[int]:
        """Chunks in the order in which it sends them; those that it adds up at last stay, after them."""
        return [self.program.transfers[index].chunk for level in self._sends for index in level] + self._sums

    def passes(self) -> list[Pass]:
        """List its passes. Raises ValueError if a level has none, for which others would wait in vain."""
        program, passes, came = self.program, [], 0
        comes = [level for one, level in zip(program.transfers, program.levels) if one.destination == self.rank]
        for level, sends in enumerate(self._sends):
            came += comes.count(level)
            if not sends:
                raise ValueError(f"rank {self.rank} sends nothing in level {level}")
            together = self._level(level, sends)
            passes += [replace(one, arrivals=came * self.at.lines, concurrent=one is not together[0])
                       for one in together]
        last = [] if self.in_memory else self._sums
        return passes + [replace(self._add(chunk), concurrent=chunk != last[0]) for chunk in last]

    def _level(self, level: int, sends: Sequence[int]) -> list[Pass]:
        """List the passes of a level: sums that are sent for the first time, then chunks that are there."""
        transfers, passes, of_sums = self.program.transfers, [], []
        for chunk in (chunk for chunk, first in self._sent_sums.items() if first == level):
            added = self._add(chunk)
            sends_here = [index for index in sends if transfers[index].chunk == chunk]
            passes += [added, *(replace(self._send(index), sources=added.sources, reuses_loads=True)
                                for index in sends_here)]
            of_sums += sends_here
        return passes + [self._send(index) for index in sends if index not in of_sums]

    @cached_property
    def _sent_sums(self) -> dict[int, int]:
        """Chunks that it adds up and sends on complete, each with the level in which it first does."""
        program, first_levels = self.program, {}
        for level, index in sorted((program.levels[index], index) for index, one in enumerate(program.transfers)
                                   if one.source == self.rank and one.op is Op.COPY and not self.in_memory):
            chunk = program.transfers[index].chunk
            arrivals = program.arrivals.get((self.rank, chunk), ())
            if arrivals and arrivals == program.additions[self.rank, chunk]:  # else it got the sum from another one
                first_levels.setdefault(chunk, level)
        return first_levels

    @property
    def _sends(self) -> list[list[int]]:
        """The transfers (indices) that it sends in each level, the nearest destination first."""
        sends: list[list[int]] = [[] for _ in range(max(self.program.levels) + 1)]
        for index, transfer in enumerate(self.program.transfers):
            copied = self._goes_to(transfer) == self.program.ranks and any(
                self.program.transfers[other].chunk == transfer.chunk for other in sends[self.program.levels[index]])
            if transfer.source == self.rank and not copied:
                sends[self.program.levels[index]].append(index)
        for level in sends:
            level.sort(key=lambda index: (self.program.transfers[index].destination - self.rank) % self.program.ranks)
        return sends

    @property
    def _sums(self) -> list[int]:
        return [chunk for rank, chunk in self.program.last_additions if rank == self.rank]

    def _send(self, index: int) -> Pass:
        transfer, arriving = self.program.transfers[index], self._arriving(index)
        adds = transfer.op is Op.ADD
        arrived = self.program.transfers[arriving]
        to = (self._received(arriving) if adds and not self.in_memory else
              self._chunk(arrived.destination, arrived.chunk))
        sources = self._parts(transfer.chunk, transfer.after) if adds else (self._chunk(self.rank, transfer.chunk),)
        return Pass(sources, to, Route.PEER, adds and self.in_memory, peer=self.peers.index(self._goes_to(transfer)))

    def _arriving(self, index: int) -> int:
        """Return the transfer that what is sent arrives as: if mirrored, from the GPU as far away on the other side."""
        transfer, program = self.program.transfers[index], self.program
        if not self.mirrored:
            return index
        step = transfer.source - transfer.destination
        return next(other for other in program.arrivals[self.rank, self._renamed(transfer.chunk, step)]
                    if program.transfers[other].source == (transfer.source + step) % program.ranks
                    and program.transfers[other].op is transfer.op)

    def _add(self, chunk: int) -> Pass:
        return Pass(self._parts(chunk, self.program.additions[self.rank, chunk]), self._chunk(self.rank, chunk))

    def _parts(self, chunk: int, after: Sequence[int]) -> tuple[int, ...]:
        """Return where its own part of a chunk is, and what came for it."""
        added = () if self.in_memory else (
            index for index in after if index in self.program.additions.get((self.rank, chunk), ()))
        return self._chunk(self.rank, chunk), *map(self._received, added)

    def _chunk(self, rank: int, chunk: int) -> int:
        return self.at.chunk(self.program.rank_chunks[rank].index(chunk))

    def _received(self, index: int) -> int:
        """Return where a transfer is received to be added: its chunk's place, in the order in which parts come."""
        transfer = self.program.transfers[index]
        chunk_index = self.program.rank_chunks[transfer.destination].index(transfer.chunk)
        return self.at.received(chunk_index * most_additions(self.program)
                                + self.program.additions[transfer.destination, transfer.chunk].index(index))

    def _renamed(self, chunk: int, step: int) -> int:
        ranks = self.program.ranks
        group, rank = divmod(chunk, ranks)
        return (group + step) % ranks * ranks + (rank + step) % ranks if self.program.pairs else (
            group * ranks + (rank + step) % ranks)


def most_additions(program: Program) -> int:
    """Return how many parts of a chunk arrive at a rank to be added at most."""
    return max(map(len, program.additions.values()))


def ring_program(kind: str, ranks: int) -> tuple[Program, int]:
    """Return the baseline's ring, in which rank r sends to r + 1, and the rank that begins with chunk 0."""
    return (ring.all_gather(ranks, step=1), 0) if kind == "all-gather" else (ring.reduce_scatter(ranks, step=1), 1)


def ring_plan(kind: str, ranks: int, size_bytes: int, data: int, copies: int) -> LevelPlan:
    """Plan the baseline's ring on an array of `size_bytes` for a representative GPU; `kind`: of `KINDS`."""
    program, rank = ring_program(kind, ranks)
    return LevelPlan(program, rank, Places(-(-size_bytes // ranks), data, copies), KINDS[kind], mirrored=True)


def exchange_passes(ranks: int, chunk_bytes: int, data: int, received: int) -> list[list[Pass]]:
    """List the passes of a direct all-to-all on a representative GPU: what each peer gets, one after the other.

    The kernel ends when as much has come. `data`, `received`: addresses of the chunks that leave, and that come.
    """
    lines = lines_of(chunk_bytes)
    pitch, peers = lines * LINE_BYTES, ranks - 1
    return [[Pass((data + peer * pitch,), received + peer * pitch, Route.PEER,
                  arrivals=peers * lines if peer == peers - 1 else 0) for peer in range(peers)]]


def uneven_passes(parts: np.ndarray, row_bytes: int, data: int, received: int) -> list[list[Pass]]:
    """List each GPU's passes that bring rows to all others at once; they end when all rows have come.

    `parts`: rows that each GPU has for each one, int64[GPU, GPU]. They are at `data`, what comes at `received`, those
    of each GPU from a line on.
    """
    ranks, programs = len(parts), []
    lines = lines_of(parts * row_bytes)
    for rank in range(ranks):
        before, passes = np.cumsum(lines, axis=0) - lines, []
        others = [(rank + hop) % ranks for hop in range(1, ranks)]
        for to in others:
            passes.append(Pass((data + to * int(lines.max()) * LINE_BYTES,),
                               received + int(before[rank, to]) * LINE_BYTES, Route.PEER,
                               arrivals=int(lines[others, rank].sum()) if to == others[-1] else 0,
                               peer=sorted(others).index(to), concurrent=to != others[0],
                               size_bytes=int(lines[rank, to]) * LINE_BYTES))
        programs.append(passes)
    return programs


def packing_passes(size_bytes: int, copies: int, reads: int, data: int, packed: int) -> list[Pass]:
    """List a GPU's passes that read its tokens once, `reads` arrays of `size_bytes`, and store `copies` of them."""
    pitch = lines_of(size_bytes) * LINE_BYTES
    sources = tuple(data + part * pitch for part in range(reads))
    return [Pass(sources, packed + copy * pitch, concurrent=copy > 0, reuses_loads=copy > 0) for copy in range(copies)]


def combining_passes(parts: np.ndarray, row_bytes: int, terms: int, data: int, received: int) -> list[list[Pass]]:
    """List each GPU's passes that bring rows to their owners, and then add up each row's.

    `terms`: of a row's sum; the others as for `uneven_passes`. A GPU's own rows are read where others' come, too.
    """
    own_bytes = parts.sum(axis=0) // terms * row_bytes
    return [[*passes, Pass(tuple(received + term * size for term in range(terms)), data, size_bytes=size)]
            for passes, size in zip(uneven_passes(parts, row_bytes, data, received), own_bytes.tolist())]
