"""The producer: a tiled GEMM on a GPU's compute units.

Each workgroup computes one macro-tile on one compute unit: launch, a double-buffered loop over K whose loads go
through the last-level cache, then its tile written in a burst. A late load stalls the workgroup; that is how
contention slows the GEMM. Rows, columns, A and B are the BLAS library's (operators/tiling.py): A holds the weights,
kept along K forward and along its rows backward, B the activations, always kept along K.

Known simplifications: one workgroup per compute unit slot, loads and stores leave at the compute unit's port rate,
a ragged tile costs the time of a whole one (as a kernel with predicated lanes does).
"""

from typing import NamedTuple

import numpy as np

from . import bits, queues
from . import llc as cache
from .compiled.jit import compiled, inlined
from .compiled.records import record_fields
from .engine.hardware import may_start, nothing_to_start, show_producer
from .hbm.bits import lowest_bit
from .memory_map import channel_of

# What a compute unit is doing; time is accounted for under these.
IDLE, BLOCKED, LAUNCH, LOAD, COMPUTE, STORE_MEMORY, STORE_LINK = range(7)
STATES = ("idle", "blocked", "launch", "load", "compute", "store_memory", "store_link")
NEVER = np.int64(1) << np.int64(60)
REPLAY_CYCLES = 4  #: a load or store that found a full queue tries again after this long


class GemmShape(NamedTuple):
    """Scalars of one kernel. Addresses and pitches in bytes, times in memory cycles (ns at 1 GHz)."""

    workgroups: int
    steps: int  # iterations over K
    block_k: int
    k: int
    a_base: int
    a_pitch: int
    a_along_k: bool  # consecutive elements of K are contiguous; else those of a tile's rows
    b_base: int
    b_pitch: int  # B's columns: consecutive elements of K are contiguous
    c_pitch: int
    wavefronts: int
    wf_columns: int
    tile_m: int
    tile_n: int
    element_bytes: int
    line_bytes: int
    line_shift: int
    cycles_per_k: float  # matrix units, one element of K
    prologue_cycles: float
    epilogue_cycles: float
    hit_cycles: float
    port_byte_cycles: float  # one byte through the compute unit's port
    llc_bytes_per_cycle: float
    cached_output: bool  # the sequential baseline's stores go to the cache
    store_op: int


class GemmPlan(NamedTuple):
    """What each workgroup does, int64 [device, workgroup] in order of execution."""

    m0: np.ndarray  # first row, first column, rows, columns of the tile
    n0: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    c_base: np.ndarray  # address of the tile's first element
    id: np.ndarray  # under which its stores are counted
    remote: np.ndarray  # 1: its stores leave for a neighbour, 0: they go to this device's memory
    tiles: np.ndarray  # wavefront tiles that the Tracker follows
    region: np.ndarray  # [device, workgroup, 2]: region of a full and of a narrow wavefront tile


class GemmState(NamedTuple):
    """Per compute unit, [device, unit]."""

    state: np.ndarray
    since: np.ndarray
    wake: np.ndarray  # memory cycle of the next service, NEVER without a workgroup
    wg: np.ndarray
    loading: np.ndarray  # step whose loads are under way, -1 none
    position: np.ndarray  # columns of the operands (of the tile, when storing) already sent
    line: np.ndarray  # lines of the next column already sent; 0 between columns
    refused: np.ndarray  # row of the memory channel that had no room for the last load, -1 none
    outstanding: np.ndarray  # lines not yet back
    ready_time: np.ndarray  # float: data of the loading step usable
    loaded: np.ndarray  # steps loaded
    computed: np.ndarray  # steps computed
    compute_end: np.ndarray  # float, negative: not computing
    port_free: np.ndarray  # float
    accounted: np.ndarray  # int64 [device, state]: cycles of all units
    next_wg: np.ndarray  # int64 [device]
    finished: np.ndarray  # int64 [device]: workgroups done
    finish_time: np.ndarray  # int64 [device]
    first_unit: np.ndarray  # int64 [device]: round-robin over units
    budget: np.ndarray  # float [device]: bytes that the cache may still move this cycle
    flushed: np.ndarray  # int64 [device]: cache sets written back after the kernel


