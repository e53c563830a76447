"""Formats of numbers, and the sums that memory may make of them: plain facts, which models read without Amaranth."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format: sign, exponent, fraction from the top bit down."""

    exponent_bits: int
    fraction_bits: int
    infinite: bool = True  #: without infinities (e4m3) the largest exponent has numbers, and a NaN of each sign

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def precision(self) -> int:
        """Significand bits, the hidden one included."""
        return 1 + self.fraction_bits


FP16 = FloatFormat(5, 10)
BF16 = FloatFormat(8, 7)
FP32 = FloatFormat(8, 23)
E4M3 = FloatFormat(4, 3, infinite=False)  #: OCP 8-bit Floating Point Specification (OFP8) 1.0
E5M2 = FloatFormat(5, 2)

#: A fixed point of 32 bits, two's complement, in units of 2**(scale - 151), where the scale is the arriving column's.
#: What arrives must be smaller than 2**25 units: 64 parts never overflow, whatever their order.
FIXED = None
FIXED_BITS, FIXED_PART_BITS = 32, 25
FIXED_NONE = 1 << FIXED_BITS - 1  #: the sum is no number
#: Between these a sum in fixed point, and each of its bits, is a normal fp32 number.
FIXED_SCALES = range(25, 249)

RANDOM_BITS = 16  #: of a random number that stochastic rounding adds to the first bits that it cuts off


@dataclass(frozen=True)
class Sum:
    """A way in which memory adds."""

    name: str
    arrives: FloatFormat
    total: FloatFormat | None  #: what memory holds; `FIXED`: a fixed point
    scaled: bool = False  #: a power of two, e8m0, comes with each column, and multiplies what arrives
    by_fp32: bool = False  #: a number in fp32 does; the product is rounded to fp32 before it is added
    by_chance: bool = False  #: rounded stochastically, otherwise to nearest, ties to even

    @property
    def narrows(self) -> bool:
        """Say whether a sum may leave memory in the 8 bits of what arrives."""
        return self.arrives.width == 8 and not self.by_fp32

    @property
    def drained(self) -> FloatFormat:
        """Format in which a sum leaves memory, if not in that of what arrives."""
        return FP16 if self.arrives == FP16 else BF16 if self.total != self.arrives else self.arrives


#: All of them; a number in hardware is a place in this list. The first three, in one format each, every ALU can do.
SUMS = (
    Sum("fp16", FP16, FP16), Sum("bf16", BF16, BF16), Sum("fp32", FP32, FP32),
    Sum("fp16-in-fp32", FP16, FP32), Sum("bf16-in-fp32", BF16, FP32),
    Sum("e4m3-in-fp32", E4M3, FP32), Sum("e5m2-in-fp32", E5M2, FP32),
    Sum("e4m3-blocks-in-fp32", E4M3, FP32, scaled=True), Sum("e5m2-blocks-in-fp32", E5M2, FP32, scaled=True),
    Sum("bf16-in-fixed", BF16, FIXED, scaled=True), Sum("fp32-in-fixed", FP32, FIXED, scaled=True),
    Sum("bf16-by-chance", BF16, BF16, by_chance=True),
    Sum("e4m3-by-fp32-in-fp32", E4M3, FP32, by_fp32=True), Sum("e5m2-by-fp32-in-fp32", E5M2, FP32, by_fp32=True),
)
PLAIN_SUMS = SUMS[:3]
SUM_BITS = 4
NUMBERS = {one.name: number for number, one in enumerate(SUMS)}


def random_seed(number: int) -> int:
    """Return what the register of random bits of a 16-bit lane starts with; its number is of all channels' lanes.

    All registers go through the same 65,535 numbers. The next one starts 40,502 columns on, in golden section, so that
    however many there are, no two are near each other: 32 lanes 1,413 columns apart, those of 128 channels 12.
    """
    states = _random_states()
    return states[40_502 * number % len(states)]


def random_steps(state: int) -> int:
    """Step a register of random bits 16 times: x^16 + x^14 + x^13 + x^11 + 1, as Galois has it."""
    for _ in range(RANDOM_BITS):
        state = state >> 1 ^ (0xB400 if state & 1 else 0)
    return state


@cache
def _random_states() -> list[int]:
    """Return all that a register of random bits holds, column after column."""
    states = [0x9E37]
    while (state := random_steps(states[-1])) != states[0]:
        states.append(state)
    return states
