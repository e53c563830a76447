"""Which memory channel an address belongs to.

The block number (address / interleave unit) is folded: the XOR of its `channel_bits`-wide fields, from bit 0 up to the
address width, is the channel. Power-of-two pitches then spread over all channels instead of hitting one.

The arithmetic exists twice, for numbers and for hardware; a test holds the two together.
"""

from .geometry import Geometry


def fold_channel(block: int, channel_bits: int) -> int:
    """Return the channel of a block number. Plain numbers only, for the models compile it with numba."""
    if channel_bits == 0:
        return 0
    channel = 0
    while block:
        channel ^= block
        block >>= channel_bits
    return channel & ((1 << channel_bits) - 1)


def channel_of(address: int, geometry: Geometry) -> int:
    """Return the channel of the byte at `address`, a Python integer; bits beyond the address width are ignored."""
    channel = geometry.channel
    inside = address & ((1 << geometry.tracker.address_bits) - 1)
    return fold_channel(inside // channel.interleave_bytes, channel.channel_bits)


def channel_of_value(address, geometry: Geometry):
    """Return `channel_of` as a combinational Amaranth value of `channel_bits` bits (no bits for a single channel)."""
    bits = geometry.channel.channel_bits
    first = geometry.channel.interleave_bytes.bit_length() - 1
    fields = [address[shift:shift + bits] for shift in range(first, geometry.tracker.address_bits, bits or 64)]
    while len(fields) > 1:  # a balanced tree of XORs
        fields = [fields[i] ^ fields[i + 1] if i + 1 < len(fields) else fields[i] for i in range(0, len(fields), 2)]
    return fields[0][:bits]