def make_state(devices: int, units: int) -> GemmState:
    whole = ("state", "since", "wake", "wg", "loading", "position", "line", "refused", "outstanding", "loaded",
             "computed")
    real = ("ready_time", "compute_end", "port_free")
    names = [name for name in GemmState._fields if name in whole + real and name != "wake"]
    tables = dict(zip(names, record_fields((devices, units), [(name, np.float64 if name in real else np.int64)
                                                              for name in names])))
    tables["wake"] = np.full((devices, units), NEVER)  # apart: all units' are looked at in every cycle
    for name in ("wg", "loading", "refused", "compute_end"):
        tables[name][:] = -1

    def each(dtype=np.int64):
        return np.zeros(devices, dtype)
    return GemmState(**tables, accounted=np.zeros((devices, len(STATES)), np.int64), next_wg=each(), finished=each(),
                     finish_time=each(), first_unit=each(), budget=each(np.float64), flushed=each())


@inlined
def enter(g, d, u, state, now):
    """Account for the time in the old state and change to the new one."""
    g.accounted[d, g.state[d, u]] += now - g.since[d, u]
    g.since[d, u] = now
    g.state[d, u] = state


@inlined
def runs_of_a(shape, rows, depth):
    """Contiguous pieces of A in one step's block."""
    return rows if shape.a_along_k else depth


@inlined
def load_run(shape, plan, d, wg, step, run, depth):
    """(address, bytes) of the `run`-th contiguous piece of a step's blocks: first A's, then B's columns."""
    k = step * shape.block_k
    runs = runs_of_a(shape, plan.rows[d, wg], depth)
    if run >= runs:
        address = shape.b_base + (plan.n0[d, wg] + run - runs) * shape.b_pitch + k * shape.element_bytes
        size = depth * shape.element_bytes
    elif shape.a_along_k:
        address = shape.a_base + (plan.m0[d, wg] + run) * shape.a_pitch + k * shape.element_bytes
        size = depth * shape.element_bytes
    else:
        address = shape.a_base + (k + run) * shape.a_pitch + plan.m0[d, wg] * shape.element_bytes
        size = plan.rows[d, wg] * shape.element_bytes
    return address, size


@inlined
def read_line(sim, device, unit, address):
    """One cache line for a compute unit: hit, wait for a line in flight, or miss to DRAM."""
    g, refused = sim.kernel.state, sim.kernel.state.refused[device, unit]
    if refused >= 0 and queues.room(sim.compute, refused) < sim.llc.line_requests:
        return cache.BLOCKED
    found, row = cache.load(sim, device, address >> sim.llc.line_shift, unit)
    g.refused[device, unit] = row
    if found == cache.WAITING:
        g.outstanding[device, unit] += 1
    return found


@compiled
def fill(sim, device, register, now):
    """One DRAM read of a miss came back; wakes the compute units when the line is complete."""
    g, llc = sim.kernel.state, sim.llc
    if not cache.fill(llc, device, register):
        return
    for word in range(llc.waiters.shape[2]):
        waiting = np.int64(llc.waiters[device, register, word])
        while waiting:
            unit = word * 64 + lowest_bit(waiting)
            waiting &= waiting - 1
            g.outstanding[device, unit] -= 1
            if g.outstanding[device, unit] == 0:
                g.ready_time[device, unit] = max(g.ready_time[device, unit], now + sim.kernel.shape.hit_cycles)
                g.wake[device, unit] = min(g.wake[device, unit], np.int64(np.ceil(g.ready_time[device, unit])))
    cache.release_miss(llc, device, register)


@inlined
def waiting_unit(g, d):
    """A compute unit without a workgroup, -1: none."""
    for u in range(g.state.shape[1]):
        if g.state[d, u] <= BLOCKED:
            return u
    return -1


@inlined
def start(g, shape, d, u, wg, now):
    """Give a workgroup to a compute unit."""
    enter(g, d, u, LAUNCH, now)
    g.wg[d, u] = wg
    g.ready_time[d, u] = now + shape.prologue_cycles
    g.wake[d, u] = np.int64(np.ceil(g.ready_time[d, u]))
    g.next_wg[d] = wg + 1


@inlined
def gemm_cycle(sim, d, now):
    """Serve every compute unit that is due."""
    g, shape = sim.kernel.state, sim.kernel.shape
    units = g.state.shape[1]
    g.budget[d] = min(g.budget[d] + shape.llc_bytes_per_cycle, shape.llc_bytes_per_cycle)
    first = g.first_unit[d]
    g.first_unit[d] = first + 1 if first + 1 < units else 0
    for i in range(units):
        u = first + i
        if u >= units:
            u -= units
        if g.wake[d, u] <= now:
            serve(sim, d, u, now)


