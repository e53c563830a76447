"""Map an address to its memory channel, by the hardware's own fold, and to the line within it."""

from typing import NamedTuple

from t3sim.base.compiled.jit import inlined
from t3sim.base.line import LINE_SHIFT
from t3sim.rtl.address_map import channel_of_block
from t3sim.rtl.geometry import ChannelGeometry

_channel = inlined(channel_of_block)


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
