"""The structs that cross block boundaries, each field described once.

Every function takes the geometry and returns an `amaranth.lib.data.StructLayout`.
"""

from amaranth.hdl import Cat, Value
from amaranth.lib import data, enum

from t3sim.rtl import queue_commands
from t3sim.rtl.formats import SUM_BITS
from t3sim.rtl.geometry import Geometry, bits_for
from t3sim.rtl.registers import ARRIVAL_RANGES, EPOCH_BITS, READY_COUNT_BITS


class Op(enum.Enum, shape=2):
    """Operation of a memory request."""

    READ = 0
    STORE = 1  #: plain store
    UPDATE = 2  #: near-memory op-and-store (T3 paper, section 4.3)


class Source(enum.Enum, shape=2):
    """Source of an access to this GPU's memory (T3 paper, section 4.2.1)."""

    LOCAL = 0  #: this GPU's compute units
    REMOTE = 1  #: a peer's compute units, through `remote_map`
    DMA = 2  #: a peer's DMA engine; with READ: this GPU's own DMA engine, for a trigger
    COPY = 3  #: inside one GPU only: its own DMA engine, for a copy of the command queue


def request(geometry: Geometry) -> data.StructLayout:
    """Lay out one access of at most 64 bytes, with the metadata that the Tracker needs."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # virtual address of the first byte
        "bytes": geometry.channel.byte_count_bits,  # 1 to 64
        "op": Op,
        "source": Source,
        "region": geometry.dma.region_bits,  # 0: not mapped by T3, never tracked
        "wf": geometry.tracker.wf_bits,  # wavefront id in the workgroup
        "wg": geometry.tracker.wg_bits,  # the tile's id on the GPU whose memory this is
        **_more(geometry),
    })


def _more(geometry: Geometry) -> dict[str, int]:
    """Lay out what a request or a packet says of its parts, if a switch may have added any up."""
    return {"more": geometry.channel.more_bits} if geometry.channel.more_bits else {}


def dram_command(geometry: Geometry) -> data.StructLayout:
    """Lay out what the arbiter puts into a channel's DRAM queue."""
    return data.StructLayout({
        "request": request(geometry),
        "communication": 1,  # 0: compute stream, 1: communication stream
        "bucket": (geometry.channel.guard_buckets - 1).bit_length() or 1,  # order guard's, returned on retirement
    })


def retirement(geometry: Geometry) -> data.StructLayout:
    """Lay out a retirement: the DRAM scheduler has issued a tracked write's last column access. No back-pressure."""
    return data.StructLayout({"valid": 1, "bucket": (geometry.channel.guard_buckets - 1).bit_length() or 1})


def update(geometry: Geometry) -> data.StructLayout:
    """Lay out the bytes that arrived for one wavefront tile, as the Tracker sees them."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # smallest address of the coalesced accesses
        "amount": geometry.channel.amount_bits,  # bytes, of a sum those of all its parts
        "source": Source,  # of the last access merged
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


def trigger(geometry: Geometry) -> data.StructLayout:
    """Lay out a complete tile; also a DMA command (then the address is the block's) and an event."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # smallest address seen
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


def dma_command(geometry: Geometry) -> data.StructLayout:
    """Lay out a block for an engine."""
    return data.StructLayout(trigger(geometry).members | (
        {"copy": 1} if geometry.dma.queue_commands else {}))  # of the command queue


def read_origins(geometry: Geometry) -> int:
    """Return for how many the engines read: for triggers and, where there is one, for the command queue."""
    return 2 if geometry.dma.queue_commands else 1


def read_for(access, geometry: Geometry) -> Value:
    """Return a bit for each origin of what engines read, at most one of them 1: whose read or data an access is."""
    return Cat(access.source == source for source in (Source.DMA, Source.COPY)[:read_origins(geometry)])


def in_one_line(access, geometry: Geometry) -> Value:
    """Return whether an access has bytes, and all of them in one line."""
    line_bytes = geometry.channel.request_bytes
    return (access.bytes != 0) & ((access.address[:(line_bytes - 1).bit_length()] + access.bytes) <= line_bytes)


def tracker_tag(geometry: Geometry) -> data.StructLayout:
    """Lay out what the Tracker finds an entry by: the tag is the workgroup id's upper bits and the wavefront id."""
    return data.StructLayout({"valid": 1, "tag": geometry.tracker.tag_bits})


def tracker_entry(geometry: Geometry) -> data.StructLayout:
    """Lay out what the Tracker keeps of an open tile."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # smallest address seen
        "count": geometry.tracker.count_bits,  # bytes
        "region": geometry.dma.region_bits,
    })


class QueueOp(enum.Enum, shape=3):
    """Operation that a command in memory asks for."""

    COPY = queue_commands.COPY
    POLL = queue_commands.POLL
    SIGNAL = queue_commands.SIGNAL
    TIMESTAMP = queue_commands.TIMESTAMP
    ADD = queue_commands.ADD


def queue_command(geometry: Geometry) -> data.StructLayout:
    """Lay out one command of a queue in memory, the first bits of its line of 64 bytes.

    Only `value`, which comes first, counts in a line that is polled.
    """
    return data.StructLayout({
        "value": 32,
        "op": QueueOp,
        "address": geometry.tracker.address_bits,
        "region": geometry.dma.region_bits,  # of a copy, as its first wavefront and its workgroup
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


def word_write(geometry: Geometry) -> data.StructLayout:
    """Lay out 32 bits to memory, for whoever polls there."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,
        "value": 32,
        "adds": 1,  # to what memory holds, modulo its width and in one piece
    })


