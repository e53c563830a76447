"""Ring collectives as kernels on the compute units: the sequential baselines, and the all-gather after a fused run.

Step by step, as in the T3 paper's figures 3 and 10. In a step every device reads the chunk that the schedule has it
send, the link carries it, and what arrives is written to memory; the next step starts when this one's data have
arrived. Reduce-scatter without
near-memory compute reads two copies per step from the second on and needs a last pass (two reads, one write). With
it, arriving data are op-and-store updates and one read per step suffices (figure 10b).

A step is element-wise: each workgroup computes its addresses, loads its part of the chunk (of both copies, if it
reduces), waits for all of it, stores the result, and makes room for the next one when its stores are acknowledged. So a
compute unit has no more in flight than its resident threads can hold, and pays the memory's latency once per workgroup.
"""

from typing import NamedTuple

import numpy as np

from . import bits, queues
from . import link as links
from .collectives import Program
from .compiled.jit import compiled, inlined
from .compiled.records import record_fields
from .engine.hardware import nothing_to_start, show_producer
from .machine import Machine
from .memory_map import channel_of
from .schedule import roles_of

KINDS = ("reduce-scatter", "reduce-scatter-nmc", "all-gather")
NEVER = np.int64(1) << np.int64(60)
REPLAY_CYCLES = 4  #: a load or store that found a full memory queue tries again after this long
FREE, LOAD, WAIT, STORE, ACKNOWLEDGE = range(5)  #: what a workgroup's place on a compute unit is doing


class RingShape(NamedTuple):
    """Scalars; addresses in bytes, all chunks line-aligned, times in memory cycles."""

    devices: int
    chunk_lines: int
    chunk_bytes: int
    data_base: int
    copy_base: int  # received copies (reduce-scatter without near-memory compute)
    two_reads: bool  # reduce-scatter without near-memory compute
    last_pass: bool
    arrival_op: int
    compute_units: int
    places: int  # workgroups resident on a compute unit
    workgroup_lines: int  # of the result
    port_line_cycles: float  # a 64-byte load or store through the compute unit's port
    hit_cycles: int  # from the cache to the compute unit and back
    overhead_cycles: int  # of a workgroup's own instructions
    link_retry_cycles: int  # a store that found the link's buffer full tries again after this long


class RingState(NamedTuple):
    """[device], [device, step], [device, unit] and [device, unit, place]."""

    sends: np.ndarray  # int64 [device, step]: chunk that it sends, in the last step the one that stays
    lands: np.ndarray  # int64 [device, step]: chunk that its stores at the neighbour are of; differs if mirrored
    step: np.ndarray  # int64: 0 first step ... devices-1 last pass, devices: done
    next_line: np.ndarray  # first line of the chunk that no workgroup has
    left: np.ndarray  # lines whose workgroups have not ended
    start_time: np.ndarray
    step_end: np.ndarray  # int64 [device, devices+1]
    first_unit: np.ndarray  # round-robin over units
    next_wake: np.ndarray  # earliest of the units' wake times
    wake: np.ndarray  # int64 [device, unit]: memory cycle of the next service
    port_free: np.ndarray  # float [device, unit]
    place: np.ndarray  # int64 [device, unit]: whose loads and stores go first
    doing: np.ndarray  # int64 [device, unit, place]: FREE ... ACKNOWLEDGE
    line: np.ndarray  # first line of the workgroup in the chunk
    lines: np.ndarray
    position: np.ndarray  # loads, then stores, already sent
    reading: np.ndarray  # loads not yet back
    ready: np.ndarray  # cycle from which it may go on


