"""Kernels side by side on one GPU: what they take from each other follows from what each asks for.

A job has the time that it takes alone, and asks for bytes of the memory and of the wires over that time; a collective
of the library also holds compute units, which another kernel then lacks. While jobs run together, memory serves each as
much as it asks for or, if that is too much, by the units that ask; the GEMM's clock is lower by what power the moving
of bytes takes. When one has ended, the other goes on alone.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from t3sim.analytic.costs import kernel_costs
from t3sim.analytic.fair import fair_rates
from t3sim.analytic.gemm import BYTES, grouped_kernel
from t3sim.analytic.libraries.collectives import copies_ns, library_collective, triggered_ns
from t3sim.machine import Machine

#: What moves a collective's bytes: kernels on compute units, copy engines, Track & Trigger with near-memory addition.
MOVERS = ("units", "engines", "near-memory")
#: Fused attention's share of the rate that GEMMs sustain (FlashAttention-3, arXiv 2407.08608: 600 to 740 TFLOP/s of an
#: H100 forward, causal ones less).
ATTENTION_SHARE = 0.75
#: Queries of a block of fused attention (FlashAttention-2 and 3, heads of 128).
_QUERIES = 128


@dataclass(frozen=True)
class TimedJob:
    """Work that takes `ns` alone."""

    ns: float
    memory_bytes: float
    wire_bytes: float = 0.0
    units: int = 0  #: that others lack meanwhile
    clocked: bool = False  #: whether power takes from its pace


@dataclass(frozen=True)
class Together:
    """Two jobs side by side, ns from their start."""

    ns: float
    gemm_ns: float
    collective_ns: float
    bound: str  #: what held the GEMM up most


def gemm_job(machine: Machine, m: int, n: int, k: int, width: str = "bf16", held: int = 0) -> TimedJob:
    """Return a GEMM as a job; `held`: compute units that another kernel holds."""
    return grouped_job(machine, (m,), n, k, width, held)


def grouped_job(machine: Machine, rows: tuple[int, ...], n: int, k: int, width: str = "bf16",
                held: int = 0) -> TimedJob:
    """Return GEMMs of one kernel as a job; `rows`: of each, which has weights of its own."""
    kernel, bytes_, m = grouped_kernel(machine, rows, n, k, width), BYTES[width], sum(rows)
    # Tiles of a round share what they read: columns of a round of tiles, and its rows.
    high, wide = kernel.tile
    a_round = max(1.0, (kernel.units * high * wide / kernel.split) ** 0.5)
    reads = sum(bytes_ * k * one * n * (1 / min(one, a_round) + 1 / min(n, a_round)) for one in rows if one)
    ns = kernel.ns_beside(held) + machine.kernels.launch_ns
    asked = max(reads, bytes_ * k * (m + len(rows) * n)) + 2 * m * n
    # Alone it asks for no more than memory has: what tiles read again beyond that the cache holds.
    return TimedJob(ns, min(asked, machine.memory_bytes_per_ns * ns), clocked=True)


def stream_job(machine: Machine, memory_bytes: float) -> TimedJob:
    """Return a kernel that only moves data in memory as a job: units that are held do not slow it down."""
    return TimedJob(memory_bytes / machine.memory_bytes_per_ns + machine.kernels.launch_ns, memory_bytes)


def attention_job(machine: Machine, batch: int, heads: int, rows: int, width: int, held: int = 0) -> TimedJob:
    """Return fused attention as a job; a unit takes a block of queries, one after the other."""
    blocks, units = batch * heads * ceil(rows / _QUERIES), machine.gpu.compute_units
    flop = 4.0 * batch * heads * rows * rows * width
    ns = flop / (1e3 * machine.peak.bf16 * machine.sustained.bf16 * ATTENTION_SHARE)
    ns *= ceil(blocks / max(1, units - held)) / (blocks / units)
    return TimedJob(ns + machine.kernels.launch_ns, 8.0 * batch * heads * rows * width)


def collective_job(machine: Machine, kind: str, gpus: int, size: float, mover: str = "units",
                   library: str = "") -> TimedJob:
    """Return a collective as a job; `size`: bytes of the whole tensor; `mover`: of `MOVERS`."""
    passes, part = (2 if kind == "all_reduce" else 1), (gpus - 1) / gpus * size
    wires = passes * part
    if mover == "units":
        ns = library_collective(machine, kind, gpus, size, library=library).ns
        sums = part if kind in ("all_reduce", "reduce_scatter") else 0.0
        return TimedJob(ns, 2 * wires + sums, wires, min(machine.sharing.kernel_units, machine.gpu.compute_units - 1))
    if mover == "engines":
        return TimedJob(copies_ns(machine, kind, gpus, size), 2 * wires, wires)
    # A read per chunk that is sent on.
    return TimedJob(triggered_ns(machine, kind, gpus, size), 2 * wires, wires)


def shares(memory_bytes_per_ns: float, *asks: float) -> tuple[float, ...]:
    """Return the bytes per ns that each stream gets of a memory that serves streams in turn.

    One that asks for less than its turn gets all of it, as a copy whose pace is a link's; the others share the rest.
    """
    streams = np.arange(len(asks))
    rates = fair_rates(np.array([memory_bytes_per_ns, *asks]), flow=np.concatenate([streams, streams]),
                       resource=np.concatenate([0 * streams, 1 + streams]), weight=np.ones(2 * len(asks)),
                       flows=len(asks))
    return tuple(rates.tolist())


def slowed_by_copies(machine: Machine, ns: float, memory_bytes: float, read: float, written: float) -> float:
    """Return how many times as long a kernel of a machine of the cycle level takes beside copies that do not end.

    `ns`, `memory_bytes`: of the kernel alone; `read`, `written`: by copies, bytes per ns.
    """
    asks, copied = memory_bytes / ns, [one for one in (read, written) if one]
    memory = kernel_costs(machine).memory_bytes_per_ns  # less the turns of the bus between reads and writes
    return asks / shares(memory if written else max(memory, asks), asks, *copied)[0]


def memory_paces(machine: Machine, asks: float, copied: float, units: int) -> tuple[float, float]:
    """Return the paces, of what it takes alone, of a kernel and of copies that share the memory.

    `asks`, `copied`: bytes per ns; `units`: that copy. What both ask for and cannot have goes by the units that ask:
    each keeps about as many requests in flight. Engines count as one unit, so that no kernel keeps them from memory.
    """
    rate, others = machine.memory_bytes_per_ns, machine.gpu.compute_units - units
    kernel = max(rate - copied, rate * others / (others + max(1, units)))
    return min(1.0, kernel / asks), min(1.0, max(rate - asks, rate - kernel) / copied) if copied else 1.0


def side_by_side(machine: Machine, whole: TimedJob, held: TimedJob, collective: TimedJob) -> Together:
    """Play a kernel beside a collective; `whole`, `held`: the kernel with all units, and with those that are left."""
    asks, copied = held.memory_bytes / held.ns, collective.memory_bytes / collective.ns
    memory_pace, collective_pace = memory_paces(machine, asks, copied, collective.units)
    power = 1 - machine.sharing.power_share if whole.clocked else 1.0
    gemm_pace = memory_pace * power
    gemm_alone, collective_alone = held.ns / gemm_pace, collective.ns / collective_pace
    if gemm_alone <= collective_alone:
        left = 1 - gemm_alone / collective_alone
        gemm_end, end = gemm_alone, gemm_alone + left * collective.ns
    else:
        left = 1 - collective_alone / gemm_alone
        gemm_end = collective_alone + left * whole.ns
        end = collective_alone
    losses = {"compute units": held.ns / whole.ns, "memory": 1 / memory_pace, "power": 1 / power}
    return Together(max(gemm_end, end), gemm_end, end, max(losses, key=losses.__getitem__))


def beside(machine: Machine, shape: tuple[int, int, int], width: str, collective: TimedJob) -> Together:
    """Play a GEMM m x n x k beside a collective."""
    whole = gemm_job(machine, *shape, width)
    return side_by_side(machine, whole, gemm_job(machine, *shape, width, collective.units), collective)