def packet(geometry: Geometry) -> data.StructLayout:
    """Lay out one line on its way to another GPU; address, region and ids are the destination's."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,
        "bytes": geometry.channel.byte_count_bits,
        "op": Op,  # STORE or UPDATE
        "source": Source,  # REMOTE or DMA
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
        **_more(geometry),  # 0 as a GPU sends it
        "device": geometry.dma.device_bits,
    })


def head_packet(geometry: Geometry) -> data.StructLayout:
    """Progress of a GPU's dispatch window, on its way to one that sends to it."""
    return data.StructLayout({
        "head": geometry.tracker.wg_bits + 1,
        "epoch": EPOCH_BITS,  # the kernel that the head belongs to
        "source": geometry.dma.device_bits,  # whose head it is
        "device": geometry.dma.device_bits,  # where it goes
    })


def head_arrival(geometry: Geometry) -> data.StructLayout:
    """Lay out a head that a link hands to a GPU."""
    return data.StructLayout(head_packet(geometry).members | {
        "sender": geometry.dma.device_bits,  # which GPU it is from, as the end of the link knows
    })


def listener(geometry: Geometry) -> data.StructLayout:
    """One to whom this GPU tells its head."""
    return data.StructLayout({"device": geometry.dma.device_bits, "enable": 1})


def dispatch(geometry: Geometry) -> data.StructLayout:
    """Lay out the dispatcher's request, which says which ids a workgroup touches.

    Requests come in the order of dispatch; ids need not.

    A tile that arrives without a workgroup of this GPU has a request that opens its id and starts none; each further
    route of a workgroup has one that does neither, before the one that starts it.
    """
    return data.StructLayout({
        "id": geometry.tracker.wg_bits,  # of its tile here; if it opens none, only what `grant` shows
        "tiles": geometry.tracker.wf_bits + 1,  # wavefront tiles that this GPU will track under the id (0: none)
        "there": geometry.tracker.wg_bits + 1,  # largest id that it touches at the peer
        "peer": bits_for(geometry.dma.peers),
        "opens": 1,  # the id is this GPU's, and was not opened before
        "reaches": 1,  # it touches ids at the peer
        "starts": 1,  # a workgroup starts; 0: the ids are admitted, and no one is told
        "region": geometry.dma.region_bits,  # of a tile that only arrives: of its wavefront tiles but the last
        "last_region": geometry.dma.region_bits,  # of the last of them, which may be narrower
    })


def ready_ask(geometry: Geometry, count_bits: int = READY_COUNT_BITS) -> data.StructLayout:
    """Return the dispatcher's question whether a group of workgroups has its inputs; only with a ready table."""
    return data.StructLayout({
        "group": bits_for(geometry.dma.ready_groups),
        "tiles": count_bits,  # complete ones that it needs
    })


def region(geometry: Geometry) -> data.StructLayout:
    """Lay out one programmed address-space mapping (`remote_map`, `dma_map`: T3 paper, figures 11 and 12)."""
    return data.StructLayout({
        # What becomes of a tile; any of them, and with none the region is not mapped.
        "send_stores": 1,  # compute units' stores leave for the peer at once
        "send_dma": 1,  # tracked; a complete block is sent on by the DMA engine
        "event": 1,  # tracked; a complete tile raises an event (last ring chunk, or a WG to schedule: section 7.2)
        "arrivals": ARRIVAL_RANGES,  # ranges into which peers may write under this region, a bit each
        "threshold": geometry.tracker.count_bits,  # bytes per tile x updates per element
        "family": geometry.dma.region_bits,  # regions of one tile's updates have the same
        **(memory_sum().members if geometry.channel.wide_sums else {}),  # what memory adds of what peers send
        "block": bits_for(geometry.dma.block_shapes),  # shape of its blocks
        "buffer": bits_for(geometry.dma.buffers),  # what DMA may read of it
        "route": bits_for(geometry.dma.routes),  # the first one on which it leaves
        "more_routes": (geometry.dma.copies - 1).bit_length(),  # as many behind that
    })


def memory_sum() -> data.StructLayout:
    """Lay out what a region says of its sums, as in `channel.wide_alu.operands`."""
    return data.StructLayout({"sum": SUM_BITS, "scale": 8, "narrow": 1, "saturate": 1})


