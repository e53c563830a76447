"""Concurrent kernels on one GPU: their slowdown follows from each one's demand.

A job has a time alone, and moves bytes of memory and wires over that time. A library's collective also holds compute
units, which another kernel then lacks. While jobs run together, memory serves each one's demand or, if that is too
much, shares its bandwidth by the units that issue requests. The GEMM's clock is lower because of the power of data
movement. When one job has ended, the other continues alone.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from t3sim.analytic.costs import kernel_costs
from t3sim.analytic.fair import fair_rates
from t3sim.analytic.gemm import BYTES, grouped_kernel
from t3sim.analytic.libraries.collectives import copies_ns, library_collective, triggered_ns
from t3sim.machine import Machine

#: Movers of a collective's bytes: kernels on compute units, copy engines, Track & Trigger with near-memory addition.
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


def gemm_job(machine: Machine, m: int, n: int, k: int, width: str = "bf16", held_units: int = 0) -> TimedJob:
    """Return a GEMM as a job; `held_units`: compute units that another kernel holds."""
    return grouped_job(machine, (m,), n, k, width, held_units)


def grouped_job(machine: Machine, rows: tuple[int, ...], n: int, k: int, width: str = "bf16",
                held_units: int = 0) -> TimedJob:
    """Return GEMMs of one kernel as a job; `rows`: of each, which has weights of its own."""
    kernel, bytes_, m = grouped_kernel(machine, rows, n, k, width), BYTES[width], sum(rows)
    # Tiles of a round share their reads of its rows and columns.
    tile_m, tile_n = kernel.tile
    round_edge = max(1.0, (kernel.units * tile_m * tile_n / kernel.split) ** 0.5)
    read_bytes = sum(bytes_ * k * one * n * (1 / min(one, round_edge) + 1 / min(n, round_edge)) for one in rows if one)
    ns = kernel.ns_beside(held_units) + machine.kernels.launch_ns
    memory_bytes = max(read_bytes, bytes_ * k * (m + len(rows) * n)) + 2 * m * n
    # Alone its demand is at most the memory's rate: the cache serves further repeated reads of tiles.
    return TimedJob(ns, min(memory_bytes, machine.memory_bytes_per_ns * ns), clocked=True)


def stream_job(machine: Machine, memory_bytes: float) -> TimedJob:
    """Return a kernel that only moves data in memory as a job: units that are held do not slow it down."""
    return TimedJob(memory_bytes / machine.memory_bytes_per_ns + machine.kernels.launch_ns, memory_bytes)


def attention_job(machine: Machine, batch: int, heads: int, rows: int, width: int, held_units: int = 0) -> TimedJob:
    """Return fused attention as a job; a unit takes a block of queries, one after the other."""
    blocks, units = batch * heads * ceil(rows / _QUERIES), machine.gpu.compute_units
    flop = 4.0 * batch * heads * rows * rows * width
    ns = flop / (1e3 * machine.peak.bf16 * machine.sustained.bf16 * ATTENTION_SHARE)
    ns *= ceil(blocks / max(1, units - held_units)) / (blocks / units)
    return TimedJob(ns + machine.kernels.launch_ns, 8.0 * batch * heads * rows * width)


def collective_job(machine: Machine, kind: str, gpus: int, size: float, mover: str = "units",
                   library: str = "") -> TimedJob:
    """Return a collective as a job; `size`: bytes of the whole tensor; `mover`: of `MOVERS`."""
    passes, part = (2 if kind == "all_reduce" else 1), (gpus - 1) / gpus * size
    wire_bytes = passes * part
    if mover == "units":
        ns = library_collective(machine, kind, gpus, size, library=library).ns
        sum_bytes = part if kind in ("all_reduce", "reduce_scatter") else 0.0
        units = min(machine.sharing.kernel_units, machine.gpu.compute_units - 1)
        return TimedJob(ns, 2 * wire_bytes + sum_bytes, wire_bytes, units)
    if mover == "engines":
        return TimedJob(copies_ns(machine, kind, gpus, size), 2 * wire_bytes, wire_bytes)
    # A read per chunk that is sent on.
    return TimedJob(triggered_ns(machine, kind, gpus, size), 2 * wire_bytes, wire_bytes)


def shares(memory_bytes_per_ns: float, *demands: float) -> tuple[float, ...]:
    """Return the rate of each stream, bytes per ns, of a memory that serves streams in turn.

    A stream with a demand below its share gets all of it, such as a copy at a link's pace; the others share the rest.
    """
    streams = np.arange(len(demands))
    rates = fair_rates(np.array([memory_bytes_per_ns, *demands]), flow=np.concatenate([streams, streams]),
                       resource=np.concatenate([0 * streams, 1 + streams]), weight=np.ones(2 * len(demands)),
                       flows=len(demands))
    return tuple(rates.tolist())


def slowed_by_copies(machine: Machine, ns: float, memory_bytes: float, read_rate: float, write_rate: float) -> float:
    """Return the slowdown of a cycle-level machine's kernel during endless copies.

    `ns`, `memory_bytes`: of the kernel alone; `read_rate`, `write_rate`: of the copies, bytes per ns.
    """
    demand, copy_demands = memory_bytes / ns, [rate for rate in (read_rate, write_rate) if rate]
    capacity = kernel_costs(machine).memory_bytes_per_ns  # without bus turnarounds between reads and writes
    return demand / shares(capacity if write_rate else max(capacity, demand), demand, *copy_demands)[0]


def memory_paces(machine: Machine, demand: float, copy_demand: float, units: int) -> tuple[float, float]:
    """Return the paces, relative to running alone, of a kernel and of copies that share the memory.

    `demand`, `copy_demand`: bytes per ns; `units`: that copy. Memory bandwidth is shared in proportion to the requests
    that units keep in flight. Engines count as one unit, so that no kernel can starve them.
    """
    rate, kernel_units = machine.memory_bytes_per_ns, machine.gpu.compute_units - units
    copiers = units * machine.sharing.copier_requests or 1
    kernel = max(rate - copy_demand, rate * kernel_units / (kernel_units + copiers))
    return min(1.0, kernel / demand), min(1.0, max(rate - demand, rate - kernel) / copy_demand) if copy_demand else 1.0


def side_by_side(machine: Machine, alone: TimedJob, with_held_units: TimedJob, collective: TimedJob) -> Together:
    """Play a kernel concurrently with a collective; `alone`: with all units; `with_held_units`: with the others."""
    demand, copy_demand = with_held_units.memory_bytes / with_held_units.ns, collective.memory_bytes / collective.ns
    memory_pace, collective_pace = memory_paces(machine, demand, copy_demand, collective.units)
    power = 1 - machine.sharing.power_share if alone.clocked else 1.0
    gemm_pace = memory_pace * power
    gemm_alone, collective_alone = with_held_units.ns / gemm_pace, collective.ns / collective_pace
    if gemm_alone <= collective_alone:
        remaining = 1 - gemm_alone / collective_alone
        gemm_end, end = gemm_alone, gemm_alone + remaining * collective.ns
    else:
        remaining = 1 - collective_alone / gemm_alone
        gemm_end = collective_alone + remaining * alone.ns
        end = collective_alone
    losses = {"compute units": with_held_units.ns / alone.ns, "memory": 1 / memory_pace, "power": 1 / power}
    return Together(max(gemm_end, end), gemm_end, end, max(losses, key=losses.__getitem__))


def beside(machine: Machine, shape: tuple[int, int, int], width: str, collective: TimedJob) -> Together:
    """Play a GEMM m x n x k beside a collective."""
    alone = gemm_job(machine, *shape, width)
    return side_by_side(machine, alone, gemm_job(machine, *shape, width, collective.units), collective)
