"""Copy and reduce kernels as kernel tables: arrays read, added element by element, and written, pass after pass.

Each workgroup computes its addresses, loads its part of every source, waits for all loads, stores the result, and frees
its slot when its stores are acknowledged. A compute unit therefore has no more in flight than its resident threads can
hold, and each workgroup exposes the memory latency once.
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
    updates: bool = False  #: memory adds the stored values to its content
    arrivals: int = 0  #: lines that must have arrived over the links since the start before the next pass begins
    peer: int = 0  #: index of the destination among the GPU's peers
    concurrent: bool = False  #: it runs at the same time as the pass before it
    reuses_loads: bool = False  #: it stores the loads of the concurrent pass before it, and loads nothing
    size_bytes: int | None = None  #: of its arrays; whole lines if concurrent passes differ; None: the operator's


class PhaseShare(NamedTuple):
    """Workgroups of a phase that differ only in the addresses of their data."""

    phase: int
    passes: list[Pass]  #: concurrent; each workgroup does a part of every pass
    workgroups: int
    first_byte: int  #: of the first workgroup's part of each array
    stride_bytes: int  #: from one workgroup's part to the next one's
    size_bytes: int  #: of a workgroup's part


@dataclass(frozen=True)
class Copy:
    """The operator: passes of `size_bytes` each, or of their own. Times in memory cycles."""

    passes: Sequence[Sequence[Pass]]  #: of each GPU
    size_bytes: int
    workgroup_bytes: int  #: of the result
    launch_cycles: float
    end_cycles: float

    def shares(self, gpu: int) -> Iterator[PhaseShare]:
        """Divide one GPU's passes into workgroups of equal size, and one more for the remainder.

        Concurrent passes share a workgroup's bytes. When one of them ends first, the others continue without it.
        """
        for phase, concurrent in enumerate(self._phases(gpu)):
            sizes = [self.size_bytes if one.size_bytes is None else one.size_bytes for one in concurrent]
            for begin, end in pairwise(sorted({0, *sizes})):
                unfinished = [one for one, size in zip(concurrent, sizes) if size >= end]
                share_bytes = max(self.workgroup_bytes // len(unfinished) // LINE_BYTES, 1) * LINE_BYTES
                whole, remainder = divmod(end - begin, share_bytes)
                for count, start, size in ((whole, begin, share_bytes), (1, begin + whole * share_bytes, remainder)):
                    if count and size:
                        yield PhaseShare(phase, unfinished, count, start, share_bytes, size)

    def work(self, gpu: int) -> KernelTable:
        """Build one GPU's kernel: persistent, without the cache.

        Each share is a group. A workgroup loads for all concurrent passes, and stores a line for each in turn.
        """
        groups, steps, loads, stores = [], [], [], []
        for phase, concurrent, count, start, stride_bytes, size in self.shares(gpu):
            blocks = [block for block in ((start, size // LINE_BYTES, LINE_BYTES),
                                          (start + size // LINE_BYTES * LINE_BYTES, 1, size % LINE_BYTES))
                      if block[1] and block[2]]
            groups.append((count, len(steps), 1, phase, 0, 0))
            sources = [source for one in concurrent if not one.reuses_loads for source in one.sources]
            steps.append((1, 0.0, len(loads), len(blocks) * len(sources), len(stores), len(blocks) * len(concurrent)))
            loads += [(source + offset, LINE_BYTES, rows, width, 0, stride_bytes, STRIDED)
                      for source in sources for offset, rows, width in blocks]
            stores += [(one.destination + offset, LINE_BYTES, rows, width, 0, stride_bytes, 0, 0, 0, one.route,
                        one.updates, one.peer, 0) for one in concurrent for offset, rows, width in blocks]
        return KernelTable(
            *(np.array(rows, kind) for rows, kind in ((groups, GROUP), (steps, STEP), (loads, LOAD), (stores, STORE))),
            arrivals=np.array([concurrent[-1].arrivals for concurrent in self._phases(gpu)]), cached_loads=False,
            persistent=True, launch_cycles=self.launch_cycles, end_cycles=self.end_cycles)

    def _phases(self, gpu: int) -> list[list[Pass]]:
        """Return the concurrent passes of each phase."""
        phases: list[list[Pass]] = []
        for one in self.passes[gpu]:
            if one.concurrent:
                phases[-1].append(one)
            else:
                phases.append([one])
        return phases
