"""Copy and reduce kernels as kernel tables: arrays read, added element by element, and written, pass after pass.

Each workgroup computes its addresses, loads its part of every source, waits for all of it, stores the result, and
makes room for the next one when its stores are acknowledged. So a compute unit has no more in flight than its resident
threads can hold, and pays the memory's latency once per workgroup.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, STORE, STRIDED, KernelTable, Route


@dataclass(frozen=True)
class Pass:
    """One pass over arrays of one size; addresses are those of their first bytes."""

    sources: tuple[int, ...]
    destination: int
    route: Route = Route.MEMORY
    updates: bool = False  #: what is stored is added to what is there
    arrivals: int = 0  #: lines that must have come over the links since the start before the next pass begins
    peer: int = 0  #: to which of the device's peers it is stored
    beside: bool = False  #: it goes on at the same time as the pass before it
    again: bool = False  #: it stores what the pass before it, beside which it is, has loaded
    size_bytes: int | None = None  #: of its arrays; whole lines where passes beside it differ; None: the operator's


class PhaseShare(NamedTuple):
    """Workgroups of a phase that differ only in where their data lie."""

    phase: int
    passes: list[Pass]  #: that go on side by side, of which each workgroup does its part
    workgroups: int
    first_byte: int  #: of each array, of the first workgroup
    apart_bytes: int  #: from one workgroup's part to the next one's
    size_bytes: int  #: of a workgroup's part


@dataclass(frozen=True)
class Copy:
    """The operator: passes of `size_bytes` each, or of their own. Times in memory cycles."""

    passes: Sequence[Sequence[Pass]]  #: of each device
    size_bytes: int
    workgroup_bytes: int  #: of the result
    launch_cycles: float
    end_cycles: float

    def shares(self, device: int) -> Iterator[PhaseShare]:
        """Share out one device's passes: each is whole workgroups and, for the rest, one workgroup more.

        A workgroup's bytes are shared by passes that are side by side. Where one of these ends before others, they go
        on without it.
        """
        for phase, together in enumerate(self._phases(device)):
            sizes = [self.size_bytes if one.size_bytes is None else one.size_bytes for one in together]
            for begin, end in pairwise(sorted({0, *sizes})):
                longer = [one for one, size in zip(together, sizes) if size >= end]
                each = max(self.workgroup_bytes // len(longer) // LINE_BYTES, 1) * LINE_BYTES
                whole, rest = divmod(end - begin, each)
                for count, start, size in ((whole, begin, each), (1, begin + whole * each, rest)):
                    if count and size:
                        yield PhaseShare(phase, longer, count, start, each, size)

    def work(self, device: int) -> KernelTable:
        """Build one device's kernel: persistent, past the cache.

        Each share is a group. A workgroup loads for all passes that are side by side, and stores a line for each in
        turn.
        """
        groups, steps, loads, stores = [], [], [], []
        for phase, together, count, start, apart, size in self.shares(device):
            pieces = [piece for piece in ((start, size // LINE_BYTES, LINE_BYTES),
                                          (start + size // LINE_BYTES * LINE_BYTES, 1, size % LINE_BYTES))
                      if piece[1] and piece[2]]
            groups.append((count, len(steps), 1, phase, 0, 0))
            sources = [source for one in together if not one.again for source in one.sources]
            steps.append((1, 0.0, len(loads), len(pieces) * len(sources), len(stores), len(pieces) * len(together)))
            loads += [(source + at, LINE_BYTES, rows, width, 0, apart, STRIDED)
                      for source in sources for at, rows, width in pieces]
            stores += [(one.destination + at, LINE_BYTES, rows, width, 0, apart, 0, 0, 0, one.route,
                        one.updates, one.peer, 0) for one in together for at, rows, width in pieces]
        return KernelTable(
            *(np.array(rows, kind) for rows, kind in ((groups, GROUP), (steps, STEP), (loads, LOAD), (stores, STORE))),
            arrivals=np.array([together[-1].arrivals for together in self._phases(device)]), cached_loads=False,
            persistent=True, launch_cycles=self.launch_cycles, end_cycles=self.end_cycles)

    def _phases(self, device: int) -> list[list[Pass]]:
        """List the passes that go on at the same time."""
        phases: list[list[Pass]] = []
        for one in self.passes[device]:
            if one.beside:
                phases[-1].append(one)
            else:
                phases.append([one])
        return phases
