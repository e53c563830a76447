"""Ring collectives alone: on the whole GPU or on some of its compute units, one GPU for all (mirrored) or all of them.

The T3 paper's section 5.1.1 (figures 13 and 14), the baselines of section 5.3, and the CU sharing of figure 6.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from . import bits, memory, queues, ring_kernel, simulation
from . import link as links
from .by_reference import by_reference
from .collectives import ring
from .errors import BadInput, Failure
from .hbm import HbmState, make_hbm
from .jit import compiled
from .lockstep import deliver
from .machine import Machine
from .memory_map import MemoryMap, memory_map
from .workloads import DEVICES, Workload

BATCH_CYCLES = 200_000  #: between looks at progress; a run in which nothing moves for as long has a fault


class CollectiveSim(NamedTuple):
    """All state of a collective kernel; arrays per simulated device (or memory channel of one)."""

    b: bits.RequestBits
    m: MemoryMap
    hbm: HbmState
    mem: memory.MemoryState
    compute: queues.RequestQueue
    inbound: queues.RequestQueue
    link: links.LinkState
    link_shape: links.LinkShape
    ring: ring_kernel.RingState
    ring_shape: ring_kernel.RingShape
    downstream: np.ndarray  # int64 [device]: that it sends to
    phase: int
    fill_cycles: int


class Collective(NamedTuple):
    """A collective that has run. Times from the launch of its kernel."""

    ns: float  #: to the end of the last device, with the launch
    exchange_ns: float  #: the steps in which data are sent, without the launch
    cycles: int  #: simulated
    host_seconds: float
    dram: dict[str, int]  #: bytes at the first GPU's DRAM by purpose


class RingSize(NamedTuple):
    """One size of the T3 paper's figure 14; times in ns."""

    size_bytes: int
    mirrored_ns: float
    all_gpus_ns: float
    closed_form_ns: float


def with_compute_units(machine: Machine, compute_units: int) -> Machine:
    """The machine with another number of compute units (T3 paper, section 3.2.1). Raises BadInput."""
    if compute_units < 1:
        raise BadInput(f"{compute_units} compute units cannot run a kernel: at least 1 is needed")
    content = machine.model_dump()
    content["gpu"]["compute_units"] = compute_units
    return Machine.model_validate(content)