@compiled
def serve(sim, d, u, now):
    """Let a compute unit go on."""
    g, shape, plan = sim.kernel.state, sim.kernel.shape, sim.kernel.plan
    wg = g.wg[d, u]
    if g.state[d, u] == LAUNCH:
        g.loading[d, u] = -1
        g.position[d, u] = 0
        g.line[d, u] = 0
        g.refused[d, u] = -1
        g.outstanding[d, u] = 0
        g.loaded[d, u] = 0
        g.computed[d, u] = 0
        g.compute_end[d, u] = -1.0
        g.port_free[d, u] = now
        enter(g, d, u, LOAD, now)
    if g.state[d, u] >= STORE_MEMORY:
        store_tile(sim, d, u, now)
        return
    start_time = float(now)
    if g.compute_end[d, u] >= 0 and now >= g.compute_end[d, u]:
        start_time = g.compute_end[d, u]
        g.computed[d, u] += 1
        g.port_free[d, u] = max(g.port_free[d, u], g.compute_end[d, u])
        g.compute_end[d, u] = -1.0
        if g.computed[d, u] == shape.steps:
            g.position[d, u] = 0
            enter(g, d, u, STORE_MEMORY, now)
            store_tile(sim, d, u, now)
            return
    wake = NEVER
    if g.loading[d, u] < 0 and g.loaded[d, u] < shape.steps and g.loaded[d, u] - g.computed[d, u] < 2:
        g.loading[d, u] = g.loaded[d, u]
        g.position[d, u] = 0
        g.ready_time[d, u] = now
    if g.loading[d, u] >= 0:
        step = g.loading[d, u]
        depth = min(shape.block_k, shape.k - step * shape.block_k)
        total = runs_of_a(shape, plan.rows[d, wg], depth) + plan.columns[d, wg]
        while g.position[d, u] < total and g.port_free[d, u] <= now:
            if g.budget[d] <= 0.0:
                break
            address, size = load_run(shape, plan, d, wg, step, g.position[d, u], depth)
            if read_line(sim, d, u, address + (g.line[d, u] << shape.line_shift)) == cache.BLOCKED:
                g.port_free[d, u] = now + REPLAY_CYCLES
                break
            lines = ((address + size - 1) >> shape.line_shift) - (address >> shape.line_shift) + 1
            g.budget[d] -= size / lines
            g.line[d, u] += 1
            g.port_free[d, u] = max(g.port_free[d, u], now - 1.0) + shape.port_byte_cycles * size / lines
            if g.line[d, u] == lines:
                g.line[d, u] = 0
                g.position[d, u] += 1
                if g.position[d, u] == total:
                    g.ready_time[d, u] = g.port_free[d, u] + shape.hit_cycles
        if g.position[d, u] < total:
            wake = max(now + 1, np.int64(np.ceil(g.port_free[d, u])))
        elif g.outstanding[d, u] == 0:
            if now >= g.ready_time[d, u]:
                g.loading[d, u] = -1
                g.loaded[d, u] += 1
                wake = now + 1  # the next step's loads, if its buffer is free
            else:
                wake = np.int64(np.ceil(g.ready_time[d, u]))
    if g.compute_end[d, u] < 0:
        if g.computed[d, u] < g.loaded[d, u]:
            # If the data were there in time the matrix units go on at once, to a fraction of a cycle.
            depth = min(shape.block_k, shape.k - g.computed[d, u] * shape.block_k)
            g.compute_end[d, u] = start_time + shape.cycles_per_k * depth
            if g.computed[d, u] == shape.steps - 1:
                g.compute_end[d, u] += shape.epilogue_cycles
            if g.state[d, u] != COMPUTE:
                enter(g, d, u, COMPUTE, now)
        elif g.state[d, u] != LOAD:
            enter(g, d, u, LOAD, now)
    if g.compute_end[d, u] >= 0:
        wake = min(wake, np.int64(np.ceil(g.compute_end[d, u])))
    g.wake[d, u] = wake


