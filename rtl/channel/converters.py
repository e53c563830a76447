"""Conversions between number formats, as logic: wider formats exactly, narrower ones rounded, and fixed point."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from t3sim.rtl.formats import FIXED_BITS, FIXED_NONE, FIXED_PART_BITS, FIXED_SCALES, FP16, FP32, FloatFormat

_BIAS = 127  #: of fp32, and of e8m0
_FRACTION = FP32.fraction_bits
QUIET_NAN = 0x7FC0_0000


def _normalised(m: Module, value: Value, name: str) -> tuple[Value, Value]:
    """Shift a number left until its first bit is set; return the result and the distance, the largest one for zero."""
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
    """Return a number as fp32, times 2**(scale - 127) if there is a scale.

    Exact, except that numbers that are too large become infinite. A scale of 255 or a NaN gives NaN.
    """
    fraction, exponent = bits[:format.fraction_bits], bits[format.fraction_bits:format.width - 1]
    sign, top = bits[format.width - 1], exponent.all()
    if format.exponent_bits == FP32.exponent_bits and scale is None:
        return Cat(Const(0, _FRACTION - format.fraction_bits), bits)
    nan = top & (fraction.any() if format.infinite else fraction.all())
    infinite = top & ~fraction.any() if format.infinite else Const(0, 1)
    bias = (1 << format.exponent_bits - 1) - 1
    first, lost = _normalised(m, Cat(fraction, exponent.any()), f"{name}_first")
    # A subnormal number weighs like exponent 1.
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


def _registers(m: Module, move: Value, name: str):
    def held(value, stage: str) -> Signal:
        signal = Signal(Value.cast(value).shape(), name=f"{name}_{stage}", reset_less=True)
        with m.If(move):
            m.d.sync += signal.eq(value)
        return signal
    return held


def to_fp16(m: Module, bits: Value, move: Value, name: str) -> Value:
    """Return the fp16 number nearest to an fp32 number, ties to even. Latency: 1 stage."""
    fraction, exponent, sign = bits[:_FRACTION], bits[_FRACTION:31], bits[31]
    rebias, far = _BIAS - 15, 12  # a larger shift leaves only the sticky bit
    held = _registers(m, move, name)
    down, rebased = Signal(4, name=f"{name}_down"), Signal(5, name=f"{name}_rebased")
    m.d.comb += [
        down.eq(Mux(exponent > rebias, 0, Mux(exponent < rebias + 1 - far, far, rebias + 1 - exponent)[:4])),
        rebased.eq(Mux(exponent > rebias, exponent - rebias - 1, 0)),
    ]
    moved1 = held((Cat(Const(0, far), fraction, exponent.any()) >> down)[:_FRACTION + 1 + far], "moved1")
    base1, sign1 = held(rebased, "base1"), held(sign, "sign1")
    none1 = held(exponent.all() & fraction.any(), "none1")
    over1 = held(exponent > rebias + 30, "over1")

    kept, half, rest = moved1[-FP16.precision:], moved1[-FP16.precision - 1], moved1[:-FP16.precision - 1].any()
    rounded = Signal(15, name=f"{name}_rounded")  # the hidden bit adds one to the exponent, a carry one more
    m.d.comb += rounded.eq(Cat(Const(0, FP16.fraction_bits), base1) + kept + (half & (rest | kept[0])))
    over = over1 | rounded[FP16.fraction_bits:].all()
    result = Signal(16, name=f"{name}_fp16")
    m.d.comb += result.eq(Mux(none1, 0x7E00, Cat(Mux(over, 0x7C00, rounded)[:15], sign1)))
    return result


def to_narrow(m: Module, bits: Value, scale: Value, saturates: Value, format: FloatFormat, move: Value,
              name: str) -> Signal:
    """Return the 8-bit number nearest to an fp32 number divided by 2**(scale - 127), ties to even. Latency: 3 stages.

    A number that is too large, or infinite, becomes the largest one if it `saturates`; otherwise it becomes infinite,
    or NaN in a format without infinities (OFP8 1.0, section 5). `scale` is read in the second stage, `saturates` in the
    third.
    """
    kept_bits, bias = format.precision, (1 << format.exponent_bits - 1) - 1
    fraction, exponent, sign = bits[:_FRACTION], bits[_FRACTION:31], bits[31]
    far = kept_bits + 2  # a larger shift leaves only the sticky bit
    most = (1 << format.exponent_bits) - (1 if format.infinite else 0)  # the first exponent that is too large
    infinity = ((1 << format.exponent_bits) - 1) << format.fraction_bits
    quiet = infinity | (1 << format.fraction_bits - 1 if format.infinite else (1 << format.fraction_bits) - 1)
    over_bits, largest = (infinity, infinity - 1) if format.infinite else (quiet, quiet - 1)

    held = _registers(m, move, name)
    normal, lost = _normalised(m, Cat(fraction, exponent.any()), name)
    size1, weight1 = held(normal, "size1"), held((exponent | ~exponent.any()) - lost, "weight1")
    sign1, special1, nan1 = held(sign, "sign1"), held(exponent.all(), "special1"), held(fraction.any(), "nan1")

    weight = Signal(range(-512, 512), name=f"{name}_weight")
    m.d.comb += weight.eq(weight1 - scale + bias)
    tiny, zero = weight < 1, ~size1[-1]
    down = Mux(tiny, Mux(weight < 1 - far, far, 1 - weight), 0)
    size2, down2 = held(size1, "size2"), held(down[:far.bit_length()], "down2")
    base2 = held(Mux(tiny | zero, 0, weight - 1)[:format.exponent_bits], "base2")
    over2 = held(((weight >= most) & ~zero) | special1, "over2")
    none2, sign2 = held((special1 & nan1) | (scale == 255), "none2"), held(sign1, "sign2")

    moved = Signal(_FRACTION + 1 + far, name=f"{name}_moved")
    m.d.comb += moved.eq(Cat(Const(0, far), size2) >> down2)
    kept, half, rest = moved[-kept_bits:], moved[-kept_bits - 1], moved[:-kept_bits - 1].any()
    rounded = Signal(format.width, name=f"{name}_rounded")  # the hidden bit adds one to the exponent, a carry one more
    m.d.comb += rounded.eq(Cat(Const(0, format.fraction_bits), base2) + kept + (half & (rest | kept[0])))
    over = over2 | (rounded > largest)
    finite = Mux(over, Mux(saturates, largest, over_bits), rounded)[:format.width - 1]
    none = none2 | (over & ~saturates if not format.infinite else 0)
    return held(Mux(none, quiet, Cat(finite, sign2)), "narrow3")


class _Number(NamedTuple):
    size: Value  #: fraction and hidden bit
    weight: Value  #: exponent; 1 if subnormal
    sign: Value
    infinite: Value
    nan: Value


def product(m: Module, bits: Value, format: FloatFormat, scale: Value, move: Value, name: str) -> Value:
    """Return an 8-bit number times an fp32 number, as fp32, to nearest, ties to even. Latency: 3 stages."""
    width, bias = format.precision + _FRACTION + 1, (1 << format.exponent_bits - 1) - 1

    def unpacked(number: Value, form: FloatFormat) -> _Number:
        fraction, exponent = number[:form.fraction_bits], number[form.fraction_bits:form.width - 1]
        top = exponent.all()
        infinite = top & ~fraction.any() if form.infinite else Const(0, 1)
        nan = top & (fraction.any() if form.infinite else fraction.all())
        return _Number(Cat(fraction, exponent.any()), exponent | ~exponent.any(), number[form.width - 1], infinite, nan)

    held = _registers(m, move, name)
    element, factor = unpacked(bits, format), unpacked(scale, FP32)
    none = (element.nan | factor.nan | (element.infinite & ~factor.size.any())
            | (factor.infinite & ~element.size.any()))
    size1 = held((element.size * factor.size)[:width], "size1")
    weight1 = held(element.weight + factor.weight - (bias - 1), "weight1")
    sign1, none1 = held(element.sign ^ factor.sign, "sign1"), held(none, "none1")
    infinite1 = held(element.infinite | factor.infinite, "infinite1")

    normal, lost = _normalised(m, size1, name)
    size2, weight2 = held(normal, "size2"), held(weight1 - lost, "weight2")
    sign2, none2, infinite2 = (held(value, text) for value, text in (
        (sign1, "sign2"), (none1, "none2"), (infinite1, "infinite2")))

    far = _FRACTION + 3
    tiny, zero = weight2 < 1, ~size2[-1]
    down, moved = Signal(range(far + 1), name=f"{name}_down"), Signal(width + far, name=f"{name}_moved")
    m.d.comb += [down.eq(Mux(tiny, Mux(weight2 < 1 - far, far, 1 - weight2), 0)),
                 moved.eq(Cat(Const(0, far), size2) >> down)]
    kept, half, rest = moved[-24:], moved[-25], moved[:-25].any()
    kept3, up3 = held(kept, "kept3"), held(half & (rest | kept[0]), "up3")
    base3 = held(Mux(tiny | zero, 0, weight2 - 1)[:8], "base3")
    over3, none3, sign3 = (held(value, text) for value, text in (
        (infinite2 | (~zero & (weight2 > 254)), "over3"), (none2, "none3"), (sign2, "sign3")))

    rounded, result = Signal(32, name=f"{name}_rounded"), Signal(32, name=f"{name}_product")
    m.d.comb += rounded.eq(Cat(Const(0, _FRACTION), base3) + kept3 + up3)
    over = over3 | rounded[_FRACTION:31].all() | rounded[31]
    m.d.comb += result.eq(Mux(none3, QUIET_NAN, Mux(over, Cat(Const(0, _FRACTION), Const(255, 8), sign3),
                                                    Cat(rounded[:31], sign3))))
    return result


def to_fixed(m: Module, bits: Value, scale: Value, move: Value, name: str) -> Signal:
    """Return an fp32 number in units of 2**(scale - 151), to nearest, ties to even. Latency: 2 stages.

    A number that does not fit becomes `FIXED_NONE`.
    """
    fraction, exponent, sign = bits[:_FRACTION], bits[_FRACTION:31], bits[31]
    cut = FIXED_PART_BITS + 1  # a larger shift gives 0
    far = scale - (exponent | ~exponent.any())  # distance below the largest exponent that fits
    fits, negative, down = Signal(name=f"{name}_fits"), Signal(name=f"{name}_negative"), Signal(range(cut + 1))
    moved = Signal(FIXED_PART_BITS + cut, name=f"{name}_moved", reset_less=True)
    rounded, result = Signal(FIXED_BITS, name=f"{name}_rounded"), Signal(FIXED_BITS, name=f"{name}_fixed")
    kept, half, rest = moved[cut:], moved[cut - 1], moved[:cut - 1].any()
    # The negative is the complement plus 1, unless rounding takes the 1 away.
    m.d.comb += [
        down.eq(Mux(far > cut, cut, far)),
        rounded.eq(Cat(kept ^ negative.replicate(len(kept)), negative.replicate(FIXED_BITS - len(kept)))
                   + ((half & (rest | kept[0])) ^ negative)),
    ]
    with m.If(move):
        m.d.sync += [
            fits.eq((far >= 0) & in_range(scale)), negative.eq(sign),
            moved.eq(Cat(Const(0, cut + 1), fraction, exponent.any()) >> down),
            result.eq(Mux(fits, rounded, FIXED_NONE)),
        ]
    return result


def in_range(scale: Value) -> Value:
    """Return whether a fixed point may have this scale."""
    return (scale >= FIXED_SCALES.start) & (scale < FIXED_SCALES.stop)


def upper_half(number: Value) -> Value:
    """Return the magnitude of a fixed-point number without its lower half, which counts as positive."""
    return ((number[16:] ^ number[-1].replicate(16)) + number[-1])[:16]


def from_fixed(m: Module, number: Value, upper: Value, scale: Value, name: str) -> tuple[Value, Value]:
    """Return two fp32 numbers whose sum is the fixed-point number: from `upper_half`, and from its lower half."""
    none = (number == FIXED_NONE) | ~in_range(scale)
    halves = []
    for part, first, sign in ((upper, 16, number[-1]), (number[:16], 0, Const(0, 1))):
        shifted, lost = _normalised(m, part, f"{name}_from{first}")
        exponent = Signal(8, name=f"{name}_exponent{first}")
        m.d.comb += exponent.eq(scale + (first + len(part) - 1 - 24) - lost)
        packed = Cat(Const(0, _FRACTION + 1 - len(shifted)), shifted)[:_FRACTION]
        half = Signal(32, name=f"{name}_half{first}")
        m.d.comb += half.eq(Mux(none, QUIET_NAN, Mux(shifted[-1], Cat(packed, exponent, sign), 0)))
        halves.append(half)
    return halves[0], halves[1]
