"""What a command found out, as dataclasses, and the JSON form that other tools may rely on (times ns, sizes bytes)."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from t3sim.errors import BadInput, choices, named_once
from t3sim.mechanisms.exchange import REDUCED, Exchange
from t3sim.rtl.arbiter import POLICIES
from t3sim.runs.skew import Skew
from t3sim.schedule import FIXED_TERMS, most_terms
from t3sim.study.bounds import bounds
from t3sim.study.gemm_rate import GemmRate, rate_alone
from t3sim.workloads import Workload

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

#: The technique over which speedups are given.
BASELINE = "sequential"

#: What can be run (T3 paper, section 5.3; Flux paper, section 2.2).
TECHNIQUES = {
    "sequential": "GEMM, then reduce-scatter, then all-gather, each alone on the whole GPU",
    "decomposed": "a GEMM per chunk, each a kernel; the ring's kernels beside them on some compute units; all-gather",
    "flux": "one GEMM whose epilogue stores at the owners, tiles in their order; then a reduction, and the all-gather",
    "fused-wg": "one persistent kernel whose workgroups store at the owners, and add what came; then the all-gather",
    "in-switch": "GEMM, then an all-reduce as a kernel that a switch adds for and copies for",
    "t3": "GEMM and reduce-scatter fused, round-robin arbitration; then the all-gather",
    "t3-mca": "the same with the communication-aware arbiter",
    "t3-mca+": "ring-aware arbitration; the first chunk through local memory where the GEMM outlasts the ring",
    "ideal-overlap": "max(GEMM, reduce-scatter) + all-gather, from isolated times",
    "ideal-rs-nmc": "the same with the reduce-scatter of near-memory reduction",
}

#: Those that are run if none is named: the T3 paper's, and its own best.
BY_DEFAULT = ("sequential", "t3", "t3-mca", "t3-mca+", "ideal-overlap", "ideal-rs-nmc")


def check_techniques(names: Iterable[str]) -> None:
    """Raise BadInput for an unknown technique, and for one that is named twice."""
    for name in named_once("--technique", names):
        if name not in TECHNIQUES:
            raise BadInput(f"--technique {name!r} is unknown: allowed are {', '.join(TECHNIQUES)}")


def check_policy(name: str | None, techniques: Iterable[str] = ("t3",)) -> None:
    """Raise BadInput for a policy that the hardware does not have, or without technique `t3`, which takes it."""
    if name is not None and name not in POLICIES:
        raise BadInput(f"--policy {name!r} is unknown: allowed are {choices(name, POLICIES)}")
    if name is not None and "t3" not in techniques:
        raise BadInput(f"--policy {name} is for technique t3, which --technique {','.join(techniques)} does not name")


#: Keys of `TechniqueResult.dram`: who moved the bytes, and in which direction. A stream has a name of this form.
DRAM_STREAMS = ("gemm_read", "gemm_write", "rs_read", "rs_write", "ag_read", "ag_write")


@dataclass(frozen=True)
class TechniqueResult:
    """One technique on one workload. Where phases overlap, their sum exceeds `total_ns`."""

    name: str
    total_ns: float
    phases_ns: dict[str, float]  #: by name, in their order
    streams_bytes: dict[str, int]  #: at one GPU's DRAM, by stream: `gemm_read`
    mc_cycles: int  #: memory-controller cycles simulated
    rtl_in_loop: bool
    host_seconds: float
    loss_ns: dict[str, float]  #: cause: time that was not hidden because of it
    details: dict[str, Any] = field(default_factory=dict)  #: counters, self-checks; free form
    gpus: tuple[dict[str, float], ...] = ()  #: of each, if every one was simulated; times in ns from the first start

    def __post_init__(self) -> None:
        for stream in self.streams_bytes:
            if not stream.endswith(("_read", "_write")):
                raise ValueError(f"streams_bytes of {self.name} has the stream {stream!r}: a name ends in _read or "
                                 "_write")

    @property
    def gemm_ns(self) -> float:
        return self.phases_ns.get("gemm", 0.0)

    @property
    def rs_ns(self) -> float:
        return self.phases_ns.get("reduce-scatter", 0.0)

    @property
    def ag_ns(self) -> float:
        return self.phases_ns.get("all-gather", 0.0)

    @property
    def dram(self) -> dict[str, int]:
        """Bytes by stream of a GEMM, a reduce-scatter and an all-gather, also of streams that moved nothing."""
        return {stream: self.streams_bytes.get(stream, 0) for stream in DRAM_STREAMS}

    @property
    def cycles_per_second(self) -> float | None:
        """Simulation speed; None for what was computed without simulating."""
        return self.mc_cycles / self.host_seconds if self.mc_cycles and self.host_seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        return {
            "total_ns": self.total_ns, "gemm_ns": self.gemm_ns, "rs_ns": self.rs_ns, "ag_ns": self.ag_ns,
            "dram": self.dram, "phases_ns": dict(self.phases_ns), "streams_bytes": dict(self.streams_bytes),
            "mc_cycles": self.mc_cycles, "rtl_in_loop": self.rtl_in_loop, "host_seconds": self.host_seconds,
            "loss_ns": dict(self.loss_ns), "details": dict(self.details),
            **({"gpus": list(self.gpus)} if self.gpus else {}),
        }


@dataclass(frozen=True)
class RunResult:
    """One workload under several techniques, with everything needed to repeat it."""

    workload: Workload
    machine: Any  #: t3sim.machine.Machine
    seed: int
    versions: dict[str, str]
    techniques: dict[str, TechniqueResult]  #: in the order in which they were asked for
    policy: str | None = None  #: the arbiters' in technique t3, None: the technique's own
    exchange: Exchange = REDUCED  #: what fused techniques fuse the GEMM with
    skew: Skew | None = None  #: what tells GPUs apart; None: one stands for all

    @property
    def baseline(self) -> TechniqueResult | None:
        return self.techniques.get(BASELINE)

    @property
    def speedup(self) -> dict[str, float]:
        """Time of the sequential baseline over this technique's; empty without the baseline."""
        if self.baseline is None:
            return {}
        return {name: self.baseline.total_ns / one.total_ns for name, one in self.techniques.items()}

    @property
    def overlap_efficiency(self) -> dict[str, float]:
        """The overlap efficiency of each technique, by Flux's definition: E = 1 - (T - G) / R.

        Of an all-reduce in one there is none if the baseline's all-gather is not part of R.

        T is the time with the collective that is fused, G and R the GEMM and the collective alone (the baseline's). 1:
        the collective is hidden; 0: nothing is; below: slower than in turn.
        """
        base, hides = self.baseline, self.exchange.hides
        if base is None or (alone := sum(base.phases_ns.get(phase, 0.0) for phase in hides)) <= 0:
            return {}
        return {name: 1 - (one.total_ns - (0 if "all-gather" in hides else one.ag_ns) - base.gemm_ns) / alone
                for name, one in self.techniques.items() if "all-gather" in hides or "all-reduce" not in one.phases_ns}

    @property
    def most_terms(self) -> int:
        """Terms of the largest sum that Track & Trigger makes; more than 2 are added as they come."""
        return most_terms(self.exchange.program(self.workload.tp), self.machine.gpu.k_parts)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a row per technique: what was run, times in ns, bytes by stream, causes of what is not hidden."""
        import pandas

        workload = self.workload
        asked = {"model": workload.model, "sublayer": workload.sublayer, "tp": workload.tp, "m": workload.m,
                 "n": workload.n, "k": workload.k, "dtype": workload.dtype, "machine": self.machine.name,
                 "policy": self.policy, "seed": self.seed, **self.exchange.to_json()}
        return pandas.DataFrame([{
            **asked, "technique": name, "total_ns": one.total_ns, "speedup": self.speedup.get(name),
            "overlap_efficiency": self.overlap_efficiency.get(name), "mc_cycles": one.mc_cycles,
            "rtl_in_loop": one.rtl_in_loop, "host_seconds": one.host_seconds,
            **{f"{phase.replace('-', '_')}_ns": ns for phase, ns in one.phases_ns.items()},
            **{f"{stream}_bytes": count for stream, count in one.streams_bytes.items()},
            **{f"loss_{cause}_ns": ns for cause, ns in one.loss_ns.items()}} for name, one in self.techniques.items()])

    def plot(self) -> "Figure":
        """Draw each technique's time: its GEMM, what of the reduce-scatter is not behind it, the all-gather."""
        from t3sim.study.run_plot import draw_run

        return draw_run(self)

    def to_json(self) -> dict[str, Any]:
        workload = self.workload
        return {
            "workload": {"model": workload.model, "sublayer": workload.sublayer, "tp": workload.tp,
                         "M": workload.m, "N": workload.n, "K": workload.k},
            "machine": self.machine.model_dump(mode="json"),
            "seed": self.seed,
            "versions": dict(self.versions),
            "techniques": {name: one.to_json() for name, one in self.techniques.items()},
            "policy": self.policy,
            **self.exchange.to_json(),
            "sums": {"most_terms": self.most_terms, "order": "fixed" if self.most_terms <= FIXED_TERMS else "arrival"},
            "skew": None if self.skew is None else str(self.skew),
            "speedup": self.speedup,
            "overlap_efficiency": self.overlap_efficiency,
            "bounds": {name: bound.to_json() for name, bound in bounds(self).items()},
            "gemm": rate.to_json() if (rate := rate_alone(self)) else None,
        }


