"""Names of what a recorded run has: of a fused kernel its tiles, of a collective alone its workgroups."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.runs import build
from t3sim.runs.collective_alone import ProgrammedCollective
from t3sim.runs.fused import FusedRun
from t3sim.trace.describe import described_passes, destinations, padded, senders, workgroups
from t3sim.trace.passes import Passes
from t3sim.trace.recorder import Chosen, Workgroups
from t3sim.trace.schema import ALONE

if TYPE_CHECKING:
    from t3sim.trace.setup import Filter


class Subject(Protocol):
    """Names of what a run has, and what of it is recorded."""

    @property
    def workgroups(self) -> Workgroups: ...

    def chosen(self, wanted: "Filter") -> Chosen:
        """Return what is recorded."""

    @property
    def senders(self) -> Sequence[np.ndarray]:
        """Return each device's names of tiles whose stores leave for a peer, as `names.senders` does."""


class FusedKernel:
    """A fused kernel: tiles are named, and workgroups by the tiles that they make."""

    def __init__(self, run: FusedRun) -> None:
        self._run = run

    @property
    def workgroups(self) -> Workgroups:
        run = self._run
        called, parts = (padded(columns, ALONE) for columns in zip(*(
            workgroups(space, build.make_tiling(run.machine, run.workload)) for space in run.spaces)))
        return Workgroups(called, parts, np.array([len(space.peers) for space in run.spaces]))

    def chosen(self, wanted: "Filter") -> Chosen:
        run = self._run
        sent = None if wanted.wgs is None else wanted.wgs.union(
            *(destinations(run.schedule, space.device, wanted.wgs) for space in run.spaces))
        return Chosen(wanted.kinds, wanted.channels, wanted.wgs, sent)

    @property
    def senders(self) -> Sequence[np.ndarray]:
        return [senders(space) for space in self._run.spaces]


class Collective:
    """A collective alone: workgroups are named by their turn, and requests by their addresses."""

    def __init__(self, run: ProgrammedCollective) -> None:
        self._passes = Passes(described_passes(run), run.asked.mirrored)

    @property
    def workgroups(self) -> Workgroups:
        first = [[share["first"] for share in self._passes.shares(device)] for device in range(self._passes.devices)]
        names = padded([np.array(row, np.int64) for row in first], 0)
        return Workgroups(names, np.full_like(names, ALONE), np.zeros(len(names), np.int64), True, self._passes.count)

    def chosen(self, wanted: "Filter") -> Chosen:
        if wanted.wgs is None:
            return Chosen(wanted.kinds, wanted.channels)
        spans = [span for device in range(self._passes.devices) for wg in sorted(wanted.wgs)
                 for span in self._passes.spans(device, wg)]
        lines = np.zeros((self._passes.devices, 1 + max((end for _, _, end in spans), default=0) // LINE_BYTES), bool)
        for device, first, end in spans:
            lines[device, first // LINE_BYTES:-(-end // LINE_BYTES)] = True
        return Chosen(wanted.kinds, wanted.channels, wanted.wgs, (), lines)

    @property
    def senders(self) -> Sequence[np.ndarray]:
        return []
