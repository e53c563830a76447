"""Numbers in another format, as logic: wider ones exactly, narrower ones rounded, and a fixed point."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from ..formats import FIXED_BITS, FIXED_NONE, FIXED_PART_BITS, FIXED_SCALES, FP16, FP32, FloatFormat

_BIAS = 127  #: of fp32, and of e8m0
_FRACTION = FP32.fraction_bits
QUIET_NAN = 0x7FC0_0000


def _normalised(m: Module, value: Value, name: str) -> tuple[Value, Value]:
    """Shift a number left until its first bit is set: the shifted number, and by how much. Zero is shifted by most."""
    width = len(value)
    bits = (width - 1).bit_length()
    shift = []
    for bit in reversed(range(bits)):
        step = 1 << bit
        if step >= width:
            continue
        none = Signal(name=f"{name}_none{step}")
        moved = Signal(width, name=f"{name}_moved{step}")
        m.d.comb += [none.eq(~value[width - step:].any()), moved.eq(Mux(none, value << step, value))]
        value = moved
        shift.insert(0, none)
    return value, Cat(*shift)


def widened(m: Module, bits: Value, format: FloatFormat, scale: Value | None, name: str) -> Value:
    """Return a number as fp32, times 2**(scale - 127) if there is a scale. Exact, but what is too large is infinite.

    A scale of 255 gives NaN, as every NaN gives one.
    """
    fraction, exponent = bits[:format.fraction_bits], bits[format.fraction_bits:format.width - 1]
    sign, top = bits[format.width - 1], exponent.all()
    if format.exponent_bits == FP32.exponent_bits and scale is None:
        return Cat(Const(0, _FRACTION - format.fraction_bits), bits)
    nan = top & (fraction.any() if format.infinite else fraction.all())
    infinite = top & ~fraction.any() if format.infinite else Const(0, 1)
    bias = (1 << format.exponent_bits - 1) - 1
    first, lost = _normalised(m, Cat(fraction, exponent.any()), f"{name}_first")
    # Nothing before the first bit that is set: a subnormal number weighs like exponent 1.
    weight = Signal(range(-512, 512), name=f"{name}_weight")
    m.d.comb += weight.eq((exponent | ~exponent.any()) - lost + (_BIAS - bias) + ((scale - _BIAS) if scale is not None
                                                                                  else 0))
    wide = Signal(_FRACTION + 1, name=f"{name}_wide")
    m.d.comb += wide.eq(Cat(Const(0, _FRACTION + 1 - len(first)), first))
    zero = ~first[-1]
    if scale is None:
        tiny, over = Const(0, 1), Const(0, 1)
        packed = wide[:-1]
    else:
        nan = nan | (scale == 255)
        tiny, over = weight < 1, weight > 254
        down = Signal(5, name=f"{name}_down")
        m.d.comb += down.eq(Mux(tiny, 1 - weight, 0)[:5])
        packed = Mux(tiny, (wide >> down)[:_FRACTION], wide[:-1])
    infinite = infinite | (over & ~zero)
    exponent32 = Mux(zero | tiny, 0, weight[:8])
    result = Signal(32, name=f"{name}_fp32")
    m.d.comb += result.eq(Mux(nan, QUIET_NAN, Mux(
        infinite, Cat(Const(0, _FRACTION), Const(255, 8), sign), Cat(packed, exponent32, sign))))
    return result


def to_fp16(m: Module, bits: Value, name: str) -> Value:
    """Return the fp16 number nearest to one in fp32, ties to even."""
    fraction, exponent, sign = bits[:_FRACTION], bits[_FRACTION:31], bits[31]
    cut, rebias = _FRACTION - FP16.fraction_bits, _BIAS - 15
    down = Signal(4, name=f"{name}_down")  # below fp16's smallest normal number; 12 or more leave nothing
    size = Signal(_FRACTION + 1, name=f"{name}_size")
    moved, lost = Signal(_FRACTION + 1, name=f"{name}_moved"), Signal(name=f"{name}_lost")
    m.d.comb += [
        down.eq(Mux(exponent > rebias, 0, Mux(exponent < rebias - 11, 12, rebias + 1 - exponent)[:4])),
        size.eq(Cat(fraction, exponent.any())),
        moved.eq(size >> down),
        lost.eq((moved << down)[:_FRACTION + 1] != size),
    ]
    up = moved[cut - 1] & (moved[:cut - 1].any() | lost | moved[cut])
    rounded = Signal(16, name=f"{name}_rounded")  # the hidden bit adds one to the exponent, a carry one more
    m.d.comb += rounded.eq(moved[cut:] + up + (Mux(exponent > rebias, exponent - rebias - 1, 0)[:8] << 10))
    special = exponent.all()
    infinite = (special & ~fraction.any()) | (~special & ((exponent > rebias + 30) | (rounded >= 0x7C00)))
    result = Signal(16, name=f"{name}_fp16")
    m.d.comb += result.eq(Mux(special & fraction.any(), 0x7E00, Cat(Mux(infinite, 0x7C00, rounded)[:15], sign)))
    return result


def to_fixed(m: Module, bits: Value, scale: Value, name: str) -> Value:
    """Return an fp32 number in units of 2**(scale - 151), to nearest, ties to even; or `FIXED_NONE`."""
    fraction, exponent, sign = bits[:_FRACTION], bits[_FRACTION:31], bits[31]
    cut = FIXED_PART_BITS + 1  # further down no number is
    far = scale - (exponent | ~exponent.any())  # below the largest exponent that fits
    fits, down = Signal(name=f"{name}_fits"), Signal(range(cut + 1), name=f"{name}_down")
    moved = Signal(FIXED_PART_BITS + cut, name=f"{name}_moved")
    rounded, result = Signal(FIXED_PART_BITS + 1, name=f"{name}_rounded"), Signal(FIXED_BITS, name=f"{name}_fixed")
    kept, half, rest = moved[cut:], moved[cut - 1], moved[:cut - 1].any()
    m.d.comb += [
        fits.eq((far >= 0) & in_range(scale)),
        down.eq(Mux(far > cut, cut, far)),
        moved.eq(Cat(Const(0, cut + 1), fraction, exponent.any()) >> down),
        rounded.eq(kept + (half & (rest | kept[0]))),
        result.eq(Mux(fits, Mux(sign, -rounded, rounded), FIXED_NONE)),
    ]
    return result


def in_range(scale: Value) -> Value:
    """Say whether a scale is one that a fixed point may have."""
    return (scale >= FIXED_SCALES.start) & (scale < FIXED_SCALES.stop)


def from_fixed(m: Module, number: Value, scale: Value, name: str) -> tuple[Value, Value]:
    """Return two fp32 numbers whose sum is a number in fixed point: its upper half's, and its lower half's."""
    none = (number == FIXED_NONE) | ~in_range(scale)
    sign = number[-1]
    size = Signal(FIXED_BITS - 1, name=f"{name}_size")
    m.d.comb += size.eq(Mux(sign, -number, number))
    halves = []
    for part, first in ((size[16:], 16), (size[:16], 0)):
        shifted, lost = _normalised(m, part, f"{name}_from{first}")
        exponent = Signal(8, name=f"{name}_exponent{first}")
        m.d.comb += exponent.eq(scale + (first + len(part) - 1 - 24) - lost)
        packed = Cat(Const(0, _FRACTION + 1 - len(shifted)), shifted)[:_FRACTION]
        half = Signal(32, name=f"{name}_half{first}")
        m.d.comb += half.eq(Mux(none, QUIET_NAN, Mux(shifted[-1], Cat(packed, exponent, sign), 0)))
        halves.append(half)
    return halves[0], halves[1]