@dataclass(frozen=True)
class KernelRun:
    """A kernel alone on one GPU."""

    kernel: str
    machine: str
    kernel_ns: float
    cycles: int
    dram_bytes: dict[str, int]
    host_seconds: float
    versions: dict[str, str] = field(default_factory=dict)
    gemm: GemmRate | None = None  #: of a kernel that multiplies matrices

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gemm": self.gemm.to_json() if self.gemm else None}


@dataclass(frozen=True)
class GpusSpeed:
    """Processor and wall seconds of the same cycles of a fused run, the least of some attempts each."""

    gpus: int
    cycles: int
    mirrored_seconds: float  #: of a core, of one GPU that stands for all
    every_seconds: float  #: of a core, of all GPUs on one thread
    one_thread_seconds: float  #: all GPUs, from begin to end
    two_threads_seconds: float

    @property
    def over_mirrored(self) -> float:
        """A core's time for all GPUs over that for as many mirrored runs."""
        return self.every_seconds / (self.gpus * self.mirrored_seconds)

    @property
    def two_threads_over_one(self) -> float:
        """How many times as fast two threads are as one; means little where other programs have the cores."""
        return self.one_thread_seconds / self.two_threads_seconds

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"over_mirrored": self.over_mirrored, "two_threads_over_one": self.two_threads_over_one}


