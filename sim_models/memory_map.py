"""From an address to its memory channel and the line within it. The RTL's address_map.py is the same function."""

from typing import NamedTuple

from rtl.geometry import ChannelGeometry

from .jit import inlined


class MemoryMap(NamedTuple):
    channels: int
    channel_bits: int
    interleave_shift: int


def memory_map(g: ChannelGeometry) -> MemoryMap:
    return MemoryMap(g.channels, g.channel_bits, (g.interleave_bytes - 1).bit_length())


@inlined
def channel_of(address, m):
    """Channel of an address: all channel-wide fields of the block number, exclusive-or.

    The fold spreads strides of any power of two (a column-major output's leading dimension is one) over all channels.
    """
    if m.channel_bits == 0:
        return 0
    block = address >> m.interleave_shift
    channel = 0
    while block:
        channel ^= block
        block >>= m.channel_bits
    return channel & (m.channels - 1)


@inlined
def local_line(address, m):
    """Number of a 64-byte line within its channel (the fold is invertible, so no two lines share a number)."""
    block = address >> m.interleave_shift
    lines = m.interleave_shift - 6
    return ((block >> m.channel_bits) << lines) | ((address >> 6) & ((1 << lines) - 1))
