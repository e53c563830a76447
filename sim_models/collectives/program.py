"""A collective: transfers of chunks between ranks, and the check that they reach the collective's goal.

For each chunk, a reduce-scatter is a tree that leads to its owner, and an all-gather a tree that leads away from it. An
all-reduce has both with one root, and an all-to-all has one edge for each chunk. A collective of another kind is a
function `ranks -> Program`, in a file of its own.
"""

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np

from t3sim.machine.topologies import Alike

#: Ranks whose contributions a chunk at some rank contains.
Contributions = frozenset[int]


class CollectiveError(ValueError):
    """A program that does not reach its goal; the message names the first faulty transfer or chunk."""


class Op(enum.Enum):
    """Effect of a transfer on the chunk at its destination."""

    ADD = "add"  #: it is added to the chunk
    COPY = "copy"  #: it replaces the chunk


class Transfer(NamedTuple):
    """A transfer of one chunk between ranks, after the transfers `after` (indices) have arrived at its source."""

    chunk: int
    source: int
    destination: int
    op: Op
    after: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"chunk {self.chunk} from {self.source} to {self.destination} ({self.op.value})"


@dataclass(frozen=True, eq=False, repr=False)
class Transfers(Sequence[Transfer]):
    """The transfers of a program in arrays, with the sets of transfers for which others wait.

    Set s is `members[first[s]:first[s + 1]]`. Sets differ, and are in the order in which transfers first name them.
    """

    chunk: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    adds: np.ndarray  #: whether it is added, bool
    waits: np.ndarray  #: the set for which it waits, -1: none
    first: np.ndarray
    members: np.ndarray

    @classmethod
    def of(cls, transfers: Sequence[Transfer]) -> "Transfers":
        """Return the arrays of a sequence."""
        if isinstance(transfers, cls):
            return transfers
        sets: dict[tuple[int, ...], int] = {}
        waits = [sets.setdefault(one.after, len(sets)) if one.after else -1 for one in transfers]
        columns = np.array([one[:3] for one in transfers], np.int64).reshape(-1, 3).T
        return cls(*columns, np.array([one.op is Op.ADD for one in transfers], bool), np.array(waits, np.int64),
                   firsts([len(one) for one in sets]), np.array([index for one in sets for index in one], np.int64))

    @classmethod
    def in_turn(cls, chunk: np.ndarray, source: np.ndarray, destination: np.ndarray, adds: np.ndarray) -> "Transfers":
        """Let each transfer wait for earlier arrivals of its chunk at its source."""
        count, place = len(chunk), chunk
        if count and int(max(source.max(), destination.max()) + 1) * int(chunk.max() + 1) * count > 1 << 62:
            place = np.unique(chunk, return_inverse=True)[1]
        places = place.max(initial=0) + 1
        at = destination * places + place
        arrivals = np.argsort(at, kind="stable")
        begin = np.searchsorted(at[arrivals], source * places + place)
        end = np.searchsorted(at[arrivals] * count + arrivals, (source * places + place) * count + np.arange(count))
        waits, named = number_sets(np.where(end > begin, begin * (count + 1) + end, -1))
        begin, end = np.divmod(named, count + 1)
        return cls(chunk, source, destination, adds, waits, firsts(end - begin), arrivals[spans(begin, end - begin)])

    @classmethod
    def joined(cls, parts: "Sequence[Transfers]") -> "Transfers":
        """Join parts whose chunks and members are numbered together."""
        sets, members = firsts([len(one.first) - 1 for one in parts]), firsts([len(one.members) for one in parts])
        chunk, source, destination, adds, member = (
            np.concatenate([getattr(one, name) for one in parts])
            for name in ("chunk", "source", "destination", "adds", "members"))
        waits = np.concatenate([np.where(one.waits < 0, -1, one.waits + before) for one, before in zip(parts, sets)])
        first = np.concatenate([*(one.first[:-1] + before for one, before in zip(parts, members)), members[-1:]])
        return cls(chunk, source, destination, adds, waits, first, member)

    def __len__(self) -> int:
        return len(self.chunk)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._rows)

    @cached_property
    def _rows(self) -> tuple[Transfer, ...]:
        edges, members = self.first.tolist(), self.members.tolist()
        sets = [tuple(members[begin:end]) for begin, end in zip(edges, edges[1:])]
        return tuple(Transfer(chunk, source, destination, Op.ADD if adds else Op.COPY, sets[wait] if wait >= 0 else ())
                     for chunk, source, destination, adds, wait in zip(*(column.tolist() for column in (
                         self.chunk, self.source, self.destination, self.adds, self.waits))))


