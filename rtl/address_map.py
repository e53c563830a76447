"""Which memory channel an address belongs to.

The block number (address / interleave unit) is folded: the XOR of its `channel_bits`-wide fields, from bit 0 up to the
address width, is the channel. Power-of-two pitches then spread over all channels instead of hitting one.

The arithmetic exists twice, for numbers and for hardware; a test holds the two together.
"""

from .geometry import Geometry


def fold_channel(address: int, interleave_bits: int, channel_bits: int, address_bits: int) -> int:
    """Channel of `address` from plain numbers only, so that it may be compiled with `numba.njit`."""
    channel = 0
    if channel_bits > 0:
        for shift in range(interleave_bits, address_bits, channel_bits):
            width = min(channel_bits, address_bits - shift)
            channel ^= (address >> shift) & ((1 << width) - 1)
    return channel


def channel_of(address: int, geometry: Geometry) -> int:
    """Channel of the byte at `address`, a Python integer; bits beyond the address width are ignored."""
    channel = geometry.channel
    return fold_channel(address, channel.interleave_bytes.bit_length() - 1, channel.channel_bits,
                        geometry.tracker.address_bits)


def channel_of_value(address, geometry: Geometry):
    """The same as a combinational Amaranth value of `channel_bits` bits (no bits for a single channel)."""
    bits = geometry.channel.channel_bits
    first = geometry.channel.interleave_bytes.bit_length() - 1
    fields = [address[shift:shift + bits] for shift in range(first, geometry.tracker.address_bits, bits or 64)]
    while len(fields) > 1:  # a balanced tree of XORs
        fields = [fields[i] ^ fields[i + 1] if i + 1 < len(fields) else fields[i] for i in range(0, len(fields), 2)]
    return fields[0][:bits]
