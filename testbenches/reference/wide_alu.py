"""Transaction-level model of the wide near-memory ALU: one column in, one column out, in order.

Exact on purpose and unlike the hardware: a finite number is a fraction, sums are fractions, and rounding happens once.
"""

from enum import IntEnum
from fractions import Fraction
from math import floor
from typing import NamedTuple

from t3sim.rtl.formats import (
    FIXED,
    FIXED_NONE,
    FIXED_PART_BITS,
    FIXED_SCALES,
    FP32,
    RANDOM_BITS,
    SUMS,
    FloatFormat,
    random_seed,
    random_steps,
)

NOT_A_NUMBER, INFINITE = "nan", "infinite"


class WideOp(IntEnum):
    ADD = 0
    STORE = 1
    XOR = 2
    DRAIN = 3


class Operands(NamedTuple):
    """One operation on a column of sums. Columns are integers, lowest address in the lowest bits."""

    old: int
    new: int
    op: WideOp
    sum: int  # place in SUMS
    scale: int  # e8m0, or fp32 of a sum by it
    narrow: int = 0  # DRAIN: in 8 bits
    saturate: int = 0


class Number(NamedTuple):
    """A number as a format has it: zeros and infinities have signs, others their own."""

    negative: bool
    size: Fraction | str


def read(bits: int, form: FloatFormat) -> Number:
    """Return the number that bits stand for."""
    negative = bool(bits >> form.width - 1)
    exponent = bits >> form.fraction_bits & (1 << form.exponent_bits) - 1
    fraction = bits & (1 << form.fraction_bits) - 1
    if exponent == (1 << form.exponent_bits) - 1:
        if form.infinite:
            return Number(negative, NOT_A_NUMBER if fraction else INFINITE)
        if fraction == (1 << form.fraction_bits) - 1:
            return Number(negative, NOT_A_NUMBER)
    whole = fraction + (1 << form.fraction_bits if exponent else 0)
    place = max(exponent, 1) - (1 << form.exponent_bits - 1) + 1 - form.fraction_bits
    return Number(negative, whole * Fraction(2) ** place)


def write(number: Number, form: FloatFormat, random: int | None = None, saturate: bool = False) -> int:
    """Return the bits of the number nearest in a format, ties to even; or rounded by a random number.

    What is too large, or infinite, is infinite, or no number where none is infinite; or, to `saturate`, the largest.
    """
    infinity = ((1 << form.exponent_bits) - 1) << form.fraction_bits
    quiet = infinity | (1 << form.fraction_bits - 1 if form.infinite else (1 << form.fraction_bits) - 1)
    if number.size == NOT_A_NUMBER:
        return quiet
    sign = number.negative << form.width - 1
    largest = (infinity if form.infinite else quiet) - 1
    over = sign | largest if saturate else sign | infinity if form.infinite else quiet
    if number.size == INFINITE:
        return over
    least = 2 - (1 << form.exponent_bits - 1) - form.fraction_bits  # place of the last bit of a subnormal number
    size = number.size / Fraction(2) ** least
    cut = max(0, floor(size).bit_length() - 1 - form.fraction_bits)
    kept, rest = divmod(size / (1 << cut), 1)
    if random is None:
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept % 2 == 1)
    else:
        up = floor(rest * (1 << RANDOM_BITS)) + random >= 1 << RANDOM_BITS
    bits = (cut << form.fraction_bits) + int(kept) + up
    return over if bits > largest else sign | bits


def plus(a: Number, b: Number) -> Number:
    """Add exactly: a sum of zero is positive, unless both are negative zeros."""
    if NOT_A_NUMBER in (a.size, b.size) or (a.size == b.size == INFINITE and a.negative != b.negative):
        return Number(False, NOT_A_NUMBER)
    for one in (a, b):
        if one.size == INFINITE:
            return one
    total = sum(-one.size if one.negative else one.size for one in (a, b))
    return Number(total < 0 or (total == 0 and a.negative and b.negative), abs(total))


