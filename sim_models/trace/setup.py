"""Which run `t3 trace` records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from t3sim.machine import Machine
from t3sim.mechanisms.table import check_split_k
from t3sim.mechanisms.track_trigger import FusedGemm, fusion
from t3sim.rtlsim.simulator import Design
from t3sim.runs import build
from t3sim.runs.collective_alone import CollectiveEnd, PlannedCollective, ProgrammedCollective
from t3sim.runs.fused import FusedRun, fused_run
from t3sim.runs.plan import Plan
from t3sim.trace import bugs
from t3sim.trace.describe import count_names, describe_collective, describe_run, pieces_of, plan_of, tiles_of
from t3sim.trace.recorder import Filter, Subject


@dataclass(frozen=True)
class Setup:
    """Which run is recorded: the fused kernel of a technique with Track & Trigger, as `t3 run` runs it."""

    plan: Plan  #: machine with what the exchange needs (`Exchange.hardware`), layer, exchange, skew and seed
    technique: str  #: of `techniques.track_trigger.FUSIONS`
    bug: str | None = None  #: of `bugs.BUGS`
    policy: str | None = None  #: the arbiters', None: the technique's
    varied: Mapping[str, Any] = field(default_factory=dict)  #: fields of the planned kernel that are not its own

    def __post_init__(self) -> None:
        check_split_k(self.machine, self.plan.exchange, (self.technique,))

    @property
    def machine(self) -> Machine:
        return self.plan.machine

    @property
    def what(self) -> str:
        """Return what is run, for people."""
        return self.technique

    @property
    def kernel(self) -> FusedGemm:
        """The kernel that is recorded, as `t3 run` names it."""
        kernel = fusion(self.technique, self.plan)
        return kernel if self.policy is None else replace(kernel, policy=self.policy)

    @cached_property
    def planned(self) -> Plan:
        return replace(self.kernel.prepare(self.plan), **self.varied)

    @cached_property
    def names(self) -> int:
        """Return how many tiles and workgroups the recording can name. Raises what machine and tiling refuse."""
        return count_names(self.planned.schedule, build.make_tiling(self.machine, self.plan.workload))

    def programmed(self, design: Design | None = None) -> FusedRun:
        """Make the run, programmed and at cycle 0, on a compiled top; None: the ordinary one."""
        run = fused_run(self.kernel.policy, self.planned, self.kernel.skew is not None, design)
        if self.bug:
            bugs.plant(self.bug, run)
        return run

    def subject(self, run: FusedRun, selection: Filter) -> Subject:
        return tiles_of(run, selection)

    def described(self, run: FusedRun) -> dict[str, Any]:
        """Return what trace.json says of a run that has come to its end, or to that of the window."""
        return describe_run(run, self.technique, self.plan.seed)

    def output_plan(self, run: FusedRun) -> dict[str, np.ndarray] | None:
        """Return the plan of its output, None: it has none."""
        return plan_of(run)

    def ended(self, run: FusedRun) -> None:
        """Take note of a run that has ended as it should."""


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

    def subject(self, run: ProgrammedCollective, selection: Filter) -> Subject:
        return pieces_of(run, selection)

    def described(self, run: ProgrammedCollective) -> dict[str, Any]:
        return describe_collective(run, self.title, self.names)

    def output_plan(self, run: ProgrammedCollective) -> None:
        return None

    def ended(self, run: ProgrammedCollective) -> None:
        self.keep(run.end())


Recordable = Setup | CollectiveSetup
