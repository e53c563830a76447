"""A GPU's memory side in the models: DRAM queues, returning data, and the bytes by purpose.

A memory-side cache has a slice in front of each DRAM queue (`memory_cache`). `dram_accept` and `dram_cycle` are
shared by the run with RTL (arbiters in hardware) and the baseline without.
"""

import numpy as np

from t3sim.base.compiled.by_reference import PLACES, at_most, lowest_bit
from t3sim.base.compiled.jit import inlined
from t3sim.base.compiled.records import aligned_zeros
from t3sim.gpu.fabric import bits, memory_cache, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.bits import local_line, memory_map
from t3sim.gpu.fabric.state import PURPOSES, WAITS, MemoryCache, MemoryState, Network
from t3sim.gpu.hbm import hbm_enqueue, hbm_has_room, hbm_step, make_hbm
from t3sim.machine.dram import Dram
from t3sim.rtl.geometry import Geometry

#: Streams (traffic classes): the computing kernel's, its exchange's, and those of other or later kernels.
COMPUTE, EXCHANGE, OTHER = range(3)


def make_memory(geometry: Geometry, dram: Dram, cache: MemoryCache, fill_cycles: int, region_ports: np.ndarray,
                ports: int) -> MemoryState:
    """Make the state of every GPU's memory side; `ports`: of the network, the others as in `MemoryState`."""
    gpus, channels, cached = len(region_ports), geometry.channel.channels, cache.requests > 0
    rows, entries = gpus * channels, cache.requests or dram.held_requests
    # The longest time from when a read is performed to its data's return.
    latency_cycles = max(dram.read_data_cycles + cache.fill_cycles, cache.hit_cycles) + fill_cycles
    per_request, per_channel = MemoryState.RECORDS
    def each(count: int, *more: int) -> np.ndarray:
        return np.zeros((count, *more), np.int64)
    channel, total_bytes = per_channel.arrays(rows), each(gpus, PURPOSES)
    channel["free_count"][:] = entries
    return MemoryState(
        b=bits.request_bits(geometry), m=memory_map(geometry.channel), hbm=make_hbm(dram, rows), cache=cache,
        compute=queues.request_queue(rows), inbound=queues.request_queue(rows), fill_cycles=fill_cycles,
        region_ports=region_ports, **per_request.arrays((rows, entries)), **channel,
        free=np.tile(np.arange(entries), (rows, 1)), total_bytes=total_bytes,
        dram_bytes=each(gpus, PURPOSES) if cached else total_bytes,
        waited=each(gpus, PURPOSES),
        fills=queues.timed_queue(gpus, channels * (latency_cycles + 1)),  # a channel reads at most once per cycle
        hits=queues.timed_queue(gpus, channels * (latency_cycles + 1)),
        dma_returns=queues.timed_queue(ports, geometry.dma.outstanding_lines), tracked_retired=each(gpus),
        due=aligned_zeros(rows, np.dtype(np.int64)),
        compute_tags=queues.tag_queue(rows), inbound_tags=queues.tag_queue(rows))


@inlined
def has_room(mem: MemoryState, row: int, now: int) -> bool:
    """Return whether `dram_accept` may be called for a channel in this cycle."""
    if mem.cache.requests:
        return mem.free_count[row] > 0
    return hbm_has_room(mem.hbm, row, now)


@inlined
def due_channels(mem: MemoryState, gpu: int, first: int, now: int) -> int:
    """Return the mask of those of a GPU's next `PLACES` channels from `first` on that are due or are offered something.

    A cycle's effects on other blocks are visible in the next one, so a channel that changed something is due then.
    """
    row, count = gpu * mem.m.channels + first, mem.m.channels - first
    empty = at_most(mem.compute.count, row, 0, count) & at_most(mem.inbound.count, row, 0, count)
    return at_most(mem.due, row, now, count) | (places(count) & ~empty)


@inlined
def places(count: int) -> int:
    """Return the mask of the first `count` of `PLACES` channels."""
    return (1 << min(count, PLACES)) - 1


