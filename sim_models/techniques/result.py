"""Result of a technique, as a dataclass."""

from dataclasses import dataclass, field
from typing import Any

#: The technique over which speedups are given.
BASELINE = "sequential"

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
