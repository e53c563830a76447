"""Records of a GPU's resources and of the network between GPUs; each function takes those that it works on.

Arrays are indexed by [gpu], or by [row] = GPU*channels + channel, or by [port] of the network, or [node].
"""

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import PLACES
from t3sim.base.compiled.records import Record
from t3sim.collectives.schedule.mirror import Mirror
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric.bits import MemoryMap
from t3sim.gpu.hbm import HbmState

PURPOSES = 2 * 3  #: reads of each of three streams, then its writes, see `memory`
WAITS = 4  #: the first purposes, which `MemoryState.waited` counts

_REQUEST = Record(("lo", np.int64), ("hi", np.int64), ("bucket", np.int64), ("tag", np.int64),
                ("before", np.int64, (WAITS,)))
_CHANNEL = Record(("free_count", np.int64), ("turn", np.int64), ("served", np.int64, (PURPOSES,)),
                  ("retired_lo", np.int64), ("retired_hi", np.int64), ("retired_tag", np.int64), ("retired", np.int64))
#: Ways of a set that are looked at together; a set of more ways has several groups.
WAYS = Record(("tag", np.int32, (PLACES,)), ("stamp", np.int32, (PLACES,)), ("pending", np.int16, (PLACES,)),
             ("dirty", np.uint8, (PLACES,)))
_CACHED = Record(("queue", np.int64), ("after", np.int64), ("last", np.int64))


class MemoryCache(NamedTuple):
    """Slices [row, ...] (row = gpu*channels + channel). An entry is a request's place in `MemoryState`."""

    RECORDS = WAYS, _CACHED

    requests: int  # that a slice holds; 0: there is no such cache
    line_cycles: float  # that a slice takes for a request
    hit_cycles: int  # from a look-up to the data
    fill_cycles: int  # from DRAM's data to the slice's
    replacement: int  # of `replacement.NAMES`
    sets: int
    groups: int  # of a set's ways, see `replacement.make_sets`
    tag: np.ndarray  # int32 [row, group, way]: number of a line in its channel, -1 empty
    stamp: np.ndarray  # int32 [row, group, way], see `replacement`
    pending: np.ndarray  # int16 [row, group, way]: entry for which the line is fetched, -1 valid data
    dirty: np.ndarray  # uint8 [row, group, way]
    clock: np.ndarray  # int64 [row]
    queue: np.ndarray  # int64 [row, place]: entries to be looked up
    head: np.ndarray  # int64 [row]
    count: np.ndarray  # int64 [row]
    after: np.ndarray  # int64 [row, entry]: the next that waits for the same line, or whose line has come
    last: np.ndarray  # int64 [row, entry]: the last that waits for what an entry fetches, or itself
    first_back: np.ndarray  # int64 [row]: first of the entries whose line has come, which go before the queue
    last_back: np.ndarray  # int64 [row]
    free: np.ndarray  # float [row]: when the slice can look up the next one
    hits: np.ndarray  # int64 [row]: requests performed without DRAM
    misses: np.ndarray  # int64 [row]: lines fetched
    written_back: np.ndarray  # int64 [row]: lines


class MemoryState(NamedTuple):
    """A GPU's memory side: queues of the channels [row], requests in DRAM or slices [row, entry], totals [gpu, ...]."""

    RECORDS = _REQUEST, _CHANNEL

    b: bits.RequestBits
    m: MemoryMap
    hbm: HbmState
    cache: MemoryCache
    compute: queues.RequestQueue
    inbound: queues.RequestQueue
    fill_cycles: int  # from the end of a read's data to its compute unit
    lo: np.ndarray
    hi: np.ndarray
    bucket: np.ndarray
    tag: np.ndarray
    before: np.ndarray  # int64 [row, entry, one of `WAITS`]: `served` of the channel when the request entered
    free: np.ndarray  # stack of free entries
    free_count: np.ndarray
    served: np.ndarray  # int64 [row, purpose]: requests served so far
    total_bytes: np.ndarray  # int64 [gpu, purpose]: of requests that were performed
    dram_bytes: np.ndarray  # the same of DRAM; without a memory-side cache the same array
    waited: np.ndarray  # int64 [gpu, purpose]: requests served while reads of compute units waited in the queue
    fills: queues.TimedQueue  # reads of this GPU's own kernel from DRAM, back at a time
    hits: queues.TimedQueue  # the same, of what a memory-side cache had
    region_ports: np.ndarray  # int64 [gpu, region, copy]: through which its lines leave; `network.NO_PORT`: no more
    dma_returns: queues.TimedQueue  # lines read for DMA [port through which they leave]
    tracked_retired: np.ndarray  # int64 [gpu]: tracked writes performed by DRAM
    retired_lo: np.ndarray  # int64 [row]: request that completed this cycle (data mode), valid if retired is set
    retired_hi: np.ndarray
    retired_tag: np.ndarray
    retired: np.ndarray
    due: np.ndarray  # int64 [row]: cycle in which a channel has to be looked at, if nothing new comes
    turn: np.ndarray  # int64 [row]: stream served last (baseline without RTL)
    compute_tags: queues.TagQueue  # of requests inside the RTL
    inbound_tags: queues.TagQueue


