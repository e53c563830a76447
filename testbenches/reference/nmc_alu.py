"""Transaction-level model of the near-memory ALU: one column in, one column out, in order.

Exact on purpose and unlike the hardware: a finite number is a whole multiple of its format's smallest subnormal, so
the sum is a Python integer and rounding happens once.
"""

from enum import IntEnum
from typing import NamedTuple


class AluOp(IntEnum):
    ADD = 0
    STORE = 1
    XOR = 2


class AluDtype(IntEnum):
    FP16 = 0
    BF16 = 1
    FP32 = 2


#: exponent bits, fraction bits
FORMATS = {AluDtype.FP16: (5, 10), AluDtype.BF16: (8, 7), AluDtype.FP32: (8, 23)}


class Operands(NamedTuple):
    """One op-and-store. Columns are integers, lowest address in the lowest bits."""

    old: int
    new: int
    op: AluOp
    dtype: AluDtype


def width(dtype: AluDtype) -> int:
    """Return the bits of one element."""
    return 1 + sum(FORMATS[dtype])


def quiet_nan(dtype: AluDtype) -> int:
    """Return the one NaN that an addition returns."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    return ((1 << exponent_bits) - 1) << fraction_bits | 1 << (fraction_bits - 1)


def add(a: int, b: int, dtype: AluDtype) -> int:
    """Return the bits of the correctly rounded sum of the two numbers whose bits are given."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    top = (1 << exponent_bits) - 1
    infinity = top << fraction_bits
    sign_bit = 1 << (exponent_bits + fraction_bits)
    a_magnitude, b_magnitude = a & (sign_bit - 1), b & (sign_bit - 1)
    if a_magnitude > infinity or b_magnitude > infinity:
        return quiet_nan(dtype)
    if a_magnitude == infinity:
        return quiet_nan(dtype) if b_magnitude == infinity and a != b else a
    if b_magnitude == infinity:
        return b

    def units(bits: int, magnitude: int) -> int:
        exponent, fraction = divmod(magnitude, 1 << fraction_bits)
        value = (fraction | 1 << fraction_bits) << (exponent - 1) if exponent else fraction
        return -value if bits & sign_bit else value

    total = units(a, a_magnitude) + units(b, b_magnitude)
    if total == 0:
        return a & b & sign_bit
    sign, total = (sign_bit, -total) if total < 0 else (0, total)
    cut = max(0, total.bit_length() - 1 - fraction_bits)
    kept, rest = divmod(total, 1 << cut)
    half = 1 << cut >> 1
    if cut and (rest > half or (rest == half and kept & 1)):
        kept += 1
    # A hidden bit in `kept` adds one to the exponent below; a rounding carry adds one more.
    return sign | min((cut << fraction_bits) + kept, infinity)


def combine(item: Operands, column_bytes: int) -> int:
    """Return the column that memory holds afterwards."""
    if item.op == AluOp.STORE:
        return item.new
    if item.op == AluOp.XOR:
        return item.old ^ item.new
    bits = width(item.dtype)
    mask = (1 << bits) - 1
    column = 0
    for base in range(0, 8 * column_bytes, bits):
        column |= add(item.old >> base & mask, item.new >> base & mask, item.dtype) << base
    return column
