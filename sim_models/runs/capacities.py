"""Capacities of a GPU of the cycle level at each place where something waits, in requests and in bytes."""

from typing import NamedTuple

from t3sim.base.line import LINE_BYTES
from t3sim.gpu.setup import MISS_REGISTERS, QUEUE_DEPTH
from t3sim.machine import Machine


class Capacity(NamedTuple):
    """A place where requests wait. Counts of two machines compare in bytes only: their requests may differ."""

    place: str
    key: str  #: of the machine file; empty: of the models
    requests: int
    request_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.requests * self.request_bytes


def capacities(machine: Machine) -> list[Capacity]:
    """Return what can wait at each place, from the compute units to DRAM and to the link."""
    dram, dma, link, llc, cache = machine.dram, machine.dma, machine.link, machine.llc, machine.memory_cache
    capacities = [
        Capacity("cache's misses under way", "", MISS_REGISTERS, llc.line_bytes),
        Capacity("before a channel, of each stream", "", QUEUE_DEPTH, LINE_BYTES),
        Capacity("DMA's reads at a channel", "channels.dma_fifo", machine.channels.dma_fifo, LINE_BYTES),
        Capacity("DRAM queue of a channel", "dram.queue_entries", dram.queue_entries, LINE_BYTES),
        Capacity("DMA's reads under way", "dma.outstanding_lines", dma.outstanding_lines, LINE_BYTES),
        Capacity("egress buffer of a link", "link.egress_buffer_bytes", link.egress_buffer_bytes // LINE_BYTES,
                 LINE_BYTES),
        Capacity("stores before it", "link.store_buffer_bytes", link.stores_bytes // LINE_BYTES, LINE_BYTES),
    ]
    if llc.slices:
        capacities.insert(0, Capacity("loads at a slice of the cache", "llc.slice_queue_loads", llc.slice_queue_loads,
                                      llc.line_bytes))
    if cache:
        capacities.append(Capacity("in a slice of the memory cache", "memory_cache.requests", cache.requests,
                                   LINE_BYTES))
    if dram.scheduler == "gpgpusim":
        capacities += [Capacity("on the way to that queue", "dram.entry_latency_cycles", dram.coming_requests,
                                LINE_BYTES),
                       Capacity("at the banks of a channel, beside its queue", "", dram.banks, dram.column_bytes)]
    if dram.scheduler == "fr_fcfs":
        capacities += [Capacity("writes of a channel that begin a batch", "dram.write_high_watermark",
                                dram.write_high_watermark, LINE_BYTES),
                       Capacity("writes that a batch may leave", "dram.write_low_watermark", dram.write_low_watermark,
                                LINE_BYTES)]
    return capacities
