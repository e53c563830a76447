"""Ring collectives alone: on the whole GPU or on some of its compute units, one GPU for all (mirrored) or all of them.

The T3 paper's section 5.1.1 (figures 13 and 14), the baselines of section 5.3, and the CU sharing of figure 6.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .. import topologies
from ..agents.compute_units import set_condition
from ..agents.units.state import Condition
from ..collectives import ring
from ..engine.end import IDLE_LIMIT, RUNNING, STUCK
from ..engine.loop import Lockstep
from ..engine.state import Sim
from ..errors import BadInput, Failure
from ..fabric import memory
from ..machine import Machine
from ..machine.cycle import Link
from ..mechanisms import baseline
from ..workloads import DEVICES, Workload
from . import build, switch_kernels

BATCH_CYCLES = 200_000  #: between looks at progress


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
    """Return the machine with another number of compute units (T3 paper, section 3.2.1). Raises BadInput."""
    if compute_units < 1:
        raise BadInput(f"{compute_units} compute units cannot run a kernel: at least 1 is needed")
    content = machine.model_dump()
    content["gpu"]["compute_units"] = compute_units
    return Machine.model_validate(content)


def collective_sim(machine: Machine, size_bytes: int, devices: int, kind: str, mirrored: bool = True,
                   links: Mapping[tuple[int, int], Link] = MappingProxyType({}),
                   conditions: Mapping[int, Condition] = MappingProxyType({})) -> Sim:
    """Make the state at cycle 0 of a collective on an array of `size_bytes`; arguments as for `run_collective`."""
    known = (*baseline.KINDS, baseline.EXCHANGE, *switch_kernels.KINDS)
    if kind not in known:
        raise BadInput(f"collective {kind!r} is unknown: allowed are {', '.join(known)}")
    if devices not in DEVICES:
        raise BadInput(f"{devices!r} devices cannot form the ring: allowed are {DEVICES.start} to {DEVICES.stop - 1}")
    if size_bytes < 1:
        raise BadInput(f"an array of {size_bytes} bytes cannot be reduced or gathered")
    if kind in switch_kernels.KINDS:
        return switch_kernels.switched_sim(machine, size_bytes, devices, kind)
    copy_base = -(-size_bytes // (1 << 20)) + devices << 20
    if kind == baseline.EXCHANGE:
        if not mirrored or links or conditions:
            raise BadInput("an all-to-all alone has one GPU that stands for all: no GPU or link can be slower than the "
                           "others")
        chunk_bytes = -(-size_bytes // devices)
        passes = baseline.exchange_passes(devices, chunk_bytes, 0, copy_base)
        kernel = build.copy_units(machine, build.copy_kernel(machine, passes, chunk_bytes), memory.REDUCE_SCATTER)
        return build.machine_state(machine, kernel, build.loop_network(machine), [0])
    program = ring.all_gather(devices, step=1) if kind == "all-gather" else ring.reduce_scatter(devices, step=1)
    steps = baseline.plan_steps(program, mirrored)
    kernel = build.copy_units(machine, build.ring_copy(machine, size_bytes, steps, kind, 0, copy_base),
                                   memory.ALL_GATHER if kind == "all-gather" else memory.REDUCE_SCATTER)
    for device, condition in conditions.items():
        set_condition(kernel, device, condition)
    network = build.loop_network(machine) if mirrored else build.network_of(machine, topologies.ring(devices), links)
    return build.machine_state(machine, kernel, network, steps.downstream)


def run_collective(machine: Machine, size_bytes: int, devices: int, kind: str, mirrored: bool = True,
                   progress: Callable[[float], None] = lambda fraction: None,
                   links: Mapping[tuple[int, int], Link] = MappingProxyType({}),
                   conditions: Mapping[int, Condition] = MappingProxyType({})) -> Collective:
    """Simulate a collective on the machine's compute units: around a ring, an all-to-all directly, or in a switch.

    `size_bytes` is the whole array (before a reduce-scatter, after an all-gather), `kind` reduce-scatter,
    reduce-scatter-nmc, all-gather, all-to-all or one of `switch_kernels.KINDS`. Mirrored: one GPU stands for all; else
    every GPU is simulated, over `links` (of source and destination) where they are not the machine's. Raises BadInput.
    """
    return run_kernel(machine, collective_sim(machine, size_bytes, devices, kind, mirrored, links, conditions),
                      kind, progress)


def run_kernel(machine: Machine, sim: Sim, kind: str, progress: Callable[[float], None]) -> Collective:
    """Simulate a collective's kernel to its end; `kind`: what a message calls it. Raises Failure."""
    started, clock = time.perf_counter(), machine.memory_clock_ghz
    run = Lockstep(sim)
    ends = run.sim.kernel.state.phase_over
    while (state := run.advance(BATCH_CYCLES)) == RUNNING:
        progress(min(0.99, float(run.sim.kernel.state.phase.min()) / ends.shape[1]))
    if state == STUCK:
        raise Failure(f"the isolated {kind} did not move for {IDLE_LIMIT} cycles")
    last = np.flatnonzero(sim.kernel.work.arrivals.any(axis=0))[-1]  # pass of which something comes
    exchange = int(ends[:, last].max())
    return Collective(run.now / clock + machine.collective.kernel_launch_ns, exchange / clock, run.now,
                      time.perf_counter() - started,
                      memory.bytes_by_purpose(run.sim.mem))


def collective_time(machine: Machine, workload: Workload, kind: str, compute_units: int | None = None) -> float:
    """Return the time in ns of a collective on the workload's output, alone on `compute_units` (None: all).

    `kind`: reduce-scatter, reduce-scatter-nmc, all-gather; an all-reduce is the sum of the first and the last (T3
    paper, figure 6). Raises BadInput.
    """
    if compute_units is not None:
        machine = with_compute_units(machine, compute_units)
    return run_collective(machine, workload.output_bytes, workload.tp, kind).ns


def ring_time_ns(machine: Machine, size_bytes: int, devices: int) -> float:
    """Return the exchange's time in closed form: (N-1)/N of the array over the link, and N-1 latencies."""
    return (devices - 1) * (size_bytes / devices / machine.link.bandwidth_gb_per_s + machine.link.latency_ns)


def reduce_scatter_sizes(machine: Machine, sizes_bytes: Iterable[int], devices: int = 4) -> list[RingSize]:
    """Time reduce-scatters of several sizes (T3 paper, figure 14), mirrored and with all GPUs simulated.

    `closed_form_ns` is `ring_time_ns`: neither launch nor last pass. Raises BadInput.
    """
    return [RingSize(size, run_collective(machine, size, devices, "reduce-scatter").ns,
                     run_collective(machine, size, devices, "reduce-scatter", mirrored=False).ns,
                     ring_time_ns(machine, size, devices)) for size in sizes_bytes]
