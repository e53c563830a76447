"""Formats of the numbers that near-memory compute adds: bits in numpy, and sums of them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """An IEEE-754 binary format of 16 or 32 bits, as arrays of unsigned integers hold it."""

    name: str
    bits: type[np.unsignedinteger]
    fraction_bits: int

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
        return self.negative_zero - (1 << self.fraction_bits)

    @property
    def quiet_nan(self) -> int:
        """The near-memory ALU's only NaN."""
        return self.infinity | 1 << (self.fraction_bits - 1)

    def value(self, bits: np.ndarray) -> np.ndarray:
        """Return the numbers, exactly: float32 of the same shape."""
        if self.name == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(np.float16 if self.name == "fp16" else np.float32).astype(np.float32)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Return the bits of the numbers nearest to float32 `values`, ties to even; every NaN is the ALU's."""
        if self.name == "bf16":
            wide = values.view(np.uint32)
            near = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16
        elif self.name == "fp16":
            with np.errstate(all="ignore"):
                near = values.astype(np.float16).view(np.uint16)
        else:
            near = values.view(np.uint32)
        return np.where(np.isnan(values), self.quiet_nan, near).astype(self.bits)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the bits of the correctly rounded sums.

        fp16 and bf16 are added in fp32 and rounded again. That equals one rounding, because fp32's 24 bits are at least
        2 p + 2 for p = 11 and p = 8 (Figueroa, "When is double rounding innocuous?", 1995).
        """
        with np.errstate(all="ignore"):
            return self.rounded(self.value(a) + self.value(b))


FORMATS = {one.name: one for one in (Format("fp16", np.uint16, 10), Format("bf16", np.uint16, 7),
                                     Format("fp32", np.uint32, 23))}
FP16 = FORMATS["fp16"]
