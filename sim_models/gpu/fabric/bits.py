"""A memory request packed into two 64-bit words, in the bit order of the RTL's request and packet structs.

Kernels carry requests in this form so that they move between models and RTL ports without being taken apart.
Words are int64 (numba mixes int64 and uint64 into floats); bits above the struct are zero.
An address is mapped to its memory channel by the hardware's own fold, and to the line within it.
"""

from typing import NamedTuple

from t3sim.base.compiled.jit import inlined
from t3sim.base.line import LINE_SHIFT
from t3sim.rtl.address_map import channel_of_block
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.rtl.registers import EPOCH_BITS

READ, STORE, UPDATE = 0, 1, 2  #: layouts.Op
LOCAL, REMOTE, DMA = 0, 1, 2  #: layouts.Source
_channel = inlined(channel_of_block)


class RequestBits(NamedTuple):
    """Least significant bit of each field of a request; widths where they vary."""

    address_bits: int
    bytes: int
    op: int
    source: int
    region: int
    region_bits: int
    wf: int
    wf_bits: int
    wg: int
    wg_bits: int
    more: int  # no bits of it where no switch adds
    more_bits: int
    device: int
    device_bits: int
    dram_communication: int  # in the dram_command struct, which starts with the request
    dram_bucket: int
    bucket_bits: int
    head_source: int  # in the head_packet struct, which fits a word
    head_device: int


def request_bits(geometry: Geometry) -> RequestBits:
    """Return the bit positions for a geometry; a test compares them with the RTL's own layouts."""
    tracker, dma, channel = geometry.tracker, geometry.dma, geometry.channel
    byte_count = tracker.address_bits
    op = byte_count + channel.byte_count_bits
    source = op + 2
    region = source + 2
    wf = region + dma.region_bits
    wg = wf + tracker.wf_bits
    more = wg + tracker.wg_bits
    end = more + channel.more_bits
    head_source = tracker.wg_bits + 1 + EPOCH_BITS
    return RequestBits(tracker.address_bits, byte_count, op, source, region, dma.region_bits, wf, tracker.wf_bits, wg,
                       tracker.wg_bits, more, channel.more_bits, end, dma.device_bits, end, end + 1,
                       (channel.guard_buckets - 1).bit_length() or 1, head_source, head_source + dma.device_bits)


@inlined
def get(lo: int, hi: int, lsb: int, width: int) -> int:
    """Return the field of `width` < 63 bits at `lsb` of the 128-bit value hi:lo."""
    if lsb >= 64:
        value = hi >> (lsb - 64)
    else:
        value = lo >> lsb
        if lsb + width > 64:
            value = (value & ((1 << (64 - lsb)) - 1)) | (hi << (64 - lsb))
    return value & ((1 << width) - 1)


@inlined
def low(value: int, lsb: int) -> int:
    """Return the contribution of a field to the low word."""
    return value << lsb if lsb < 64 else 0


@inlined
def high(value: int, lsb: int) -> int:
    """Return the contribution of a field to the high word."""
    if lsb >= 64:
        return value << (lsb - 64)
    return value >> (64 - lsb) if lsb > 0 else 0


@inlined
def put(lo: int, hi: int, lsb: int, width: int, value: int) -> tuple[int, int]:
    """Return hi:lo with another value in the field of `width` < 63 bits at `lsb`, its bits beyond it cut off."""
    mask = (1 << width) - 1
    return (lo & ~low(mask, lsb) | low(value & mask, lsb), hi & ~high(mask, lsb) | high(value & mask, lsb))


@inlined
def pack(fields: RequestBits, address: int, byte_count: int, op: int, source: int, region: int, wf: int,
         wg: int) -> tuple[int, int]:
    """Pack a request into (lo, hi)."""
    lo = (address | low(byte_count, fields.bytes) | low(op, fields.op) | low(source, fields.source)
          | low(region, fields.region) | low(wf, fields.wf) | low(wg, fields.wg))
    hi = (high(byte_count, fields.bytes) | high(op, fields.op) | high(source, fields.source)
          | high(region, fields.region) | high(wf, fields.wf) | high(wg, fields.wg))
    return lo, hi


@inlined
def request_of(hi: int, fields: RequestBits) -> int:
    """Return a request's high word, from that of a packet or of a DRAM command: both begin with one."""
    return hi & ((1 << (fields.device - 64)) - 1)


@inlined
def address_of(lo: int, fields: RequestBits) -> int:
    return lo & ((1 << fields.address_bits) - 1)


class MemoryMap(NamedTuple):
    channels: int
    odd_channels: int
    fold_bits: int
    interleave_shift: int


def memory_map(geometry: ChannelGeometry) -> MemoryMap:
    return MemoryMap(geometry.channels, geometry.odd_channels, geometry.fold_bits,
                     (geometry.interleave_bytes - 1).bit_length())


@inlined
def channel_of(address: int, layout: MemoryMap) -> int:
    """Return the channel of an address.

    The fold spreads strides of any power of two (a column-major output's leading dimension is one) over all channels.
    """
    return _channel(address >> layout.interleave_shift, layout.odd_channels, layout.fold_bits)


@inlined
def row_of(address: int, layout: MemoryMap, gpu: int) -> int:
    """Return the row that an address's channel has in arrays of all GPUs' channels."""
    return gpu * layout.channels + channel_of(address, layout)


@inlined
def local_line(address: int, layout: MemoryMap) -> int:
    """Return the number of a 64-byte line within its channel. The fold is invertible: no two lines share a number."""
    block = address >> layout.interleave_shift
    lines = layout.interleave_shift - LINE_SHIFT
    local = block >> layout.fold_bits
    if layout.odd_channels > 1:
        local //= layout.odd_channels
    return (local << lines) | ((address >> LINE_SHIFT) & ((1 << lines) - 1))