@dataclass(frozen=True)
class WholeRun:
    """A fused run at full size in lockstep."""

    cycles: int  #: that were timed
    cycles_per_second: float  #: of a core's time
    quiet_share: float  #: of sampled cycles, those in which no input of the RTL changes
    asleep: float  #: instances of modules that are at rest, mean of the samples


@dataclass(frozen=True)
class FirstRun:
    """Processor seconds of all cores, and seconds that passed, in a cache that was empty."""

    build_core_seconds: float  #: of the RTL alone: elaboration, Verilator, C++ compiler
    build_seconds: float
    first_core_seconds: float  #: of a small sub-layer under all techniques, which compiles the loops
    first_seconds: float
    second_core_seconds: float  #: of the same again
    second_seconds: float


@dataclass(frozen=True)
class BenchResult:
    """Speed of the engines on the same RTL and stimulus, in one run."""

    cycles_per_second: dict[str, float]  #: of a core's time; keys from `ENGINES`; what could not be run is absent
    cycles: dict[str, int] = field(default_factory=dict)  #: how many each engine was measured over
    notes: dict[str, str] = field(default_factory=dict)  #: why an engine is absent
    versions: dict[str, str] = field(default_factory=dict)
    gpus: GpusSpeed | None = None  #: of engine `gpus`
    whole: WholeRun | None = None  #: of engine `whole`
    first: FirstRun | None = None  #: of engine `first`

    ENGINES = ("lockstep", "bare", "full", "gpus", "cocotb", "amaranth", "whole", "first")
    ON_REQUEST = ("whole", "first")  #: minutes each, only if named

    @property
    def lockstep_over_bare(self) -> float | None:
        """Share of a bare C++ loop's speed that is left with the models in the loop."""
        return self._ratio("lockstep", "bare")

    @property
    def bare_over_full(self) -> float | None:
        """The gain of leaving out instances of modules that are at rest."""
        return self._ratio("bare", "full")

    def _ratio(self, one: str, other: str) -> float | None:
        speed = self.cycles_per_second
        return speed[one] / speed[other] if {one, other} <= speed.keys() else None

    def to_json(self) -> dict[str, Any]:
        return {"cycles_per_second": dict(self.cycles_per_second), "lockstep_over_bare": self.lockstep_over_bare,
                "bare_over_full": self.bare_over_full, "cycles": dict(self.cycles), "notes": dict(self.notes),
                "versions": dict(self.versions), "gpus": self.gpus.to_json() if self.gpus else None,
                "whole": asdict(self.whole) if self.whole else None,
                "first": asdict(self.first) if self.first else None}
