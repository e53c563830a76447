"""Which run `t3 trace` records, and what of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.mechanisms.table import check_split_k
from t3sim.mechanisms.track_trigger import FusedGemm, fusion
from t3sim.rtlsim.simulator import Design
from t3sim.runs import build
from t3sim.runs.collective_alone import CollectiveEnd, PlannedCollective, ProgrammedCollective
from t3sim.runs.exchange import REDUCED, Exchange
from t3sim.runs.fused import FusedRun, fused_run
from t3sim.runs.plan import Plan
from t3sim.runs.programmed import ProgrammedGpus
from t3sim.runs.skew import Skew
from t3sim.trace import bugs
from t3sim.trace.describe import count, describe_run, described_gpus, described_passes, plan_of
from t3sim.trace.schema import Kind
from t3sim.trace.subject import Collective, FusedKernel, Subject
from t3sim.workload.workloads import Workload

DEFAULT_LIMIT = 5_000_000


@dataclass(frozen=True)
class Filter:
    """Choice of what is recorded; None: all."""

    first: int = 0  #: cycles
    end: int | None = None
    kinds: frozenset[Kind] | None = None
    channels: frozenset[int] | None = None
    wgs: frozenset[int] | None = None
    limit: int = DEFAULT_LIMIT  #: events

    def check(self, channels: int, names: int) -> None:
        if self.end is not None and self.end <= self.first:
            raise BadInput(f"a window until cycle {self.end} is not after its first, {self.first}")
        for what, chosen, size in (("channel", self.channels, channels), ("workgroup", self.wgs, names)):
            for value in sorted(chosen or ()):
                if not 0 <= value < size:
                    raise BadInput(f"{what} {value} does not exist: this run has 0 to {size - 1}")

    def to_json(self) -> dict:
        return {
            "kinds": sorted(kind.name.lower() for kind in self.kinds) if self.kinds is not None else None,
            "channels": sorted(self.channels) if self.channels is not None else None,
            "wgs": sorted(self.wgs) if self.wgs is not None else None,
        }


class Recordable(Protocol):
    """A run that can be recorded."""

    @property
    def machine(self) -> Machine: ...

    @property
    def bug(self) -> str | None: ...

    @property
    def what(self) -> str:
        """Return what is run, for people."""

    @property
    def names(self) -> int:
        """Return how many tiles and workgroups the recording can name. Raises what machine and tiling refuse."""

    def programmed(self, design: Design | None = None) -> ProgrammedGpus:
        """Make the run, programmed and at cycle 0, on a compiled top; None: the ordinary one."""

    def subject(self, run: Any) -> Subject: ...

    def described(self, run: Any) -> dict[str, Any]:
        """Return what trace.json says of a run that has come to its end, or to that of the window."""

    def plan(self, run: Any) -> dict[str, np.ndarray] | None:
        """Return the plan of its output, None: it has none."""

    def ended(self, run: Any) -> None:
        """Take note of a run that has ended as it should."""


@dataclass(frozen=True)
class Setup:
    """Which run is recorded: the fused kernel of a technique with Track & Trigger, as `t3 run` runs it."""

    machine: Machine  #: with what the exchange needs (`Exchange.hardware`)
    workload: Workload
    technique: str  #: of `techniques.track_trigger.FUSIONS`
    mirrored: bool = True  #: one GPU stands for all, if the exchange lets it
    seed: int = 0
    bug: str | None = None  #: of `bugs.BUGS`
    policy: str | None = None  #: the arbiters', None: the technique's
    exchange: Exchange = REDUCED
    skew: Skew | None = None  #: what tells GPUs apart, each with its own RTL
    varied: Mapping[str, Any] = field(default_factory=dict)  #: fields of the `Plan` that are not the kernel's

    def __post_init__(self) -> None:
        check_split_k(self.machine, self.exchange, (self.technique,))

    @property
    def what(self) -> str:
        return self.technique

    @property
    def kernel(self) -> FusedGemm:
        """The kernel that is recorded, as `t3 run` names it."""
        skew = Skew() if self.skew is None and not self.mirrored else self.skew
        found = fusion(self.technique, Plan(self.machine, self.workload, self.seed, self.exchange, skew=skew))
        return found if self.policy is None else replace(found, policy=self.policy)

    @cached_property
    def planned(self) -> Plan:
        return replace(self.kernel.prepare(Plan(self.machine, self.workload, self.seed)), **self.varied)

    @cached_property
    def names(self) -> int:
        return count(self.planned.schedule, build.make_tiling(self.machine, self.workload))

    def programmed(self, design: Design | None = None) -> FusedRun:
        run = fused_run(self.kernel.policy, self.planned, self.kernel.skew is not None, design)
        if self.bug:
            bugs.plant(self.bug, run)
        return run

    def subject(self, run: FusedRun) -> FusedKernel:
        return FusedKernel(run)

    def described(self, run: FusedRun) -> dict[str, Any]:
        return describe_run(run, self.technique, self.seed)

    def plan(self, run: FusedRun) -> dict[str, np.ndarray]:
        return plan_of(run)

    def ended(self, run: FusedRun) -> None:
        pass


@dataclass(frozen=True)
class CollectiveSetup:
    """Which collective alone is recorded, as `t3 run` runs it."""

    planned: PlannedCollective
    what: str
    title: str  #: for people, with its size, algorithm, links and machine
    #: Called with what it came to, if it ended.
    keep: Callable[[CollectiveEnd], object] = field(default=lambda end: None, repr=False)

    bug = None

    @property
    def machine(self) -> Machine:
        return self.planned.machine

    @cached_property
    def names(self) -> int:
        plans = self.planned.plans
        operator = build.planned_copy(self.machine, plans)
        return max(sum(share.workgroups for share in operator.shares(device)) for device in range(len(plans)))

    def programmed(self, design: Design | None = None) -> ProgrammedCollective:
        return ProgrammedCollective(self.planned, design)

    def subject(self, run: ProgrammedCollective) -> Collective:
        return Collective(run)

    def described(self, run: ProgrammedCollective) -> dict[str, Any]:
        one = self.planned
        return described_gpus(run, self.machine, one.mirrored) | {
            "title": self.title, "devices": one.topology.gpus, "topology": one.topology.name, "names": self.names,
            "wavefronts": 1, "collective": described_passes(run)}

    def plan(self, run: ProgrammedCollective) -> None:
        return None

    def ended(self, run: ProgrammedCollective) -> None:
        self.keep(run.end())
