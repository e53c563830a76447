"""The floating-point adder gives the exact sum, rounded once: against a sum of integers, on formats of few bits.

In fp32, whose integers would have 277 bits, against a sum of fewer: of the larger number and of what the smaller one
has within reach of its last bits.
"""

from types import ModuleType

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

EXACT = "a sum is exact, rounded once to nearest, ties to even; a NaN is quiet"
KEPT = "with `keep_b` the result is b, bit for bit"

#: Fields as fp16, bf16 and fp32 have them: fewer exponent bits, fewer fraction bits, and most of both.
_FORMATS = (2, 3), (3, 1), (3, 4)


def exact_sum(a: Value, b: Value, exponent_bits: int, fraction_bits: int) -> Value:
    """Add two numbers as integers, and round where the sum's first bit says.

    That is possible as a finite number is a whole multiple of the smallest subnormal.
    """
    fields = exponent_bits + fraction_bits
    infinity = Const(((1 << exponent_bits) - 1) << fraction_bits, fields)

    def units(operand):
        exponent, fraction = operand[fraction_bits:fields], operand[:fraction_bits]
        size = Mux(exponent.any(), Cat(fraction, Const(1, 1)) << (exponent - 1)[:exponent_bits], fraction)
        return Mux(operand[fields], -size, size)

    total = units(a) + units(b)
    negative = total < 0
    size = abs(total)
    rounded = size[:fraction_bits + 1]  # exact below twice the smallest normal number
    for cut in range(1, len(size) - fraction_bits):
        kept, half, rest = size[cut:cut + fraction_bits + 1], size[cut - 1], size[:cut - 1].any()
        up = half & (rest | kept[0])
        # The hidden bit adds one to the exponent, a carry one more.
        rounded = Mux(size[cut + fraction_bits:].any(), (cut << fraction_bits) + kept + up, rounded)
    finite = Mux(rounded >= infinity, infinity, rounded)[:fields]
    sign = Mux(total == 0, a[fields] & b[fields], negative)
    return _packed(a, b, finite, sign, infinity, fraction_bits)


def _packed(a: Value, b: Value, finite: Value, sign: Value, infinity: Const, fraction_bits: int) -> Value:
    """Return a finite sum, or what NaNs and infinities make of it."""
    fields = len(infinity)
    nan, endless = ([item[:fields] > infinity for item in (a, b)], [item[:fields] == infinity for item in (a, b)])
    opposite = endless[0] & endless[1] & (a[fields] != b[fields])
    quiet = Const(infinity.value | 1 << (fraction_bits - 1), fields + 1)
    return Mux(nan[0] | nan[1] | opposite, quiet, Mux(
        endless[0], a[:fields + 1], Mux(endless[1], b[:fields + 1], Cat(finite, sign))))


def sum_in_reach(m: Module, a: Value, b: Value, exponent_bits: int, fraction_bits: int) -> Value:
    """Add two numbers as integers of twice a significand's bits, and round where the sum's first bit says.

    The larger number stands before as many zeros as a significand has bits, and two more. A smaller one that begins
    after those is less than half of the last bit of any sum, and stands for any other there.
    """
    fields, precision = exponent_bits + fraction_bits, fraction_bits + 1
    reach = precision + 2
    infinity = Const(((1 << exponent_bits) - 1) << fraction_bits, fields)
    swap = a[:fields] < b[:fields]
    larger, smaller = Mux(swap, b, a), Mux(swap, a, b)

    def parts(item):
        exponent = item[fraction_bits:fields]
        return exponent | ~exponent.any(), Cat(item[:fraction_bits], exponent.any())
    (exponent, one), (below, other) = parts(larger), parts(smaller)
    distance = (exponent - below)[:exponent_bits]
    moved = Mux(distance > reach, other.any(), Cat(Const(0, reach), other) >> distance[:reach.bit_length()])
    whole = Cat(Const(0, reach), one)
    size = Signal(precision + reach + 1)
    m.d.comb += size.eq(Mux(a[fields] ^ b[fields], whole - moved, whole + moved))
    rounded = Const(0, fields)
    for cut in range(1, len(size) - fraction_bits):
        kept, half, rest = size[cut:cut + fraction_bits + 1], size[cut - 1], size[:cut - 1].any()
        first = exponent + cut - reach  # exponent of a sum whose first bit is kept's
        total = ((first - 1) << fraction_bits) + kept + (half & (rest | kept[0]))
        here = (first > 0) & (size[cut + fraction_bits:].any() | (first == 1))
        chosen = Signal(fields + 1)
        m.d.comb += chosen.eq(Mux(here, Mux(total >= infinity, infinity, total), rounded))
        rounded = chosen
    sign = Mux(size == 0, a[fields] & b[fields], larger[fields])
    return _packed(a, b, rounded[:fields], sign, infinity, fraction_bits)


