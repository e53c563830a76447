"""Number formats, and the sums that memory can make of them. Plain facts, without Amaranth."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format: sign, exponent, fraction from the top bit down."""

    exponent_bits: int
    fraction_bits: int
    infinite: bool = True  #: without (e4m3), the largest exponent has numbers and one NaN per sign

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def precision(self) -> int:
        """Significand bits, including the hidden one."""
        return 1 + self.fraction_bits


FP16 = FloatFormat(5, 10)
BF16 = FloatFormat(8, 7)
FP32 = FloatFormat(8, 23)
E4M3 = FloatFormat(4, 3, infinite=False)  #: OCP 8-bit Floating Point Specification (OFP8) 1.0
E5M2 = FloatFormat(5, 2)

#: 32-bit fixed point, two's complement, in units of 2**(scale - 151), with the arriving column's scale. Parts must be
#: smaller than 2**25 units, so 64 of them never overflow, in any order.
FIXED = None
FIXED_BITS, FIXED_PART_BITS = 32, 25
FIXED_NONE = 1 << FIXED_BITS - 1  #: not a number
#: With these scales a fixed-point sum, and each of its bits, is a normal fp32 number.
FIXED_SCALES = range(25, 249)

RANDOM_BITS = 16  #: random bits that stochastic rounding adds to the first bits that it cuts off


@dataclass(frozen=True)
class Sum:
    """One way in which memory adds."""

    name: str
    arrives: FloatFormat
    total: FloatFormat | None  #: in memory; `FIXED`: fixed point
    scaled: bool = False  #: each column has a scale, an e8m0 power of two, that multiplies its elements
    by_fp32: bool = False  #: the scale is an fp32 number; the product is rounded to fp32 before it is added
    by_chance: bool = False  #: rounded stochastically, otherwise to nearest, ties to even

    @property
    def narrows(self) -> bool:
        """Return whether a sum may leave memory in the 8 bits of the arriving elements."""
        return self.arrives.width == 8 and not self.by_fp32

    @property
    def drained(self) -> FloatFormat:
        """Format in which a sum leaves memory, unless it `narrows`."""
        return FP16 if self.arrives == FP16 else BF16 if self.total != self.arrives else self.arrives


#: All sums, numbered in hardware by their place. Every ALU has the first three, of one format each.
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
    """Return the initial value of a 16-bit lane's random register; `number` counts the lanes of all channels.

    All registers step through the same 65,535 states. Seeds are 40,502 columns apart (golden section), so any number of
    them are well spread: 32 lanes at least 1,413 columns apart, those of 128 channels 12.
    """
    states = _random_states()
    return states[40_502 * number % len(states)]


def random_steps(state: int) -> int:
    """Step a random register 16 times: x^16 + x^14 + x^13 + x^11 + 1, Galois form."""
    for _ in range(RANDOM_BITS):
        state = state >> 1 ^ (0xB400 if state & 1 else 0)
    return state


@cache
def _random_states() -> list[int]:
    """Return all states of a random register, column after column."""
    states = [0x9E37]
    while (state := random_steps(states[-1])) != states[0]:
        states.append(state)
    return states