def number_sets(named: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each transfer's set by its number, in the order in which transfers first name them, and the sets' names.

    -1, for no set, stays.
    """
    waiting = np.flatnonzero(named >= 0)
    names, first_use, numbers = np.unique(named[waiting], return_index=True, return_inverse=True)
    order = np.argsort(first_use)
    waits = np.full(len(named), -1)
    waits[waiting] = np.argsort(order)[numbers]
    return waits, names[order]


def firsts(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return where each range of a flat array begins, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def spans(begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the indices of ranges, one range after another."""
    return np.repeat(begin - firsts(counts)[:-1], counts) + np.arange(counts.sum())


@dataclass(frozen=True, eq=False, repr=False)
class Ends(Mapping[tuple[int, int], Contributions]):
    """`start` or `goal` of a program, which is made when it is asked for."""

    make: Callable[..., dict[tuple[int, int], Contributions]]
    arguments: tuple[Any, ...]

    @cached_property
    def _made(self) -> dict[tuple[int, int], Contributions]:
        return self.make(*self.arguments)

    def __getitem__(self, key: tuple[int, int]) -> Contributions:
        return self._made[key]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return repr(self._made)


@dataclass(frozen=True)
class Program:
    """A collective over `ranks` ranks.

    `start` and `goal` map (rank, chunk) to the contributions that the chunk contains there. The content of a (rank,
    chunk) outside `goal` does not matter at the end.
    """

    ranks: int
    chunks: int
    transfers: Sequence[Transfer]
    start: Mapping[tuple[int, int], Contributions]
    goal: Mapping[tuple[int, int], Contributions]
    pairs: bool = False  #: a chunk for each pair of ranks, source * ranks + destination; else chunks are alike
    in_switch: bool = False  #: the switch sums additions to one chunk of a rank, and copies chunks for several ranks
    #: If not None, the program has only chunks of representative ranks. A transfer waits for the images of `after`
    #: under the symmetry that arrive at its source.
    alike: Alike | None = None

    @cached_property
    def table(self) -> Transfers:
        """The transfers in arrays."""
        return Transfers.of(self.transfers)

    @cached_property
    def arrivals(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Transfers (indices) that arrive at each (rank, chunk)."""
        return self._group(lambda transfer: transfer.destination)

    @cached_property
    def departures(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Transfers (indices) that leave each (rank, chunk)."""
        return self._group(lambda transfer: transfer.source)

    @cached_property
    def additions(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Transfers (indices) that are added at each (rank, chunk)."""
        return {key: tuple(index for index in found if self.transfers[index].op is Op.ADD)
                for key, found in self.arrivals.items()}

    @property
    def adds(self) -> bool:
        """Whether any transfer is added."""
        return bool(self.table.adds.any())

    @cached_property
    def rank_chunks(self) -> tuple[tuple[int, ...], ...]:
        """Chunks that each rank has at any time, sorted."""
        chunks_of: list[set[int]] = [set() for _ in range(self.ranks)]
        for rank, chunk in (*self.start, *self.arrivals):
            chunks_of[rank].add(chunk)
        return tuple(tuple(sorted(chunks)) for chunks in chunks_of)

    @cached_property
    def last_additions(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Transfers that are added at each (rank, chunk) where a sum ends and is not sent on."""
        table = self.table
        if not table.adds.any():
            return {}
        chunks = int(table.chunk.max()) + 1
        at, left = table.destination * chunks + table.chunk, table.source * chunks + table.chunk
        order = np.argsort(at, kind="stable")
        begin = np.flatnonzero(np.diff(at[order], prepend=-1))
        end = np.append(begin[1:], len(order))
        ends_here = table.adds[order[end - 1]] & ~np.isin(at[order[begin]], left)
        groups = np.flatnonzero(ends_here)[np.argsort(order[begin[ends_here]])].tolist()
        found = {divmod(int(at[order[begin[one]]]), chunks): tuple(order[begin[one]:end[one]].tolist())
                 for one in groups}
        return {key: indices for key, indices in found.items() if key in self.goal}

    def _group(self, rank_of: Callable[[Transfer], int]) -> dict[tuple[int, int], tuple[int, ...]]:
        groups = defaultdict(list)
        for index, transfer in enumerate(self.transfers):
            groups[rank_of(transfer), transfer.chunk].append(index)
        return {key: tuple(found) for key, found in groups.items()}

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Length of the longest chain of transfers before each one. Raises CollectiveError if they form a cycle."""
        levels = [0] * len(self.transfers)
        order = TopologicalSorter({index: transfer.after for index, transfer in enumerate(self.transfers)})
        try:
            for index in order.static_order():
                levels[index] = 1 + max((levels[before] for before in self.transfers[index].after), default=-1)
        except CycleError as error:
            raise CollectiveError(f"{self.transfers[error.args[1][0]]} waits for itself through others") from None
        return tuple(levels)

    def level(self, rank: int, chunk: int) -> int:
        """Return the length of the longest chain of transfers that brings contributions to a chunk at a rank."""
        return max((self.levels[index] + 1 for index in self.arrivals.get((rank, chunk), ())), default=0)

    def check(self) -> None:
        """Follow the contributions at each rank and compare them with the goal, for every order that `after` allows.

        Raises CollectiveError if contributions are missing, counted twice, sent before they arrive, or depend on the
        order of two transfers.
        """
        self._check_form()
        self._check_order()
        if self.in_switch:
            self._check_switch()
        holds = dict(self.start)
        for index in sorted(range(len(self.transfers)), key=self.levels.__getitem__):
            transfer = self.transfers[index]
            sent_contributions = holds.get((transfer.source, transfer.chunk))
            if not sent_contributions:
                raise CollectiveError(f"{transfer}: there is nothing to send")
            target = transfer.destination, transfer.chunk
            present = holds.get(target, frozenset()) if transfer.op is Op.ADD else frozenset()
            if twice := sent_contributions & present:
                raise CollectiveError(f"{transfer}: the contribution of rank {min(twice)} is counted twice")
            holds[target] = sent_contributions | present
        for (rank, chunk), expected in self.goal.items():
            contributions = holds.get((rank, chunk), frozenset())
            if contributions != expected:
                raise CollectiveError(f"chunk {chunk} at rank {rank} ends with contributions of "
                                      f"{sorted(contributions)} instead of {sorted(expected)}")

    def _check_form(self) -> None:
        for transfer in self.transfers:
            if not (0 <= transfer.source < self.ranks and 0 <= transfer.destination < self.ranks
                    and 0 <= transfer.chunk < self.chunks):
                raise CollectiveError(f"{transfer}: there are ranks 0 to {self.ranks - 1} and chunks 0 to "
                                      f"{self.chunks - 1}")
            if transfer.source == transfer.destination:
                raise CollectiveError(f"{transfer}: a rank sends to itself")
            for before in transfer.after:
                if not 0 <= before < len(self.transfers) or self.transfers[before].destination != transfer.source:
                    raise CollectiveError(f"{transfer} waits for transfer {before}, which does not arrive at "
                                          f"{transfer.source}")

    def _check_switch(self) -> None:
        """Check that parts of a switch's sum do not wait for one another, and that a chunk's copies leave together."""
        for arriving in self.arrivals.values():
            additions = {index for index in arriving if self.transfers[index].op is Op.ADD}
            for index in additions:
                if earlier := additions & self._before(index):
                    raise CollectiveError(f"{self.transfers[index]} waits for {self.transfers[min(earlier)]}, with "
                                          "which the switch sums it")
        for leaving in self.departures.values():
            copies = [self.transfers[index] for index in leaving if self.transfers[index].op is Op.COPY]
            for one in copies[1:]:
                if set(one.after) != set(copies[0].after):
                    raise CollectiveError(f"{one} and {copies[0]} wait for different transfers: the switch copies one "
                                          "that leaves once")

    def _check_order(self) -> None:
        """Check that any two transfers that use one chunk at one rank and do not commute have an order."""
        for key, arriving in self.arrivals.items():
            for index in arriving:
                others = [*self.departures.get(key, ()),
                          *(other for other in arriving if other < index and not self._commute(index, other))]
                for other in others:
                    if other not in self._before(index) and index not in self._before(other):
                        raise CollectiveError(f"{self.transfers[index]} and {self.transfers[other]} have no order")

    def _commute(self, one: int, other: int) -> bool:
        return self.transfers[one].op is Op.ADD and self.transfers[other].op is Op.ADD

    def _before(self, index: int) -> frozenset[int]:
        """Return all transfers that have arrived when this one starts."""
        if index not in self._ancestors:
            ancestors, frontier = set(), set(self.transfers[index].after)
            while frontier:
                ancestors |= frontier
                frontier = {before for one in frontier for before in self.transfers[one].after} - ancestors
            self._ancestors[index] = frozenset(ancestors)
        return self._ancestors[index]

    @cached_property
    def _ancestors(self) -> dict[int, frozenset[int]]:
        return {}

    def invariant_under_shift(self) -> bool:
        """Return whether the program is invariant if each rank, with its chunks, is renamed to the next one.

        Chunks of joined programs (`together`) stay in their program's part.
        """
        return (self.pairs or self.chunks % self.ranks == 0) and self._renamed(1) == self._renamed(0)

    def _renamed(self, step: int) -> set[tuple]:
        """Return the transfers and their predecessors, with ranks and chunks shifted by `step`."""
        def rank(number: int) -> int:
            return (number + step) % self.ranks

        def chunk(number: int) -> int:
            source, destination = divmod(number, self.ranks)
            return rank(source) * self.ranks + rank(destination) if self.pairs else source * self.ranks + rank(number)
        names = [(chunk(transfer.chunk), rank(transfer.source), rank(transfer.destination), transfer.op)
                 for transfer in self.transfers]
        return {(name, frozenset(names[before] for before in transfer.after))
                for name, transfer in zip(names, self.transfers)}


def all_ranks(ranks: int) -> Contributions:
    return frozenset(range(ranks))


def owners(ranks: int, alike: Alike | None) -> Sequence[int]:
    """Return the ranks whose chunks are in a program: all, or the representatives."""
    return range(ranks) if alike is None else alike.representatives


def reduce_scatter_ends(ranks: int, alike: Alike | None = None) -> dict[str, Any]:
    """Return `start`, `goal` and `alike` of a reduce-scatter.

    Every rank starts with a part of every chunk; the sum of chunk c ends at rank c.
    """
    chunks = owners(ranks, alike)
    return {"start": Ends(_own_parts, (ranks, chunks)), "goal": Ends(_sums, (ranks, chunks)), "alike": alike}


def all_gather_ends(ranks: int, alike: Alike | None = None) -> dict[str, Any]:
    """Return `start`, `goal` and `alike` of an all-gather: rank c starts with chunk c, all end with all chunks."""
    chunks = owners(ranks, alike)
    return {"start": Ends(_own_chunks, (chunks,)), "goal": Ends(_copies, (ranks, chunks)), "alike": alike}


def _own_parts(ranks: int, chunks: Sequence[int]) -> dict[tuple[int, int], Contributions]:
    return {(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in chunks}


def _sums(ranks: int, chunks: Sequence[int]) -> dict[tuple[int, int], Contributions]:
    contributions = all_ranks(ranks)
    return {(chunk, chunk): contributions for chunk in chunks}


def _own_chunks(chunks: Sequence[int]) -> dict[tuple[int, int], Contributions]:
    return {(chunk, chunk): frozenset({chunk}) for chunk in chunks}


def _copies(ranks: int, chunks: Sequence[int]) -> dict[tuple[int, int], Contributions]:
    return {(rank, chunk): frozenset({chunk}) for rank in range(ranks) for chunk in chunks}


def in_turn(transfers: Iterable[tuple[int, int, int, Op]]) -> Transfers:
    """Return transfers from (chunk, source, destination, op); each waits for earlier arrivals of its chunk."""
    rows = [(chunk, source, destination, op is Op.ADD) for chunk, source, destination, op in transfers]
    chunk, source, destination, adds = np.array(rows, np.int64).reshape(-1, 4).T
    return Transfers.in_turn(chunk, source, destination, adds.astype(bool))
