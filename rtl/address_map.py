"""Maps addresses to memory channels.

The number of channels is an odd number times a power of two, 2^`fold_bits`. A channel number has two parts:

1. Lower part: the XOR of the `fold_bits`-wide fields of the block number (address / interleave unit), so power-of-two
   pitches spread over all channels.
2. Upper part: the block number above its lowest field, modulo the odd number.

A block's number within its channel is the part above the lowest field, divided by the odd number, so no two blocks
share a place.

The arithmetic exists twice, for integers and for hardware; a test compares both.
"""

from collections.abc import Callable
from operator import xor

from amaranth.hdl import Array, Cat, Const, Mux, Value

from t3sim.rtl.geometry import Geometry

_DIGIT_BITS = 4  #: address bits of a table of residues


def channel_of_block(block: int, odd_channels: int, fold_bits: int) -> int:
    """Return the channel of a block number. Integers only, because the models compile it with numba."""
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
    """Return the channel of the byte at `address`, an integer; bits beyond the address width are ignored."""
    channel = geometry.channel
    inside = address & ((1 << geometry.tracker.address_bits) - 1)
    return channel_of_block(inside // channel.interleave_bytes, channel.odd_channels, channel.fold_bits)


def channel_of_value(address, geometry: Geometry) -> Value:
    """Return `channel_of` as a combinational value of `channel_bits` bits (0 bits for a single channel)."""
    channel = geometry.channel
    block = Value.cast(address)[(channel.interleave_bytes - 1).bit_length():geometry.tracker.address_bits]
    bits, odd = channel.fold_bits, channel.odd_channels
    lower = _tree([block[at:at + bits] for at in range(0, len(block), bits)], xor) if bits else Const(0, 0)
    return lower[:bits] if odd == 1 else Cat(lower[:bits], _residue(block[bits:], odd))


def _residue(number: Value, modulus: int) -> Value:
    """Return `number` modulo a small odd number: table look-ups of digits' residues, and a tree of modular adders."""
    width = (modulus - 1).bit_length()

    def wrapped(one: Value, other: Value) -> Value:
        total = one + other
        return Mux(total >= modulus, total - modulus, total)[:width]

    digits = [(at, number[at:at + _DIGIT_BITS]) for at in range(0, len(number), _DIGIT_BITS)]
    return _tree([Array(Const((value << at) % modulus, width) for value in range(1 << len(digit)))[digit]
                  for at, digit in digits], wrapped)


def _tree(values: list[Value], combine: Callable[[Value, Value], Value]) -> Value:
    while len(values) > 1:
        pairs = [values[at:at + 2] for at in range(0, len(values), 2)]
        values = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]
