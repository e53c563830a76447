"""Results of commands as dataclasses, and the JSON form that other tools may rely on (times ns, sizes bytes)."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from t3sim.collectives.schedule import FIXED_TERMS
from t3sim.mechanisms.result import BASELINE, TechniqueResult
from t3sim.runs.exchange import REDUCED, Exchange
from t3sim.runs.kernel_results import GpuEnd
from t3sim.runs.skew import Skew
from t3sim.study.bounds import Bound, bound_of
from t3sim.study.gemm_rate import GemmRate, gemm_rate
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Numbers:
    """Numbers that a technique's GPUs carried, all of whose bits were numpy's."""

    technique: str
    compared: int
    error: float | None  #: root mean square of that of float64, relative; None: nothing is added


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
    skew: Skew | None = None  #: differences between GPUs; None: a representative GPU
    numbers: Numbers | None = None  #: None: there were none

    def __repr__(self) -> str:
        times = ", ".join(f"{name} {technique.total_ns / 1e3:,.1f} µs" for name, technique in self.techniques.items())
        return f"<RunResult {self.workload.title} on {self.machine.name}: {times}>"

    @property
    def baseline(self) -> TechniqueResult | None:
        return self.techniques.get(BASELINE)

    @property
    def speedup(self) -> dict[str, float]:
        """Time of the sequential baseline over this technique's; empty without the baseline."""
        if self.baseline is None:
            return {}
        return {name: self.baseline.total_ns / technique.total_ns for name, technique in self.techniques.items()}

    @property
    def overlap_efficiency(self) -> dict[str, float]:
        """The overlap efficiency of each technique, by Flux's definition: E = 1 - (T - G) / R.

        An all-reduce in one kernel has none unless the baseline's all-gather is part of R.

        T is the time with the collective that is fused, G and R the GEMM and the collective alone (the baseline's). 1:
        the collective is hidden; 0: nothing is; below: slower than in turn.
        """
        base, hides = self.baseline, self.exchange.hides
        if base is None or (alone_ns := sum(base.phases_ns.get(phase, 0.0) for phase in hides)) <= 0:
            return {}
        all_gather_ns = {name: 0 if "all-gather" in hides else technique.ag_ns
                         for name, technique in self.techniques.items()}
        return {name: 1 - (technique.total_ns - technique.packing_ns - all_gather_ns[name] - base.gemm_ns) / alone_ns
                for name, technique in self.techniques.items()
                if "all-gather" in hides or "all-reduce" not in technique.phases_ns}

    @property
    def bounds(self) -> dict[str, Bound]:
        """What bounds each technique that overlaps something; nothing without the baseline."""
        base = self.baseline
        return {} if base is None else {
            name: bound_of(technique, base, self.machine, self.workload, self.exchange)
            for name, technique in self.techniques.items() if name != base.name}

    @property
    def gemm_rate(self) -> GemmRate | None:
        """The rate of the GEMM alone; None without the baseline, or without matrices."""
        from t3sim.runs.kernels import part_of

        if self.baseline is None:
            return None
        gemm = part_of(self.workload) if self.exchange.of_parts else self.workload
        return gemm_rate(self.machine, gemm, self.baseline.gemm_ns, sum(self.baseline.moved.get("gemm", ())))

    @property
    def most_terms(self) -> int:
        """Terms of the largest sum that Track & Trigger makes; more than 2 are added as they come."""
        return self.exchange.terms(self.workload, self.machine.gpu.k_parts)

    @property
    def terms_by_arrival(self) -> int:
        """Terms of the largest sum whose bits the order of arrival may change."""
        return 1 if self.exchange.sums.in_any_order else self.most_terms

    def to_frame(self) -> "pandas.DataFrame":
        """Return a row per technique: what was run, times in ns, bytes by stream, causes of what is not hidden."""
        import pandas

        workload = self.workload
        settings = {"model": workload.model, "sublayer": workload.sublayer, "tp": workload.tp, "m": workload.m,
                    "n": workload.n, "k": workload.k, "dtype": workload.dtype, "machine": self.machine.name,
                    "policy": self.policy, "seed": self.seed, **self.exchange.to_json()}
        return pandas.DataFrame([{
            **settings, "technique": name, "total_ns": technique.total_ns, "speedup": self.speedup.get(name),
            "overlap_efficiency": self.overlap_efficiency.get(name), "mc_cycles": technique.mc_cycles,
            "rtl_in_loop": technique.rtl_in_loop, "host_seconds": technique.host_seconds,
            **{f"{phase.replace('-', '_')}_ns": ns for phase, ns in technique.phases_ns.items()},
            **{f"{stream}_bytes": count for stream, count in technique.streams_bytes.items()},
            **{f"loss_{cause}_ns": ns for cause, ns in technique.loss_ns.items()}}
            for name, technique in self.techniques.items()])

    def plot(self) -> "Figure":
        """Draw each technique's time: its GEMM, what of the reduce-scatter it does not hide, the all-gather."""
        from t3sim.base import plots

        figure, axes = plots.figure(0.9 + 0.34 * len(self.techniques), width=0.8)
        names = list(self.techniques)
        hides = self.exchange.hides
        collective = hides[0] if len(hides) == 1 else "collective"
        has_packing = any(technique.packing_ns for technique in self.techniques.values())
        parts = {self.workload.producer: [], f"{collective} after the {self.workload.producer}": []}
        parts |= {} if self.exchange.of_parts else {"packing before it" if has_packing else "all-gather": []}
        for technique in self.techniques.values():
            # As in the table.
            follow_ns = 0.0 if self.exchange.of_parts else technique.loss_ns.get("all_gather", technique.packing_ns)
            gemm = min(technique.gemm_ns, technique.total_ns - follow_ns)
            for part, ns in zip(parts.values(), (gemm, technique.total_ns - follow_ns - gemm, follow_ns)):
                part.append(ns / 1e3)
        left = [0.0] * len(names)
        for (title, widths), colour in zip(parts.items(), (plots.BLUE, plots.ORANGE, plots.LIGHT)):
            axes.barh(names, widths, 0.7, left=left, color=colour, label=title)
            left = [a + b for a, b in zip(left, widths)]
        for name, end in zip(names, left):
            speedup = self.speedup.get(name)
            speedup_text = f", {speedup:.3f}x" if speedup else ""
            axes.annotate(f" {end:,.0f}{speedup_text}", (end, name), va="center", fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.16 * max(left))
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x")
        axes.set_xlabel(plots.plain(f"time (µs): {self.workload.title}, machine {self.machine.name}"))
        plots.legend_above(axes, 3)
        return figure

    def to_json(self) -> dict[str, Any]:
        workload = self.workload
        return {
            "workload": {"model": workload.model, "sublayer": workload.sublayer, "tp": workload.tp,
                         "M": workload.m, "N": workload.n, "K": workload.k},
            "machine": self.machine.described(),
            "seed": self.seed,
            "versions": dict(self.versions),
            "techniques": {name: technique.to_json() for name, technique in self.techniques.items()},
            "policy": self.policy,
            **self.exchange.to_json(),
            "sums": {"most_terms": self.most_terms,
                     "order": "fixed" if self.terms_by_arrival <= FIXED_TERMS else "arrival"},
            "skew": None if self.skew is None else str(self.skew),
            **({"numbers": asdict(self.numbers)} if self.numbers else {}),
            "speedup": self.speedup,
            "overlap_efficiency": self.overlap_efficiency,
            "bounds": {name: bound.to_json() for name, bound in self.bounds.items()},
            "gemm": self.gemm_rate.to_json() if self.gemm_rate else None,
        }


