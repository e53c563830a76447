"""Which run `t3 trace` records, and what of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..engine.library import Library
from ..errors import BadInput
from ..machine import Machine
from ..mechanisms.exchange import REDUCED, Exchange
from ..runs import build
from ..runs.fused import FusedRun
from ..runs.kernels import FusedGemm, fused_run
from ..runs.skew import Skew
from ..techniques.choices import Choices
from ..techniques.table import check_split_k
from ..techniques.track_trigger import fusion
from ..workloads import Workload
from . import bugs
from .names import count
from .schema import Kind

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
            raise BadInput(f"--until {self.end} is not after --from {self.first}")
        for option, chosen, size in (("--channel", self.channels, channels), ("--wg", self.wgs, names)):
            for value in sorted(chosen or ()):
                if not 0 <= value < size:
                    raise BadInput(f"{option} {value} does not exist: this run has 0 to {size - 1}")

    def to_json(self) -> dict:
        return {
            "kinds": sorted(kind.name.lower() for kind in self.kinds) if self.kinds is not None else None,
            "channels": sorted(self.channels) if self.channels is not None else None,
            "wgs": sorted(self.wgs) if self.wgs is not None else None,
        }


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
    varied: Mapping[str, Any] = field(default_factory=dict)  #: fields of `build.Options` that are not the kernel's

    def __post_init__(self) -> None:
        check_split_k(self.machine, self.exchange, (self.technique,))

    @property
    def kernel(self) -> FusedGemm:
        """The kernel that is recorded, as `t3 run` names it."""
        skew = Skew() if self.skew is None and not self.mirrored else self.skew
        found = fusion(self.technique, Choices(exchange=self.exchange, skew=skew))
        return found if self.policy is None else replace(found, policy=self.policy)

    @property
    def options(self) -> build.Options:
        return replace(self.kernel.options(self.machine, self.workload, self.seed), **self.varied)

    @cached_property
    def names(self) -> int:
        """Number of tiles and workgroups that the recording can name. Raises what machine and tiling refuse."""
        schedule = build.make_schedule(self.machine, self.workload, self.options)
        return count(schedule, build.make_tiling(self.machine, self.workload))

    def fused_run(self, library: Library | None = None) -> FusedRun:
        """Make the run, programmed and at cycle 0, on a compiled top; None: the ordinary one."""
        run = fused_run(self.kernel.policy, self.machine, self.workload, self.options, self.kernel.skew is not None,
                        library)
        if self.bug:
            bugs.plant(self.bug, run)
        return run