def product(a: Number, b: Number) -> Number:
    """Multiply exactly: an infinite number times zero is none."""
    negative, sizes = a.negative != b.negative, (a.size, b.size)
    if NOT_A_NUMBER in sizes or (INFINITE in sizes and 0 in sizes):
        return Number(False, NOT_A_NUMBER)
    return Number(negative, INFINITE if INFINITE in sizes else sizes[0] * sizes[1])


def times(number: Number, scale: int) -> Number:
    """Multiply by e8m0."""
    if scale == 255:
        return Number(False, NOT_A_NUMBER)
    if isinstance(number.size, str):
        return number
    return Number(number.negative, number.size * Fraction(2) ** (scale - 127))


def as_fixed(number: Number, scale: int) -> int:
    """Return a part in units of 2**(scale - 151), or FIXED_NONE."""
    if isinstance(number.size, str) or scale not in FIXED_SCALES:
        return FIXED_NONE
    units = number.size / Fraction(2) ** (scale - 151)
    if units >= 1 << FIXED_PART_BITS:
        return FIXED_NONE
    return (-round(units) if number.negative else round(units)) & 0xFFFF_FFFF


def signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


class Alu:
    """Columns in their order, with the registers of random bits."""

    def __init__(self, names: tuple[str, ...], column_bytes: int, channel: int = 0) -> None:
        self._names, self._bytes = {"fp16", "bf16", "fp32", *names}, column_bytes
        lanes = column_bytes // 2
        self._random = [random_seed(channel * lanes + lane) for lane in range(lanes)]

    def combine(self, item: Operands) -> int:
        """Return the column that leaves."""
        random = self._random
        self._random = [*map(random_steps, random)]
        known = item.sum < len(SUMS) and SUMS[item.sum].name in self._names
        if item.op == WideOp.STORE and known:
            return item.new
        if item.op == WideOp.XOR and known:
            return item.old ^ item.new
        return self._summed(item, random) if known else item.old

    def _summed(self, item: Operands, random: list[int]) -> int:
        one = SUMS[item.sum]
        if one.total == one.arrives and item.op == WideOp.DRAIN:
            return item.old
        width = 32 if one.total is FIXED else one.total.width
        narrows = item.op == WideOp.DRAIN and item.narrow and one.narrows
        drained = one.arrives if narrows else one.drained
        narrow = drained.width if item.op == WideOp.DRAIN else one.arrives.width
        column = 0
        for place in range(8 * self._bytes // width):
            old = item.old >> place * width & (1 << width) - 1
            new = item.new >> place * narrow & (1 << narrow) - 1
            if item.op == WideOp.DRAIN:
                total = self._number(old, one, item.scale)
                if narrows and one.scaled:
                    total = Number(False, NOT_A_NUMBER) if item.scale & 255 == 255 else times(
                        total, 254 - (item.scale & 255))
                column |= write(total, drained, saturate=bool(narrows and item.saturate)) << place * narrow
                continue
            arrived = read(new, one.arrives)
            if one.total is FIXED:
                bits = self._fixed(old, as_fixed(arrived, item.scale & 255))
            else:
                # What is too large for fp32 once it is multiplied is infinite.
                part = arrived
                if one.scaled:
                    part = read(write(times(arrived, item.scale & 255), FP32), FP32)
                elif one.by_fp32:
                    part = read(write(product(arrived, read(item.scale, FP32)), FP32), FP32)
                bits = write(plus(read(old, one.total), part), one.total,
                             random[place * width // 16] if one.by_chance else None)
            column |= bits << place * width
        return column

    def _number(self, old: int, one, scale: int) -> Number:
        if one.total is not FIXED:
            return read(old, one.total)
        scale &= 255
        if old == FIXED_NONE or scale not in FIXED_SCALES:
            return Number(False, NOT_A_NUMBER)
        return Number(signed(old) < 0, abs(signed(old)) * Fraction(2) ** (scale - 151))

    def _fixed(self, old: int, part: int) -> int:
        if FIXED_NONE in (old, part):
            return FIXED_NONE
        total = signed(old) + signed(part)
        return total & 0xFFFF_FFFF if abs(total) < 1 << 31 else FIXED_NONE