@dataclass(frozen=True)
class FileRun:
    """The sub-layers that a file names."""

    #: How often the file has each, and its result, on the event level an `OverlapRun`.
    sublayers: tuple[tuple[int, Any], ...]

    def __repr__(self) -> str:
        return f"<FileRun {'; '.join(f'{times} x {result!r}' for times, result in self.sublayers)}>"

    def to_json(self) -> dict[str, Any]:
        return {"sublayers": [{"times": times, **result.to_json()} for times, result in self.sublayers]}


@dataclass(frozen=True)
class BesideRun:
    """A kernel beside copies of a stated rate."""

    copies_read_gb_per_s: float
    copies_write_gb_per_s: float
    kernel_ns: float
    slowdown: float  #: times the kernel's time alone
    event_slowdown: float  #: on the event level
    dram_bytes: dict[str, int]

    @property
    def error_points(self) -> float:
        """Percentage points of the time alone between the event level and the cycle level."""
        return 100 * (self.event_slowdown - self.slowdown)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"error_points": self.error_points}


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
    beside: BesideRun | None = None  #: beside copies, if that was asked for

    def __repr__(self) -> str:
        return f"<KernelRun {self.kernel} on {self.machine}: {self.kernel_ns / 1e3:,.1f} µs>"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gemm": self.gemm.to_json() if self.gemm else None,
                               "beside": self.beside.to_json() if self.beside else None}