def collective_sim(machine: Machine, size_bytes: int, devices: int, kind: str, mirrored: bool = True) -> CollectiveSim:
    """State at cycle 0 of a ring collective on an array of `size_bytes`; arguments as for `run_collective`."""
    if kind not in ring_kernel.KINDS:
        raise BadInput(f"collective {kind!r} is unknown: allowed are {', '.join(ring_kernel.KINDS)}")
    if devices not in DEVICES:
        raise BadInput(f"{devices!r} devices cannot form the ring: allowed are {DEVICES.start} to {DEVICES.stop - 1}")
    if size_bytes < devices:
        raise BadInput(f"an array of {size_bytes} bytes cannot be cut into {devices} chunks")
    geometry, clock = machine.geometry(), machine.memory_clock_ghz
    simulated, channels = 1 if mirrored else devices, geometry.channel.channels
    copy_base = -(-size_bytes // (1 << 20)) + devices << 20
    shape = ring_kernel.make_shape(machine, size_bytes, devices, kind, 0, copy_base)
    program = ring.all_gather(devices, step=1) if kind == "all-gather" else ring.reduce_scatter(devices, step=1)
    steps = ring_kernel.plan_steps(program, mirrored)
    link_shape = simulation.link_shape(machine)
    return CollectiveSim(
        b=bits.request_bits(geometry), m=memory_map(geometry.channel),
        hbm=make_hbm(machine.dram, simulated * channels),
        mem=memory.make_memory(simulated, channels, machine.dram.queue_entries),
        compute=queues.request_queue(simulated * channels), inbound=queues.request_queue(simulated * channels),
        link=links.make_link(simulated, link_shape), link_shape=link_shape,
        ring=ring_kernel.make_ring(shape, steps), ring_shape=shape, downstream=np.array(steps.downstream),
        phase=memory.ALL_GATHER if kind == "all-gather" else memory.REDUCE_SCATTER,
        fill_cycles=round(machine.llc.fill_latency_ns * clock))


@compiled
def advance(s, now, cycles):
    """At most `cycles` memory cycles of all simulated devices; (next cycle, whether all is done)."""
    s = by_reference(s)
    devices, end = len(s.ring.step), now + cycles
    fills = s.mem.fills
    while now < end:
        for d in range(devices):
            memory.direct_cycle(s.mem, s.hbm, s.compute, s.inbound, s.b, s.m, d, now, s.phase, s.fill_cycles)
            while fills.count[d] > 0 and fills.time[d, fills.head[d]] <= now:
                ring_kernel.ring_returned(s.ring, s.ring_shape, d, fills.lo[d, fills.head[d]], now)
                queues.pop_timed(fills, d)
            ring_kernel.ring_cycle(s.ring, s.ring_shape, s.link, s.link_shape, s.compute, s.m, s.b, d, now)
            deliver(s, d, s.downstream[d], now)
        now += 1
        if now & 63 == 0 and done(s):
            return now, True
    return now, False


@compiled
def done(s):
    """Whether every device is through and nothing is under way any more."""
    for d in range(len(s.ring.step)):
        if s.ring.step[d] < s.ring_shape.devices or s.link.flight.count[d]:
            return False
    for row in range(len(s.compute.count)):
        if s.hbm.occupancy[row] or s.compute.count[row] or s.inbound.count[row]:
            return False
    return True


def run_collective(machine: Machine, size_bytes: int, devices: int, kind: str, mirrored: bool = True,
                   progress: Callable[[float], None] = lambda fraction: None) -> Collective:
    """Simulate a ring collective on the machine's compute units.

    `size_bytes` is the whole array (before a reduce-scatter, after an all-gather), `kind` reduce-scatter,
    reduce-scatter-nmc or all-gather. Mirrored: one GPU stands for all; else every GPU is simulated. Raises BadInput.
    """
    started, clock = time.perf_counter(), machine.memory_clock_ghz
    sim = collective_sim(machine, size_bytes, devices, kind, mirrored)
    now, complete, moved = 0, False, -1
    while not complete:
        now, complete = advance(sim, now, BATCH_CYCLES)
        before, moved = moved, int(sim.mem.total_bytes.sum() + sim.link.sent_bytes.sum())
        if moved == before and not complete:
            raise Failure(f"the isolated {kind} did not move for {BATCH_CYCLES} cycles")
        progress(min(0.99, float(sim.ring.step.min()) / devices))
    exchange = int(sim.ring.step_end[:, devices - 2].max())
    return Collective((now / clock) + machine.collective.kernel_launch_ns, exchange / clock, now,
                      time.perf_counter() - started,
                      {name: int(count) for name, count in zip(memory.PURPOSES, sim.mem.total_bytes[0])})


def collective_time(machine: Machine, workload: Workload, kind: str, compute_units: int | None = None) -> float:
    """Time in ns of a collective on the workload's output, alone on `compute_units` (None: all) compute units.

    `kind`: reduce-scatter, reduce-scatter-nmc, all-gather; an all-reduce is the sum of the first and the last (T3
    paper, figure 6). Raises BadInput.
    """
    if compute_units is not None:
        machine = with_compute_units(machine, compute_units)
    return run_collective(machine, workload.output_bytes, workload.tp, kind).ns


def ring_time_ns(machine: Machine, size_bytes: int, devices: int) -> float:
    """Closed form of the exchange: (N-1)/N of the array over the link, and N-1 latencies."""
    return (devices - 1) * (size_bytes / devices / machine.link.bandwidth_gb_per_s + machine.link.latency_ns)


def reduce_scatter_sizes(machine: Machine, sizes_bytes: Iterable[int], devices: int = 4) -> list[RingSize]:
    """Reduce-scatter of arrays of several sizes (T3 paper, figure 14), mirrored and with all GPUs simulated.

    `closed_form_ns` is `ring_time_ns`: neither launch nor last pass. Raises BadInput.
    """
    return [RingSize(size, run_collective(machine, size, devices, "reduce-scatter").ns,
                     run_collective(machine, size, devices, "reduce-scatter", mirrored=False).ns,
                     ring_time_ns(machine, size, devices)) for size in sizes_bytes]