def make_shape(machine: Machine, size_bytes: int, devices: int, kind: str, data_base: int,
               copy_base: int) -> RingShape:
    """A ring over `devices` GPUs on an array of `size_bytes`; `kind` is one of `KINDS`, bases are byte addresses."""
    clock, gpu, kernel = machine.memory_clock_ghz, machine.gpu, machine.collective
    chunk_bytes = -(-size_bytes // devices)
    scatter = kind == "reduce-scatter"
    buffer_cycles = machine.link.egress_buffer_bytes / machine.link.bandwidth_gb_per_s * clock
    return RingShape(
        devices=devices, chunk_lines=-(-chunk_bytes // 64), chunk_bytes=chunk_bytes,
        data_base=data_base, copy_base=copy_base, two_reads=scatter, last_pass=scatter,
        arrival_op=bits.UPDATE if kind == "reduce-scatter-nmc" else bits.STORE,
        compute_units=gpu.compute_units, places=kernel.workgroups_per_cu,
        workgroup_lines=kernel.workgroup_bytes // 64, port_line_cycles=64 / gpu.cu_bytes_per_ns * clock,
        hit_cycles=round(machine.llc.hit_latency_ns * clock),
        overhead_cycles=round(kernel.workgroup_overhead_ns * clock),
        link_retry_cycles=max(1, min(64, int(buffer_cycles / 8))))


class Steps(NamedTuple):
    """Which chunk goes where in each step, of the simulated devices."""

    sends: np.ndarray  # int64 [device, step]
    lands: np.ndarray  # int64 [device, step]
    downstream: list[int]  # device, among the simulated ones, that each sends to


def plan_steps(program: Program, mirrored: bool) -> Steps:
    """Read the steps off a ring collective; the first simulated device is the rank that begins with chunk 0.

    Mirrored, one device stands for all: what it sends lands with it as what the rank that feeds it sends just then.
    """
    roles = roles_of(program)
    chunks = np.array([[role.chunk for role in own] for own in roles])
    feeders = [own[-1].fed_by[0].device for own in roles]
    first = int(np.flatnonzero(chunks[:, 0] == 0)[0])
    if mirrored:
        return Steps(chunks[[first]], chunks[[feeders[first]]], [0])
    ranks = [(first + index) % program.ranks for index in range(program.ranks)]
    return Steps(chunks[ranks], chunks[ranks], [ranks.index(roles[rank][0].routes[0].device) for rank in ranks])


def make_ring(shape: RingShape, steps: Steps, start_cycle: int = 0) -> RingState:
    devices = len(steps.sends)

    def each():
        return np.zeros(devices, np.int64)
    left = np.full(devices, shape.chunk_lines)
    units = (devices, shape.compute_units)
    places = record_fields((*units, shape.places),
                           [(name, np.int64) for name in ("doing", "line", "lines", "position", "reading", "ready")])
    return RingState(steps.sends, steps.lands, each(), each(), left, np.full(devices, start_cycle),
                     np.zeros((devices, shape.devices + 1), np.int64), each(), each(), np.zeros(units, np.int64),
                     np.zeros(units), np.zeros(units, np.int64), *places)


@inlined
def ring_returned(ring, shape, d, tag, now):
    """One read came back."""
    u, p = tag // shape.places, tag % shape.places
    ring.reading[d, u, p] -= 1
    if ring.reading[d, u, p] == 0:
        ring.doing[d, u, p] = STORE
        ring.ready[d, u, p] = now + shape.hit_cycles
        ring.wake[d, u] = min(ring.wake[d, u], ring.ready[d, u, p])
        ring.next_wake[d] = min(ring.next_wake[d], ring.wake[d, u])


@inlined
def ring_cycle(ring, shape, link, link_shape, compute, m, b, d, now):
    """One cycle of device d's collective kernel."""
    step = ring.step[d]
    if step >= shape.devices or now < ring.start_time[d]:
        return
    if ring.next_wake[d] <= now:
        serve_units(ring, shape, link, link_shape, compute, m, b, d, now)
    last = step == shape.devices - 1
    if ring.left[d] == 0 and (last or link.arrived[d] >= (step + 1) * shape.chunk_lines):
        ring.step_end[d, step] = now
        ring.step[d] = step + 1
        if step + 1 == shape.devices - 1 and not shape.last_pass:
            ring.step[d] = shape.devices
        ring.next_line[d] = 0
        ring.left[d] = shape.chunk_lines
        ring.next_wake[d] = now + 1
        for u in range(shape.compute_units):
            ring.wake[d, u] = now + 1


@compiled
def serve_units(ring, shape, link, link_shape, compute, m, b, d, now):
    """Serve every compute unit that is due."""
    first = ring.first_unit[d]
    ring.first_unit[d] = first + 1 if first + 1 < shape.compute_units else 0
    earliest = NEVER
    for i in range(shape.compute_units):
        u = first + i
        if u >= shape.compute_units:
            u -= shape.compute_units
        if ring.wake[d, u] <= now:
            serve(ring, shape, link, link_shape, compute, m, b, d, u, now)
        earliest = min(earliest, ring.wake[d, u])
    ring.next_wake[d] = earliest


@compiled
def serve(ring, shape, link, link_shape, compute, m, b, d, u, now):
    """Let the workgroups of a compute unit go on, the one first that has the port."""
    step = ring.step[d]
    reads = 2 if shape.two_reads and step > 0 else 1
    first, wake = ring.place[d, u], NEVER
    for i in range(shape.places):
        p = first + i
        if p >= shape.places:
            p -= shape.places
        if ring.doing[d, u, p] == ACKNOWLEDGE and ring.ready[d, u, p] <= now:
            ring.doing[d, u, p] = FREE
            ring.left[d] -= ring.lines[d, u, p]
        if ring.doing[d, u, p] == FREE:
            line = ring.next_line[d]
            if line >= shape.chunk_lines:
                continue
            lines = min(shape.workgroup_lines, shape.chunk_lines - line)
            ring.next_line[d] = line + lines
            ring.doing[d, u, p] = LOAD
            ring.line[d, u, p] = line
            ring.lines[d, u, p] = lines
            ring.position[d, u, p] = 0
            ring.reading[d, u, p] = reads * lines
            ring.ready[d, u, p] = now + shape.overhead_cycles
        if ring.doing[d, u, p] == WAIT:
            continue
        if ring.ready[d, u, p] <= now:
            retry = 0
            while ring.port_free[d, u] <= now and retry == 0 and (
                    ring.doing[d, u, p] == LOAD or ring.doing[d, u, p] == STORE):
                if ring.doing[d, u, p] == LOAD:
                    retry = load(ring, shape, compute, m, b, d, u, p, step)
                else:
                    retry = store(ring, shape, link, link_shape, compute, m, b, d, u, p, step, now)
                ring.port_free[d, u] = (now + retry if retry else
                                        max(ring.port_free[d, u], now - 1.0) + shape.port_line_cycles)
            if ring.doing[d, u, p] == LOAD or ring.doing[d, u, p] == STORE:  # the port is busy
                ring.place[d, u] = p
                wake = max(now + 1, np.int64(np.ceil(ring.port_free[d, u])))
                break
        if ring.doing[d, u, p] != WAIT:
            wake = min(wake, ring.ready[d, u, p])
    ring.wake[d, u] = wake


@inlined
def line_bytes(shape, line):
    return min(64, shape.chunk_bytes - line * 64)


@inlined
def load(ring, shape, compute, m, b, d, u, p, step):
    """Send a workgroup's next load; 0, or the cycles until it may be tried again."""
    lines, position = ring.lines[d, u, p], ring.position[d, u, p]
    second = position >= lines
    line = ring.line[d, u, p] + (position - lines if second else position)
    address = (shape.copy_base if second else shape.data_base) + (ring.sends[d, step] * shape.chunk_lines + line) * 64
    row = d * m.channels + channel_of(address, m)
    if queues.room(compute, row) < 1:
        return REPLAY_CYCLES
    lo, hi = bits.pack(b, address, line_bytes(shape, line), bits.READ, bits.LOCAL, 0, 0, u * shape.places + p)
    queues.push(compute, row, lo, hi)
    ring.position[d, u, p] = position + 1
    if position + 1 == (2 * lines if shape.two_reads and step > 0 else lines):
        ring.doing[d, u, p] = WAIT
        ring.position[d, u, p] = 0
    return 0


@inlined
def store(ring, shape, link, link_shape, compute, m, b, d, u, p, step, now):
    """Send a workgroup's next store, in the last pass to memory, else to the neighbour; returns as `load`."""
    line = ring.line[d, u, p] + ring.position[d, u, p]
    size = line_bytes(shape, line)
    if step == shape.devices - 1:
        address = shape.data_base + (ring.sends[d, step] * shape.chunk_lines + line) * 64
        row = d * m.channels + channel_of(address, m)
        if queues.room(compute, row) < 1:
            return REPLAY_CYCLES
        lo, hi = bits.pack(b, address, size, bits.STORE, bits.LOCAL, 0, 0, 0)
        queues.push(compute, row, lo, hi)
    else:
        if not links.can_send(link, link_shape, d, now):
            return shape.link_retry_cycles
        base = shape.copy_base if shape.two_reads else shape.data_base
        address = base + (ring.lands[d, step] * shape.chunk_lines + line) * 64
        lo, hi = bits.pack(b, address, size, shape.arrival_op, bits.REMOTE, 0, 0, 0)
        links.send(link, link_shape, d, now, size, 0, lo, hi)
    ring.position[d, u, p] += 1
    if ring.position[d, u, p] == ring.lines[d, u, p]:
        ring.doing[d, u, p] = ACKNOWLEDGE
        ring.ready[d, u, p] = now + shape.hit_cycles
    return 0


class CopyKernel(NamedTuple):
    """The kernel as an agent (engine/agents.py)."""

    state: RingState
    shape: RingShape

    def cycle(self, sim, device, now):
        nothing_to_start(sim.hardware, device)
        show_producer(sim.hardware, device, 0)
        ring_cycle(self.state, self.shape, sim.link, sim.link_shape, sim.compute, sim.m, sim.b, device, now)

    def returned(self, sim, device, tag, now):
        ring_returned(self.state, self.shape, device, tag, now)

    def done(self, sim, device):
        return self.state.step[device] == self.shape.devices

    def progress(self, device):
        return self.state.step[device]