@dataclass(frozen=True)
class CollectiveRun:
    """A collective alone on the cycle level, beside the event level."""

    collective: str  #: rs, ag, ar or a2a
    algorithm: str
    topology: str
    machine: str
    devices: int
    array_bytes: int  #: of each GPU
    collective_ns: float  #: launch included
    cycles: int
    gpus: tuple[GpuEnd, ...]  #: one if it is representative
    bounds_ns: dict[str, float]  #: what each resource alone would take, with the launch
    event_ns: float | None  #: None: GPUs are not alike, which the event level does not know
    words_compared: int | None  #: None: no numbers were carried
    host_seconds: float
    switch: dict[str, int] | None = None  #: what its RTL's tables counted, and the most sums in one; None: no RTL
    versions: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (f"<CollectiveRun {self.collective} by {self.algorithm} on {self.topology}, {self.devices} GPUs of "
                f"{self.machine}, {self.array_bytes:,} bytes: {self.collective_ns / 1e3:,.1f} µs>")

    @property
    def fullest(self) -> GpuEnd:
        """The GPU with the link that was busy longest."""
        return max(self.gpus, key=lambda gpu: gpu.link_busy)

    @property
    def limited_by(self) -> str:
        """The resource that alone would take longest."""
        return max(self.bounds_ns, key=lambda name: self.bounds_ns[name])

    @property
    def event_error(self) -> float | None:
        """Difference of the event level as a share of the time."""
        return None if self.event_ns is None else self.event_ns / self.collective_ns - 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"limited_by": self.limited_by, "event_error": self.event_error}


@dataclass(frozen=True)
class GpusSpeed:
    """Processor and wall seconds of the same cycles of a fused run, the least of some attempts each."""

    gpus: int
    cycles: int
    mirrored_seconds: float  #: of a core, of a representative GPU
    every_seconds: float  #: of a core, of all GPUs on one thread
    one_thread_seconds: float  #: all GPUs, from begin to end
    two_threads_seconds: float

    @property
    def over_mirrored(self) -> float:
        """A core's time for all GPUs over that for as many mirrored runs."""
        return self.every_seconds / (self.gpus * self.mirrored_seconds)

    @property
    def two_threads_over_one(self) -> float:
        """Speed of two threads over that of one; means little where other programs have the cores."""
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
class EventCase:
    """A collective on the event level."""

    what: str
    gpus: int
    simulated_gpus: int
    simulated_messages: int
    messages: int  #: of all GPUs
    seconds: float  #: of a core, from the request to the last arrival
    loop_seconds: float  #: of these in the compiled loop
    over_closed_form: float  #: share by which it takes longer than the closed form

    @property
    def messages_per_second(self) -> float:
        """Messages that the loop simulates in a second of a core."""
        return self.simulated_messages / self.loop_seconds

    @property
    def whole_messages_per_second(self) -> float:
        """Messages per second of a core, from the request on."""
        return self.simulated_messages / self.seconds


@dataclass(frozen=True)
class FirstRun:
    """Processor seconds of all cores, and seconds that passed, in a cache that was empty."""

    build_core_seconds: float  #: of the RTL alone: elaboration, C++ compiler
    build_seconds: float
    first_core_seconds: float  #: of a small sub-layer under all techniques, which compiles the loops
    first_seconds: float
    second_core_seconds: float  #: of the same again
    second_seconds: float


@dataclass(frozen=True)
class SimulatorSpeed:
    """A simulator on the top of a GPU's hardware alone."""

    simulator: str  #: `rtl` is the compiled RTL
    build_seconds: float  #: of cores
    cycles_per_second: dict[str, float]  #: of a core's time, by stimulus


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
    event: tuple[EventCase, ...] = ()  #: of engine `event`, which has no RTL
    rtl: tuple[SimulatorSpeed, ...] = ()  #: of engine `rtl` and the simulators beside it

    ENGINES = ("lockstep", "bare", "full", "gpus", "cocotb", "amaranth", "event", "whole", "first", "rtl")
    ON_REQUEST = ("event", "whole", "first", "rtl")  #: only if named
    SIMULATORS = ("verilator", "cxxrtl", "amaranth")  #: that can be beside engine `rtl`

    @property
    def lockstep_over_bare(self) -> float | None:
        """Share of a bare C++ loop's speed that is left with the models in the loop."""
        return self._ratio("lockstep", "bare")

    @property
    def bare_over_full(self) -> float | None:
        """The gain of evaluating what has changed alone."""
        return self._ratio("bare", "full")

    def _ratio(self, engine: str, other: str) -> float | None:
        speed = self.cycles_per_second
        return speed[engine] / speed[other] if {engine, other} <= speed.keys() else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "lockstep_over_bare": self.lockstep_over_bare, "bare_over_full": self.bare_over_full,
            "gpus": self.gpus.to_json() if self.gpus else None,
            "event": [asdict(case) | {"messages_per_second": case.messages_per_second,
                                      "whole_messages_per_second": case.whole_messages_per_second}
                      for case in self.event]}
