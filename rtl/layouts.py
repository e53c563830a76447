"""The structs between blocks, each field described once.

Every function takes the geometry and returns an `amaranth.lib.data.StructLayout`.
"""

from amaranth.hdl import Cat, Value
from amaranth.lib import data, enum

from t3sim.rtl import queue_commands
from t3sim.rtl.formats import SUM_BITS
from t3sim.rtl.geometry import Geometry, bits_for
from t3sim.rtl.registers import ARRIVAL_RANGES, EPOCH_BITS, READY_COUNT_BITS


class Op(enum.Enum, shape=2):
    READ = 0
    STORE = 1
    UPDATE = 2  #: near-memory op-and-store (T3 paper, section 4.3)


class Source(enum.Enum, shape=2):
    """Source of an access to this GPU's memory (T3 paper, section 4.2.1)."""

    LOCAL = 0  #: this GPU's compute units
    REMOTE = 1  #: a peer's compute units, through `remote_map`
    DMA = 2  #: a peer's DMA engine; with READ: this GPU's DMA engine, for a trigger
    COPY = 3  #: only inside one GPU: its DMA engine, for a copy of the command queue


def request(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "address": geometry.tracker.address_bits,
        "bytes": geometry.channel.byte_count_bits,  # 1 to 64
        "op": Op,
        "source": Source,
        "region": geometry.dma.region_bits,  # 0: not mapped by T3, never tracked
        "wf": geometry.tracker.wf_bits,  # wavefront id in the workgroup
        "wg": geometry.tracker.wg_bits,  # the tile's id on this GPU
        **_more(geometry),
    })


def _more(geometry: Geometry) -> dict[str, int]:
    """Lay out the number of parts in a request or packet, if a switch may add."""
    return {"more": geometry.channel.more_bits} if geometry.channel.more_bits else {}


def dram_command(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "request": request(geometry),
        "communication": 1,  # 0: compute stream, 1: communication stream
        "bucket": (geometry.channel.guard_buckets - 1).bit_length() or 1,  # of the order guard, returned on retirement
    })


def retirement(geometry: Geometry) -> data.StructLayout:
    """Lay out a retirement: the DRAM scheduler has issued a tracked write's last column access. No back-pressure."""
    return data.StructLayout({"valid": 1, "bucket": (geometry.channel.guard_buckets - 1).bit_length() or 1})


