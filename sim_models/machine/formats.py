"""Formats of the numbers that near-memory compute adds: bits in numpy, sums of them, and scales of blocks."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from t3sim.rtl.formats import RANDOM_BITS


@dataclass(frozen=True)
class Format:
    """A binary format of 8, 16 or 32 bits, as arrays of unsigned integers hold it."""

    name: str
    bits: type[np.unsignedinteger]
    fraction_bits: int
    infinite: bool = True  #: e4m3 has no infinities: it uses their codes for numbers and a NaN of each sign
    saturates: bool = False  #: numbers beyond the largest become the largest, not infinity or NaN

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.bits).itemsize

    @property
    def negative_zero(self) -> int:
        """The identity of addition: +0.0 would turn a -0.0 into +0.0."""
        return 1 << (8 * self.bytes - 1)

    @property
    def infinity(self) -> int:
        """The exponent of all ones, without a fraction; of e4m3 that is 256."""
        return self.negative_zero - (1 << self.fraction_bits)

    @property
    def quiet_nan(self) -> int:
        """The near-memory ALU's only NaN."""
        return self.infinity | 1 << (self.fraction_bits - 1) if self.infinite else self.negative_zero - 1

    @property
    def largest(self) -> int:
        """The bits of the largest number."""
        return (self.infinity if self.infinite else self.quiet_nan) - 1

    @property
    def least_exponent(self) -> int:
        """The power of two of the smallest normal number."""
        exponent_bits = 8 * self.bytes - 1 - self.fraction_bits
        return 2 - (1 << exponent_bits - 1)

    @property
    def largest_exponent(self) -> int:
        """The power of two of the largest number."""
        return (self.largest >> self.fraction_bits) - 1 + self.least_exponent

    def saturating(self) -> "Format":
        return replace(self, saturates=True)

    @cached_property
    def _values(self) -> np.ndarray:
        """All numbers of 8 bits."""
        bits = np.arange(256)
        magnitude = bits & self.negative_zero - 1
        exponent, fraction = magnitude >> self.fraction_bits, magnitude & (1 << self.fraction_bits) - 1
        size = np.ldexp(fraction + (np.minimum(exponent, 1) << self.fraction_bits),
                        np.maximum(exponent, 1) - 1 + self.least_exponent - self.fraction_bits)
        size[magnitude > self.largest] = np.nan
        if self.infinite:
            size[magnitude == self.infinity] = np.inf
        return np.where(bits & self.negative_zero, -size, size).astype(np.float32)

    def value(self, bits: np.ndarray) -> np.ndarray:
        """Return the numbers, exactly: float32 of the same shape."""
        if self.bytes == 1:
            return self._values[bits]
        if self.name == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(np.float16 if self.name == "fp16" else np.float32).astype(np.float32)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Return the bits of the numbers nearest to float32 `values`, ties to even; every NaN is the ALU's."""
        if self.bytes == 1 or self.saturates:
            return self.cut(values)
        if self.name == "bf16":
            wide = values.view(np.uint32)
            near = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16
        elif self.name == "fp16":
            with np.errstate(all="ignore"):
                near = values.astype(np.float16).view(np.uint16)
        else:
            near = values.view(np.uint32)
        return np.where(np.isnan(values), self.quiet_nan, near).astype(self.bits)

    def cut(self, values: np.ndarray, random: np.ndarray | None = None) -> np.ndarray:
        """Return the bits of float64 `values` in this format: the nearest, ties to even, or rounded stochastically.

        `random`: whole numbers below 2**RANDOM_BITS, which are added to the highest bits below the last place; a carry
        rounds the magnitude up.
        """
        size = np.abs(values, dtype=np.float64)
        finite = np.where(np.isfinite(size), size, 0)

        def place(size: np.ndarray) -> np.ndarray:
            """Return the power of two of a number's last bit."""
            first = np.where(size > 0, np.frexp(size)[1] - 1, self.least_exponent)
            return np.maximum(first, self.least_exponent) - self.fraction_bits
        units = np.ldexp(finite, -place(finite))
        if random is None:
            near = np.rint(units)
        else:
            near = np.floor(units) + (np.floor(units % 1 * (1 << RANDOM_BITS)) + random >= 1 << RANDOM_BITS)
        near = np.ldexp(near, place(finite))
        last_place = place(near)
        # A hidden bit among the units adds one to the exponent.
        bits = np.ldexp(near, -last_place).astype(np.int64) + (
            last_place + self.fraction_bits - self.least_exponent << self.fraction_bits)
        over = self.largest if self.saturates else self.infinity if self.infinite else self.quiet_nan
        bits = np.where((bits > self.largest) | np.isinf(size), over, bits)
        bits |= np.where(np.signbit(values), self.negative_zero, 0)
        nan = np.isnan(values) | (bits & self.negative_zero - 1 == self.quiet_nan)
        return np.where(nan, self.quiet_nan, bits).astype(self.bits)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the bits of the correctly rounded sums.

        fp16 and bf16 are added in fp32 and rounded again. That equals one rounding, because fp32's 24 bits are at least
        2 p + 2 for p = 11 and p = 8 (Figueroa, "When is double rounding innocuous?", 1995).
        """
        with np.errstate(all="ignore"):
            return self.rounded(self.value(a) + self.value(b))

    def term(self, product: np.ndarray) -> np.ndarray:
        """Convert a GPU's own product to the format of memory's sums."""
        return product

    def sent_product(self, product: np.ndarray) -> np.ndarray:
        """Convert a product to the format of links."""
        return product

    def sent_sum(self, total: np.ndarray) -> np.ndarray:
        """Convert a sum in memory to the format of links."""
        return total

    def arrived(self, sent: np.ndarray) -> np.ndarray:
        """Convert a number from a link to the format of memory's sums."""
        return sent


