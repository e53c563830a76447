"""The loads of workgroups: requests through their unit's port, and returning data."""

import numpy as np

from t3sim.base.compiled.by_reference import lowest_bit
from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.line import LINE_SHIFT
from t3sim.gpu.agents.units.state import (
    LOAD,
    NEVER,
    REPLAY_CYCLES,
    SENDING,
    SENT,
    STORE_MEMORY,
    UnitsKernel,
    UnitState,
    wake,
)
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric import llc as cache
from t3sim.gpu.fabric.bits import row_of
from t3sim.gpu.state import Sim


@compiled
def fill(kernel: UnitsKernel, sim: Sim, gpu: int, register: int, now: int) -> None:
    """Take one DRAM read of a miss; wake the workgroups when the line is complete."""
    llc = sim.llc
    if not cache.fill(llc, gpu, register):
        return
    for word in range(llc.waiters.shape[2]):
        waiting = np.int64(llc.waiters[gpu, register, word])
        while waiting:
            slot = word * 64 + lowest_bit(waiting)
            waiting &= waiting - 1
            data_back(kernel, gpu, slot, now)
    cache.release_miss(llc, gpu, register)


@inlined
def data_back(kernel: UnitsKernel, gpu: int, slot: int, now: int) -> None:
    """Count one of the lines that a workgroup waits for."""
    g = kernel.state
    g.outstanding[gpu, slot] -= 1
    if g.outstanding[gpu, slot] == 0 and g.loading[gpu, slot] == SENT:
        g.ready_time[gpu, slot] = max(g.ready_time[gpu, slot],
                                          now + kernel.rates.hit_cycles * g.slowdown[gpu])
        wake(kernel, gpu, slot)


@inlined
def serve_slices(kernel: UnitsKernel, sim: Sim, gpu: int, now: int) -> None:
    """Let each slice of the cache look up the loads that wait there, in order, as far as it can now."""
    queue = sim.llc.slices
    if queue.slices == 0 or queue.waiting[gpu] == 0:
        return
    for i in range(queue.slices):
        row = gpu * queue.slices + (now + i) % queue.slices  # a channel's queue has room for another one first
        while queue.count[row] > 0 and queue.free[row] <= now:
            slot = queue.slot[row, queue.head[row]]
            stream = kernel.work.peer_stream if kernel.state.adding[gpu, slot] else kernel.work.stream
            found, _ = cache.load(sim.llc, sim.mem, gpu, queue.line[row, queue.head[row]], slot,
                                  slot % kernel.rates.units, stream)
            if found == cache.BLOCKED:
                break
            cache.leave_slice(queue, gpu, row, now)
            if found == cache.HIT:
                data_back(kernel, gpu, slot, now)
            elif found == cache.KNOWN:  # one wait for the line is enough
                kernel.state.outstanding[gpu, slot] -= 1


@inlined
def sends_loads(units: UnitState, gpu: int, slot: int) -> bool:
    """Return whether a workgroup's loads are being sent."""
    return units.loading[gpu, slot] == SENDING and LOAD <= units.state[gpu, slot] < STORE_MEMORY


@inlined
def waits_for_data(units: UnitState, gpu: int, slot: int) -> bool:
    """Return whether a workgroup has nothing to do until data come."""
    return (units.state[gpu, slot] == LOAD and units.loading[gpu, slot] == SENT
            and units.outstanding[gpu, slot] > 0 and units.compute_end[gpu, slot] < 0)


@inlined
def may_load(kernel: UnitsKernel, gpu: int, slot: int) -> bool:
    """Return whether there is a step to load and a buffer for it."""
    g, group = kernel.state, kernel.work.groups[kernel.state.group[gpu, slot]]
    return (g.load_step[gpu, slot] < group.first_step + group.steps
            and g.loaded[gpu, slot] - g.computed[gpu, slot] < kernel.work.ahead)


