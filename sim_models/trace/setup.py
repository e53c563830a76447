"""Which run `t3 trace` records, and what of it."""

from dataclasses import dataclass, field, replace

from ..cosim.compiled import CompiledBackend
from ..cosim.gpu import model_ports
from ..engine.library import Library
from ..errors import BadInput
from ..machine import Machine
from ..runs import build
from ..runs.fused import FusedRun
from ..runs.kernels import FusedGemm, staging_pays
from ..runs.policy import Policy
from ..techniques.track_trigger import FUSIONS
from ..workloads import Workload
from . import bugs
from .schema import Kind

DEFAULT_LIMIT = 5_000_000


@dataclass(frozen=True)
class Filter:
    """What is recorded; None: all."""

    first: int = 0  #: cycles
    end: int | None = None
    kinds: frozenset[Kind] | None = None
    channels: frozenset[int] | None = None
    wgs: frozenset[int] | None = None
    limit: int = DEFAULT_LIMIT  #: events

    def check(self, channels: int, workgroups: int) -> None:
        if self.end is not None and self.end <= self.first:
            raise BadInput(f"--until {self.end} is not after --from {self.first}")
        for option, chosen, size in (("--channel", self.channels, channels), ("--wg", self.wgs, workgroups)):
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
    """Which run is recorded."""

    machine: Machine
    workload: Workload
    technique: str
    mirrored: bool = True  #: one GPU stands for all
    seed: int = 0
    bug: str | None = None  #: of `bugs.BUGS`
    policy: str | None = None  #: the arbiters', None: the technique's
    varied: build.Options = field(default_factory=build.Options)  #: but for seed and staging

    def __post_init__(self) -> None:
        if self.machine.gpu.k_parts > 1:
            raise BadInput(f"[gpu] k_parts = {self.machine.gpu.k_parts}: a trace names workgroups by their tiles, of "
                           "which each must have one: k_parts = 1")

    @property
    def kernel(self) -> FusedGemm:
        """The kernel that is recorded, as `t3 run` names it."""
        fusion = FUSIONS[self.technique]
        return fusion if self.policy is None else replace(fusion, policy=self.policy)

    @property
    def options(self) -> build.Options:
        staged = self.kernel.staged and staging_pays(self.machine, self.workload)
        return replace(self.varied, seed=self.seed, stage_first_chunk=staged)

    def fused_run(self, library: Library) -> FusedRun:
        """Make the run, programmed and at cycle 0, on a compiled top."""
        backends = [CompiledBackend(library) for _ in range(1 if self.mirrored else self.workload.tp)]
        for backend in backends:
            backend.reset()
        run = FusedRun(self.machine, self.workload, backends, model_ports(library.ports, self.machine.geometry()),
                       Policy.of(self.kernel.policy, self.machine), self.mirrored, self.options)
        if self.bug:
            bugs.plant(self.bug, run)
        return run