def update(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # smallest address of the coalesced accesses
        "amount": geometry.channel.amount_bits,  # bytes, once for each part of a sum
        "source": Source,  # of the last access merged
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


def trigger(geometry: Geometry) -> data.StructLayout:
    """Lay out a complete tile; also a DMA command (with the block's address) and an event."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # smallest address seen
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


def dma_command(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout(trigger(geometry).members | (
        {"copy": 1} if geometry.dma.queue_commands else {}))  # of the command queue


def read_origins(geometry: Geometry) -> int:
    """Return the number of origins of DMA reads: triggers and, if present, the command queue."""
    return 2 if geometry.dma.queue_commands else 1


def read_for(access, geometry: Geometry) -> Value:
    """Return one bit for each origin of DMA reads: at most one is 1, for the origin of this access."""
    return Cat(access.source == source for source in (Source.DMA, Source.COPY)[:read_origins(geometry)])


def in_one_line(access, geometry: Geometry) -> Value:
    """Return whether an access has bytes, and all of them in one line."""
    line_bytes = geometry.channel.request_bytes
    return (access.bytes != 0) & ((access.address[:(line_bytes - 1).bit_length()] + access.bytes) <= line_bytes)


def tracker_tag(geometry: Geometry) -> data.StructLayout:
    """Lay out the Tracker's tag: the workgroup id's upper bits and the wavefront id."""
    return data.StructLayout({"valid": 1, "tag": geometry.tracker.tag_bits})


def tracker_entry(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "address": geometry.tracker.address_bits,  # smallest address seen
        "count": geometry.tracker.count_bits,  # bytes
        "region": geometry.dma.region_bits,
    })


class QueueOp(enum.Enum, shape=3):
    COPY = queue_commands.COPY
    POLL = queue_commands.POLL
    SIGNAL = queue_commands.SIGNAL
    TIMESTAMP = queue_commands.TIMESTAMP
    ADD = queue_commands.ADD


def queue_command(geometry: Geometry) -> data.StructLayout:
    """Lay out one command of a queue in memory, the first bits of its line of 64 bytes.

    In a polled line only `value` counts, which is first.
    """
    return data.StructLayout({
        "value": 32,
        "op": QueueOp,
        "address": geometry.tracker.address_bits,
        "region": geometry.dma.region_bits,  # region, wf and wg: of a copy, with its first wavefront
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


def word_write(geometry: Geometry) -> data.StructLayout:
    """Lay out a 32-bit write to memory, for a poll."""
    return data.StructLayout({
        "address": geometry.tracker.address_bits,
        "value": 32,
        "adds": 1,  # add to memory, modulo 2^32, atomically
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
    """Lay out the progress of a GPU's dispatch window, for a GPU that sends to it."""
    return data.StructLayout({
        "head": geometry.tracker.wg_bits + 1,
        "epoch": EPOCH_BITS,  # its kernel
        "source": geometry.dma.device_bits,  # the head's GPU
        "device": geometry.dma.device_bits,  # destination
    })


def head_arrival(geometry: Geometry) -> data.StructLayout:
    """Lay out a head that a link hands to a GPU."""
    return data.StructLayout(head_packet(geometry).members | {
        "sender": geometry.dma.device_bits,  # as the end of the link knows it
    })


def listener(geometry: Geometry) -> data.StructLayout:
    """Lay out a GPU to which this GPU sends its head."""
    return data.StructLayout({"device": geometry.dma.device_bits, "enable": 1})


def dispatch(geometry: Geometry) -> data.StructLayout:
    """Lay out the dispatcher's request, which names the ids that a workgroup touches.

    Requests are in the order of dispatch; ids need not be.

    A tile that arrives without a workgroup of this GPU has a request that opens its id and starts none. Each further
    route of a workgroup has a request that does neither, before the one that starts it.
    """
    return data.StructLayout({
        "id": geometry.tracker.wg_bits,  # of its tile here; if it opens none, only shown by `grant`
        "tiles": geometry.tracker.wf_bits + 1,  # wavefront tiles that this GPU will track under the id
        "there": geometry.tracker.wg_bits + 1,  # its largest id at the peer
        "peer": bits_for(geometry.dma.peers),
        "opens": 1,  # it opens the id here
        "reaches": 1,  # it touches ids at the peer
        "starts": 1,  # a workgroup starts; 0: ids are only admitted
        "region": geometry.dma.region_bits,  # of a tile that only arrives: of all wavefront tiles but the last
        "last_region": geometry.dma.region_bits,  # of the last one, which may be narrower
    })


def ready_ask(geometry: Geometry, count_bits: int = READY_COUNT_BITS) -> data.StructLayout:
    """Lay out the dispatcher's question whether a group of workgroups has its inputs; only with a ready table."""
    return data.StructLayout({
        "group": bits_for(geometry.dma.ready_groups),
        "tiles": count_bits,  # complete tiles that it needs
    })


def region(geometry: Geometry) -> data.StructLayout:
    """Lay out one programmed address-space mapping (`remote_map`, `dma_map`: T3 paper, figures 11 and 12)."""
    return data.StructLayout({
        # With none of the three the region is not mapped.
        "send_stores": 1,  # compute units' stores leave at once
        "send_dma": 1,  # tracked; DMA sends complete blocks
        "event": 1,  # tracked; a complete tile raises an event (last ring chunk, or a WG to schedule: section 7.2)
        "arrivals": ARRIVAL_RANGES,  # ranges into which peers may write, a bit each
        "threshold": geometry.tracker.count_bits,  # bytes per tile x updates per element
        "family": geometry.dma.region_bits,  # shared by the regions of one tile's updates
        **(memory_sum().members if geometry.channel.wide_sums else {}),  # of stores by peers
        "block": bits_for(geometry.dma.block_shapes),  # shape of its blocks
        "buffer": bits_for(geometry.dma.buffers),
        "route": bits_for(geometry.dma.routes),  # the first one
        "more_routes": (geometry.dma.copies - 1).bit_length(),
    })


def memory_sum() -> data.StructLayout:
    """Lay out a region's sum, as in `channel.wide_alu.operands`."""
    return data.StructLayout({"sum": SUM_BITS, "scale": 8, "narrow": 1, "saturate": 1})


def block_shape(geometry: Geometry) -> data.StructLayout:
    """Lay out the shape of one DMA block: columns of contiguous bytes, divided among wavefront tiles."""
    row_bits, column_bits = geometry.block_bits
    return data.StructLayout({
        "row_bytes": row_bits,
        "columns": column_bits,
        "tiles_per_block": geometry.tracker.wf_bits + 1,  # 1, 2, 4, ...
        "pitch_bytes": 32,  # leading dimension
    })


def route(geometry: Geometry) -> data.StructLayout:
    """Lay out one destination of lines."""
    return data.StructLayout({
        "device": geometry.dma.device_bits,
        "operation": 1,  # 0 store, 1 update
        "destination_region": geometry.dma.region_bits,
        "wg_offset": geometry.tracker.wg_bits,  # added to wg, modulo its width
        "address_offset": geometry.tracker.address_bits,  # added to the address, modulo its width
    })


def buffer(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "base": geometry.tracker.address_bits,
        "limit": geometry.tracker.address_bits,  # one past the last byte
    })


