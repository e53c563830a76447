"""Results of the kernels that techniques are made of."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from t3sim.runs.phases import Moved

Progress = Callable[[float], None]

@dataclass(frozen=True)
class Traffic:
    """DRAM bytes of one GPU over time: [window][purpose], purposes as in `PURPOSES`."""

    window_cycles: int
    windows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class IsolatedKernel:
    """A kernel alone on the whole GPU."""

    ns: float  #: launch included
    simulated_cycles: int
    dram: dict[str, Moved]  #: by phase
    unit_cycles: tuple[int, ...] = ()  #: of a GEMM: per state, all units
    waited: tuple[int, ...] = ()  #: of a GEMM: requests served while its reads waited, per purpose
    start_ns: float = 0.0  #: of a GEMM: how much later than others its GPU starts
    exchange_ns: float = 0.0  #: of a collective: the steps in which data are sent
    traffic: Traffic | None = None
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class HardwareReport:
    """Counters of the RTL, and choices of hardware and driver, of the GPU for which the others wait."""

    rtl_counters: dict[str, int]  #: by their registers' names
    chosen_threshold: int  #: lines, `NO_THRESHOLD` for none
    producer_mean_occupancy: float  #: of the DRAM queue under the GEMM alone, lines
    slices: int  #: of the GEMM's inputs, for its cache
    staged_first_chunk: bool
    largest_wg_offset: int
    window_blocked_cycles: int
    last_tile_cycle: int
    window_heads: int  #: packets with the dispatch window's head, sent to the GPUs that send to this one
    switch_sum_bytes: int | None = None  #: most at a port of a switch that adds

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FusedResult:
    """A GEMM and a collective fused on the RTL; memory cycles."""

    gemm_cycles: int  #: until the last workgroup has finished
    cycles: int  #: until the last tile has arrived at its owner
    rs_start: int  #: cycle of the first packet
    dram: dict[str, Moved]  #: by phase
    unit_cycles: tuple[int, ...]
    waited: tuple[int, ...]
    units: int  #: workgroups that the GPU runs at once
    hardware: HardwareReport
    traffic: Traffic | None = None
    gpus: tuple[dict[str, int | float], ...] = ()  #: as in `TechniqueResult`
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class OverlappedKernels:
    """A GEMM and the kernels of its reduce-scatter on one GPU; memory cycles from the GEMM's first workgroup."""

    gemm_cycles: int  #: until the last workgroup has finished
    cycles: int  #: until the last sum is stored
    collective_start: int  #: cycle of its first kernel's first workgroup
    launch_cycles: int  #: while units wait for a launch, between GEMMs or before the reduction
    dram: dict[str, Moved]  #: by phase
    unit_cycles: tuple[int, ...]  #: of the GEMM's places: per state, all of them
    waited: tuple[int, ...]  #: requests served while the GEMM's reads waited, per purpose
    places: int  #: workgroups of the GEMM that run at once
    simulated_cycles: int
    collective_end: int = 0  #: of one before the GEMM: when all copies are in the link's buffer
    reduction_cycles: int = 0  #: of a kernel that adds what came, after all of it has come
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class GpuEnd:
    """End of a GPU's work in a collective alone."""

    end_ns: float  #: of its kernel, with the launch, from the launch on the first GPU
    read_bytes: int  #: by DRAM
    written_bytes: int
    sent_bytes: int  #: over its link that was busy longest
    link_to: int  #: node where that leads; switches are numbered after GPUs
    link_busy: float  #: share of the time without the launch


KernelResult = IsolatedKernel | FusedResult | OverlappedKernels