def fp32_sums(spec: Spec, geometry: Geometry) -> None:
    """Claim that fp32 sums are exact, rounded once: of any two numbers, which are given for as long as it takes.

    What leaves the adder depends on what entered it `LATENCY` cycles before alone, as is proved on formats of few bits.
    """
    adder, form = spec.design, spec.design.formats[0]
    for port in (adder.a, adder.b):
        spec.hold(port)
    for port, value in ((adder.enable, -1), (adder.keep_b, 0), (adder.format, 0)):
        spec.connect(port, Const(value, len(port)))
    left = Const(1, 1)
    for _ in range(adder.LATENCY):
        left = spec.past(left)
    expected = sum_in_reach(spec.m, adder.a, adder.b, form.exponent_bits, form.fraction_bits)
    spec.claim(EXACT, implies(left, adder.result == expected))


def sums(spec: Spec, geometry: Geometry) -> None:
    """Claim that the adder returns the exact sum, rounded.

    Assumed: it moves in every cycle (that it can stand still, the streams' property says), and each format has a number
    of its own.
    """
    adder = spec.design
    spec.assume(adder.enable.all())
    spec.assume(adder.format < len(adder.formats))

    def later(value) -> Value:
        for _ in range(adder.LATENCY):
            value = spec.past(value)
        return value
    moved = later(Const(1, 1))
    for number, form in enumerate(adder.formats):
        expected = exact_sum(adder.a[:form.width], adder.b[:form.width], form.exponent_bits, form.fraction_bits)
        taken = moved & (later(adder.format) == number)
        keeps = later(adder.keep_b)
        spec.claim(EXACT, implies(taken & ~keeps, adder.result == later(expected)))
        spec.claim(KEPT, implies(taken & keeps, adder.result == later(adder.b[:form.width])))


def properties() -> list[Property]:
    def fp32(package: ModuleType, geometry: Geometry) -> wiring.Component:
        return package.channel.fp_adder.FpAdder((package.formats.FP32,))

    def build(package: ModuleType, geometry: Geometry) -> wiring.Component:
        adder = package.channel.fp_adder
        return adder.FpAdder(tuple(package.formats.FloatFormat(*fields) for fields in _FORMATS))

    def broken(what, claim, old, new):
        return Broken(what, claim, "channel/fp_adder.py", old, new)

    return [Property("sums", "nmc_alu", f"{EXACT}; {KEPT}", sums, (
        broken("ties go away from zero", EXACT, "return half & (odd | rest)", "return half"),
        broken("bits that are shifted out are forgotten", EXACT,
               "lost.eq(sticky | (distance1[bit] & value[:step].any()))",
               "lost.eq(distance1[bit] & value[:step].any())"),
        broken("subnormal numbers weigh nothing", EXACT, "a_weight.eq(a_exponent | ~a_normal)",
               "a_weight.eq(a_exponent)"),
        broken("sums overflow into a NaN", EXACT, "fraction[fraction_bits - f.fraction_bits:-1] & ~infinite",
               "fraction[fraction_bits - f.fraction_bits:-1] & ~infinite4"),
        broken("infinity less infinity is infinity", EXACT,
               "nan1.eq(a_nan | b_nan | (a_special & b_adds_special & opposite))",
               "nan1.eq(a_nan | b_nan)"),
        broken("what is kept overflows", KEPT, "infinite4 | (overflow & ~keep4)", "infinite4 | overflow"),
    ), geometry="small", searches=(Search("small", 8),), depth=7, build=build,
        reason="formats of 6, 5 and 8 bits in one lane; fp16 and bf16 are added exhaustively (`make alu-exhaustive`)"),
            Property("fp32 sums", "nmc_alu", f"for any two fp32 numbers {EXACT}", fp32_sums, (
        broken("ties go away from zero", EXACT, "return half & (odd | rest)", "return half"),
        broken("bits that are shifted out are forgotten", EXACT,
               "lost.eq(sticky | (distance1[bit] & value[:step].any()))",
               "lost.eq(distance1[bit] & value[:step].any())"),
    ), geometry="small", searches=(Search("small", 7, skip=6),), depth=7, bounded=True, build=fp32,
        reason="the operands are constant: an adder has no feedback, and its five stages are passed once")]