@compiled
def store_tile(sim, d, u, now):
    """Write the tile: wavefronts side by side, column by column.

    One store instruction of a wavefront is one column of its tile: contiguous lines, which the crossbar keeps together.
    """
    g, shape, plan = sim.kernel.state, sim.kernel.shape, sim.kernel.plan
    wg = g.wg[d, u]
    lines = -(-plan.rows[d, wg] * shape.element_bytes // 64)
    total = shape.wf_columns * shape.wavefronts
    while g.position[d, u] < total:
        column = g.position[d, u] // shape.wavefronts
        wf = g.position[d, u] % shape.wavefronts
        if wf * shape.wf_columns + column >= plan.columns[d, wg]:
            g.position[d, u] += 1
            continue
        if g.port_free[d, u] > now:
            g.wake[d, u] = max(now + 1, np.int64(np.ceil(g.port_free[d, u])))
            return
        address = plan.c_base[d, wg] + (wf * shape.wf_columns + column) * shape.c_pitch
        if not store_column(sim, d, u, wf, address, now):
            g.wake[d, u] = now + REPLAY_CYCLES
            return
        g.position[d, u] += 1
        g.port_free[d, u] = max(g.port_free[d, u], now - 1.0) + shape.port_byte_cycles * 64 * lines
    enter(g, d, u, IDLE, now)
    g.wake[d, u] = NEVER
    g.wg[d, u] = -1
    g.finished[d] += 1
    g.finish_time[d] = now


@compiled
def store_column(sim, d, u, wf, address, now):
    """Lines of one column of a wavefront tile to the cache, the link or memory; False: no room for (all of) them now.

    The cache takes line by line, the others all or nothing.
    """
    g, shape, plan, m, b = sim.kernel.state, sim.kernel.shape, sim.kernel.plan, sim.m, sim.b
    wg = g.wg[d, u]
    lines = -(-plan.rows[d, wg] * shape.element_bytes // 64)
    last_bytes = plan.rows[d, wg] * shape.element_bytes - (lines - 1) * 64
    if shape.cached_output:
        while g.line[d, u] < lines:
            if g.budget[d] <= 0.0 or not cache.store(sim, d, (address + g.line[d, u] * 64) >> shape.line_shift):
                return False
            g.line[d, u] += shape.line_bytes // 64
            g.budget[d] -= shape.line_bytes
        g.line[d, u] = 0
        return True
    narrow = 1 if plan.columns[d, wg] - wf * shape.wf_columns < shape.wf_columns else 0
    region = plan.region[d, wg, narrow]
    if plan.remote[d, wg]:
        if sim.stores_out.count[d] + lines > sim.store_limit:
            if g.state[d, u] != STORE_LINK:
                enter(g, d, u, STORE_LINK, now)
            return False
        for line in range(lines):
            lo, hi = bits.pack(b, address + line * 64, 64 if line < lines - 1 else last_bytes, shape.store_op,
                               bits.LOCAL, region, wf, plan.id[d, wg])
            queues.push_at(sim.stores_out, d, now, lo, hi)
        return True
    for line in range(lines):  # room everywhere first: a column may cross into another channel
        if queues.room(sim.compute, d * m.channels + channel_of(address + line * 64, m)) < lines:
            return False
    for line in range(lines):
        lo, hi = bits.pack(b, address + line * 64, 64 if line < lines - 1 else last_bytes, shape.store_op, bits.LOCAL,
                           region, wf, plan.id[d, wg])
        queues.push(sim.compute, d * m.channels + channel_of(address + line * 64, m), lo, hi)
    return True


@compiled
def settle(g, d, now):
    """Account for the time up to now, for reading the totals."""
    for u in range(g.state.shape[1]):
        enter(g, d, u, g.state[d, u], now)


class Gemm(NamedTuple):
    """The kernel as an agent (engine/agents.py)."""

    state: GemmState
    shape: GemmShape
    plan: GemmPlan

    def cycle(self, sim, device, now):
        dispatch(self, sim, device, now)
        gemm_cycle(sim, device, now)
        finished = self.state.finished[device] == self.shape.workgroups
        show_producer(sim.hardware, device, not finished)
        if finished and self.shape.cached_output:  # the collective reads what the cache still holds
            self.state.flushed[device] = cache.flush(sim, device, self.state.flushed[device])

    def returned(self, sim, device, tag, now):
        fill(sim, device, tag, now)

    def done(self, sim, device):
        return (self.state.finished[device] == self.shape.workgroups
                and sim.control.event_count[device] >= sim.expected_events[device]
                and (not self.shape.cached_output or self.state.flushed[device] == sim.llc.tag.shape[1]))

    def progress(self, device):
        total = self.state.next_wg[device]
        for unit in range(self.state.state.shape[1]):
            total += self.state.computed[device, unit] + self.state.loaded[device, unit]
        return total


@compiled
def dispatch(kernel, sim, device, now):
    """Give the next workgroup to a free compute unit, if the hardware's window lets it start."""
    g, workgroup = kernel.state, kernel.state.next_wg[device]
    unit = -1
    if workgroup < kernel.shape.workgroups and now >= sim.control.start[device]:
        unit = waiting_unit(g, device)
    if unit < 0:
        nothing_to_start(sim.hardware, device)
    elif may_start(sim.hardware, device, workgroup, kernel.plan.tiles[device, workgroup]):
        start(g, kernel.shape, device, unit, workgroup, now)
    else:
        sim.control.blocked_cycles[device] += 1
        for other in range(g.state.shape[1]):
            if g.state[device, other] == IDLE:
                enter(g, device, other, BLOCKED, now)
