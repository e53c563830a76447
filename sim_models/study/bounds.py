"""Bounds of a technique: how busy GEMM, link and DRAM are while the GEMM and its collective run, and what held it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from t3sim.machine import Machine
from t3sim.mechanisms.result import TechniqueResult
from t3sim.runs.exchange import Exchange
from t3sim.runs.phases import PACKING
from t3sim.workload.workloads import Workload

_FULL = 0.9  #: share of the time from which on a resource is what bounds a run
_NOTABLE = 0.005  #: share of the time from which on waiting is worth a word
_RESOURCES = {"gemm": "the GEMM", "link": "the link", "dram": "DRAM"}
#: Causes of lost time, as they bound a run of which no resource is full.
_CAUSES = {
    "window_blocked": "the dispatch window",
    "inputs_not_there": "the all-gather: inputs that have not come", "store_to_link": "stores that wait for the link",
    "link_tail": "the collective after the GEMM", "store_to_memory": "stores that wait for memory",
    "launch_and_compute": "launches", "idle_units": "units without work",
    "read_stall_by_gemm_reads": "the GEMM's own loads", "read_stall_by_gemm_writes": "the GEMM's own stores",
    "read_stall_by_rs_reads": "arbitration: loads that wait for reads for DMA",
    "read_stall_by_rs_writes": "arbitration: loads that wait for arriving writes",
    "communication_units": "compute units that communication has", "kernel_launches": "launches of kernels",
    "wave_tails": "last waves of split GEMMs", "local_reduction": "the reduction after the GEMM",
    "flags_polled": "flags that are not set",
}


@dataclass(frozen=True)
class Bound:
    """Shares of the time in which GEMM and collective overlap, 0 to 1."""

    gemm: float  #: that the GEMM takes alone
    link: float  #: that the collective's bytes take on the link
    dram: float  #: that all bytes take at DRAM's peak
    words: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def who_waits(gpus: Sequence[Mapping[str, float]], total_ns: float, producer: str = "GEMM") -> str:
    """Say in a sentence which GPU or link the GPUs of a run wait for.

    `gpus`: as in `TechniqueResult`; `producer`: the name of the kernel that makes the output. A link that is full holds
    all; else the GPU whose own work ends last.
    """
    sender = max(range(len(gpus)), key=lambda gpu: gpus[gpu]["link_busy"])
    busy = gpus[sender]["link_busy"]
    if busy >= _FULL and min(gpu_times["link_busy"] for gpu_times in gpus) < _FULL:
        link = f"GPU {sender} to GPU {gpus[sender]['link_to']}"
        return f"All GPUs wait for the link from {link}, which is busy {busy:.0%}."
    ends, notable_ns = [gpu_times["gemm_end_ns"] for gpu_times in gpus], _NOTABLE * total_ns
    last = [gpu for gpu, end in enumerate(ends) if end >= max(ends) - notable_ns]
    lag_ns = min(ends[gpu] for gpu in last) - max((end for gpu, end in enumerate(ends) if gpu not in last),
                                                  default=max(ends))
    held_gpu = max(range(len(gpus)), key=lambda gpu: gpus[gpu]["window_held_ns"])
    held_ns = gpus[held_gpu]["window_held_ns"]
    window_text = (f" The window held free compute units for up to {held_ns / 1e3:,.1f} µs (GPU {held_gpu})."
                   if held_ns > notable_ns else "")
    if lag_ns > notable_ns:
        last_gpus = (f"GPU {last[0]}, whose {producer} ends" if len(last) == 1 else
                     f"GPUs {', '.join(map(str, last))}, whose {producer}s end")
        return f"All GPUs wait for {last_gpus} {lag_ns / 1e3:,.1f} µs after any other.{window_text}"
    return (f"No GPU waits long for another's {producer}: they end within {(max(ends) - min(ends)) / 1e3:,.1f} µs."
            f"{window_text}")


def bound_of(technique: TechniqueResult, base: TechniqueResult, machine: Machine, workload: Workload,
             exchange: Exchange) -> Bound:
    """Return what bounds a technique that overlaps something; `base`: the sequential one, which has the GEMM alone."""
    gathers = "all-gather" in exchange.hides
    time_ns = technique.total_ns - technique.packing_ns - (0.0 if gathers else technique.ag_ns)
    other_phases = (PACKING,) if gathers else (PACKING, "ag")
    memory_bytes = sum(sum(moved) for phase, moved in technique.moved.items() if phase not in other_phases)
    shares = {"gemm": base.gemm_ns / time_ns,
              "link": exchange.link_bytes(workload) / machine.link.bandwidth_gb_per_s / time_ns,
              "dram": memory_bytes / machine.dram_peak_bytes_per_ns / time_ns}
    fullest = max(shares, key=shares.__getitem__)
    losses_ns = {cause: ns for cause, ns in technique.loss_ns.items() if cause in _CAUSES and ns > 0}
    if shares[fullest] >= _FULL or not losses_ns:
        words = _RESOURCES[fullest]
    else:
        words = _CAUSES[max(losses_ns, key=losses_ns.__getitem__)]
    words = words.replace("GEMM", workload.producer).replace("all-gather", exchange.hides[-1])
    return Bound(**shares, words=words)
