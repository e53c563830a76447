"""One pipelined floating-point adder lane for several IEEE-754 formats."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.formats import RANDOM_BITS, FloatFormat
from t3sim.rtl.geometry import GeometryError


class FpAdder(wiring.Component):
    """`a + b`, rounded once to nearest, ties to even, with subnormals in and out (T3 paper, section 4.3).

    1. A NaN result is the positive quiet NaN without payload. An exact zero is +0 unless both operands are -0.
    2. Latency: 5 register stages, each with its own `enable`: compare and swap; align; add; normalise; round and pack.

    All formats share one datapath: operands are left-aligned in the widest exponent and significand, and only the
    overflow limit and the rounding position depend on the format.

    Parameters
    ----------
    formats : tuple of FloatFormat
        Formats that `format` selects, in this order. The widest one sets the width of the ports.
    results : tuple of FloatFormat, optional
        Result format for each of `formats`, with equally many exponent bits. Default: `formats`.
    by_chance : tuple of int
        Indices of formats with stochastic rounding: `random` is added to the first bits that are cut off, and a carry
        increments the magnitude. Lower bits have no effect.

    Members
    -------
    a, b : In(width)
        Operands, in the low bits for a format narrower than the port.
    format : In
        Index into `formats`. Unused indices act as the last format.
    keep_b : In(1)
        Ignore `a`: the result is `b` bit for bit, NaN payloads included. It passes through the adder as b plus a zero
        of b's sign, so a store needs no registers next to the pipeline.
    enable : In(LATENCY)
        A bit for each stage, the first stage's lowest: the stage takes the result of the stage before.
    random : In(RANDOM_BITS)
        Only with `by_chance`: random bits for the sum in the last stage.
    result : Out(width)
        Result of the operands that last passed all stages. Zero above a narrow format's width.
    """

    LATENCY = 5

    def __init__(self, formats: tuple[FloatFormat, ...], results: tuple[FloatFormat, ...] = (),
                 by_chance: tuple[int, ...] = ()):
        if not formats:
            raise GeometryError("formats=() is impossible: at least one format is needed")
        self.formats = tuple(formats)
        self.results = tuple(results) or self.formats
        self.by_chance = by_chance
        every = (*self.formats, *self.results)
        self.exponent_bits = max(f.exponent_bits for f in every)
        self.precision = max([f.precision for f in every] + [self.results[n].precision + RANDOM_BITS - 1
                                                             for n in by_chance])
        self.width = max(f.width for f in every)
        super().__init__({
            **({"random": In(RANDOM_BITS)} if by_chance else {}),
            "a": In(self.width),
            "b": In(self.width),
            "format": In(range(max(2, len(formats)))),
            "keep_b": In(1),
            "enable": In(self.LATENCY),
            "result": Out(self.width),
        })

    def _select(self, m: Module, index, name: str, choices):
        if len(choices) == 1:
            return choices[0]
        chosen = Signal(choices[0].shape(), name=name)
        with m.Switch(index):
            for number, choice in enumerate(choices[:-1]):
                with m.Case(number):
                    m.d.comb += chosen.eq(choice)
            with m.Default():
                m.d.comb += chosen.eq(choices[-1])
        return chosen

    def _round_up(self, odd, half, rest):
        """Return whether the magnitude grows by one unit; `half` is the first bit cut off, `rest` any bit below it."""
        return half & (odd | rest)

    def elaborate(self, platform):
        m = Module()
        exponent_bits, precision = self.exponent_bits, self.precision
        fraction_bits = precision - 1
        fields = exponent_bits + fraction_bits
        wide = precision + 4  # carry, significand, guard, round, sticky
        distance_bits = (precision + 2).bit_length()

        def register(shape, name):
            return Signal(shape, name=name, reset_less=True)

        def unpack(operand, name):
            """Return {exponent, left-aligned fraction}, sign, and whether the exponent is all ones."""
            unpacked = []
            for f in self.formats:
                fraction, exponent = operand[:f.fraction_bits], operand[f.fraction_bits:f.width - 1]
                unpacked.append(Cat(Const(0, fraction_bits - f.fraction_bits), fraction,
                                    exponent, Const(0, exponent_bits - f.exponent_bits),
                                    operand[f.width - 1], exponent.all()))
            chosen = Signal(fields + 2, name=f"{name}_unpacked")
            m.d.comb += chosen.eq(self._select(m, self.format, f"{name}_format", unpacked))
            return chosen[:fields], chosen[fields], chosen[fields + 1]

        # 1: compare magnitudes, swap so that the larger comes first.
        b_magnitude, b_sign, b_special = unpack(self.b, "b")
        a_unpacked, a_sign_unpacked, a_special_unpacked = unpack(self.a, "a")
        a_magnitude = Signal(fields)
        a_sign = Signal()
        a_special = Signal()
        b_adds_special = Signal()
        m.d.comb += [
            a_magnitude.eq(Mux(self.keep_b, 0, a_unpacked)),
            a_sign.eq(Mux(self.keep_b, b_sign, a_sign_unpacked)),
            a_special.eq(a_special_unpacked & ~self.keep_b),
            b_adds_special.eq(b_special & ~self.keep_b),
        ]
        a_exponent, b_exponent = a_magnitude[fraction_bits:], b_magnitude[fraction_bits:]
        a_fraction, b_fraction = a_magnitude[:fraction_bits], b_magnitude[:fraction_bits]
        a_normal, b_normal = a_exponent.any(), b_exponent.any()
        a_weight = Signal(exponent_bits)  # a subnormal weighs like exponent 1
        b_weight = Signal(exponent_bits)
        swap = Signal()
        opposite = Signal()
        cancels = Signal()
        distance = Signal(exponent_bits)
        a_nan = a_special & a_fraction.any()
        b_nan = b_adds_special & b_fraction.any()
        m.d.comb += [
            a_weight.eq(a_exponent | ~a_normal),
            b_weight.eq(b_exponent | ~b_normal),
            swap.eq(a_magnitude < b_magnitude),
            opposite.eq(a_sign ^ b_sign),
            cancels.eq(opposite & (a_magnitude == b_magnitude)),
            # Both differences are computed in parallel with the comparison.
            distance.eq(Mux(swap, (b_weight - a_weight)[:exponent_bits], (a_weight - b_weight)[:exponent_bits])),
        ]
        format1, keep1, sign1, subtract1, nan1, infinite1 = (
            register(shape, name) for shape, name in (
                (self.format.shape(), "format1"), (1, "keep1"), (1, "sign1"), (1, "subtract1"), (1, "nan1"),
                (1, "infinite1")))
        exponent1 = register(exponent_bits, "exponent1")
        large1, small1 = register(precision, "large1"), register(precision, "small1")
        distance1 = register(distance_bits, "distance1")
        with m.If(self.enable[0]):
            m.d.sync += [
                format1.eq(self.format),
                keep1.eq(self.keep_b),
                sign1.eq(Mux(swap, b_sign, a_sign) & ~cancels),
                subtract1.eq(opposite),
                nan1.eq(a_nan | b_nan | (a_special & b_adds_special & opposite)),
                infinite1.eq(a_special | b_adds_special),
                # Exponent 0 makes stage 3 stop the normalisation of an exact zero at once.
                exponent1.eq(Mux(swap, b_weight, a_weight) & ~cancels.replicate(exponent_bits)),
                large1.eq(Mux(swap, Cat(b_fraction, b_normal), Cat(a_fraction, a_normal))),
                small1.eq(Mux(swap, Cat(a_fraction, a_normal), Cat(b_fraction, b_normal))),
                # Saturate: a large distance moves all bits into the sticky bit.
                distance1.eq(distance[:distance_bits] | distance[distance_bits:].any().replicate(distance_bits)),
            ]

        # 2: align the smaller operand.
        value, sticky = Cat(Const(0, 2), small1), Const(0, 1)
        for bit in reversed(range(distance_bits)):
            step = 1 << bit
            shifted, lost = Signal(precision + 2, name=f"shifted{step}"), Signal(name=f"lost{step}")
            m.d.comb += [
                shifted.eq(Mux(distance1[bit], value[step:], value)),
                lost.eq(sticky | (distance1[bit] & value[:step].any())),
            ]
            value, sticky = shifted, lost
        format2, keep2, sign2, subtract2, nan2, infinite2, exponent2, large2 = (
            register(signal.shape(), signal.name[:-1] + "2")
            for signal in (format1, keep1, sign1, subtract1, nan1, infinite1, exponent1, large1))
        aligned2 = register(precision + 3, "aligned2")
        with m.If(self.enable[1]):
            m.d.sync += [
                format2.eq(format1), keep2.eq(keep1), sign2.eq(sign1), subtract2.eq(subtract1), nan2.eq(nan1),
                infinite2.eq(infinite1), exponent2.eq(exponent1), large2.eq(large1),
                aligned2.eq(Cat(sticky, value)),
            ]

        # 3: add or subtract. The difference is never negative, because the larger operand is first.
        total = Signal(wide + 1)
        complement = subtract2.replicate(wide)
        # The extra lowest bit is the carry into the two's complement: one adder, not two.
        m.d.comb += total.eq(Cat(subtract2, Const(0, 3), large2) + Cat(subtract2, aligned2 ^ complement))
        format3, keep3, sign3, nan3, infinite3, exponent3 = (
            register(signal.shape(), signal.name[:-1] + "3")
            for signal in (format2, keep2, sign2, nan2, infinite2, exponent2))
        sum3 = register(wide, "sum3")
        limit3 = register(wide, "limit3")  # one-hot: normalisation stops here, where the exponent reaches 1
        with m.If(self.enable[2]):
            m.d.sync += [
                format3.eq(format2), keep3.eq(keep2), sign3.eq(sign2), nan3.eq(nan2), infinite3.eq(infinite2),
                exponent3.eq(exponent2),
                sum3.eq(total[1:]),
                limit3.eq(Const(1 << (wide - 1), wide) >> exponent2),
            ]

        # 4: normalise by the number of leading zeros, at most to the limit.
        shift_bits = (wide - 1).bit_length()
        leading = Cat(Const(0, (1 << shift_bits) - wide), sum3 | limit3)
        normal = sum3
        shift = []
        for bit in reversed(range(shift_bits)):
            step = 1 << bit
            none, rest = Signal(name=f"none{step}"), Signal(step, name=f"leading{step}")
            moved = Signal(wide, name=f"moved{step}")
            m.d.comb += [
                none.eq(~leading[step:].any()),
                rest.eq(Mux(none, leading[:step], leading[step:])),
                moved.eq(Mux(none, normal << step, normal)),
            ]
            leading, normal = rest, moved
            shift.insert(0, none)
        format4, keep4, sign4, nan4, infinite4 = (
            register(signal.shape(), signal.name[:-1] + "4")
            for signal in (format3, keep3, sign3, nan3, infinite3))
        exponent4 = register(exponent_bits + 1, "exponent4")  # as if the carry bit were the hidden bit
        shift4, normal4 = register(shift_bits, "shift4"), register(wide, "normal4")
        with m.If(self.enable[3]):
            m.d.sync += [
                format4.eq(format3), keep4.eq(keep3), sign4.eq(sign3), nan4.eq(nan3), infinite4.eq(infinite3),
                exponent4.eq(exponent3 + 1), shift4.eq(Cat(*shift)),
                normal4.eq(normal),
            ]

        # 5: round and pack. The exponent is corrected here, in parallel with the rounding, both with and without its
        # carry, because stage 4 has the shift late.
        rounding = []
        for number, f in enumerate(self.results):
            odd = wide - f.precision
            up = self._round_up(normal4[odd], normal4[odd - 1], normal4[:odd - 1].any())
            if number in self.by_chance:
                up = (normal4[odd - RANDOM_BITS:odd] + self.random)[RANDOM_BITS]
            # Ones below the format's last bit propagate the increment to it.
            rounding.append(Cat(up, Const((1 << (precision - f.precision)) - 1, precision)))
        choice = Signal(1 + precision)
        fraction = Signal(fraction_bits + 1)
        exponent_kept = Signal(exponent_bits + 1)
        exponent_raised = Signal(exponent_bits + 1)
        m.d.comb += [
            choice.eq(self._select(m, format4, "rounding", rounding)),
            fraction.eq((normal4[wide - precision:-1] | choice[1:precision]) + choice[0]),
            # Without a hidden bit the number is subnormal or zero, and exact.
            exponent_kept.eq(Mux(normal4[-1], exponent4 - shift4, 0)),
            # A narrower result may be rounded up to the smallest normal number.
            exponent_raised.eq(exponent4 - shift4 + 1 if self.results == self.formats else
                               Mux(normal4[-1], exponent4 - shift4 + 1, 1)),
        ]
        carry = fraction[-1]
        packed = []
        for f in self.results:
            def overflows(exponent, f=f):
                return exponent[f.exponent_bits:].any() | exponent[:f.exponent_bits].all()

            overflow = Mux(carry, overflows(exponent_raised), overflows(exponent_kept))
            infinite = infinite4 | (overflow & ~keep4)
            exponent = Mux(carry, exponent_raised, exponent_kept)[:f.exponent_bits]
            quiet = Const(1 << (f.fraction_bits - 1), f.fraction_bits)
            packed.append(Cat(
                Mux(nan4, quiet, fraction[fraction_bits - f.fraction_bits:-1] & ~infinite.replicate(f.fraction_bits)),
                exponent | (nan4 | infinite).replicate(f.exponent_bits),
                sign4 & ~nan4,
                Const(0, self.width - f.width),
            ))
        result = register(self.width, "result5")
        with m.If(self.enable[4]):
            m.d.sync += result.eq(self._select(m, format4, "packed", packed))
        m.d.comb += self.result.eq(result)
        return m
