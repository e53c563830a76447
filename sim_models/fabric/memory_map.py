"""Map an address to its memory channel, by the hardware's own fold, and to the line within it."""

from typing import NamedTuple

from t3sim.rtl.address_map import fold_channel
from t3sim.rtl.geometry import ChannelGeometry

from ..compiled.jit import inlined
from ..line import LINE_SHIFT

_fold = inlined(fold_channel)


class MemoryMap(NamedTuple):
    channels: int
    channel_bits: int
    interleave_shift: int


def memory_map(g: ChannelGeometry) -> MemoryMap:
    return MemoryMap(g.channels, g.channel_bits, (g.interleave_bytes - 1).bit_length())


@inlined
def channel_of(address, m):
    """Return the channel of an address.

    The fold spreads strides of any power of two (a column-major output's leading dimension is one) over all channels.
    """
    return _fold(address >> m.interleave_shift, m.channel_bits)


@inlined
def local_line(address, m):
    """Return the number of a 64-byte line within its channel. The fold is invertible: no two lines share a number."""
    block = address >> m.interleave_shift
    lines = m.interleave_shift - LINE_SHIFT
    return ((block >> m.channel_bits) << lines) | ((address >> LINE_SHIFT) & ((1 << lines) - 1))