@inlined
def dram_accept(mem: MemoryState, row: int, now: int, lo: int, hi: int, tag: int, bucket: int) -> None:
    """Put a request into a channel's DRAM queue or slice; the caller saw room. `bucket`: the order guard's."""
    b = mem.b
    mem.free_count[row] -= 1
    entry = mem.free[row, mem.free_count[row]]
    mem.lo[row, entry] = lo
    mem.hi[row, entry] = hi
    mem.bucket[row, entry] = bucket
    mem.tag[row, entry] = tag
    for purpose in range(WAITS):
        mem.before[row, entry, purpose] = mem.served[row, purpose]
    if mem.cache.requests:
        memory_cache.accept(mem.cache, row, entry)
        mem.due[row] = min(mem.due[row], now + 1)
        return
    hbm_enqueue(mem.hbm, row, now, local_line(bits.address_of(lo, b), mem.m), bits.get(lo, hi, b.op, 2), entry)
    mem.due[row] = min(mem.due[row], mem.hbm.channels[row].next_cycle)


@inlined
def dram_cycle(mem: MemoryState, network: Network, gpu: int, row: int, now: int) -> int:
    """Run one DRAM cycle of a channel; return the order guard's bucket of a tracked write performed now, else -1.

    With a memory-side cache, run its slice in front of the DRAM as well.
    """
    hbm, b = mem.hbm, mem.b
    mem.retired[row] = 0
    if mem.cache.requests:
        entry, hit = memory_cache.step(mem, row, now)
        waits = memory_cache.busy(mem.cache, row)
        mem.due[row] = min(hbm.channels[row].next_cycle, now + 1) if waits else hbm.channels[row].next_cycle
        data = now + (mem.cache.hit_cycles if hit else hbm.read_data_cycles + mem.cache.fill_cycles)
    else:
        entry, hit = hbm_step(hbm, row, now), False
        mem.due[row] = hbm.channels[row].next_cycle
        data = now + hbm.read_data_cycles
    if entry < 0:
        return -1
    mem.due[row] = now + 1
    lo, hi = mem.lo[row, entry], mem.hi[row, entry]
    mem.free[row, mem.free_count[row]] = entry
    mem.free_count[row] += 1
    mem.retired[row] = 1
    mem.retired_lo[row] = lo
    mem.retired_hi[row] = hi
    op = bits.get(lo, hi, b.op, 2)
    source = bits.get(lo, hi, b.source, 2)
    write = 0 if op == bits.READ else 1
    tag = mem.tag[row, entry]
    mem.retired_tag[row] = tag
    purpose = 2 * queues.stream_of(tag) + write
    mem.served[row, purpose] += 1
    mem.total_bytes[gpu, purpose] += bits.get(lo, hi, b.bytes, b.op - b.bytes)
    if op == bits.READ:
        if source == bits.LOCAL:
            if queues.stream_of(tag) == COMPUTE:
                for other in range(WAITS):
                    mem.waited[gpu, other] += mem.served[row, other] - mem.before[row, entry, other]
            if hit:
                queues.push_at(mem.hits, gpu, data + mem.fill_cycles, 0, 0, tag)
            else:
                queues.push_at(mem.fills, gpu, data + mem.fill_cycles, 0, 0, tag)
        else:
            port = (mem.region_ports[gpu, bits.get(lo, hi, b.region, b.region_bits), 0]
                    + links.plane_of(network, lo, b))
            queues.push_at(mem.dma_returns, port, data, lo, hi, tag)
        return -1
    if bits.get(lo, hi, b.region, b.region_bits) == 0:
        return -1
    mem.tracked_retired[gpu] += 1
    return mem.bucket[row, entry]


@inlined
def direct_cycle(mem: MemoryState, network: Network, gpu: int, now: int) -> None:
    """Run all channels of one GPU for a cycle, without RTL: both streams take turns, one request per cycle."""
    compute, inbound, turn = mem.compute, mem.inbound, mem.turn
    for first in range(0, mem.m.channels, PLACES):
        due = due_channels(mem, gpu, first, now)
        while due:
            row = gpu * mem.m.channels + first + lowest_bit(due)
            due &= due - 1
            room = has_room(mem, row, now)
            dram_cycle(mem, network, gpu, row, now)
            if not room:
                continue
            take_inbound = inbound.count[row] > 0 and (compute.count[row] == 0 or turn[row] == 0)
            if take_inbound:
                at = inbound.head[row]
                dram_accept(mem, row, now, inbound.lo[row, at], inbound.hi[row, at], inbound.tag[row, at], 0)
                queues.pop(inbound, row)
                turn[row] = 1
            elif compute.count[row] > 0:
                at = compute.head[row]
                dram_accept(mem, row, now, compute.lo[row, at], compute.hi[row, at], compute.tag[row, at], 0)
                queues.pop(compute, row)
                turn[row] = 0