class CacheSlices(NamedTuple):
    """Queues of loads [gpu * slices + slice, place]."""

    slices: int  # of a GPU; 0: there are none, the cache serves whoever comes
    per_channel: int
    line_cycles: float  # that a slice takes for a line
    line: np.ndarray  # int64 line number
    slot: np.ndarray  # int64 that loads it
    head: np.ndarray  # int64
    count: np.ndarray  # int64
    free: np.ndarray  # float [gpu * slices]: when the slice can look up the next line
    waiting: np.ndarray  # int64 [gpu]: loads in all queues


class Llc(NamedTuple):
    """Arrays [gpu, group of a set, way] and miss registers [gpu, register]."""

    RECORDS = (WAYS,)

    tag: np.ndarray  # int32 line number, -1 empty (32 bits, so that a set is one line of the host's own cache)
    stamp: np.ndarray  # int32, see `replacement`: of last use in lookups, or how far the next use is
    dirty: np.ndarray  # uint8
    pending: np.ndarray  # int16 miss register, -1 valid data
    clock: np.ndarray  # int64 [gpu]
    miss_left: np.ndarray  # int32 DRAM requests still under way
    miss_set: np.ndarray
    miss_way: np.ndarray
    waiters: np.ndarray  # uint64 [gpu, register, words]: slots that wait, one bit each
    free: np.ndarray  # int32 stack of free registers
    free_count: np.ndarray  # int64 [gpu]
    lookups: np.ndarray  # int64 [gpu]
    misses: np.ndarray  # int64 [gpu]
    line_bytes: int
    line_shift: int
    line_requests: int  # memory requests of a line
    replacement: int  # of `replacement.NAMES`
    groups: int  # of a set's ways, see `replacement.make_sets`
    sets: int  # of a part
    parts: int
    part_units: int  # compute units of a part
    slices: CacheSlices


class Network(NamedTuple):
    """Ports of all nodes: GPUs first, then switches."""

    bytes_per_cycle: np.ndarray  # float [port]
    latency_cycles: np.ndarray  # int64 [port]
    buffer_bytes: np.ndarray  # float [port]
    head_bytes: np.ndarray  # float [port]
    target: np.ndarray  # int64 [port]: node at the link's end
    next_port: np.ndarray  # int64 [node, destination]: NO_PORT where no way leads
    first_out: np.ndarray  # int64 [node + 1]: first entry of each node in `ports_out`
    ports_out: np.ndarray
    first_in: np.ndarray  # int64 [node + 1]: the same of `ports_in`
    ports_in: np.ndarray
    one_for_all: bool  # only the representative GPU is simulated: its packets arrive at itself
    gpus: int  # columns of `next_port` behind them are groups of GPUs
    planes: int  # links side by side wherever there is one, a power of two; lines take turns on them
    flight: queues.Wires  # packets [port]
    free_time: np.ndarray  # float [port]: when the last accepted packet has left
    last_arrival: np.ndarray  # int64 [port]
    sent_bytes: np.ndarray  # int64 [port]
    sent_packets: np.ndarray
    busy_cycles: np.ndarray  # float [port]
    taken: np.ndarray  # int64 [port]: packets that have been taken at the link's end
    heads: queues.Wires  # heads of dispatch windows [port]
    last_head: np.ndarray  # int64 [port]: arrival of the last of them
    sent_heads: np.ndarray  # int64 [port]
    heard: queues.TimedQueue  # heads that have arrived at a GPU [node]
    injected: np.ndarray  # int64 [node]: packets that are its own
    arrived: np.ndarray  # int64 [node]: packets delivered to its memory channels, a sum once for each of its parts
    unroutable: np.ndarray  # int64 [node]: packets that were dropped, because no way leads to their destination
    mirrored: bool  # the representative GPU's packets also act as its neighbour's, as `mirror` says
    mirror: Mirror


class SwitchState(NamedTuple):
    """Sums and groups; arrays are [GPU to which a sum goes, ...] and [GPU from which a copy comes, ...]."""

    gpus: int  # groups are numbered from here on; 0: it only passes on
    parts: int  # of a sum; 0: it adds nothing
    most_lines: int  # of sums that have begun and have not left, for one GPU
    latency_cycles: int  # from a sum's last part to the sum
    sum_op: int  # what a sum does at its GPU, of `bits`
    base: np.ndarray  # int64 [gpu]: address of line 0
    parts_taken: np.ndarray  # uint8 [gpu, line]
    order: np.ndarray  # uint8 [gpu, line, part]: whose they were
    held_lines: np.ndarray  # int64 [gpu, plane]: in the port's memory
    most_held: np.ndarray  # int64 [gpu, plane]
    sums: queues.TimedQueue  # whole, [gpu and plane]
    copy_to: np.ndarray  # int64 [gpu, group, copy]; NOBODY: no more
    address_offset: np.ndarray  # int64 [gpu, group, copy]: to what the packet says
    id_offset: np.ndarray  # the same
