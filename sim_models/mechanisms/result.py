"""Result of a technique, as a dataclass."""

from dataclasses import dataclass
from typing import Any

from t3sim.runs.kernel_results import HardwareReport
from t3sim.runs.phases import PACKING, Moved, by_stream

#: The technique over which speedups are given.
BASELINE = "sequential"

#: Keys of `TechniqueResult.dram`: who moved the bytes, and in which direction. A stream has a name of this form.
DRAM_STREAMS = ("gemm_read", "gemm_write", "rs_read", "rs_write", "ag_read", "ag_write")


@dataclass(frozen=True)
class Tried:
    """A choice of a technique, and its time with it."""

    options: dict[str, Any]  #: by name
    ns: float


@dataclass(frozen=True)
class TechniqueResult:
    """One technique on one workload. Where phases overlap, their sum exceeds `total_ns`."""

    name: str
    total_ns: float
    phases_ns: dict[str, float]  #: by name, in their order
    moved: dict[str, Moved]  #: at one GPU's DRAM, by phase: `gemm`, `rs`
    mc_cycles: int  #: memory-controller cycles simulated
    rtl_in_loop: bool
    host_seconds: float
    loss_ns: dict[str, float]  #: cause: time that was not hidden because of it
    hardware: HardwareReport | None = None  #: if the RTL was in the loop
    tried: tuple[Tried, ...] = ()  #: of which the fastest is the result
    gpus: tuple[dict[str, float], ...] = ()  #: of each, if every one was simulated; times in ns from the first start

    def __repr__(self) -> str:
        phases = "".join(f", {phase} {ns / 1e3:,.1f}" for phase, ns in self.phases_ns.items())
        return f"<TechniqueResult {self.name}: {self.total_ns / 1e3:,.1f} µs{phases}>"

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
    def packing_ns(self) -> float:
        """Time of packing what is dispatched, which no mechanism hides."""
        return self.phases_ns.get(PACKING, 0.0)

    @property
    def streams_bytes(self) -> dict[str, int]:
        """Bytes at one GPU's DRAM by stream: `gemm_read`."""
        return by_stream(self.moved)

    @property
    def dram(self) -> dict[str, int]:
        """Bytes by stream of a GEMM, a reduce-scatter and an all-gather, also of streams that moved nothing."""
        return {stream: self.streams_bytes.get(stream, 0) for stream in DRAM_STREAMS}

    @property
    def cycles_per_second(self) -> float | None:
        """Simulation speed; None for what was computed without simulating."""
        return self.mc_cycles / self.host_seconds if self.mc_cycles and self.host_seconds > 0 else None

    def _details(self) -> dict[str, Any]:
        if self.hardware is not None:
            return self.hardware.to_json()
        if not self.tried:
            return {}
        best = min(self.tried, key=lambda one: one.ns)
        return {"choice": best.options, "tried": [{**one.options, "ns": one.ns} for one in self.tried]}

    def to_json(self) -> dict[str, Any]:
        return {
            "total_ns": self.total_ns, "gemm_ns": self.gemm_ns, "rs_ns": self.rs_ns, "ag_ns": self.ag_ns,
            "dram": self.dram, "phases_ns": dict(self.phases_ns), "streams_bytes": self.streams_bytes,
            "mc_cycles": self.mc_cycles, "rtl_in_loop": self.rtl_in_loop, "host_seconds": self.host_seconds,
            "loss_ns": dict(self.loss_ns), "details": self._details(),
            **({"gpus": list(self.gpus)} if self.gpus else {}),
        }