def mapping_tables(geometry: Geometry) -> dict[str, tuple[data.StructLayout, int]]:
    """Return name: (layout of an entry, entries) of the tables with which software maps address space."""
    dma = geometry.dma
    return {"region": (region(geometry), dma.regions), "block": (block_shape(geometry), dma.block_shapes),
            "buffer": (buffer(geometry), dma.buffers), "route": (route(geometry), dma.routes)}


def is_tracked(entry):
    return entry.send_dma | entry.event


def error(geometry: Geometry) -> data.StructLayout:
    return data.StructLayout({
        "address": geometry.tracker.address_bits,
        "region": geometry.dma.region_bits,
        "wf": geometry.tracker.wf_bits,
        "wg": geometry.tracker.wg_bits,
    })


class ErrorCode(enum.Enum, shape=5):
    NONE = 0
    REGION_UNCONFIGURED = 1  #: an update, trigger or outbound line names a region without this action
    THRESHOLD_EXCEEDED = 2  #: a tile received more bytes than its threshold
    ID_REUSED = 3  #: the dispatcher opened an id a second time
    ADDRESS_OUT_OF_RANGE = 4  #: a DMA address outside the mapped region; the line was not sent
    COMPLETION_UNEXPECTED = 5  #: a tile completed for a workgroup that has none left, or lacks this wavefront
    TRACKER_MEMORY = 6  #: flipped bits in the Tracker that cannot be corrected; the update may not have counted
    ARRIVAL_REFUSED = 7  #: an unlawful packet; it was neither written nor counted
    TRACKER_FULL = 8  #: an update found its set full of other tiles, and was not counted
    REGION_MISMATCH = 9  #: an update's region is of another family than its tile's; it was not counted
    WATCHDOG = 10  #: nothing moved for long though something waited, see WATCHDOG_WAITS
    HEAD_REFUSED = 11  #: an impossible head; `wg` is its source, `address` the head
    RESTART_REFUSED = 12  #: EPOCH does not follow, a soft reset is in progress, or a kernel is inside
    RESET_FORCED = 13  #: a soft reset reached its limit and ended anyway
    DATA_UNEXPECTED = 14  #: data without a DMA read; they did not leave
    COMMAND_UNKNOWN = 15  #: a command in memory has an unknown code; it was not executed, and the queue halts
    WORD_MISALIGNED = 16  #: a command polls a word that begins no line, or writes an unaligned one; as above
    WORD_OUT_OF_RANGE = 17  #: a command polls or writes a word outside its range; as above
    DOORBELL_REFUSED = 18  #: a doorbell moves backwards or beyond the ring, or rings before a restart; it was ignored
    SUM_UNKNOWN = 19  #: a region with a sum that memory lacks; its register keeps its old value
    LINE_UNEXPECTED = 20  #: an unexpected line for the command queue; it was dropped
    STORE_REFUSED = 21  #: a compute unit's write to a mapped region is not in one line; not written or counted


def error_report(geometry: Geometry) -> data.StructLayout:
    """Lay out one block's error output: `valid` is a pulse, and the other fields count only with it."""
    return data.StructLayout({"valid": 1, "code": ErrorCode, "details": error(geometry)})


def fault_report(geometry: Geometry) -> data.StructLayout:
    """Lay out a Tracker memory's flipped bits: `valid` is a pulse, and the other fields count only with it."""
    return data.StructLayout({
        "valid": 1,
        "uncorrectable": 1,  # otherwise corrected
        "in_entry": 1,  # 0: in a tag
        "way": bits_for(geometry.tracker.ways),
        "set": geometry.tracker.set_bits,
    })