@compiled
def send_loads(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, unit: int, now: int) -> int | np.int64:
    """Send a step's loads; the arguments and the result are those of `use_port`."""
    g, work, rates = kernel.state, kernel.work, kernel.rates
    step, cached = work.steps[g.load_step[gpu, slot]], work.cached_loads
    after_last = step.first_load + step.loads
    shift = sim.llc.line_shift if cached else LINE_SHIFT
    in_order = cached and sim.llc.slices.slices > 0
    while g.load_block[gpu, slot] < after_last:
        if g.port_free[gpu, unit] > now:
            return max(now + 1, np.int64(np.ceil(g.port_free[gpu, unit])))
        block = work.loads[g.load_block[gpu, slot]]
        row = np.int64(g.load_row[gpu, slot])
        if block.row_list >= 0:
            row = work.row_lists[block.row_list + row]
        address = (block.base + row * block.pitch + g.load_turn[gpu, slot] * block.step_stride
                   + g.member[gpu, slot] * block.workgroup_stride)
        line = g.load_line[gpu, slot]
        if in_order:
            accepted = cache.wait_at_slice(sim.llc, sim.mem.m, gpu, address + (np.int64(line) << shift), slot)
            if accepted:
                g.outstanding[gpu, slot] += 1
        elif cached:
            if g.budget[gpu] <= 0.0:
                return now + 1
            accepted = read_line(kernel, sim, gpu, slot, unit, address + (np.int64(line) << shift)) != cache.BLOCKED
        else:
            accepted = read_memory(kernel, sim, gpu, slot, address, block.bytes, line)
        if not accepted:
            g.port_free[gpu, unit] = now + REPLAY_CYCLES
            return now + REPLAY_CYCLES
        lines = ((address + block.bytes - 1) >> shift) - (address >> shift) + 1
        if cached and not in_order:
            g.budget[gpu] -= block.bytes / lines
        g.port_free[gpu, unit] = (max(g.port_free[gpu, unit], now - 1.0)
                                  + rates.port_byte_cycles * block.bytes / lines * g.slowdown[gpu])
        following = line + 1
        if cached:
            cache.expect(sim.llc, gpu,
                         (address + (np.int64(following) << shift) if following < lines else address + block.pitch)
                         >> shift, unit)
        if following == lines:
            following = 0
            g.load_row[gpu, slot] += 1
            if g.load_row[gpu, slot] == block.rows:
                g.load_row[gpu, slot] = 0
                g.load_block[gpu, slot] += 1
        g.load_line[gpu, slot] = following
    g.loading[gpu, slot] = SENT
    g.ready_time[gpu, slot] = g.port_free[gpu, unit] + rates.hit_cycles * g.slowdown[gpu]
    return NEVER


@inlined
def read_line(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, unit: int, address: int) -> int:
    """Read one cache line for a workgroup: hit, wait for a line in flight, or miss to DRAM."""
    g, refused = kernel.state, kernel.state.refused[gpu, slot]
    if refused >= 0 and queues.room(sim.mem.compute, refused) < sim.llc.line_requests:
        return cache.BLOCKED
    stream = kernel.work.peer_stream if g.adding[gpu, slot] else kernel.work.stream
    found, row = cache.load(sim.llc, sim.mem, gpu, address >> sim.llc.line_shift, slot, unit, stream)
    g.refused[gpu, slot] = row
    if found == cache.WAITING:
        g.outstanding[gpu, slot] += 1
    return found


@inlined
def read_memory(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, address: int, size: int, line: int) -> bool:
    """Read the `line`-th request of a run of `size` bytes, past the cache; False: there is no room for it now."""
    start = max(address, ((address >> LINE_SHIFT) + line) << LINE_SHIFT)
    stop = min(address + size, ((start >> LINE_SHIFT) + 1) << LINE_SHIFT)
    row = row_of(start, sim.mem.m, gpu)
    if queues.room(sim.mem.compute, row) < 1:
        return False
    lo, hi = bits.pack(sim.b, start, stop - start, bits.READ, bits.LOCAL, 0, 0, 0)
    queues.push(sim.mem.compute, row, lo, hi, queues.tag_of(kernel.work.stream, slot))
    kernel.state.outstanding[gpu, slot] += 1
    return True