def block_shape(geometry: Geometry) -> data.StructLayout:
    """Lay out the shape of one DMA block: columns of contiguous bytes, shared out to wavefront tiles."""
    row_bits, column_bits = geometry.block_bits
    return data.StructLayout({
        "row_bytes": row_bits,  # contiguous bytes of one column
        "columns": column_bits,  # of the block
        "tiles_per_block": geometry.tracker.wf_bits + 1,  # wavefront tiles: 1, 2, 4, ...
        "pitch_bytes": 32,  # leading dimension
    })


def route(geometry: Geometry) -> data.StructLayout:
    """Lay out one destination: where a line goes, and what it is there."""
    return data.StructLayout({
        "device": geometry.dma.device_bits,
        "operation": 1,  # there: 0 store, 1 update
        "destination_region": geometry.dma.region_bits,  # region id there
        "wg_offset": geometry.tracker.wg_bits,  # wg there = wg + wg_offset (modulo)
        "address_offset": geometry.tracker.address_bits,  # address there = address + address_offset (modulo)
    })


def buffer(geometry: Geometry) -> data.StructLayout:
    """Lay out one range of memory that DMA may read."""
    return data.StructLayout({
        "base": geometry.tracker.address_bits,  # first byte
        "limit": geometry.tracker.address_bits,  # one past the last byte
    })


def mapping_tables(geometry: Geometry) -> dict[str, tuple[data.StructLayout, int]]:
    """Return name: (an entry's layout, entries) of the tables that software maps address space with."""
    dma = geometry.dma
    return {"region": (region(geometry), dma.regions), "block": (block_shape(geometry), dma.block_shapes),
            "buffer": (buffer(geometry), dma.buffers), "route": (route(geometry), dma.routes)}


def is_tracked(entry):
    """Return whether the Tracker counts the tiles of a region."""
    return entry.send_dma | entry.event


def error(geometry: Geometry) -> data.StructLayout:
    """Lay out the details latched with the first error."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


class ErrorCode(enum.Enum, shape=5):
    """First error. Sticky until cleared through the bus."""

    NONE = 0
    REGION_UNCONFIGURED = 1  #: an update, trigger or outbound line names a region that is not for it
    THRESHOLD_EXCEEDED = 2  #: a tile received more bytes than its threshold
    ID_REUSED = 3  #: the dispatcher opens an id a second time
    ADDRESS_OUT_OF_RANGE = 4  #: a DMA address outside the mapped region; the line was not sent
    COMPLETION_UNEXPECTED = 5  #: a tile completed for a workgroup that has none left, or has no such wavefront
    TRACKER_MEMORY = 6  #: flipped bits in the Tracker that cannot be corrected; the update may not have counted
    ARRIVAL_REFUSED = 7  #: a packet that nothing here has asked for; it was neither written nor counted
    TRACKER_FULL = 8  #: an update found its set full of other tiles, and was not counted
    REGION_MISMATCH = 9  #: an update named a region that its tile cannot be in, and was not counted
    WATCHDOG = 10  #: nothing moved for long, though something waited: WATCHDOG_WAITS says what
    HEAD_REFUSED = 11  #: a head that its peer cannot have; `wg` is in whose name it came, `address` the head
    RESTART_REFUSED = 12  #: a kernel's number that does not follow, a soft reset that is not done, or what is inside
    RESET_FORCED = 13  #: a soft reset has waited for its limit, and has ended all the same
    DATA_UNEXPECTED = 14  #: data beyond what DMA has asked for; they did not leave
    COMMAND_UNKNOWN = 15  #: a command in memory has a code that no command has; it was not done, and the queue halts
    WORD_MISALIGNED = 16  #: a command polls a word that begins no line, or writes one that is not aligned; the same
    WORD_OUT_OF_RANGE = 17  #: a command polls or writes a word outside the range for it; the same
    DOORBELL_REFUSED = 18  #: a doorbell goes backwards or beyond the ring, or comes before a restart; it was not taken
    SUM_UNKNOWN = 19  #: a region whose sum memory cannot make; its register keeps what it held
    LINE_UNEXPECTED = 20  #: the command queue does not wait for a line that came; it was dropped
    STORE_REFUSED = 21  #: a compute unit's write to a mapped region is not of one line; neither written nor counted


def error_report(geometry: Geometry) -> data.StructLayout:
    """Lay out one block's error output: `valid` is a pulse, the rest counts only with it."""
    return data.StructLayout({"valid": 1, "code": ErrorCode, "details": error(geometry)})


def fault_report(geometry: Geometry) -> data.StructLayout:
    """Lay out a report of a Tracker memory's flipped bits: `valid` is a pulse, the rest counts only with it."""
    return data.StructLayout({
        "valid": 1,
        "uncorrectable": 1,  # otherwise corrected
        "in_entry": 1,  # 0: in a tag
        "way": bits_for(geometry.tracker.ways),
        "set": geometry.tracker.set_bits,
    })