#: Formats of a layer's elements.
FORMATS = {one.name: one for one in (Format("fp16", np.uint16, 10), Format("bf16", np.uint16, 7),
                                     Format("fp32", np.uint32, 23))}
FP16, BF16, FP32 = FORMATS.values()
#: OCP 8-bit Floating Point Specification (OFP8), revision 1.0.
E4M3, E5M2 = Format("e4m3", np.uint8, 3, infinite=False), Format("e5m2", np.uint8, 2)


@dataclass(frozen=True)
class WideSums:
    """Sums of 32 bits of fp32 products and numbers from links: in fp32, or in fixed point in units of a scale.

    It has the methods of a `Format` that memory uses.
    """

    wire: Format
    scale: int | None = None  #: e8m0, of a fixed point in units of 2**(scale - 151); None: fp32

    bits, bytes, NONE = np.uint32, 4, 1 << 31  # of a fixed point that is no number

    @property
    def negative_zero(self) -> int:
        """The identity of addition."""
        return FP32.negative_zero if self.scale is None else 0

    def value(self, bits: np.ndarray) -> np.ndarray:
        if self.scale is None:
            return FP32.value(bits)
        units = bits.astype(np.uint32).view(np.int32)
        return np.where(bits == self.NONE, np.nan, np.ldexp(units.astype(np.float64), self.scale - 151))

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if self.scale is None:
            return FP32.add(a, b)
        total = sum(one.astype(np.uint32).view(np.int32).astype(np.int64) for one in (a, b))
        overflow = (a == self.NONE) | (b == self.NONE) | (np.abs(total) >= self.NONE)
        return np.where(overflow, self.NONE, total & 0xFFFF_FFFF).astype(np.uint32)

    def term(self, product: np.ndarray) -> np.ndarray:
        """Convert a GPU's own product, which is fp32, to the format of the sums."""
        return self._in_units(FP32.value(product), self.scale) if self.scale is not None else product

    def sent_product(self, product: np.ndarray) -> np.ndarray:
        return self.wire.rounded(FP32.value(product))

    def sent_sum(self, total: np.ndarray) -> np.ndarray:
        return self.wire.cut(self.value(total))

    def arrived(self, sent: np.ndarray) -> np.ndarray:
        values = self.wire.value(sent.astype(self.wire.bits))
        return values.view(np.uint32) if self.scale is None else self._in_units(values, self.scale)

    def _in_units(self, values: np.ndarray, scale: int) -> np.ndarray:
        units = np.rint(np.ldexp(values.astype(np.float64), 151 - scale))
        fits = np.abs(values) < np.ldexp(1.0, scale - 126)  # NaN does not
        return np.where(fits, np.where(fits, units, 0).astype(np.int64) & 0xFFFF_FFFF, self.NONE).astype(np.uint32)


SCALE_BIAS = 127  #: of e8m0, a power of two in 8 bits; 255 is no number


def scaled(number: Format, values: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `values` as bits of a format, and an e8m0 scale for each `block` of them along the last axis.

    As OCP's Microscaling Formats (MX) 1.0, section 6.3, converts: a scale is the power of two of the block's largest
    number over that of the format's; numbers that are still too large become the format's largest.
    """
    blocks = np.asarray(values, np.float64).reshape(*values.shape[:-1], -1, block)
    top = np.abs(blocks).max(axis=-1)
    scale = np.where(top > 0, np.frexp(top)[1] - 1 - number.largest_exponent, 0).clip(-SCALE_BIAS, SCALE_BIAS)
    bits = number.saturating().cut(np.ldexp(blocks, -scale[..., None]))
    return bits.reshape(values.shape), (scale + SCALE_BIAS).astype(np.uint8)


def unscaled(number: Format, bits: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the exact values of blocks of elements: float64."""
    scale = np.where(scales == 255, np.nan, np.ldexp(1.0, scales.astype(int) - SCALE_BIAS))
    blocks = number.value(bits).astype(np.float64).reshape(*scales.shape, -1)
    return (blocks * scale[..., None]).reshape(bits.shape)


def lfsr(state: np.ndarray) -> np.ndarray:
    """Step registers of 16 bits whose feedback is x^16 + x^14 + x^13 + x^11 + 1 (Galois); none may be 0."""
    return state >> 1 ^ (state & 1) * 0xB400
