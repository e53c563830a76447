"""Which memory channel an address belongs to.

The number of channels is an odd number times a power of two, `fold_bits` wide. The block number (address / interleave
unit) is folded: the XOR of its `fold_bits`-wide fields, from bit 0 up to the address width, is the channel's lower
part, so that power-of-two pitches spread over all channels instead of hitting one. What is above the lowest field,
modulo the odd number, is its upper part. A block's number within its channel is what is above that field, divided by
the odd number: no two blocks share a place.

The arithmetic exists twice, for numbers and for hardware; a test holds the two together.
"""

from collections.abc import Callable
from operator import xor

from amaranth.hdl import Array, Cat, Const, Mux, Value

from t3sim.rtl.geometry import Geometry

_DIGIT_BITS = 4  #: what a small table of residues takes at once


def channel_of_block(block: int, odd_channels: int, fold_bits: int) -> int:
    """Return the channel of a block number. Plain numbers only, for the models compile it with numba."""
    channel = 0
    if odd_channels > 1:
        channel = (block >> fold_bits) % odd_channels << fold_bits
    if fold_bits == 0:
        return channel
    folded = 0
    while block:
        folded ^= block
        block >>= fold_bits
    return channel | folded & ((1 << fold_bits) - 1)


def channel_of(address: int, geometry: Geometry) -> int:
    """Return the channel of the byte at `address`, a Python integer; bits beyond the address width are ignored."""
    channel = geometry.channel
    inside = address & ((1 << geometry.tracker.address_bits) - 1)
    return channel_of_block(inside // channel.interleave_bytes, channel.odd_channels, channel.fold_bits)


def channel_of_value(address, geometry: Geometry) -> Value:
    """Return `channel_of` as a combinational Amaranth value of `channel_bits` bits (no bits for a single channel)."""
    channel = geometry.channel
    block = Value.cast(address)[(channel.interleave_bytes - 1).bit_length():geometry.tracker.address_bits]
    bits, odd = channel.fold_bits, channel.odd_channels
    lower = _tree([block[at:at + bits] for at in range(0, len(block), bits)], xor) if bits else Const(0, 0)
    return lower[:bits] if odd == 1 else Cat(lower[:bits], _residue(block[bits:], odd))


def _residue(number: Value, modulus: int) -> Value:
    """Return `number` modulo a small odd number: the digits' residues, looked up, and a tree of adders that wrap."""
    width = (modulus - 1).bit_length()

    def wrapped(one: Value, other: Value) -> Value:
        total = one + other
        return Mux(total >= modulus, total - modulus, total)[:width]

    digits = [(at, number[at:at + _DIGIT_BITS]) for at in range(0, len(number), _DIGIT_BITS)]
    return _tree([Array(Const((value << at) % modulus, width) for value in range(1 << len(digit)))[digit]
                  for at, digit in digits], wrapped)


def _tree(values: list[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Combine all values in a balanced tree."""
    while len(values) > 1:
        pairs = [values[at:at + 2] for at in range(0, len(values), 2)]
        values = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]
