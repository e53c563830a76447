"""The stores of workgroups, row by row: into the cache, to memory, or to a peer."""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.agents.units.state import (
    ENDING,
    LOAD,
    MAPPED,
    NEVER,
    REPLAY_CYCLES,
    STORE_LINK,
    TO_BOTH,
    TO_CACHE,
    TO_MEMORY,
    TO_PEER,
    UnitsKernel,
    UnitState,
    UnitWork,
    enter,
    lines_of_bytes,
)
from t3sim.gpu.agents.units.workgroups import end
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric import llc as cache
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.bits import row_of
from t3sim.gpu.state import Sim


@inlined
def first_store(kernel: UnitsKernel, group: int, member: int) -> int | np.int64:
    """Return the address of the first byte that a workgroup stores, 0 if it stores none."""
    work = kernel.work
    first = work.groups[group].first_step
    for step in range(first, first + work.groups[group].steps):
        if work.steps[step].stores:
            block = work.stores[work.steps[step].first_store]
            return block.base + member * block.workgroup_stride
    return np.int64(0)


@compiled
def send_stores(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, unit: int, now: int) -> int | np.int64:
    """Send a step's stores, its blocks side by side, row by row; the arguments and the result are those of `use_port`.

    One row is what one store instruction of a wavefront writes: contiguous lines, which the crossbar keeps together.
    """
    g, work, rates = kernel.state, kernel.work, kernel.rates
    step = work.steps[g.store_step[gpu, slot]]
    while next_row(g, work, step, gpu, slot):
        if g.port_free[gpu, unit] > now:
            return max(now + 1, np.int64(np.ceil(g.port_free[gpu, unit])))
        block = work.stores[g.store_block[gpu, slot]]
        address = (block.base + g.store_row[gpu, slot] * block.pitch
                   + g.store_turn[gpu, slot] * block.step_stride + g.member[gpu, slot] * block.workgroup_stride)
        lines = lines_of_bytes(block.bytes)
        if not store_row(kernel, sim, gpu, slot, block, address, lines, now):
            retry = REPLAY_CYCLES if block.route != TO_PEER else rates.link_retry_cycles
            if work.persistent:  # its store stays in the port
                g.port_free[gpu, unit] = now + retry
            return now + retry
        g.store_block[gpu, slot] += 1
        g.port_free[gpu, unit] = (max(g.port_free[gpu, unit], now - 1.0)
                                  + rates.port_byte_cycles * LINE_BYTES * lines * g.slowdown[gpu])
    group = work.groups[g.group[gpu, slot]]
    if g.compute_step[gpu, slot] < group.first_step + group.steps:
        enter(g, gpu, slot, LOAD, now)
    elif work.end_cycles == 0.0 and not work.persistent:
        end(kernel, sim, gpu, slot, now)
    else:
        g.store_step[gpu, slot] = ENDING
        g.ready_time[gpu, slot] = now + work.end_cycles * g.slowdown[gpu]
    return NEVER


@inlined
def next_row(units: UnitState, work: UnitWork, step: np.record, gpu: int, slot: int) -> bool:
    """Go to the next row that is to be stored; False: there is none."""
    behind = step.first_store + step.stores
    tried = 0
    while tried <= step.stores:
        if units.store_block[gpu, slot] >= behind:
            units.store_block[gpu, slot] = step.first_store
            units.store_row[gpu, slot] += 1
        if step.stores and units.store_row[gpu, slot] < work.stores[units.store_block[gpu, slot]].rows:
            return True
        units.store_block[gpu, slot] += 1
        tried += 1
    return False


@inlined
def store_row(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, block: np.record, address: int, lines: int,
              now: int) -> bool:
    """Store a row in the cache, in memory or over the link; False: there is no room for (all of) it now.

    The cache takes line by line, the others all or nothing.
    """
    if block.route == TO_CACHE:
        return store_cached(kernel, sim, gpu, slot, address, lines)
    if block.route == TO_MEMORY or block.route == TO_BOTH:
        for line in range(lines):  # room everywhere first: a row may cross into another channel
            if queues.room(sim.mem.compute, row_of(address + line * LINE_BYTES, sim.mem.m, gpu)) < lines:
                return False
    mapped = block.route == MAPPED or block.route == TO_BOTH
    port = sim.mem.region_ports[gpu, block.region, 0]
    if block.route == TO_PEER:
        port = sim.network.next_port[gpu, sim.control.downstream[gpu, block.peer]]
    for side in range(min(lines, sim.network.planes) if mapped or block.route == TO_PEER else 0):
        onto = port + links.plane_at(address + side * LINE_BYTES, sim.network.planes)
        if (sim.stores_out.count[onto] + -(-lines // sim.network.planes) > sim.store_limit if mapped
                else not links.can_send(sim.network, onto, now)):
            if kernel.state.state[gpu, slot] != STORE_LINK:
                enter(kernel.state, gpu, slot, STORE_LINK, now)
            return False
    op = bits.UPDATE if block.updates else bits.STORE
    source = bits.LOCAL if block.route != TO_PEER else bits.REMOTE
    tag = queues.tag_of(kernel.work.stream, np.int64(block.part))
    for line in range(lines):
        at = address + line * LINE_BYTES
        onto = port + links.plane_at(at, sim.network.planes)
        size = min(LINE_BYTES, block.bytes - line * LINE_BYTES)
        lo, hi = bits.pack(sim.b, at, size, op, source, block.region, block.wavefront, block.id)
        if block.route == TO_MEMORY:
            queues.push(sim.mem.compute, row_of(at, sim.mem.m, gpu), lo, hi, tag)
        elif block.route == TO_BOTH:
            kept_lo, kept_hi = bits.pack(sim.b, at, size, op, source, 0, 0, 0)
            queues.push(sim.mem.compute, row_of(at, sim.mem.m, gpu), kept_lo, kept_hi, tag)
            queues.push_at(sim.stores_out, onto, now, lo, hi, tag)
        elif block.route == MAPPED:
            queues.push_at(sim.stores_out, onto, now, lo, hi, tag)
        else:
            peer = sim.control.downstream[gpu, block.peer]
            if sim.control.rs_start[gpu] < 0:
                sim.control.rs_start[gpu] = now
            links.send(sim.network, onto, now, size, 0, lo,
                       links.bound_for(hi, peer, sim.b), queues.tag_of(kernel.work.peer_stream, gpu))
            sim.network.injected[gpu] += 1
    return True


@inlined
def store_cached(kernel: UnitsKernel, sim: Sim, gpu: int, slot: int, address: int, lines: int) -> bool:
    """Store a row's lines in the cache; False: not all of them can go now."""
    g, line_requests = kernel.state, sim.llc.line_requests
    while g.store_line[gpu, slot] < lines:
        at = address + g.store_line[gpu, slot] * LINE_BYTES
        if g.budget[gpu] <= 0.0 or not cache.store(sim.llc, sim.mem, gpu, at >> sim.llc.line_shift,
                                                   slot % kernel.rates.units, kernel.work.stream):
            return False
        g.store_line[gpu, slot] += line_requests
        g.budget[gpu] -= sim.llc.line_bytes
    g.store_line[gpu, slot] = 0
    return True
